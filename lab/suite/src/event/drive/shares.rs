//! Policy of a server that gives each of its clients an equal share of the answers.

use super::{Reaction, ReplyPolicy};

/// Policy of a server that answers every hello at once. It stops with the answer by which the last
/// client has its share; answers to a client that has its share already do not count.
#[derive(Debug, Clone, Default)]
pub struct EqualShares {
    /// Number of answers that each client's share still lacks.
    left: Vec<u32>,
    /// Number of clients whose share is not complete.
    clients_left: u32,
}

impl EqualShares {
    /// Starts again, with a share of `share` answers, at least one, for each of `clients_count`
    /// clients.
    pub fn start(&mut self, share: u32, clients_count: u32) {
        self.left.clear();
        self.left.resize(clients_count as usize, share);
        self.clients_left = clients_count;
    }
}

impl ReplyPolicy for EqualShares {
    #[inline]
    fn received(&mut self, number: u64) -> Reaction {
        self.received_from(0, number) // from the only client
    }

    #[inline]
    fn received_from(&mut self, client: u64, _: u64) -> Reaction {
        if let Some(left) = self.left.get_mut(client as usize).filter(|left| **left > 0) {
            *left -= 1;
            self.clients_left -= u32::from(*left == 0);
        }
        if self.clients_left == 0 { Reaction::AnswerAndStop } else { Reaction::Answer }
    }
}
