//! `sched`: its options, configuration file, table, time-stamp files, and its ends.

use crate::common::{Home, Said, said, wait_until};
use rustix::process::Signal;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

/// The two example lines of the original.
const EXAMPLES: [&str; 2] = [
    "./sched -t 4 -f sched.txt -b 20M -q 100 -i 20 -c 5 -- -flowsets 100:1500:1,1:1500:16 -alg rr",
    "./sched -a 22 -t 1 -b 10T -q 20 -- -flowsets 1:1500:32 -alg rr",
];

/// Returns a command for a line typed in the folder where `sched` is a link to the binary.
fn line(home: &Home, line: &str) -> Command {
    let link = home.cwd().join("sched");
    if !link.exists() {
        symlink(crate::common::binary(), &link).expect("a link");
    }
    home.shell(&format!("exec {line}"))
}

fn configured(home: &Home, text: &str) {
    fs::write(home.cwd().join("sched.txt"), text).expect("a file");
}

/// One row of the closing table.
#[derive(Debug)]
struct Row {
    packets: u64,
    drops: u64,
    queued: u64,
    /// Share obtained, between 0 and 1, if it is printed.
    share: Option<f64>,
    due: Option<f64>,
    lag_bytes: Option<f64>,
}

/// Returns the rows of the closing table; the last is of all clients if there are several.
#[track_caller]
fn rows(said: &Said) -> Vec<Row> {
    let mut lines = said.out.lines();
    let head = lines.next().unwrap_or_default();
    let heads = "client packets pps bit/s drops queued share due fair index";
    let bare = |word: &str| match word.ends_with("pps") || word.ends_with("bit/s") {
        true => word.trim_start_matches(['k', 'M', 'G']).to_string(),
        false => word.to_string(),
    };
    assert!(head.split_whitespace().map(bare).eq(heads.split_whitespace()), "{said}");
    let row = |line: &str| {
        let line = line.replace(" %", "%").replace(" B", "B");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, packets, mpps, gbits, drops, queued, share, due, lag] = words[..] else {
            panic!("{line}: {said}");
        };
        assert!(mpps.parse::<f64>().is_ok() && gbits.parse::<f64>().is_ok(), "{said}");
        let whole = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("{word}: {said}"));
        let part = |word: &str, unit| {
            let number = (word != "-").then(|| word.strip_suffix(unit).expect("a unit"));
            number.map(|number| number.parse::<f64>().expect("a number"))
        };
        Row {
            packets: whole(packets),
            drops: whole(drops),
            queued: whole(queued),
            share: part(share, "%").map(|percent| percent / 100.0),
            due: part(due, "%").map(|percent| percent / 100.0),
            lag_bytes: part(lag, "B"),
        }
    };
    lines.take_while(|line| !line.is_empty()).map(row).collect()
}

/// Returns the lines of a time-stamp file, in fields: five numbers and the flags.
#[track_caller]
fn stamps(home: &Home, file: &str) -> Vec<([u64; 5], String)> {
    let text =
        fs::read_to_string(home.cwd().join(file)).unwrap_or_else(|it| panic!("{file}: {it}"));
    assert!(text.is_empty() || text.ends_with('\n'), "{file} ends in mid-line");
    let fields = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!(fields.len(), 6, "{line}");
        let numbers = std::array::from_fn(|at| fields[at].parse().expect("a number"));
        (numbers, fields[5].to_string())
    };
    text.lines().map(fields).collect()
}

