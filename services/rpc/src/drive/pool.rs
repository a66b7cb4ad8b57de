//! Pool of threads or fibers for slow handlers.

use crate::PoolConfig;
use crate::engine::{Backlog, PeerKey, Refusal};
use crate::mailbox::lock_ignoring_poison;
use handover_base::{affinity, unwind};
#[cfg(feature = "fibers")]
use handover_fiber::Runtime;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{mem, process};

/// Maximum ratio of one peer's waiting requests to the free slots of the pool's queue.
const REQUESTS_PER_FREE_SLOT_MAX: usize = 4;

/// Handler for the pool. It appends the result, or the text of a refusal, to the vector.
pub(crate) type PooledHandler = dyn Fn(&[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send + Sync;

/// Request for the pool, with its handler.
pub(crate) struct PoolJob {
    /// Handler of the procedure.
    pub(crate) work: Arc<PooledHandler>,
    pub(crate) arguments: Vec<u8>,
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) is_one_way: bool,
}

/// Answer from a thread of the pool, to be sent by the endpoint's thread.
#[derive(Debug)]
pub(crate) struct PoolAnswer {
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) answer: Result<(), Refusal>,
    /// Result of the call, or text of the refusal.
    pub(crate) body: Vec<u8>,
}

/// Queues of the peers' requests for the pool. One request of each peer is taken in turn.
#[derive(Default)]
struct PoolQueue {
    peers: HashMap<PeerKey, PeerJobs>,
    /// Queue, without duplicates, of the peers with a request that may start.
    scheduled: VecDeque<PeerKey>,
    /// Number of waiting requests of all peers.
    jobs_count: usize,
    /// Total size of the waiting requests and their arguments, in bytes.
    jobs_bytes: usize,
    /// Number of fibers that were spawned and have not exited. Each has a stack even if its request
    /// was withdrawn. The number is 0 if the pool uses threads.
    fibers_count: usize,
    /// Number of spawned fibers that have not started to run.
    #[cfg(feature = "fibers")]
    unstarted_fibers_count: usize,
    is_stopped: bool,
}

/// Waiting requests of one peer, and the size of its unsent answers.
#[derive(Default)]
struct PeerJobs {
    jobs: Backlog<PoolJob>,
    is_scheduled: bool,
    /// Number of bytes of finished answers that the endpoint's thread has not received yet.
    finished_bytes: usize,
    /// Number of bytes queued for sending to the peer, as last reported by the endpoint.
    queued_bytes: usize,
}

impl PeerJobs {
    /// Returns the size of the peer's answers that were not sent yet, in bytes.
    fn unsent_bytes(&self) -> usize {
        self.finished_bytes + self.queued_bytes
    }
}

impl PoolJob {
    /// Returns the memory that the request takes in the queue, in bytes.
    fn bytes(&self) -> usize {
        // Twice the size of the job, for the queue's own memory.
        2 * size_of::<Self>() + self.arguments.len()
    }
}

impl PoolQueue {
    /// Appends a request, and returns its position among the requests of its peer.
    fn push(&mut self, job: PoolJob, pause_above_bytes: usize) -> u64 {
        let (peer, bytes) = (job.peer, job.bytes());
        let call = (!job.is_one_way).then_some(job.call);
        self.jobs_count += 1;
        self.jobs_bytes += bytes;
        let position = self.peers.entry(peer).or_default().jobs.push(call, bytes, job);
        self.schedule(peer, pause_above_bytes);
        position
    }

    /// Schedules `peer` if it has a waiting request that may start. A request may not start if the
    /// peer has more than `pause_above_bytes` bytes of unsent answers. Returns `true` if the peer
    /// was not scheduled before and is now.
    fn schedule(&mut self, peer: PeerKey, pause_above_bytes: usize) -> bool {
        let Some(its) = self.peers.get_mut(&peer) else { return false };
        let begins =
            !its.is_scheduled && !its.jobs.is_empty() && its.unsent_bytes() <= pause_above_bytes;
        if begins {
            its.is_scheduled = true;
            self.scheduled.push_back(peer);
        }
        begins
    }

    /// Removes and returns the next request to handle; takes the peers in turn.
    fn pop_job(&mut self, pause_above_bytes: usize) -> Option<PoolJob> {
        loop {
            let peer = self.scheduled.pop_front()?;
            let Some(its) = self.peers.get_mut(&peer) else { continue };
            its.is_scheduled = false;
            if its.unsent_bytes() > pause_above_bytes {
                continue; // update_unsent_bytes() schedules the peer when it has read answers.
            }
            let Some(job) = its.jobs.pop() else { continue };
            self.subtract_job(&job);
            self.schedule(peer, pause_above_bytes);
            return Some(job);
        }
    }

