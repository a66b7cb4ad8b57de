//! Configuration of machines and threads: every limit, with its default.

use crate::ConfigError;
use handover_base::range;
use std::time::Duration;

/// Largest valid value of `messages_per_round_max` and `timers_per_round_max`.
const PER_ROUND_LIMIT: u32 = 1 << 20;
/// Largest valid value of `local_messages_max`.
const LOCAL_LIMIT: u32 = 1 << 28;
/// Largest valid value of `timer_slack`.
const TIMER_SLACK_LIMIT: Duration = Duration::from_secs(4);
/// Largest valid value of `machines_max`.
const MACHINES_LIMIT: u32 = 1 << 16;

/// Policy for messages from other threads to a full inbox. It refuses the message, blocks the
/// sender, or drops old messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Returns the message to its sender at once.
    #[default]
    Refuse,
    /// Blocks the sender until the inbox has space, the machine is closed, or `wait_max` has
    /// passed. In the last two cases the message is returned to the sender. A sender on the
    /// machine's own thread is refused at once, as it would wait for itself. Two machines that
    /// block on each other's full inboxes both wait until `wait_max` has passed.
    ///
    /// The machine wakes one waiting sender once half of the inbox is free. While other senders
    /// keep it fuller, the machine wakes one after each 1024 messages (`inbox_messages_max`, if
    /// that is less), if there is space. A sender that does not wait may take the space first.
    Block {
        /// Maximum wait; [`Duration::MAX`] waits for ever.
        wait_max: Duration,
    },
    /// Drops the oldest message in the inbox to make space for the new one. Counts it in
    /// [`Stats::dropped`](crate::Stats::dropped).
    ///
    /// The machine takes messages out of the inbox in batches of at most 64, so that not each
    /// message takes the lock; messages of the current batch are not dropped any more. So besides
    /// the message being handled, at most `inbox_messages_max + min(inbox_messages_max, 64) - 1`
    /// messages are queued.
    ///
    /// Such an inbox is protected by a lock, since senders and machine both remove messages: 20 to
    /// 50 ns a message instead of 5 ns. Messages that the machine sends to itself are refused as
    /// usual.
    DropOldest,
}

/// Policy for a handler that panics: stop the run, or drop the message and continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnPanic {
    /// Stops the machine's run, which returns [`EndReason::Panicked`](crate::EndReason::Panicked)
    /// with the panic message.
    #[default]
    Stop,
    /// Drops the message, logs and counts the panic, and continues the run. The handler's state is
    /// left as it was at the panic.
    DropMessage,
}

/// Kernel object that an idle thread sleeps on: a futex until epoll is needed, or always epoll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParkOn {
    /// A futex until the machine watches its first descriptor, and epoll from then on.
    #[default]
    Auto,
    /// Epoll from the start, woken through an eventfd; for measuring the difference to a futex.
    Descriptor,
}

/// Condition under which a sender notifies the machine's thread by a system call. It does so if the
/// thread sleeps, or always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WakeWhen {
    /// Makes the system call only if the thread sleeps.
    #[default]
    Asleep,
    /// Makes the system call, a write to the thread's eventfd, even if the thread is awake. It is
    /// made for each message not sent by `send_quiet`. The classic event machines do this; for
    /// measuring the difference. The thread sleeps in epoll from the start, whatever [`ParkOn`]
    /// says.
    EachMessage,
}

/// Configuration of a thread that runs one [`Machine`](crate::Machine) or a [`Group`](crate::Group)
/// of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadConfig {
    /// Limits of the time that the thread spins before it sleeps; see [`handover_notify::Config`].
    pub spin: handover_notify::Config,
    /// Kernel object that the idle thread sleeps on. Default: a futex until a descriptor is
    /// watched.
    pub park_on: ParkOn,
    /// Condition under which senders notify the thread by a system call. Default: only if it
    /// sleeps.
    pub wake_when: WakeWhen,
    /// Maximum number of ready descriptors fetched from the kernel in one round. Default 64, at
    /// most 1024.
    pub descriptors_per_round_max: u32,
    /// Timer slack of the thread: a sleep may end this much late, which saves wake-ups. Set when
    /// the thread first runs; zero leaves the thread's slack unchanged (50 µs by default on Linux).
    /// Default zero, at most 4 s. Timers are never early.
    pub timer_slack: Duration,
    /// Maximum number of machines in a group. Default 1024, at most 65,536. Ignored for a single
    /// machine.
    pub machines_max: u32,
}

