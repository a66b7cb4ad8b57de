//! Identity of a figure, by which the records of several runs are matched.

use handover_record::{ContenderKind, Record, TimingKind, Unit};
use std::collections::BTreeMap;

/// Identity of a figure across runs: id, contender, arguments and placement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FigureKey {
    /// Id of the figure.
    pub id: String,
    /// Name of the contender.
    pub contender: String,
    /// Arguments, placement and other conditions of the measurement, as text.
    pub setting: String,
}

impl FigureKey {
    /// Returns the identity of a record's figure.
    pub fn from_record(record: &Record) -> FigureKey {
        let mut setting: Vec<String> =
            record.args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let participants = &record.participants;
        if !participants.placement.is_empty() && participants.placement != "near" {
            setting.push(participants.placement.clone());
        }
        if record.unit != Unit::Ns {
            setting.push(record.unit.to_string());
        }
        if participants.processes {
            setting.push("processes".to_string());
        }
        if participants.idle_gap_ns > 0 {
            setting.push(format!("idle-gap={}ns", participants.idle_gap_ns));
        }
        if participants.neighbour_cpu.is_some() {
            setting.push("neighbour".to_string());
        }
        FigureKey {
            id: record.id.clone(),
            contender: record.contender.clone(),
            setting: setting.join(" "),
        }
    }

    /// Returns the text that names the figure: its id, contender and setting.
    pub fn label(&self) -> String {
        match self.setting.as_str() {
            "" => format!("{} [{}]", self.id, self.contender),
            setting => {
                format!("{id} [{contender}] {setting}", id = self.id, contender = self.contender)
            }
        }
    }
}

/// Returns the key that two records must share for a comparison of their values: the figure, and
/// the kind of timing. Only operations that are timed alone contain a reading of the clock.
pub fn comparable_key(record: &Record) -> (FigureKey, TimingKind) {
    (FigureKey::from_record(record), record.summary.timing_kind())
}

/// Returns the most frequent kind of timing; `Batch` if both are equally frequent.
pub fn usual_timing(kinds: impl Iterator<Item = TimingKind>) -> TimingKind {
    let (singles, batches): (Vec<_>, Vec<_>) = kinds.partition(|it| *it == TimingKind::Single);
    if singles.len() > batches.len() { TimingKind::Single } else { TimingKind::Batch }
}

/// Returns the figures to compare. They are those of our contenders, or else of the floors, or else
/// of all; with `all`, those of every contender. Nulls are never among them.
pub(crate) fn compared_figures(
    keys: &[FigureKey],
    kind: impl Fn(&FigureKey) -> ContenderKind,
    all: bool,
) -> Vec<&FigureKey> {
    let mut representatives: BTreeMap<&str, Option<ContenderKind>> = BTreeMap::new();
    for key in keys {
        representatives.entry(&key.id).or_insert_with(|| {
            let is_there = |wanted: &ContenderKind| {
                keys.iter().any(|it| it.id == key.id && kind(it) == *wanted)
            };
            [ContenderKind::Ours, ContenderKind::Floor].into_iter().find(is_there)
        });
    }
    let is_compared = |key: &&FigureKey| {
        let (representative, kind) = (representatives[key.id.as_str()], kind(key));
        kind != ContenderKind::Null && (all || representative.is_none_or(|it| it == kind))
    };
    keys.iter().filter(is_compared).collect()
}
