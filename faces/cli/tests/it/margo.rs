//! margo's programs: alone, as ranks of a launcher, and across hosts.

use crate::common::{Home, Running, Said, free_address, said, skipped, wait_until};
use handover_rpc::{Address, Calling as _, Config, Endpoint, Method};
use regex_lite::Regex;
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LATENCY: &str = "./margo-p2p-latency -n sm:// -i 20";
const HEADER: &str =
    "# <op> <iterations> <warmup_iterations> <size> <min> <q1> <med> <avg> <q3> <max>";

fn home() -> Home {
    let home = Home::new();
    home.ok("links .");
    home
}

/// Returns a command for a rank as srun starts it.
fn rank(home: &Home, number: u32, ranks_count: u32, line: &str) -> Command {
    let mut command = home.shell(&format!("exec {line}"));
    command.env("SLURM_PROCID", number.to_string()).env("SLURM_NTASKS", ranks_count.to_string());
    command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", "0").env("TMPDIR", home.path());
    command
}

/// Runs both ranks until they end; returns the output of rank 0 and of rank 1.
fn ranks(home: &Home, line: &str) -> [Said; 2] {
    let both = [0, 1].map(|number| {
        let command = rank(home, number, 2, line);
        std::thread::spawn(move || said(command))
    });
    both.map(|it| it.join().expect("no panic"))
}

/// Checks the table of margo-p2p-latency; returns its last row from the transport on.
#[track_caller]
fn check_latency(said: &Said, head: &str) -> Vec<String> {
    let lines: Vec<&str> = said.out.lines().collect();
    let [header, row, more_header, more] = lines[..] else { panic!("{said}") };
    assert_eq!(header, HEADER, "{said}");
    let row = row.strip_prefix(head).unwrap_or_else(|| panic!("{head:?} is not in {said}"));
    let form = Regex::new(r"^\d+\.\d{9}$").expect("a pattern");
    let times: Vec<f64> = row
        .split('\t')
        .map(|it| if form.is_match(it) { it.parse().expect("a number") } else { panic!("{said}") })
        .collect();
    let [min, q1, med, avg, q3, max] = times[..] else { panic!("{said}") };
    assert!(0.0 < min && min <= q1 && q1 <= med && med <= q3 && q3 <= max, "{said}");
    assert!(min <= avg && avg <= max, "{said}");
    assert_eq!(more_header, "# <p99> <p99.9> <transport> <client> <server> <deadline>");
    more.strip_prefix('#').expect("a comment").split('\t').skip(2).map(str::to_owned).collect()
}

#[test]
fn margo_p2p_latency_prints_its_table_over_each_transport_and_starts_its_partner() {
    let home = home();
    let ucx: Address = "ucx+tcp://".parse().expect("parse the address");
    let ucx = ucx.transport().to_string();
    for (written, meant) in [
        ("sm://", "sm"),
        ("na+sm://", "sm"),
        ("tcp", "tcp"),
        ("'ofi+tcp;ofi_rxm://'", "tcp"),
        ("ucx+tcp://127.0.0.1:0", ucx.as_str()),
        ("uds://", "uds"),
    ] {
        let line = format!("./margo-p2p-latency -n {written} -i 30 -x 100 -w 3");
        let said = said(home.shell(&line)).code(0);
        let more = check_latency(&said, "noop\t30\t3\t100\t");
        assert_eq!(more, [meant, "adaptive", "adaptive", "none"], "{said}");
        let written = written.trim_matches('\'').trim_end_matches("://");
        match written == meant {
            true => assert!(said.err.is_empty(), "{said}"),
            false => assert!(said.err.contains(&format!("stands for {meant}://")), "{said}"),
        }
    }
    let said =
        said(home.shell("./margo-p2p-latency -n sm -i 1 -w 0 -T -t 5,0 -x 3000000 -d stats"));
    let said = said.code(0);
    let more = check_latency(&said, "noop\t1\t0\t3000000\t");
    assert_eq!(more, ["sm", "adaptive", "spin", "2"], "{said}");
    for side in [0, 1] {
        let stats = fs::read_to_string(home.cwd().join(format!("stats.{side}"))).expect("a file");
        assert!(stats.contains("spin_forever") && stats.contains("calls_count"), "{stats}");
    }
}

