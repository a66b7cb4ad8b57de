//! Run queue of a worker, by priority.

use crate::raw::{List, Runnable};

/// Number of priority levels.
pub(crate) const LEVELS_COUNT: usize = 8;

/// Ready fibers of a worker, in a first-in, first-out queue for each priority level. The fibers of
/// level 0 run first.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    levels: [List<Runnable>; LEVELS_COUNT],
    /// Bitmap of the levels whose queues are not empty.
    non_empty_levels: u32,
    /// Number of ready fibers on all levels.
    count: u32,
    /// Level of the last fiber that `pop_less_urgent` returned.
    last_level: usize,
}

impl ReadyQueue {
    pub(crate) fn new() -> Self {
        Self {
            levels: [const { List::new() }; LEVELS_COUNT],
            non_empty_levels: 0,
            count: 0,
            last_level: LEVELS_COUNT,
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(crate) fn push(&mut self, fiber: Runnable) {
        let level = fiber.priority_level() % LEVELS_COUNT;
        self.levels[level].push_back(fiber);
        self.non_empty_levels |= 1 << level;
        self.count += 1;
    }

    /// Pops the first fiber of the most urgent level; `None` if no fiber is ready.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        if self.non_empty_levels == 0 {
            return None;
        }
        self.pop_from(self.non_empty_levels.trailing_zeros() as usize)
    }

    /// Appends a fiber to its level's queue, and pops the first fiber of the most urgent level.
    /// Returns `fiber` as the error if no other is as urgent; it is then not in the queue.
    #[inline]
    pub(crate) fn push_then_pop(&mut self, fiber: Runnable) -> Result<Runnable, Runnable> {
        self.rotate_most_urgent(fiber).or_else(|fiber| self.push_then_pop_other_level(fiber))
    }

    /// Does [`push_then_pop`](Self::push_then_pop) for a fiber whose level is the most urgent one
    /// that is not empty. Returns a fiber of another level as the error.
    #[inline]
    pub(crate) fn rotate_most_urgent(&mut self, fiber: Runnable) -> Result<Runnable, Runnable> {
        // The list is found by the bitmap, and not by the fiber's level, for which the processor
        // would wait.
        let most_urgent = self.non_empty_levels.trailing_zeros() as usize;
        if most_urgent != fiber.priority_level() {
            return Err(fiber);
        }
        self.levels[most_urgent % LEVELS_COUNT].rotate(fiber)
    }

    /// Does [`push_then_pop`](Self::push_then_pop) if the fiber is not of the most urgent level.
    fn push_then_pop_other_level(&mut self, fiber: Runnable) -> Result<Runnable, Runnable> {
        if self.non_empty_levels == 0
            || self.non_empty_levels.trailing_zeros() as usize
                > fiber.priority_level() % LEVELS_COUNT
        {
            return Err(fiber); // no other fiber is as urgent
        }
        match self.pop() {
            Some(next) => {
                self.push(fiber);
                Ok(next)
            }
            None => Err(fiber),
        }
    }

    /// Pops the first fiber of one of the less urgent levels in turn. Pops from the most urgent
    /// level if only this level has fibers. Successive calls go from the least urgent level to more
    /// urgent ones and start again, so that no level starves.
    pub(crate) fn pop_less_urgent(&mut self) -> Option<Runnable> {
        let less_urgent = self.non_empty_levels & self.non_empty_levels.wrapping_sub(1);
        let more_urgent = less_urgent & ((1 << self.last_level) - 1);
        let candidates = if more_urgent == 0 { less_urgent } else { more_urgent };
        let Some(level) = candidates.checked_ilog2() else { return self.pop() };
        self.last_level = level as usize;
        self.pop_from(self.last_level)
    }

    /// Pops the first fiber of this level.
    #[inline]
    fn pop_from(&mut self, level: usize) -> Option<Runnable> {
        let list = &mut self.levels[level % LEVELS_COUNT];
        let fiber = list.pop_front();
        if list.is_empty() {
            self.non_empty_levels &= !(1 << level);
        }
        self.count -= u32::from(fiber.is_some());
        fiber
    }

    /// Removes up to half of the fibers, the most urgent first; skips those that `can_take`
    /// rejects. Checks at most `checks_max` fibers. Returns `None` if it took none of them and left
    /// others unchecked.
    pub(crate) fn split_off_half(
        &mut self,
        checks_max: u32,
        can_take: impl Fn(&Runnable) -> bool,
    ) -> Option<List<Runnable>> {
        let (mut taken, mut taken_count) = (List::new(), 0);
        let has_checked_all = self.count <= checks_max;
        let mut kept = List::new();
        let wanted = self.count.div_ceil(2);
        for _ in 0..checks_max.min(self.count) {
            if taken_count == wanted {
                break;
            }
            let Some(fiber) = self.pop() else { break };
            if can_take(&fiber) {
                taken.push_back(fiber);
                taken_count += 1;
            } else {
                kept.push_front(fiber);
            }
        }
        while let Some(fiber) = kept.pop_front() {
            let level = fiber.priority_level() % LEVELS_COUNT;
            self.levels[level].push_front(fiber);
            self.non_empty_levels |= 1 << level;
            self.count += 1;
        }
        (has_checked_all || taken_count != 0).then_some(taken)
    }
}
