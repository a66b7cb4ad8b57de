//! Topics: one value sent to many machines.

use super::address::Address;
use super::local_machines::LocalMachines;
use super::shared_thread_state::SharedThreadState;
use crate::{Pool, PoolArc, PoolArcs, PoolFull, stage};
use core::fmt;
use handover_base::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Set of subscribed machines, each of which receives every value that a [`Publisher`] posts.
///
/// The machines may have different message types: each subscription converts a posted value into a
/// message of its machine. The subscribers of one posting share one value.
///
/// ```
/// use handover_event::{Config, Machine, PoolArc, Topic, handler};
///
/// enum Message { News(PoolArc<String>) }
/// let mut machine = Machine::new(
///     handler(|Message::News(news), _cx| assert_eq!(*news, "hello")),
///     Config::default(),
/// )?;
///
/// let topic = Topic::new();
/// assert!(topic.subscribe(machine.address(), Message::News));
/// assert!(!topic.subscribe(machine.address(), Message::News), "a second subscription was accepted");
///
/// let mut publisher = topic.publisher(16);
/// let posted = publisher.post("hello".to_owned())?;
/// assert_eq!((posted.accepted_count, posted.refused_count), (1, 0));
/// machine.run_once()?;
///
/// assert!(topic.unsubscribe(machine.address()));
/// assert_eq!(publisher.post("no subscriber".to_owned())?.accepted_count, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Topic<T> {
    state: Arc<TopicState<T>>,
}

/// State shared by a topic and its publishers.
struct TopicState<T> {
    /// Version of `subscribers`. A new version tells publishers, without the lock, to load the list
    /// again.
    version: AtomicU64,
    subscribers: Mutex<SubscriberList<T>>,
}

/// Immutable list of subscribers; a change replaces it.
type SubscriberList<T> = Arc<[Arc<dyn Subscriber<T>>]>;

/// Subscribed machine, whose message type is erased.
trait Subscriber<T>: Send + Sync {
    /// Returns the identifier of the subscribed machine.
    fn machine_id(&self) -> usize;
    fn shared_thread(&self) -> &SharedThreadState;
    /// Sends the value to the subscriber; returns `true` if its inbox accepted the value.
    fn send(&self, value: PoolArc<T>) -> bool;
    /// Sends the value from the thread that runs `local_machines`; returns `true` if the
    /// subscriber's inbox accepted the value. No synchronisation is needed if the subscriber is one
    /// of these machines.
    fn send_from(&self, local_machines: &mut LocalMachines<'_>, value: PoolArc<T>) -> bool;
    fn is_closed(&self) -> bool;
}

/// Address of a subscribed machine, and the closure that makes its messages.
struct Subscription<M, F> {
    address: Address<M>,
    /// Thread of the machine. It is a copy of the address's field, which is read without a pointer
    /// indirection.
    shared_thread: Arc<SharedThreadState>,
    /// Index of the machine in its group, a copy like `shared_thread`.
    machine: u32,
    /// Closure that converts a posted value into a message.
    wrap: F,
}

impl<T, M, F> Subscriber<T> for Subscription<M, F>
where
    M: Send + 'static,
    F: Fn(PoolArc<T>) -> M + Send + Sync,
{
    fn machine_id(&self) -> usize {
        self.address.machine_id()
    }

    fn shared_thread(&self) -> &SharedThreadState {
        &self.shared_thread
    }

    fn send(&self, value: PoolArc<T>) -> bool {
        self.address.send((self.wrap)(value)).is_ok()
    }

    fn send_from(&self, local_machines: &mut LocalMachines<'_>, value: PoolArc<T>) -> bool {
        match local_machines.send_first(&self.shared_thread, self.machine, value, &self.wrap) {
            Ok(()) => {
                stage::record_enqueued_here(self.address.shared());
                true
            }
            Err(value) => self.send_otherwise(local_machines, value),
        }
    }

    fn is_closed(&self) -> bool {
        self.address.is_closed()
    }
}

impl<M: Send + 'static, F> Subscription<M, F> {
    /// Sends the value in the ways that [`LocalMachines::send_first`] does not. Not inlined, so
    /// that [`send_from`](Subscriber::send_from) needs no stack frame.
    #[inline(never)]
    fn send_otherwise<T>(&self, local_machines: &mut LocalMachines<'_>, value: PoolArc<T>) -> bool
    where
        F: Fn(PoolArc<T>) -> M,
    {
        let message = (self.wrap)(value);
        if local_machines.contains(&self.address) {
            return local_machines.send(&self.address, message).is_ok();
        }
        local_machines.has_sent_remotely = true;
        self.address.send(message).is_ok()
    }
}

/// Numbers of subscribers that accepted and refused a posted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PostCounts {
    /// Number of subscribers that accepted the value into their inbox.
    pub accepted_count: u32,
    /// Number of subscribers whose inbox was full or closed. A closed subscriber is counted here
    /// once, and then removed.
    pub refused_count: u32,
}