/// Creates NAME.pem and NAME.key in the home: a certificate for 127.0.0.1 that is its own
/// authority.
fn certificate(home: &Home, name: &str) {
    let made = handover_net::tls::Identity::generate(&["127.0.0.1"]).expect("a certificate");
    let file = |end: &str| home.cwd().join(format!("{name}.{end}"));
    fs::write(file("pem"), made.certificate_pem()).expect("a file");
    fs::write(file("key"), made.key_pem()).expect("a file");
}

#[test]
fn margo_programs_use_tls_by_certificates_and_refuse_others() {
    let home = home();
    certificate(&home, "here");
    certificate(&home, "there");
    let files = |cert: &str, ca: &str| format!("--cert {cert}.pem --key {cert}.key --ca {ca}.pem");
    let ours = files("here", "here");
    let latency = "./margo-p2p-latency -n tls:// -i 30 -x 100 -w 3";
    let said_alone = said(home.shell(&format!("{latency} {ours}"))).code(0);
    let more = check_latency(&said_alone, "noop\t30\t3\t100\t");
    assert_eq!(more[0], "tls", "{said_alone}");
    // Ranks that are started apart meet first; the server's thread has a connection of its own.
    let line = format!("./margo-p2p-bw -D 1 -w 0 -n tls:// -x 1000 -X 3000 -c 4 -T 1 {ours}");
    let [server, client] = ranks(&home, &line);
    assert!(server.code(0).out.is_empty());
    assert_eq!(check_bw(&client.code(0), [4, 1, 1000, 3000, 0])[..2], ["tls", "messages"]);

    // Each rank trusts the other authority only, and so rejects its partner, which has the same
    // certificate as the rank itself.
    let strangers = files("here", "there");
    home.run(&format!("margo-p2p-latency -n tls:// -i 1 {strangers}"))
        .code(1)
        .tells(&["TLS failed: "]);
    for (words, says) in [
        ("tls://", "-n tls:// needs --cert, --key and --ca, or `tls` in --config"),
        (&format!("tcp:// {ours}"), "--cert needs -n tls://"),
        ("tls:// --cert here.pem", "--key <FILE>"),
        (&format!("tls:// {}", files("none", "here")), "none.pem: cannot load the certificates: "),
    ] {
        let said = home.run(&format!("margo-p2p-bw -D 1 -x 1 -X 10 -n {words}"));
        assert!(!said.status.success(), "{said}");
        said.tells(&[says]);
    }
}

const BW_HEADER: &str = "<op>\t<warmup_seconds>\t<concurrency>\t<threads>\t<xfer_size>\t<total_bytes>\t\
    <seconds>\t<MiB/s>\t<xfer_memory>\t<align_buffer>";

/// Checks the table of margo-p2p-bw; returns the fields of its last row.
#[track_caller]
fn check_bw(said: &Said, [concurrency, threads, xfer, buffer, align]: [u64; 5]) -> Vec<String> {
    let lines: Vec<&str> = said.out.lines().collect();
    let [header, pull, push, more_header, more] = lines[..] else { panic!("{said}") };
    assert_eq!(header, BW_HEADER, "{said}");
    for (op, line) in [("PULL", pull), ("PUSH", push)] {
        let fields: Vec<&str> = line.split('\t').collect();
        let [its_op, warmup, numbers @ .., total, seconds, rate, its_buffer, its_align] =
            &fields[..]
        else {
            panic!("{said}")
        };
        assert_eq!((*its_op, *warmup), (op, "0"), "{said}");
        assert_eq!(numbers, [concurrency, threads, xfer].map(|it| it.to_string()), "{said}");
        assert_eq!((*its_buffer, *its_align), (&*buffer.to_string(), &*align.to_string()));
        let [total, seconds, rate] =
            [total, seconds, rate].map(|it| it.parse::<f64>().expect("a number"));
        assert!(total > 0.0 && total % xfer as f64 == 0.0 && seconds >= 1.0, "{said}");
        assert!((rate - total / seconds / 1048576.0).abs() < 0.01 * rate, "{said}");
    }
    assert_eq!(more_header, "# <transport> <path> <memory> <client> <server>");
    more.strip_prefix('#').expect("a comment").split('\t').map(str::to_owned).collect()
}

