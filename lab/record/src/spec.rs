//! Declaration of a benchmark, from which help, table, chart and record are derived.

use crate::args::Param;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::panic::Location;

/// Declaration of one benchmark. Written as a `const` that starts with [`Spec::new`].
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Id `mechanism/operation`, the benchmark's name in tables and patterns.
    pub id: &'static str,
    /// Description of the timed operation in one line.
    pub what: &'static str,
    /// Unit of all figures of this benchmark.
    pub unit: Unit,
    /// Id of the benchmark that measures the floor of this one. The floor is the lower bound set by
    /// hardware or kernel, measured in the same blocks. The id is that of a spec, or `spec/part`.
    /// `None` only for floors themselves.
    pub floor: Option<&'static str>,
    /// Ids of further floors, for contenders that wait in another way than `floor`. Each contender
    /// is compared with the first floor that waits in the same way.
    pub floors: &'static [&'static str],
    /// Name of the older program that measured this operation first; `None` if there is none.
    pub classic: Option<&'static str>,
    /// `true` if the default run includes the benchmark.
    pub ladder: bool,
    /// Named figures of this benchmark; empty if it has one figure.
    pub parts: &'static [Part],
    /// `true` if one participant hands work to another. The options `--idle-gap` and `--neighbour`
    /// then apply.
    pub hands_over: bool,
    /// `true` if operations are timed in batches regardless of their duration. For operations about
    /// as long as the shortest that is timed alone (twenty clock readings), which would otherwise
    /// be timed differently from run to run.
    pub batched: bool,
    /// `true` if the operations of a batch overlap, as in a stream. The figure then has no
    /// quantiles, because a single timed operation would be a flush.
    pub pipelined: bool,
    /// Source file of the declaration.
    pub file: &'static str,
    /// Source line of the declaration.
    pub line: u32,
}

impl Spec {
    /// Declares a benchmark with defaults for all but the id and the description. The unit is
    /// nanoseconds; it has one figure and one participant, no floor, and is not in the default run.
    /// Its source location is the caller's.
    #[track_caller]
    pub const fn new(id: &'static str, what: &'static str) -> Spec {
        let place = Location::caller();
        Spec {
            id,
            what,
            unit: Unit::Ns,
            floor: None,
            floors: &[],
            classic: None,
            ladder: false,
            parts: &[],
            hands_over: false,
            batched: false,
            pipelined: false,
            file: place.file(),
            line: place.line(),
        }
    }

    /// Sets the unit of all figures.
    pub const fn unit(self, unit: Unit) -> Spec {
        Spec { unit, ..self }
    }

    /// Sets the id of the floor, the benchmark that measures the lower bound of this one.
    pub const fn floor(self, id: &'static str) -> Spec {
        Spec { floor: Some(id), ..self }
    }

    /// Sets the ids of further floors, for contenders that wait in another way.
    pub const fn floors(self, ids: &'static [&'static str]) -> Spec {
        Spec { floors: ids, ..self }
    }

    /// Sets the name of the older program that measured this operation first.
    pub const fn classic(self, tool: &'static str) -> Spec {
        Spec { classic: Some(tool), ..self }
    }

    /// Includes the benchmark in the default run.
    pub const fn ladder(self) -> Spec {
        Spec { ladder: true, ..self }
    }

    /// Sets the parts, for a benchmark with several figures.
    pub const fn parts(self, parts: &'static [Part]) -> Spec {
        Spec { parts, ..self }
    }

    /// Declares that one participant hands work to another.
    pub const fn hands_over(self) -> Spec {
        Spec { hands_over: true, ..self }
    }

    /// Declares that operations are timed in batches regardless of their duration.
    pub const fn batched(self) -> Spec {
        Spec { batched: true, ..self }
    }

    /// Declares that the operations of a batch overlap, as in a stream.
    pub const fn pipelined(self) -> Spec {
        Spec { pipelined: true, ..self }
    }

    /// Returns the ids of this benchmark's figures: its own, or one for each part.
    pub fn figure_ids(&self) -> Vec<String> {
        if self.parts.is_empty() {
            return vec![self.id.to_string()];
        }
        self.parts.iter().map(|part| format!("{}/{}", self.id, part.name)).collect()
    }
}

/// One of several named figures of a benchmark. Examples are the cost of a lock and of an unlock.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Last component of the figure's id.
    pub name: &'static str,
    /// Description of the figure in one line.
    pub what: &'static str,
    /// Id of this part's floor; `None` for the spec's floor.
    pub floor: Option<&'static str>,
    /// Waiting strategy of this part's operations; `None` for the contender's strategy.
    pub waits: Option<Wait>,
    /// `true` if the default run shows this figure.
    pub ladder: bool,
    /// `true` if the figure may be absent because its event did not occur. An example is a wake-up
    /// without sleeping; its absence is no error.
    pub optional: bool,
    /// `true` if the benchmark's own floors are peers in this part, because they do not bound its
    /// figure from below. Example: spinning has the least latency, but not the least CPU time.
    pub floors_are_peers: bool,
}

impl Part {
    /// Creates a part that has the spec's floor and is shown in the default run.
    pub const fn new(name: &'static str, what: &'static str) -> Part {
        Part {
            name,
            what,
            floor: None,
            waits: None,
            ladder: true,
            optional: false,
            floors_are_peers: false,
        }
    }

    /// Sets the id of this part's floor.
    pub const fn floor(mut self, id: &'static str) -> Part {
        self.floor = Some(id);
        self
    }

    /// Sets the waiting strategy of this part's operations. It replaces the contender's strategy.
    pub const fn waits(mut self, waits: Wait) -> Part {
        self.waits = Some(waits);
        self
    }

    /// Declares that the figure may be absent without an error.
    pub const fn optional(mut self) -> Part {
        self.optional = true;
        self
    }