impl<T: Send + Sync + 'static> Topic<T> {
    /// Creates a topic without subscribers.
    #[must_use]
    pub fn new() -> Self {
        let subscribers: SubscriberList<T> = Arc::new([]);
        Self {
            state: Arc::new(TopicState {
                version: AtomicU64::new(0),
                subscribers: Mutex::new(subscribers),
            }),
        }
    }

    /// Subscribes a machine to all later postings; returns `false` if it is already subscribed.
    /// Nothing is changed then. `wrap` converts each value into a message; the name of an enum
    /// variant that holds a [`PoolArc`] is such a function.
    ///
    /// # Blocking
    /// For as long as another thread subscribes or unsubscribes.
    pub fn subscribe<M, F>(&self, address: &Address<M>, wrap: F) -> bool
    where
        M: Send + 'static,
        F: Fn(PoolArc<T>) -> M + Send + Sync + 'static,
    {
        // Made outside the closure, so that a refused subscription is dropped after the lock is
        // released.
        let new: Arc<dyn Subscriber<T>> = Arc::new(Subscription {
            address: address.clone(),
            shared_thread: Arc::clone(&address.shared().shared_thread),
            machine: address.shared().machine,
            wrap,
        });
        self.state.replace_list(|list| {
            if list.iter().any(|one| one.machine_id() == address.machine_id()) {
                return None;
            }
            let mut list = list.to_vec();
            list.push(Arc::clone(&new));
            Some(list)
        })
    }

    /// Unsubscribes a machine from all later postings; returns `false` if it was not subscribed.
    /// Values already in its inbox are still handled.
    ///
    /// # Blocking
    /// As [`subscribe`](Self::subscribe).
    pub fn unsubscribe<M>(&self, address: &Address<M>) -> bool {
        self.state.remove(|one| one.machine_id() == address.machine_id())
    }

    /// Returns the number of subscribed machines.
    #[must_use]
    pub fn subscribers_count(&self) -> usize {
        self.state.subscribers().len()
    }

    /// Creates a publisher; each thread that posts needs one of its own. At most `values_max` of
    /// its values can be in use at a time.
    #[must_use]
    pub fn publisher(&self, values_max: u32) -> Publisher<T> {
        Publisher {
            topic: self.clone(),
            pool: Pool::new(values_max),
            // Acquire: pairs with the Release in replace_list(). If the version is older than the
            // list, the first posting reloads the list.
            version: self.state.version.load(Ordering::Acquire),
            subscribers: self.state.subscribers(),
        }
    }
}