/// `HANDOVER_LONG=1` tests every variant instead of one: a run takes two seconds or more.
#[test]
fn margo_p2p_bw_prints_its_table_and_transfers_correct_data() {
    let home = home();
    let ways = [
        (
            "tcp:// -x 1000 -X 3000 -c 4 -T 1 -m buffer",
            [4, 1, 1000, 3000, 0],
            ["tcp", "messages", "shared"],
        ),
        (
            "na+sm:// -x 65536 -X 1048577 -c 3 -T 2 -a --memory plain",
            [3, 2, 65536, 1_048_577, 1],
            ["sm", "process", "plain"],
        ),
        ("sm:// -x 4096 -X 100000", [1, 0, 4096, 100_000, 0], ["sm", "mapped", "shared"]),
        (
            "sm:// -x 100000 -X 1000000 -c 2 -T 1 --halves",
            [2, 1, 100_000, 1_000_000, 0],
            ["sm", "mapped", "shared"],
        ),
        (
            "sm:// -x 65536 -X 1000000 --halves",
            [1, 0, 65_536, 1_000_000, 0],
            ["sm", "mapped", "shared"],
        ),
        (
            "sm:// -x 65536 -X 1000000 -c 2 --halves --memory plain",
            [2, 0, 65_536, 1_000_000, 0],
            ["sm", "process", "plain"],
        ),
        ("uds:// -x 7 -X 7 -t 0,1", [1, 0, 7, 7, 0], ["uds", "messages", "shared"]),
    ];
    let is_long = std::env::var_os("HANDOVER_LONG").is_some();
    for (more, numbers, told) in &ways[..if is_long { ways.len() } else { 1 }] {
        let line = format!("./margo-p2p-bw -D 1 -w 0 -n {more}");
        let said = said(home.shell(&line)).code(0);
        assert_eq!(check_bw(&said, *numbers)[..3], *told, "{said}");
    }
    if is_long {
        let [server, client] = ranks(&home, "./margo-p2p-bw -D 1 -w 0 -n sm -x 4096 -X 8192");
        assert!(server.code(0).out.is_empty());
        check_bw(&client.code(0), [1, 0, 4096, 8192, 0]);
    }
    for (words, says) in [
        ("-x 4097 -X 4096", "-x 4097: exceeds the size of the buffer, -X 4096"),
        ("-x 0", "1..=2147483647"),
        ("-x 1 -c 0", "1..=4096"),
        ("-x 32767 --halves", "--halves: needs -x of at least 32768"),
    ] {
        home.run(&format!("margo-p2p-bw -n sm -D 1 {words}")).code(2).tells(&[says]);
    }
    let said = home.run("margo-p2p-bw -n uds:// -D 1 -x 32768 --halves").code(2);
    said.tells(&["--halves: needs -n sm://"]);
    home.run("margo-p2p-bw -n sm -D 1 -x 1 -X 1000000000000")
        .code(1)
        .tells(&["-X 1000000000000: 2 buffers"]);
    let said = home.run("margo-p2p-bw -n sm -D 1 -x 1 -X 10 -m nowhere/buffer").code(2);
    let said = said.tells(&["-m nowhere/buffer", "No such file or directory", "name a file"]);
    assert_eq!(said.err.lines().count(), 1, "{said}");
}

#[test]
fn margo_p2p_bw_prints_the_bandwidth_of_intervals() {
    let home = home();
    let line = "./margo-p2p-bw -D 2 -w 0 -n sm -x 4096 -X 65536 --interval 1";
    let said = said(home.shell(line)).code(0);
    let (intervals, others): (Vec<&str>, Vec<&str>) = said
        .out
        .lines()
        .partition(|line| line.starts_with("#P") || *line == "# <op> <from> <to> <MiB/s>");
    assert_eq!(intervals.len(), 6, "{said}");
    for (op, line) in [("#PULL", &others[1]), ("#PUSH", &others[2])] {
        let lines = intervals.iter().filter(|line| line.starts_with(op));
        let numbers: Vec<Vec<f64>> = lines
            .map(|line| line.split('\t').skip(1).map(|it| it.parse().expect("a number")).collect())
            .collect();
        let [first, second] = &numbers[..] else { panic!("{said}") };
        assert!(first[0] == 0.0 && first[1] == second[0] && second[1] >= 2.0, "{said}");
        let total: f64 = line.split('\t').nth(7).expect("MiB/s").parse().expect("a number");
        let (low, high) = (first[2].min(second[2]), first[2].max(second[2]));
        assert!((low * 0.999..=high * 1.001).contains(&total), "{said}");
    }
    home.run("margo-p2p-bw -n sm -D 1 -x 1 --interval 0").code(2).tells(&["--interval", "1..="]);
}