    /// Subtracts a removed request from the counts of the queue.
    fn subtract_job(&mut self, job: &PoolJob) {
        self.jobs_count -= 1;
        self.jobs_bytes -= job.bytes();
    }
}

/// State that the pool shares with its threads or fibers.
struct PoolShared {
    queue: Mutex<PoolQueue>,
    /// Notified when a request may start, or when the pool stops.
    has_work: Condvar,
    /// Function that passes an answer to the endpoint's thread.
    deliver: Box<dyn Fn(PoolAnswer) + Send + Sync>,
    /// Size of a peer's unsent answers, in bytes, above which its waiting requests do not start.
    pause_above_bytes: usize,
    /// Size of a peer's unsent answers, in bytes, above which its further answers are dropped.
    unsent_bytes_max: usize,
}

/// Threads or fibers that run the handlers.
enum Workers {
    Threads(Vec<JoinHandle<()>>),
    /// One fiber for each request.
    #[cfg(feature = "fibers")]
    Fibers(Runtime),
}

/// Pool of threads or fibers. Dropping it stops them after their current handlers.
pub(crate) struct Pool {
    shared: Arc<PoolShared>,
    workers: Workers,
    /// Maximum number of waiting requests.
    queue_max: usize,
    /// Maximum total size of the waiting requests, in bytes.
    queue_bytes_max: usize,
    /// Process that has the threads; a forked child does not.
    process: u32,
}

