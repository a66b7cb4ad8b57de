//! Due times of messages, which do not depend on earlier messages.

/// Due times of messages at a fixed rate. The first is `first_ns`, then one every `step_ns`, and
/// none from `end_ns` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Due time of the first message.
    first_ns: u64,
    /// Time between two messages.
    step_ns: f64,
    /// Time from which on no message is due.
    end_ns: u64,
}

impl Schedule {
    /// Creates an endless schedule. The first message is due at `first_ns`, then one every
    /// `step_ns`.
    #[must_use]
    pub fn new(first_ns: u64, step_ns: f64) -> Self {
        Self { first_ns, step_ns: step_ns.max(f64::MIN_POSITIVE), end_ns: u64::MAX }
    }

    /// Returns this schedule, limited to messages that are due before `end_ns`.
    #[must_use]
    pub fn with_end_ns(self, end_ns: u64) -> Self {
        Self { end_ns, ..self }
    }

    /// Returns the due time of the message at `index`, counted from 0.
    #[must_use]
    #[inline]
    pub fn due_ns(&self, index: u64) -> u64 {
        self.first_ns.saturating_add((index as f64 * self.step_ns) as u64)
    }

    /// Returns the number of messages that are due by `now_ns`.
    #[must_use]
    #[inline]
    pub fn due_count(&self, now_ns: u64) -> u64 {
        let now_ns = now_ns.min(self.end_ns.saturating_sub(1));
        let Some(since_ns) = now_ns.checked_sub(self.first_ns) else { return 0 };
        let mut count = (since_ns as f64 / self.step_ns) as u64 + 1;
        // Rounding may be off by one, either way.
        while count > 0 && self.due_ns(count - 1) > now_ns {
            count -= 1;
        }
        while self.due_ns(count) <= now_ns && count < u64::MAX {
            count += 1;
        }
        count
    }

    /// Returns the schedule of every `count`-th message, beginning with the message at `index`.
    #[must_use]
    pub fn schedule_of_every_nth(&self, index: u64, count: u64) -> Self {
        Self::new(self.due_ns(index), self.step_ns * count as f64).with_end_ns(self.end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_due_from_the_end_on() {
        let schedule = Schedule::new(1000, 10.0).with_end_ns(1030);
        assert_eq!([1029, 1030, u64::MAX].map(|now_ns| schedule.due_count(now_ns)), [3; 3]);
        let odd = schedule.schedule_of_every_nth(1, 2);
        assert_eq!([1009, 1010, 5000].map(|now_ns| odd.due_count(now_ns)), [0, 1, 1]);
        assert_eq!(schedule.with_end_ns(0).due_count(u64::MAX), 0);
    }

    #[test]
    fn message_is_due_from_its_scheduled_time() {
        for step_ns in [1.0, 3.7, 1e6 / 3.0, 1e9] {
            let schedule = Schedule::new(1000, step_ns);
            assert_eq!(schedule.due_count(999), 0);
            for index in [0, 1, 2, 1000, 123_457] {
                let at_ns = schedule.due_ns(index);
                assert!(schedule.due_count(at_ns) > index, "{step_ns} {index}");
                assert!(schedule.due_count(at_ns - 1) <= index, "{step_ns} {index}");
            }
        }
    }

    #[test]
    fn shares_of_a_schedule_cover_it() {
        let whole = Schedule::new(50, 10.0);
        let shares = [0, 1, 2].map(|index| whole.schedule_of_every_nth(index, 3));
        for now_ns in [0, 50, 59, 60, 75, 1000, 12_345] {
            let sum: u64 = shares.iter().map(|it| it.due_count(now_ns)).sum();
            assert_eq!(sum, whole.due_count(now_ns), "{now_ns}");
        }
    }
}