#[test]
fn margo_p2p_bw_ends_when_it_is_interrupted_or_its_partner_is_killed() {
    let home = home();
    for signal in [Signal::INT, Signal::KILL] {
        let line = "exec ./margo-p2p-bw -D 600 -w 0 -n tcp -x 4096 -X 65536 -T 1";
        let mut running = home.start(home.shell(line));
        wait_until("both run", || home.processes().len() == 2 || running.has_ended());
        let partner = home.processes().into_iter().find(|id| *id != running.id());
        let partner = partner.expect("it runs");
        at_work(partner);
        match signal {
            Signal::INT => {
                running.signal_all(signal);
                let said = running.finish().code(130).tells(&["no measurement was completed"]);
                assert!(!said.err.contains("has disconnected"), "{said}");
            }
            _ => {
                rustix::process::kill_process(crate::common::pid(partner), signal)
                    .expect("it is ours");
                running.finish().code(1).tells(&["rank 0 has disconnected"]);
            }
        }
        wait_until("nobody is left", || home.processes().is_empty());
    }
}

#[test]
fn two_ranks_of_srun_meet_through_a_file_and_remove_it() {
    let home = home();
    for (transport, meant) in [("sm://", "sm"), ("tcp://", "tcp"), ("uds://", "uds")] {
        let line = format!("./margo-p2p-latency -n {transport} -i 20 -w 0");
        let [server, client] = ranks(&home, &line);
        let (server, client) = (server.code(0), client.code(0));
        assert!(server.out.is_empty(), "{server}");
        assert_eq!(check_latency(&client, "noop\t20\t0\t0\t")[0], meant);
    }
    let entries = fs::read_dir(home.path()).expect("a folder");
    let folder = entries
        .map(|it| it.expect("an entry"))
        .find(|it| it.file_name().to_string_lossy().starts_with("handover-"))
        .expect("the user's folder");
    assert_eq!(folder.metadata().expect("it is there").permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "a file is left behind");
}

#[test]
fn every_rank_refuses_a_number_of_ranks_other_than_two() {
    let home = home();
    for ranks_count in [1, 3] {
        for number in 0..ranks_count {
            let said = said(rank(&home, number, ranks_count, LATENCY)).code(2);
            let which = format!("rank {number} of {ranks_count}: exactly 2 are needed");
            let said = said.tells(&[&format!("margo-p2p-latency: {which}")]);
            assert!(
                said.out.is_empty() && said.err.matches("margo-p2p-latency:").count() == 1,
                "{said}"
            );
        }
    }
}

#[test]
fn ranks_on_different_hosts_are_asked_for_a_rendezvous() {
    let home = home();
    for number in [0, 1] {
        let mut command = rank(&home, number, 2, LATENCY);
        command.env("SLURM_NNODES", "2");
        said(command).code(2).tells(&["different hosts", "--rendezvous HOST:PORT"]);
    }
    said(home.shell(&format!("{LATENCY} --rendezvous localhost:1"))).code(2).tells(&["--rank 0"]);
}

#[test]
fn ranks_meet_at_an_address_and_strangers_are_disconnected() {
    let home = home();
    let free = free_address();
    let line = format!("./margo-p2p-latency -i 20 --rendezvous {free} -n");
    let server = home.start(home.shell(&format!("exec {line} tcp:// --rank 0")));
    wait_until("it waits there", || std::net::TcpStream::connect(free).is_ok());
    let client = said(home.shell(&format!("{line} ofi+tcp:// --rank 1"))).code(0);
    assert_eq!(check_latency(&client, "noop\t20\t100\t0\t")[0], "tcp");
    assert!(server.finish().code(0).out.is_empty());
    let [server, client] =
        ranks(&home, &format!("./margo-p2p-latency -i 20 --rendezvous {free} -n sm://"));
    check_latency(&client.code(0), "noop\t20\t100\t0\t");
    server.code(0);
}

