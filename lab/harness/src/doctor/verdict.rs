//! Verdicts: the effect of the facts on figures, and the repair.

use super::facts::{MachineFacts, ResourceLimit};
use super::measured::CpuMeasurements;
use handover_base::topology;
use handover_record::{Finding, FindingLevel};
use rustix::io::Errno;

/// Governors that keep the CPU frequency steady. Under the others, it varies with the load.
const STEADY_GOVERNORS: [&str; 2] = ["performance", "userspace"];
/// Share of steal time below which figures count as undisturbed.
const STEAL_MAX: f64 = 0.01;
/// Share of slowed calibration loops below which figures count as undisturbed.
const SLOWED_MAX: f64 = 0.05;
/// Maximum timer slack that is negligible beside a wake-up. The kernel's default is 50 times this.
const TIMER_SLACK_FINE_NS: u64 = 1_000;
/// Number of file descriptors that the larger benchmarks need.
const FDS_MIN: u64 = 65_536;
/// Number of threads that the larger benchmarks need.
const THREADS_MIN: u64 = 4_096;
/// Maximum value of `perf_event_paranoid` at which every user may count in user space.
const PERF_EVENT_PARANOID_MAX: i64 = 2;
/// Memory that benchmarks with large arguments need.
const MEMORY_MIN_BYTES: u64 = 2 << 30;

/// Builder of the finding about one fact, which may have any level.
struct FindingBuilder {
    /// Name of the fact.
    code: &'static str,
    /// Effect of the fact on figures.
    why: &'static str,
}

impl FindingBuilder {
    fn finding(
        &self,
        level: FindingLevel,
        found: impl Into<String>,
        fix: Option<String>,
    ) -> Finding {
        let (code, why) = (self.code.to_string(), self.why.to_string());
        Finding { code, level, found: found.into(), why, fix }
    }

    /// Creates a finding about a fact that does not affect figures.
    fn fine(&self, found: impl Into<String>) -> Finding {
        self.finding(FindingLevel::Fine, found, None)
    }

    /// Creates a finding about a fact that disturbs figures.
    fn disturbs(&self, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.finding(FindingLevel::Disturbs, found, Some(fix.into()))
    }

    /// Creates a finding about a fact that matters when machines are compared.
    fn note(&self, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.finding(FindingLevel::Note, found, Some(fix.into()))
    }

    /// Creates a finding about a fact that cannot be read. In a guest, only the host knows it.
    fn unreadable(&self, facts: &MachineFacts) -> Finding {
        match &facts.hypervisor {
            Some(hypervisor) => self.finding(
                FindingLevel::Unknown,
                format!("only the {hypervisor} host can see this"),
                None,
            ),
            None => self.finding(FindingLevel::Unknown, "the kernel does not report it", None),
        }
    }
}

/// Returns all findings about the machine, the worst first. Findings of one level are in a fixed
/// order.
pub(super) fn find_all(facts: &MachineFacts, measured: Option<&CpuMeasurements>) -> Vec<Finding> {
    let mut findings = vec![
        governor(facts),
        turbo(facts),
        smt(facts),
        isolation(facts),
        tickless(facts),
        mitigations(facts),
        huge_pages(facts),
        clock_source(facts),
        timer_slack(facts),
        cgroup_cpus(facts),
        memory(facts),
        fds(facts),
        threads(facts),
        load(facts),
        counters(facts),
    ];
    if facts.numa_nodes > 1 {
        findings.push(numa_balancing(facts));
    }
    if let Some(measured) = measured {
        findings.extend([steal(measured), pace(measured), switches(measured)]);
    }
    findings.sort_by_key(|finding| finding.level);
    findings
}

fn governor(facts: &MachineFacts) -> Finding {
    let why =
        "the frequency follows the load with some milliseconds' delay: the first rounds are slow";
    let about = FindingBuilder { code: "governor", why };
    match facts.governor.as_deref() {
        None => about.unreadable(facts),
        Some(steady) if STEADY_GOVERNORS.contains(&steady) => about.fine(steady),
        Some(other) => about.disturbs(other, "sudo cpupower frequency-set -g performance"),
    }
}

