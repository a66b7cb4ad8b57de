//! Output: tables, or one JSON document.

use super::costed::{EventRecording, MeasuredFunction};
use super::folders::TraceFolders;
use super::loops::{self, LoopRow, TABLE_HEADINGS};
use super::processes::ProcessRow;
use handover_base::clock::{self, ClockSource};
use handover_harness::stats::{MedianEstimate, median_of_independent, quantile_sorted};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Unit of the clock: the name of its ticks, and their number per nanosecond.
pub(super) struct TickUnit {
    pub name: &'static str,
    pub ticks_per_ns: f64,
}

impl TickUnit {
    /// Returns the unit of the clock that this process uses.
    pub fn of_this_clock() -> TickUnit {
        let clock = clock::calibration();
        let name = match clock.source {
            ClockSource::Tsc if cfg!(target_arch = "x86_64") => "cycles",
            // No cycle counter is reliable on this machine: the ticks are nanoseconds, or on
            // aarch64 those of the virtual counter.
            ClockSource::Tsc | ClockSource::ClockGettime => "ticks",
        };
        TickUnit { name, ticks_per_ns: clock.ticks_hz / 1e9 }
    }

    /// Describes the unit and its frequency for a heading.
    pub fn describe(&self) -> String {
        match self.name {
            "cycles" => {
                format!("cycles of the TSC, at {mhz:.1} MHz", mhz = self.ticks_per_ns * 1e3)
            }
            _ => {
                let tick_ns = (100.0 / self.ticks_per_ns).round() / 100.0;
                format!("ticks of {tick_ns} ns, as no cycle counter is reliable on this machine")
            }
        }
    }

    fn seconds(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns / 1e9
    }

    fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.ticks_per_ns) as u64
    }

    fn ms(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns / 1e6
    }
}

/// Width of the labels in the master table, in columns. It is that of the classic program.
const MASTER_COLUMNS: usize = 49;

/// Row of the master table. It has a label, and the ticks per call or the reason why there are
/// none.
type MasterRow = (String, Result<f64, String>);

/// Rows of all measurements.
pub(super) struct Results<'a> {
    pub loops: &'a [LoopRow],
    pub processes: &'a [ProcessRow],
    /// Rows of the empty programs, which make one call. The first one runs without a trace.
    pub empty_programs: &'a [ProcessRow],
    pub unit: &'a TickUnit,
}