#[test]
fn rank_0_ends_when_rank_1_ends_before_it_connects() {
    let home = home();
    let free = free_address();
    let line = format!("{LATENCY} --wait 600 --rendezvous {free} --rank 0");
    let server = home.start(home.shell(&format!("exec {line}")));
    let mut rank_1 = Endpoint::new(Config::default()).expect("an endpoint");
    let at = Address::Tcp(free.to_string());
    let mut met = None;
    wait_until("it waits there", || {
        met = rank_1.connect(&at).ok();
        met.is_some()
    });
    let (met, meet) = (met.expect("it is there"), Method::new("meet"));
    let told: String = rank_1.call(met, meet, "margo-p2p-latency.-").expect("its address");
    assert!(told.contains(" sm://"), "{told}");
    drop(rank_1);
    server.finish().code(1).tells(&["rank 1 has exited before it connected"]);

    let (home, folder) = (self::home(), home.path().join("run"));
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    let mut command = rank(&home, 0, 2, &format!("{LATENCY} --wait 600"));
    command.env("XDG_RUNTIME_DIR", &folder);
    let server = home.start(command);
    let file = || fs::read_dir(&folder).expect("a folder").next().map(|it| it.expect("one").path());
    wait_until("it tells where it is", || {
        file().is_some_and(|it| fs::read_to_string(it).is_ok_and(|text| text.ends_with('\n')))
    });
    // As rank 1 does when it has read the file; then rank 1 ends.
    fs::remove_file(file().expect("it is there")).expect("it is ours");
    server.finish().code(1).tells(&["rank 1 has exited before it connected"]);
}

#[test]
fn rank_1_that_waits_for_rank_0_does_not_connect_to_itself() {
    let home = home();
    // A network namespace of its own, with two ports to connect from, one of them rank 0's.
    let line = format!(
        "ip link set lo up && echo '40000 40001' >/proc/sys/net/ipv4/ip_local_port_range || exit 77
        for host in 127.0.0.1 '[::1]'; do
            {LATENCY} --wait 60 --rank 1 --rendezvous $host:40000 &
            sleep 0.3
            {LATENCY} --wait 60 --rank 0 --rendezvous $host:40000 && wait $! || exit 1
        done"
    );
    let shell = home.shell(&line);
    let mut command = home.program("unshare");
    command.arg("--net").arg(shell.get_program()).args(shell.get_args());
    let path = shell.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path);
    command.env("PATH", path.expect("a path"));
    if Command::new("ip").arg("-V").output().is_err() {
        return skipped("a network of its own", "no ip");
    }
    let said = said(command);
    if said.err.contains("unshare: ") || said.status.code() == Some(77) {
        return skipped("a network of its own", "none can be made here");
    }
    let said = said.code(0);
    assert_eq!(said.out.matches("\nnoop\t20\t100\t0\t").count(), 2, "{said}");
}

#[test]
fn wait_for_a_missing_rank_ends_at_its_time_limit() {
    let home = home();
    let free = free_address();
    let at = format!("{LATENCY} --wait 1 --rendezvous {free}");
    let lines = [LATENCY.to_owned() + " --wait 1", at];
    let waiting: Vec<_> = lines
        .iter()
        .flat_map(|line| [0, 1].map(|number| (number, line)))
        .map(|(number, line)| {
            // Each is of another job, so that they do not find each other.
            let mut command = rank(&home, number, 2, line);
            command.env("SLURM_JOB_ID", format!("{}", 100 * number + line.len() as u32));
            std::thread::spawn(move || (1 - number, said(command)))
        })
        .collect();
    for it in waiting {
        let (other, said) = it.join().expect("no panic");
        let said = said.code(1).tells(&["within 1 s"]);
        assert!(said.err.contains(&format!("rank {other}")), "{said}");
    }
}