#[test]
fn example_lines_of_the_original_run_unchanged() {
    let home = Home::new();
    let load: String = (0..4).map(|it| format!("thread {it}\n300ms 4M 1500 2\n")).collect();
    configured(&home, &load);
    let first = said(line(&home, EXAMPLES[0])).code(0);
    let table = rows(&first);
    assert_eq!(table.len(), 5, "{first}");
    for (client, row) in table[..4].iter().enumerate() {
        // 4 Mbit/s for 300 ms are 100 packets, in bursts of 2; fewer on a busy machine.
        assert!((1..=102).contains(&row.packets), "{row:?}");
        assert_eq!((row.drops, row.queued), (0, 0), "{first}");
        let lines = stamps(&home, &format!("queue-{client}.txt"));
        assert_eq!(lines.len() as u64, row.packets, "{first}");
        assert!(lines.iter().all(|(numbers, flags)| numbers[4] == 1500 && flags.is_empty()));
        // By departure: a client has several flows, whose packets pass each other while they wait.
        for pair in lines.windows(2) {
            let departure = |(numbers, _): &([u64; 5], _)| numbers[..4].iter().sum::<u64>();
            assert!(departure(&pair[0]) <= departure(&pair[1]), "{pair:?}");
        }
    }
    assert_eq!(table[4].packets, table[..4].iter().map(|row| row.packets).sum::<u64>());

    configured(&home, "# none: as fast as it can\n");
    for client in 0..4 {
        fs::remove_file(home.cwd().join(format!("queue-{client}.txt"))).expect("a file");
    }
    let running = home.start(line(&home, EXAMPLES[1]));
    wait_until("a partial file", || !files_of_stamps(&home).is_empty());
    // Under its name a file appears when it is complete.
    assert!(!home.cwd().join("queue-0.txt").exists(), "{}", running.told());
    running.signal(Signal::INT);
    let second = running.finish().code(130).tells(&["CPU 22", "interrupted"]);
    let table = rows(&second);
    assert_eq!(table.len(), 1, "{second}");
    assert_eq!(stamps(&home, "queue-0.txt").len() as u64, table[0].packets, "{second}");
    assert_eq!(files_of_stamps(&home), ["queue-0.txt"]);
}

/// Returns the names of all time-stamp files, partial ones too.
fn files_of_stamps(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.cwd()).expect("a folder");
    let names = entries.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("queue-")).collect()
}

/// Document's experiments: what the load of each client is, and the options.
const EXPERIMENTS: [(&str, &str); 7] = [
    ("A", "200G, 1500, 1, -b 500G -q 500 -i 5 -alg rr"),
    ("B", "200G, 1500, 10, -b 500G -q 500 -i 5 -alg rr"),
    ("C", "200G, 1500, 50, -b 500G -q 500 -i 5 -alg rr"),
    ("D", "200G, 1500, 200, -b 500G -q 500 -i 5 -alg rr"),
    ("E", "200G, 1500, 1000, -b 500G -q 500 -i 5 -alg rr"),
    ("F", "500G, 1500, 100, -b 500G -q 14000 -i 20 -alg rr"),
    ("G", "500G, 1500, 1000, -b 500G -q 14000 -i 20 -alg rr"),
];

#[test]
fn experiments_of_the_original_run_with_its_shorthand() {
    let home = Home::new();
    for (_, experiment) in [EXPERIMENTS[0], EXPERIMENTS[5]] {
        let words: Vec<&str> = experiment.splitn(4, ", ").collect();
        let [bandwidth, length, burst, options] = words[..] else { panic!("{experiment}") };
        configured(&home, &format!("20ms {bandwidth} {length} {burst}\n"));
        let said = said(line(&home, &format!("./sched {options}"))).code(0);
        let table = rows(&said);
        assert_eq!(stamps(&home, "queue-0.txt").len() as u64, table[0].packets, "{said}");
        assert!(said.out.contains("\nrr, 1:1500:16, -b 500G, stamps: packet; "), "{said}");
    }
    // The scheduler's options in any place, before `--` and behind it.
    let said =
        said(line(&home, "./sched -alg qfq -t 2 -flowsets 1:64:2 --seconds 0.05 -- -qmax 9"));
    assert!(said.code(0).out.contains("\nqfq, 1:64:2, "));
}

