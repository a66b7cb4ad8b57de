//! Fleets: the ranks of an MPI job measure their nodes, and the nodes that stand apart are named.

use crate::common::{Home, Said, json, pid, said, tree, wait_until};
use crate::margo::{launched, mpiexecs};
use handover_base::random::SplitMix64;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;

/// Hosts of the synthetic fleet.
const HOSTS_COUNT: usize = 1000;
/// Hosts that are 10 % slower.
const SLOW: [usize; 5] = [7, 123, 500, 501, 998];
/// Limit of the address space of the command that compares the hosts, in KiB.
const ADDRESS_SPACE_KIB: u64 = 500_000;

/// Writes an export of runs on [`HOSTS_COUNT`] hosts with one name, made of one smoke run as if
/// they had been measured. Each figure spreads by 1 %.
fn write_synthetic_fleet(home: &Home, file: &str) {
    home.ok("run lock/free clock/now --profile smoke --no-report --no-peers --db smoke.db");
    let template: Vec<Value> = home.ok("export --db smoke.db").lines().map(json).collect();
    let mut random = SplitMix64::new(1);
    let mut out = std::io::BufWriter::new(fs::File::create(home.cwd().join(file)).expect("a file"));
    for host in 0..HOSTS_COUNT {
        let id = format!("5-host-{host}");
        let level = if SLOW.contains(&host) { 110.0 } else { 100.0 };
        for line in &template {
            let mut line = line.clone();
            if line["type"] == "run" {
                line["id"] = Value::from(id.as_str());
                line["tags"] = Value::from(vec!["synthetic"]);
                line["profile"] = "quick".into();
                line["started_unix_ns"] = Value::from(host);
                line["host"]["name"] = Value::from(format!("host{host:03}"));
                line["findings"] = Value::Array(Vec::new());
            } else {
                line["run"] = Value::from(id.as_str());
                line["warnings"] = Value::Array(Vec::new());
                let figure = level * (0.01 * random.next_normal()).exp();
                for (field, factor) in [("median", 1.0), ("low", 0.995), ("high", 1.005)] {
                    line["summary"][field] = Value::from(figure * factor);
                }
            }
            writeln!(out, "{line}").expect("a line");
        }
    }
    out.flush().expect("the file");
}

#[test]
fn report_of_a_name_of_several_hosts_is_refused() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report --no-peers --name nightly");
    let id = home.last().run.id;
    let mut lines: Vec<Value> = home.ok("export").lines().map(json).collect();
    lines[0]["host"]["name"] = "other".into();
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(home.cwd().join("other.jsonl"), lines.join("\n").replace(&id, "5-other"))
        .expect("a file");
    home.ok("import other.jsonl");
    home.run("report nightly").code(2).tells(&[
        "nightly",
        "several hosts",
        "handover fleet nightly",
    ]);
    let copy = home.cwd().join("a copy.db");
    fs::copy(home.db(), &copy).expect("a copy");
    let copied = home.handover(["report", "nightly", "--db", "a copy.db"]);
    said(copied).code(2).tells(&[&format!("`handover fleet nightly --db '{}'`", copy.display())]);
    home.ok("report 5-other -o other.html");
    home.ok("plot nightly");
    let store = rusqlite::Connection::open(home.db()).expect("the store");
    store.execute_batch("UPDATE records SET checksum = 0").expect("a change");
    home.run("plot nightly").code(1).tells(&["is damaged"]);
}

/// Returns the names of the nodes that stand apart, from `fleet --json`.
fn apart(fleet: &Value) -> BTreeSet<String> {
    let nodes = fleet["apart"].as_array().expect("a list").iter();
    let name = |it: &Value| {
        let node = it["node"].as_u64().expect("an index") as usize;
        fleet["nodes"][node]["name"].as_str().expect("a name").to_string()
    };
    nodes.map(name).collect()
}

