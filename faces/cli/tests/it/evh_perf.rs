//! `evh_perf`: its output, the options it rejects, and its behaviour when the other side fails.

use crate::common::{Home, Running, Said, free_address, json, said, skipped, wait_until};
use crate::margo::{launched, mpiexecs};
use crate::transcript;
use regex_lite::Regex;
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

/// Start of a line with the time.
const HEAD: &str = r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\]: ";

/// Returns the texts of the lines, without the time if there is one.
fn texts(out: &str) -> Vec<String> {
    let head = Regex::new(HEAD).expect("a form");
    out.lines().map(|line| head.replace(line, "").into_owned()).collect()
}

/// Returns the captures of the first line that matches the form.
#[track_caller]
fn found(texts: &[String], form: &str) -> Vec<String> {
    let form = Regex::new(form).expect("a form");
    let captures = texts.iter().find_map(|text| form.captures(text));
    let captures = captures.unwrap_or_else(|| panic!("no line has the form {form}: {texts:#?}"));
    captures.iter().skip(1).flatten().map(|it| it.as_str().to_string()).collect()
}

fn number(text: &str) -> u64 {
    text.replace(',', "").parse().expect("a number")
}

/// Returns the number of messages received, from the last block.
#[track_caller]
fn received(texts: &[String]) -> u64 {
    let all: Vec<String> =
        texts.iter().filter(|text| text.contains("total_messages=[")).cloned().collect();
    let last = &all[all.len().saturating_sub(1)..];
    number(&found(last, r"total_messages=\[([\d,]+)\],elapsed_time=\[\d+\.\d\ds\]$")[0])
}

/// Starts a server with these options on a port of its own; returns the port too.
fn server<'a>(home: &'a Home, words: &str) -> (Running<'a>, u64) {
    let line = format!("evh_perf -e -p 0 {words}");
    let running = home.start(home.handover(line.split_whitespace()));
    let port = started(home);
    (running, port)
}

/// Waits until the server serves; returns its port.
fn started(home: &Home) -> u64 {
    let out = || fs::read_to_string(home.path().join("out")).unwrap_or_default();
    wait_until("a server", || out().contains("Server started in "));
    number(&found(&texts(&out()), r"^port: +'(\d+)'$")[0])
}

/// Waits until a server with `--debug` has printed that it has accepted `count` connections.
fn wait_for_connections(home: &Home, count: usize) {
    let out = || fs::read_to_string(home.path().join("out")).unwrap_or_default();
    wait_until("connections", || out().matches(" has connected").count() >= count);
}

/// Waits until the server has used CPU time under load.
fn wait_for_load(serving: &Running<'_>) {
    let cpu = || {
        handover_classic::load::process::read_process_usage(serving.id()).unwrap_or_default().cpu
    };
    let enough = cpu() + Duration::from_millis(100);
    wait_until("load", || cpu() >= enough);
}

/// Runs a client of this port until it ends.
fn client(port: u64, words: &str) -> Said {
    Home::new().run(&format!("evh_perf -c -p {port} {words}"))
}

#[test]
fn server_and_client_in_one_process_print_the_lines_of_the_original() {
    let home = Home::new();
    let words = "evh_perf -e -c -p 0 -t 2 --clients 2 -i 2 --count 50 --reconns 2 --sleep 10 -z";
    let said = home.run(words).code(0);
    let mut lines: Vec<&str> = said.out.lines().collect();
    remove_blocks(&mut lines);
    let texts = texts(&lines.join("\n"));
    let rule = "-".repeat(100);
    for (index, form) in [
        r"^evh_perf EventHandler/\d+\.\d+\.\d+$",
        "^-{100}$",
        "^debug:                  'false'$",
        r"^host:                   '127\.0\.0\.1'$",
        "^max_handles_per_thread: '300'$",
        r"^port:                   '\d+'$",
        "^read_slab_count:        '20'$",
        "^reuse_port:             'false'$",
        "^stats:                  'false'$",
        "^threads:                '2'$",
        "^-{100}$",
        r"^\(INFO\)  Server started in \d+ ms\.$",
        r"^\(INFO\)  A thread accepts up to [\d,]+ connections; -h sets another limit\.$",
        r"^evh_perf Client/\d+\.\d+\.\d+$",
        "^-{100}$",
        "^clients:                '2'$",
        "^count:                  '50'$",
        "^debug:                  'false'$",
        "^histo:                  'true'$",
        "^histo_delta_micros:     '10'$",
        r"^host:                   '127\.0\.0\.1'$",
        "^iterations:             '2'$",
        "^max:                    '10'$",
        r"^max_handles_per_thread: '[\d,]+'$",
        "^min:                    '3'$",
        r"^port:                   '\d+'$",
        "^read_slab_count:        '20'$",
        "^reconns:                '2'$",
        "^sleep:                  '10'$",
        "^stats:                  'false'$",
        "^threads:                '2'$",
        "^-{100}$",
        r"^\(INFO\)  Client started in \d+ ms\.$",
    ]
    .iter()
    .enumerate()
    {
        assert!(Regex::new(form).expect("a form").is_match(&texts[index]), "{form}: {said}");
    }
    let rest = &texts[33..];
    let sleeps = rest.iter().take_while(|text| *text == "(INFO)  sleeping for 10 ms.").count();
    // One for each thread, after each repetition.
    assert_eq!(sleeps, 4, "{said}");
    let end = &rest[sleeps..];
    assert_eq!((&end[0], &end[4], &end[6]), (&rule, &rule, &rule), "{said}");
    assert_eq!(end[1], "(INFO)  Perf test completed successfully!");
    assert_eq!(received(&end[2..3]), 800);
    let form = r"^\(INFO\)  messages_per_second=\[[\d,]+\],average_latency=\[\d+\.\d\dµs\]$";
    found(&end[3..4], form);
    assert_eq!(end[5], "Latency Histogram");
    let row =
        Regex::new(r"^\[(\d+)µs *- (\d+)µs *\](=*)> ([\d,]+) \((\d+\.\d\d)%\)$").expect("a form");
    let rows: Vec<_> = end[7..].iter().map_while(|text| row.captures(text)).collect();
    let mut sum = 0;
    for it in &rows {
        assert_eq!(number(&it[2]) - number(&it[1]), 10);
        let percent: f64 = it[5].parse().expect("a number");
        assert!((it[3].len() as f64 - percent).abs() <= 1.01, "{it:?}");
        sum += number(&it[4]);
    }
    assert_eq!((sum, &end[7 + rows.len()]), (800, &rule), "{said}");
    // Lines that the original does not print come after.
    found(&end[8 + rows.len()..], r"^\(INFO\)  latency: p50 .*, p99 .*, max ");
}

