//! Every bound of a machine, with its default.

use crate::ConfigError;

/// The most messages that one round may be configured to handle.
const PER_ROUND_LIMIT: u32 = 1 << 20;
/// The most messages that a machine's own queue may hold.
const LOCAL_LIMIT: u32 = 1 << 28;
/// The most machines that one thread may run.
const MACHINES_LIMIT: u32 = 1 << 16;

/// What a machine does with a message for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The sender gets it back at once.
    #[default]
    Refuse,
    /// The sender sleeps until there is room, the machine is closed, or so much time has passed; then
    /// it gets the message back. A sender on the machine's own thread is refused at once: it would
    /// wait for itself. Two machines that block on each other's full inboxes wait for each other
    /// until the time is over.
    Block {
        /// How long a sender waits at most; `u64::MAX` is for ever.
        wait_ns_max: u64,
    },
    /// The oldest message in the inbox makes room, and is counted as dropped.
    ///
    /// Such an inbox stands behind a lock of its own, since two sides take from it: 20 to 50 ns a
    /// message where the others take 5. What the machine sends to itself is refused as usual.
    DropOldest,
}

/// What becomes of a machine whose handler panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnPanic {
    /// It stops, and [`Ended::Panicked`](crate::Ended::Panicked) tells what the panic said.
    #[default]
    Stop,
    /// The message is lost, the panic is reported and counted, and the machine goes on. The handler
    /// is left as the panic left it.
    DropMessage,
}

/// How a machine sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParkOn {
    /// On a futex until it watches a descriptor, and in epoll from then on.
    #[default]
    Whatever,
    /// In epoll from the beginning, woken through an eventfd: for measuring the difference.
    Descriptor,
}

/// When a sender notifies the thread of a machine by a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WakeWhen {
    /// Only if the thread sleeps.
    #[default]
    Asleep,
    /// For each message that is passed, by a write to the thread's eventfd, as in the classic event
    /// machines: for measuring the difference. The thread sleeps in epoll from the beginning,
    /// whatever [`ParkOn`] says.
    EachMessage,
}

/// The bounds of what runs on one thread: of a [`Machine`](crate::Machine), or of a
/// [`Group`](crate::Group) of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadConfig {
    /// How long it spins before it sleeps; see there.
    pub spin: handover_notify::Config,
    /// How it sleeps. Default: on a futex until it watches a descriptor.
    pub park_on: ParkOn,
    /// When senders notify it by a system call. Default: only if it sleeps.
    pub wake_when: WakeWhen,
    /// How many ready descriptors are taken from the kernel in one round. Default 64, at most 1024.
    pub descriptors_per_round_max: u32,
    /// How late the kernel may end a sleep to save wake-ups, in ns: set for the thread when it begins
    /// to run; 0 leaves it as it is, which is 50,000 as a rule. Default 0. Timers are never early.
    pub timer_slack_ns: u32,
    /// How many machines a group may hold. Default 1024, at most 65,536. A machine by itself
    /// ignores it.
    pub machines_max: u32,
}

impl Default for ThreadConfig {
    fn default() -> Self {
        Self {
            spin: handover_notify::Config::default(),
            park_on: ParkOn::default(),
            wake_when: WakeWhen::default(),
            descriptors_per_round_max: 64,
            timer_slack_ns: 0,
            machines_max: 1024,
        }
    }
}

impl ThreadConfig {
    /// Whether everything is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the knob, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.spin.validate()?;
        within("descriptors_per_round_max", self.descriptors_per_round_max, 1, 1024)?;
        within("machines_max", self.machines_max, 1, MACHINES_LIMIT)
    }
}

/// The bounds of one machine.
///
/// ```
/// use handover_event::{Config, WhenFull};
/// let config = Config { when_full: WhenFull::DropOldest, ..Config::default() };
/// config.validate()?;
/// assert_eq!(
///     Config { inbox_messages_max: 0, ..config }.validate().unwrap_err().to_string(),
///     "inbox_messages_max=0: must lie in 1..=2147483648",
/// );
/// # Ok::<(), handover_event::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How many messages from other threads may wait. Default 1024. Their memory is taken when the
    /// machine is made.
    pub inbox_messages_max: u32,
    /// How many messages from the machine's own thread may wait, its own included. Default 65,536.
    /// Memory follows the most that ever did.
    pub local_messages_max: u32,
    /// What happens to a message from another thread when the inbox is full. Default: refused.
    pub when_full: WhenFull,
    /// How many messages are handled before timers and descriptors have their turn. Default 256.
    ///
    /// Greater makes the turn cheaper, smaller makes timers more punctual under load: one is late by
    /// the time of so many handlers at most, and of `timers_per_round_max` others.
    pub messages_per_round_max: u32,
    /// How many timers that are due are handled before messages have their turn. Default 64.
    pub timers_per_round_max: u32,
    /// How many timers may be running. Default 1,048,576. Memory follows the most that ever did.
    pub timers_max: u32,
    /// What becomes of the machine when its handler panics. Default: it stops.
    pub on_panic: OnPanic,
    /// The bounds of the thread, for a machine by itself. Machines of a group share the group's.
    pub thread: ThreadConfig,
}

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
    /// Whether everything is within its range.
    ///
    /// # Errors
    /// [`ConfigError`] names the knob, its value and its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let slots_max = handover_ring::SLOTS_COUNT_MAX;
        within("inbox_messages_max", self.inbox_messages_max, 1, slots_max)?;
        within("local_messages_max", self.local_messages_max, 1, LOCAL_LIMIT)?;
        within("messages_per_round_max", self.messages_per_round_max, 1, PER_ROUND_LIMIT)?;
        within("timers_per_round_max", self.timers_per_round_max, 1, PER_ROUND_LIMIT)?;
        handover_timer::Config { timers_max: self.timers_max, timers_reserved: 0 }.validate()?;
        self.thread.validate()
    }
}

fn within(knob: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::OutOfRange { knob, value, min, max })
    }
}
