//! Transcripts and command lines of the classic programs' documents that no other test has:
//! trylock, notify, and margo's programs. Each command line is typed as written, with options added
//! where the documented run is long, and each documented line is compared, its figures by pattern.
//! The other documents' transcripts: `hello/transcripts.rs`, `evh_perf.rs`, `calls.rs`, `sched.rs`.

use crate::common::{Home, Said, said, write_script};
use crate::transcript::assert_lines;
use std::fs;

/// A documented run.
struct Transcript {
    line: &'static str,
    /// Replacement in the line: of options whose run is long.
    shorter: (&'static str, &'static str),
    text: &'static str,
    /// Text in each of the lines of ours that follow.
    added: &'static str,
}

const TRANSCRIPTS: [Transcript; 6] = [
    Transcript {
        line: "./trylock -n 3     # three threads, busy lock",
        shorter: ("#", "-t 1 #"),
        text: "\
001.843513 fn_busy    [109] #00 busy: 2.031e+08 samples 2.410e+08 ops, free: 0.000000e+00 samples 0.000e+00 ops
001.843514 fn_busy    [109] #01 busy: 2.034e+08 samples 2.412e+08 ops, free: 0.000000e+00 samples 0.000e+00 ops
001.843514 fn_busy    [109] #02 busy: 2.024e+08 samples 2.413e+08 ops, free: 0.000000e+00 samples 0.000e+00 ops
001.843564 main       [278] BUSY: total 7.235e+08 ops, per-thread 2.412e+08 ops",
        added: "nothing",
    },
    Transcript {
        line: "./trylock -n 3 -F -o dump.txt  # three threads, free lock",
        shorter: ("#", "-t 1 #"),
        text: "\
004.887652 fn_free    [173] #00 busy: 2.749e+07 samples 5.700e+01 ns, free: 1.258e+07 samples 4.500e+01 ns, post: 2.570e+02 ns, duration 3.886578 s
004.887735 fn_free    [173] #02 busy: 4.703e+07 samples 5.500e+01 ns, free: 3.978e+06 samples 5.400e+01 ns, post: 2.561e+02 ns, duration 3.884700 s
004.887752 fn_free    [173] #01 busy: 3.568e+07 samples 5.400e+01 ns, free: 9.536e+06 samples 4.500e+01 ns, post: 2.547e+02 ns, duration 3.886993 s
004.887848 main       [290] t_busy 5.533e+01 ns, t_free 4.800e+01 ns",
        added: "] busy: p50 ",
    },
    Transcript {
        line: "./notify  # measure receiver side cost",
        shorter: ("#", "-n 100 #"),
        text: "\
001.630054 snd_body   [80] sender rate 3.514e+06 ops
001.630056 rcv_body   [140] receiver rate 2.971e+06 ops, #wakeups 1690750",
        added: "nothing",
    },
    Transcript {
        line: "./notify -S  # measure sender side cost",
        shorter: ("#", "-n 1 #"),
        text: "\
004.410564 rcv_body   [140] receiver rate 1.190e+04 ops, #wakeups 40000
004.410643 snd_slow_b [109] sender cost 2.601e+03 ns",
        added: "] sender cost: p50 ",
    },
    Transcript {
        line: "perf-regression/node-microbench -m 1",
        shorter: ("", ""),
        text: "\
#<test case>	<m_ops>	<total s>	<m_ops/s>	<ns/op>
\"fn_call_normal\"	1	0.004363	229.197413	4.363051
\"fn_call_inline\"	1	0.003397	294.400011	3.396739
\"fn_call_cross_object\"	1	0.003826	261.393284	3.825653
\"mpi_wtime\"	1	0.055161	18.128607	55.161436
\"gettimeofday\"	1	0.033851	29.541277	33.850940",
        added: "\"",
    },
    Transcript {
        line: "./abt-eventual-bench -d 5 -i 1 -n 16",
        shorter: ("", ""),
        text: "\
#<num_ults>	<test_duration_sec>	<interval_msec>	<ops/s>	<cpu_time_sec>
16	5	1	15952.800000	4.255606",
        added: "#",
    },
];