#[test]
fn experiments_table_has_the_lines_of_the_original() {
    let home = Home::new();
    let said = home.run("sched --experiments --clients 2 --seconds 0.02").code(0);
    let lines: Vec<&str> = said.out.lines().collect();
    for ((letter, experiment), line) in EXPERIMENTS.iter().zip(&lines) {
        assert_eq!(*line, format!("{letter}:\t{experiment}"), "{said}");
    }
    let head = ["", "Clients\t\taggregate Mpps", "", "\t\tA\tB\tC\tD\tE\tF\tG"];
    assert_eq!(lines[7..11], head, "{said}");
    let row = regex_lite::Regex::new(r"^2\t(\t\d+\.\d){7}$").expect("a form");
    assert!(lines.len() == 12 && row.is_match(lines[11]), "{said}");
    let said = home.run("sched --experiments bG --clients 1,23 --seconds 0.02").code(0);
    let row =
        regex_lite::Regex::new(r"\n1\t(\t\d+\.\d){2}\n23\t(\t\d+\.\d){2}\n$").expect("a form");
    assert!(said.out.starts_with("B:\t") && row.is_match(&said.out), "{said}");
    assert!(files_of_stamps(&home).is_empty());
}

#[test]
fn help_lists_the_options_of_the_original_in_order() {
    let home = Home::new();
    let said = said(line(&home, "./sched --help")).code(0);
    let options =
        ["  -t ", "  -f ", "  -q ", "  -b ", "  -i ", "  -c ", "  -p ", "  -alg ", "  -flowsets "];
    let places: Vec<_> = options.map(|option| said.out.find(&format!("\n{option}"))).into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}: {said}");
}

#[test]
fn every_packet_has_a_line_and_stamps_of_its_own_by_default() {
    let home = Home::new();
    let said = home.run("sched -b 10T -i 0 -c 0 --seconds 0.2 -- -flowsets 1:64:1").code(0);
    let table = rows(&said);
    let lines = stamps(&home, "queue-0.txt");
    assert_eq!(lines.len() as u64, table[0].packets, "{said}");
    assert!(lines.windows(2).all(|pair| pair[0].0[0] < pair[1].0[0]), "a stamp is shared");
    let cost = regex_lite::Regex::new(
        r"\nstamps: 4 readings of the clock a packet, \d+\.\d ns each; (\d+) lines, the last of them \d+\.\d{3} s after the run; clients waited \d+\.\d{3} s for room\n",
    );
    let cost = cost.expect("a form").captures(&said.out).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(cost[1].parse(), Ok(table[0].packets), "{said}");

    let said = home.run("sched --stamp batch --stamp-loss drop --seconds 0.1 -p b-").code(0);
    let lines = stamps(&home, "b-queue-0.txt").len() as u64;
    assert_eq!(lines, rows(&said)[0].packets, "{said}");
    assert!(said.out.contains("4 readings of the clock a batch"), "{said}");
}

#[test]
fn shares_follow_the_weights_under_overload() {
    let home = Home::new();
    // `HANDOVER_LONG=1` tries every algorithm with weights; their shares are tested in their crate
    // too.
    let algorithms = ["qfq+", "wf2q+", "rr", "qfq"];
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    for algorithm in &algorithms[..if is_long { algorithms.len() } else { 2 }] {
        // 400 queued packets of each client are half a second of the link.
        let line = format!(
            "sched -t 2 -b 20M -q 400 --seconds 1.5 -- -flowsets 3:1500:1,1:1500:1 -alg {algorithm}"
        );
        let said = home.run(&line).code(0);
        let table = rows(&said);
        for (row, due) in table.iter().zip([0.75, 0.25]) {
            let (share, said_due) = (row.share.expect("a share"), row.due.expect("a due part"));
            assert!((said_due - due).abs() < 1e-4, "{said}");
            // At the end both queues run empty, the one with the larger weight first.
            assert!((share - due).abs() < 0.13, "{algorithm}: {said}");
        }
        // A few packets, of thousands sent.
        assert!(table[2].lag_bytes.expect("an index") <= 6.0 * 1500.0, "{algorithm}: {said}");
    }
    // A client of several flows is due what all of them are.
    let line = EXAMPLES[0].replace("./sched ", "sched ").replace("-f sched.txt ", "--seconds 0.1 ");
    let said = home.run(&line).code(0);
    for (row, weights) in rows(&said).iter().zip([104.0, 4.0, 4.0, 4.0]) {
        let due = row.due.expect("a due part");
        assert!(row.share.is_some() && (due - weights / 116.0).abs() < 1e-4, "{said}");
    }
    assert!(said.out.contains("\ndue: by the weights of a client's flows, while all "), "{said}");
    // 0.1 s are 167 packets, and 400 are queued at the end, which is told; on a busy machine
    // something else may be.
    assert!(said.out.contains("\nshare: "), "{said}");
    // Below the link's rate everybody gets what is offered.
    configured(&home, "100ms 100k 100 1\nthread 1\n100ms 300k 100 1\n");
    let said = home.run("sched -t 2 -b 1G -- -flowsets 3:1500:1,1:1500:1").code(0);
    assert!(said.out.contains("share: by what the clients offered"), "{said}");
    fs::remove_file(home.cwd().join("sched.txt")).expect("a file");
    // Algorithms that do not schedule by weight promise no share.
    let said = home.run("sched -t 2 -b 20M --seconds 0.1 -- -alg fifo").code(0);
    assert!(rows(&said).iter().all(|row| row.due.is_none()), "{said}");
}

