//! Threads for handlers that take their time, and the way back to the endpoint's own thread.

use crate::Config;
use crate::engine::{PeerKey, Refusal};
use handover_base::affinity;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What a handler makes of arguments: the result, or the words of its refusal, behind what is in the
/// vector.
pub(crate) type Work = dyn Fn(&[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send + Sync;

/// A request for the pool.
pub(crate) struct Job {
    pub(crate) work: Arc<Work>,
    pub(crate) arguments: Vec<u8>,
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) one_way: bool,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) one_way: bool,
    pub(crate) answer: Result<(), Refusal>,
    pub(crate) body: Vec<u8>,
}

/// What other threads have for an endpoint.
pub(crate) struct Inbox {
    done: Mutex<Vec<Done>>,
    /// Something is in `done`, or `stop` was set.
    any: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    bell: OwnedFd,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left a whole queue: each change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            done: Mutex::default(),
            any: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    fn push(&self, done: Done) {
        locked(&self.done).push(done);
        self.tell();
    }

    pub(crate) fn stop(&self) {
        // Relaxed: told of by `any`.
        self.stop.store(true, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        // Release: publishes `stop` to the Acquire in has_any(); what is in `done` has its lock.
        self.any.store(true, Ordering::Release);
        // SeqCst: pairs with the fence between declaring sleep and the last look, in State::sleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // Refused only when a ring is pending already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// To be followed by a fence and by one more look; or false, when awake again.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        // Relaxed: the fence in State::sleep orders it.
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Acquire: pairs with the Release in tell().
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self, into: &mut Vec<Done>) {
        // Relaxed: what comes after this sets it again, behind its lock.
        self.any.store(false, Ordering::Relaxed);
        into.append(&mut locked(&self.done));
    }

    /// Whether it was told to stop since last asked.
    pub(crate) fn take_stop(&self) -> bool {
        // Relaxed: a flag alone; where it was told of by `any`, the look at that has ordered it.
        self.stop.swap(false, Ordering::Relaxed)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ended: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    there_is_work: Condvar,
    inbox: Arc<Inbox>,
}

/// The threads. Dropping it ends them, behind the handlers that they are in.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    queue_max: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Pool {
    /// As many threads as the configuration says, pinned in turn to the CPUs that it names.
    pub(crate) fn start(config: &Config, inbox: Arc<Inbox>) -> std::io::Result<Self> {
        let Config { pool_threads, pool_queue_max, ref pool_cpus, .. } = *config;
        let (queue, there_is_work) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { queue, there_is_work, inbox });
        let mut pool = Self { shared, threads: Vec::new(), queue_max: pool_queue_max as usize };
        let mut cpus = pool_cpus.iter().copied().cycle();
        for number in 0..pool_threads {
            let (shared, cpu) = (Arc::clone(&pool.shared), cpus.next());
            let (tell, told) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("rpc-handler-{number}"));
            pool.threads.push(thread.spawn(move || {
                let pinned = cpu.map_or(Ok(()), affinity::pin);
                let is_pinned = pinned.is_ok();
                // Somebody waits for it.
                let _ = tell.send(pinned);
                if is_pinned {
                    work(&shared);
                }
            })?);
            match told.recv() {
                Ok(pinned) => pinned.map_err(std::io::Error::other)?,
                Err(_) => return Err(std::io::Error::other("a thread of the pool has ended")),
            }
        }
        Ok(pool)
    }

    /// Queues a request, or gives it back when too many wait.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut queue = locked(&self.shared.queue);
        if queue.jobs.len() >= self.queue_max {
            return Err(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.there_is_work.notify_one();
        Ok(())
    }

    /// Takes back a request that has not begun.
    pub(crate) fn cancel(&self, peer: PeerKey, call: u64) {
        locked(&self.shared.queue).jobs.retain(|job| job.peer != peer || job.call != call);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = locked(&self.shared.queue);
        queue.ended = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.there_is_work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread ends of nothing but `ended`: handlers' panics are caught.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut queue = locked(&shared.queue);
    loop {
        if queue.ended {
            return;
        }
        let Some(job) = queue.jobs.pop_front() else {
            queue = shared.there_is_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        let mut body = Vec::new();
        let answer = caught(|| (job.work)(&job.arguments, &mut body));
        let Job { peer, call, one_way, .. } = job;
        shared.inbox.push(Done { peer, call, one_way, answer, body });
        queue = locked(&shared.queue);
    }
}

/// A handler's panic is the caller's refusal, and nobody else's.
pub(crate) fn caught(handler: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    // What the handler had borrowed is its own, or the vector of its answer, which is thrown away.
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or(Err(Refusal::Panicked))
}
