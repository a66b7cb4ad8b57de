//! Schedulers of an algorithm that is chosen at run time.

use super::{
    Algorithm, Config, ConfigError, DeficitRoundRobin, Discipline, Fifo, FlowScheduler, Hierarchy,
    Pacing, Priority, Qfq, QfqPlus, RoundRobin, Scheduler, Tenants, Wf2qPlus,
};
use std::fmt::Debug;
use std::marker::PhantomData;

/// Boxed scheduler, of an algorithm chosen at run time.
pub type AnyScheduler<T> = Box<dyn Scheduler<T> + Send>;

/// Operation on a scheduler of a concrete type, for loops in which dynamic dispatch would cost
/// time. See [`Algorithm::visit`].
pub trait Visitor<T: Copy + Debug> {
    /// Type of the operation's result.
    type Output;

    /// Runs the operation on `scheduler`.
    fn visit<S: Scheduler<T> + Send + 'static>(self, scheduler: S) -> Self::Output
    where
        T: Send + 'static;
}

/// Visitor that boxes the scheduler.
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
    /// Creates a scheduler without flows and passes it to `visitor`; returns the visitor's result.
    /// The visitor is compiled for each type of scheduler.
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
            Self::Rr => visitor.visit(FlowScheduler::<T, DeficitRoundRobin>::new(config)?),
            Self::Rr1 => visitor.visit(FlowScheduler::<T, RoundRobin>::new(config)?),
            Self::Prio => visitor.visit(FlowScheduler::<T, Priority>::new(config)?),
            Self::Wf2qPlus => visitor.visit(FlowScheduler::<T, Wf2qPlus>::new(config)?),
            Self::Qfq => visitor.visit(FlowScheduler::<T, Qfq>::new(config)?),
            Self::QfqPlus => visitor.visit(FlowScheduler::<T, QfqPlus>::new(config)?),
            Self::Pacing => visitor.visit(FlowScheduler::<T, Pacing>::new(config)?),
        })
    }

    /// Creates a scheduler of this algorithm, without flows.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field.
    pub fn build<T>(self, config: &Config) -> Result<AnyScheduler<T>, ConfigError>
    where
        T: Copy + Debug + Send + 'static,
    {
        self.visit(config, BoxingVisitor)
    }

    /// Creates a scheduler of two levels, without tenants. `self` orders the tenants, and `flows`
    /// the flows of each tenant. For algorithms known at compile time, see [`Hierarchy::new`].
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
        let outer = OuterVisitor { config, flows, token_type: PhantomData };
        self.visit_discipline(outer).ok_or(ConfigError::NoLevel { algorithm: self })?
    }

    /// Calls `visitor` with the [`Discipline`] of this algorithm; returns the visitor's result.
    /// Returns `None` for `fifo`, which has no discipline.
    fn visit_discipline<V: DisciplineVisitor>(self, visitor: V) -> Option<V::Output> {
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

/// Operation on a [`Discipline`] of a concrete type.
trait DisciplineVisitor {
    /// Type of the operation's result.
    type Output;
    /// Runs the operation for discipline `D`.
    fn visit<D: Discipline<State: Send, Align: Send> + Send + 'static>(self) -> Self::Output;
}

/// Result of creating a boxed two-level scheduler of algorithms chosen at run time.
type AnyTenants<T> = Result<Box<dyn Tenants<T> + Send>, ConfigError>;

/// Visitor of the algorithm that orders the tenants.
struct OuterVisitor<'a, T> {
    config: &'a Config,
    /// Algorithm that orders each tenant's flows.
    flows: Algorithm,
    token_type: PhantomData<T>,
}

impl<T: Copy + Debug + Send + 'static> DisciplineVisitor for OuterVisitor<'_, T> {
    type Output = AnyTenants<T>;

    fn visit<O: Discipline<State: Send, Align: Send> + Send + 'static>(self) -> AnyTenants<T> {
        let inner = InnerVisitor::<O, T> { config: self.config, types: PhantomData };
        self.flows.visit_discipline(inner).ok_or(ConfigError::NoLevel { algorithm: self.flows })?
    }
}

/// Visitor of the algorithm that orders each tenant's flows; creates the scheduler.
struct InnerVisitor<'a, O, T> {
    config: &'a Config,
    types: PhantomData<(O, T)>,
}

impl<O, T> DisciplineVisitor for InnerVisitor<'_, O, T>
where
    O: Discipline<State: Send, Align: Send> + Send + 'static,
    T: Copy + Debug + Send + 'static,
{
    type Output = AnyTenants<T>;

    fn visit<I: Discipline<State: Send, Align: Send> + Send + 'static>(self) -> AnyTenants<T> {
        Ok(Box::new(Hierarchy::<T, O, I>::new(self.config)?))
    }
}
