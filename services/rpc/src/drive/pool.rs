//! Threads, or fibers, for handlers that take their time, and the way back to the endpoint's own thread.

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
    pub(crate) answer: Result<(), Refusal>,
    pub(crate) body: Vec<u8>,
}

/// What another thread wants done in the endpoint's own.
pub(crate) enum Post {
    /// At once: a call is started, which waits for nothing.
    Call(Box<dyn FnOnce(&mut State) + Send>),
    /// When no handler runs.
    Errand(Callback),
}

#[derive(Default)]
struct Posts {
    /// A thread drives the endpoint, and will look.
    open: bool,
    waiting: Vec<Post>,
}

/// What other threads have for an endpoint.
pub(crate) struct Inbox {
    done: Mutex<Vec<Done>>,
    posts: Mutex<Posts>,
    /// Something is in `done` or in `posts`, or `stop` was set.
    any: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    bell: OwnedFd,
    /// As many calls and errands of other threads may wait.
    posts_max: usize,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left a whole queue: each change is one call.
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

    /// Takes posts from now on.
    pub(crate) fn open(&self) {
        locked(&self.posts).open = true;
    }

    /// Takes no more posts, and drops those that nobody has seen.
    pub(crate) fn close(&self) {
        // Whoever is told by their end may come back here: not while the lock is held.
        let posts = std::mem::take(&mut *locked(&self.posts));
        drop(posts);
    }

    /// # Errors
    /// [`CallError::Full`] where as many wait as may, and [`CallError::Ended`].
    pub(crate) fn post(&self, post: Post) -> Result<(), CallError> {
        self.post_within(self.posts_max, post)
    }

    /// As [`post`](Self::post), for what ends a call that was posted: there are no more of them than of those.
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

    pub(crate) fn take(&self, done: &mut Vec<Done>, posts: &mut Vec<Post>) {
        // Acquire: pairs with the Release in tell(), so that a stop whose mark this takes away is seen. What comes
        // later sets it again.
        self.any.swap(false, Ordering::Acquire);
        done.append(&mut locked(&self.done));
        posts.append(&mut locked(&self.posts).waiting);
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

/// The requests of all peers, which have turns: one request each.
#[derive(Default)]
struct Queue {
    peers: HashMap<PeerKey, PeerJobs>,
    /// Peers with requests that may begin, each once.
    turns: VecDeque<PeerKey>,
    jobs_count: usize,
    /// Bytes of the jobs and their arguments.
    bytes: usize,
    /// Fibers that there are: each has a stack, also where its request was taken back.
    fibers: usize,
    /// Those of them that have not taken a request yet.
    fresh_fibers: usize,
    ended: bool,
}

/// The requests of one peer, and how much of their answers has not been sent.
#[derive(Default)]
struct PeerJobs {
    jobs: Backlog<Job>,
    /// It is in `Queue::turns`.
    has_turn: bool,
    /// Bytes of answers that the endpoint has not taken yet.
    finished_bytes: usize,
    /// Bytes that wait to be sent to the peer, as the endpoint has told last.
    queued_bytes: usize,
}

impl PeerJobs {
    fn unsent_bytes(&self) -> usize {
        self.finished_bytes + self.queued_bytes
    }
}

impl Job {
    fn bytes(&self) -> usize {
        // What keeps it in order, besides itself.
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

    /// Lets a request of that peer begin in turn, if it has one and reads its answers. Returns `true` if it was not
    /// so before.
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
                continue; // Until the endpoint tells that it reads.
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
    /// Above so many bytes of unsent answers, no further request of a peer begins.
    choked_bytes: usize,
    /// Above so many, an answer that ends is dropped: of requests that had begun before.
    unsent_bytes_max: usize,
}

/// Who runs the handlers.
enum Hands {
    Threads(Vec<JoinHandle<()>>),
    /// One for each request, each on a stack of its own.
    Fibers(Runtime),
}

/// The threads. Dropping it ends them, behind the handlers that they are in.
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
    /// As many threads as the configuration says, pinned in turn to the CPUs that it names.
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
                // Somebody waits for it.
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

    /// Queues a request, or gives it back when too many wait.
    pub(crate) fn push(&self, job: Job) -> Result<(), Job> {
        let mut queue = locked(&self.shared.queue);
        // Threads bound what has begun; fibers are as many as requests.
        let is_full = queue.jobs_count.max(queue.fibers) >= self.queue_max;
        if is_full || queue.bytes + job.bytes() > self.queue_bytes_max {
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
            // No memory for its stack. Another fiber may have its request.
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

    /// The endpoint has taken answers of so many bytes for that peer, and so many wait to be sent to it. Returns the
    /// requests that cannot go on now: there is no memory for a fiber.
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
        // Those that had been spawned for its requests have found the peer choked, and ended.
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

    /// Takes back a request that has not begun.
    pub(crate) fn cancel(&self, peer: PeerKey, call: u64) {
        let mut queue = locked(&self.shared.queue);
        let its = queue.peers.get_mut(&peer);
        let job = its.and_then(|it| it.jobs.cancel(call));
        job.iter().for_each(|job| queue.took(job));
        // What a handler owns may be dropped with its last request: not under the lock.
        drop(queue);
        drop(job);
    }

    /// Takes back the requests of a peer that is gone.
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

    /// One that was not to be had.
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
                // A thread ends of nothing but `ended`: handlers' panics are caught.
                let _ = thread.join();
            }
        }
        // Fibers are waited for by their runtime's own end.
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

/// Runs in a fiber: handles one request. Where it was taken back, or its peer reads no answers, there is none.
fn work_once(shared: &Arc<Shared>) {
    let mut queue = locked(&shared.queue);
    queue.fresh_fibers -= 1;
    loop {
        let job = queue.take(shared.choked_bytes);
        // Of a peer that was choked, the fibers have ended: each that begins sees to the next.
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

/// Spawns a fiber that was added. Without memory for its stack there is none, and whoever calls goes on with what
/// waits.
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
    let Some(its) = queue.peers.get_mut(&peer) else { return }; // It is gone.
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

/// A handler's panic is the caller's refusal, and nobody else's.
pub(crate) fn caught(handler: impl FnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
    // What the handler had borrowed is its own, or the vector of its answer, which is thrown away.
    catch_unwind(AssertUnwindSafe(handler)).unwrap_or(Err(Refusal::Panicked))
}
