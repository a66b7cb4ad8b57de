//! `notify`: costs of a notification for its receiver (test A) and its sender (test B).

use super::stamp::{LineClock, format_e3, format_quantiles};
use clap::{Args, ValueEnum};
use handover_base::{affinity, clock, topology};
use handover_notify::{Adaptive, Mechanism, Notify, Wait};
use handover_program::console::print_error;
use handover_suite::notify::{EventFd, Futex, Pipe, notify_many, time_notify, wait_gap};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

/// Default number of notifications in test A, in thousands.
const THOUSANDS_DEFAULT_A: u64 = 2000;
/// Default number of notifications in test B, in thousands.
const THOUSANDS_DEFAULT_B: u64 = 40;
/// Maximum of `-n`, in thousands of notifications. A test of so many takes weeks.
const THOUSANDS_MAX: u64 = 1_000_000_000;
/// Pause between two notifications of test B, in ns.
const PAUSE_NS: u64 = 30_000;
/// Maximum number of costs that are stored for the quantiles. The costs of later notifications are
/// not stored.
const COSTS_MAX: usize = 1 << 20;

/// Costs of a notification for its receiver (test A) and its sender (test B, -S).
#[derive(Debug, Args)]
#[command(
    after_help = "Test A notifies without pause and counts the waits that returned (#wakeups) \
and their rate. Test B lets the receiver fall asleep, 30 us, before each notification, and prints what \
it cost the sender."
)]
pub struct NotifyArgs {
    /// Number of notifications to be sent, in thousands [default: 2000; with -S 40]
    #[arg(short = 'n', value_name = "THOUSANDS", value_parser = super::whole_number_parser(1..=THOUSANDS_MAX))]
    thousands: Option<u64>,
    /// The core where the sender is run
    #[arg(short = 's', value_name = "CORE", value_parser = super::parse_cpu)]
    sender: Option<u32>,
    /// The core where the receiver is run
    #[arg(short = 'r', value_name = "CORE", value_parser = super::parse_cpu)]
    receiver: Option<u32>,
    /// Carry out test B: the receiver sleeps
    #[arg(short = 'S')]
    slow: bool,
    /// The mechanism: an eventfd, as in the original, or another
    #[arg(long, value_enum, default_value_t = NotifyMechanism::Eventfd)]
    via: NotifyMechanism,
}

/// Mechanism by which the sender notifies the receiver.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum NotifyMechanism {
    /// Use a Linux eventfd
    Eventfd,
    /// Use a Unix pipe
    Pipe,
    /// Use a futex, and wake the receiver for each notification
    Futex,
    /// Use this project's mechanism: spin, then park, and wake the receiver only if it sleeps
    Handover,
}

pub fn run(args: &NotifyArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let default = if args.slow { THOUSANDS_DEFAULT_B } else { THOUSANDS_DEFAULT_A };
    let thousands = args.thousands.unwrap_or(default);
    let allowed = topology::allowed_cpus();
    let (sender, receiver) = choose_cpus(args.sender, args.receiver, &allowed);
    if sender == receiver && (args.sender.is_none() || args.receiver.is_none()) {
        print_error(format_args!("notify: warning: sender and receiver share CPU {sender}"));
    }
    let plan = NotifyPlan {
        notifications_count: thousands * 1000,
        cpus: [sender, receiver],
        is_test_b: args.slow,
        line_clock: LineClock::new(),
    };
    match args.via {
        NotifyMechanism::Eventfd => measure::<EventFd>(&plan, out),
        NotifyMechanism::Pipe => measure::<Pipe>(&plan, out),
        NotifyMechanism::Futex => measure::<Futex>(&plan, out),
        NotifyMechanism::Handover => measure::<Adaptive>(&plan, out),
    }
}

/// Returns the CPUs of sender and receiver. A CPU that was not requested is one that the other
/// thread does not use.
fn choose_cpus(sender: Option<u32>, receiver: Option<u32>, allowed: &[u32]) -> (u32, u32) {
    let other = |than: u32| allowed.iter().copied().find(|cpu| *cpu != than).unwrap_or(than);
    match (sender, receiver) {
        (Some(sender), Some(receiver)) => (sender, receiver),
        (Some(sender), None) => (sender, other(sender)),
        (None, Some(receiver)) => (other(receiver), receiver),
        (None, None) => {
            let first = allowed.first().copied().unwrap_or(0);
            (first, other(first))
        }
    }
}

/// Parameters of a run.
struct NotifyPlan {
    /// Number of notifications to send.
    notifications_count: u64,
    /// CPUs of the sender and of the receiver.
    cpus: [u32; 2],
    /// `true` for test B, in which the receiver falls asleep before each notification.
    is_test_b: bool,
    /// Clock for the time at the start of printed lines.
    line_clock: LineClock,
}

/// Measurements of the sender or of the receiver.
#[derive(Default)]
struct SideResult {
    /// Number of notifications sent, or of waits that returned.
    count: u64,
    /// Duration of the whole test.
    duration_ns: u64,
    /// Costs of the first [`COSTS_MAX`] notifications of test B.
    costs_ticks: Vec<u64>,
    /// Sum of the costs of all notifications of test B.
    total_ticks: u64,
}

impl SideResult {
    /// Returns the number of notifications or waits per second.
    fn rate(&self) -> f64 {
        self.count as f64 / self.duration_ns.max(1) as f64 * 1e9
    }
}

