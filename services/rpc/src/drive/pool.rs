//! Pool of threads or fibers for slow handlers, and the inbox for results and requests of other
//! threads.

use super::state::State;
use super::timing::Callback;
use crate::engine::{Backlog, PeerKey, Refusal};
use crate::{CallError, Config};
use handover_base::affinity;
use handover_fiber::Runtime;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Maximum number of waiting requests of a peer, in terms of the room that is left for others.
const ROOM_MULTIPLE: usize = 4;

/// Pooled handler: appends the result, or the text of a refusal, to the vector.
pub(crate) type Work = dyn Fn(&[u8], &mut Vec<u8>) -> Result<(), Refusal> + Send + Sync;

/// Request for the pool.
pub(crate) struct Job {
    pub(crate) work: Arc<Work>,
    pub(crate) arguments: Vec<u8>,
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) one_way: bool,
}

/// Answer to a pooled request.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) peer: PeerKey,
    pub(crate) call: u64,
    pub(crate) answer: Result<(), Refusal>,
    pub(crate) body: Vec<u8>,
}

/// Work of another thread for the endpoint's own thread.
pub(crate) enum Post {
    /// Run at once: starts a call, which does not block.
    Call(Box<dyn FnOnce(&mut State) + Send>),
    /// Run when no handler runs.
    Errand(Callback),
}

#[derive(Default)]
struct Posts {
    /// `true` while a thread drives the endpoint and will take posts.
    open: bool,
    waiting: Vec<Post>,
}