#[test]
fn five_slow_hosts_of_a_thousand_are_named_and_no_other_within_500_mb() {
    let home = Home::new();
    write_synthetic_fleet(&home, "fleet.jsonl");
    home.ok("import fleet.jsonl");
    let line =
        format!("ulimit -v {ADDRESS_SPACE_KIB}; export COLUMNS=80; exec handover fleet synthetic");
    let fleet = json(&said(home.shell(&format!("{line} --json"))).code(0).out);
    let slow: BTreeSet<String> = SLOW.iter().map(|host| format!("host{host:03}")).collect();
    assert_eq!(apart(&fleet), slow);
    assert_eq!(fleet["nodes"].as_array().map(Vec::len), Some(HOSTS_COUNT));
    let said = said(home.shell(&format!("{line} --svg nodes.svg"))).code(0);
    assert!(said.out.contains("5 nodes stand apart."), "{said}");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{said}");
    let row = said.out.lines().find(|line| line.starts_with("lock/free")).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[cells.len() - 3..], ["1000", "5", "0"], "{said}");
    let svg = fs::read_to_string(home.cwd().join("nodes.svg")).expect("a chart");
    roxmltree::Document::parse(&svg).expect("sound XML");
    // A later run of a slow host takes the place of the first.
    let lines = fs::read_to_string(home.cwd().join("fleet.jsonl")).expect("a file");
    let fast = lines.lines().filter(|it| it.contains("\"5-host-0\""));
    let moved = fast.map(|line| {
        let mut line = json(line);
        let id = if line["type"] == "run" { "id" } else { "run" };
        line[id] = "5-again".into();
        if id == "id" {
            line["host"]["name"] = "host500".into();
            line["started_unix_ns"] = Value::from(HOSTS_COUNT);
        }
        line.to_string() + "\n"
    });
    fs::write(home.cwd().join("again.jsonl"), moved.collect::<String>()).expect("a file");
    home.ok("import again.jsonl");
    let fleet = json(&home.ok("fleet synthetic --json"));
    assert_eq!(apart(&fleet).len(), SLOW.len() - 1);
    assert_eq!(fleet["notes"][0], "1 run is left out: its host has a later one.");
    let threshold = json(&home.ok("fleet synthetic --threshold 50% --json"));
    assert!(apart(&threshold).is_empty(), "10 % are below the threshold");
}

#[test]
fn invalid_fleet_is_refused_with_the_way_out() {
    let home = Home::new();
    home.ok("run clock/now --profile smoke --no-report --no-peers --name alone");
    home.run("fleet").code(2).tells(&[
        "has no run of",
        "handover run --fleet",
        "handover fleet NAME",
    ]);
    home.run("fleet -1").code(2).tells(&["belongs to no fleet"]);
    home.run("fleet alone").code(2).tells(&["alone: its runs are of one host"]);
    home.run("fleet alnoe").code(2).tells(&["alnoe", "nearest are alone"]);
    home.run("fleet alone --svg nowhere/a.svg").code(2).tells(&["--svg nowhere/a.svg"]);
    home.run("fleet alone --threshold 300%").code(2).tells(&["between 0% and 100%"]);
    let before = tree(home.path());
    home.run("run --fleet").code(2).tells(&["--fleet: no launcher has started this process"]);
    for more in ["--repeat 2", "--report a.html"] {
        home.run(&format!("run --fleet {more}")).code(2).tells(&["--fleet", "cannot be used with"]);
    }
    assert!(tree(home.path()) == before, "a refused command has changed a file");
}

/// Command line of a short measurement of every node.
const RUN: &str = "handover run --fleet clock/now --no-peers --no-report";

/// Returns the words of a rank's process and of the process in which a rank measures, by id.
fn processes(home: &Home) -> Vec<(u32, Vec<String>)> {
    let words = |id: u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words = line.split(|byte| *byte == 0);
        (id, words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    };
    home.processes().into_iter().map(words).collect()
}

/// Returns the number of nodes that are being measured: of processes that measure one, without the
/// children that these have forked and that have not called exec yet.
pub fn measured_nodes_count(home: &Home) -> usize {
    let found = processes(home).into_iter();
    let measuring: Vec<u32> = found
        .filter(|(_, words)| words.iter().any(|word| word == "--node-db"))
        .map(|(id, _)| id)
        .collect();
    let is_forked = |id: u32| parent_of(id).is_some_and(|parent| measuring.contains(&parent));
    measuring.iter().filter(|id| !is_forked(**id)).count()
}

/// Returns the number of the rank that a process is.
fn rank_of(id: u32) -> Option<u32> {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let value = |name: &str| {
        let words = environment.split(|byte| *byte == 0);
        words.filter_map(|it| it.strip_prefix(name.as_bytes())).next().map(<[u8]>::to_vec)
    };
    let value = value("PMI_RANK=").or_else(|| value("OMPI_COMM_WORLD_RANK="))?;
    String::from_utf8(value).ok()?.parse().ok()
}