impl Results<'_> {
    /// Returns the median ticks per call of the -O3 loop with the label `text`. The error says why
    /// there are none.
    fn loop_ticks(&self, text: &str) -> Result<f64, String> {
        let row = self.loops.iter().find(|it| it.group == loops::O3_HEADING && it.text == text);
        let found = row.and_then(|row| estimate(self.loops, row));
        found.map(|it| it.ticks.median).ok_or_else(|| "not measured".to_string())
    }

    /// Returns the rows of the master table in three groups. They are locations of the function,
    /// tracing methods compared with the first location, and rows without a counterpart in the
    /// classic program. The figures of processes are per call.
    fn master_rows(&self, calls: u64, folders: &TraceFolders) -> [Vec<MasterRow>; 3] {
        let of_loops = |texts: &[&str]| -> Vec<MasterRow> {
            texts.iter().map(|text| (text.to_string(), self.loop_ticks(text))).collect()
        };
        let place = of_loops(&[
            loops::SAME_FILE_CALL_LABEL,
            loops::STATIC_CALL_LABEL,
            loops::DYNAMIC_CALL_LABEL,
        ]);
        let mut compared = of_loops(&[loops::TWO_NOTIFIES_LABEL, loops::TWO_EXTRA_CALLS_LABEL]);
        let mut more = Vec::new();
        for whole in self.processes {
            let medium = folders.short_label(whole.task.medium);
            let (rows, text) = match (whole.task.function, whole.task.recording) {
                (MeasuredFunction::Hooks, EventRecording::Filtered) => {
                    (&mut compared, "Function call with handover, filtered".to_string())
                }
                (MeasuredFunction::Hooks, EventRecording::AtEnd) => {
                    (&mut compared, format!("Function call with handover, output to {medium}"))
                }
                (MeasuredFunction::Hooks, EventRecording::Streamed) => {
                    (&mut more, format!("Function call with handover, streamed to {medium}"))
                }
                (MeasuredFunction::Probes, EventRecording::Filtered) => {
                    (&mut more, "Two probes of handover, filtered".to_string())
                }
                (MeasuredFunction::Probes, EventRecording::AtEnd) => {
                    (&mut more, format!("Two probes of handover, output to {medium}"))
                }
                (MeasuredFunction::Probes, EventRecording::Streamed) => {
                    (&mut more, format!("Two probes of handover, streamed to {medium}"))
                }
                _ => continue,
            };
            let ticks = match &whole.error {
                None => Ok(whole.wall_ticks() / calls as f64),
                Some(why) => Err(why.clone()),
            };
            rows.push((text, ticks));
        }
        [place, compared, more]
    }

    /// Prints the classic program's master table. Below it are the rows without a counterpart in
    /// the classic program.
    pub fn print_master(
        &self,
        calls: u64,
        folders: &TraceFolders,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let [place, compared, more] = self.master_rows(calls, folders);
        writeln!(out, "\nMaster table")?;
        for row in &place {
            self.print_master_row(row, None, out)?;
        }
        writeln!(out, "  The following is all based on a function call into the same source file")?;
        let same_file = self.loop_ticks(loops::SAME_FILE_CALL_LABEL).ok();
        for row in compared.iter().chain(&more) {
            self.print_master_row(row, same_file, out)?;
        }
        Ok(())
    }

    /// Prints a row of the master table, with the difference from `other` if that is `Some`.
    fn print_master_row(
        &self,
        (text, ticks): &MasterRow,
        other: Option<f64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let text = format!("{text}:");
        match ticks {
            Err(why) => writeln!(out, "  {text:<MASTER_COLUMNS$} not measured: {why}"),
            Ok(ticks) => {
                let beyond = other.map(|other| format!("({:+.0})", ticks - other));
                let beyond = beyond.map(|it| format!(" {it:>7}")).unwrap_or_default();
                let ticks = format!(" {ticks:.0}");
                let columns = (MASTER_COLUMNS + 7).saturating_sub(text.len());
                writeln!(out, "  {text}{ticks:>columns$} {}{beyond}", self.unit.name)
            }
        }
    }

    /// Prints a table of the loops' costs, by group.
    pub fn print_loops(&self, out: &mut dyn Write) -> io::Result<()> {
        let unit = self.unit;
        for group in TABLE_HEADINGS {
            writeln!(out, "\n{group}")?;
            for row in self.loops.iter().filter(|row| row.group == group) {
                let text = format!("{}:", row.text);
                let Some(Figure { ticks, difference: beyond }) = estimate(self.loops, row) else {
                    let why = row.error.as_deref().unwrap_or("not measured");
                    writeln!(out, "  {text:<50} not measured: {why}")?;
                    continue;
                };
                let ticks = ticks.median;
                let ns = ticks / unit.ticks_per_ns;
                let beyond = beyond.map(|more| format!("   ({more:+.1})")).unwrap_or_default();
                let lost = match row.recorded.lost_count {
                    0 => String::new(),
                    lost => {
                        format!(
                            "   {} of the events lost",
                            format_lost_share(lost, row.recorded.events_count)
                        )
                    }
                };
                writeln!(
                    out,
                    "  {text:<50} {ticks:>6.1} {} {ns:>7.2} ns{beyond}{lost}",
                    unit.name
                )?;
            }
        }
        Ok(())
    }

    /// Prints the median and the quantiles of the rounds of each loop.
    pub fn print_spread(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nRounds, in {}: median [95 % interval], least, p90, most", self.unit.name)?;
        for row in self.loops.iter().filter(|row| !row.rounds.is_empty()) {
            let MedianEstimate { median, interval } = median_of_independent(&row.rounds);
            let ends =
                interval.map_or("–".to_string(), |(low, high)| format!("{low:.2}, {high:.2}"));
            let mut sorted = row.rounds.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            let at = |q: f64| quantile_sorted(&sorted, q);
            writeln!(
                out,
                "  {} {:<50} {median:.2} [{ends}]  {:.2}  {:.2}  {:.2}",
                row.short_group,
                format!("{}:", row.text),
                at(0.0),
                at(0.9),
                at(1.0)
            )?;
        }
        Ok(())
    }

    /// Prints the costs of each measured process.
    pub fn print_processes(&self, calls: u64, runs: u64, out: &mut dyn Write) -> io::Result<()> {
        let width = self.processes.iter().map(|it| it.text.len() + 1).max().unwrap_or_default();
        writeln!(
            out,
            "\nFully costed: a process from its start to its file closed, {calls} calls, {runs} runs"
        )?;
        writeln!(
            out,
            "  {:<width$} {:>8} {:>8} {:>8} {:>9} {:>12} {:>8} {:>6} {:>7} {:>7}",
            "",
            "wall s",
            "user s",
            "system s",
            "most MiB",
            "bytes out",
            "an event",
            "lost",
            self.unit.name,
            "best"
        )?;
        let found =
            |subject| self.processes.iter().find(|it: &&ProcessRow| it.task.function == subject);
        let plain = found(MeasuredFunction::Plain).map(ProcessRow::wall_ticks);
        let stamps = found(MeasuredFunction::Stamps).map(ProcessRow::wall_ticks);
        self.processes
            .iter()
            .try_for_each(|it| self.print_process_row(it, width, calls, plain, stamps, out))
    }

    /// Prints the costs of one measured process. `plain` and `stamps` are wall times to compare
    /// with.
    fn print_process_row(
        &self,
        it: &ProcessRow,
        width: usize,
        calls: u64,
        plain: Option<f64>,
        stamps: Option<f64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let text = format!("{}:", it.text);
        if let Some(why) = &it.error {
            return writeln!(out, "  {text:<width$} not measured: {why}");
        }
        let each = |ticks: f64| ticks / calls as f64;
        let recorded = it.mean_recorded_counts();
        let bytes_each = match recorded.events_count {
            0 => String::from("-"),
            count => format!("{:.2} B", recorded.bytes as f64 / count as f64),
        };
        let beyond = plain.map(|plain| it.wall_ticks() - plain);
        let times = match (beyond, plain, stamps) {
            (Some(beyond), Some(plain), Some(stamps)) if it.is_traced() => {
                format!(
                    "   {cost_ratio:.2} times two time stamps",
                    cost_ratio = beyond / (stamps - plain)
                )
            }
            _ => String::new(),
        };
        let beyond = beyond.filter(|_| it.task.function != MeasuredFunction::Plain);
        writeln!(
            out,
            "  {text:<width$} {:>8.3} {:>8.3} {:>8.3} {:>9.1} {:>12} {bytes_each:>8} {:>6} {:>7.1} {:>7.1}{}{times}",
            self.unit.seconds(it.wall_ticks()),
            it.median(|it| it.resources.usage.user_ns as f64) / 1e9,
            it.median(|it| it.resources.usage.system_ns as f64) / 1e9,
            it.resident_bytes() as f64 / f64::from(1 << 20),
            recorded.bytes,
            format_lost_share(recorded.lost_count, recorded.events_count),
            each(it.wall_ticks()),
            each(it.fastest_run().wall_ticks as f64),
            beyond.map(|more| format!("   ({:+.1})", each(more))).unwrap_or_default(),
        )
    }

    /// Prints the wall times of the empty programs.
    pub fn print_empty_programs(&self, runs: u64, out: &mut dyn Write) -> io::Result<()> {
        let unit = self.unit;
        writeln!(out, "\nAn empty program, from its start to its end, {runs} runs")?;
        let plain = self.empty_programs.first().map_or(0.0, ProcessRow::wall_ticks);
        for (at, it) in self.empty_programs.iter().enumerate() {
            let text = format!("{}:", it.text);
            if let Some(why) = &it.error {
                writeln!(out, "  {text:<50} not measured: {why}")?;
                continue;
            }
            let beyond = unit.ms(it.wall_ticks() - plain);
            let beyond = if at == 0 { String::new() } else { format!("   ({beyond:+.2})") };
            let best = unit.ms(it.fastest_run().wall_ticks as f64);
            writeln!(
                out,
                "  {text:<50} {:>8.2} ms{beyond}, best {best:.2} ms",
                unit.ms(it.wall_ticks())
            )?;
        }
        Ok(())
    }

    /// Prints the fastest run of each process in the form of `/usr/bin/time`.
    pub fn print_best_runs(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\nThe best run of each, as /usr/bin/time prints it")?;
        for (who, processes) in [("", self.processes), ("An empty program, ", self.empty_programs)]
        {
            for it in processes.iter().filter(|it| it.error.is_none()) {
                let best = it.fastest_run();
                writeln!(out, "  {who}{}:", it.text)?;
                for line in best.resources.time_lines(self.unit.ns(best.wall_ticks)) {
                    writeln!(out, "    {line}")?;
                }
            }
        }
        Ok(())
    }

    /// Returns all results as a JSON document.
    pub fn to_json(&self, calls: u64, runs: u64, folders: &TraceFolders) -> Value {
        let loops: Vec<Value> = self.loops.iter().map(|row| self.loop_as_json(row)).collect();
        let costed: Vec<Value> =
            self.processes.iter().map(|it| self.process_as_json(it, calls)).collect();
        let empty: Vec<Value> =
            self.empty_programs.iter().map(|it| self.process_as_json(it, 1)).collect();
        let master: Vec<Value> = self
            .master_rows(calls, folders)
            .into_iter()
            .flatten()
            .map(|(text, ticks)| match ticks {
                Ok(ticks) => json!({"text": text, "ticks": ticks}),
                Err(why) => json!({"text": text, "refused": why}),
            })
            .collect();
        json!({
            "schema": 2,
            "unit": self.unit.name,
            "ticks_per_ns": self.unit.ticks_per_ns,
            "rounds_count": {"loops": loops::ROUNDS_COUNT, "costed": runs, "empty": runs},
            "master": master,
            "loops": loops,
            "costed": costed,
            "empty": empty,
        })
    }

    fn loop_as_json(&self, row: &LoopRow) -> Value {
        let Some(Figure { ticks, difference }) = estimate(self.loops, row) else {
            return json!({"group": row.group, "text": row.text, "refused": row.error});
        };
        json!({
            "group": row.group,
            "text": row.text,
            "ticks": ticks.median,
            "low": ticks.interval.map(|it| it.0),
            "high": ticks.interval.map(|it| it.1),
            "ns": ticks.median / self.unit.ticks_per_ns,
            "beyond": difference,
            "events_count": row.recorded.events_count,
            "lost_count": row.recorded.lost_count,
            "refused": row.error,
        })
    }

    fn process_as_json(&self, it: &ProcessRow, calls: u64) -> Value {
        if let Some(why) = &it.error {
            return json!({"text": it.text, "refused": why});
        }
        let (recorded, best) = (it.mean_recorded_counts(), it.fastest_run());
        let resources = best.resources;
        json!({
            "text": it.text,
            "calls_count": calls,
            "wall_ns": it.wall_ticks() / self.unit.ticks_per_ns,
            "user_ns": it.median(|it| it.resources.usage.user_ns as f64),
            "system_ns": it.median(|it| it.resources.usage.system_ns as f64),
            "resident_bytes": it.resident_bytes(),
            "bytes": recorded.bytes,
            "events_count": recorded.events_count,
            "lost_count": recorded.lost_count,
            "ticks": it.wall_ticks() / calls as f64,
            "best": {
                "wall_ns": self.unit.ns(best.wall_ticks),
                "user_ns": resources.usage.user_ns,
                "system_ns": resources.usage.system_ns,
                "resident_bytes": resources.usage.rss_max_bytes,
                "faults_major": resources.usage.faults_major,
                "faults_minor": resources.usage.faults_minor,
                "blocks_in": resources.blocks_in,
                "blocks_out": resources.blocks_out,
                "swaps": resources.swaps,
                "ticks": best.wall_ticks as f64 / calls as f64,
            },
        })
    }
}

/// Estimate of the ticks per call of a loop's row.
struct Figure {
    ticks: MedianEstimate,
    /// Difference from the median of the baseline row; `None` without a baseline.
    difference: Option<f64>,
}

/// Estimates a row's ticks per call; returns `None` if the row was not measured.
fn estimate(loops: &[LoopRow], row: &LoopRow) -> Option<Figure> {
    let of = |row: &LoopRow| (!row.rounds.is_empty()).then(|| median_of_independent(&row.rounds));
    let ticks = of(row)?;
    let other = row.baseline.and_then(|at| of(loops.get(at)?));
    Some(Figure { difference: other.map(|other| ticks.median - other.median), ticks })
}

/// Formats the number of lost events as a percentage of all events.
fn format_lost_share(lost: u64, recorded: u64) -> String {
    match lost {
        0 => "0".to_string(),
        _ => format!("{:.2} %", 100.0 * lost as f64 / (lost + recorded) as f64),
    }
}