#[test]
fn packets_beyond_a_full_flow_are_dropped_counted_and_flagged() {
    let home = Home::new();
    let said = home.run("sched -b 10M -q 100 --seconds 0.3 -- -flowsets 1:1500:4 -qmax 2");
    let said = said.code(0);
    let table = rows(&said);
    let lines = stamps(&home, "queue-0.txt");
    let dropped = lines.iter().filter(|(_, flags)| flags == "D").count() as u64;
    assert!(table[0].drops > 0 && table[0].packets > 0, "{said}");
    assert_eq!(dropped, table[0].drops, "{said}");
    assert_eq!(lines.len() as u64, table[0].drops + table[0].packets, "{said}");
}

#[test]
fn clients_beyond_the_number_of_cpus_all_send() {
    let home = Home::new();
    let said = home.run("sched -t 40 -b 1G --seconds 1 --stamp none -- -flowsets 1:1500:40");
    let said = said.code(0).tells(&["40 clients and the arbiter share"]);
    let table = rows(&said);
    assert_eq!(table.len(), 41);
    assert!(table.iter().all(|row| row.packets > 0), "{said}");
    // No stamps, no files, no waits.
    assert!(!home.cwd().join("queue-0.txt").exists() && !said.out.contains("p99"), "{said}");
}

#[test]
fn clients_without_a_flow_send_nothing_and_cause_a_warning() {
    let home = Home::new();
    let said = home.run("sched -t 3 --seconds 0.1 -- -flowsets 1:300:2").code(0);
    let said = said.tells(&["2 flows for 3 threads: the threads from 2 on have no flow"]);
    let packets: Vec<u64> = rows(&said).iter().map(|row| row.packets).collect();
    assert!(packets[0] > 0 && packets[1] > 0 && packets[2] == 0, "{said}");
}

#[test]
fn datagrams_leave_at_the_scheduled_rate() {
    let home = Home::new();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let to = socket.local_addr().expect("an address");
    configured(&home, "200ms 1M 250 1\n"); // 500 packets a second: 100
    let mut sender =
        home.start(line(&home, &format!("./sched -b 2M --sink udp://{to} --stamp none")));
    let (mut count, mut bytes) = (0, [0; 2048]);
    loop {
        // Tested first: all datagrams of a sender that has ended are in the socket.
        let has_ended = sender.has_ended();
        match socket.recv(&mut bytes) {
            Ok(length) => {
                assert_eq!(length, 250);
                count += 1;
            }
            Err(_) if has_ended => break,
            Err(_) => {}
        }
    }
    let said = sender.finish().code(0);
    assert_eq!(count, rows(&said)[0].packets, "{said}");
    // Fewer on a busy machine.
    assert!((1..=101).contains(&count), "{said}");
}

