//! Who can run, by priority.

use crate::raw::{List, Runnable};

/// How many priorities there are.
pub(crate) const LEVELS: usize = 8;

/// Those that can run, each level first in, first out; the lowest level runs first.
#[derive(Debug)]
pub(crate) struct Ready {
    levels: [List<Runnable>; LEVELS],
    /// Bit i is set if there is somebody on level i.
    occupied: u32,
    count: u32,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { levels: [const { List::new() }; LEVELS], occupied: 0, count: 0 }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Puts a fiber behind those of its level.
    #[inline]
    pub(crate) fn push(&mut self, fiber: Runnable) {
        let level = fiber.level() % LEVELS;
        self.levels[level].push_back(fiber);
        self.occupied |= 1 << level;
        self.count += 1;
    }

    /// The first of the most urgent.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        if self.occupied == 0 {
            return None;
        }
        self.pop_from(self.occupied.trailing_zeros() as usize)
    }

    /// Puts a fiber behind those of its level, and takes the first of the most urgent: itself if it is alone.
    #[inline]
    pub(crate) fn rotate(&mut self, fiber: Runnable) -> Runnable {
        let level = fiber.level() % LEVELS;
        // Nobody more urgent, and somebody of its own level: takes the place of the one that it lets go first.
        if self.occupied.trailing_zeros() as usize == level
            && let Some(next) = self.levels[level].pop_front()
        {
            self.levels[level].push_back(fiber);
            return next;
        }
        self.rotate_levels(fiber)
    }

    fn rotate_levels(&mut self, fiber: Runnable) -> Runnable {
        if self.occupied == 0 || self.occupied.trailing_zeros() as usize > fiber.level() % LEVELS {
            return fiber; // nobody as urgent
        }
        match self.pop() {
            Some(next) => {
                self.push(fiber);
                next
            }
            None => fiber,
        }
    }

    /// The first of the least urgent, so that they are not forgotten.
    pub(crate) fn pop_least(&mut self) -> Option<Runnable> {
        self.pop_from(self.occupied.checked_ilog2()? as usize)
    }

    #[inline]
    fn pop_from(&mut self, level: usize) -> Option<Runnable> {
        let list = &mut self.levels[level % LEVELS];
        let fiber = list.pop_front();
        if list.is_empty() {
            self.occupied &= !(1 << level);
        }
        self.count -= u32::from(fiber.is_some());
        fiber
    }

    /// Takes up to half of them, the most urgent first, of those that `may_take` says yes to; looks at no more than
    /// `looks_max`. With them, whether it has looked at all.
    pub(crate) fn split(
        &mut self,
        looks_max: u32,
        may_take: impl Fn(&Runnable) -> bool,
    ) -> (List<Runnable>, bool) {
        let (mut taken, mut taken_count) = (List::new(), 0);
        let looks_at_all = self.count <= looks_max;
        let mut stay = List::new();
        let wanted = self.count.div_ceil(2);
        for _ in 0..looks_max.min(self.count) {
            if taken_count == wanted {
                break;
            }
            let Some(fiber) = self.pop() else { break };
            if may_take(&fiber) {
                taken.push_back(fiber);
                taken_count += 1;
            } else {
                stay.push_front(fiber);
            }
        }
        while let Some(fiber) = stay.pop_front() {
            let level = fiber.level() % LEVELS;
            self.levels[level].push_front(fiber);
            self.occupied |= 1 << level;
            self.count += 1;
        }
        (taken, looks_at_all)
    }
}