    /// Declares that the benchmark's own floors are peers in this part.
    pub const fn floors_are_peers(mut self) -> Part {
        self.floors_are_peers = true;
        self
    }

    /// Excludes the figure from the default run's table.
    pub const fn off_ladder(mut self) -> Part {
        self.ladder = false;
        self
    }
}

/// Unit of a figure: nanoseconds, bytes, or none for a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds for one operation. Less is better.
    Ns,
    /// Bytes, of memory held for example. Less is better.
    Bytes,
    /// A number without a unit, such as a count or a fairness index. Less is better.
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

/// Strategy by which a contender waits for another participant: none, spinning, sleeping, or both.
///
/// Ratios are computed only between contenders that wait in the same way: one that spins answers
/// in the time of a cache-line transfer, one that sleeps in the time of a wake-up, and their
/// quotient says nothing about either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The contender waits for no other participant.
    #[default]
    None,
    /// The contender polls and does not yield its CPU to the kernel. It yields only if another
    /// participant must run on that CPU.
    Spin,
    /// The contender polls for a bounded time, and then sleeps in the kernel.
    SpinThenSleep,
    /// The contender sleeps in the kernel without polling first.
    Sleep,
}

impl Wait {
    /// Returns `true` if the contender does not wait.
    pub fn is_none(&self) -> bool {
        *self == Wait::None
    }

    /// Returns a verb for tables: `spins`, `spins, then sleeps` or `sleeps`. It is empty for
    /// [`Wait::None`].
    pub fn table_verb(self) -> &'static str {
        match self {
            Wait::None => "",
            Wait::Spin => "spins",
            Wait::SpinThenSleep => "spins, then sleeps",
            Wait::Sleep => "sleeps",
        }
    }

    /// Returns `true` if a floor with this strategy is a lower bound for `contender`'s strategy.
    /// Both wait in the same way, or the floor does not wait.
    pub fn is_lower_bound_for(self, contender: Wait) -> bool {
        self.is_none() || self == contender
    }
}

/// One implementation that a benchmark measures.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Name of the contender in tables: `handover`, `eventfd`, `parking_lot`.
    pub name: &'static str,
    /// Kind of the implementation: ours, peer, floor or null.
    pub kind: ContenderKind,
    /// Name of the only contender with which this one is compared; `None` for all.
    pub rival_of: Option<&'static str>,
    /// Strategy by which the contender waits for the other participants.
    pub waits: Wait,
    /// `true` if each operation allocates memory.
    pub allocates: bool,
}

impl Contender {
    const fn new(name: &'static str, kind: ContenderKind) -> Contender {
        Contender { name, kind, rival_of: None, waits: Wait::None, allocates: false }
    }

    /// Creates a contender that is a mechanism of this project.
    pub const fn ours(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Ours)
    }

    /// Creates a contender that is an alternative implementation.
    pub const fn peer(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Peer)
    }

    /// Creates a contender that is a lower bound set by hardware, compiler or kernel.
    pub const fn floor(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Floor)
    }

    /// Creates one of two equal contenders of a null benchmark.
    pub const fn null(name: &'static str) -> Contender {
        Contender::new(name, ContenderKind::Null)
    }

    /// Restricts the comparison of this contender to our contender `rival`. The two have the same
    /// function.
    pub const fn compared_only_with(self, rival: &'static str) -> Contender {
        Contender { rival_of: Some(rival), ..self }
    }

    /// Sets the contender's waiting strategy.
    pub const fn waits(self, waits: Wait) -> Contender {
        Contender { waits, ..self }
    }

    /// Declares that each operation allocates memory.
    pub const fn allocates(self) -> Contender {
        Contender { allocates: true, ..self }
    }

    /// Returns the waiting strategy of a part's operations. `part` is `None` for a benchmark
    /// without parts.
    pub fn waits_in(&self, part: Option<&Part>) -> Wait {
        part.and_then(|part| part.waits).unwrap_or(self.waits)
    }

    /// Returns the contender with its kind in a part: a floor is a peer if the part declares
    /// [`floors_are_peers`](Part::floors_are_peers). `part` is `None` for a benchmark without
    /// parts.
    pub fn in_part(self, part: Option<&Part>) -> Contender {
        match (self.kind, part) {
            (ContenderKind::Floor, Some(Part { floors_are_peers: true, .. })) => {
                Contender { kind: ContenderKind::Peer, ..self }
            }
            _ => self,
        }
    }

    /// Returns `true` if the ratio of this contender's figure to that of `other` is reported. It is
    /// if `other` is a peer (or the second contender of a null benchmark), and neither is
    /// restricted to another contender.
    pub fn is_compared_with(&self, other: &Contender) -> bool {
        let is_for = |one: &Contender, other: &Contender| {
            one.rival_of.is_none_or(|rival| rival == other.name || one.rival_of == other.rival_of)
        };
        matches!(other.kind, ContenderKind::Peer | ContenderKind::Null)
            && is_for(self, other)
            && is_for(other, self)
    }
}

/// Kind of a contender: ours, a peer, a floor, or one of two equal contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContenderKind {
    /// A mechanism of this project.
    Ours,
    /// An alternative implementation that a user could choose instead.
    Peer,
    /// A lower bound that hardware, compiler or kernel sets, or a property of the machine.
    Floor,
    /// One of two contenders with the same code. Their difference is the smallest that the machine
    /// can resolve.
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
    /// Returns the argument's line in the output of `--help` and `list`.
    pub fn help_line(&self) -> String {
        format!(
            "{}={}  {} ({}..={})",
            self.name,
            self.kind.format_value(self.default),
            self.help.trim(),
            self.kind.format_value(self.min),
            self.kind.format_value(self.max),
        )
    }
}