/// Documented start of a server, in the earlier of the two documented versions.
const SERVER: &str = r"[2024-02-08 10:27:00.583]: evh_perf EventHandler/0.0.3-beta.1
----------------------------------------------------------------------------------------------------
[2024-02-08 10:27:00.583]: debug:                  'true'
[2024-02-08 10:27:00.583]: host:                   '0.0.0.0'
[2024-02-08 10:27:00.583]: max_handles_per_thread: '1,000'
[2024-02-08 10:27:00.583]: port:                   '8082'
[2024-02-08 10:27:00.583]: read_slab_count:        '500'
[2024-02-08 10:27:00.583]: reuse_port:             'true'
[2024-02-08 10:27:00.583]: threads:                '10'
[2024-02-08 10:27:00.583]: tls:                    'true'
----------------------------------------------------------------------------------------------------
[2024-02-08 10:27:00.603]: (INFO) Server started in 26 ms.
";

/// Documented run of its client, in the same version. Of the histogram's rows, some.
const CLIENT: &str = r"[2024-02-08 10:33:19.613]: evh_perf Client/0.0.3-beta.1
----------------------------------------------------------------------------------------------------
[2024-02-08 10:33:19.613]: clients:                '2'
[2024-02-08 10:33:19.613]: count:                  '2'
[2024-02-08 10:33:19.613]: debug:                  'false'
[2024-02-08 10:33:19.613]: histo:                  'true'
[2024-02-08 10:33:19.613]: histo_delta_micros:     '10'
[2024-02-08 10:33:19.613]: host:                   '127.0.0.1'
[2024-02-08 10:33:19.613]: iterations:             '2'
[2024-02-08 10:33:19.613]: max:                    '30'
[2024-02-08 10:33:19.613]: max_handles_per_thread: '100'
[2024-02-08 10:33:19.613]: min:                    '20'
[2024-02-08 10:33:19.613]: port:                   '8082'
[2024-02-08 10:33:19.613]: read_slab_count:        '500'
[2024-02-08 10:33:19.613]: reconns:                '2'
[2024-02-08 10:33:19.613]: sleep:                  '10'
[2024-02-08 10:33:19.613]: threads:                '2'
[2024-02-08 10:33:19.613]: tls:                    'true'
----------------------------------------------------------------------------------------------------
[2024-02-08 10:33:19.614]: (INFO) Client started in 7 ms.
[2024-02-08 10:33:19.663]: (INFO) sleeping for 10 ms.
[2024-02-08 10:33:19.663]: (INFO) sleeping for 10 ms.
[2024-02-08 10:33:19.723]: (INFO) sleeping for 10 ms.
[2024-02-08 10:33:19.723]: (INFO) sleeping for 10 ms.
----------------------------------------------------------------------------------------------------
[2024-02-08 10:33:19.733]: (INFO) Perf test completed successfully!
[2024-02-08 10:33:19.733]: (INFO) total_messages=[32],elapsed_time=[0.13s]
[2024-02-08 10:33:19.733]: (INFO) messages_per_second=[253],average_latency=[23006.15µs]
----------------------------------------------------------------------------------------------------
Latency Histogram
----------------------------------------------------------------------------------------------------
[100µs   - 110µs  ]======> 2 (6.25%)
[110µs   - 120µs  ]=========> 3 (9.38%)
[140µs   - 150µs  ]===> 1 (3.12%)
[44290µs - 44300µs]===> 1 (3.12%)
----------------------------------------------------------------------------------------------------
";

/// Documented run of a client in the later version, with one of its two blocks of progress.
const LATER_CLIENT: &str = r"[2024-04-02 20:56:07.133]: evh_perf Client/0.0.3-beta.1
----------------------------------------------------------------------------------------------------
[2024-04-02 20:56:07.133]: clients:                '1'
[2024-04-02 20:56:07.133]: count:                  '10,000'
[2024-04-02 20:56:07.133]: debug:                  'false'
[2024-04-02 20:56:07.133]: histo:                  'false'
[2024-04-02 20:56:07.133]: histo_delta_micros:     '10'
[2024-04-02 20:56:07.133]: host:                   '127.0.0.1'
[2024-04-02 20:56:07.133]: iterations:             '10'
[2024-04-02 20:56:07.133]: max:                    '10'
[2024-04-02 20:56:07.133]: max_handles_per_thread: '300'
[2024-04-02 20:56:07.133]: min:                    '3'
[2024-04-02 20:56:07.133]: port:                   '8081'
[2024-04-02 20:56:07.133]: read_slab_count:        '20'
[2024-04-02 20:56:07.133]: reconns:                '10'
[2024-04-02 20:56:07.133]: sleep:                  '0'
[2024-04-02 20:56:07.133]: stats:                  'false'
[2024-04-02 20:56:07.133]: threads:                '20'
----------------------------------------------------------------------------------------------------
[2024-04-02 20:56:07.136]: (INFO)  Client started in 9 ms.
----------------------------------------------------------------------------------------------------
[2024-04-02 20:56:10.137]: (INFO)  8,011,446 of 20,000,000 messages received. [40.06% complete]
[2024-04-02 20:56:10.137]: (INFO)  incremental_messages=[8,011,446],elapsed_time=[3.00s]
[2024-04-02 20:56:10.137]: (INFO)  incremental_mps=[2,670,482],incremental_avg_latency=[47818.34µs]
[2024-04-02 20:56:10.137]: (INFO)  total_messages=[8,011,446],elapsed_time=[3.01s]
[2024-04-02 20:56:10.137]: (INFO)  total_mps=[2,661,594],total_avg_latency=[47818.34µs]
----------------------------------------------------------------------------------------------------
[2024-04-02 20:56:14.979]: (INFO)  Perf test completed successfully!
[2024-04-02 20:56:14.979]: (INFO)  total_messages=[20,000,000],elapsed_time=[7.85s]
[2024-04-02 20:56:14.979]: (INFO)  messages_per_second=[2,546,896],average_latency=[42679.07µs]
";

/// Documented lines of the earlier version as the later one prints them: two spaces behind the
/// level, and `stats` among the settings. The documented runs differ in these two.
fn as_later(documented: &str) -> String {
    let stats = "[2024-02-08 10:27:00.583]: stats:                  'false'\n";
    let lines = documented.lines().map(|line| {
        let stats = if line.contains("]: threads:") { stats } else { "" };
        format!("{stats}{}\n", line.replace("(INFO) ", "(INFO)  "))
    });
    lines.collect()
}