/// Starts both ranks, in homes of their own; returns rank 0 and rank 1.
fn under_way(homes: &[Home; 2]) -> [Running<'_>; 2] {
    let line = "./margo-p2p-latency -n tcp:// -i 1000000000 -w 0";
    let start = |number: usize| {
        let mut command = rank(&homes[number], number as u32, 2, line);
        command.env("XDG_RUNTIME_DIR", homes[0].data());
        homes[number].start(command)
    };
    fs::create_dir(homes[0].data()).expect("a folder");
    fs::set_permissions(homes[0].data(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    let files = || fs::read_dir(homes[0].data()).expect("a folder").count();
    let server = start(0);
    wait_until("rank 0 tells where it is", || files() == 1);
    let client = start(1);
    wait_until("rank 1 has heard it", || files() == 0);
    at_work(client.id());
    [server, client]
}

#[test]
fn killed_rank_is_an_error_of_the_other_rank() {
    for killed in [0, 1] {
        let homes = [home(), home()];
        let [server, client] = under_way(&homes);
        let (killed, other, words) = match killed {
            0 => (server, client, "rank 0 has disconnected"),
            _ => (client, server, "rank 1 has disconnected"),
        };
        killed.signal(Signal::KILL);
        other.finish().code(1).tells(&[words]);
    }
}

/// Waits until a process has used enough CPU time to be measuring.
fn at_work(id: u32) {
    wait_until("it works", || {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|it| it.parse().ok()).unwrap_or(0u64);
        // utime and stime, after the program's name, in hundredths of a second
        ticks(12) + ticks(13) >= 30
    });
}

#[test]
fn interrupted_run_prints_its_figures_and_ends_its_partner() {
    let home = home();
    let mut running = home.start(home.shell("exec ./margo-p2p-latency -n sm -i 1000000000 -w 1"));
    wait_until("both run", || home.processes().len() == 2 || running.has_ended());
    at_work(running.id());
    // As a terminal does: both processes get the signal.
    running.signal_all(Signal::INT);
    let said = running.finish().code(130);
    let count: u64 = said.out.split('\t').nth(1).expect("a column").parse().expect("a number");
    assert!(count > 0 && count < 1_000_000_000, "{said}");
    assert!(home.processes().is_empty());
}

#[test]
fn interrupt_during_a_call_that_is_not_answered_prints_the_figures() {
    let home = home();
    let line = "exec env --default-signal=HUP ./margo-p2p-latency -n sm -i 1000000000 -w 1";
    for signal in [Signal::INT, Signal::HUP] {
        let mut running = home.start(home.shell(line));
        wait_until("both run", || home.processes().len() == 2 || running.has_ended());
        at_work(running.id());
        let partner = home.processes().into_iter().find(|id| *id != running.id());
        let partner = crate::common::pid(partner.expect("it runs"));
        rustix::process::kill_process(partner, Signal::STOP).expect("it is ours");
        running.signal(signal);
        let said = running.finish().code(130).tells(&["are shown, but not stored"]);
        assert!(said.out.contains("\nnoop\t"), "{said}");
        assert!(home.processes().is_empty());
    }
}

#[test]
fn median_of_two_calls_is_the_middle_between_them() {
    let out = home().ok("margo-p2p-latency -n sm -i 2");
    let row = out.lines().nth(1).expect("a row").split('\t').skip(4);
    let times: Vec<f64> = row.map(|it| it.parse().expect("a number")).collect();
    let [min, _, med, avg, _, max] = times[..] else { panic!("{out}") };
    assert!((med - min.midpoint(max)).abs() < 2e-9 && (med - avg).abs() < 2e-9, "{out}");
}

#[test]
fn interrupt_while_rank_1_fills_its_buffer_is_no_failure_of_rank_0() {
    let home = home();
    let line = "exec ./margo-p2p-bw -n tcp -D 600 -w 0 -x 4096 -X 268435456 --memory plain";
    let running = home.start(home.shell(line));
    wait_until("rank 1 fills its buffer", || {
        let status = fs::read_to_string(format!("/proc/{}/status", running.id()));
        let status = status.unwrap_or_default();
        let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        anonymous
            .and_then(|it| it.trim().strip_suffix(" kB")?.parse().ok())
            .is_some_and(|kib: u64| kib > 16384)
    });
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(5));
    // Rank 1 is stopped until the time for rank 0 to answer is over.
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1200));
    running.signal(Signal::CONT);
    running.finish().code(130).tells(&["no measurement was completed"]);
}

/// Starts a program, and stops its rank 0 before it listens. Returns `None` if rank 0 was faster.
fn start_with_silent_rank_0<'a>(home: &'a Home, line: &str) -> Option<Running<'a>> {
    let running = home.start(home.shell(line));
    let children = format!("/proc/{id}/task/{id}/children", id = running.id());
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut id = 0;
    wait_until("rank 0 is started", || {
        id = read(&children).trim().parse().unwrap_or(0);
        // Rank 1 waits until rank 0 executes the program.
        id > 0 && read(&format!("/proc/{id}/cmdline")).contains("--partner")
    });
    rustix::process::kill_process(crate::common::pid(id), Signal::STOP).expect("it is ours");
    wait_until("it has stopped", || read(&format!("/proc/{id}/stat")).contains(") T "));
    let mut open = fs::read_dir(format!("/proc/{id}/fd")).expect("it is there");
    let is_socket = |path: &Path| {
        fs::read_link(path).is_ok_and(|it| it.to_string_lossy().starts_with("socket:"))
    };
    let listens = open.any(|it| is_socket(&it.expect("a descriptor").path()));
    (!listens).then_some(running)
}

