//! Lines that show the progress of a run without a live view.

use crate::lab::Lab;
use handover_record::Record;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time beyond twice the measuring time up to which the time that is left is not reported.
const UNREPORTED_MAX: Duration = Duration::from_secs(30);

/// Formatter of the lines that show a run's progress: the time limit, each measured benchmark, and
/// the time that is left if the benchmarks take much longer to set up than to measure.
#[derive(Debug)]
pub struct RunLog {
    /// Name of the argument that a sweep varies; `None` in other runs.
    swept_argument: Option<String>,
    /// Benchmarks that already have a line.
    measured_ids: BTreeSet<String>,
    began: Instant,
    /// Time limit of the measurement; `None` for a run without a limit.
    time_max: Option<Duration>,
    /// Visits and time of the first eighth of the run, which includes checks and warm-ups.
    first_part: Option<(usize, Duration)>,
    has_remaining_line: bool,
}

impl RunLog {
    /// Creates the formatter of a run that starts now. `swept_argument` is the name of the argument
    /// that a sweep varies.
    pub fn new(lab: &Lab, swept_argument: Option<&str>) -> RunLog {
        RunLog {
            swept_argument: swept_argument.map(str::to_string),
            measured_ids: BTreeSet::new(),
            began: Instant::now(),
            time_max: lab.time_max(),
            first_part: None,
            has_remaining_line: false,
        }
    }

    /// Returns the line with the number of benchmarks and the time limit of their measurement;
    /// `None` for a run without a limit. Starting processes, setting up the benchmarks, and waiting
    /// until the CPUs have their usual speed, come on top: together as long again with
    /// `--time 300ms` on a busy machine, and much longer for a benchmark whose set-up is long.
    pub fn time_limit_line(&self, lab: &Lab) -> Option<String> {
        let limit = format_time(self.time_max?);
        let count = lab.groups().len();
        Some(format!(
            "{count} benchmarks, including null/* (which measure the run's resolution), take about {limit} to measure, \
             plus the time to start processes, set up, and wait for busy CPUs"
        ))
    }

    /// Returns a line with the time that is left if it is much longer than the measurement. It is
    /// returned at most once, after a quarter of the run; `visit` is the argument of
    /// [`RunObserver::begin`](crate::RunObserver::begin).
    pub fn remaining_line(&mut self, visit: (usize, usize)) -> Option<String> {
        self.remaining_line_at(visit, self.began.elapsed())
    }

    /// Does [`remaining_line`](Self::remaining_line) `elapsed` after the start of the run.
    fn remaining_line_at(
        &mut self,
        (done, total): (usize, usize),
        elapsed: Duration,
    ) -> Option<String> {
        let time_max = self.time_max?;
        if 8 * done < total || self.has_remaining_line {
            return None;
        }
        let (first_done, first_elapsed) = *self.first_part.get_or_insert((done, elapsed));
        if 4 * done < total || done == first_done {
            return None;
        }
        self.has_remaining_line = true;
        let rest = (total - done) as f64 / (done - first_done) as f64;
        let remaining = (elapsed - first_elapsed).mul_f64(rest);
        (remaining > 2 * time_max + UNREPORTED_MAX).then(|| {
            format!(
                "most of the time is not measurement, but set-ups of the benchmarks or waits: about {left} are left; \
                 fewer objects (--set) or contenders (--no-peers) take less",
                left = format_time(remaining)
            )
        })
    }

    /// Returns the line of the benchmark that these records belong to; `None` without records.
    pub fn measured_line(&mut self, records: &[Record]) -> Option<String> {
        let first = records.first()?;
        let argument = self.swept_argument.as_ref().and_then(|name| {
            let value = first.args.get(name)?;
            Some(format!(" {name}={value}"))
        });
        let id = format!("{}{}", first.spec, argument.unwrap_or_default());
        let line = format!("{id} measured");
        Some(if self.measured_ids.insert(id) { line } else { line + " again" })
    }
}

/// Formats a time that a user waits for.
fn format_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..10.0 => format!("{seconds:.1} s"),
        10.0..120.0 => format!("{seconds:.0} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a run of eight passes over three benchmarks. The first pass takes twice
    /// as long as the others, each of which takes `pass_s` seconds.
    fn lines(time_max: Option<Duration>, pass_s: u64) -> Vec<String> {
        let mut log = RunLog {
            swept_argument: None,
            measured_ids: BTreeSet::new(),
            began: Instant::now(),
            time_max,
            first_part: None,
            has_remaining_line: false,
        };
        let elapsed_s = |done: u64| pass_s * (done + done.min(3)) / 3;
        (0..24)
            .filter_map(|done| {
                log.remaining_line_at((done as usize, 24), Duration::from_secs(elapsed_s(done)))
            })
            .collect()
    }

    #[test]
    fn time_left_is_reported_once_if_set_ups_take_most_of_it() {
        let measuring = Some(Duration::from_secs(1));
        let found = lines(measuring, 60);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("about 6 min are left"), "{found:?}");
        assert_eq!(lines(measuring, 2), [""; 0], "a short run needs no line");
        assert_eq!(lines(Some(Duration::from_secs(480)), 60), [""; 0]);
        assert_eq!(lines(None, 60), [""; 0], "a smoke run has no limit");
    }
}