/// Number of lines of a block of progress.
const BLOCK_LINES: usize = 6;

/// Removes the blocks of progress, whose number depends on the time that a run takes. Returns the
/// blocks.
fn remove_blocks<'a>(lines: &mut Vec<&'a str>) -> Vec<Vec<&'a str>> {
    let mut blocks = Vec::new();
    while let Some(at) = lines.iter().position(|line| line.ends_with("% complete]")) {
        blocks.push(lines.drain(at - 1..at - 1 + BLOCK_LINES).collect());
    }
    blocks
}

/// Removes the blocks of progress, and the rows of the histogram, whose number depends on the
/// latencies. Returns the blocks.
fn without_varying<'a>(lines: &mut Vec<&'a str>) -> Vec<Vec<&'a str>> {
    let blocks = remove_blocks(lines);
    let row = Regex::new(r"^\[\d+µs *- \d+µs *\]=*> [\d,]+ \(\d+\.\d\d%\)$").expect("a form");
    lines.retain(|line| !row.is_match(line));
    blocks
}

fn documented_block() -> Vec<&'static str> {
    without_varying(&mut LATER_CLIENT.lines().collect()).remove(0)
}

/// Checks that the output begins with the documented lines, figures aside, and returns what
/// follows.
#[track_caller]
fn follows_document<'a>(said: &'a str, documented: &str) -> Vec<&'a str> {
    let documented = documented.replace("0.0.3-beta.1", env!("CARGO_PKG_VERSION"));
    let (mut lines, mut expected): (Vec<_>, Vec<_>) =
        (said.lines().collect(), documented.lines().collect());
    let rows = |lines: &[&str]| lines.iter().filter(|line| line.ends_with("%)")).count();
    assert_eq!(rows(&lines) > 0, rows(&expected) > 0, "a histogram: {said}");
    without_varying(&mut expected);
    for block in without_varying(&mut lines) {
        transcript::assert_lines(&block, &documented_block(), said);
    }
    assert!(lines.len() >= expected.len(), "lines are missing: {said}");
    transcript::assert_lines(&lines[..expected.len()], &expected, said);
    lines.split_off(expected.len())
}

/// Holds a port that documented command lines name, against other runs of these tests: by a socket
/// whose name, like the port, belongs to the network namespace and is free when the process ends.
fn hold_port(port: u16) -> UnixListener {
    let name = format!("handover-test-port-{port}");
    let name = SocketAddr::from_abstract_name(name).expect("a short name");
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(held) => return held,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("the name of port {port}: {error}"),
        }
    }
}

#[test]
fn the_documented_commands_with_tls_print_the_documented_lines() {
    let _port = hold_port(8082);
    let home = Home::new();
    home.ok("links .");
    let line = "./target/release/evh_perf -e --debug --host 0.0.0.0 --max_handles_per_thread 1000 \
                --port 8082 --read_slab_count 500 --reuse_port --threads 10 --tls";
    let serving = home.start(home.shell(&format!("exec {line}")));
    assert_eq!(started(&home), 8082);
    let theirs = Home::new();
    theirs.ok("links .");
    let line = "./target/release/evh_perf -c --host 127.0.0.1 --max_handles_per_thread 100 --port \
                8082 --tls --read_slab_count 500 --threads 2 --itt 2 --count 2 --clients 2 --histo \
                --min 20 --max 30 --reconns 2 --sleep 10";
    let said = said(theirs.shell(line)).code(0);
    let added = follows_document(&said.out, &as_later(CLIENT));
    assert_eq!(received(&texts(&said.out)), 32, "{said}");
    let added = texts(&added.join("\n"));
    found(&added, r"^\(WARN\)  The server's certificate is not verified");
    serving.signal(Signal::TERM);
    let said = serving.finish().code(0);
    follows_document(&said.out, &as_later(SERVER));
}

#[test]
fn the_documented_load_prints_the_documented_lines() {
    let _port = hold_port(8081);
    let (home, theirs) = (Home::new(), Home::new());
    home.ok("links .");
    theirs.ok("links .");
    let serving = home.start(home.shell("exec ./target/release/evh_perf -e"));
    started(&home);
    // The documented number of messages takes long in an unoptimised build.
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let (count, shown) = if is_long { (10_000, "10,000") } else { (100, "100") };
    let line = format!("./target/release/evh_perf -c -i 10 -t 20 --count {count} --reconns 10");
    let said = said(theirs.shell(&line)).code(0);
    let documented = LATER_CLIENT.replace("'10,000'", &format!("'{shown}'"));
    let added = texts(&follows_document(&said.out, &documented).join("\n"));
    assert_eq!(received(&texts(&said.out)), 2000 * count, "{said}");
    found(&added, r"^\(INFO\)  latency: p50 ");
    let mut connections = 200;
    if descriptors_max() > 15_200 {
        let line = "./target/release/evh_perf --connect --host 127.0.0.1 --count 15000";
        let said = crate::common::said_to(theirs.shell(line), b"\n".to_vec()).code(0);
        found(&texts(&said.out), r"^\(INFO\)  15,000 of 15,000 connections open in ");
        connections += 15_000;
    } else {
        skipped("15,000 connections", "the limit of descriptors is lower");
    }
    serving.signal(Signal::TERM);
    let said = serving.finish().code(0);
    let told = found(&texts(&said.out), r"^\(INFO\)  Server stopped: ([\d,]+) connections, ");
    assert_eq!(number(&told[0]), connections, "{said}");
}

#[test]
fn a_load_of_more_than_three_seconds_prints_a_documented_block_of_progress() {
    let home = Home::new();
    // Each thread sleeps between and after its two turns.
    let said = home.run("evh_perf -e -c -p 0 --reconns 2 --sleep 1700").code(0);
    let mut lines: Vec<&str> = said.out.lines().collect();
    let blocks = without_varying(&mut lines);
    assert!(!blocks.is_empty(), "{said}");
    for block in blocks {
        transcript::assert_lines(&block, &documented_block(), &said.out);
    }
}

