//! Configuration of a load.

use crate::load::PlanError;
use crate::load::wire::LETTERS_MAX;
use handover_base::range;
use std::net::SocketAddr;
use std::time::Duration;

/// Amount of a load: numbers of messages, or a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadAmount {
    /// Load limited by numbers of messages. Each connection sends `count` messages and waits for
    /// all echoes, `iterations` times; then each thread pauses and reconnects, `reconns` times in
    /// all.
    Counted {
        /// Messages in a burst.
        count: u64,
        /// Bursts per connection.
        iterations: u64,
        /// Number of times that each thread connects.
        reconns: u64,
        /// Pause before connecting again.
        pause: Duration,
    },
    /// Load limited by time. Messages sent during `warm_up` are checked but not measured; those of
    /// the following `duration` are measured.
    Timed {
        /// Duration of the warm-up, before the measurement.
        warm_up: Duration,
        /// Duration of the measurement.
        duration: Duration,
        /// Messages per second of all connections together. They are sent when due, regardless of
        /// earlier messages (an open loop). `None`: the next message is sent when an echo arrives
        /// (a closed loop).
        rate: Option<f64>,
    },
}

/// Configuration of a load on a server.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Address of the server.
    pub address: SocketAddr,
    /// Number of threads, each with its own connections.
    pub threads_count: u32,
    /// Number of connections per thread.
    pub clients_count: u32,
    /// Amount of the load.
    pub work: LoadAmount,
    /// Maximum number of outstanding messages per connection.
    pub depth: u64,
    /// Minimum number of letters in a message.
    pub letters_min: u32,
    /// Maximum number of letters in a message.
    pub letters_max: u32,
    /// Size of each thread's read buffer, in bytes.
    pub read_bytes: u32,
    /// Time limit for connecting, and for the next echo.
    pub timeout: Duration,
    /// Bucket width of an additional linear histogram; `None` for no such histogram.
    pub linear_bucket: Option<Duration>,
    /// Number that makes connection ids and message lengths differ between processes.
    pub salt: u32,
}

/// Maximum number of threads of a load.
const THREADS_MAX: u32 = 4096;
/// Maximum number of connections per thread.
const CLIENTS_MAX: u32 = 1 << 20;

impl LoadPlan {
    /// Creates a plan of one connection that sends one message.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        let pause = Duration::ZERO;
        Self {
            address,
            threads_count: 1,
            clients_count: 1,
            work: LoadAmount::Counted { count: 1, iterations: 1, reconns: 1, pause },
            depth: u64::MAX,
            letters_min: 3,
            letters_max: 10,
            read_bytes: 1 << 16,
            timeout: Duration::from_secs(10),
            linear_bucket: None,
            salt: 0,
        }
    }

    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// Fails with a [`PlanError`] that names the value.
    pub fn validate(&self) -> Result<(), PlanError> {
        range::check("threads_count", self.threads_count, 1, THREADS_MAX)?;
        range::check("clients_count", self.clients_count, 1, CLIENTS_MAX)?;
        range::check("depth", self.depth, 1, u64::MAX)?;
        range::check("letters_max", self.letters_max, 0, LETTERS_MAX)?;
        range::check("letters_min", self.letters_min, 0, self.letters_max)?;
        range::check("read_bytes", self.read_bytes, 512, 1 << 24)?;
        match self.work {
            LoadAmount::Counted { count, iterations, reconns, .. } => {
                range::check("count", count, 1, u64::MAX)?;
                range::check("iterations", iterations, 1, u64::MAX)?;
                range::check("reconns", reconns, 1, u64::MAX)?;
                self.total_count().map(drop).ok_or(PlanError::TooMany)
            }
            LoadAmount::Timed { rate: Some(rate), .. } if !(rate.is_finite() && rate > 0.0) => {
                Err(PlanError::Rate)
            }
            LoadAmount::Timed { .. } => Ok(()),
        }
    }

    /// Returns the total number of messages. Returns `None` if time limits the load, or on
    /// overflow.
    #[must_use]
    pub fn total_count(&self) -> Option<u64> {
        let LoadAmount::Counted { count, iterations, reconns, .. } = self.work else { return None };
        [count, iterations, reconns, self.threads_count.into()]
            .into_iter()
            .try_fold(u64::from(self.clients_count), u64::checked_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_plan_is_refused_with_the_range() {
        let plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        assert_eq!((plan.validate(), plan.total_count()), (Ok(()), Some(1)));
        let refused = |plan: LoadPlan| plan.validate().unwrap_err().to_string();
        let none = LoadPlan { threads_count: 0, ..plan.clone() };
        assert_eq!(refused(none), "threads_count=0: must lie in 1..=4096");
        let crossed = LoadPlan { letters_min: 11, ..plan.clone() };
        assert_eq!(refused(crossed), "letters_min=11: must lie in 0..=10");
        let pause = Duration::ZERO;
        let many = u64::MAX / 2;
        let work = LoadAmount::Counted { count: many, iterations: 3, reconns: 1, pause };
        assert_eq!(LoadPlan { work, ..plan.clone() }.validate(), Err(PlanError::TooMany));
        let second = Duration::from_secs(1);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let work = LoadAmount::Timed { warm_up: second, duration: second, rate: Some(rate) };
            assert_eq!(LoadPlan { work, ..plan.clone() }.validate(), Err(PlanError::Rate));
        }
    }
}
