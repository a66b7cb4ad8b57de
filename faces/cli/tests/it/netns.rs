//! Ranks on two hosts: network namespaces with addresses of their own, which the MPI launchers
//! enter by an agent.

use crate::common::{Home, said, skipped, wait_until, write_script};
use crate::fleet::measured_nodes_count;
use crate::margo::{launched, mpiexecs};
use handover_rpc::Address;
use rustix::process::geteuid;
use std::process::Command;

/// Addresses of the namespaces, which are also their host names.
const HOSTS: [&str; 2] = ["10.213.7.1", "10.213.7.2"];

/// Network namespaces joined by a pair of interfaces. Dropping this removes them.
struct Namespaces([String; 2]);

impl Namespaces {
    /// Creates the namespaces; the error is the reason why that is not possible here.
    fn new() -> Result<Namespaces, String> {
        if !geteuid().is_root() {
            return Err("needs root".to_string());
        }
        let names = [0, 1].map(|number| format!("handover-{}-{number}", std::process::id()));
        let made = Namespaces(names);
        let [first, second] = &made.0;
        let mut lines = vec![
            format!("netns add {first}"),
            format!("netns add {second}"),
            format!("link add veth0 netns {first} type veth peer name veth0 netns {second}"),
        ];
        for (name, host) in made.0.iter().zip(HOSTS) {
            lines.push(format!("-n {name} addr add {host}/24 dev veth0"));
            lines.push(format!("-n {name} link set lo up"));
            lines.push(format!("-n {name} link set veth0 up"));
        }
        for line in lines {
            let done = Command::new("ip").args(line.split(' ')).output();
            let done = done.map_err(|error| format!("ip: {error}"))?;
            if !done.status.success() {
                return Err(format!("ip {line}: {}", String::from_utf8_lossy(&done.stderr).trim()));
            }
        }
        Ok(made)
    }

    /// Returns a command by which a launcher runs a line as two ranks, one in each namespace.
    fn command(&self, home: &Home, mpiexec: &str, line: &str) -> Command {
        let agent = home.path().join("agent");
        let [first, second] = &self.0;
        let [host, other] = HOSTS;
        // The launcher runs `AGENT [options] HOST PROXY...`.
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != {host} ] && [ \"$1\" != {other} ]; do shift; done\nhost=$1; shift\n\
             [ $host = {host} ] && space={first} || space={second}\n\
             exec ip netns exec $space unshare --uts sh -c \"hostname $host && $*\"\n"
        );
        write_script(&agent, script);
        let agent = agent.display();
        let options = match mpiexec.ends_with("mpich") {
            true => format!("-launcher ssh -launcher-exec {agent} -ppn 1 -hosts {host},{other}"),
            false => format!(
                "--mca plm rsh --mca plm_rsh_agent {agent} --map-by node --host {host},{other}"
            ),
        };
        launched(home, mpiexec, &format!("{agent} {host} mpiexec -n 2 {options} {line}"))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            // It may not exist, which is not an error.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[test]
fn ranks_in_two_network_namespaces_find_each_other_and_measure_at_the_same_time() {
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(why) => return skipped("network namespaces", &why),
    };
    let home = Home::new();
    home.ok("links .");
    let ucx: Address = "ucx+tcp://".parse().expect("parse the address");
    let ucx = ucx.transport().to_string();
    for mpiexec in mpiexecs() {
        for (line, transport, lines_count) in [
            ("./margo-p2p-latency -n tcp:// -i 50", "tcp", 4),
            ("./margo-p2p-latency -n ucx+tcp:// -i 50", &ucx, 4),
            ("./margo-p2p-bw -x 4096 -X 1048576 -n tcp:// -c 1 -D 1 -w 0", "tcp", 5),
            ("./margo-p2p-bw -x 4096 -X 1048576 -n ucx+tcp:// -c 1 -D 1 -w 0", &ucx, 5),
            ("handover rpc-scale -n tcp:// --seconds 0.2", "tcp", 4),
        ] {
            let said = said(namespaces.command(&home, mpiexec, line)).code(0);
            assert_eq!(said.out.lines().count(), lines_count, "{mpiexec} {line}: {said}");
            let is_named = [format!("\t{transport}\t"), format!("#{transport}\t")]
                .iter()
                .any(|it| said.out.contains(it.as_str()));
            assert!(is_named, "{mpiexec} {line}: {said}");
        }
    }
    let Some(mpiexec) = mpiexecs().find(|it| it.ends_with("mpich")) else { return };
    let said_of = |line: &str| said(namespaces.command(&home, mpiexec, line)).calm();
    let said = said_of("handover rpc-scale -n sm:// --seconds 0.2");
    assert!(said.err.contains("the ranks are on different hosts; use tcp://"), "{said}");

    let line = "handover run --fleet clock/now --no-peers --no-report --time 500ms";
    let mut running = home.start(namespaces.command(&home, mpiexec, line));
    let mut are_both_measured = false;
    wait_until("two nodes that are measured at the same time", || {
        are_both_measured |= measured_nodes_count(&home) == 2;
        are_both_measured || running.has_ended()
    });
    let said = running.finish().code(0);
    assert!(are_both_measured, "one after the other: {said}");
    let mut runs = home.runs();
    runs.sort_by_key(|run| run["host"].as_str().map(str::to_string));
    let hosts: Vec<&str> = runs.iter().filter_map(|run| run["host"].as_str()).collect();
    assert_eq!(hosts, HOSTS, "{said}");
}

#[test]
fn benchmarks_with_many_connections_leave_ports_to_listen_on() {
    let home = Home::new();
    let settle = "ip link set lo up && echo 40000 40199 >/proc/sys/net/ipv4/ip_local_port_range";
    let inside =
        |line: &str| said(home.shell(&format!("unshare --net sh -c '{settle} && {line}'")));
    if !geteuid().is_root() || !inside("true").status.success() {
        return skipped("few ports", "needs root, unshare and ip");
    }
    // The rounds of net/idle-bytes together have more connections than there are ports.
    let benchmarks = "net/connect net/idle-bytes rpc/tcp --set connections_count=60";
    inside(&format!("handover run {benchmarks} --profile smoke --no-peers --no-report")).code(0);
    assert_eq!(home.runs().len(), 1);
}
