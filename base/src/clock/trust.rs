//! Choice of the clock's source, by what cpuid and the kernel report about the time-stamp counter.

use super::{SOURCE_VARIABLE, Source};
use std::fs;

/// The chosen source and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// The counter, `forced` by the environment or for good reasons; `kernel_uses_it` for its own
    /// time.
    Tsc {
        forced: bool,
        kernel_uses_it: bool,
        reason: String,
    },
    Kernel {
        reason: String,
    },
}

/// Facts that are known without a measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// cpuid 0x8000_0007, EDX bit 8.
    pub cpuid_invariant: bool,
    /// cpuid 1, ECX bit 31.
    pub hypervisor: bool,
    /// `constant_tsc` and `nonstop_tsc` in `/proc/cpuinfo`.
    pub flags_constant: bool,
    /// The kernel's own clock source, if readable.
    pub kernel_source: Option<String>,
    /// The clock sources that the kernel accepts, if readable.
    pub kernel_offers: Option<String>,
    /// `true` if the process has disabled `rdtsc` (prctl PR_SET_TSC), or runs under Miri.
    pub forbidden: bool,
}

impl Evidence {
    pub(super) fn read() -> Self {
        if cfg!(miri) {
            return Evidence { forbidden: true, ..Evidence::default() }; // neither exists in Miri
        }
        let (cpuid_invariant, hypervisor) = crate::raw::cpuid_tsc();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let flag = |name| flags.split_whitespace().any(|word| word == name);
        let source = |file| {
            let path = format!("/sys/devices/system/clocksource/clocksource0/{file}");
            fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        Evidence {
            cpuid_invariant,
            hypervisor,
            flags_constant: flag("constant_tsc") && flag("nonstop_tsc"),
            kernel_source: source("current_clocksource"),
            kernel_offers: source("available_clocksource"),
            forbidden: crate::raw::tsc_is_forbidden(),
        }
    }

    /// Returns `true` if the kernel keeps its own time by the counter: it has then tested it across
    /// the CPUs at boot and monitors it.
    fn kernel_uses_it(&self) -> bool {
        self.kernel_source.as_deref() == Some("tsc")
    }
}

/// Chooses the source; `wish` is the content of [`SOURCE_VARIABLE`].
pub(super) fn choose(wish: Option<&str>, evidence: impl FnOnce() -> Evidence) -> Choice {
    let (wish, complaint) = match wish.filter(|text| !text.is_empty()).map(str::parse) {
        None => (None, String::new()),
        Some(Ok(source)) => (Some(source), String::new()),
        Some(Err(error)) => (None, format!("{SOURCE_VARIABLE} ignored ({error}); ")),
    };
    if wish == Some(Source::ClockGettime) {
        return Choice::Kernel { reason: format!("{SOURCE_VARIABLE} asks for it") };
    }
    let evidence = evidence();
    if evidence.forbidden {
        return Choice::Kernel { reason: "this process may not read the TSC".to_owned() };
    }
    let kernel_uses_it = evidence.kernel_uses_it();
    if wish == Some(Source::Tsc) {
        let reason = format!("{SOURCE_VARIABLE} asks for it");
        return Choice::Tsc { forced: true, kernel_uses_it, reason };
    }
    match judge(&evidence) {
        Ok(reason) => Choice::Tsc { forced: false, kernel_uses_it, reason: complaint + &reason },
        Err(reason) => Choice::Kernel { reason: complaint + &reason },
    }
}

/// Returns the reason to trust the counter as `Ok`, or not to trust it as `Err`.
fn judge(evidence: &Evidence) -> Result<String, String> {
    if let Some(offers) = &evidence.kernel_offers
        && !offers.split_whitespace().any(|source| source == "tsc")
    {
        return Err(format!("the kernel offers {offers} but not tsc: it found the TSC unreliable"));
    }
    let kernel_uses_it = evidence.kernel_uses_it();
    let said = if evidence.cpuid_invariant {
        "cpuid calls the TSC invariant"
    } else if evidence.flags_constant {
        "the kernel calls the TSC constant and nonstop"
    } else if evidence.hypervisor && kernel_uses_it {
        return Ok("under a hypervisor, the kernel itself keeps time by the TSC".to_owned());
    } else {
        return Err("neither cpuid nor the kernel calls the TSC constant".to_owned());
    };
    Ok(if kernel_uses_it { format!("{said} and the kernel keeps time by it") } else { said.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Evidence {
        Evidence {
            cpuid_invariant: true,
            flags_constant: true,
            kernel_source: Some("tsc".to_owned()),
            kernel_offers: Some("tsc hpet acpi_pm".to_owned()),
            ..Evidence::default()
        }
    }

    fn takes_the_tsc(evidence: Evidence) -> bool {
        matches!(choose(None, || evidence), Choice::Tsc { forced: false, .. })
    }

    #[test]
    fn an_invariant_counter_is_trusted() {
        assert!(takes_the_tsc(good()));
        assert!(takes_the_tsc(Evidence { flags_constant: false, ..good() }));
        assert!(takes_the_tsc(Evidence { cpuid_invariant: false, ..good() }));
    }

    #[test]
    fn a_counter_that_nobody_calls_constant_is_not_trusted() {
        let evidence = Evidence { cpuid_invariant: false, flags_constant: false, ..good() };
        assert!(!takes_the_tsc(evidence.clone()));
        assert!(!takes_the_tsc(Evidence::default()));
        assert!(takes_the_tsc(Evidence { hypervisor: true, ..evidence }));
    }

    #[test]
    fn a_counter_that_the_kernel_has_struck_off_is_not_trusted() {
        let offers = Some("hpet acpi_pm".to_owned());
        assert!(!takes_the_tsc(Evidence { kernel_offers: offers, ..good() }));
    }

    #[test]
    fn a_kernel_that_says_nothing_leaves_the_word_to_cpuid() {
        assert!(takes_the_tsc(Evidence { kernel_source: None, kernel_offers: None, ..good() }));
    }

    #[test]
    fn the_variable_overrides_and_a_misspelt_one_is_named() {
        let Choice::Kernel { reason } = choose(Some("clock_gettime"), good) else {
            panic!("the variable was not heeded")
        };
        assert!(reason.contains(SOURCE_VARIABLE), "{reason}");
        let bad = Evidence::default;
        assert!(matches!(choose(Some("tsc"), bad), Choice::Tsc { forced: true, .. }));
        let Choice::Tsc { forced: false, reason, .. } = choose(Some("rdtsc"), good) else {
            panic!("a misspelt variable changed the choice")
        };
        assert!(reason.contains("rdtsc") && reason.contains("clock_gettime"), "{reason}");
    }

    #[test]
    fn a_forbidden_counter_is_not_read_even_if_asked_for() {
        let evidence = || Evidence { forbidden: true, ..good() };
        assert!(matches!(choose(Some("tsc"), evidence), Choice::Kernel { .. }));
    }
}