/// Runs test A or test B with the mechanism `M`, and prints the results.
fn measure<M: Mechanism>(plan: &NotifyPlan, out: &mut dyn Write) -> anyhow::Result<()> {
    clock::calibration();
    let (sender, receiver) = M::pair()?;
    let receiver = Mutex::new(receiver);
    let (start, over, waits) = (Barrier::new(2), AtomicBool::new(false), AtomicU64::new(0));
    let crowded = plan.cpus[0] == plan.cpus[1];
    let sides = super::run_on_cpus(&plan.cpus, &|index| {
        affinity::pin(plan.cpus[index])?;
        if index == 1 {
            let mut receiver = receiver.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            start.wait();
            return Ok(receive(&mut *receiver, &over, &waits));
        }
        start.wait();
        let result = match plan.is_test_b {
            true => send_slowly(&sender, plan.notifications_count, crowded, &over, &waits),
            false => send(&sender, plan.notifications_count, &over),
        };
        Ok(result)
    })?;
    let [sent, received] = &sides[..] else {
        anyhow::bail!(
            "{results_count} of 2 threads returned a result",
            results_count = sides.len()
        );
    };
    let rate = format_e3(received.rate());
    let woke = received.count;
    if plan.is_test_b {
        let text = format_args!("receiver rate {rate} ops, #wakeups {woke}");
        plan.line_clock.write_line(out, "rcv_body", line!(), text)?;
        let cost =
            clock::ps_from_ticks(sent.total_ticks) as f64 / 1000.0 / sent.count.max(1) as f64;
        let text = format_args!("sender cost {} ns", format_e3(cost));
        plan.line_clock.write_line(out, "snd_slow_body", line!(), text)?;
        let costs = format_quantiles(sent.costs_ticks.iter().copied());
        let text = format_args!("sender cost: {costs}");
        return Ok(plan.line_clock.write_line(out, "main", line!(), text)?);
    }
    let text = format_args!("sender rate {} ops", format_e3(sent.rate()));
    plan.line_clock.write_line(out, "snd_body", line!(), text)?;
    let text = format_args!("receiver rate {rate} ops, #wakeups {woke}");
    Ok(plan.line_clock.write_line(out, "rcv_body", line!(), text)?)
}

/// Sends `count` notifications without pause. Sets `over` before the last notification rather than
/// by an additional one, so that each wait is for one of the requested notifications.
fn send(sender: &impl Notify, count: u64, over: &AtomicBool) -> SideResult {
    let began = clock::ticks();
    notify_many(sender, count - 1);
    // Release: pairs with the Acquire in receive().
    over.store(true, Ordering::Release);
    sender.notify();
    SideResult {
        count,
        duration_ns: clock::ns_from_ticks(clock::ticks() - began),
        ..SideResult::default()
    }
}

/// Sends `count` notifications, each after a pause in which the receiver falls asleep. Then waits
/// until the receiver has counted the notification.
fn send_slowly(
    sender: &impl Notify,
    count: u64,
    crowded: bool,
    over: &AtomicBool,
    waits: &AtomicU64,
) -> SideResult {
    let mut result = SideResult { count, ..SideResult::default() };
    let began = clock::ticks();
    for turn in 1..=count {
        wait_gap(PAUSE_NS, crowded);
        if turn == count {
            // Release: pairs with the Acquire in receive().
            over.store(true, Ordering::Release);
        }
        let (cost, _) = time_notify(sender);
        result.total_ticks += cost;
        if result.costs_ticks.len() < COSTS_MAX {
            result.costs_ticks.push(cost);
        }
        // Acquire: pairs with the Release in receive().
        while waits.load(Ordering::Acquire) < turn {
            std::thread::yield_now();
        }
    }
    result.duration_ns = clock::ns_from_ticks(clock::ticks() - began);
    result
}

/// Waits for notifications until `over` is set. Stores the number of waits in `waits`.
fn receive(receiver: &mut impl Wait, over: &AtomicBool, waits: &AtomicU64) -> SideResult {
    let began = clock::ticks();
    let mut count = 0;
    loop {
        receiver.wait();
        count += 1;
        // Acquire: pairs with the Release in send() and send_slowly(). Read before the count is
        // published: send_slowly() announces the end only after it has seen the last but one count.
        let ends = over.load(Ordering::Acquire);
        // Release: pairs with the Acquire in send_slowly().
        waits.store(count, Ordering::Release);
        if ends {
            let duration_ns = clock::ns_from_ticks(clock::ticks() - began);
            return SideResult { count, duration_ns, ..SideResult::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_notify::{Config, adaptive};
    use std::thread;

    /// Returns the receiver's count of waits, and the count of its mechanism's statistics.
    fn counted(count: u64, slow: bool) -> (u64, u64) {
        let (sender, mut receiver) =
            adaptive::pair(Config::default()).expect("create a sender and a receiver");
        let (over, waits) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| match slow {
                true => send_slowly(&sender, count, true, &over, &waits),
                false => send(&sender, count, &over),
            });
            let result = receive(&mut receiver, &over, &waits);
            let ended = receiver.stats();
            (result.count, ended.found_pending + ended.by_spinning + ended.by_sleeping)
        })
    }

    #[test]
    fn spinning_and_sleeping_waits_are_counted_once() {
        for count in [1, 2, 1000] {
            let (counted, ended) = counted(count, false);
            assert_eq!(counted, ended);
            assert!((1..=count).contains(&counted), "{counted} wake-ups by {count} notifications");
        }
        for count in [1, 2, 300] {
            // Notified one by one, so that no two notifications merge.
            assert_eq!(counted(count, true), (count, count));
        }
    }
}
