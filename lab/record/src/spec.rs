//! What a benchmark declares about itself, once; help, table, chart and record all derive from it.

use crate::args::Param;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The declaration of one benchmark. Written as a `const`, with `..Spec::DEFAULT` for what is usual.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// `mechanism/operation`, the name in every table and pattern.
    pub id: &'static str,
    /// One line: what exactly is timed.
    pub what: &'static str,
    /// The unit of every figure of this benchmark.
    pub unit: Unit,
    /// The id (of a spec, or `spec/part`) of what physics or the kernel allows; measured in the same
    /// blocks. `None` only for floors themselves.
    pub floor: Option<&'static str>,
    /// Further floors, for contenders that wait in another way than those over `floor`: each contender
    /// stands over the first floor that waits as it does.
    pub floors: &'static [&'static str],
    /// The classic tool that measured this first, if one did.
    pub classic: Option<&'static str>,
    /// Whether the default run takes it.
    pub ladder: bool,
    /// The named figures that one run of this benchmark yields; empty where there is one figure.
    pub parts: &'static [Part],
    /// Whether work goes from one party to another, so that `--idle-gap` and `--neighbour` apply.
    pub hands_over: bool,
    /// Whether operations are timed in batches however long they last. For those that last about as
    /// long as the shortest that is timed alone (twenty readings of the clock): the manner of timing
    /// must not differ from run to run.
    pub batched: bool,
    /// Whether operations of a batch overlap, as in a stream: one timed alone would be a flush, so the figure
    /// has no quantiles.
    pub pipelined: bool,
    /// Where the declaration stands: `file!()`.
    pub file: &'static str,
    /// Where the declaration stands: `line!()`.
    pub line: u32,
}

impl Spec {
    /// What most benchmarks are: nanoseconds, one figure, one party, not on the ladder.
    pub const DEFAULT: Spec = Spec {
        id: "",
        what: "",
        unit: Unit::Ns,
        floor: None,
        floors: &[],
        classic: None,
        ladder: false,
        parts: &[],
        hands_over: false,
        batched: false,
        pipelined: false,
        file: "",
        line: 0,
    };

    /// The ids of this benchmark's figures: its own, or one for each part.
    pub fn figure_ids(&self) -> Vec<String> {
        if self.parts.is_empty() {
            return vec![self.id.to_string()];
        }
        self.parts.iter().map(|part| format!("{}/{}", self.id, part.name)).collect()
    }
}

/// One named figure of a benchmark that yields several (a busy, a free and a post cost).
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The last step of the figure's id.
    pub name: &'static str,
    /// One line: what exactly this figure is.
    pub what: &'static str,
    /// The part's own floor; `None` takes the spec's.
    pub floor: Option<&'static str>,
    /// How those waited that are counted here, where only some are; `None` takes the contender's.
    pub waits: Option<Wait>,
    /// Whether the default run shows this figure on the ladder.
    pub ladder: bool,
    /// A figure that exists only when its event happened (a wake-up that was spun, say): its absence
    /// is no fault.
    pub optional: bool,
}

impl Part {
    /// A part with the spec's floor, on the ladder.
    pub const fn new(name: &'static str, what: &'static str) -> Part {
        Part { name, what, floor: None, waits: None, ladder: true, optional: false }
    }

    /// The same, with a floor of its own.
    pub const fn floor(mut self, id: &'static str) -> Part {
        self.floor = Some(id);
        self
    }

    /// The same, of operations that waited in this way, however their contender waits otherwise.
    pub const fn waits(mut self, waits: Wait) -> Part {
        self.waits = Some(waits);
        self
    }

    /// The same, allowed to be absent.
    pub const fn optional(mut self) -> Part {
        self.optional = true;
        self
    }

    /// The same, kept off the default run's table.
    pub const fn off_ladder(mut self) -> Part {
        self.ladder = false;
        self
    }
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds for one operation; less is better.
    Ns,
    /// Bytes; less is better (memory held, a fairness index).
    Bytes,
    /// A plain number; less is better.
    Count,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        })
    }
}

