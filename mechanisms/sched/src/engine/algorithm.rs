//! Choice of an algorithm by name.

use super::config::{Config, ConfigError};
use super::{
    DeficitRoundRobin, Discipline, Fifo, Hierarchy, Pacing, Priority, Qfq, QfqPlus, Queued,
    RoundRobin, Scheduler, Tenants, Wf2qPlus,
};
use std::fmt::{self, Debug, Display};
use std::marker::PhantomData;
use std::str::FromStr;

/// Algorithm, by the name that a user writes.
///
/// ```
/// use handover_sched::Algorithm;
///
/// assert_eq!("drr".parse(), Ok(Algorithm::Rr));
/// assert_eq!(Algorithm::QfqPlus.to_string(), "qfq+");
/// assert!("fair".parse::<Algorithm>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// `fifo`: [`Fifo`].
    Fifo,
    /// `rr`, `drr`: [`DeficitRoundRobin`].
    Rr,
    /// `rr1`: [`RoundRobin`].
    Rr1,
    /// `prio`: [`Priority`].
    Prio,
    /// `wf2q+`, `wf2qp`: [`Wf2qPlus`].
    Wf2qPlus,
    /// `qfq`: [`Qfq`].
    Qfq,
    /// `qfq+`, `qfqp`: [`QfqPlus`].
    QfqPlus,
    /// `pacing`: [`Pacing`].
    Pacing,
}

/// Error of parsing an unknown name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no algorithm is called {name:?}: there are fifo, rr (or drr), rr1, prio, wf2q+ (or wf2qp), qfq, qfq+ (or qfqp), pacing"
)]
pub struct UnknownAlgorithm {
    /// The name.
    pub name: String,
}

/// Scheduler on the heap, of an algorithm chosen at run time.
pub type AnyScheduler<T> = Box<dyn Scheduler<T> + Send>;

/// Operation on a scheduler of a concrete type, for loops in which dynamic dispatch would show. See
/// [`Algorithm::visit`].
pub trait Visitor<T: Copy + Debug> {
    /// Result of the operation.
    type Output;

    /// Runs the operation.
    fn visit<S: Scheduler<T> + Send + 'static>(self, scheduler: S) -> Self::Output
    where
        T: Send + 'static;
}

struct BoxingVisitor;

impl<T: Copy + Debug> Visitor<T> for BoxingVisitor {
    type Output = AnyScheduler<T>;

    fn visit<S: Scheduler<T> + Send + 'static>(self, scheduler: S) -> AnyScheduler<T>
    where
        T: Send + 'static,
    {
        Box::new(scheduler)
    }
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: &[Algorithm] = &[
        Self::Fifo,
        Self::Rr,
        Self::Rr1,
        Self::Prio,
        Self::Wf2qPlus,
        Self::Qfq,
        Self::QfqPlus,
        Self::Pacing,
    ];

    /// All names, with the algorithms that they denote.
    pub const NAMES: &[(&str, Algorithm)] = &[
        ("fifo", Self::Fifo),
        ("rr", Self::Rr),
        ("drr", Self::Rr),
        ("rr1", Self::Rr1),
        ("prio", Self::Prio),
        ("wf2q+", Self::Wf2qPlus),
        ("wf2qp", Self::Wf2qPlus),
        ("qfq", Self::Qfq),
        ("qfq+", Self::QfqPlus),
        ("qfqp", Self::QfqPlus),
        ("pacing", Self::Pacing),
    ];