handover_base::setters!(ThreadConfig {
    spin: handover_notify::Config,
    park_on: ParkOn,
    wake_when: WakeWhen,
    descriptors_per_round_max: u32,
    timer_slack: Duration,
    machines_max: u32,
});

impl Default for ThreadConfig {
    fn default() -> Self {
        Self {
            spin: handover_notify::Config::default(),
            park_on: ParkOn::default(),
            wake_when: WakeWhen::default(),
            descriptors_per_round_max: 64,
            timer_slack: Duration::ZERO,
            machines_max: 1024,
        }
    }
}

impl ThreadConfig {
    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.spin.validate()?;
        range::check("descriptors_per_round_max", self.descriptors_per_round_max, 1, 1024)?;
        range::check("timer_slack", self.timer_slack, Duration::ZERO, TIMER_SLACK_LIMIT)?;
        Ok(range::check("machines_max", self.machines_max, 1, MACHINES_LIMIT)?)
    }
}

/// Limits and policies of one machine.
///
/// ```
/// use handover_event::{Config, WhenFull};
/// let config = Config::default().when_full(WhenFull::DropOldest);
/// config.validate()?;
/// assert_eq!(
///     config.inbox_messages_max(0).validate().unwrap_err().to_string(),
///     "inbox_messages_max=0: must lie in 1..=2147483648",
/// );
/// # Ok::<(), handover_event::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Maximum number of queued messages from other threads. Default 1024. The memory is allocated
    /// when the machine is created; under [`WhenFull::DropOldest`], one more batch of messages can
    /// be in memory.
    pub inbox_messages_max: u32,
    /// Maximum number of queued messages from the machine's own thread, including those from the
    /// machine itself. Default 65,536. The queue grows as needed and does not shrink. In a group,
    /// up to twice this number and one more can be queued at times: the messages that the machine
    /// sends itself and those of the other machines are limited together once in each of its turns.
    pub local_messages_max: u32,
    /// Policy for messages from other threads when the inbox is full. Default: refuse.
    pub when_full: WhenFull,
    /// Maximum number of messages handled before timers and descriptors are served. Default 256.
    ///
    /// A greater value spreads the cost of serving them over more messages; a smaller value makes
    /// timers more punctual under load. If no more than `timers_per_round_max` are due, a timer is
    /// late by at most the run time of one round's handlers: this many for messages,
    /// `timers_per_round_max` for timers and [`ThreadConfig::descriptors_per_round_max`] for
    /// descriptors. In a group, those of the other machines' turns come in addition.
    pub messages_per_round_max: u32,
    /// Maximum number of due timers handled before messages are served again. Default 64.
    pub timers_per_round_max: u32,
    /// Maximum number of running timers. Default 1,048,576. Memory grows with the number of running
    /// timers and is not freed.
    pub timers_max: u32,
    /// Policy for a handler that panics. Default: the machine stops.
    pub on_panic: OnPanic,
    /// Configuration of the machine's own thread. A machine in a group ignores it, as the group has
    /// its own.
    pub thread: ThreadConfig,
}

handover_base::setters!(Config {
    inbox_messages_max: u32,
    local_messages_max: u32,
    when_full: WhenFull,
    messages_per_round_max: u32,
    timers_per_round_max: u32,
    timers_max: u32,
    on_panic: OnPanic,
    thread: ThreadConfig,
});

impl Default for Config {
    fn default() -> Self {
        Self {
            inbox_messages_max: 1024,
            local_messages_max: 1 << 16,
            when_full: WhenFull::default(),
            messages_per_round_max: 256,
            timers_per_round_max: 64,
            timers_max: 1 << 20,
            on_panic: OnPanic::default(),
            thread: ThreadConfig::default(),
        }
    }
}

impl Config {
    /// Checks that every value is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the field, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let slots_max = handover_ring::SLOTS_COUNT_MAX;
        range::check("inbox_messages_max", self.inbox_messages_max, 1, slots_max)?;
        range::check("local_messages_max", self.local_messages_max, 1, LOCAL_LIMIT)?;
        range::check("messages_per_round_max", self.messages_per_round_max, 1, PER_ROUND_LIMIT)?;
        range::check("timers_per_round_max", self.timers_per_round_max, 1, PER_ROUND_LIMIT)?;
        handover_timer::Config::default().timers_max(self.timers_max).validate()?;
        self.thread.validate()
    }
}
