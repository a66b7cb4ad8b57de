//! Choice of the clock's source, by what the processor and the kernel report about the processor's
//! counter.

use super::{CLOCK_VARIABLE, ClockSource};
use crate::cpu;
use std::fs;

/// Choice between the processor's counter and the kernel's clock, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceChoice {
    /// The processor's counter was chosen. `is_forced`: the environment variable requests it;
    /// `is_kernel_source`: it is the kernel's clock source.
    Tsc { is_forced: bool, is_kernel_source: bool, reason: String },
    /// CLOCK_MONOTONIC was chosen.
    Kernel { reason: String },
}

/// Facts about the processor's counter that are known without a measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct CounterEvidence {
    /// `true` if the counter has a constant rate in all power states (invariant). On x86_64 cpuid
    /// reports it (leaf 0x8000_0007, EDX bit 8); the architecture of aarch64 requires it.
    pub is_invariant: bool,
    /// `true` if cpuid reports a hypervisor (leaf 1, ECX bit 31).
    pub has_hypervisor: bool,
    /// `true` if `/proc/cpuinfo` lists `constant_tsc` and `nonstop_tsc`.
    pub has_constant_flags: bool,
    /// Current clock source of the kernel; `None` if it cannot be read.
    pub kernel_source: Option<String>,
    /// Clock sources that the kernel can use; `None` if they cannot be read.
    pub available_kernel_sources: Option<String>,
    /// `true` if the process has disabled reading of the counter, or there is none. The kernel call
    /// is `prctl(PR_SET_TSC)`.
    pub is_forbidden: bool,
}