#[test]
fn certificate_is_verified_against_the_trusted_authorities() {
    let home = Home::new();
    for name in ["here", "there"] {
        let made = handover_net::tls::Identity::generate(&["127.0.0.1", "localhost"]);
        let made = made.expect("a certificate");
        let file = |end: &str| home.cwd().join(format!("{name}.{end}"));
        fs::write(file("pem"), made.certificate_pem()).expect("a file");
        fs::write(file("key"), made.key_pem()).expect("a file");
    }
    let (serving, port) = server(&home, "--tls --cert here.pem --key here.key");
    // In this home, as the files are here; another home would keep the outputs apart.
    let ask = |words: &str| home.run(&format!("evh_perf -c -p {port} --tls --count 50 {words}"));
    let said = ask("--ca here.pem").code(0);
    assert!(!said.out.contains("not verified"), "{said}");
    ask("--ca there.pem").code(1).tells(&["50 of 50 messages are missing", "TLS failed"]);
    ask("--ca none.pem").code(2).tells(&["--ca none.pem"]);
    ask("").code(0);
    // A client without TLS gets no answer.
    client(port, "--timeout 1").code(1).tells(&["1 of 1 messages are missing"]);
    serving.signal(Signal::TERM);
    serving.finish().code(0);
    for (cert, key, why) in [
        ("here.pem", "there.key", "the private key does not match the certificate"),
        ("none.pem", "here.key", "none.pem: "),
        ("here.pem", "none.key", "none.key: "),
        ("here.key", "here.key", "here.key: "),
    ] {
        let said = home.run(&format!("evh_perf -e -p 0 --tls --cert {cert} --key {key}")).code(2);
        assert_eq!(said.err.lines().count(), 1, "{said}");
        said.tells(&[&format!("--cert {cert} --key {key}: "), why]);
    }
}

#[test]
fn certificate_of_another_name_is_refused() {
    let home = Home::new();
    let made = handover_net::tls::Identity::generate(&["elsewhere.test"]).expect("a certificate");
    let file = |name: &str| home.cwd().join(name);
    fs::write(file("there.pem"), made.certificate_pem()).expect("a file");
    fs::write(file("there.key"), made.key_pem()).expect("a file");
    let (_serving, port) = server(&home, "--tls --cert there.pem --key there.key");
    for words in ["-c --count 5", "--connect --count 5 --hold 0"] {
        let said = home.run(&format!("evh_perf {words} -p {port} --tls --ca there.pem")).code(1);
        said.tells(&["issued for other names: "]);
    }
}

#[test]
fn every_original_option_works_by_long_and_short_name() {
    let home = Home::new();
    for words in [
        "-e -c -p 0 --count 2 -i 1 --clients 1 -t 1 -w 127.0.0.1 -n 3 -m 10 -r 1 -x 0 -z -v 10 -s 20 \
         -h 300 --reuse_port -d -l --tls",
        "-e -c --port 0 --count 2 --itt 1 --clients 1 --threads 1 --host 127.0.0.1 --min 3 --max 10 \
         --reconns 1 --sleep 0 --histo --histo_delta_micros 10 --read_slab_count 20 \
         --max_handles_per_thread 300 --reuse_port --debug --stats --tls",
    ] {
        let texts = texts(&home.run(&format!("evh_perf {words}")).code(0).out);
        assert_eq!(received(&texts), 2, "{texts:#?}");
        for (name, value) in [
            ("clients", "1"),
            ("count", "2"),
            ("iterations", "1"),
            ("max_handles_per_thread", "300"),
            ("reuse_port", "true"),
            ("stats", "true"),
            ("tls", "true"),
        ] {
            found(&texts, &format!("^{name}: +'{value}'$"));
        }
        // The event handler's own lines come after the client's.
        found(&texts, r"^\(DEBUG\) 127\.0\.0\.1:\d+ has connected$");
        found(&texts, r"^\(INFO\)  accepts=\[1\],closes=\[1\],reads=\[\d+\],delayed_writes=");
    }
}

#[test]
fn contradicting_options_are_refused_with_a_remedy() {
    let home = Home::new();
    for (words, told) in [
        ("", "one of -e (serve), -c (client) and --connect is needed"),
        ("--connect -c", "--connect excludes -e and -c"),
        ("-e --count 5", "--count is an option of the client: it needs -c"),
        ("-e --histo", "--histo is an option of the client: it needs -c"),
        ("-e --rate 5k", "--rate is an option of the client: it needs -c"),
        ("-c --reuse_port", "--reuse_port is an option of the server: it needs -e"),
        ("-c --min 11 --max 10", "--min 11 is above --max 10"),
        ("-c --duration 1 -i 3", "--itt and --duration exclude each other: limit"),
        ("-c --ramp 1k..2k --rate 5", "--ramp and --rate exclude each other"),
        ("-c --warm-up 1", "--warm-up needs --duration"),
        ("-c --clients 5 -h 4", "--clients 5: a thread may hold 4 connections"),
        ("-e --cert a --key b", "--cert needs --tls"),
        ("-e --tls --ca a", "--ca is an option of the client"),
        ("-c --hold 1", "--hold needs -b or --connect"),
        ("-c --spin 50us", "--spin is an option of the server: it needs -e"),
        ("-e --spin 2s", "must be at most 1ms"),
        ("-e -c --processes 2", "--processes needs either -e or -c"),
        ("-c --slo p99", "write one like p99=1ms"),
        ("-c --count 0", "must lie in 1..="),
        ("-c -i 99999999999 --count 99999999999", "overflows 64 bits"),
        ("-c --host no.such.host.invalid", "--host no.such.host.invalid"),
        ("-c --hdr /no/such/folder/file", "name a file that can be written"),
        ("-c -p 0", "--port 0 lets a server choose"),
        ("--connect -p 0", "--port 0 lets a server choose"),
        ("--connect -h 5", "--max_handles_per_thread needs -e or -c"),
        ("--connect --debug", "--debug needs -e or -c"),
        ("--connect --stats", "--stats needs -e or -c"),
        ("--connect --count 1000000001", "--connect opens at most 1000000000 connections"),
        ("-c --rate 5k --count 5", "--count and --rate exclude each other: --rate determines when"),
        ("-c --slo p99=1ms --count 5", "--count and --slo exclude each other"),
        ("-c --timeout 0", "must be greater than 0"),
        ("-c --duration -1", "'--duration <SECONDS>': must be between 0 and 86400 seconds"),
        ("-c --rate -5", "'--rate <N>': must be between 0.1 and 1000M per second"),
        ("-c -t -2", "must lie in 1..=1024"),
        ("-c --port -1", "'--port <PORT>'"),
    ] {
        let said = home.run(&format!("evh_perf {words}")).code(2).tells(&[told]);
        assert_eq!(said.err.lines().count(), 1, "{said}");
    }
    // -h is an option of its own here, and --help is the help.
    let said = home.run("evh_perf -h").code(2).tells(&["max_handles_per_thread"]);
    assert!(said.out.is_empty());
    assert!(home.ok("evh_perf --help").contains("Usage: handover evh_perf"));
}

