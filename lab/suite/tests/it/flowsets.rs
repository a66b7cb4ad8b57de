//! The grammar of flow sets and of the tester's options.

use handover_sched::Algorithm;
use handover_suite::sched::flowset::FlowSet;
use handover_suite::sched::tester::{QueueThreshold, TesterOptions};
use std::collections::BTreeSet;

/// Flow set, number of flows, sum of weights, first and last weight and length.
type Case = (&'static str, u32, u64, (u32, u32), (u32, u32));

const CASES: &[Case] = &[
    ("1:1500:1", 1, 1, (1, 1500), (1, 1500)),
    ("1:1500:16", 16, 16, (1, 1500), (1, 1500)),
    ("100:1500:1,1:1500:16", 17, 116, (100, 1500), (1, 1500)),
    ("1-100-10:1500:10", 100, 5050, (1, 1500), (100, 1500)),
    ("1-1000-50:64-1500-4:50", 10_000, 5_000_200, (1, 64), (1000, 1500)),
    ("5-9:64:3", 6, 42, (5, 64), (9, 64)),
    ("1:64-1500:2", 4, 4, (1, 64), (1, 1500)),
    ("1K:1500:2", 2, 2000, (1000, 1500), (1000, 1500)),
    ("1:1k:4", 4, 4, (1, 1024), (1, 1024)),
    ("1-7-4:100-1000-4:1K", 16_000, 64_000, (1, 100), (7, 1000)),
    ("2:1500:1M", 1_000_000, 2_000_000, (2, 1500), (2, 1500)),
];

/// Flow set, the part and the column of the mistake, and the message.
const REFUSED: &[(&str, usize, usize, &str)] = &[
    ("", 1, 1, "expected a weight"),
    ("1:1500", 1, 7, "expected `:` and the number of flows"),
    ("1:1500:0", 1, 8, "a number of flows of 0: must lie in 1..=16777216"),
    ("0:1500:1", 1, 1, "a weight of 0: must lie in 1..=1048576"),
    ("1:0:1", 1, 3, "a length in bytes of 0: must lie in 1..=1048576"),
    ("9-5:1500:1", 1, 3, "the maximum weight, 5, is below the minimum, 9"),
    ("1:x:3", 1, 3, "expected a length in bytes, a whole number from 1 to 1048576, found 'x'"),
    ("-1:1500:1", 1, 1, "expected a weight, a whole number from 1 to 1048576, found '-'"),
    ("1:1500:1,", 2, 10, "expected a weight, a whole number from 1 to 1048576, found the end"),
    ("1:1500:1:1", 1, 9, "expected `,` or the end, found ':'"),
    ("1-2-3-4:1500:1", 1, 6, "expected `:` and the packets' lengths, found '-'"),
    ("1.5:1500:1", 1, 2, "expected a digit, a suffix (K, M, k, m)"),
    ("1:1500:3q", 1, 9, "expected a digit, a suffix (K, M, k, m)"),
    ("1:1500:1,2:1500,3:1500:1", 2, 16, "expected `:` and the number of flows"),
    ("1-9-1:1500:1", 1, 5, "1 step from 1 to 9"),
    (
        "1:1500:16M,1:1500:1M",
        2,
        12,
        "17000000 flows up to and with this part: at most 16777216 are allowed",
    ),
    ("1:1500:1n", 1, 9, "expected a digit"),
    ("1:1500:99999999999999999999999", 1, 8, "must lie in"),
    ("1-1M-16M:1-1m-16M:16M", 1, 1, "flows up to and with this part"),
];

#[test]
fn flow_sets_parse_as_in_the_classic_tester() {
    for &(text, flows_count, weights_sum, first, last) in CASES {
        let set: FlowSet = text.parse().expect(text);
        assert_eq!(set.flows_count(), flows_count, "{text}");
        assert_eq!(set.weights_sum(), weights_sum, "{text}");
        assert_eq!(set.flows().count(), flows_count as usize, "{text}");
        assert_eq!(set.flows().next(), Some(first), "{text}");
        assert_eq!(set.flows().last(), Some(last), "{text}");
        let sum: u64 = set.flows().map(|(weight, _)| u64::from(weight)).sum();
        assert_eq!(sum, weights_sum, "{text}");
        assert_eq!(set.length_max_bytes(), set.flows().map(|it| it.1).max().unwrap_or(0));
    }
}

#[test]
fn invalid_flow_set_is_refused_with_part_column_and_expected_text() {
    for &(text, part, column, message) in REFUSED {
        let refused = text.parse::<FlowSet>().expect_err(text);
        assert_eq!((refused.part, refused.column), (part, column), "{text}: {refused}");
        assert!(refused.to_string().contains(message), "{text}: {refused}");
    }
}

#[test]
fn printed_flow_set_parses_to_the_same_set() {
    for (text, ..) in CASES {
        let set: FlowSet = text.parse().expect(text);
        assert_eq!(set.to_string().parse(), Ok(set), "{text}");
    }
    let set: FlowSet = "5-5-3:1-9-3:2".parse().expect("three times the same weight");
    assert_eq!((set.flows_count(), set.to_string().as_str()), (18, "5-5-3:1-9-3:2"));
}

#[test]
fn intermediate_steps_are_rounded_down() {
    let set: FlowSet = "1-8-4:10-11:1".parse().expect("a flow set");
    let flows: Vec<_> = set.flows().collect();
    let want = [(1, 10), (1, 11), (3, 10), (3, 11), (5, 10), (5, 11), (8, 10), (8, 11)];
    assert_eq!(flows, want);
}

#[test]
fn mixed_set_has_the_requested_number_of_flows() {
    for flows_count in [1, 2, 4, 16, 199, 200, 250, 399] {
        let set = FlowSet::mixed([1, 1000], flows_count);
        assert_eq!(set.flows_count(), flows_count);
        let [mut weights, mut lengths] = [BTreeSet::new(), BTreeSet::new()];
        for (weight, length) in set.flows() {
            weights.insert(weight);
            lengths.insert(length);
        }
        let differ = flows_count.min(4) as usize;
        assert!(weights.len() >= differ && lengths.len() == differ, "{set}");
    }
    let classic = "1-1000-50:64-1500-4:50".parse();
    assert_eq!(classic, Ok(FlowSet::mixed([1, 1000], 10_000)));
}

#[test]
fn options_match_the_classic_tester() {
    let words = ["-n", "10K", "-alg", "drr", "-flowsets", "2:1500:3", "-qmin", "2n", "-qmax", "50"];
    let options = TesterOptions::parse(&words).expect("options");
    assert_eq!((options.algorithm, options.steps_count), (Algorithm::Rr, 10_000));
    assert_eq!(
        (options.qmin, options.qmax),
        (QueueThreshold::PerFlow(2), QueueThreshold::Packets(50))
    );
    assert_eq!((options.qmin_and_qmax_packets(), options.packets_max()), ((6, 50), 50));
    let words = ["-flows", "7", "-len", "64", "-burst", "4", "-d", "1"];
    let options = TesterOptions::parse(&words).expect("options");
    assert_eq!(options.flows, FlowSet::equal(1, 64, 7));
    assert_eq!((options.burst, options.debug_level, options.length_bytes), (4, 1, Some(64)));
    assert_eq!(options.qmin_and_qmax_packets(), (7, 140));
    assert_eq!(TesterOptions::parse(&[""; 0]), Ok(TesterOptions::default()));
}

#[test]
fn invalid_option_is_refused_with_its_name() {
    let cases: &[(&[&str], &str)] = &[
        (&["-x", "1"], "no option \"-x\": there are -n"),
        (&["-n"], "-n needs a value"),
        (&["-n", "0"], "-n 0: must lie in 1..="),
        (&["-n", "-3"], "-n -3: expected a whole number"),
        (&["-alg", "fair"], "no algorithm is called \"fair\": there are fifo"),
        (&["-flowsets", "1:2"], "-flowsets: part 1, column 4 of the flow set"),
        (&["-len", "2m"], "-len 2m: expected a whole number up to 1048576"),
        (&["-qmin", "n"], "-qmin n: expected a whole number"),
        (&["-flows", "1M", "-qmax", "1Kn"], "-qmax: 1000000000 packets for 1000000 flows"),
    ];
    for (words, message) in cases {
        let refused = TesterOptions::parse(words).expect_err("bad options");
        assert!(refused.to_string().contains(message), "{words:?}: {refused}");
        assert!(std::error::Error::source(&refused).is_none(), "the message contains the cause");
    }
}

#[test]
fn algorithm_names_and_aliases_parse() {
    for (name, algorithm) in Algorithm::NAMES {
        assert_eq!(name.parse(), Ok(*algorithm));
    }
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(*algorithm));
    }
    let refused = "FIFO".parse::<Algorithm>().expect_err("names are as written").to_string();
    for (name, _) in Algorithm::NAMES {
        assert!(refused.contains(name), "{refused}");
    }
}