impl Pool {
    /// Starts the configured number of threads for handlers or for their fibers. They are pinned to
    /// the configured CPUs in turn.
    pub(crate) fn start(
        config: &PoolConfig,
        unsent_bytes_max: usize,
        deliver: impl Fn(PoolAnswer) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let (queue, has_work) = (Mutex::default(), Condvar::new());
        let pause_above_bytes = unsent_bytes_max / 2;
        let deliver = Box::new(deliver);
        let shared = PoolShared { queue, has_work, deliver, pause_above_bytes, unsent_bytes_max };
        let shared = Arc::new(shared);
        let queue_max = config.queue_max as usize;
        let queue_bytes_max = config.queue_bytes_max as usize;
        let process = process::id();
        #[cfg(feature = "fibers")]
        if config.fibers && config.threads > 0 {
            let workers = Workers::Fibers(start_fiber_runtime(config)?);
            return Ok(Self { shared, workers, queue_max, queue_bytes_max, process });
        }
        let workers = Workers::Threads(Vec::new());
        let mut pool = Self { shared, workers, queue_max, queue_bytes_max, process };
        let mut cpus = config.cpus.iter().copied().cycle();
        for number in 0..config.threads {
            let (shared, cpu) = (Arc::clone(&pool.shared), cpus.next());
            let (start, started) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("rpc-handler-{number}"));
            let thread = thread.spawn(move || {
                let pinned = cpu.map_or(Ok(()), affinity::pin);
                let is_pinned = pinned.is_ok();
                // start() waits for this message.
                let _ = start.send(pinned);
                if is_pinned {
                    run_worker(&shared);
                }
            })?;
            match &mut pool.workers {
                Workers::Threads(threads) => threads.push(thread),
                #[cfg(feature = "fibers")]
                Workers::Fibers(_) => {}
            }
            let exited = |_| std::io::Error::other("a thread of the pool exited while it started");
            started.recv().map_err(exited)?.map_err(std::io::Error::other)?;
        }
        Ok(pool)
    }

    /// Queues a request, or returns it if too many are queued.
    ///
    /// A peer may have [`REQUESTS_PER_FREE_SLOT_MAX`] times as many requests waiting as there are
    /// free slots (a dynamic threshold: Choudhury and Hahne, IEEE/ACM Transactions on Networking
    /// 6(2), 1998). So one peer takes at most four fifths of the queue, and others are served.
    pub(crate) fn push_job(&self, job: PoolJob) -> Result<(), PoolJob> {
        let mut queue = lock_ignoring_poison(&self.shared.queue);
        // The number of threads bounds running requests; fibers are as many as requests, so they
        // count here.
        let room_count = self.queue_max.saturating_sub(queue.jobs_count.max(queue.fibers_count));
        let room_bytes = self.queue_bytes_max.saturating_sub(queue.jobs_bytes);
        let waiting = queue.peers.get(&job.peer).map(|it| (it.jobs.len(), it.jobs.queued_bytes()));
        let (peer_count, peer_bytes) = waiting.unwrap_or_default();
        let is_full = room_count == 0 || job.bytes() > room_bytes;
        let has_too_many = peer_count >= room_count.saturating_mul(REQUESTS_PER_FREE_SLOT_MAX)
            || peer_bytes > room_bytes.saturating_mul(REQUESTS_PER_FREE_SLOT_MAX);
        if is_full || has_too_many {
            return Err(job);
        }
        let peer = job.peer;
        let position = queue.push(job, self.shared.pause_above_bytes);
        let Err(mut queue) = self.wake(queue, Condvar::notify_one) else { return Ok(()) };
        // Another fiber may have taken the request.
        let its = queue.peers.get_mut(&peer);
        let Some(job) = its.and_then(|it| it.jobs.remove(position)) else { return Ok(()) };
        queue.subtract_job(&job);
        Err(job)
    }

    /// Updates the size of a peer's unsent answers. Starts requests that waited for the peer to
    /// read answers. The endpoint has taken `taken_bytes` from the pool, and `queued_bytes` are in
    /// its send queue. Returns the requests for which there is no memory for a fiber.
    pub(crate) fn update_unsent_bytes(
        &self,
        peer: PeerKey,
        taken_bytes: usize,
        queued_bytes: usize,
    ) -> Vec<PoolJob> {
        let mut queue = lock_ignoring_poison(&self.shared.queue);
        let Some(its) = queue.peers.get_mut(&peer) else { return Vec::new() };
        its.finished_bytes = its.finished_bytes.saturating_sub(taken_bytes);
        its.queued_bytes = queued_bytes;
        if !queue.schedule(peer, self.shared.pause_above_bytes) {
            return Vec::new();
        }
        // The fibers that were spawned for these requests have found too many unsent answers, and
        // exited.
        match self.wake(queue, Condvar::notify_all) {
            Ok(()) => Vec::new(),
            Err(mut queue) => queue.take_jobs_of(peer),
        }
    }

    /// Wakes waiting threads by calling `notify`, or starts a fiber.
    ///
    /// # Errors
    /// The queue, if there is no memory for the fiber's stack.
    fn wake<'a>(
        &'a self,
        queue: MutexGuard<'a, PoolQueue>,
        notify: fn(&Condvar),
    ) -> Result<(), MutexGuard<'a, PoolQueue>> {
        match &self.workers {
            Workers::Threads(_) => {
                drop(queue);
                notify(&self.shared.has_work);
                Ok(())
            }
            #[cfg(feature = "fibers")]
            Workers::Fibers(runtime) => {
                let mut queue = queue;
                queue.add_fiber();
                drop(queue);
                let shared = Arc::clone(&self.shared);
                runtime.spawn_detached(move || work_once(&shared)).map_err(|_| {
                    let mut queue = lock_ignoring_poison(&self.shared.queue);
                    queue.remove_fiber();
                    queue
                })
            }
        }
    }

    /// Removes request `call` of `peer` from the queue, if it has not started.
    pub(crate) fn cancel_job(&self, peer: PeerKey, call: u64) {
        let mut queue = lock_ignoring_poison(&self.shared.queue);
        let its = queue.peers.get_mut(&peer);
        let job = its.and_then(|it| it.jobs.cancel(call));
        job.iter().for_each(|job| queue.subtract_job(job));
        // Dropping the last request of a handler may drop what the handler owns, which must not
        // happen under the lock.
        drop(queue);
        drop(job);
    }

    pub(crate) fn remove_peer_jobs(&self, peer: PeerKey) {
        let mut queue = lock_ignoring_poison(&self.shared.queue);
        let jobs = queue.take_jobs_of(peer);
        queue.peers.remove(&peer);
        drop(queue);
        drop(jobs);
    }
}

impl PoolQueue {
    /// Counts a fiber that is about to be spawned.
    #[cfg(feature = "fibers")]
    fn add_fiber(&mut self) {
        self.fibers_count += 1;
        self.unstarted_fibers_count += 1;
    }

    /// Undoes add_fiber() for a fiber that could not be spawned.
    #[cfg(feature = "fibers")]
    fn remove_fiber(&mut self) {
        self.fibers_count -= 1;
        self.unstarted_fibers_count -= 1;
    }