#[test]
fn server_killed_under_load_costs_messages_but_no_hang() {
    let home = Home::new();
    let (serving, port) = server(&home, "");
    let theirs = Home::new();
    let line = format!("evh_perf -c -p {port} -t 2 --clients 4 --count 1000000 --reconns 100");
    let loading = theirs.start(theirs.handover(line.split_whitespace()));
    wait_for_load(&serving);
    let began = Instant::now();
    serving.signal(Signal::KILL);
    let said = loading.finish().code(1).tells(&["messages are missing", "connections failed"]);
    assert!(began.elapsed() < Duration::from_secs(100), "{said}");
    let texts = texts(&said.out);
    let lost = found(&texts, r"^\(ERROR\) Perf test failed: ([\d,]+) of 800,000,000 messages");
    assert_eq!(number(&lost[0]) + received(&texts), 800_000_000, "{said}");
}

#[test]
fn silent_server_is_given_up() {
    let home = Home::new();
    let (serving, port) = server(&home, "");
    serving.signal(Signal::STOP);
    let said = client(port, "--timeout 0.3").code(1).tells(&["no echo was received within 300ms"]);
    assert!(said.took < Duration::from_secs(100), "{said}");
    serving.signal(Signal::CONT);
    serving.signal(Signal::TERM);
    serving.finish().code(0);
}

#[test]
fn server_stopped_under_load_answers_all_received_messages() {
    let home = Home::new();
    let (serving, port) = server(&home, "-t 2 --reuse_port --debug");
    let theirs = Home::new();
    let line = format!("evh_perf -c -p {port} -t 2 --clients 4 --duration 60 --depth 100");
    let loading = theirs.start(theirs.handover(line.split_whitespace()));
    // The second thread may get its CPU when the first has long been sending.
    wait_for_connections(&home, 8);
    wait_for_load(&serving);
    serving.signal(Signal::TERM);
    let served = serving.finish().code(0);
    let stopped = r"^\(INFO\)  Server stopped: 8 connections, ([\d,]+) messages\.$";
    let answered = number(&found(&texts(&served.out), stopped)[0]);
    let said = loading.finish().code(1).tells(&["messages are missing"]);
    assert_eq!(received(&texts(&said.out)), answered, "{said}");
}

#[test]
fn interrupted_client_prints_its_figures() {
    let home = Home::new();
    let (serving, port) = server(&home, "--debug --stats");
    let theirs = Home::new();
    // The second load has a connection for each process.
    for (words, connections_count) in [("", 1), ("--processes 2", 3)] {
        let line = format!("evh_perf -c -p {port} --duration 60 {words}");
        let loading = theirs.start(theirs.handover(line.split_whitespace()));
        wait_for_connections(&home, connections_count);
        wait_for_load(&serving);
        loading.signal_all(Signal::INT);
        let said = loading.finish().code(130);
        let texts = texts(&said.out);
        assert!(received(&texts) > 0, "{said}");
        found(&texts, r"^\(INFO\)  Perf test was interrupted\.$");
    }
    serving.signal(Signal::INT);
    let said = serving.finish().code(130);
    let texts = texts(&said.out);
    found(&texts, r"^\(DEBUG\) 127\.0\.0\.1:\d+ has connected$");
    found(&texts, r"^\(INFO\)  accepts=\[3\],closes=\[3\],reads=\[[\d,]+\],delayed_writes=");
}

#[test]
fn connections_beyond_the_limit_of_a_thread_are_refused() {
    let home = Home::new();
    let (_serving, port) = server(&home, "-h 3");
    client(port, "--clients 3 --count 10").code(0);
    let said = client(port, "--clients 5 --count 10").code(1);
    let lost =
        "20 of 50 messages are missing; 2 connections failed: the server closed a connection";
    let reset = "20 of 50 messages are missing; 2 connections failed: the connection was lost";
    assert!(said.err.contains(lost) || said.err.contains(reset), "{said}");
    let home = Home::new();
    let said = home.run(&format!("evh_perf --connect -p {port} --count 10 --hold 0")).code(1);
    assert!(said.err.contains("--max_handles_per_thread"), "{said}");
}

#[test]
fn reuse_port_makes_each_thread_listen() {
    for (words, expected) in [("-t 3", 1), ("-t 3 --reuse_port", 3)] {
        let home = Home::new();
        let (_serving, port) = server(&home, words);
        let table = fs::read_to_string("/proc/net/tcp").expect("a table");
        let at = format!(":{port:04X} 00000000:0000 0A");
        assert_eq!(table.matches(&at).count(), expected, "{words}");
        client(port, "-t 2 --clients 8 --count 20").code(0);
    }
}

#[test]
fn server_without_descriptors_serves_its_connections_and_accepts_later() {
    let home = Home::new();
    let serving = home.start(home.shell("ulimit -n 64; exec handover evh_perf -e -p 0"));
    let port = started(&home);
    let theirs = Home::new();
    // A message over each: the server may close connections later than this program looks for it.
    let line =
        format!("evh_perf --connect -p {port} --count 200 --timeout 1 --hold 0 --sample 200");
    let said = theirs.run(&line).code(1);
    assert!(said.err.contains(" of 200 connections"), "{said}");
    client(port, "--clients 10 --count 10").code(0);
    serving.signal(Signal::TERM);
    serving.finish().code(0);
}