#[test]
fn plot_draws_stages_and_shares() {
    let home = Home::new();
    let said = home.run("sched -t 2 --seconds 0.1 -p out- --plot -- -flowsets 1:1500:2").code(0);
    for name in ["out-stages.svg", "out-shares.svg"] {
        let drawn = fs::read_to_string(home.cwd().join(name)).expect("a picture");
        assert!(drawn.starts_with("<svg") && drawn.contains("client"), "{name}");
        assert!(said.out.contains(&format!("drawn: {name}")), "{said}");
    }
    assert!(home.cwd().join("out-queue-1.txt").exists());
}

#[test]
fn configuration_errors_name_file_line_and_column() {
    let home = Home::new();
    for (text, place) in [
        ("thread 0\n1s 100M 64\n", "sched.txt: line 2, column 11"),
        ("1 parsec 100M 64 1\n", "sched.txt: line 1, column 1"),
        ("1s 100M 0 1\n", "sched.txt: line 1, column 9"),
        ("thread -1\n1s 100M 64 1\n", "sched.txt: line 1, column 8"),
    ] {
        configured(&home, text);
        for named in ["", "-f sched.txt"] {
            let said = home.run(&format!("sched {named} --seconds 0.1")).code(2);
            let said = said.tells(&[place, "expected"]);
            assert!(said.out.is_empty() && !home.cwd().join("queue-0.txt").exists(), "{said}");
        }
    }
    home.run("sched -f elsewhere.txt")
        .code(2)
        .tells(&["-f: cannot read elsewhere.txt", "No such file"]);
    // Without -f, a missing file is not an error.
    fs::remove_file(home.cwd().join("sched.txt")).expect("a file");
    home.run("sched --seconds 0.05").code(0);
}

#[test]
fn entries_of_missing_threads_are_ignored_with_a_warning() {
    let home = Home::new();
    configured(&home, "50ms 1M 64 1\nthread 7\n1h 1M 64 1\n");
    let said =
        home.run("sched -t 1").code(0).tells(&["thread 7 does not exist: its lines are ignored"]);
    assert!(said.took < Duration::from_secs(60), "{said}");
}

#[test]
fn impossible_scheduler_options_are_refused_before_the_start() {
    let home = Home::new();
    for (words, tells) in [
        ("-b 0", "-b"),
        ("-b 1001T", "1 Pbit/s"),
        ("-q 0", "must lie in 1..="),
        ("-t 0", "must lie in 1..="),
        ("--stamp often", "packet, batch, none"),
        ("--stamp-loss some", "block, drop"),
        ("--sink pipe", "udp://"),
        ("--experiments H", "choose from A to G"),
        ("--experiments , --clients 1", "choose from A to G"),
        ("--experiments A --clients 0", "must lie in 1..="),
        ("--experiments A -t 2", "cannot be used with"),
        ("--clients 2", "--experiments"),
        ("-alg fair", "no algorithm is called \"fair\""),
        ("-b 1G -alg", "-alg needs a value"),
        ("-- -flowsets 1:100K:1", "65535 at most"),
        ("--seconds 0", "must lie in"),
        ("-- -alg fair", "no algorithm is called \"fair\""),
        ("-- -flowsets 0:1500:1", "must lie in 1..="),
        ("-- -flowsets -1:1500:1", "-flowsets"),
        ("-- -flowsets 1:1500:0", "must lie in 1..="),
        ("-- -flowsets 1:9M:1", "must lie in 1..="),
        ("-- -flowsets 1:1500", "column 7"),
        ("-- -qmin 3", "--test"),
        ("-- -fast", "unknown scheduler option"),
        ("--test -- -alg fair", "no algorithm is called"),
        ("--test -- -qmax", "-qmax needs a value"),
    ] {
        let said = home.run(&format!("sched {words}")).code(2).tells(&[tells]);
        assert!(said.out.is_empty(), "{said}");
    }
    assert!(!home.cwd().join("queue-0.txt").exists());
}

#[test]
fn prefix_in_a_missing_folder_is_refused_before_the_start() {
    let home = Home::new();
    for (words, file) in [
        ("", "nowhere/x-queue-0.txt"),
        ("--plot", "nowhere/x-shares.svg"),
        ("--plot --stamp none", "nowhere/x-shares.svg"),
    ] {
        let said = home.run(&format!("sched --seconds 0.1 -p nowhere/x- {words}")).code(2);
        assert!(said.out.is_empty(), "{said}");
        said.tells(&[file, "name a prefix"]);
    }
}

