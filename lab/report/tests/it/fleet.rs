//! Nodes of a fleet, compared with golden files and with simulated fleets.

use crate::support::{assert_golden, record, run};
use handover_base::random::SplitMix64;
use handover_record::{
    ContenderKind, Document, Finding, FindingLevel, Record, Warning, WarningCode,
};
use handover_report::Style;
use handover_report::compare::Rules;
use handover_report::fleet::Fleet;
use std::convert::Infallible;

const PLAIN: Style = Style { color: false, unicode: true, all: false };
const FIGURES: [&str; 4] = ["lock/free", "lock/busy", "ring/push-pop", "notify/busy"];

/// Returns the run of a node, with each of [`FIGURES`] at 100 ns times its factor.
fn node(name: &str, factors: impl Fn(usize) -> f64) -> Document {
    let mut run = run();
    run.id = format!("run-{name}");
    run.host.name = name.to_string();
    run.host.cpus_allowed = vec![0, 1];
    let figure = |(place, id): (usize, &&str)| {
        record(id, "handover", ContenderKind::Ours, 100.0 * factors(place))
    };
    Document::new(run, FIGURES.iter().enumerate().map(figure).collect())
}

fn fleet_of(nodes: Vec<Document>, rules: Rules) -> Fleet {
    let Ok(fleet) = Fleet::new("fleet-1", nodes.into_iter().map(Ok::<_, Infallible>), rules);
    fleet
}

/// Returns `count` nodes with figures that spread by 1 %; those of the nodes `slow` are 10 %
/// greater.
fn nodes(seed: u64, count: usize, slow: &[usize]) -> Vec<Document> {
    let mut random = SplitMix64::new(seed);
    let mut one = |place: usize| {
        let level = if slow.contains(&place) { 1.1 } else { 1.0 };
        let noise: Vec<f64> =
            FIGURES.iter().map(|_| level * (0.01 * random.next_normal()).exp()).collect();
        node(&format!("node{place:04}"), |figure| noise[figure])
    };
    (0..count).map(&mut one).collect()
}

fn apart(fleet: &Fleet) -> Vec<usize> {
    let mut apart: Vec<usize> = fleet.apart.iter().map(|it| it.node).collect();
    apart.sort_unstable();
    apart
}

fn finding(code: &str, level: FindingLevel, found: &str) -> Finding {
    let (code, found) = (code.to_string(), found.to_string());
    Finding { code, level, found, why: String::new(), fix: None }
}

#[test]
fn slow_nodes_among_a_thousand_are_named_and_no_other() {
    let slow = [3, 141, 592, 653, 999];
    let fleet = fleet_of(nodes(1, 1000, &slow), Rules::default());
    assert_eq!(apart(&fleet), slow);
    for row in &fleet.rows {
        assert!((row.slower_count, row.faster_count) == (5, 0), "{}: {}", row.id, row.slower_count);
        assert!(row.spread.is_some_and(|it| (0.009..0.011).contains(&it)), "{:?}", row.spread);
    }
    // The nodes that differ are a minority of any size.
    let slow: Vec<usize> = (0..400).collect();
    assert_eq!(apart(&fleet_of(nodes(2, 1000, &slow), Rules::default())), [0; 0], "400 of 1,000");
    let slow: Vec<usize> = (0..150).collect();
    let fleet = fleet_of(nodes(3, 1000, &slow), Rules::default());
    let found = apart(&fleet);
    assert!(found.len() > 140 && found.iter().all(|it| *it < 150), "{} of 150", found.len());
}

#[test]
fn equal_nodes_are_named_in_at_most_5_of_100_fleets() {
    let rules = Rules { threshold: 0.0, all: false };
    for count in [3, 4, 8, 32] {
        let without_intervals = |seed: u64| {
            let mut nodes = nodes(1000 + seed, count, &[]);
            for record in nodes.iter_mut().flat_map(|it| &mut it.records) {
                (record.summary.low, record.summary.high) = (None, None);
            }
            nodes
        };
        let fleets = (0..200).map(|seed| fleet_of(without_intervals(seed), rules));
        let wrong = fleets.filter(|fleet| !fleet.apart.is_empty()).count();
        assert!(wrong <= 10, "{wrong} of 200 fleets of {count} equal nodes have one that is named");
    }
}

#[test]
fn slow_node_of_a_small_fleet_is_named_if_it_is_far_from_the_others() {
    let of = |factor: f64| {
        let nodes = (0..10).map(|place| {
            let own = 1.0 + 0.001 * ((place * 7) % 10) as f64;
            node(&format!("node{place}"), |_| if place == 4 { factor * own } else { own })
        });
        apart(&fleet_of(nodes.collect(), Rules::default()))
    };
    assert_eq!(of(1.10), [4]);
    assert_eq!(of(0.90), [4], "a faster node stands apart too");
    assert_eq!(of(1.015), [0; 0], "within the threshold");
}

#[test]
fn node_with_an_uncertain_figure_is_not_named_for_it() {
    let mut nodes = nodes(4, 50, &[7]);
    assert_eq!(apart(&fleet_of(nodes.clone(), Rules::default())), [7]);
    for record in &mut nodes[7].records {
        let median = record.summary.median;
        (record.summary.low, record.summary.high) = (Some(median * 0.8), Some(median * 1.3));
    }
    assert_eq!(apart(&fleet_of(nodes, Rules::default())), [0; 0]);
}