#[test]
fn many_connections_are_opened_reported_and_held_until_the_end() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    let theirs = Home::new();
    let line = format!("evh_perf --connect -p {port} --count 200 -t 2 --sample 50");
    // Holds until Enter.
    let said = crate::common::said_to(theirs.handover(line.split_whitespace()), b"\n".to_vec());
    let texts = texts(&said.code(0).out);
    found(&texts, r"^\(INFO\)  200 of 200 connections open in \d+\.\d\d s\.$");
    let form = r"^\(INFO\)  memory per connection: client [\d,]+ bytes, server [\d,]+ bytes in user space; ([\d,]+ bytes in the kernel, both ends together|kernel unknown, as other connections were freed meanwhile)$";
    found(&texts, form);
    found(&texts, r"^\(INFO\)  50 of them echoed: p50 .*, p99 .*, max ");
    // Holds until a signal, although standard input has ended.
    let holding = theirs.start(theirs.handover(line.split_whitespace()));
    let out = || fs::read_to_string(theirs.path().join("out")).unwrap_or_default();
    wait_until("hold", || out().contains("Holding them."));
    holding.signal(Signal::INT);
    holding.finish().code(130);
    // Holds with several processes, which print JSON.
    let (home, theirs) = (Home::new(), Home::new());
    let (serving, port) = server(&home, "--processes 2 --stats");
    let line = format!("evh_perf --connect -p {port} --count 300 --processes 3 --json --hold 0");
    let document = json(&theirs.ok(&line));
    assert_eq!((&document["opened"], &document["echo_ns"]["count"]), (&300.into(), &300.into()));
    assert!(document["echo_ns"]["p50"].as_u64().is_some_and(|ns| ns > 1000), "{document}");
    client(port, "--processes 2 -t 2 --count 100").code(0);
    serving.signal(Signal::TERM);
    let texts = crate::evh_perf::texts(&serving.finish().code(0).out);
    found(&texts, r"^\(INFO\)  accepts=\[304\],closes=\[304\],reads=");
    found(&texts, r"Server stopped: 304 connections, 700 messages\.$");
}

#[test]
fn held_connections_end_when_the_server_or_standard_input_does() {
    for processes in [1, 3] {
        let (home, theirs) = (Home::new(), Home::new());
        let (serving, port) = server(&home, "");
        let line = format!("evh_perf --connect -p {port} --count 30 --processes {processes}");
        let holding = theirs.start(theirs.handover(line.split_whitespace()));
        let out = || fs::read_to_string(theirs.path().join("out")).unwrap_or_default();
        wait_until("hold", || out().contains("Holding them. A signal closes them."));
        serving.signal(Signal::KILL);
        serving.finish();
        let said = holding.finish().code(1).tells(&["the server has closed 30 of the connections"]);
        assert!(!said.out.contains("Closing"), "there is nothing left to close: {said}");
    }
    let (home, theirs) = (Home::new(), Home::new());
    let (_serving, port) = server(&home, "");
    let line = format!("evh_perf --connect -p {port} --count 30");
    let said = said(theirs.shell(&format!("true | handover {line}"))).code(0);
    assert!(said.out.contains("Press Enter to close them."), "{said}");
    assert!(said.out.contains("Closing 30 connections."), "{said}");
}

#[test]
fn memory_of_closed_connections_is_returned() {
    if cfg!(not(target_env = "gnu")) {
        return skipped("memory given back", "the C library cannot");
    }
    let home = Home::new();
    let (serving, port) = server(&home, "");
    let anon = || {
        handover_classic::load::process::read_process_usage(serving.id())
            .unwrap_or_default()
            .anon_bytes
    };
    let before = anon();
    // Each sends the beginning of a message that it does not finish.
    let crowd: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port as u16)).expect("it serves");
            let begun = [&900_000u32.to_be_bytes()[..], &[b'x'; 3000]].concat();
            stream.write_all(&begun).expect("it reads");
            stream
        })
        .collect();
    wait_until("memory for them", || anon() > before + (1 << 20));
    let most = anon();
    drop(crowd);
    wait_until("most of it given back", || anon() < before + (most - before) / 2);
    serving.signal(Signal::TERM);
    serving.finish().code(0);
}

#[test]
fn limit_of_connections_is_named_with_the_command_that_raises_it() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    let theirs = Home::new();
    let line = format!("ulimit -n 100; handover evh_perf --connect -p {port} --count 200 --hold 0");
    let said = said(theirs.shell(&line)).code(1);
    let said = said.tells(&["of 200 connections are open", "ulimit -n 300", "--processes 3"]);
    found(
        &texts(&said.out),
        r"^\(ERROR\) \d+ of 200 connections are open: this process has no file descriptor left",
    );
    let theirs = Home::new();
    // With no connections to hold, there is no request to press Enter.
    let said = theirs.run("evh_perf --connect -p 1 --count 2").code(1);
    let said = said.tells(&["no server listens at the address", "evh_perf -e"]);
    assert!(!said.out.contains("Holding") && !said.out.contains("memory per"), "{said}");
}

#[test]
fn terminated_holder_reports_missing_connections() {
    let home = Home::new();
    let (_serving, port) = server(&home, "-h 3");
    let theirs = Home::new();
    let line = format!("evh_perf --connect -p {port} --count 10");
    let holding = theirs.start(theirs.handover(line.split_whitespace()));
    let out = || fs::read_to_string(theirs.path().join("out")).unwrap_or_default();
    wait_until("hold", || out().contains("Holding them."));
    holding.signal(Signal::TERM);
    holding.finish().code(1).tells(&["--max_handles_per_thread"]);
}

#[test]
fn interrupt_ends_the_wait_for_a_sampled_echo() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("an address");
    let port = listener.local_addr().expect("an address").port();
    let home = Home::new();
    let line = format!("evh_perf --connect -p {port} --timeout 80000");
    let running = home.start(home.handover(line.split_whitespace()));
    let (mut stream, _) = listener.accept().expect("a connection");
    // The sample has arrived, and is not answered.
    stream.read_exact(&mut [0]).expect("it sends");
    running.signal(Signal::INT);
    running.finish().code(130);
    drop(stream);
}

#[test]
fn bound_is_missed_if_nothing_was_measured() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    // The second message would be due after ten seconds, the first is of the warm-up.
    client(port, "--rate 0.1 --duration 0.5 --warm-up 0.1 --slo p99=1ns")
        .code(1)
        .tells(&["--slo is missed: no message was measured"]);
}

#[test]
fn refused_command_line_leaves_the_log_as_it_is() {
    let home = Home::new();
    let log = home.cwd().join("it.hlog");
    fs::write(&log, "measured before").expect("a file");
    for words in
        ["--host no.such.host.invalid", "--tls --ca none.pem", "--processes 2 --tls --ca none.pem"]
    {
        home.run(&format!("evh_perf -c --hdr it.hlog {words}")).code(2);
        assert_eq!(fs::read_to_string(&log).expect("a file"), "measured before", "{words}");
    }
}