    /// Returns the primary name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Rr => "rr",
            Self::Rr1 => "rr1",
            Self::Prio => "prio",
            Self::Wf2qPlus => "wf2q+",
            Self::Qfq => "qfq",
            Self::QfqPlus => "qfq+",
            Self::Pacing => "pacing",
        }
    }

    /// Returns `true` if flows share by their weights. Not so for `fifo`, `rr1` and `prio`, nor for
    /// `pacing`, whose flows have rates of their own.
    pub fn shares_by_weight(self) -> bool {
        matches!(self, Self::Rr | Self::Wf2qPlus | Self::Qfq | Self::QfqPlus)
    }

    /// Makes a scheduler without flows and passes it to `visitor`, which is compiled for each type.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field.
    pub fn visit<T, V>(self, config: &Config, visitor: V) -> Result<V::Output, ConfigError>
    where
        T: Copy + Debug + Send + 'static,
        V: Visitor<T>,
    {
        Ok(match self {
            Self::Fifo => visitor.visit(Fifo::new(config)?),
            Self::Rr => visitor.visit(Queued::<T, DeficitRoundRobin>::new(config)?),
            Self::Rr1 => visitor.visit(Queued::<T, RoundRobin>::new(config)?),
            Self::Prio => visitor.visit(Queued::<T, Priority>::new(config)?),
            Self::Wf2qPlus => visitor.visit(Queued::<T, Wf2qPlus>::new(config)?),
            Self::Qfq => visitor.visit(Queued::<T, Qfq>::new(config)?),
            Self::QfqPlus => visitor.visit(Queued::<T, QfqPlus>::new(config)?),
            Self::Pacing => visitor.visit(Queued::<T, Pacing>::new(config)?),
        })
    }

    /// Makes a scheduler without flows.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field.
    pub fn build<T>(self, config: &Config) -> Result<AnyScheduler<T>, ConfigError>
    where
        T: Copy + Debug + Send + 'static,
    {
        self.visit(config, BoxingVisitor)
    }

    /// Makes a scheduler of two levels without tenants: `self` orders the tenants, and `flows` the
    /// flows of each tenant. For algorithms known at compile time, see [`Hierarchy::new`].
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field, or a level that its algorithm cannot have: `fifo`
    /// orders packets and not flows, and `pacing` can only order the tenants.
    pub fn build_tenants<T>(
        self,
        flows: Algorithm,
        config: &Config,
    ) -> Result<Box<dyn Tenants<T> + Send>, ConfigError>
    where
        T: Copy + Debug + Send + 'static,
    {
        let outer = OuterVisitor { config, flows, token: PhantomData };
        self.discipline(outer).ok_or(ConfigError::NoLevel { algorithm: self })?
    }

    /// Passes the discipline's type to `visitor`; `None` for `fifo`.
    fn discipline<V: DisciplineVisitor>(self, visitor: V) -> Option<V::Output> {
        Some(match self {
            Self::Fifo => return None,
            Self::Rr => visitor.visit::<DeficitRoundRobin>(),
            Self::Rr1 => visitor.visit::<RoundRobin>(),
            Self::Prio => visitor.visit::<Priority>(),
            Self::Wf2qPlus => visitor.visit::<Wf2qPlus>(),
            Self::Qfq => visitor.visit::<Qfq>(),
            Self::QfqPlus => visitor.visit::<QfqPlus>(),
            Self::Pacing => visitor.visit::<Pacing>(),
        })
    }
}

trait DisciplineVisitor {
    type Output;
    fn visit<D: Discipline<Hot: Send, Align: Send> + Send + 'static>(self) -> Self::Output;
}

type AnyTenants<T> = Result<Box<dyn Tenants<T> + Send>, ConfigError>;

struct OuterVisitor<'a, T> {
    config: &'a Config,
    flows: Algorithm,
    token: PhantomData<T>,
}

impl<T: Copy + Debug + Send + 'static> DisciplineVisitor for OuterVisitor<'_, T> {
    type Output = AnyTenants<T>;

    fn visit<O: Discipline<Hot: Send, Align: Send> + Send + 'static>(self) -> AnyTenants<T> {
        let inner = InnerVisitor::<O, T> { config: self.config, of: PhantomData };
        self.flows.discipline(inner).ok_or(ConfigError::NoLevel { algorithm: self.flows })?
    }
}

struct InnerVisitor<'a, O, T> {
    config: &'a Config,
    of: PhantomData<(O, T)>,
}

impl<O, T> DisciplineVisitor for InnerVisitor<'_, O, T>
where
    O: Discipline<Hot: Send, Align: Send> + Send + 'static,
    T: Copy + Debug + Send + 'static,
{
    type Output = AnyTenants<T>;

    fn visit<I: Discipline<Hot: Send, Align: Send> + Send + 'static>(self) -> AnyTenants<T> {
        Ok(Box::new(Hierarchy::<T, O, I>::new(self.config)?))
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|&(_, it)| it).ok_or_else(|| UnknownAlgorithm { name: name.to_string() })
    }
}
