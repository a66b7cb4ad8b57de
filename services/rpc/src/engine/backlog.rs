//! Queue of the waiting requests of one peer.

use std::collections::{BTreeMap, HashMap};

/// Queue of one peer's requests in the order of their arrival. A request can be withdrawn by its
/// call number without a scan of the others.
///
/// ```
/// use handover_rpc::engine::Backlog;
/// let mut backlog = Backlog::default();
/// backlog.push(Some(7), 100, "first");
/// backlog.push(None, 10, "one-way");
/// backlog.push(Some(8), 1, "last");
/// assert_eq!((backlog.len(), backlog.queued_bytes()), (3, 111));
/// assert!(backlog.contains(8) && backlog.iter().eq(&["first", "one-way", "last"]));
/// assert_eq!(backlog.cancel(7), Some("first"));
/// assert_eq!((backlog.pop(), backlog.pop(), backlog.pop()), (Some("one-way"), Some("last"), None));
/// assert_eq!(backlog.queued_bytes(), 0);
/// ```
#[derive(Debug)]
pub struct Backlog<T> {
    /// Requests by their position in the order of arrival.
    requests: BTreeMap<u64, QueuedRequest<T>>,
    /// Position of each request in the order of arrival, by call number.
    by_call: HashMap<u64, u64>,
    next_position: u64,
    /// Total size of the requests, in bytes.
    bytes: usize,
}

/// Request in the queue, with its size.
#[derive(Debug)]
struct QueuedRequest<T> {
    /// Call number of the request; `None` for a one-way request.
    call: Option<u64>,
    bytes: usize,
    request: T,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { requests: BTreeMap::new(), by_call: HashMap::new(), next_position: 0, bytes: 0 }
    }
}

impl<T> Backlog<T> {
    /// Appends a request with the size `bytes`; returns its position in the order of arrival. Of
    /// two requests with one call number, only the later can be withdrawn by that number.
    pub fn push(&mut self, call: Option<u64>, bytes: usize, request: T) -> u64 {
        let position = self.next_position;
        self.next_position += 1;
        self.bytes += bytes;
        self.requests.insert(position, QueuedRequest { call, bytes, request });
        if let Some(call) = call {
            self.by_call.insert(call, position);
        }
        position
    }

    /// Removes and returns the oldest request; `None` if there is none.
    pub fn pop(&mut self) -> Option<T> {
        let (position, waiting) = self.requests.pop_first()?;
        Some(self.remove_from_index(position, waiting))
    }

    /// Removes and returns the request at that position; `None` if it was already removed.
    pub fn remove(&mut self, position: u64) -> Option<T> {
        let waiting = self.requests.remove(&position)?;
        Some(self.remove_from_index(position, waiting))
    }

    /// Removes and returns the request with that call number; `None` if it was already removed.
    pub fn cancel(&mut self, call: u64) -> Option<T> {
        let position = *self.by_call.get(&call)?;
        self.remove(position)
    }

    /// Returns `true` if a request with that call number is in the queue.
    #[must_use]
    pub fn contains(&self, call: u64) -> bool {
        self.by_call.contains_key(&call)
    }

    /// Iterates over the requests, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.requests.values().map(|it| &it.request)
    }

    /// Updates the index and the byte count for a removed request. Returns the request.
    fn remove_from_index(&mut self, position: u64, waiting: QueuedRequest<T>) -> T {
        self.bytes -= waiting.bytes;
        if let Some(call) = waiting.call
            && self.by_call.get(&call) == Some(&position)
        {
            self.by_call.remove(&call);
        }
        waiting.request
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if there are no requests.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the total size of the requests, in bytes, as given to [`push`](Self::push).
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn backlog_is_a_queue_from_which_requests_can_be_withdrawn(
            steps in proptest::collection::vec((0u8..5, 0u64..6), 0..80),
        ) {
            let (mut backlog, mut model) = (Backlog::default(), Vec::<(Option<u64>, u64)>::new());
            for (number, (step, call)) in (0u64..).zip(steps) {
                match step {
                    0 | 1 => {
                        let call = (step == 0).then_some(call);
                        backlog.push(call, 3, number);
                        model.push((call, number));
                    }
                    2 => {
                        let oldest = (!model.is_empty()).then(|| model.remove(0).1);
                        prop_assert_eq!(backlog.pop(), oldest);
                    }
                    3 => {
                        // The latest request of that call number that was not taken.
                        let latest = model.iter().rposition(|it| it.0 == Some(call));
                        let withdrawn = backlog.cancel(call);
                        prop_assert!(withdrawn.is_none() || withdrawn == latest.map(|at| model[at].1));
                        model.retain(|it| Some(it.1) != withdrawn);
                    }
                    _ => prop_assert_eq!(backlog.remove(u64::MAX), None),
                }
                prop_assert_eq!((backlog.len(), backlog.queued_bytes()), (model.len(), 3 * model.len()));
                prop_assert!(backlog.by_call.len() <= backlog.len());
            }
        }
    }
}