#[test]
fn interrupted_search_judges_no_rate() {
    let home = Home::new();
    let (serving, port) = server(&home, "");
    let theirs = Home::new();
    let log = theirs.cwd().join("old.hlog");
    fs::write(&log, "of an earlier load").expect("a file");
    let line = format!("evh_perf -c -p {port} --slo p99=10s --duration 3600 --hdr old.hlog");
    let loading = theirs.start(theirs.handover(line.split_whitespace()));
    wait_for_load(&serving);
    loading.signal(Signal::INT);
    // Interrupted in the warm-up, which takes six minutes.
    let said = loading.finish().code(130).tells(&["no measurement was completed"]);
    assert!(said.out.contains(": interrupted\n") && !said.out.contains("hold"), "{said}");
    assert_eq!(fs::read_to_string(&log).expect("the log"), "of an earlier load");
}

#[test]
fn usage_of_an_exited_process_is_not_invented() {
    let home = Home::new();
    let (serving, port) = server(&home, "");
    let theirs = Home::new();
    let line = format!("evh_perf -c -p {port} --duration 60 --processes 2");
    let loading = theirs.start(theirs.handover(line.split_whitespace()));
    wait_for_load(&serving);
    serving.signal(Signal::KILL);
    let texts = texts(&loading.finish().code(1).out);
    found(&texts, r"^\(INFO\)  client: \d+\.\d\d s of CPU \(\d+ % of one\), [1-9]\d*\.\d MiB$");
    found(&texts, r"^\(INFO\)  server: CPU and memory unknown; it must run here, as the same user");
    // A load that has lost its connections has not lasted as long as it should.
    found(&texts, r"^\(INFO\)  total_messages=\[[\d,]+\],elapsed_time=\[[0-5]?\d\.\d\ds\]$");
}

#[test]
fn open_loop_prints_both_latencies_in_lines_json_and_log() {
    let home = Home::new();
    let (_serving, port) = server(&home, "--spin 20us");
    let theirs = Home::new();
    let line = "--rate 2k --duration 0.3 --warm-up 0.1 --clients 3";
    let said = theirs.run(&format!("evh_perf -c -p {port} {line} --hdr it.hlog")).code(0);
    let texts = texts(&said.out);
    for form in [
        "^duration:               '0.3 s'$",
        "^rate:                   '2,000'$",
        r"^\(INFO\)  latency from when sent: p50 ",
        r"^\(INFO\)  latency from when due: p50 ",
        r"^\(INFO\)  sent late by: p50 ",
        r"^\(INFO\)  client: \d+\.\d\d s of CPU ",
        r"^\(INFO\)  server: \d+\.\d\d s of CPU ",
    ] {
        found(&texts, form);
    }
    let log = fs::read_to_string(theirs.cwd().join("it.hlog")).expect("a log");
    for tag in ["Tag=raw,0.000,0.300,", "Tag=corrected,0.000,0.300,"] {
        assert!(log.lines().any(|line| line.starts_with(tag)), "{log}");
    }
    let line = format!("evh_perf -c -p {port} {line} --json --histo -v 50 --processes 2");
    let document = json(&theirs.ok(&line));
    let load = &document["loads"][0];
    let count = load["latency_ns"]["corrected"]["count"].as_u64().expect("a count");
    assert!((590..=610).contains(&count), "{document}");
    assert_eq!((&load["messages"]["lost"], &document["schema"]), (&0.into(), &1.into()));
    let steps = load["histogram"]["counts"].as_array().expect("steps");
    // Messages that were due and not sent are in the corrected latencies only.
    let sent = load["latency_ns"]["raw"]["count"].as_u64().expect("a count");
    assert_eq!(steps.iter().filter_map(|step| step[1].as_u64()).sum::<u64>(), sent);
    assert_eq!(
        (&load["histogram"]["step_ns"], steps[0][0].as_u64().map(|ns| ns % 50_000)),
        (&50_000.into(), Some(0))
    );
    assert_eq!(document["settings"]["duration_s"], 0.3);
    assert!(load["server"]["cpu_s"].is_number() && load["client"]["anon_bytes"].is_number());
}

#[test]
fn missed_bound_is_exit_1_and_ramp_prints_which_rates_hold() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    client(port, "--rate 500 --duration 0.2 --slo p50=10s,p99=20s").code(0);
    client(port, "--duration 0.2 --rate 500 --slo p50=1ns")
        .code(1)
        .tells(&["--slo is missed: p50 is ", "above the bound of 1.00 ns"]);
    let said = client(port, "--ramp 500..1k:2 --duration 0.1 --slo p50=10s");
    let lines = texts(&said.out);
    // A busy machine may not reach a rate; the verdicts must agree with each other in any case.
    let holds = |rate: &str| {
        let form = format!(
            r"^\(INFO\)  rate=\[{rate}\],messages_per_second=\[[\d,]+\],.*: (holds|is not reached|no message in that time)$"
        );
        found(&lines, &form)[0] == "holds"
    };
    let holding = ["500", "1,000"].map(|rate| holds(rate).then_some(rate));
    let holding = holding.into_iter().flatten().next_back();
    let summary = match holding {
        Some(rate) => {
            format!(r"^\(INFO\)  the highest rate that holds p50=10s: {rate} messages a second$")
        }
        None => r"^\(ERROR\) no rate that was tried holds p50=10s$".to_string(),
    };
    found(&lines, &summary);
    said.code(if holding.is_some() { 0 } else { 1 });
    let said = client(port, "--ramp 500..1k:2 --duration 0.1 --slo p50=1ns --json").code(1);
    assert_eq!(json(&said.out)["holds"], false);
}

#[test]
fn bound_without_rate_searches_the_highest_rate_that_holds_it() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    let said = client(port, "--slo p50=10s --duration 0.1 --json");
    let document = json(&said.out);
    let loads = document["loads"].as_array().expect("loads");
    assert!(loads.iter().all(|load| load["messages"]["lost"] == 0), "{document}");
    // A busy machine may not even reach the first rate, 1000 a second.
    match document["highest_rate"].as_f64() {
        Some(rate) => {
            assert!(rate > 0.0 && loads.len() > 2, "{document}");
            said.code(0);
        }
        None => {
            said.code(1).tells(&["no measured rate was reached within the latency bounds"]);
        }
    }
    client(port, "--slo p50=1ns --duration 0.1")
        .code(1)
        .tells(&["no measured rate was reached within the latency bounds"]);
}

#[test]
fn ramp_without_a_bound_prints_each_rate() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    let texts = texts(&client(port, "--ramp 1k..3k:3 --duration 0.1 --clients 2").code(0).out);
    for rate in ["1,000", "2,000", "3,000"] {
        found(
            &texts,
            &format!(r"^\(INFO\)  rate=\[{rate}\],messages_per_second=\[[\d,]+\],p50 .*"),
        );
    }
    assert!(!texts.iter().any(|text| text.contains("holds")), "{texts:#?}");
}