#[test]
fn interrupt_ends_the_wait_for_a_rank_0_that_does_not_listen() {
    let home = home();
    let line = "exec ./margo-p2p-latency -n tcp -i 10";
    let running = std::iter::repeat_with(|| start_with_silent_rank_0(&home, line));
    let Some(running) = running.take(50).flatten().next() else {
        return skipped("a rank 0 that does not listen", "it was not stopped early enough");
    };
    running.signal(Signal::INT);
    running.finish().code(130).tells(&["no measurement was completed"]);
    assert!(home.processes().is_empty());
}

/// CPUs that the main thread of a process may run on, as `/proc` lists them.
fn allowed_cpus(id: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

#[test]
fn ranks_that_spin_run_on_two_cpus() {
    if !allowed_cpus("self").contains(['-', ',']) {
        return skipped("two ranks on two CPUs", "this process has one CPU");
    }
    let home = home();
    let line = "exec ./margo-p2p-latency -n sm:// -t 0,0 -i 1000000000 -w 1";
    let mut running = home.start(home.shell(line));
    wait_until("both run", || home.processes().len() == 2 || running.has_ended());
    let mut cpus = Vec::new();
    wait_until("each has a CPU of its own", || {
        assert!(!running.has_ended(), "{}", running.told());
        cpus = home.processes().iter().map(|id| allowed_cpus(&id.to_string())).collect();
        cpus.len() == 2 && cpus[0] != cpus[1] && cpus.iter().all(|it| it.parse::<u32>().is_ok())
    });
    assert!(!running.told().contains("warning"), "{}", running.told());
    at_work(running.id());
    running.signal_all(Signal::INT);
    let said = running.finish().code(130);
    assert!(said.out.contains("\tsm\tspin\tspin\t"), "{said}");
}

#[test]
fn ranks_on_one_cpu_warn_and_sleep() {
    let home = home();
    let line = "margo-p2p-latency -n sm:// -t 0,0 -i 100 --place same";
    let said = home.run(line).code(0).tells(&["warning: both ranks run on CPU"]);
    assert!(said.out.contains("\tsm\tadaptive\tadaptive\t"), "{said}");
}

#[test]
fn partner_ends_with_the_process_that_started_it() {
    let home = home();
    let mut running = home.start(home.shell("exec ./margo-p2p-latency -n tcp -i 1000000000"));
    wait_until("both run", || home.processes().len() == 2 || running.has_ended());
    running.signal(Signal::KILL);
    wait_until("nobody is left", || home.processes().is_empty());
}

#[test]
fn file_that_others_can_access_is_refused() {
    let home = home();
    let folder = home.path().join("run");
    fs::create_dir(&folder).expect("a folder");
    let close = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode));
    close(0o700).expect("it is ours");
    let ranked = |number, wait| {
        let mut command = rank(&home, number, 2, &format!("{LATENCY} --wait {wait}"));
        command.env("XDG_RUNTIME_DIR", &folder);
        command
    };
    let name = folder.join("margo-p2p-latency.4711.0");
    // A file that other users can write.
    fs::write(&name, "handover 1 1 sm://elsewhere\n").expect("a file");
    fs::set_permissions(&name, fs::Permissions::from_mode(0o666)).expect("it is ours");
    for number in [0, 1] {
        said(ranked(number, 1)).code(1).tells(&["not a regular file that this user alone owns"]);
    }
    // A symbolic link to another file.
    fs::rename(&name, folder.join("other")).expect("it is ours");
    symlink(folder.join("other"), &name).expect("a link");
    for number in [0, 1] {
        said(ranked(number, 1)).code(1).tells(&["margo-p2p-latency.4711.0"]);
    }
    assert!(folder.join("other").exists());
    // A file of a rank 0 that was killed: it must not be in the way.
    fs::remove_file(&name).expect("it is ours");
    fs::write(&name, "handover 4194303 1 sm://elsewhere\n").expect("a file");
    fs::set_permissions(&name, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let both = [0, 1].map(|number| {
        let command = ranked(number, 60);
        std::thread::spawn(move || said(command))
    });
    for it in both {
        it.join().expect("no panic").code(0);
    }
    assert!(!name.exists());
}

