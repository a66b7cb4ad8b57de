//! Output: tables, or one JSON document.

use super::lanes::{GROUPS, Lane};
use super::whole::{Empty, Whole};
use handover_base::clock::{self, Source};
use handover_harness::stats::{Interval, interval, quantile_sorted};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Name of the clock's ticks, and their number per nanosecond.
pub(super) struct Unit {
    pub name: &'static str,
    pub ticks_per_ns: f64,
}

impl Unit {
    pub fn of_this_clock() -> Unit {
        let clock = clock::calibration();
        let name = match clock.source {
            Source::Tsc => "cycles",
            // No cycle counter is reliable on this machine: the ticks are nanoseconds.
            Source::ClockGettime => "ticks",
        };
        Unit { name, ticks_per_ns: clock.ticks_hz / 1e9 }
    }

    pub fn words(&self) -> String {
        let (name, ghz) = (self.name, self.ticks_per_ns);
        format!("{name} of the time-stamp clock, {ghz:.3} to the nanosecond")
    }

    fn seconds(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns / 1e9
    }

    fn ms(&self, ticks: f64) -> f64 {
        ticks / self.ticks_per_ns / 1e6
    }
}

/// Result of a lane's rounds, and the difference to the call that it is compared with.
struct Figure {
    ticks: Interval,
    beyond: Option<f64>,
}

fn figure(lanes: &[Lane], lane: &Lane) -> Option<Figure> {
    let of = |lane: &Lane| (!lane.rounds.is_empty()).then(|| interval(&lane.rounds));
    let ticks = of(lane)?;
    let other = lane.beyond.and_then(|at| of(lanes.get(at)?));
    Some(Figure { beyond: other.map(|other| ticks.median - other.median), ticks })
}

/// Prints the main table: every loop, by group.
pub(super) fn loops(lanes: &[Lane], unit: &Unit, out: &mut dyn Write) -> io::Result<()> {
    for group in GROUPS {
        writeln!(out, "\n{group}")?;
        for lane in lanes.iter().filter(|lane| lane.group == group) {
            let text = format!("{}:", lane.text);
            let Some(Figure { ticks, beyond }) = figure(lanes, lane) else {
                let why = lane.refused.as_deref().unwrap_or("not measured");
                writeln!(out, "  {text:<50} not measured: {why}")?;
                continue;
            };
            let ticks = ticks.median;
            let ns = ticks / unit.ticks_per_ns;
            let beyond = beyond.map(|more| format!("   ({more:+.1})")).unwrap_or_default();
            let lost = match lane.recorded.lost_count {
                0 => String::new(),
                lost => {
                    format!("   {} of the events lost", share(lost, lane.recorded.events_count))
                }
            };
            writeln!(out, "  {text:<50} {ticks:>6.1} {} {ns:>7.2} ns{beyond}{lost}", unit.name)?;
        }
    }
    Ok(())
}

/// Prints the spread of the rounds of every loop.
pub(super) fn spread(lanes: &[Lane], unit: &Unit, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nRounds, in {}: median [95 % interval], least, p90, most", unit.name)?;
    for lane in lanes.iter().filter(|lane| !lane.rounds.is_empty()) {
        let Interval { median, low, high } = interval(&lane.rounds);
        let mut sorted = lane.rounds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |q: f64| quantile_sorted(&sorted, q);
        writeln!(
            out,
            "  {} {:<50} {median:.2} [{low:.2}, {high:.2}]  {:.2}  {:.2}  {:.2}",
            lane.mark,
            format!("{}:", lane.text),
            at(0.0),
            at(0.9),
            at(1.0)
        )?;
    }
    Ok(())
}

/// Prints the header of the table of processes.
pub(super) fn wholes_head(
    calls: u64,
    rounds: usize,
    unit: &Unit,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\nFully costed: a process from its start to its file closed, {calls} calls, {rounds} rounds"
    )?;
    writeln!(
        out,
        "  {:<50} {:>8} {:>8} {:>8} {:>9} {:>12} {:>8} {:>6} {:>7}",
        "", "wall s", "user s", "system s", "most MiB", "bytes out", "an event", "lost", unit.name
    )
}

