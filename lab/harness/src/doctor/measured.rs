//! Short measurements of the CPUs' current state.

use crate::pace;
use handover_base::topology;
use handover_base::{affinity, usage};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of CPUs that are measured.
const CPUS_MAX: usize = 16;

/// Measurements of the CPUs that this process may use, taken by threads that spin on them.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuMeasurements {
    /// Time for which each CPU was measured.
    pub(super) time: Duration,
    /// Share of the CPU time that the hypervisor gave to other guests. `None` if the kernel does
    /// not report it.
    pub(super) steal: Option<f64>,
    pub(super) cpus: Vec<CoreMeasurement>,
}

/// Measurements of one CPU while a thread spins on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreMeasurement {
    pub(super) cpu: u32,
    /// Share of the calibration loops that ran slower than the core's full speed.
    pub(super) slowed: f64,
    /// Number of involuntary context switches of the spinning thread.
    pub(super) switches_involuntary: u64,
}

impl CpuMeasurements {
    /// Spins for `time` on each CPU and returns the measurements.
    pub(super) fn measure(time: Duration) -> Self {
        let quota = topology::quota_cpus().map_or(CPUS_MAX, |cpus| (cpus as usize).max(1));
        let cpus: Vec<u32> =
            topology::allowed_cpus().into_iter().take(CPUS_MAX.min(quota)).collect();
        let before = usage::read_steal_time(&cpus);
        let spinning: Vec<_> = cpus
            .iter()
            .copied()
            .map(|cpu| thread::Builder::new().spawn(move || measure_core(cpu, time)))
            .collect();
        let cores = spinning
            .into_iter()
            .flatten()
            .filter_map(|thread| thread.join().ok().flatten())
            .collect();
        let steal = before
            .zip(usage::read_steal_time(&cpus))
            .map(|(before, after)| (after - before).stolen_share());
        Self { time, steal, cpus: cores }
    }
}

/// Spins for `time` on one CPU; `None` if the thread cannot be pinned to it.
fn measure_core(cpu: u32, time: Duration) -> Option<CoreMeasurement> {
    affinity::pin(cpu).ok()?;
    let before = usage::thread_usage();
    let until = Instant::now() + time;
    let mut laps = Vec::new();
    while Instant::now() < until {
        laps.push(pace::time_loop_ticks());
    }
    let fastest = laps.iter().copied().min().unwrap_or(0);
    let slowed = laps.iter().filter(|lap| pace::is_slower(**lap, fastest)).count();
    let spent = usage::thread_usage() - before;
    Some(CoreMeasurement {
        cpu,
        slowed: slowed as f64 / laps.len().max(1) as f64,
        switches_involuntary: spent.switches_involuntary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_cpus_are_examined() {
        let measured = CpuMeasurements::measure(Duration::from_millis(20));
        assert!(!measured.cpus.is_empty());
        assert!(measured.cpus.iter().all(|core| (0.0..=1.0).contains(&core.slowed)));
        let allowed = topology::allowed_cpus();
        assert!(measured.cpus.iter().all(|core| allowed.contains(&core.cpu)));
    }
}