#[test]
fn node_that_timed_operations_singly_is_not_compared_with_nodes_that_timed_batches() {
    let mut nodes = nodes(6, 20, &[7]);
    assert_eq!(apart(&fleet_of(nodes.clone(), Rules::default())), [7]);
    nodes[7].records.iter_mut().for_each(|it| it.summary.batch = 1);
    let fleet = fleet_of(nodes, Rules::default());
    assert_eq!(apart(&fleet), [0; 0]);
    assert!(fleet.rows.iter().all(|row| row.figures.len() == 19), "{:?}", fleet.rows);
    let note = "4 figures left out, of node0007: their operations were timed in another way";
    let warning = "Slower nodes time singly: a node that was left out may stand apart.";
    let [found] = &fleet.notes[..] else { panic!("one note: {:?}", fleet.notes) };
    assert!(found.starts_with(note) && found.ends_with(warning), "{found}");
}

#[test]
fn table_lists_the_nodes_that_stand_apart_with_their_own_findings() {
    let mut nodes = nodes(5, 40, &[11]);
    for node in &mut nodes {
        node.run.findings.push(finding("steal", FindingLevel::Disturbs, "12 % were stolen"));
        node.run.findings.push(finding("counters", FindingLevel::Fine, "readable"));
    }
    nodes[11].run.findings.push(finding("governor", FindingLevel::Disturbs, "powersave"));
    nodes[12].run.complete = false;
    let fleet = fleet_of(nodes, Rules::default());
    assert_eq!(apart(&fleet), [11]);
    let findings: Vec<_> =
        fleet.apart[0].findings.iter().map(|it| (&*it.code, it.nodes_count)).collect();
    assert_eq!(findings, [("governor", 1), ("steal", 40)]);
    assert_golden("fleet-80.txt", &fleet.render_text(80, PLAIN));
    assert!(fleet.render_text(80, Style { unicode: false, ..PLAIN }).is_ascii());
    for width in 1..=120 {
        let drawn = fleet.render_text(width, PLAIN);
        assert!(drawn.lines().all(|line| line.chars().count() <= width), "{width}:\n{drawn}");
    }
}

/// Change of a record that prevents its comparison.
type Change = dyn Fn(&mut Record);

#[test]
fn figures_that_cannot_be_compared_say_why() {
    let smoke = |record: &mut Record| {
        record.warnings = vec![Warning { code: WarningCode::Smoke, text: String::new() }];
    };
    let zero = |record: &mut Record| record.summary.median = 0.0;
    let changes: [(&Change, usize, &str); 3] = [
        (&smoke, 5, "run with smoke values"),
        (&zero, 5, "not above 0"),
        (&|_| {}, 2, "2 nodes, and at least 3 are needed"),
    ];
    for (change, count, why) in changes {
        let mut nodes = nodes(6, count, &[]);
        nodes.iter_mut().flat_map(|it| &mut it.records).for_each(change);
        let fleet = fleet_of(nodes, Rules::default());
        assert!(
            fleet.rows.iter().all(|row| row.why.contains(why)),
            "{why}: {:?}",
            fleet.rows[0].why
        );
        let drawn = fleet.render_text(80, PLAIN);
        assert!(drawn.contains("The nodes are not compared.") && fleet.apart.is_empty(), "{drawn}");
    }
    assert!(fleet_of(Vec::new(), Rules::default()).render_text(80, PLAIN).contains("No figure"));
}

#[test]
fn peers_are_compared_only_on_request() {
    let with_peers = || -> Vec<Document> {
        let mut nodes = nodes(7, 10, &[]);
        for node in &mut nodes {
            for kind in [ContenderKind::Peer, ContenderKind::Null] {
                node.records.push(record("lock/free", &kind.to_string(), kind, 50.0));
            }
            node.records.push(record("floor/empty", "hardware", ContenderKind::Floor, 5.0));
        }
        nodes
    };
    let rows = |all| {
        let fleet = fleet_of(with_peers(), Rules { all, ..Rules::default() });
        fleet.rows.into_iter().map(|row| row.contender).collect::<Vec<_>>()
    };
    assert_eq!(rows(false), ["handover", "handover", "handover", "handover", "hardware"]);
    assert_eq!(rows(true), ["handover", "handover", "handover", "handover", "peer", "hardware"]);
}

#[test]
fn chart_has_a_dot_for_each_node_in_each_row() {
    let mut nodes = nodes(8, 30, &[2]);
    nodes[2].run.host.name = "</svg>".to_string();
    nodes[2].host.name = "</svg>".to_string();
    let drawn = fleet_of(nodes, Rules::default()).chart().to_standalone_svg();
    let tree = roxmltree::Document::parse(&drawn).expect("sound XML");
    let titles = tree.descendants().filter(|node| node.has_tag_name("title")).count();
    assert!(titles >= 30 * FIGURES.len(), "{titles} tooltips");
    assert!(drawn.contains("1 node stands apart."), "the description is missing");
    let number = |node: roxmltree::Node<'_, '_>, name: &str| -> f64 {
        node.attribute(name).expect("an attribute").parse().expect("a number")
    };
    for id in FIGURES {
        let label = tree.descendants().find(|node| node.is_text() && node.text() == Some(id));
        let row = number(label.and_then(|it| it.parent()).expect("a label"), "y") - 4.0;
        let is_of_it = |it: &roxmltree::Node<'_, '_>| {
            it.text().is_some_and(|text| text.contains(&format!(": {id} ")))
        };
        let titles = tree.descendants().filter(|it| it.has_tag_name("title")).filter(is_of_it);
        let dots = titles
            .filter_map(|title| title.parent()?.descendants().find(|it| it.has_tag_name("circle")));
        let heights: Vec<f64> = dots.map(|dot| number(dot, "cy") - row).collect();
        assert_eq!(heights.len(), 30, "{id}");
        assert!(
            heights.iter().all(|it| it.abs() <= 7.0),
            "{id} has dots in another row: {heights:?}"
        );
        assert!(heights.iter().any(|it| *it < -3.0) && heights.iter().any(|it| *it > 3.0));
    }
}