fn turbo(facts: &MachineFacts) -> Finding {
    let why =
        "the frequency depends on the temperature and on what other cores do: runs differ by it";
    let about = FindingBuilder { code: "turbo", why };
    match facts.turbo {
        None => about.unreadable(facts),
        Some(turbo) if turbo.is_on => about.note(
            "on",
            format!("echo {off} | sudo tee {file}", off = turbo.off, file = turbo.file),
        ),
        Some(_) => about.fine("off"),
    }
}

fn smt(facts: &MachineFacts) -> Finding {
    let why = "a thread whose sibling is busy runs at half to two thirds of its speed";
    let about = FindingBuilder { code: "smt", why };
    match (facts.is_smt_active, facts.smt_control.as_deref()) {
        (Some(true), _) => {
            about.note("on", "echo off | sudo tee /sys/devices/system/cpu/smt/control")
        }
        (Some(false), _) if facts.hypervisor.is_none() => about.fine("off"),
        _ => about.unreadable(facts),
    }
}

fn isolation(facts: &MachineFacts) -> Finding {
    let why = "the scheduler runs other work on the measured CPUs unless they are isolated";
    let about = FindingBuilder { code: "isolation", why };
    match facts.isolated_cpus.as_deref() {
        None => about.unreadable(facts),
        Some("") if facts.cpus_online < 4 => about.finding(
            FindingLevel::Note,
            "no CPU is isolated, and there are too few to isolate some",
            None,
        ),
        Some("") => {
            let last = facts.cpus_online - 1;
            let word = format!("kernel command line: isolcpus=managed_irq,domain,2-{last}");
            about.note("no CPU is isolated", word)
        }
        Some(cpus) if is_confined_to(facts, cpus) => about.fine(format!("CPUs {cpus}")),
        Some(cpus) => about.note(
            format!("CPUs {cpus} are isolated, but others may be measured"),
            format!("taskset -c {cpus} handover run"),
        ),
    }
}

/// Returns `true` if this process may use only CPUs of the list.
fn is_confined_to(facts: &MachineFacts, cpus: &str) -> bool {
    topology::parse_cpu_list(cpus)
        .is_ok_and(|cpus| facts.cpus_allowed.iter().all(|cpu| cpus.contains(cpu)))
}

fn tickless(facts: &MachineFacts) -> Finding {
    let why =
        "the timer tick takes a microsecond or more from a busy CPU, 100 to 1000 times a second";
    let about = FindingBuilder { code: "tickless", why };
    match facts.nohz_full_cpus.as_deref() {
        Some("") | None if facts.cpus_online < 4 => {
            about.finding(FindingLevel::Note, "every CPU has a timer tick", None)
        }
        Some("") | None => {
            let last = facts.cpus_online - 1;
            let word = format!("kernel command line: nohz_full=2-{last} rcu_nocbs=2-{last}");
            about.note("every CPU has a timer tick", word)
        }
        Some(cpus) if is_confined_to(facts, cpus) => {
            about.fine(format!("CPUs {cpus} run without a tick"))
        }
        Some(cpus) => about.note(
            format!("CPUs {cpus} run without a tick, but others may be measured"),
            format!("taskset -c {cpus} handover run"),
        ),
    }
}

fn mitigations(facts: &MachineFacts) -> Finding {
    let why =
        "system calls and switches cost more than the hardware needs; compare machines with care";
    let about = FindingBuilder { code: "mitigations", why };
    match &*facts.mitigations {
        [] => about.fine("none is active"),
        some => {
            let names: Vec<&str> =
                some.iter().filter_map(|it| Some(it.split_once(':')?.0)).collect();
            about.note(
                names.join(", "),
                "kernel command line: mitigations=off (only where every program is trusted)",
            )
        }
    }
}