/// Returns the id of a process's parent; `None` if the process has ended.
fn parent_of(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the stored runs, the first node first.
fn nodes(home: &Home) -> Vec<Value> {
    let mut nodes = home.runs();
    nodes.sort_by_key(|it| it["host"].as_str().map(str::to_string));
    nodes
}

#[test]
fn four_ranks_of_one_host_measure_in_turn_and_are_stored_as_nodes() {
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let line = format!("mpiexec -n 4 {RUN} --time 100ms --name nightly");
        let said = said(launched(&home, mpiexec, &line)).code(0);
        let runs = nodes(&home);
        assert_eq!(runs.len(), 4, "{said}");
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = runs[0]["names"][0].as_str().expect("a name").to_string();
        assert!(name.starts_with("fleet-") && said.out.contains(&name), "{said}");
        assert!(said.out.contains("clock/now") && said.out.contains("4 nodes of fleet-"), "{said}");
        let mut end = 0;
        for (rank, run) in runs.iter().enumerate() {
            assert_eq!(run["host"], format!("{host}#{rank}"));
            assert_eq!((&run["complete"], &run["names"][1]), (&true.into(), &"nightly".into()));
            let command = run["command"].as_str().expect("a command");
            assert!(command.contains("--fleet") && !command.contains("--node-db"), "{command}");
            let shown =
                json(&home.ok(&format!("show {} --json", run["id"].as_str().expect("an id"))));
            let started = shown["run"]["started_unix_ns"].as_i64().expect("a time");
            assert!(started > end, "rank {rank} began before the one before it had ended");
            let records = shown["records"].as_array().expect("records").iter();
            end = records.filter_map(|it| it["started_unix_ns"].as_i64()).max().expect("a record");
            assert!(shown["run"]["findings"].as_array().is_some_and(|it| !it.is_empty()));
        }
        let fleet = json(&home.ok("fleet --json"));
        assert_eq!(
            (&fleet["name"], &fleet["rows"][0]["id"]),
            (&name.clone().into(), &"clock/now".into())
        );
        assert_eq!(fleet["nodes"].as_array().map(Vec::len), Some(4));
        assert_eq!(json(&home.ok("fleet -1 --json")), fleet, "a run stands for its fleet");
        home.ok("plot nightly");
        assert!(home.cwd().join("nightly.nodes.svg").exists(), "no chart");
        assert!(home.cwd().join("nightly.nodes.png").exists(), "no picture");
        // The nodes survive an export and an import.
        fs::write(home.cwd().join("all.jsonl"), home.ok(&format!("export {name}")))
            .expect("a file");
        home.ok("import all.jsonl --db other.db");
        assert_eq!(json(&home.ok("fleet --json --db other.db")), fleet);
        wait_until("nobody is left", || home.processes().is_empty());
    }
}

/// Starts ranks, kills a process of rank 1 while it measures, and returns the output. With
/// `is_rank` it is the rank itself, and otherwise the process in which it measures.
fn kill_process_of_rank_1(home: &Home, mpiexec: &str, is_rank: bool) -> Said {
    let line = format!("mpiexec -n 3 {RUN} --time 2s");
    let mut running = home.start(launched(home, mpiexec, &line));
    running.wait_for("(1 of 3 nodes)");
    let mut victim = None;
    wait_until("rank 1 measures", || {
        let found = processes(home);
        let measures = |words: &[String]| words.iter().any(|word| word == "--node-db");
        // The run is stored when the process that measures has started its first pass, a process of
        // its own.
        let has_child = |id: u32| found.iter().any(|it| parent_of(it.0) == Some(id));
        let child = found.iter().find(|(id, words)| measures(words) && has_child(*id));
        let is_victim = |(id, words): &&(u32, Vec<String>)| match is_rank {
            true => rank_of(*id) == Some(1) && words.iter().any(|word| word == "--fleet"),
            false => measures(words),
        };
        victim = child.and(found.iter().find(is_victim)).map(|it| it.0);
        victim.is_some() || running.has_ended()
    });
    let victim = victim.unwrap_or_else(|| panic!("rank 1 does not measure: {}", running.told()));
    kill_process(pid(victim), Signal::KILL).expect("it is ours");
    running.finish().calm()
}

#[test]
fn node_whose_measurement_is_killed_leaves_the_others_complete() {
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let said = kill_process_of_rank_1(&home, mpiexec, false);
        assert_eq!(said.status.code(), Some(1), "{said}");
        let said = said
            .tells(&["1 of 3 nodes failed: ", "#1: the measuring process ended with signal: 9"]);
        let complete: Vec<(u64, bool)> = nodes(&home)
            .iter()
            .map(|it| (it["host"].as_str().expect("a host"), it["complete"] == true))
            .map(|(host, complete)| (host.rsplit('#').next().expect("a rank"), complete))
            .map(|(rank, complete)| (rank.parse().expect("a number"), complete))
            .collect();
        assert_eq!(complete, [(0, true), (1, false), (2, true)], "{said}");
        assert!(said.out.contains("1 run was not completed"), "{said}");
        assert_eq!(home.integrity(), "ok");
        wait_until("nobody is left", || home.processes().is_empty());
    }
}

#[test]
fn killed_rank_leaves_the_nodes_that_were_stored() {
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let said = kill_process_of_rank_1(&home, mpiexec, true);
        assert!(!said.status.success(), "{said}");
        assert!(nodes(&home)[0]["complete"] == true, "{said}");
        assert_eq!(home.integrity(), "ok");
        wait_until("nobody is left", || home.processes().is_empty());
    }
}

#[test]
fn invalid_command_line_of_ranks_is_reported_once() {
    for mpiexec in mpiexecs() {
        let home = Home::new();
        let said = said(launched(&home, mpiexec, "mpiexec -n 3 handover run lcok --fleet")).calm();
        assert_eq!((said.status.code(), said.err.matches("lcok").count()), (Some(2), 1), "{said}");
        let said = crate::common::said(launched(&home, mpiexec, &format!("mpiexec -n 1 {RUN}")));
        said.code(2).tells(&["--fleet: rank 0 of 1"]);
        assert!(!home.db().exists(), "a refused command has created a store");
    }
}