#[test]
fn slowest_of_256_connections_gets_at_least_half_the_average() {
    let home = Home::new();
    let (_serving, port) = server(&home, "");
    // Long enough for each connection to have many turns: on a busy machine, longer than a second.
    let line = |seconds: u32| format!("--clients 256 --depth 64 --duration {seconds} --warm-up 0");
    let mut seconds = 1;
    let said = loop {
        let said = client(port, &line(seconds)).code(0);
        if received(&texts(&said.out)) >= 256 * 64 * 10 || seconds > 60 {
            break said;
        }
        seconds *= 4;
    };
    let form = r"^\(INFO\)  connections: the slowest had (\d\.\d\d) of the mean rate, the fastest ";
    let slowest: f64 = found(&texts(&said.out), form)[0].parse().expect("a number");
    assert!((0.5..=1.0).contains(&slowest), "{said}");
    let line = line(1);
    let document = json(&client(port, &format!("{line} --processes 2 --json")).code(0).out);
    let connections = &document["loads"][0]["connections"];
    assert_eq!(connections["made"], 512);
    assert!(connections["fastest_share"].as_f64().is_some_and(|share| share >= 1.0), "{document}");
}

#[test]
fn connections_by_tls_are_opened_sampled_and_held() {
    let home = Home::new();
    let made = handover_net::tls::Identity::generate(&["127.0.0.1"]).expect("a certificate");
    let file = |name: &str| home.cwd().join(name);
    fs::write(file("here.pem"), made.certificate_pem()).expect("a file");
    fs::write(file("here.key"), made.key_pem()).expect("a file");
    let other = handover_net::tls::Identity::generate(&["127.0.0.1"]).expect("a certificate");
    fs::write(file("there.pem"), other.certificate_pem()).expect("a file");
    let (_serving, port) = server(&home, "--tls --cert here.pem --key here.key");
    let line = format!("evh_perf --connect -p {port} --hold 0 --count 60 --sample 20");
    let said = home.run(&format!("{line} --tls --ca here.pem -t 2")).code(0);
    let texts = texts(&said.out);
    found(&texts, r"^\(INFO\)  60 of 60 connections open in \d+\.\d\d s\.$");
    found(&texts, r"^\(INFO\)  20 of them echoed: p50 ");
    let said = home.run(&format!("{line} --tls --ca there.pem")).code(1);
    assert!(said.err.contains("TLS failed") && said.err.contains("--ca"), "{said}");
    // A client without TLS gets no answer.
    home.run(&format!("{line} --timeout 1")).code(1);
}

/// Returns the maximum number of descriptors of a process here.
fn descriptors_max() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.maximum.unwrap_or(1 << 20)
}

/// Opens 5,000 connections; with `HANDOVER_LONG=1`, a million.
#[test]
fn connections_beyond_the_limit_of_a_process_are_opened_by_several() {
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    let count = if is_long { 1_000_000 } else { 5000 };
    // The kernel spreads them over the servers at random: a tenth is slack for that.
    let processes = (count / (descriptors_max() * 9 / 10)).max(1) + 1;
    let home = Home::new();
    let (serving, port) = server(&home, &format!("--processes {processes}"));
    let theirs = Home::new();
    let line = format!(
        "evh_perf --connect -p {port} --count {count} --processes {processes} --timeout 60 --json --hold 0"
    );
    let document = json(&theirs.ok(&line));
    assert_eq!(
        (&document["opened"], &document["limit"]),
        (&count.into(), &serde_json::Value::Null)
    );
    assert_eq!(document["echo_ns"]["count"], 1000, "{document}");
    let bytes = |name: &str| document["bytes_per_connection"][name].as_u64().expect("bytes");
    assert!(bytes("server") < 200 && bytes("client") < 200, "{document}");
    serving.signal(Signal::TERM);
    let said = serving.finish().code(0);
    let told = found(&texts(&said.out), r"Server stopped: ([\d,]+) connections, 1,000 messages\.$");
    assert_eq!(number(&told[0]), count);
}

#[test]
fn ranks_of_mpiexec_generate_one_load_whose_results_are_merged() {
    let server_home = Home::new();
    let (serving, port) = server(&server_home, "");
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let line =
            format!("mpiexec -n 3 handover evh_perf -c -p {port} -t 2 --count 500 -i 4 --histo");
        let done = said(launched(&home, mpiexec, &line)).code(0);
        let lines = texts(&done.out);
        assert_eq!(received(&lines), 3 * 2 * 500 * 4, "{mpiexec}: {done}");
        let buckets = Regex::new(r"> ([\d,]+) \(\d+\.\d\d%\)$").expect("a form");
        let counted: u64 =
            lines.iter().filter_map(|it| Some(number(&buckets.captures(it)?[1]))).sum();
        assert_eq!(counted, 12_000, "{mpiexec}: {done}");
        assert_eq!(done.out.matches("Perf test completed").count(), 1, "{mpiexec}: {done}");

        let line = format!(
            "mpiexec -n 2 handover evh_perf -c -p {port} --rate 2k --duration 1 --warm-up 0 --json"
        );
        let document = json(&said(launched(&home, mpiexec, &line)).code(0).out);
        let measured = document["loads"][0]["messages"]["measured"].as_u64().expect("a count");
        assert!((1..=2_100).contains(&measured), "the rate was not divided: {document}");

        let refused = |options: &str| {
            let line = format!("mpiexec -n 2 handover evh_perf -c -p {port} {options}");
            let done = said(launched(&home, mpiexec, &line)).calm();
            assert!(done.status.code() == Some(2) && done.out.is_empty(), "{done}");
            done.err
        };
        assert!(refused("--processes 2").contains("start more ranks"));
        assert!(refused("--ramp 1k..2k:2").contains("without mpiexec"));
    }
    serving.signal(Signal::TERM);
    serving.finish();
}

#[test]
fn ranks_without_a_server_report_one_failure_and_end() {
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let unused = free_address();
        let (host, port) = (unused.ip(), unused.port());
        let line = format!("mpiexec -n 2 handover evh_perf -c --host {host} -p {port}");
        let done = said(launched(&home, mpiexec, &line)).calm();
        let failure = "2 of 2 messages are missing; 2 connections failed";
        assert!(!done.status.success() && done.out.matches(failure).count() == 1, "{done}");
        wait_until("the end of all ranks", || home.processes().is_empty());
    }
}