fn huge_pages(facts: &MachineFacts) -> Finding {
    let why = "memory is moved into huge pages while it is used: some accesses take long";
    let about = FindingBuilder { code: "huge-pages", why };
    match facts.huge_pages.as_deref() {
        None => about.unreadable(facts),
        Some("always") => about
            .note("always", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(other) => about.fine(other),
    }
}

fn clock_source(facts: &MachineFacts) -> Finding {
    let why =
        "other clocks than the TSC cost a system call, or a read of a device, at each reading";
    let about = FindingBuilder { code: "clock-source", why };
    let Some(source) = facts.clock_source.as_deref() else { return about.unreadable(facts) };
    let is_cheap =
        matches!(source, "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter");
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if is_cheap {
        about.fine(source)
    } else if facts.clock_sources.iter().any(|it| it == "tsc") {
        about.disturbs(source, format!("echo tsc | sudo tee {file}"))
    } else {
        about
            .disturbs(source, "kernel command line: tsc=reliable, if the machine's TSC is reliable")
    }
}

fn timer_slack(facts: &MachineFacts) -> Finding {
    let why = "a sleep, or a wait with a time-out, ends late by up to this time";
    let about = FindingBuilder { code: "timer-slack", why };
    match facts.timer_slack_ns {
        None => about.unreadable(facts),
        Some(ns) if ns <= TIMER_SLACK_FINE_NS => about.fine(format!("{ns} ns")),
        Some(ns) => about.note(
            format!("{} us", ns / 1000),
            "echo 1 > /proc/$$/timerslack_ns, in the shell that starts the program",
        ),
    }
}

fn cgroup_cpus(facts: &MachineFacts) -> Finding {
    let why = "a process that has used up its quota is stopped until the next period, for tens of milliseconds";
    let about = FindingBuilder { code: "cgroup-cpus", why };
    match facts.cgroup_cpus {
        Some(cpus) if cpus < facts.cpus_allowed.len() as f64 => about.disturbs(
            format!(
                "a quota of {cpus} CPUs for {allowed} allowed CPUs",
                allowed = facts.cpus_allowed.len()
            ),
            "docker run --cpuset-cpus=..., or systemctl set-property UNIT CPUQuota=",
        ),
        Some(cpus) => {
            let allowed = facts.cpus_allowed.len();
            about.fine(format!("a quota of {cpus} CPUs; {allowed} CPUs are allowed"))
        }
        None if facts.cpus_allowed.len() == 1 => about.note(
            "1 CPU: the participants of a hand-over share it",
            "taskset -c 0-1 handover run, on a machine with two",
        ),
        None => about.fine(format!(
            "no quota; {allowed} CPUs are allowed",
            allowed = facts.cpus_allowed.len()
        )),
    }
}

fn memory(facts: &MachineFacts) -> Finding {
    let why = "with too little memory, benchmarks of many flows, fibers or connections are refused or killed";
    let about = FindingBuilder { code: "memory", why };
    let limit = facts.cgroup_memory_bytes.unwrap_or(u64::MAX).min(facts.memory_bytes);
    let found = format!("{:.1} GiB", limit as f64 / f64::from(1 << 30));
    if facts.memory_bytes == 0 {
        about.unreadable(facts)
    } else if limit < MEMORY_MIN_BYTES {
        about.note(found, "docker run --memory=4g, or systemctl set-property UNIT MemoryMax=4G")
    } else {
        about.fine(found)
    }
}

fn fds(facts: &MachineFacts) -> Finding {
    let why = "each connection takes a descriptor: with too few, servers refuse connections";
    let about = FindingBuilder { code: "fds", why };
    let found = limit_text(facts.fds.soft);
    match facts.fds.soft >= FDS_MIN {
        true => about.fine(found),
        false => about.note(found, raise_command("-n", facts.fds, "fs.nr_open")),
    }
}

fn threads(facts: &MachineFacts) -> Finding {
    let why = "benchmarks of a thousand participants cannot start them all";
    let about = FindingBuilder { code: "threads", why };
    let limit = facts.threads;
    let pids_max = facts.pids_max.unwrap_or(u64::MAX);
    if pids_max < THREADS_MIN && pids_max <= limit.soft {
        return about.note(
            format!("at most {pids_max} threads in this cgroup"),
            "docker run --pids-limit=-1, or systemctl set-property UNIT TasksMax=infinity",
        );
    }
    match limit.soft {
        soft if soft >= THREADS_MIN => about.fine(limit_text(soft.min(pids_max))),
        soft => about.note(limit_text(soft), raise_command("-u", limit, "kernel.threads-max")),
    }
}

/// Formats a resource limit; `u64::MAX` stands for none.
fn limit_text(limit: u64) -> String {
    if limit == u64::MAX { "no limit".to_string() } else { limit.to_string() }
}

/// Returns the command or the settings that raise a resource limit. It is `ulimit` up to the hard
/// limit, or else the settings that root changes.
fn raise_command(option: &str, limit: ResourceLimit, sysctl: &str) -> String {
    if limit.hard > limit.soft {
        let limit = limit_text(limit.hard).replace("no limit", "unlimited");
        format!("ulimit {option} {limit}")
    } else {
        format!("as root, raise it in /etc/security/limits.conf, and sysctl {sysctl}")
    }
}

fn load(facts: &MachineFacts) -> Finding {
    let why = "other programs run: they take CPUs, caches and memory from the benchmarks";
    let about = FindingBuilder { code: "load", why };
    match facts.load_1min {
        None => about.unreadable(facts),
        Some(load) if load < 0.5 => {
            about.fine(format!("load average {load:.2} in the last minute"))
        }
        Some(load) => about.disturbs(
            format!("load average {load:.2} in the last minute"),
            "top -o %CPU, and stop programs that are not needed",
        ),
    }
}

fn counters(facts: &MachineFacts) -> Finding {
    let why =
        "instructions and cache misses of an operation are known only with the hardware's counters";
    let about = FindingBuilder { code: "counters", why };
    if facts.has_counters {
        return about.fine("instructions, cycles and cache misses are counted");
    }
    match (facts.counters_errno, facts.perf_event_paranoid) {
        (Some(Errno::ACCESS), Some(level)) if level > PERF_EVENT_PARANOID_MAX => about.note(
            format!("perf_event_paranoid={level}"),
            format!("sudo sysctl kernel.perf_event_paranoid={PERF_EVENT_PARANOID_MAX}"),
        ),
        (Some(Errno::PERM), _) => about.note(
            "no hardware counters: a seccomp filter, such as that of a container, refuses them",
            "docker run --security-opt seccomp=unconfined",
        ),
        (Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV), _) => match &facts.hypervisor {
            Some(hypervisor) => about.note(
                format!(
                    "no hardware counters: the {hypervisor} host does not provide a PMU to this virtual machine"
                ),
                "enable the virtual PMU on the host (QEMU: -cpu host,pmu=on), or use a bare-metal instance",
            ),
            None => about.note(
                "no hardware counters: the kernel has no driver of this CPU's PMU",
                "use a kernel with such a driver",
            ),
        },
        (Some(errno), _) => about.finding(
            FindingLevel::Note,
            format!("no hardware counters: perf_event_open: {errno}"),
            None,
        ),
        (None, _) => about.finding(
            FindingLevel::Note,
            "no hardware counters: they can be opened, but count nothing",
            None,
        ),
    }
}

