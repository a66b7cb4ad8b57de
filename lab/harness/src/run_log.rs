//! Lines that show the progress of a run without a live view.

use crate::lab::Lab;
use handover_record::Record;
use std::collections::BTreeSet;

/// Formatter of the lines that show a run's progress: the time limit, and each measured benchmark.
#[derive(Debug)]
pub struct RunLog {
    /// Name of the argument that a sweep varies; `None` in other runs.
    swept_argument: Option<String>,
    /// Benchmarks that already have a line.
    measured_ids: BTreeSet<String>,
}

impl RunLog {
    /// Creates the formatter of a run. `swept_argument` is the name of the argument that a sweep
    /// varies.
    pub fn new(swept_argument: Option<&str>) -> RunLog {
        RunLog { swept_argument: swept_argument.map(str::to_string), measured_ids: BTreeSet::new() }
    }

    /// Returns the line with the number of benchmarks and the time limit of their measurement; `None` for a run without
    /// a limit. Starting processes, and waiting until the CPUs have their usual speed, come on top: together as long
    /// again with `--time 300ms` on a busy machine.
    pub fn time_limit_line(lab: &Lab) -> Option<String> {
        let seconds = lab.time_max()?.as_secs_f64();
        let limit = match seconds {
            ..10.0 => format!("{seconds:.1} s"),
            10.0..120.0 => format!("{seconds:.0} s"),
            _ => format!("{:.0} min", seconds / 60.0),
        };
        let count = lab.groups().len();
        Some(format!(
            "{count} benchmarks, those of the run's resolution (null/*) included, take about {limit} to measure, besides \
             starts of processes and waits for busy CPUs"
        ))
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