/// The way in which a contender waits for what another participant does.
///
/// Ratios are taken between equals only: a party that spins answers in the time of a cache line, one that
/// sleeps in the time of a wake-up, and the quotient of the two says nothing about either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// It waits for nobody.
    #[default]
    None,
    /// It polls, and never leaves its CPU to the kernel while there is nobody else to run on it.
    Spin,
    /// It polls for a bounded time, and then sleeps in the kernel.
    SpinThenSleep,
    /// It sleeps in the kernel at once.
    Sleep,
}

impl Wait {
    /// Returns `true` for the way of a contender that waits for nobody.
    pub fn is_none(&self) -> bool {
        *self == Wait::None
    }

    /// The verb for tables: `spins`, `spins, then sleeps`, `sleeps`; empty without waiting.
    pub fn word(self) -> &'static str {
        match self {
            Wait::None => "",
            Wait::Spin => "spins",
            Wait::SpinThenSleep => "spins, then sleeps",
            Wait::Sleep => "sleeps",
        }
    }

    /// Whether a floor that waits in this way is a lower bound of a contender that waits in that way: both
    /// wait alike, or the floor does not wait at all.
    pub fn is_below(self, contender: Wait) -> bool {
        self.is_none() || self == contender
    }
}

/// One implementation that a benchmark is run with.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name in the table: `handover`, `eventfd`, `parking_lot`.
    pub name: &'static str,
    /// What it stands for.
    pub kind: ContenderKind,
    /// The one contender that it is held against, where it is no rival of all.
    pub rival_of: Option<&'static str>,
    /// How it waits for the other participants.
    pub waits: Wait,
    /// Whether each operation allocates memory.
    pub allocates: bool,
}

impl Contender {
    const fn new(name: &'static str, kind: ContenderKind) -> Contender {
        Contender { name, kind, rival_of: None, waits: Wait::None, allocates: false }
    }

    /// A mechanism of this project.
    pub const fn ours(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Ours)
    }

    /// What a user would pick instead.
    pub const fn peer(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Peer)
    }

    /// What physics, the compiler or the kernel allows.
    pub const fn floor(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Floor)
    }

    /// One of two that are the same thing.
    pub const fn null(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Null)
    }

    /// The same, held against one of ours alone: the one that does what it does.
    pub const fn against(self, rival: &'static str) -> Contender {
        Contender { rival_of: Some(rival), ..self }
    }

    /// The same, waiting in this way.
    pub const fn waits(self, waits: Wait) -> Contender {
        Contender { waits, ..self }
    }

    /// The same, allocating memory in each operation.
    pub const fn allocates(self) -> Contender {
        Contender { allocates: true, ..self }
    }

    /// How the operations waited that a part counts; those of the whole benchmark without one.
    pub fn waits_in(&self, part: Option<&Part>) -> Wait {
        part.and_then(|part| part.waits).unwrap_or(self.waits)
    }

    /// Whether the ratio of this to the other is told: the other is a peer (or this thing a second time), and
    /// neither is kept for another.
    pub fn is_held_against(&self, other: &Contender) -> bool {
        let is_for = |one: &Contender, other: &Contender| {
            one.rival_of.is_none_or(|rival| rival == other.name || one.rival_of == other.rival_of)
        };
        matches!(other.kind, ContenderKind::Peer | ContenderKind::Null)
            && is_for(self, other)
            && is_for(other, self)
    }
}

/// What a contender stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContenderKind {
    /// A mechanism of this project.
    Ours,
    /// What a user would pick instead.
    Peer,
    /// What physics, the compiler or the kernel allows, or a plain fact of the machine.
    Floor,
    /// The same thing a second time: what it differs by, the machine cannot tell apart.
    Null,
}

impl fmt::Display for ContenderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContenderKind::Ours => "ours",
            ContenderKind::Peer => "peer",
            ContenderKind::Floor => "floor",
            ContenderKind::Null => "null",
        })
    }
}

impl Param {
    /// The line that `--help` and `list` show for this argument.
    pub fn help_line(&self) -> String {
        format!(
            "{}={}  {} ({}..={})",
            self.name,
            self.kind.show(self.default),
            self.help.trim(),
            self.kind.show(self.min),
            self.kind.show(self.max),
        )
    }
}
