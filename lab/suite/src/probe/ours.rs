//! This project's probes.

use super::{Sites, Tracer, fault_with_sources, new_scratch_folder};
use handover_base::{affinity, topology};
use handover_harness::Fault;
use handover_probe::{Config, Recording, Summary, disable, enable, prepare, probe, span};

/// Name of the span that [`Probes::recorded_span`] records.
pub(super) const RECORDED_SPAN: &str = "suite.wanted";

/// Trace sites of this project, in `handover-probe`.
pub(super) struct Probes;

impl Sites for Probes {
    #[inline(never)]
    fn site(x: u64) -> u64 {
        probe!("suite.site");
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn eight_sites(x: u64) -> u64 {
        eight_times!(probe!("suite.eight"););
        x.wrapping_add(1)
    }

    #[inline(never)]
    fn span(x: u64) -> u64 {
        let _span = span!("suite.span");
        x.wrapping_add(1)
    }
}

impl Tracer for Probes {
    #[inline(never)]
    fn recorded_span(x: u64) -> u64 {
        let _span = span!("suite.wanted");
        x.wrapping_add(1)
    }

    fn record_calls(f: impl FnOnce()) -> Result<u64, Fault> {
        count_recorded_events(RECORDED_SPAN, f)
    }
}

/// Calls `f` while the sites that match `pattern` are recorded in memory. Returns the number of
/// events recorded.
pub(super) fn count_recorded_events(pattern: &str, f: impl FnOnce()) -> Result<u64, Fault> {
    let folder = new_scratch_folder()?;
    let config = Config::last(folder.path().join("last.trace"));
    let recording = Recording::start(config).map_err(fault_with_sources)?;
    prepare();
    let switched = EnabledSites::enable(pattern)?;
    f();
    switched.disable()?;
    let summary = check_complete(recording.finish())?;
    match summary.lost {
        0 => Ok(summary.recorded + summary.overwritten),
        lost => Err(Fault::new(format!(
            "{lost} events were lost, although the ring overwrites old events"
        ))),
    }
}

/// Starts a recording whose writing thread may run on every CPU. It would otherwise inherit this
/// thread's affinity, and run on the measured CPU.
pub(super) fn start_recording(config: Config) -> Result<Recording, Fault> {
    let home = affinity::thread_cpus();
    affinity::set_thread_cpus(&topology::allowed_cpus()).map_err(fault_with_sources)?;
    let recording = Recording::start(config).map_err(fault_with_sources);
    affinity::set_thread_cpus(&home).map_err(fault_with_sources)?;
    recording
}

/// Returns `summary`; fails if the recording stopped early.
pub(super) fn check_complete(summary: Summary) -> Result<Summary, Fault> {
    match &summary.failure {
        None => Ok(summary),
        Some(failure) => Err(Fault::new(format!("the recording stopped early: {failure}"))),
    }
}

/// Guard that keeps trace sites enabled until it is dropped; contains the pattern of the sites'
/// names.
pub(super) struct EnabledSites<'a>(&'a str);

impl<'a> EnabledSites<'a> {
    /// Enables the sites whose names match `pattern`.
    pub(super) fn enable(pattern: &'a str) -> Result<Self, Fault> {
        enable(pattern).map_err(fault_with_sources)?;
        Ok(EnabledSites(pattern))
    }

    pub(super) fn disable(self) -> Result<(), Fault> {
        disable(self.0).map(drop).map_err(fault_with_sources)
    }
}

impl Drop for EnabledSites<'_> {
    fn drop(&mut self) {
        // An error is reported by disable(); during a panic, the panic is more informative.
        let _ = disable(self.0);
    }
}
