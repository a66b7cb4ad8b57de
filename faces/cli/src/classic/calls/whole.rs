//! Costs of whole processes, from start to end: the rows, and their rounds.

use super::costed::{Cost, Task, cost};
use super::lanes::OUTPUT;
use super::places::{Medium, Places};
use crate::exit::{Stopped, chain};
use handover_suite::probe::rows::Recorded;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of times each process is started, all in turn.
pub(super) const ROUNDS_COUNT: usize = 5;
/// Number of times each empty program is started.
pub(super) const EMPTY_ROUNDS_COUNT: usize = 9;
/// Calls of an empty program: `main` alone.
const EMPTY_CALLS: u64 = 1;

const ROWS: [(&str, Task, Medium); 7] = [
    ("Function call (function in the same source file)", Task::Plain, Medium::Memory),
    ("Function call with two time stamps, kept nowhere", Task::Stamps, Medium::Memory),
    ("Function call with two probes, off", Task::Off, Medium::Memory),
    ("Function call with two probes, filtered", Task::Filtered, Medium::Memory),
    ("Function call with two probes, recorded in memory", Task::Newest, Medium::Memory),
    (OUTPUT, Task::All, Medium::Memory),
    (OUTPUT, Task::All, Medium::Dir),
];

/// A process's row: medians of its rounds, the maximum in `resident_bytes`, and means in
/// `recorded`.
pub(super) struct Whole {
    pub text: String,
    pub calls: u64,
    pub is_plain: bool,
    pub is_traced: bool,
    pub wall_ticks: f64,
    pub user_ns: f64,
    pub system_ns: f64,
    pub resident_bytes: u64,
    /// Mean of all rounds.
    pub recorded: Recorded,
    pub refused: Option<String>,
}

/// An empty program's row.
pub(super) struct Empty {
    pub text: String,
    pub wall_ticks: f64,
    pub refused: Option<String>,
}

/// Measures every process of the table.
pub(super) fn wholes(
    calls: u64,
    places: &Places,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<Whole>> {
    let rows: Vec<_> = ROWS
        .into_iter()
        .filter(|(_, task, medium)| *task != Task::All || places.has(*medium))
        .collect();
    let tasks: Vec<_> = rows.iter().map(|(_, task, medium)| (*task, *medium)).collect();
    let rounds = rounds(&tasks, calls, ROUNDS_COUNT, places, interrupted)?;
    let whole = |((text, task, medium), rounds): (_, Result<Vec<Cost>, String>)| {
        let text: &str = text;
        let text = match task {
            Task::All => format!("{text} {}", places.shown(medium)),
            _ => text.to_string(),
        };
        let (rounds, refused) = match rounds {
            Ok(rounds) => (rounds, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let of = |what: fn(&Cost) -> f64| median(rounds.iter().map(what));
        let mean = |what: fn(&Cost) -> u64| {
            rounds.iter().map(what).sum::<u64>() / rounds.len().max(1) as u64
        };
        Whole {
            text,
            calls,
            is_plain: task == Task::Plain,
            is_traced: matches!(task, Task::Newest | Task::All),
            wall_ticks: of(|it| it.wall_ticks as f64),
            user_ns: of(|it| it.used.user_ns as f64),
            system_ns: of(|it| it.used.system_ns as f64),
            resident_bytes: rounds.iter().map(|it| it.resident_bytes).max().unwrap_or_default(),
            recorded: Recorded {
                events_count: mean(|it| it.recorded.events_count),
                lost_count: mean(|it| it.recorded.lost_count),
                bytes: mean(|it| it.recorded.bytes),
            },
            refused,
        }
    };
    Ok(rows.into_iter().zip(rounds).map(whole).collect())
}

/// Measures programs that do nothing, untraced and traced.
pub(super) fn empties(places: &Places, interrupted: &AtomicBool) -> anyhow::Result<Vec<Empty>> {
    let mut rows = vec![("without probes on".to_string(), Task::Off, Medium::Memory)];
    for medium in [Medium::Memory, Medium::Dir] {
        if places.has(medium) {
            rows.push((format!("traced to {}", places.shown(medium)), Task::All, medium));
        }
    }
    let tasks: Vec<_> = rows.iter().map(|(_, task, medium)| (*task, *medium)).collect();
    let rounds = rounds(&tasks, EMPTY_CALLS, EMPTY_ROUNDS_COUNT, places, interrupted)?;
    let empty = |((text, ..), rounds): ((String, _, _), Result<Vec<Cost>, String>)| Empty {
        text,
        wall_ticks: rounds
            .as_ref()
            .map_or(0.0, |rounds| median(rounds.iter().map(|it| it.wall_ticks as f64))),
        refused: rounds.err(),
    };
    Ok(rows.into_iter().zip(rounds).map(empty).collect())
}

/// Runs each task once a round; each round starts with the next task. A task that fails has no
/// further rounds.
fn rounds(
    tasks: &[(Task, Medium)],
    calls: u64,
    rounds_count: usize,
    places: &Places,
    interrupted: &AtomicBool,
) -> anyhow::Result<Vec<Result<Vec<Cost>, String>>> {
    let mut done: Vec<Result<Vec<Cost>, String>> = tasks.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds_count {
        for turn in 0..tasks.len() {
            let at = (round + turn) % tasks.len();
            let (task, medium) = tasks[at];
            let Ok(costs) = &mut done[at] else { continue };
            match cost(task, calls, medium, places) {
                Ok(cost) => costs.push(cost),
                Err(error) => done[at] = Err(chain(&error)),
            }
            // Relaxed: the signal handler publishes nothing but the flag.
            if interrupted.load(Ordering::Relaxed) {
                return Err(Stopped.into());
            }
        }
    }
    Ok(done)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
