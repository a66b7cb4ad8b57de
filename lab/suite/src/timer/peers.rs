//! Timers of other libraries, which count milliseconds.

use super::{MS_NS, Timers};
use handover_harness::Fault;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// Compared implementation: the cancellable wheel of the crate `hierarchical_hash_wheel_timer`.
pub(super) struct HashedWheel {
    wheel: QuadWheelWithOverflow<Entry>,
    now_ms: u64,
    started_count: u64,
}

/// Entry of the wheel: a timer's id and its key.
#[derive(Debug)]
struct Entry {
    /// Id of the timer.
    id: u64,
    key: u32,
}

impl CancellableTimerEntry for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

impl Timers for HashedWheel {
    type Id = u64;

    fn new(_: u32) -> Result<Self, Fault> {
        Ok(Self { wheel: QuadWheelWithOverflow::new(), now_ms: 0, started_count: 0 })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> u64 {
        self.started_count += 1;
        let entry = Rc::new(Entry { id: self.started_count, key });
        let delay = Duration::from_millis(deadline_ns.div_ceil(MS_NS) - self.now_ms);
        self.wheel
            .insert_ref_with_delay(entry, delay)
            .expect("the wheel refused a timer, though its deadline is in the future");
        self.started_count
    }

    #[inline(always)]
    fn cancel(&mut self, id: u64) -> bool {
        self.wheel.cancel(&id).is_ok()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        while self.now_ms < now_ns / MS_NS {
            self.now_ms += 1;
            keys.extend(self.wheel.tick().iter().map(|entry| entry.key));
        }
    }
}

/// Compared implementation: the `DelayQueue` of `tokio-util`, in a runtime with a paused clock.
pub(super) struct DelayQueueTimers {
    // Declared before the runtime, so that it is dropped first.
    queue: DelayQueue<u32>,
    began: Instant,
    now_ns: u64,
    runtime: Runtime,
}

impl Timers for DelayQueueTimers {
    type Id = Key;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime
            .map_err(|error| Fault::new(format!("cannot create a tokio runtime: {error}")))?;
        // Both read the runtime's clock; outside the runtime they would read another.
        let (began, queue) = {
            let _entered = runtime.enter();
            (Instant::now(), DelayQueue::with_capacity(timers_max as usize))
        };
        Ok(Self { queue, began, now_ns: 0, runtime })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> Key {
        self.queue.insert_at(key, self.began + Duration::from_nanos(deadline_ns))
    }

    #[inline(always)]
    fn cancel(&mut self, id: Key) -> bool {
        self.queue.try_remove(&id).is_some()
    }

    #[inline]
    fn expire(&mut self, now_ns: u64, keys: &mut Vec<u32>) {
        let passed = Duration::from_nanos(now_ns - self.now_ns);
        self.now_ns = now_ns;
        let queue = &mut self.queue;
        self.runtime.block_on(async {
            tokio::time::advance(passed).await;
            let poll = poll_fn(|context| {
                while let Poll::Ready(Some(expired)) = queue.poll_expired(context) {
                    keys.push(expired.into_inner());
                }
                Poll::Ready(())
            });
            // Without tokio's budget, which would force the task to yield now and then.
            tokio::task::unconstrained(poll).await;
        });
    }

    fn within<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let handle = self.runtime.handle().clone();
        let _entered = handle.enter();
        f(self)
    }
}
