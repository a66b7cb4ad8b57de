//! Threads, or fibers, for handlers that take their time, and the way back to the endpoint's own thread.

use super::state::State;
use super::timing::Callback;
use crate::engine::{PeerKey, Refusal};
use crate::{CallError, Config};
use handover_base::affinity;
use handover_fiber::Runtime;
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
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left a whole queue: each change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
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

    pub(crate) fn post(&self, post: Post) -> Result<(), CallError> {
        let mut posts = locked(&self.posts);
        if !posts.open {
            return Err(CallError::Ended);
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

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// What the arguments of the jobs take.
    bytes: usize,
    /// Fibers that there are: each has a stack, also where its request was taken back.
    fibers: usize,
    ended: bool,
}

impl Job {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.arguments.len()
    }
}

impl Queue {
    fn put(&mut self, job: Job) {
        self.bytes += job.bytes();
        self.jobs.push_back(job);
    }

    fn take(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.bytes();
        Some(job)
    }

    fn retain(&mut self, mut stays: impl FnMut(&Job) -> bool) {
        let Self { jobs, bytes, .. } = self;
        jobs.retain(|job| {
            let it_stays = stays(job);
            *bytes -= if it_stays { 0 } else { job.bytes() };
            it_stays
        });
    }
}

struct Shared {
    queue: Mutex<Queue>,
    there_is_work: Condvar,
    inbox: Arc<Inbox>,
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
        let shared = Arc::new(Shared { queue, there_is_work, inbox });
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
        let is_full = queue.jobs.len().max(queue.fibers) >= self.queue_max;
        if is_full || queue.bytes + job.bytes() > self.queue_bytes_max {
            return Err(job);
        }
        queue.fibers += usize::from(matches!(self.hands, Hands::Fibers(_)));
        queue.put(job);
        drop(queue);
        let Hands::Fibers(runtime) = &self.hands else {
            self.shared.there_is_work.notify_one();
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        match runtime.spawn_detached(move || work_once(&shared)) {
            Ok(()) => Ok(()),
            // No memory for its stack. Nobody else puts anything behind it: it is the last, or another fiber has it.
            Err(_) => {
                let mut queue = locked(&self.shared.queue);
                queue.fibers -= 1;
                let Some(job) = queue.jobs.pop_back() else { return Ok(()) };
                queue.bytes -= job.bytes();
                Err(job)
            }
        }
    }

    /// Takes back a request that has not begun.
    pub(crate) fn cancel(&self, peer: PeerKey, call: u64) {
        // Requests that want no answer have no number.
        locked(&self.shared.queue)
            .retain(|job| job.peer != peer || job.call != call || job.one_way);
    }

    /// Takes back the requests of a peer that is gone.
    pub(crate) fn forget(&self, peer: PeerKey) {
        locked(&self.shared.queue).retain(|job| job.peer != peer);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = locked(&self.shared.queue);
        queue.ended = true;
        queue.retain(|_| false);
        drop(queue);
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
        let Some(job) = queue.take() else {
            queue = shared.there_is_work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        handle(job, &shared.inbox);
        queue = locked(&shared.queue);
    }
}

/// What a fiber does. Where its request was taken back, there is nothing left.
fn work_once(shared: &Shared) {
    let mut queue = locked(&shared.queue);
    let job = queue.take();
    drop(queue);
    if let Some(job) = job {
        handle(job, &shared.inbox);
    }
    locked(&shared.queue).fibers -= 1;
}

fn handle(job: Job, inbox: &Inbox) {
    let mut body = Vec::new();
    let answer = caught(|| (job.work)(&job.arguments, &mut body));
    let Job { peer, call, one_way, .. } = job;
    inbox.push(Done { peer, call, one_way, answer, body });
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