#[test]
fn impossible_options_are_refused_with_a_remedy() {
    let home = home();
    for (words, said) in [
        ("", "-i <ITERATIONS>"),
        ("-i 5", "-n <TRANSPORT>"),
        ("-n sm", "-i <ITERATIONS>"),
        ("-n verbs:// -i 5", "`verbs`: unknown transport; use sm, tcp, tls, ucx or uds"),
        ("-n sm -i 0", "1..=1000000000"),
        ("-n sm -i 5 -x -1", "0..=67108864"),
        ("-n sm -i 5 -t 0", "CLIENT,SERVER"),
        ("-n sm -i 5 --rank 1", "--rendezvous"),
    ] {
        home.run(&format!("margo-p2p-latency {words}")).code(2).tells(&[said]);
    }
    // A port on which another socket listens.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = taken.local_addr().expect("bound");
    home.run(&format!("margo-p2p-latency -i 5 -n tcp://{place}")).code(1).tells(&["bind"]);
}

/// Launchers of MPI, with the packages that have them.
const MPIEXECS: [(&str, &str); 2] =
    [("mpiexec.openmpi", "openmpi-bin"), ("mpiexec.mpich", "mpich")];

/// Returns the launchers that are installed; reports the others.
pub fn mpiexecs() -> impl Iterator<Item = &'static str> {
    MPIEXECS.into_iter().filter_map(|(mpiexec, package)| match is_there(mpiexec) {
        true => Some(mpiexec),
        false => {
            skipped(mpiexec, &format!("not installed (apt-get install {package})"));
            None
        }
    })
}

/// Returns a command for a line that begins with `mpiexec`, by this launcher. Its standard input
/// never ends: MPICH's launcher tells its proxy of the end, and dies of SIGPIPE if the ranks and
/// the proxy have already ended.
pub fn launched(home: &Home, mpiexec: &str, line: &str) -> Command {
    let line = line.replacen("mpiexec", mpiexec, 1);
    let mut command = home.shell(&format!(
        r#"test -p "$TMPDIR/input" || mkfifo "$TMPDIR/input"; exec <>"$TMPDIR/input"; exec {line}"#
    ));
    // The machine may have fewer CPUs, and the test may run as root.
    for name in ["RUN_AS_ROOT", "RUN_AS_ROOT_CONFIRM"] {
        command.env(format!("OMPI_ALLOW_{name}"), "1");
    }
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("TMPDIR", home.path());
    command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command
}

#[test]
fn mpiexec_of_open_mpi_and_of_mpich_starts_both_ranks_of_the_documented_lines() {
    let home = home();
    for mpiexec in mpiexecs() {
        let start = |line: &str| said(launched(&home, mpiexec, line));
        let line = "mpiexec -n 2 tests/perf-regression/margo-p2p-latency -i 10 -n sm://";
        let said = start(line).code(0);
        assert_eq!(check_latency(&said, "noop\t10\t100\t0\t")[0], "sm", "{mpiexec}");
        // As written but for its seconds and its memory.
        let line = "mpiexec -n 2 ./margo-p2p-bw -x 4096 -n sm:// -c 1 -D 10";
        let said = start(&line.replace("-D 10", "-D 1 -w 0 -X 1048576")).code(0);
        check_bw(&said, [1, 0, 4096, 1 << 20, 0]);
        for ranks_count in [1, 3] {
            let line = format!("mpiexec -n {ranks_count} {LATENCY}");
            let said = start(&line).calm();
            assert!(said.status.code() == Some(2) && said.out.is_empty(), "{said}");
            let words = format!("of {ranks_count}: exactly 2 are needed");
            assert!(said.err.contains(&words), "{said}");
        }
    }
}

#[test]
fn rank_of_mpiexec_that_is_killed_ends_the_other_and_the_launcher() {
    for mpiexec in mpiexecs() {
        for killed in [0, 1] {
            let home = home();
            let line = "mpiexec -n 2 ./margo-p2p-latency -n sm:// -i 1000000000 -w 0";
            let mut running = home.start(launched(&home, mpiexec, line));
            let mut ranks = Vec::new();
            wait_until("both ranks", || {
                let command = |id: &u32| {
                    fs::read(format!("/proc/{id}/cmdline"))
                        .is_ok_and(|line| line.starts_with(b"./margo-p2p-latency"))
                };
                ranks = home.processes().into_iter().filter(command).collect();
                ranks.len() == 2 || running.has_ended()
            });
            assert_eq!(ranks.len(), 2, "{}", running.told());
            ranks.sort_unstable();
            at_work(ranks[killed]);
            let id = crate::common::pid(ranks[killed]);
            rustix::process::kill_process(id, Signal::KILL).expect("it is ours");
            let said = running.finish().calm();
            assert!(!said.status.success(), "{said}");
            wait_until("nobody is left", || home.processes().is_empty());
        }
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}