impl<T> TopicState<T> {
    fn subscribers(&self) -> SubscriberList<T> {
        Arc::clone(&self.subscribers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the list by the result of `change`. Returns `false`, and keeps the list, if the
    /// result is `None`. `change` is called with the lock held and must drop no subscriber.
    fn replace_list(
        &self,
        change: impl FnOnce(&[Arc<dyn Subscriber<T>>]) -> Option<Vec<Arc<dyn Subscriber<T>>>>,
    ) -> bool {
        // Declared before the lock guard, so that the old list is dropped after the lock is
        // released: dropping the last reference to it drops closures of the user, whose captures
        // may use this topic.
        let _replaced;
        let mut list = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(changed) = change(&list) else { return false };
        _replaced = std::mem::replace(&mut *list, changed.into());
        // Release: a thread that sees the new version finds the new list; pairs with the Acquire in
        // Publisher::reload_subscribers().
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Removes the subscribers for which `which` returns `true`; returns `true` if there were any.
    fn remove(&self, which: impl Fn(&dyn Subscriber<T>) -> bool) -> bool {
        self.replace_list(|list| {
            let kept: Vec<_> = list.iter().filter(|one| !which(&***one)).cloned().collect();
            (kept.len() < list.len()).then_some(kept)
        })
    }
}

impl<T: Send + Sync + 'static> Default for Topic<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Topic({} subscribers)", self.state.subscribers().len())
    }
}

/// Sending end of a topic, for one thread.
pub struct Publisher<T> {
    topic: Topic<T>,
    pool: Pool<T>,
    /// Version of the topic's list of which `subscribers` is a copy.
    version: u64,
    subscribers: SubscriberList<T>,
}

impl<T: Send + Sync + 'static> Publisher<T> {
    /// Sends a reference to the value to each subscriber whose inbox has space. Wakes the
    /// subscribers that sleep.
    ///
    /// # Errors
    /// [`PoolFull`] returns the value when `values_max` values are in use.
    ///
    /// # Blocking
    /// For subscribers whose inbox blocks its senders; see [`WhenFull`](crate::WhenFull).
    ///
    /// # Cost
    /// A load of a cache line that changes only with the list, and [`Address::send`] for each
    /// subscriber. Nothing is allocated once the pool has grown.
    pub fn post(&mut self, value: T) -> Result<PostCounts, PoolFull<T>> {
        let shares = self.put_for_subscribers(value)?;
        Ok(self.send_to_subscribers(shares, |subscriber, value| subscriber.send(value)))
    }

    /// Sends each subscriber a reference, as [`post`](Self::post) does, from the thread that runs
    /// `local_machines`.
    #[inline(never)]
    pub(crate) fn send_from(
        &self,
        local_machines: &mut LocalMachines<'_>,
        shares: PoolArcs<T>,
    ) -> PostCounts {
        self.send_to_subscribers(shares, |subscriber, value| {
            subscriber.send_from(local_machines, value)
        })
    }

    /// Puts a value into the pool, and returns one reference for each subscriber.
    #[inline]
    pub(crate) fn put_for_subscribers(&mut self, value: T) -> Result<PoolArcs<T>, PoolFull<T>> {
        self.reload_subscribers();
        self.pool.put_shared(value, self.subscribers.len() as u32) // far below 2^32
    }

    /// Sends each subscriber a reference to the value, and unsubscribes closed machines; returns
    /// the counts.
    #[inline(always)]
    fn send_to_subscribers(
        &self,
        mut shares: PoolArcs<T>,
        mut send: impl FnMut(&dyn Subscriber<T>, PoolArc<T>) -> bool,
    ) -> PostCounts {
        let mut refused_count = 0;
        let mut is_any_closed = false;
        for subscriber in self.subscribers.iter() {
            let Some(value) = shares.next() else { break }; // never: there is one for each
            if !send(&**subscriber, value) {
                refused_count += 1;
                is_any_closed |= subscriber.is_closed();
            }
        }
        if is_any_closed {
            self.topic.state.remove(|one| one.is_closed());
        }
        let subscribers_count = self.subscribers.len() as u32; // far below 2^32
        PostCounts { accepted_count: subscribers_count - refused_count, refused_count }
    }

    /// Returns the shared thread states of all subscribers, as of the last posting.
    pub(crate) fn subscriber_threads(&self) -> impl Iterator<Item = &SharedThreadState> {
        self.subscribers.iter().map(|subscriber| subscriber.shared_thread())
    }

    /// Returns the topic that the publisher posts to.
    #[must_use]
    pub fn topic(&self) -> &Topic<T> {
        &self.topic
    }

    /// Loads the list of subscribers again if it has changed.
    #[inline]
    fn reload_subscribers(&mut self) {
        // Acquire: pairs with the Release in TopicState::replace_list().
        let version = self.topic.state.version.load(Ordering::Acquire);
        if version != self.version {
            self.load_subscribers(version);
        }
    }

    /// Loads the list of subscribers with this version, or a later one.
    #[cold]
    fn load_subscribers(&mut self, version: u64) {
        self.version = version;
        self.subscribers = self.topic.state.subscribers();
    }
}

impl<T> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({} subscribers)", self.subscribers.len())
    }
}