    fn take_jobs_of(&mut self, peer: PeerKey) -> Vec<PoolJob> {
        let Some(its) = self.peers.get_mut(&peer) else { return Vec::new() };
        let jobs: Vec<PoolJob> = std::iter::from_fn(|| its.jobs.pop()).collect();
        jobs.iter().for_each(|job| self.subtract_job(job));
        jobs
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if process::id() != self.process {
            // A thread of the parent may have held the queue's lock at the fork.
            mem::forget(mem::replace(&mut self.workers, Workers::Threads(Vec::new())));
            return;
        }
        let mut queue = lock_ignoring_poison(&self.shared.queue);
        queue.is_stopped = true;
        let peers = std::mem::take(&mut queue.peers);
        drop(queue);
        drop(peers);
        self.shared.has_work.notify_all();
        match &mut self.workers {
            Workers::Threads(threads) => threads.drain(..).for_each(|thread| {
                // A thread ends only when `is_stopped` is set: panics of handlers are caught.
                let _ = thread.join();
            }),
            // Dropping the runtime waits for the fibers.
            #[cfg(feature = "fibers")]
            Workers::Fibers(_) => {}
        }
    }
}

/// Body of a thread: handles requests until the pool is stopped.
fn run_worker(shared: &PoolShared) {
    let mut queue = lock_ignoring_poison(&shared.queue);
    loop {
        if queue.is_stopped {
            return;
        }
        let Some(job) = queue.pop_job(shared.pause_above_bytes) else {
            queue = shared.has_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        handle_job(job, shared);
        queue = lock_ignoring_poison(&shared.queue);
    }
}

/// Body of a fiber: handles one waiting request, if there is one. Only peers that read their
/// answers are served.
#[cfg(feature = "fibers")]
fn work_once(shared: &Arc<PoolShared>) {
    let mut queue = lock_ignoring_poison(&shared.queue);
    queue.unstarted_fibers_count -= 1;
    loop {
        let job = queue.pop_job(shared.pause_above_bytes);
        // The fibers of a peer that does not read its answers have exited, so each fiber that
        // starts provides for the next request.
        let lacks_fiber = queue.unstarted_fibers_count == 0 && !queue.scheduled.is_empty();
        if lacks_fiber {
            queue.add_fiber();
        }
        drop(queue);
        let is_last = !lacks_fiber || spawn_next(shared);
        if let Some(job) = job {
            handle_job(job, shared);
        }
        queue = lock_ignoring_poison(&shared.queue);
        if is_last {
            break;
        }
    }
    queue.fibers_count -= 1;
}

/// Spawns a fiber that add_fiber() has counted; returns `false` if there is no memory for its
/// stack. Then the caller handles the next request itself.
#[cfg(feature = "fibers")]
fn spawn_next(shared: &Arc<PoolShared>) -> bool {
    let next = Arc::clone(shared);
    let spawned = handover_fiber::spawn_detached(move || work_once(&next));
    if spawned.is_err() {
        lock_ignoring_poison(&shared.queue).remove_fiber();
    }
    spawned.is_ok()
}

/// Runs the handler of a request, and delivers its answer.
fn handle_job(job: PoolJob, shared: &PoolShared) {
    let mut body = Vec::new();
    let mut answer = catch_panic(|| (job.work)(&job.arguments, &mut body));
    let PoolJob { peer, call, is_one_way, .. } = job;
    if is_one_way {
        return;
    }
    let mut queue = lock_ignoring_poison(&shared.queue);
    let Some(its) = queue.peers.get_mut(&peer) else { return }; // The peer has been disconnected.
    if its.unsent_bytes() > shared.unsent_bytes_max {
        (answer, body) = (Err(Refusal::Unsent), Vec::new());
    }
    its.finished_bytes += body.len();
    drop(queue);
    (shared.deliver)(PoolAnswer { peer, call, answer, body });
}

#[cfg(feature = "fibers")]
fn start_fiber_runtime(config: &PoolConfig) -> std::io::Result<Runtime> {
    let workers_count = config.threads;
    let cpus = match &config.cpus[..] {
        [] => Vec::new(),
        named => named.iter().copied().cycle().take(workers_count as usize).collect(),
    };
    let stealing = handover_fiber::Stealing::UnstartedFibers;
    let config = handover_fiber::Config::workers(workers_count).cpus(cpus).stealing(stealing);
    Runtime::new(config).map_err(std::io::Error::other)
}

/// Runs a handler, and converts a panic into [`Refusal::Panicked`].
pub(crate) fn catch_panic(handler: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    // The handler borrows only its own state and the answer's vector, and the answer is discarded
    // after a panic.
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or_else(|payload| {
        unwind::drop_payload(payload);
        Err(Refusal::Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::panic_any;

    /// Payload of a panic whose destructor panics.
    struct PanickingPayload;

    impl Drop for PanickingPayload {
        fn drop(&mut self) {
            panic!("from the destructor of a payload");
        }
    }

    #[test]
    fn panic_is_a_refusal_although_the_destructor_of_its_payload_panics() {
        assert_eq!(catch_panic(|| panic_any(PanickingPayload)), Err(Refusal::Panicked));
    }
}
