//! `calls`: the master table of what a function call costs, by where the function stands, in cycles
//! and in nanoseconds, without optimisation and with.

use anyhow::Context;
use clap::Args;
use handover_base::clock::Source;
use handover_base::{affinity, clock};
use handover_harness::stats::{Interval, interval, quantile_sorted};
use handover_suite::call::{Level, Loop, Way, c_loop};
use std::hint::black_box;
use std::io::Write;

/// Millions at most: days.
const MILLIONS_MAX: u64 = 1_000_000;
/// Rounds in which every row is measured once: as many as an interval wants, and a few.
const ROUNDS_COUNT: u64 = 25;

/// What a function call costs, by where the function stands: the master table, in cycles and ns.
#[derive(Debug, Args)]
#[command(
    after_help = "Each row is a loop of calls i = next(i), the loop's own turn included, compiled \
from C at -O0 and at -O3. The rows are measured in turn, 25 rounds long; a figure is the median of its \
rounds. (+N): beyond the call in the same source file."
)]
pub struct Calls {
    /// How many calls are made for each row, in millions
    #[arg(
        short = 'm',
        value_name = "MILLIONS",
        default_value_t = 100,
        value_parser = super::whole(1..=MILLIONS_MAX),
        allow_negative_numbers = true
    )]
    millions: u64,
}

/// A row of the table.
struct Row {
    text: &'static str,
    way: Way,
    /// The row of the call that it is compared with.
    beyond: Option<Way>,
}

const SAME_FILE: Option<Way> = Some(Way::SameFile);

/// The table. Whatever is called in a loop can be a further row.
const ROWS: &[Row] = &[
    Row {
        text: "Function call (function in the same source file)",
        way: Way::SameFile,
        beyond: None,
    },
    Row {
        text: "Function call (function in a static library)",
        way: Way::Static,
        beyond: SAME_FILE,
    },
    Row { text: "Function call (function in a dynamic library)", way: Way::Plt, beyond: SAME_FILE },
    Row {
        text: "Function call with two additional function calls",
        way: Way::TwoExtra,
        beyond: SAME_FILE,
    },
    Row { text: "The loop alone, without a call", way: Way::Alone, beyond: None },
];

/// A row at a level, with what its rounds yielded.
struct Lane {
    row: &'static Row,
    level: Level,
    run: Loop,
    /// Ticks a call, a round each.
    rounds: Vec<f64>,
}

pub fn run(args: &Calls, out: &mut dyn Write) -> anyhow::Result<()> {
    clock::calibration();
    // Best effort: on another CPU in mid-round, the round is only an outlier.
    let _ = affinity::pin(affinity::current_cpu());
    let mut lanes = Vec::new();
    for level in [Level::O0, Level::O3] {
        for row in ROWS {
            let run = c_loop(row.way, level).context(row.text)?;
            lanes.push(Lane { row, level, run, rounds: Vec::new() });
        }
    }
    measure(&mut lanes, args.millions * 1_000_000 / ROUNDS_COUNT)?;
    let unit = Unit::of_this_clock();
    writeln!(out, "Calls: {} M a row, {ROUNDS_COUNT} rounds; {}", args.millions, unit.words())?;
    for (level, title) in TITLES {
        table(&lanes, level, title, &unit, out)?;
    }
    spread(&lanes, &unit, out)
}

const TITLES: [(Level, &str); 2] =
    [(Level::O0, "Compiled with -O0"), (Level::O3, "Compiled with -O3")];

/// Every lane once a round, beginning with another one each time.
fn measure(lanes: &mut [Lane], calls_count: u64) -> anyhow::Result<()> {
    let count = lanes.len();
    for round in 0..ROUNDS_COUNT as usize {
        for turn in 0..count {
            let lane = &mut lanes[(round + turn) % count];
            // Untimed: whoever was before has left its own marks in the caches and predictors.
            black_box((lane.run)(black_box(1000)));
            let began = clock::ticks();
            let counted = (lane.run)(black_box(calls_count));
            let took = clock::ticks() - began;
            anyhow::ensure!(
                counted == calls_count,
                "{}: {calls_count} calls were asked for and {counted} counted",
                lane.row.text
            );
            lane.rounds.push(took as f64 / calls_count as f64);
        }
    }
    Ok(())
}