impl CounterEvidence {
    /// Collects the facts from the processor, the kernel and the process.
    pub(super) fn read() -> Self {
        if !cpu::HAS_TIMESTAMP_COUNTER {
            return CounterEvidence { is_forbidden: true, ..CounterEvidence::default() };
        }
        let (is_invariant, has_hypervisor) = cpu::is_invariant_and_has_hypervisor();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let flag = |name| flags.split_whitespace().any(|word| word == name);
        let source = |file| {
            let path = format!("/sys/devices/system/clocksource/clocksource0/{file}");
            fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        CounterEvidence {
            is_invariant,
            has_hypervisor,
            has_constant_flags: flag("constant_tsc") && flag("nonstop_tsc"),
            kernel_source: source("current_clocksource"),
            available_kernel_sources: source("available_clocksource"),
            is_forbidden: crate::os::is_timestamp_counter_disabled(),
        }
    }

    /// Returns `true` if the counter is the kernel's clock source. The kernel of x86_64 has then
    /// tested the counter across the CPUs at boot and monitors it.
    fn is_kernel_source(&self) -> bool {
        self.kernel_source.as_deref() == Some(cpu::KERNEL_COUNTER_SOURCE)
    }
}

/// Chooses the clock source; `requested` is the value of [`CLOCK_VARIABLE`].
pub(super) fn choose_source(
    requested: Option<&str>,
    evidence: impl FnOnce() -> CounterEvidence,
) -> SourceChoice {
    let (requested, warning) = match requested.filter(|text| !text.is_empty()).map(str::parse) {
        None => (None, String::new()),
        Some(Ok(source)) => (Some(source), String::new()),
        Some(Err(error)) => (None, format!("{CLOCK_VARIABLE} is ignored ({error}); ")),
    };
    if requested == Some(ClockSource::ClockGettime) {
        return SourceChoice::Kernel { reason: format!("{CLOCK_VARIABLE} requests this clock") };
    }
    let evidence = evidence();
    if evidence.is_forbidden {
        let counter = cpu::COUNTER_NAME;
        let reason = format!("this process may not read the {counter}");
        return SourceChoice::Kernel { reason };
    }
    let is_kernel_source = evidence.is_kernel_source();
    if requested == Some(ClockSource::Tsc) {
        let reason = format!("{CLOCK_VARIABLE} requests this clock");
        return SourceChoice::Tsc { is_forced: true, is_kernel_source, reason };
    }
    match assess(&evidence) {
        Ok(reason) => {
            SourceChoice::Tsc { is_forced: false, is_kernel_source, reason: warning + &reason }
        }
        Err(reason) => SourceChoice::Kernel { reason: warning + &reason },
    }
}

/// Returns `Ok` with the reason to trust the counter, or `Err` with the reason to distrust it.
fn assess(evidence: &CounterEvidence) -> Result<String, String> {
    let (counter, source) = (cpu::COUNTER_NAME, cpu::KERNEL_COUNTER_SOURCE);
    if let Some(offers) = &evidence.available_kernel_sources
        && !offers.split_whitespace().any(|offered| offered == source)
    {
        return Err(format!(
            "the kernel offers the clock sources {offers} but not {source}: it found the {counter} unreliable"
        ));
    }
    let is_kernel_source = evidence.is_kernel_source();
    let reason = if evidence.is_invariant && cfg!(target_arch = "aarch64") {
        "the architecture requires a virtual counter of constant rate"
    } else if evidence.is_invariant {
        "cpuid reports an invariant TSC"
    } else if evidence.has_constant_flags {
        "the kernel reports a constant and nonstop TSC"
    } else if evidence.has_hypervisor && is_kernel_source {
        return Ok(
            "under a hypervisor, the kernel itself uses the TSC as its clock source".to_owned()
        );
    } else {
        return Err("neither cpuid nor the kernel reports a constant TSC".to_owned());
    };
    Ok(if is_kernel_source {
        format!("{reason}, and the kernel uses the {counter} as its clock source")
    } else {
        reason.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> CounterEvidence {
        CounterEvidence {
            is_invariant: true,
            has_constant_flags: true,
            kernel_source: Some(cpu::KERNEL_COUNTER_SOURCE.to_owned()),
            available_kernel_sources: Some(format!("{} hpet acpi_pm", cpu::KERNEL_COUNTER_SOURCE)),
            ..CounterEvidence::default()
        }
    }

    fn takes_the_tsc(evidence: CounterEvidence) -> bool {
        matches!(choose_source(None, || evidence), SourceChoice::Tsc { is_forced: false, .. })
    }

    #[test]
    fn invariant_counter_is_trusted() {
        assert!(takes_the_tsc(good()));
        assert!(takes_the_tsc(CounterEvidence { has_constant_flags: false, ..good() }));
        assert!(takes_the_tsc(CounterEvidence { is_invariant: false, ..good() }));
    }

    #[test]
    fn counter_not_reported_constant_is_not_trusted() {
        let evidence = CounterEvidence { is_invariant: false, has_constant_flags: false, ..good() };
        assert!(!takes_the_tsc(evidence.clone()));
        assert!(!takes_the_tsc(CounterEvidence::default()));
        assert!(takes_the_tsc(CounterEvidence { has_hypervisor: true, ..evidence }));
    }

    #[test]
    fn counter_rejected_by_the_kernel_is_not_trusted() {
        let offers = Some("hpet acpi_pm".to_owned());
        assert!(!takes_the_tsc(CounterEvidence { available_kernel_sources: offers, ..good() }));
    }

    #[test]
    fn without_kernel_report_cpuid_decides() {
        assert!(takes_the_tsc(CounterEvidence {
            kernel_source: None,
            available_kernel_sources: None,
            ..good()
        }));
    }

    #[test]
    fn variable_overrides_and_an_invalid_value_is_reported() {
        let SourceChoice::Kernel { reason } = choose_source(Some("clock_gettime"), good) else {
            panic!("HANDOVER_CLOCK=clock_gettime did not select clock_gettime")
        };
        assert!(reason.contains(CLOCK_VARIABLE), "{reason}");
        let bad = CounterEvidence::default;
        assert!(matches!(
            choose_source(Some(cpu::COUNTER_SOURCE), bad),
            SourceChoice::Tsc { is_forced: true, .. }
        ));
        let SourceChoice::Tsc { is_forced: false, reason, .. } = choose_source(Some("rdtsc"), good)
        else {
            panic!("HANDOVER_CLOCK=rdtsc changed the choice, although it is no clock source")
        };
        assert!(reason.contains("rdtsc") && reason.contains("clock_gettime"), "{reason}");
    }

    #[test]
    fn forbidden_counter_is_not_read_even_if_requested() {
        let evidence = || CounterEvidence { is_forbidden: true, ..good() };
        assert!(matches!(
            choose_source(Some(cpu::COUNTER_SOURCE), evidence),
            SourceChoice::Kernel { .. }
        ));
    }
}