#[test]
fn refused_chart_leaves_the_other_one_as_it_is() {
    let home = Home::new();
    // A file beside the chart would have too long a name, so the chart is written in place.
    let prefix = "n".repeat(240);
    let shares = home.cwd().join(format!("{prefix}shares.svg"));
    fs::write(&shares, "drawn before").expect("a file");
    fs::create_dir(home.cwd().join(format!("{prefix}stages.svg"))).expect("a folder");
    let said = home.run(&format!("sched --seconds 0.1 -p {prefix} --plot")).code(2);
    assert!(said.out.is_empty(), "{said}");
    said.tells(&["stages.svg", "name a prefix"]);
    assert_eq!(fs::read_to_string(&shares).expect("a file"), "drawn before");
}

#[test]
fn interrupted_run_without_time_stamps_stores_nothing() {
    let home = Home::new();
    for (words, told) in [("", "are kept"), ("--stamp none", "are shown, but not stored")] {
        let line = format!("sched --seconds 3600 -b 1M {words}");
        let running = home.start(home.handover(line.split_whitespace()));
        let id = running.id();
        // The clients have threads of their own, which start after the signal handlers.
        let threads = || fs::read_dir(format!("/proc/{id}/task")).map_or(0, |it| it.count());
        wait_until("the clients", || threads() > 2);
        running.signal(Signal::INT);
        running.finish().code(130).tells(&[told]);
    }
}

#[test]
fn interrupted_first_experiment_ends_its_row_and_shows_nothing() {
    let home = Home::new();
    let line = "sched --experiments A --clients 1 --seconds 3600";
    let running = home.start(home.handover(line.split_whitespace()));
    let tasks = format!("/proc/{}/task", running.id());
    // The arbiter and the client, which start after the signal handlers.
    wait_until("the client", || fs::read_dir(&tasks).map_or(0, |it| it.count()) > 2);
    running.signal(Signal::INT);
    let said = running.finish().code(130).tells(&["no measurement was completed"]);
    assert!(said.out.ends_with("\n1\t\n"), "{said}");
}

#[test]
fn help_fits_in_eighty_columns() {
    let home = Home::new();
    let mut command = home.handover(["sched", "--help"]);
    command.env("COLUMNS", "80");
    let said = said(command).code(0);
    let (_, after) =
        said.out.split_once("\nScheduler options").expect("the text after the options");
    assert!(after.contains("\n  -qmax N        packets that a flow may have queued; "), "{said}");
    assert!(after.lines().all(|line| line.chars().count() <= 80), "{said}");
}

#[test]
fn full_disk_ends_time_stamps_but_not_the_run() {
    let home = Home::new();
    let line = "ulimit -f 8 && exec handover sched -b 1G --seconds 0.5";
    let said = said(home.shell(line)).code(1);
    let said = said.tells(&["queue-0.txt", "the incomplete time-stamp file was deleted"]);
    let table = rows(&said);
    assert!(table[0].packets > 1000 && said.out.contains("were not written"), "{said}");
    assert!(files_of_stamps(&home).is_empty(), "a file that is not complete");
}

#[test]
fn test_prints_the_line_of_dummynet_for_each_algorithm() {
    let home = Home::new();
    for algorithm in
        ["fifo", "rr", "drr", "rr1", "prio", "wf2q+", "wf2qp", "qfq", "qfq+", "qfqp", "pacing"]
    {
        let words = format!(
            "sched --test -- -n 20K -alg {algorithm} -flowsets 100:1500:1,1:1500:16 -burst 3"
        );
        let said = home.run(&words).code(0);
        let words: Vec<&str> = said.out.split_whitespace().collect();
        assert!(words[0].starts_with("sched=") && words[1].starts_with("time="), "{said}");
        assert!(words.iter().any(|word| word.starts_with("wfi=")), "{said}");
        assert!(
            said.out.contains("net of the generator") && said.out.contains("17 flows"),
            "{said}"
        );
    }
}
