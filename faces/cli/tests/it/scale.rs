//! `rpc-scale`: calls among many ranks, started by the program itself or by MPI launchers.

use crate::common::{Home, Running, Said, pid, said, wait_until};
use crate::margo::{launched, mpiexecs};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::time::Duration;

const HEADER: &str =
    "# <pattern> <ranks> <callers> <size> <transport> <calls> <calls/s> <p50> <p99> <max> <jain>";

/// Checks the output of a run, with as many callers as the pattern has.
#[track_caller]
fn check(said: &Said, pattern: &str, ranks: usize, size: u64, transport: &str) {
    let callers = if pattern == "incast" { ranks - 1 } else { ranks };
    let mut lines = said.out.lines();
    assert_eq!(lines.next(), Some(HEADER), "{said}");
    let all: Vec<&str> = lines.next().expect("a line").split('\t').collect();
    let [of_pattern, of_ranks, of_callers, of_size, of_transport, numbers @ ..] = &all[..] else {
        panic!("{said}")
    };
    assert_eq!([*of_pattern, *of_transport], [pattern, transport], "{said}");
    let counts = [of_ranks, of_callers, of_size].map(|it| it.parse::<u64>().expect("a count"));
    assert_eq!(counts, [ranks as u64, callers as u64, size], "{said}");
    let number = |text: &&str| text.parse::<f64>().expect("a number");
    let numbers: Vec<f64> = numbers.iter().map(number).collect();
    let [calls, rate, p50, p99, max, jain] = numbers[..] else { panic!("{said}") };
    assert!(calls >= callers as f64 && 0.0 < p50 && p50 <= p99 && p99 <= max, "{said}");
    assert!(1.0 / callers as f64 - 1e-6 <= jain && jain <= 1.0, "{said}");
    assert_eq!(lines.next(), Some("# <rank> <calls/s> <p50> <p99> <max>"), "{said}");
    let rows: Vec<Vec<f64>> = lines
        .map(|line| line.strip_prefix('#').expect("a comment"))
        .map(|line| line.split('\t').map(|it| number(&it)).collect())
        .collect();
    let first = ranks - callers;
    let numbered: Vec<usize> = rows.iter().map(|row| row[0] as usize).collect();
    assert_eq!(numbered, (first..ranks).collect::<Vec<_>>(), "{said}");
    let (sum, squares) =
        rows.iter().fold((0.0, 0.0), |it, row| (it.0 + row[1], it.1 + row[1] * row[1]));
    assert!((sum - rate).abs() <= 0.1 * callers as f64, "{said}");
    assert!((sum * sum / squares / callers as f64 - jain).abs() < 0.001, "{said}");
}

#[test]
fn rates_of_2_4_and_8_ranks_are_printed_for_both_patterns() {
    let home = Home::new();
    for (ranks, transport, size) in
        [(2, "sm", 0), (4, "tcp", 1000), (8, "sm", 0), (3, "uds", 70_000)]
    {
        for pattern in ["incast", "all-to-all"] {
            let said = home
                .run(&format!(
                    "rpc-scale -n {transport}:// --pattern {pattern} --ranks {ranks} -x {size} --seconds 0.2"
                ))
                .code(0);
            check(&said, pattern, ranks, size, transport);
            assert!(said.err.is_empty(), "{said}");
        }
    }
    assert!(home.processes().is_empty(), "a rank is left");
}

#[test]
fn mpiexec_starts_the_ranks() {
    let home = Home::new();
    for mpiexec in mpiexecs() {
        for (ranks, pattern) in [(2, "incast"), (4, "all-to-all"), (8, "incast")] {
            let line = format!(
                "mpiexec -n {ranks} handover rpc-scale -n tcp:// --pattern {pattern} --seconds 0.2"
            );
            check(&said(launched(&home, mpiexec, &line)).code(0), pattern, ranks, 0, "tcp");
        }
        let line = "mpiexec -n 1 handover rpc-scale -n sm://";
        said(launched(&home, mpiexec, line)).code(2).tells(&["rank 0 of 1: 2 to 1024 are needed"]);
        let line = "mpiexec -n 2 handover rpc-scale -n sm:// --ranks 2";
        said(launched(&home, mpiexec, line)).code(2).tells(&["--ranks 2", "launcher"]);
    }
}

