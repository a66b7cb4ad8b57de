//! Switching sites on: one place in the code, a hundred, and a thousand.

use super::ours::count_recorded_events;
use crate::common::ensure;
use handover_base::clock;
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_probe::{disable, enable, probe};
use handover_record::{Part, Spec};
use std::hint::black_box;

/// For each part: the name of its trace sites, and the number of code locations that have this
/// name.
const PATTERNS: [(&str, u64); 3] =
    [("suite.flip.one", 1), ("suite.flip.hundred", 100), ("suite.flip.thousand", 1000)];

/// Interval, in iterations, at which the slowest part, `thousand`, is measured.
const ITERATIONS_PER_SLOWEST: u32 = 64;

/// Workload: enables trace sites. Disabling them again is not timed.
pub(super) struct SwitchSites {
    iterations_count: u32,
}

impl Workload for SwitchSites {
    type Args = ();
    const SPEC: Spec =
        Spec::new("probe/flip", "probe sites enabled by name, until every thread records them")
            .floor("floor/syscall")
            .parts(&[
                Part::new("one", "one place in the code"),
                Part::new("hundred", "a hundred places, each of a site of its own"),
                Part::new("thousand", "a thousand places of a hundred sites"),
            ]);

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        execute_all_sites(); // sites that are flags are known only once they have run
        Ok(SwitchSites { iterations_count: 0 })
    }

    /// Fails unless each code location records an event when its site is enabled.
    fn self_test(&mut self) -> Result<(), Fault> {
        for (pattern, places_count) in PATTERNS {
            let events_count = count_recorded_events(pattern, execute_all_sites)?;
            ensure(events_count == places_count, || {
                format!(
                    "{pattern}: {places_count} places recorded {events_count} events, not one each"
                )
            })?;
        }
        Ok(())
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let parts =
                if self.iterations_count.is_multiple_of(ITERATIONS_PER_SLOWEST) { 3 } else { 2 };
            self.iterations_count += 1;
            for (part, (pattern, _)) in PATTERNS[..parts].iter().enumerate() {
                let began = clock::ticks();
                let enabled = enable(pattern);
                out.record_ticks(part, clock::ticks().saturating_sub(began));
                let switched = enabled.and_then(|_| disable(pattern));
                switched.unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

macro_rules! ten { ($($body:tt)*) => {
    $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)* $($body)*
} }

/// Executes a hundred sites; the compiler generates another hundred for each `N`.
#[inline(never)]
fn execute_sites_of_instance<const N: u32>() {
    ten!(ten!(probe!("suite.flip.thousand");););
    black_box(N); // prevents the merging of the instances
}

#[inline(never)]
fn execute_hundred_sites() {
    ten!(ten!(probe!("suite.flip.hundred");););
}

macro_rules! instances { ($($n:literal)*) => { $( execute_sites_of_instance::<$n>(); )* } }

/// Executes each code location with a site once.
fn execute_all_sites() {
    probe!("suite.flip.one");
    execute_hundred_sites();
    instances!(0 1 2 3 4 5 6 7 8 9);
}