/// Prints the row of a process, as soon as it has been measured.
pub(super) fn whole(
    it: &Whole,
    plain: Option<&Whole>,
    stamps: Option<&Whole>,
    unit: &Unit,
    out: &mut dyn Write,
) -> io::Result<()> {
    let text = format!("{}:", it.text);
    if let Some(why) = &it.refused {
        return writeln!(out, "  {text:<50} not measured: {why}");
    }
    let each = |ticks: f64| ticks / it.calls as f64;
    let recorded = it.recorded;
    let bytes_each = match recorded.events_count {
        0 => String::from("-"),
        count => format!("{:.2} B", recorded.bytes as f64 / count as f64),
    };
    let beyond = plain.map(|plain| each(it.wall_ticks - plain.wall_ticks));
    let times = match (beyond, plain, stamps) {
        (Some(beyond), Some(plain), Some(stamps)) if it.is_traced => {
            let two = each(stamps.wall_ticks - plain.wall_ticks);
            format!("   {:.2} times two time stamps", beyond / two)
        }
        _ => String::new(),
    };
    writeln!(
        out,
        "  {text:<50} {:>8.3} {:>8.3} {:>8.3} {:>9.1} {:>12} {bytes_each:>8} {:>6} {:>7.1}{}{times}",
        unit.seconds(it.wall_ticks),
        it.user_ns / 1e9,
        it.system_ns / 1e9,
        it.resident_bytes as f64 / f64::from(1 << 20),
        recorded.bytes,
        share(recorded.lost_count, recorded.events_count),
        each(it.wall_ticks),
        beyond.filter(|_| !it.is_plain).map(|more| format!("   ({more:+.1})")).unwrap_or_default(),
    )
}

/// Prints the rows of programs that do next to nothing.
pub(super) fn empties(
    empties: &[Empty],
    rounds: usize,
    unit: &Unit,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "\nAn empty program, from its start to its end, {rounds} rounds")?;
    let plain = empties.first().map_or(0.0, |it| it.wall_ticks);
    for (at, it) in empties.iter().enumerate() {
        let beyond = unit.ms(it.wall_ticks - plain);
        let beyond = if at == 0 { String::new() } else { format!("   ({beyond:+.2})") };
        let text = format!("{}:", it.text);
        match &it.refused {
            Some(why) => writeln!(out, "  {text:<50} not measured: {why}")?,
            None => writeln!(out, "  {text:<50} {:>8.2} ms{beyond}", unit.ms(it.wall_ticks))?,
        }
    }
    Ok(())
}

/// Formats the share of events that were lost.
fn share(lost: u64, recorded: u64) -> String {
    match lost {
        0 => "0".to_string(),
        _ => format!("{:.2} %", 100.0 * lost as f64 / (lost + recorded) as f64),
    }
}

/// Returns the JSON document with all results.
pub(super) fn document(
    lanes: &[Lane],
    wholes: &[Whole],
    empty: &[Empty],
    rounds: [usize; 3],
    unit: &Unit,
) -> Value {
    let loops: Vec<Value> = lanes.iter().map(|lane| loop_as_json(lanes, lane, unit)).collect();
    let costed: Vec<Value> = wholes.iter().map(|it| whole_as_json(it, unit)).collect();
    let empty: Vec<Value> = empty
        .iter()
        .map(|it| match &it.refused {
            Some(why) => json!({"text": it.text, "refused": why}),
            None => json!({"text": it.text, "wall_ns": it.wall_ticks / unit.ticks_per_ns}),
        })
        .collect();
    let [in_loop, of_processes, of_empty] = rounds;
    json!({
        "schema": 1,
        "unit": unit.name,
        "ticks_per_ns": unit.ticks_per_ns,
        "rounds_count": {"loops": in_loop, "costed": of_processes, "empty": of_empty},
        "loops": loops,
        "costed": costed,
        "empty": empty,
    })
}

fn loop_as_json(lanes: &[Lane], lane: &Lane, unit: &Unit) -> Value {
    let Some(Figure { ticks, beyond }) = figure(lanes, lane) else {
        return json!({"group": lane.group, "text": lane.text, "refused": lane.refused});
    };
    json!({
        "group": lane.group,
        "text": lane.text,
        "ticks": ticks.median,
        "low": ticks.low,
        "high": ticks.high,
        "ns": ticks.median / unit.ticks_per_ns,
        "beyond": beyond,
        "events_count": lane.recorded.events_count,
        "lost_count": lane.recorded.lost_count,
        "refused": lane.refused,
    })
}

fn whole_as_json(it: &Whole, unit: &Unit) -> Value {
    if let Some(why) = &it.refused {
        return json!({"text": it.text, "refused": why});
    }
    json!({
        "text": it.text,
        "calls_count": it.calls,
        "wall_ns": it.wall_ticks / unit.ticks_per_ns,
        "user_ns": it.user_ns,
        "system_ns": it.system_ns,
        "resident_bytes": it.resident_bytes,
        "bytes": it.recorded.bytes,
        "events_count": it.recorded.events_count,
        "lost_count": it.recorded.lost_count,
        "ticks": it.wall_ticks / it.calls as f64,
    })
}
