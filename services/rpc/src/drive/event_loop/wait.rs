//! Waiting: spins, yields to peers on the same CPU, polls epoll, and sleeps until an event or a
//! deadline.

use super::{DeferringSink, EventLoop, ITERATIONS_PER_CLOCK_READ, RequestSink};
use crate::clock;
use crate::drive::call_monitor::CallOutcome;
use crate::drive::call_monitor::CallRole::Caller;
use crate::drive::link::AnyLink;
use crate::drive::sm::SharedMemoryLink;
use crate::engine::CallId;
use crate::stage;
use handover_base::affinity;
use handover_base::sync::shared::{Ordering, fence};
use std::sync::Arc;
use std::time::Duration;

/// Number of iterations between two clock reads while every iteration finds work. It is small,
/// because an iteration that copies data takes long.
const BUSY_ITERATIONS_PER_CLOCK_READ: u32 = 8;
// An iteration takes fifty times as long as a poll, and a message that arrives during an iteration
// waits for half an iteration on average: example rpc-noop-cost, 2026-11.
/// Number of polls for the next message of the only peer before other work is done. Together they
/// take 0.1 us.
const POLLS_OF_ONLY_PEER: u32 = 128;
/// Number of polls for the answer of a call before other work is done. Together they take less than
/// 1 us.
const POLLS_FOR_ANSWER: u32 = 1024;
/// Interval, in waits, at which a wait spins although yielding pays. This wait finds out if
/// spinning pays again.
const WAITS_PER_SPIN_PROBE: u32 = 64;
/// Number of turns of the loop that waits after which it checks whether to yield. Together they
/// take some µs.
const TURNS_PER_SHARE_CHECK: u32 = 16;
/// Minimum interval, in ns, between two yields of an endpoint that always finds work. Without them,
/// clients on its CPU would be served once a time slice.
const SHARE_INTERVAL_NS_MIN: u64 = 8_000;
/// Minimum time, in ns, between two exchanges of CPU numbers with the peers.
const CPU_CHECK_NS: u64 = 200_000;
/// Time by which each peer prolongs it, in ns.
const CPU_CHECK_NS_PER_PEER: u64 = 16_000;
/// Minimum time to the deadline for yielding, in ns. With less time left, yielding would miss the
/// deadline.
const YIELD_LEFT_NS_MIN: u64 = 50_000;
/// Maximum time for which an endpoint that stops still sends queued frames.
const STOP_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Polls briefly for the next message of the only peer, if memory is shared with it.
    #[inline]
    fn poll_only_peer(&self) {
        if let [slot] = self.peers.active[..]
            && let Some(AnyLink::Sm(link)) = &self.peers.slots[slot as usize].link
        {
            link.poll_for_message(POLLS_OF_ONLY_PEER);
        }
    }

    /// Polls briefly for the result of a call in shared memory. Returns `true` if it has arrived
    /// and is in [`EventLoop::body`]. Otherwise nothing has changed.
    #[inline]
    pub(crate) fn receive_answer_from_shared_memory(&mut self, id: CallId) -> bool {
        // The iteration that reads the clock serves everything.
        if !self.spins()
            || self.iterations_since_clock_read + 1 >= ITERATIONS_PER_CLOCK_READ
            || self.has_more_to_do()
        {
            return false;
        }
        self.iterations_since_clock_read += 1;
        let [slot] = self.peers.active[..] else { return false };
        let key = self.peers.slot_key(slot);
        if self.calls.is_pending(id, key)
            && let Some(AnyLink::Sm(link)) = &mut self.peers.slots[slot as usize].link
            && link.take_answer(id.word(), POLLS_FOR_ANSWER, &mut self.body)
        {
            self.call_monitor.record_end(
                Caller,
                key,
                id.word(),
                self.body.len(),
                CallOutcome::Result,
            );
            self.calls.remove(id);
            stage::record_completed(id.word());
            return true;
        }
        false
    }

    /// Sleeps in a blocking read of the only peer's stream until that peer has sent data. Returns
    /// `false` without sleeping if anything else could need this thread, so that it must wait in
    /// epoll.
    fn sleep_in_read(&mut self) -> bool {
        #[cfg(feature = "signal-dump")]
        let has_signal = self.signal_dump.is_some();
        #[cfg(not(feature = "signal-dump"))]
        let has_signal = false;
        let has_handles = Arc::strong_count(&self.inbox) > 1;
        // Acquire: pairs with the Release in the drop of the last other handle: what was requested
        // by it since the last iteration is seen here.
        fence(Ordering::Acquire);
        let has_others = has_handles
            || self.inbox.mailbox.has_items()
            || !self.listeners.is_empty()
            || has_signal
            || !self.handshakes.is_empty()
            || self.bulk.has_lingering_memory();
        let [slot] = self.peers.active[..] else { return false };
        if has_others || self.has_more_to_do() {
            return false;
        }
        self.peers.set_receivable(slot);
        self.peers.slots[slot as usize].link.as_mut().is_some_and(|link| link.wait_in_read())
    }

    /// Returns `true` if an iteration has more to do than to receive messages.
    #[inline]
    fn has_more_to_do(&self) -> bool {
        self.peers.has_queued_frames
            || self.has_deferred_work
            || self.bulk.has_data_to_transfer()
            || !self.reported_closed.is_empty()
    }

    /// Runs one more iteration; if it finds no work, sleeps until an event or `deadline_ns`.
    /// Returns `true` if the iteration has found work.
    fn sleep(&mut self, sink: &mut impl RequestSink, deadline_ns: u64) -> bool {
        self.share_cpu();
        self.peers.for_each_shared_memory_link(SharedMemoryLink::declare_sleep);
        self.inbox.mailbox.declare_sleep();
        let did = self.run_iteration(sink, false);
        if !did {
            let deadline_ns = deadline_ns.min(self.next_deadline_ns());
            let timeout_ns = match deadline_ns {
                u64::MAX => None,
                at_ns => Some(at_ns.saturating_sub(clock::now_ns())),
            };
            let timeout_ns = timeout_ns.into_iter().chain(self.peers.ucx.arm()).min();
            self.stats.sleeps_count += 1;
            if timeout_ns.is_some() || !self.sleep_in_read() {
                self.poll(timeout_ns);
            }
            self.yielder.record_cpu_left();
            self.yielder.record_sleep(None);
        }
        self.inbox.mailbox.declare_awake();
        self.peers.for_each_shared_memory_link(SharedMemoryLink::declare_awake);
        did
    }

    /// Returns `true` if this endpoint spins, for ever or for a while, before it sleeps.
    #[inline]
    fn spins(&self) -> bool {
        self.config.spin_forever || self.spin_ticks_max > 0
    }

    /// Yields once if this thread has worked for a while, and a peer needs its CPU. Called now and
    /// then.
    fn share_cpu(&mut self) {
        let now_ticks = clock::ticks();
        if now_ticks.wrapping_sub(self.last_cpu_check_ticks) >= self.cpu_check_interval_ticks {
            self.last_cpu_check_ticks = now_ticks;
            self.compare_cpus();
        }
        if self.is_cpu_shared {
            self.yielder.share_cpu(SHARE_INTERVAL_NS_MIN);
        }
    }

    /// Exchanges CPU numbers with the peers in shared memory. Tells each peer how many others need
    /// its CPU, and finds out how many need this thread's CPU.
    #[cold]
    fn compare_cpus(&mut self) {
        let cpu_plus_one = affinity::current_cpu().saturating_add(1);
        let mut cpus = std::mem::take(&mut self.cpus_buffer);
        cpus.clear();
        cpus.push(cpu_plus_one);
        self.peers.for_each_shared_memory_link(|link| cpus.push(link.exchange_cpus(cpu_plus_one)));
        cpus.sort_unstable();
        let count_others = |cpu: u32| match cpu {
            0 => 0,
            // Without the one that runs there.
            _ => (cpus.partition_point(|&it| it <= cpu) - cpus.partition_point(|&it| it < cpu))
                .saturating_sub(1) as u32,
        };
        let mut sharers = count_others(cpu_plus_one);
        self.peers.for_each_shared_memory_link(|link| {
            let peer_cpu = link.exchange_cpus(cpu_plus_one);
            sharers = sharers.max(link.exchange_sharers(count_others(peer_cpu)));
        });
        self.is_cpu_shared = sharers > 0;
        self.yielder.set_sharers(sharers);
        let interval_ns = CPU_CHECK_NS + CPU_CHECK_NS_PER_PEER * cpus.len() as u64;
        self.cpu_check_interval_ticks = clock::ticks_from_ns(interval_ns);
        self.cpus_buffer = cpus;
    }

    /// Returns `true` if this wait should yield at once instead of spinning, as recent waits ended
    /// by yielding. One wait in [`WAITS_PER_SPIN_PROBE`] spins all the same.
    fn skips_spin(&mut self) -> bool {
        if !self.is_cpu_shared || self.config.spin_forever || !self.yielder.is_yielding() {
            return false;
        }
        self.waits_unspun += 1;
        if self.waits_unspun < WAITS_PER_SPIN_PROBE {
            return true;
        }
        self.waits_unspun = 0;
        // If the spin finds nothing, the wait yields, which is recorded again.
        self.yielder.record_found_by_polling();
        false
    }

    /// Yields while that pays, until an iteration finds work. Returns `true` if one has.
    fn yield_until_work(&mut self, sink: &mut impl RequestSink) -> bool {
        let mut wait = self.yielder.start_wait();
        while self.yielder.yield_once(&mut wait) {
            if self.run_iteration(sink, false) {
                self.yielder.record_found(&wait);
                return true;
            }
        }
        false
    }

    /// Runs the event loop until `done` returns `true`; returns `false` if the deadline passes
    /// first. Spins, yields to peers on this CPU, and sleeps, as configured.
    #[inline]
    pub(crate) fn run_until<S: RequestSink>(
        &mut self,
        sink: &mut S,
        deadline_ns: u64,
        mut done: impl FnMut(&mut Self, bool) -> bool,
    ) -> bool {
        let mut spins = self.spins();
        let (mut turns, mut idle_turns, mut idle_ticks, mut busy_turns) = (0u32, 0u32, 0, 0u32);
        loop {
            let did = self.run_iteration(sink, spins);
            turns = turns.wrapping_add(1);
            let is_due = turns.is_multiple_of(TURNS_PER_SHARE_CHECK)
                || self.iterations_since_clock_read == 0;
            if is_due && !self.config.spin_forever {
                self.share_cpu();
            }
            if done(self, did) {
                return true;
            }
            if did {
                idle_turns = 0;
                busy_turns = busy_turns.wrapping_add(1);
                if deadline_ns != u64::MAX
                    && busy_turns.is_multiple_of(BUSY_ITERATIONS_PER_CLOCK_READ)
                    && clock::now_ns() >= deadline_ns
                {
                    return false;
                }
                continue;
            }
            idle_turns = idle_turns.wrapping_add(1);
            if idle_turns == 1 {
                spins = self.spins() && !self.skips_spin();
            }
            if spins {
                self.poll_only_peer();
                if !idle_turns.is_multiple_of(ITERATIONS_PER_CLOCK_READ) {
                    continue;
                }
            }
            let now_ticks = clock::ticks();
            if idle_turns == ITERATIONS_PER_CLOCK_READ {
                idle_ticks = now_ticks;
            }
            if deadline_ns != u64::MAX && clock::now_ns() >= deadline_ns {
                return false;
            }
            let spent = !spins || now_ticks.wrapping_sub(idle_ticks) >= self.spin_ticks_max;
            if self.config.spin_forever || !spent {
                continue;
            }
            idle_turns = 0;
            let yields = self.spins()
                && self.is_cpu_shared
                && (deadline_ns == u64::MAX || deadline_ns > clock::now_ns() + YIELD_LEFT_NS_MIN);
            let did = yields && self.yield_until_work(sink) || self.sleep(sink, deadline_ns);
            if did && done(self, true) {
                return true;
            }
        }
    }

    /// Sends queued frames before a stop, for [`STOP_FLUSH_TIMEOUT`] at most. Requests are deferred
    /// meanwhile, and further stop requests count as the one that has come.
    pub(in crate::drive) fn flush_before_stop(&mut self) {
        if self.peers.has_queued_frames {
            let deadline_ns = clock::after(STOP_FLUSH_TIMEOUT);
            self.run_until(&mut DeferringSink, deadline_ns, |it, _| !it.peers.has_queued_frames);
            self.is_stop_requested = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DeferringSink;
    use crate::clock::after;
    use crate::drive::event_loop::sealed::Driver;
    use crate::{Calling, Config, Endpoint, Method};
    use handover_base::affinity;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn work_of_the_last_iteration_before_a_sleep_ends_a_wait_for_work() {
        let config = Config::default().spin_max(Duration::ZERO);
        let mut endpoint = Endpoint::new(config).expect("create an endpoint");
        let deadline_ns = after(Duration::from_secs(10));
        let mut is_requested = false;
        let found = endpoint.event_loop().run_until(&mut DeferringSink, deadline_ns, |it, did| {
            if !did && !is_requested {
                // After an iteration without work, and before the one that precedes the sleep.
                it.inbox.request_stop();
                is_requested = true;
            }
            did
        });
        assert!(found, "the wait lasted until its deadline");
    }

    #[test]
    fn stop_by_the_last_other_handle_keeps_the_thread_from_sleeping_in_a_read() {
        let mut server = Endpoint::new(Config::default()).expect("create an endpoint");
        let address = server.listen(&"uds://".parse().expect("parse the address")).expect("listen");
        let stop_server = server.stopper();
        let server = thread::spawn(move || server.serve());
        let mut client = Endpoint::new(Config::default()).expect("create an endpoint");
        client.connect(&address).expect("a server");
        let stopper = client.stopper();
        let event_loop = client.event_loop();
        event_loop.inbox.mailbox.declare_sleep();
        // After the last iteration has found nothing to do.
        thread::spawn(move || stopper.stop()).join().expect("the other thread panicked");
        // Ends the read, if there is one.
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            stop_server.stop();
        });
        assert!(!event_loop.sleep_in_read(), "the thread slept although a stop was requested");
        later.join().expect("the other thread panicked");
        server.join().expect("the other thread panicked");
    }

    /// Calls a server whose thread runs on `server_cpu` until this thread, on `client_cpu`, knows
    /// whether it shares its CPU as `expected`; returns `false` if it does not learn that within 10
    /// s.
    fn learns_of_sharing(client_cpu: u32, server_cpu: u32, expected: bool) -> bool {
        let mut server = Endpoint::new(Config::default()).expect("create an endpoint");
        server.register("noop", 0, |_, ()| Ok(())).expect("register a procedure");
        let address = server.listen(&"sm://".parse().expect("parse the address")).expect("listen");
        let stop_server = server.stopper();
        let server = thread::spawn(move || {
            affinity::pin(server_cpu).expect("pin the server");
            server.serve();
        });
        affinity::pin(client_cpu).expect("pin the client");
        let mut client = Endpoint::new(Config::default()).expect("create an endpoint");
        let peer = client.connect(&address).expect("a server");
        let start = Instant::now();
        let mut learns = || {
            client.call::<_, ()>(peer, Method::new("noop"), &()).expect("call");
            // Both have compared their CPUs several times by then.
            start.elapsed() > Duration::from_millis(50)
                && client.event_loop().is_cpu_shared == expected
        };
        let learned = std::iter::repeat_with(&mut learns)
            .take_while(|_| start.elapsed() < Duration::from_secs(10))
            .any(|learned| learned);
        stop_server.stop();
        server.join().expect("the other thread panicked");
        learned
    }

    #[test]
    fn ends_learn_whether_they_share_a_cpu() {
        let cpus = affinity::thread_cpus();
        thread::spawn(move || {
            assert!(learns_of_sharing(cpus[0], cpus[0], true));
            if let [first, second, ..] = cpus[..] {
                assert!(learns_of_sharing(first, second, false));
            }
        })
        .join()
        .expect("the client panicked");
    }
}