/// What the clock's ticks are called, and how many make a nanosecond.
struct Unit {
    name: &'static str,
    ticks_per_ns: f64,
}

impl Unit {
    fn of_this_clock() -> Unit {
        let clock = clock::calibration();
        let name = match clock.source {
            Source::Tsc => "cycles",
            // No counter of cycles can be trusted here: the ticks are nanoseconds.
            Source::ClockGettime => "ticks",
        };
        Unit { name, ticks_per_ns: clock.ticks_hz / 1e9 }
    }

    fn words(&self) -> String {
        let (name, ghz) = (self.name, self.ticks_per_ns);
        format!("{name} of the time-stamp clock, {ghz:.3} to the nanosecond")
    }
}

fn figure(lanes: &[Lane], way: Way, level: Level) -> Option<Interval> {
    let lane = lanes.iter().find(|lane| lane.row.way == way && lane.level == level)?;
    Some(interval(&lane.rounds))
}

fn table(
    lanes: &[Lane],
    level: Level,
    title: &str,
    unit: &Unit,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(out, "\n{title}")?;
    for lane in lanes.iter().filter(|lane| lane.level == level) {
        let ticks = interval(&lane.rounds).median;
        let beyond = lane.row.beyond.and_then(|way| figure(lanes, way, level));
        let beyond = beyond.map(|other| format!("   ({:+.1})", ticks - other.median));
        writeln!(
            out,
            "  {:<50} {ticks:>6.1} {} {:>7.2} ns{}",
            format!("{}:", lane.row.text),
            unit.name,
            ticks / unit.ticks_per_ns,
            beyond.unwrap_or_default()
        )?;
    }
    Ok(())
}

/// How far the rounds lie apart.
fn spread(lanes: &[Lane], unit: &Unit, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "\nRounds, in {}: median [95 % interval], least, p90, most", unit.name)?;
    for (level, title) in TITLES {
        for lane in lanes.iter().filter(|lane| lane.level == level) {
            let Interval { median, low, high } = interval(&lane.rounds);
            let mut sorted = lane.rounds.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            let at = |q: f64| quantile_sorted(&sorted, q);
            writeln!(
                out,
                "  {} {:<50} {median:.2} [{low:.2}, {high:.2}]  {:.2}  {:.2}  {:.2}",
                title.rsplit(' ').next().unwrap_or_default(),
                format!("{}:", lane.row.text),
                at(0.0),
                at(0.9),
                at(1.0)
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<String> {
        let mut out = Vec::new();
        run(&Calls { millions: 1 }, &mut out).expect("a table");
        String::from_utf8(out).expect("text").lines().map(str::to_string).collect()
    }

    #[test]
    fn the_table_has_every_row_at_both_levels_and_says_how_much_each_adds() {
        let lines = lines();
        for (_, title) in TITLES {
            let at = lines.iter().position(|line| line == title).expect(title);
            let rows = &lines[at + 1..at + 1 + ROWS.len()];
            for (line, row) in rows.iter().zip(ROWS) {
                let rest = line.trim().strip_prefix(row.text).expect(row.text);
                let words: Vec<&str> = rest.split_whitespace().collect();
                let [":", ticks, "cycles" | "ticks", ns, "ns", beyond @ ..] = &words[..] else {
                    panic!("{line}")
                };
                assert!(ticks.parse::<f64>().is_ok_and(|it| it > 0.0), "{line}");
                assert!(ns.parse::<f64>().is_ok_and(|it| it > 0.0), "{line}");
                let signed = |it: &&str| it.starts_with("(+") || it.starts_with("(-");
                assert_eq!(beyond.iter().filter(|it| signed(it)).count(), beyond.len(), "{line}");
                assert_eq!(beyond.len(), usize::from(row.beyond.is_some()), "{line}");
            }
        }
    }

    #[test]
    fn intervals_come_after_the_table_for_every_row_and_level() {
        let lines = lines();
        let at = lines.iter().position(|line| line.starts_with("Rounds")).expect("a heading");
        assert_eq!(lines.len() - at - 1, 2 * ROWS.len());
        assert!(lines[at + 1..].iter().all(|line| line.contains('[') && line.contains("  -O")));
    }
}