fn home_with_links() -> Home {
    let home = Home::new();
    home.ok("links .");
    home
}

fn typed(home: &Home, line: &str) -> Said {
    said(home.shell(line)).code(0)
}

#[test]
fn documented_command_lines_print_the_documented_lines_and_then_ours() {
    let home = home_with_links();
    for Transcript { line, shorter, text, added } in &TRANSCRIPTS {
        let line = match shorter {
            ("", _) => (*line).to_string(),
            (from, to) => line.replacen(from, to, 1),
        };
        let said = typed(&home, &line);
        let mut lines: Vec<&str> = said.out.lines().collect();
        let mut documented: Vec<&str> = text.lines().collect();
        // A row that this machine does not have says why.
        if let Some(at) = lines.iter().position(|line| line.starts_with("# \"mpi_wtime\": ")) {
            assert!(lines[at].contains("MPI") && documented[at].starts_with("\"mpi_wtime\""));
            lines.remove(at);
            documented.remove(at);
        }
        assert!(lines.len() >= documented.len(), "lines are missing: {said}");
        let rest = lines.split_off(documented.len());
        assert_lines(&lines, &documented, &said.out);
        assert!(rest.iter().all(|line| line.contains(added)), "{rest:?}: {said}");
    }
    let dump = fs::read_to_string(home.cwd().join("dump.txt")).expect("the dump");
    assert!(dump.lines().all(|line| line.parse::<u64>().is_ok()));
}

#[test]
fn documented_sweep_and_its_plots_print_and_write_the_documented_names() {
    const SWEPT: &str = "\
writing results to sweep-abt-eventual-bench.1122789.dat
... running benchmark with 100 ULTs
... running benchmark with 200 ULTs
... running benchmark with 300 ULTs
... running benchmark with 400 ULTs
... running benchmark with 500 ULTs
... running benchmark with 600 ULTs
... running benchmark with 700 ULTs
... running benchmark with 800 ULTs
... running benchmark with 900 ULTs
... running benchmark with 1000 ULTs
results are in sweep-abt-eventual-bench.1122789.dat";
    let documented: Vec<&str> = SWEPT.lines().collect();
    let home = home_with_links();
    let dat = |said: &Said| {
        let name = said.out.lines().last().and_then(|line| line.rsplit(' ').next());
        name.expect("a name").to_string()
    };

    // The documented runs last five seconds for each point.
    let line = "tests/sweep-abt-eventual-bench.sh build/perf-regression/abt-eventual-bench";
    let said = typed(&home, &format!("{line} -d 1"));
    assert_lines(&said.out.lines().collect::<Vec<_>>(), &documented, &said.out);
    let rows = fs::read_to_string(home.cwd().join(dat(&said))).expect("the file");
    let fibers: Vec<&str> =
        rows.lines().filter(|line| !line.starts_with('#')).map(|row| &row[..3]).collect();
    let hundreds = ["100", "200", "300", "400", "500", "600", "700", "800", "900", "100"];
    assert_eq!(fibers, hundreds, "{rows}");

    let name = "sweep-abt-eventual-bench.1122789.dat";
    fs::rename(home.cwd().join(dat(&said)), home.cwd().join(name)).expect("the file");
    let said = typed(&home, &format!("tests/plot-abt-eventual-bench.sh {name}"));
    assert_eq!(said.out, "");
    let said = typed(&home, "ls *.png");
    assert_eq!(said.out, format!("{name}.cpu.png\n{name}.rate.png\n"));

    // With a launcher that is not here, in place of which this one drops its options.
    let launcher = home.path().join("bin/jsrun");
    let body =
        "#!/bin/sh\ntest \"$1 $2 $3\" = '-r1 -n1 -a1' || exit 3\nshift 3\nexec \"$@\" -d 1\n";
    write_script(&launcher, body);
    let line =
        "../tests/sweep-abt-eventual-bench.sh jsrun -r1 -n1 -a1 perf-regression/abt-eventual-bench";
    let said = typed(&home, &format!("cd build && {line}"));
    assert_lines(&said.out.lines().collect::<Vec<_>>(), &documented, &said.out);
}
