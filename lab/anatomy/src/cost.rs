//! Cost of the probes: the time from one event to the next with no other work in between.

use crate::error::AnatomyError;
use crate::reader::open_trace;
use crate::statistics::ticks_to_ns;
use handover_probe::{Config, Recording, disable, enable, probe};
use std::path::Path;

/// Number of consecutive events in one series; a series fits into the ring.
const EVENTS_COUNT: u64 = 4096;
/// Number of series; the fastest one is reported, as others may have been interrupted.
const SERIES_COUNT: u64 = 8;
const SITE_PATTERN: &str = "anatomy.cost*";

/// Returns the cost in nanoseconds of an event without a value, with one value and with two.
pub(crate) fn measure_event_costs_ns(folder: &Path) -> Result<[f64; 3], AnatomyError> {
    let path = folder.join("cost.trace");
    let recording = Recording::start(Config::last(&path))?;
    enable(SITE_PATTERN)?;
    handover_probe::prepare();
    for _ in 0..SERIES_COUNT {
        (0..EVENTS_COUNT).for_each(|_| probe!("anatomy.cost-0"));
        (0..EVENTS_COUNT).for_each(|at| probe!("anatomy.cost-1", at));
        (0..EVENTS_COUNT).for_each(|at| probe!("anatomy.cost-2", at, at));
    }
    let disabled = disable(SITE_PATTERN);
    let _ = recording.finish();
    disabled?;
    let trace = open_trace(&path)?;
    let mut least = [f64::MAX; 3];
    for thread in 0..trace.threads().len() {
        // The current series: its site, the time of its first event, and the number of events after
        // the first.
        let mut row: Option<(u32, u64, u64)> = None;
        for event in trace.events(thread) {
            let began = match row {
                Some((site, began, count)) if site == event.site && count < EVENTS_COUNT - 1 => {
                    row = Some((site, began, count + 1));
                    (count + 1 == EVENTS_COUNT - 1).then_some(began)
                }
                _ => {
                    row = Some((event.site, event.ticks, 0));
                    None
                }
            };
            if let Some(began) = began {
                let each =
                    ticks_to_ns(event.ticks.saturating_sub(began)) / (EVENTS_COUNT - 1) as f64;
                let count = event.values().len();
                least[count] = least[count].min(each);
            }
        }
    }
    // Zero for a series that was not completely recorded, if the ring is smaller than it should
    // be.
    Ok(least.map(|ns| if ns == f64::MAX { 0.0 } else { ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_cost_is_positive_and_below_a_microsecond() {
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let site_ns = measure_event_costs_ns(folder.path()).expect("recorded");
        assert!(site_ns.iter().all(|ns| *ns > 0.0), "{site_ns:?}");
    }
}