/// Queue from other threads to an endpoint.
pub(crate) struct Inbox {
    done: Mutex<Vec<Done>>,
    posts: Mutex<Posts>,
    /// `true` if `done` or `posts` is not empty, or `stop` was set.
    any: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    bell: OwnedFd,
    /// Maximum number of calls and errands of other threads that may wait.
    posts_max: usize,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned queue is consistent: each change of it is a single call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new(posts_max: usize) -> Result<Self, Errno> {
        Ok(Self {
            posts_max,
            done: Mutex::default(),
            posts: Mutex::default(),
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

    /// Accepts posts from now on.
    pub(crate) fn open(&self) {
        locked(&self.posts).open = true;
    }

    /// Refuses posts from now on, and drops those that were not taken.
    pub(crate) fn close(&self) {
        // Dropping a post may wake a thread that posts again, so this must not happen under the
        // lock.
        let posts = std::mem::take(&mut *locked(&self.posts));
        drop(posts);
    }

    /// # Errors
    /// [`CallError::Full`] if `posts_max` posts wait, and [`CallError::Ended`] if no thread drives
    /// the endpoint.
    pub(crate) fn post(&self, post: Post) -> Result<(), CallError> {
        self.post_within(self.posts_max, post)
    }

    /// Posts the end of a call that was posted before. Exempt from the limit: there are no more of
    /// these than of calls.
    pub(crate) fn post_end(&self, post: Post) -> Result<(), CallError> {
        self.post_within(usize::MAX, post)
    }

    fn post_within(&self, posts_max: usize, post: Post) -> Result<(), CallError> {
        let mut posts = locked(&self.posts);
        if !posts.open {
            return Err(CallError::Ended);
        }
        if posts.waiting.len() >= posts_max {
            return Err(CallError::Full);
        }
        posts.waiting.push(post);
        drop(posts);
        self.tell();
        Ok(())
    }

    pub(crate) fn stop(&self) {
        // Relaxed: ordered by the Release store to `any` in tell().
        self.stop.store(true, Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        // Release: publishes `stop` to the Acquire in has_any() and take(); `done` and `posts` have
        // their own locks.
        self.any.store(true, Ordering::Release);
        // SeqCst: pairs with the fence in State::sleep between the store to `asleep` and the last
        // turn.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // write() fails only if the eventfd's counter is at its maximum: then a wake-up is
            // already pending.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Announces that this side sleeps, to be followed by a fence and one more turn; or, with
    /// `false`, that it is awake.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        // Relaxed: ordered by the fence in State::sleep.
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        // Acquire: pairs with the Release in tell().
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self, done: &mut Vec<Done>, posts: &mut Vec<Post>) {
        // Acquire: pairs with the Release in tell(), so that a `stop` whose flag is cleared here is
        // seen. A later tell() sets the flag again.
        self.any.swap(false, Ordering::Acquire);
        done.append(&mut locked(&self.done));
        posts.append(&mut locked(&self.posts).waiting);
    }

    /// Returns `true` if the endpoint was told to stop since the last call.
    pub(crate) fn take_stop(&self) -> bool {
        // Relaxed: only a flag; if `any` announced it, the Acquire load of `any` has ordered it.
        self.stop.swap(false, Ordering::Relaxed)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Requests of all peers, which take turns with one request each.
#[derive(Default)]
struct Queue {
    peers: HashMap<PeerKey, PeerJobs>,
    /// Peers with requests that may begin, each once.
    turns: VecDeque<PeerKey>,
    jobs_count: usize,
    /// Bytes of the jobs and their arguments.
    bytes: usize,
    /// Number of fibers: each has a stack, even if its request was taken back.
    fibers: usize,
    /// Number of fibers that have not taken a request yet.
    fresh_fibers: usize,
    ended: bool,
}

/// Requests of one peer, and the bytes of its unsent answers.
#[derive(Default)]
struct PeerJobs {
    jobs: Backlog<Job>,
    /// `true` if the peer is in `Queue::turns`.
    has_turn: bool,
    /// Bytes of answers that the endpoint has not taken yet.
    finished_bytes: usize,
    /// Bytes queued for sending to the peer, as last reported by the endpoint.
    queued_bytes: usize,
}

impl PeerJobs {
    fn unsent_bytes(&self) -> usize {
        self.finished_bytes + self.queued_bytes
    }
}

impl Job {
    fn bytes(&self) -> usize {
        // Twice the size of the job, for the queue's own memory.
        2 * size_of::<Self>() + self.arguments.len()
    }
}

impl Queue {
    fn put(&mut self, job: Job, choked_bytes: usize) -> u64 {
        let (peer, bytes) = (job.peer, job.bytes());
        let call = (!job.one_way).then_some(job.call);
        self.jobs_count += 1;
        self.bytes += bytes;
        let place = self.peers.entry(peer).or_default().jobs.push(call, bytes, job);
        self.give_turn(peer, choked_bytes);
        place
    }

    /// Lets a request of that peer begin in turn, if it has one and is not choked. Returns `true`
    /// if the peer had no turn before and has one now.
    fn give_turn(&mut self, peer: PeerKey, choked_bytes: usize) -> bool {
        let Some(its) = self.peers.get_mut(&peer) else { return false };
        let begins = !its.has_turn && !its.jobs.is_empty() && its.unsent_bytes() <= choked_bytes;
        if begins {
            its.has_turn = true;
            self.turns.push_back(peer);
        }
        begins
    }

    fn take(&mut self, choked_bytes: usize) -> Option<Job> {
        loop {
            let peer = self.turns.pop_front()?;
            let Some(its) = self.peers.get_mut(&peer) else { continue };
            its.has_turn = false;
            if its.unsent_bytes() > choked_bytes {
                continue; // told() gives the peer a turn when it has read answers.
            }
            let Some(job) = its.jobs.pop() else { continue };
            self.took(&job);
            self.give_turn(peer, choked_bytes);
            return Some(job);
        }
    }

    fn took(&mut self, job: &Job) {
        self.jobs_count -= 1;
        self.bytes -= job.bytes();
    }
}

struct Shared {
    queue: Mutex<Queue>,
    there_is_work: Condvar,
    inbox: Arc<Inbox>,
    /// Limit of unsent answer bytes of a peer, above which none of its requests begins.
    choked_bytes: usize,
    /// Limit of unsent answer bytes of a peer, above which the answers of its running requests are
    /// dropped.
    unsent_bytes_max: usize,
}

/// Executor of the handlers.
enum Hands {
    Threads(Vec<JoinHandle<()>>),
    /// One fiber for each request.
    Fibers(Runtime),
}

/// Pool of threads or fibers. Dropping it ends them after their current handlers.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    hands: Hands,
    queue_max: usize,
    queue_bytes_max: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fibers = matches!(self.hands, Hands::Fibers(_));
        f.debug_struct("Pool").field("fibers", &fibers).finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts the configured number of threads, pinned in turn to the configured CPUs.
    pub(crate) fn start(config: &Config, inbox: Arc<Inbox>) -> std::io::Result<Self> {
        let Config { pool_threads, pool_queue_max, ref pool_cpus, .. } = *config;
        let (queue, there_is_work) = (Mutex::default(), Condvar::new());
        let unsent_bytes_max = config.queued_bytes_max as usize;
        let choked_bytes = unsent_bytes_max / 2;
        let shared = Shared { queue, there_is_work, inbox, choked_bytes, unsent_bytes_max };
        let shared = Arc::new(shared);
        let queue_max = pool_queue_max as usize;
        let queue_bytes_max = config.pool_queue_bytes_max as usize;
        if config.pool_fibers && pool_threads > 0 {
            let hands = Hands::Fibers(fibers(config)?);
            return Ok(Self { shared, hands, queue_max, queue_bytes_max });
        }
        let hands = Hands::Threads(Vec::new());
        let mut pool = Self { shared, hands, queue_max, queue_bytes_max };
        let mut cpus = pool_cpus.iter().copied().cycle();
        for number in 0..pool_threads {
            let (shared, cpu) = (Arc::clone(&pool.shared), cpus.next());
            let (tell, told) = std::sync::mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("rpc-handler-{number}"));
            let thread = thread.spawn(move || {
                let pinned = cpu.map_or(Ok(()), affinity::pin);
                let is_pinned = pinned.is_ok();
                // start() waits for this message.
                let _ = tell.send(pinned);
                if is_pinned {
                    work(&shared);
                }
            })?;
            if let Hands::Threads(threads) = &mut pool.hands {
                threads.push(thread);
            }
            match told.recv() {
                Ok(pinned) => pinned.map_err(std::io::Error::other)?,
                Err(_) => return Err(std::io::Error::other("a thread of the pool has ended")),
            }
        }
        Ok(pool)
    }

    /// Queues a request, or returns it if too many wait.
    ///
    /// A peer may have [`ROOM_MULTIPLE`] times as many requests waiting as there is room left (a
    /// dynamic threshold: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). So one
    /// peer takes at most four fifths of the queue, and others are served.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut queue = locked(&self.shared.queue);
        // The number of threads bounds running requests; fibers are as many as requests, so they
        // count here.
        let room_count = self.queue_max.saturating_sub(queue.jobs_count.max(queue.fibers));
        let room_bytes = self.queue_bytes_max.saturating_sub(queue.bytes);
        let its = queue.peers.get(&job.peer).map(|its| (its.jobs.len(), its.jobs.bytes()));
        let (its_count, its_bytes) = its.unwrap_or_default();
        let is_full = room_count == 0 || job.bytes() > room_bytes;
        let has_too_many = its_count >= room_count.saturating_mul(ROOM_MULTIPLE)
            || its_bytes > room_bytes.saturating_mul(ROOM_MULTIPLE);
        if is_full || has_too_many {
            return Err(job);
        }
        let peer = job.peer;
        let place = queue.put(job, self.shared.choked_bytes);
        let Hands::Fibers(runtime) = &self.hands else {
            drop(queue);
            self.shared.there_is_work.notify_one();
            return Ok(());
        };
        queue.add_fiber();
        drop(queue);
        let shared = Arc::clone(&self.shared);
        match runtime.spawn_detached(move || work_once(&shared)) {
            Ok(()) => Ok(()),
            // No memory for the fiber's stack. Another fiber may have taken its request.
            Err(_) => {
                let mut queue = locked(&self.shared.queue);
                queue.drop_fiber();
                let its = queue.peers.get_mut(&peer);
                let Some(job) = its.and_then(|it| it.jobs.remove(place)) else { return Ok(()) };
                queue.took(&job);
                Err(job)
            }
        }
    }

    /// Updates the unsent bytes of a peer: the endpoint has taken answers of `taken_bytes` bytes,
    /// and `queued_bytes` bytes are queued for sending. Returns requests that cannot run because
    /// there is no memory for a fiber.
    pub(crate) fn told(&self, peer: PeerKey, taken_bytes: usize, queued_bytes: usize) -> Vec<Job> {
        let mut queue = locked(&self.shared.queue);
        let Some(its) = queue.peers.get_mut(&peer) else { return Vec::new() };
        its.finished_bytes = its.finished_bytes.saturating_sub(taken_bytes);
        its.queued_bytes = queued_bytes;
        if !queue.give_turn(peer, self.shared.choked_bytes) {
            return Vec::new();
        }
        let Hands::Fibers(runtime) = &self.hands else {
            drop(queue);
            self.shared.there_is_work.notify_all();
            return Vec::new();
        };
        // The fibers that were spawned for these requests have found the peer choked, and ended.
        queue.add_fiber();
        drop(queue);
        let shared = Arc::clone(&self.shared);
        match runtime.spawn_detached(move || work_once(&shared)) {
            Ok(()) => Vec::new(),
            Err(_) => {
                let mut queue = locked(&self.shared.queue);
                queue.drop_fiber();
                queue.withdraw(peer)
            }
        }
    }

    /// Removes a request that has not begun.
    pub(crate) fn cancel(&self, peer: PeerKey, call: u64) {
        let mut queue = locked(&self.shared.queue);
        let its = queue.peers.get_mut(&peer);
        let job = its.and_then(|it| it.jobs.cancel(call));
        job.iter().for_each(|job| queue.took(job));
        // Dropping the last request of a handler may drop what the handler owns, which must not
        // happen under the lock.
        drop(queue);
        drop(job);
    }

    /// Removes the requests of a disconnected peer.
    pub(crate) fn forget(&self, peer: PeerKey) {
        let mut queue = locked(&self.shared.queue);
        let jobs = queue.withdraw(peer);
        queue.peers.remove(&peer);
        drop(queue);
        drop(jobs);
    }
}

impl Queue {
    fn add_fiber(&mut self) {
        self.fibers += 1;
        self.fresh_fibers += 1;
    }

    /// Undoes add_fiber() for a fiber that could not be spawned.
    fn drop_fiber(&mut self) {
        self.fibers -= 1;
        self.fresh_fibers -= 1;
    }

    fn withdraw(&mut self, peer: PeerKey) -> Vec<Job> {
        let Some(its) = self.peers.get_mut(&peer) else { return Vec::new() };
        let jobs: Vec<Job> = std::iter::from_fn(|| its.jobs.pop()).collect();
        jobs.iter().for_each(|job| self.took(job));
        jobs
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = locked(&self.shared.queue);
        queue.ended = true;
        let peers = std::mem::take(&mut queue.peers);
        drop(queue);
        drop(peers);
        self.shared.there_is_work.notify_all();
        if let Hands::Threads(threads) = &mut self.hands {
            for thread in threads.drain(..) {
                // A thread ends only when `ended` is set: panics of handlers are caught.
                let _ = thread.join();
            }
        }
        // Dropping the runtime waits for the fibers.
    }
}

fn work(shared: &Shared) {
    let mut queue = locked(&shared.queue);
    loop {
        if queue.ended {
            return;
        }
        let Some(job) = queue.take(shared.choked_bytes) else {
            queue = shared.there_is_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        handle(job, shared);
        queue = locked(&shared.queue);
    }
}

/// Body of a fiber: handles one request, if there is one that was not taken back and whose peer is
/// not choked.
fn work_once(shared: &Arc<Shared>) {
    let mut queue = locked(&shared.queue);
    queue.fresh_fibers -= 1;
    loop {
        let job = queue.take(shared.choked_bytes);
        // The fibers of a choked peer have ended, so each fiber that begins provides for the next
        // request.
        let lacks_fiber = queue.fresh_fibers == 0 && !queue.turns.is_empty();
        if lacks_fiber {
            queue.add_fiber();
        }
        drop(queue);
        let is_last = !lacks_fiber || spawn_next(shared);
        if let Some(job) = job {
            handle(job, shared);
        }
        queue = locked(&shared.queue);
        if is_last {
            break;
        }
    }
    queue.fibers -= 1;
}

/// Spawns a fiber that was added. Returns `false` if there is no memory for its stack: then the
/// caller handles the next request itself.
fn spawn_next(shared: &Arc<Shared>) -> bool {
    let next = Arc::clone(shared);
    let spawned = handover_fiber::spawn_detached(move || work_once(&next));
    if spawned.is_err() {
        locked(&shared.queue).drop_fiber();
    }
    spawned.is_ok()
}

fn handle(job: Job, shared: &Shared) {
    let mut body = Vec::new();
    let mut answer = caught(|| (job.work)(&job.arguments, &mut body));
    let Job { peer, call, one_way, .. } = job;
    if one_way {
        return;
    }
    let mut queue = locked(&shared.queue);
    let Some(its) = queue.peers.get_mut(&peer) else { return }; // The peer has been disconnected.
    if its.unsent_bytes() > shared.unsent_bytes_max {
        (answer, body) = (Err(Refusal::Unsent), Vec::new());
    }
    its.finished_bytes += body.len();
    drop(queue);
    shared.inbox.push(Done { peer, call, answer, body });
}

fn fibers(config: &Config) -> std::io::Result<Runtime> {
    let workers_count = config.pool_threads;
    let cpus = match &config.pool_cpus[..] {
        [] => Vec::new(),
        named => named.iter().copied().cycle().take(workers_count as usize).collect(),
    };
    let stealing = handover_fiber::Stealing::Fresh;
    let config = handover_fiber::Config {
        workers_count,
        cpus,
        stealing,
        ..handover_fiber::Config::default()
    };
    Runtime::new(config).map_err(std::io::Error::other)
}

/// Runs a handler, and turns its panic into a refusal for its caller alone.
pub(crate) fn caught(handler: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    // The handler borrows only its own state and the answer's vector, and the answer is discarded
    // after a panic.
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or(Err(Refusal::Panicked))
}