#[test]
fn rank_of_srun_without_mpi_is_refused_with_the_option_to_add() {
    let home = Home::new();
    for line in ["rpc-scale -n tcp://", "run --fleet lock"] {
        let command = home.shell(&format!("SLURM_PROCID=0 SLURM_NTASKS=2 exec handover {line}"));
        said(command).code(2).tells(&["without MPI", "--mpi=pmi2"]);
    }
}

#[test]
fn killed_rank_ends_the_run_with_an_error() {
    for pattern in ["incast", "all-to-all"] {
        for killed in ["0", "2"] {
            let home = Home::new();
            let line = format!("rpc-scale -n sm:// --pattern {pattern} --ranks 4 --seconds 600");
            let mut running = home.start(home.handover(line.split_whitespace()));
            let mut victim = None;
            wait_until("four ranks", || {
                let words = |id: u32| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
                let ranks: Vec<(u32, Vec<u8>)> = home
                    .processes()
                    .into_iter()
                    .map(|id| (id, words(id)))
                    .filter(|(_, words)| words.windows(7).any(|it| it == b"--rank\0"))
                    .collect();
                let end = format!("--rank\0{killed}\0");
                victim = ranks.iter().find(|it| it.1.ends_with(end.as_bytes())).map(|it| it.0);
                ranks.len() == 4 || running.has_ended()
            });
            kill_process(pid(victim.expect("the rank runs")), Signal::KILL).expect("it is ours");
            let said = running.finish().code(1);
            assert!(said.err.contains("rank") && said.out.is_empty(), "{said}");
            wait_until("nobody is left", || home.processes().is_empty());
        }
    }
}

/// Starts a run with 3 ranks, and waits until they are busy.
fn start_busy<'a>(home: &'a Home, pattern: &str, seconds: u32) -> Running<'a> {
    let line = format!("rpc-scale -n sm:// --pattern {pattern} --ranks 3 --seconds {seconds}");
    let mut running = home.start(home.handover(line.split_whitespace()));
    let cpu_ticks = |id: u32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |it| it.1).split_whitespace();
        fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum()
    };
    wait_until("busy ranks", || {
        let processes = home.processes();
        running.has_ended() || processes.iter().filter(|id| cpu_ticks(**id) >= 20).count() >= 3
    });
    running
}

#[test]
fn interrupt_of_the_starter_during_the_warm_up_stops_its_ranks() {
    for (pattern, signal) in [("incast", Signal::TERM), ("all-to-all", Signal::INT)] {
        let home = Home::new();
        // The warm-up takes a minute.
        let running = start_busy(&home, pattern, 600);
        running.signal(signal);
        let said = running.finish().code(130).tells(&["interrupted; no measurement was completed"]);
        assert!(said.out.is_empty() && said.err.lines().count() == 1, "{said}");
        assert!(home.processes().is_empty(), "a rank is left");
    }
}

#[test]
fn interrupt_of_the_starter_prints_the_calls_measured_so_far() {
    let home = Home::new();
    let running = start_busy(&home, "all-to-all", 20);
    // The warm-up takes 2 s.
    std::thread::sleep(Duration::from_secs(6));
    // As a terminal does.
    running.signal_all(Signal::INT);
    let said = running.finish().code(130).tells(&["interrupted"]);
    check(&said, "all-to-all", 3, 0, "sm");
    assert!(said.err.lines().count() == 1, "{said}");
}

#[test]
fn invalid_command_line_is_refused() {
    let home = Home::new();
    for (words, says) in [
        ("-n sm://", "use --ranks COUNT or mpiexec"),
        ("-n sm:// --ranks 1", "--ranks"),
        ("-n tls:// --ranks 2", "-n tls://"),
        (
            "-n tcp://127.0.0.1:7 --ranks 2",
            "-n tcp://127.0.0.1:7: each rank listens at a free address",
        ),
        ("-n sm:// --ranks 2 --seconds 0", "0.01 to 3600"),
        ("-n rope:// --ranks 2", "rope"),
    ] {
        home.run(&format!("rpc-scale {words}")).code(2).tells(&[says]);
    }
}