fn numa_balancing(facts: &MachineFacts) -> Finding {
    let why = "pages are unmapped to detect their users, and moved between nodes in mid-run";
    let about = FindingBuilder { code: "numa-balancing", why };
    match facts.is_numa_balancing_on {
        None => about.unreadable(facts),
        Some(false) => about.fine("off"),
        Some(true) => about.disturbs("on", "sudo sysctl kernel.numa_balancing=0"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn steal(measured: &CpuMeasurements) -> Finding {
    let why =
        "the hypervisor runs other guests on these CPUs, and the benchmarks stand still meanwhile";
    let about = FindingBuilder { code: "steal", why };
    let over = |share| {
        format!(
            "{percent} of the CPU time in {time:?}",
            percent = percent(share),
            time = measured.time
        )
    };
    match measured.steal {
        None => about.finding(FindingLevel::Unknown, "the kernel does not report it", None),
        Some(share) if share < STEAL_MAX => about.fine(over(share)),
        Some(share) => about.disturbs(over(share), "use a host or an instance with dedicated CPUs"),
    }
}

fn pace(measured: &CpuMeasurements) -> Finding {
    let why = "a core below full speed has a busy sibling thread or a lower frequency, and as little as half the throughput";
    let about = FindingBuilder { code: "neighbours", why };
    let slowed: Vec<String> = measured
        .cpus
        .iter()
        .filter(|core| core.slowed >= SLOWED_MAX)
        .map(|core| {
            format!(
                "CPU {cpu} in {share} of the loops",
                cpu = core.cpu,
                share = percent(core.slowed)
            )
        })
        .collect();
    let looked = measured.cpus.len();
    if looked == 0 {
        return about.finding(
            FindingLevel::Unknown,
            "no CPU could be measured: pinning a thread failed",
            None,
        );
    }
    if slowed.is_empty() {
        return about
            .fine(format!("{measured_count} CPUs ran at full speed", measured_count = looked));
    }
    let found = format!(
        "ran below full speed during {:?}: {cpus}",
        measured.time,
        cpus = slowed.join(", ")
    );
    about.disturbs(found, "try another time, other CPUs (taskset), or dedicated cores")
}

fn switches(measured: &CpuMeasurements) -> Finding {
    let why = "other threads of this machine preempted a spinning thread";
    let about = FindingBuilder { code: "switches", why };
    let total: u64 = measured.cpus.iter().map(|core| core.switches_involuntary).sum();
    let rate = total as f64 / measured.time.as_secs_f64() / measured.cpus.len().max(1) as f64;
    let found = format!("{rate:.0} preemptions a second on each CPU");
    // Kernel threads take a CPU some tens of times a second.
    if rate < 50.0 {
        about.fine(found)
    } else {
        about.disturbs(found, "top -o %CPU, and stop programs that are not needed")
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::CoreMeasurement;
    use super::*;
    use crate::host::Turbo;
    use std::time::Duration;

    /// A machine configured for measurement.
    fn quiet() -> MachineFacts {
        MachineFacts {
            governor: Some("performance".into()),
            turbo: Some(Turbo { is_on: false, file: "/turbo", off: "1" }),
            is_smt_active: Some(false),
            smt_control: Some("off".into()),
            isolated_cpus: Some("2-7".into()),
            nohz_full_cpus: Some("2-7".into()),
            huge_pages: Some("madvise".into()),
            clock_source: Some("tsc".into()),
            clock_sources: vec!["tsc".into(), "hpet".into()],
            timer_slack_ns: Some(1),
            cpus_online: 8,
            cpus_allowed: (2..8).collect(),
            memory_bytes: 16 << 30,
            fds: ResourceLimit { soft: 1 << 20, hard: 1 << 20 },
            threads: ResourceLimit { soft: u64::MAX, hard: u64::MAX },
            load_1min: Some(0.1),
            has_counters: true,
            perf_event_paranoid: Some(1),
            numa_nodes: 2,
            is_numa_balancing_on: Some(false),
            ..MachineFacts::default()
        }
    }

    fn at_rest() -> CpuMeasurements {
        let core = |cpu| CoreMeasurement { cpu, slowed: 0.001, switches_involuntary: 3 };
        CpuMeasurements {
            time: Duration::from_secs(1),
            steal: Some(0.0),
            cpus: vec![core(2), core(3)],
        }
    }

    fn found<'a>(findings: &'a [Finding], code: &str) -> &'a Finding {
        findings
            .iter()
            .find(|it| it.code == code)
            .unwrap_or_else(|| panic!("{code} : no such finding"))
    }

    #[test]
    fn isolated_cpus_on_which_nothing_is_measured_are_no_help() {
        let facts = MachineFacts { cpus_allowed: (0..8).collect(), ..quiet() };
        for finding in [isolation(&facts), tickless(&facts)] {
            assert_eq!(finding.level, FindingLevel::Note, "{finding:?}");
            assert_eq!(finding.fix.as_deref(), Some("taskset -c 2-7 handover run"));
        }
    }

    #[test]
    fn machine_prepared_for_measuring_has_no_warning() {
        let findings = find_all(&quiet(), Some(&at_rest()));
        assert_eq!(findings.len(), 19);
        for finding in &findings {
            assert_eq!(finding.level, FindingLevel::Fine, "{finding:?}");
            assert_eq!(finding.fix, None, "{finding:?}");
            assert!(!finding.why.is_empty() && !finding.found.is_empty());
        }
    }

    #[test]
    fn disturbances_come_first_with_the_command_that_fixes_them() {
        let facts = MachineFacts {
            governor: Some("powersave".into()),
            turbo: Some(Turbo { is_on: true, file: "/turbo", off: "1" }),
            is_smt_active: Some(true),
            clock_source: Some("hpet".into()),
            is_numa_balancing_on: Some(true),
            fds: ResourceLimit { soft: 1024, hard: 1 << 20 },
            threads: ResourceLimit { soft: 512, hard: 512 },
            ..quiet()
        };
        let findings = find_all(&facts, None);
        let levels: Vec<_> = findings.iter().map(|it| it.level).collect();
        assert!(levels.is_sorted(), "{levels:?}");
        let fix = |code| found(&findings, code).fix.as_deref().expect("a repair command");
        assert_eq!(fix("governor"), "sudo cpupower frequency-set -g performance");
        assert_eq!(fix("turbo"), "echo 1 | sudo tee /turbo");
        assert!(fix("clock-source").starts_with("echo tsc | sudo tee /sys/"));
        assert_eq!(fix("numa-balancing"), "sudo sysctl kernel.numa_balancing=0");
        assert_eq!(fix("fds"), format!("ulimit -n {}", 1 << 20));
        assert!(fix("threads").contains("threads-max"));
        assert!(
            findings.iter().all(|it| it.code != "steal"),
            "steal was reported without a measurement"
        );
    }

    #[test]
    fn virtual_machine_reports_facts_that_only_its_host_can_see() {
        let facts = MachineFacts {
            hypervisor: Some("KVM".into()),
            governor: None,
            turbo: None,
            is_smt_active: Some(false),
            ..quiet()
        };
        let findings = find_all(&facts, None);
        for code in ["governor", "turbo", "smt"] {
            let it = found(&findings, code);
            assert_eq!(
                (it.level, &*it.found),
                (FindingLevel::Unknown, "only the KVM host can see this"),
                "{code}"
            );
        }
    }

    #[test]
    fn missing_hardware_counters_are_reported_with_the_cause_by_errno() {
        let judged = |counters_errno: Option<Errno>, level: i64, hypervisor: Option<&str>| {
            let facts = MachineFacts {
                has_counters: false,
                counters_errno,
                perf_event_paranoid: Some(level),
                hypervisor: hypervisor.map(str::to_string),
                ..quiet()
            };
            let findings = find_all(&facts, None);
            let it = found(&findings, "counters");
            assert_eq!(it.level, FindingLevel::Note);
            (it.found.clone(), it.fix.clone().unwrap_or_default())
        };
        // The hypervisor matters only if there is no PMU.
        for hypervisor in [None, Some("KVM")] {
            let (found, fix) = judged(Some(Errno::ACCESS), 3, hypervisor);
            assert_eq!(found, "perf_event_paranoid=3");
            assert_eq!(fix, "sudo sysctl kernel.perf_event_paranoid=2");
            let (found, fix) = judged(Some(Errno::PERM), 3, hypervisor);
            assert!(found.contains("seccomp") && fix.contains("seccomp=unconfined"), "{found}");
            // Refused by a security module.
            let (found, fix) = judged(Some(Errno::ACCESS), 2, hypervisor);
            assert!(found.contains("perf_event_open: ") && fix.is_empty(), "{found}");
            let (found, fix) = judged(None, 3, hypervisor);
            assert!(found.contains("count nothing") && fix.is_empty(), "{found}");
        }
        for errno in [Errno::NOENT, Errno::OPNOTSUPP, Errno::NODEV] {
            let (found, fix) = judged(Some(errno), 3, Some("KVM"));
            assert!(found.contains("the KVM host does not provide a PMU"), "{found}");
            assert!(fix.contains("virtual PMU on the host"), "{fix}");
            let (found, _) = judged(Some(errno), 3, None);
            assert_eq!(found, "no hardware counters: the kernel has no driver of this CPU's PMU");
        }
    }

    #[test]
    fn steal_and_other_load_are_reported_by_cpu() {
        let mut measured = at_rest();
        measured.steal = Some(0.125);
        measured.cpus[1] = CoreMeasurement { cpu: 3, slowed: 0.9, switches_involuntary: 400 };
        let findings = find_all(&quiet(), Some(&measured));
        assert_eq!(found(&findings, "steal").found, "12.5 % of the CPU time in 1s");
        assert_eq!(
            found(&findings, "neighbours").found,
            "ran below full speed during 1s: CPU 3 in 90.0 % of the loops"
        );
        assert_eq!(found(&findings, "switches").level, FindingLevel::Disturbs);
    }

    #[test]
    fn container_limits_are_reported_with_the_way_to_lift_them() {
        let facts = MachineFacts {
            cgroup_cpus: Some(1.5),
            cpus_allowed: (0..4).collect(),
            cgroup_memory_bytes: Some(1 << 30),
            pids_max: Some(100),
            ..quiet()
        };
        let findings = find_all(&facts, None);
        assert_eq!(found(&findings, "cgroup-cpus").found, "a quota of 1.5 CPUs for 4 allowed CPUs");
        assert_eq!(found(&findings, "memory").found, "1.0 GiB");
        assert_eq!(found(&findings, "threads").found, "at most 100 threads in this cgroup");
    }
}
