//! Facts that handover-base finds about this machine: `cargo run -p handover-base --example tour`.

use handover_base::topology::{self, CpuList, Placement, Topology};
use handover_base::units::{ByteSize, format_ns};
use handover_base::{affinity, clock, usage};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let clock = clock::calibration();
    writeln!(out, "clock      {}, {:.3} MHz", clock.source, clock.ticks_hz / 1e6)?;
    writeln!(out, "           {}", clock.why)?;
    writeln!(
        out,
        "           a reading costs {} and advances in steps of {}",
        format_ns(clock.cost_ns),
        format_ns(clock.resolution_ns)
    )?;

    let machine = Topology::read()?;
    writeln!(
        out,
        "topology   {} packages, {} nodes, {} cores, {} CPUs",
        machine.packages_count,
        machine.nodes_count,
        machine.cores_count,
        machine.cpus.len()
    )?;
    for cpu in &machine.cpus {
        writeln!(
            out,
            "           CPU {}: package {}, node {}, core {}, siblings {}, last-level cache of CPU {}",
            cpu.id,
            cpu.package,
            cpu.node,
            cpu.core,
            CpuList(&cpu.siblings),
            cpu.l3
        )?;
    }
    for cache in &machine.caches {
        writeln!(
            out,
            "           L{} {}: {}, lines of {} bytes, shared by {}",
            cache.level,
            cache.kind.to_lowercase(),
            ByteSize(cache.size_bytes),
            cache.line_bytes,
            CpuList(&cache.shared_by)
        )?;
    }
    for assumption in &machine.assumed {
        writeln!(out, "           {assumption}")?;
    }

    let allowed = topology::allowed_cpus();
    writeln!(out, "allowed    CPUs {}", CpuList(&allowed))?;
    match topology::quota_cpus() {
        Some(cpus) => writeln!(out, "quota      {cpus} CPUs")?,
        None => writeln!(out, "quota      none")?,
    }
    for placement in Placement::ALL {
        let placed = machine.choose_cpus(placement, &allowed, 2);
        let notes = placed.notes.join("; ");
        let colon = if notes.is_empty() { "" } else { ": " };
        writeln!(out, "{:10} two participants on CPUs {:?}{colon}{notes}", placement, placed.cpus)?;
    }

    // Cost of a thousand pinned readings of the clock to this thread.
    let mask = affinity::thread_cpus();
    affinity::pin(allowed[0])?;
    let before = usage::thread_usage();
    let start = clock::ticks();
    let mut last = start;
    for _ in 0..1000 {
        last = clock::ticks();
    }
    let spent = usage::thread_usage() - before;
    writeln!(
        out,
        "usage      1000 readings on CPU {}: {}, {} switches",
        affinity::current_cpu(),
        format_ns(clock::ns_from_ticks(last - start) as f64),
        spent.switches_voluntary + spent.switches_involuntary
    )?;
    affinity::set_thread_cpus(&mask)?;
    if let Some(steal) = usage::read_steal_time(&allowed) {
        writeln!(
            out,
            "steal      {:.2} % of all CPU time since the machine started",
            steal.stolen_share() * 100.0
        )?;
    }
    Ok(())
}
