//! Packet clock: the time at which a link of a given rate is free again. Pure: time is an argument.

use std::fmt;

/// Minimum rate of a link: one bit per second.
pub const BANDWIDTH_MIN_BPS: u64 = 1;

/// Maximum rate of a link: 1 Pbit/s. One byte then takes eight millionths of a nanosecond.
pub const BANDWIDTH_MAX_BPS: u64 = 1_000_000_000_000_000;

/// Error of [`PacketClock::new`]: the link's rate is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a rate of {bandwidth_bps} bit/s: must lie in {BANDWIDTH_MIN_BPS}..={BANDWIDTH_MAX_BPS} bit/s \
     (1 bit/s to 1 Pbit/s)"
)]
pub struct RateError {
    /// Requested rate of the link, in bit/s.
    pub bandwidth_bps: u64,
}

/// Clock of a simulated link; each packet advances it by its transmission time.
///
/// Times are whole nanoseconds and a fraction of 64 bits, which is carried from packet to packet:
/// at 10 Tbit/s, where a byte takes 0.0008 ns, and at 1 kbit/s, where it takes 8 ms, the clock is
/// less than a nanosecond off after a hundred days.
///
/// ```
/// use handover_sched::drive::PacketClock;
/// let mut link = PacketClock::new(1_000_000_000)?; // 1 Gbit/s
/// link.charge(1500);
/// assert_eq!(link.next_ns(), 12_000);
/// # Ok::<(), handover_sched::drive::RateError>(())
/// ```
///
/// # Cost
/// Two multiplications a packet.
#[derive(Clone)]
pub struct PacketClock {
    bandwidth_bps: u64,
    /// Transmission time of one byte at the link's rate, in units of 2^-64 ns.
    byte_time: u128,
    /// Time in ns, rounded down, at which the link will be free.
    next_ns: u64,
    /// Fraction of a nanosecond to add to `next_ns`, in units of 2^-64 ns.
    fraction: u64,
}

impl PacketClock {
    /// Creates the clock of a link with this rate; the link is idle at time 0.
    ///
    /// # Errors
    /// [`RateError`] outside [`BANDWIDTH_MIN_BPS`]`..=`[`BANDWIDTH_MAX_BPS`].
    pub fn new(bandwidth_bps: u64) -> Result<Self, RateError> {
        if !(BANDWIDTH_MIN_BPS..=BANDWIDTH_MAX_BPS).contains(&bandwidth_bps) {
            return Err(RateError { bandwidth_bps });
        }
        const NS_PER_S_TIMES_BITS_PER_BYTE: u128 = 8_000_000_000;
        let byte_time = (NS_PER_S_TIMES_BITS_PER_BYTE << 64) / u128::from(bandwidth_bps);
        Ok(Self { bandwidth_bps, byte_time, next_ns: 0, fraction: 0 })
    }

    /// Returns the link's rate in bit/s.
    pub fn bandwidth_bps(&self) -> u64 {
        self.bandwidth_bps
    }

    /// Returns the time in ns, rounded down, at which the link will be free. By then it has
    /// transmitted all packets charged so far.
    #[inline(always)]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Advances the clock to `now_ns` if the clock is behind: the link was idle until then. The
    /// unused transmission time is lost.
    #[inline(always)]
    pub fn idle_until(&mut self, now_ns: u64) {
        if self.next_ns < now_ns {
            self.next_ns = now_ns;
            self.fraction = 0;
        }
    }

    /// Advances the clock by the transmission time of `bytes` bytes. The time saturates at
    /// `u64::MAX`, after 584 years.
    #[inline(always)]
    pub fn charge(&mut self, bytes: u64) {
        let below = u128::from(self.byte_time as u64) * u128::from(bytes);
        let above = ((self.byte_time >> 64) as u64).saturating_mul(bytes);
        let (fraction, carry) = self.fraction.overflowing_add(below as u64);
        self.fraction = fraction;
        let took_ns = above.saturating_add((below >> 64) as u64 + u64::from(carry));
        self.next_ns = self.next_ns.saturating_add(took_ns);
    }
}

impl fmt::Debug for PacketClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bandwidth_bps, next_ns, .. } = self;
        write!(f, "PacketClock({bandwidth_bps} bit/s, free at {next_ns} ns)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exact time of `packets` packets.
    fn exact_ns(bandwidth_bps: u64, packets: u64, bytes: u32) -> u128 {
        u128::from(packets) * u128::from(bytes) * 8_000_000_000 / u128::from(bandwidth_bps)
    }

    #[test]
    fn million_packets_take_exact_time_at_every_rate() {
        for bandwidth_bps in [1_000, 999_983, 1_000_000_000, 99_999_999_977, 10_000_000_000_000] {
            for bytes in [1, 64, 1500, 65_535] {
                let mut link = PacketClock::new(bandwidth_bps).unwrap();
                (0..1_000_000).for_each(|_| link.charge(u64::from(bytes)));
                let exact = exact_ns(bandwidth_bps, 1_000_000, bytes);
                let off = exact.abs_diff(u128::from(link.next_ns()));
                assert!(off <= 1, "{bandwidth_bps} bit/s, {bytes} bytes: off by {off} ns");
            }
        }
    }

    #[test]
    fn rate_outside_the_range_is_refused_with_the_range() {
        for bandwidth_bps in [0, BANDWIDTH_MAX_BPS + 1, u64::MAX] {
            let refused = PacketClock::new(bandwidth_bps).unwrap_err();
            assert_eq!(refused.bandwidth_bps, bandwidth_bps);
            assert!(refused.to_string().contains("1..=1000000000000000"), "{refused}");
        }
        assert!(PacketClock::new(BANDWIDTH_MIN_BPS).is_ok());
        assert!(PacketClock::new(BANDWIDTH_MAX_BPS).is_ok());
    }

    /// Returns the bytes released in a second, if due packets are released every `interval_ns`.
    fn released_bytes(bandwidth_bps: u64, bytes: u64, interval_ns: impl Fn(u64) -> u64) -> u64 {
        let mut link = PacketClock::new(bandwidth_bps).unwrap();
        let (mut now_ns, mut released) = (0, 0);
        while now_ns < 1_000_000_000 {
            while link.next_ns() <= now_ns {
                link.charge(bytes);
                released += bytes;
            }
            now_ns += interval_ns(now_ns);
        }
        released
    }

    #[test]
    fn busy_link_keeps_its_rate_with_any_poll_interval() {
        for bandwidth_bps in [1_000_000, 10_000_000, 1_000_000_000, 10_000_000_000] {
            for bytes in [64, 1500] {
                let due = bandwidth_bps / 8;
                let regular = released_bytes(bandwidth_bps, bytes, |_| 20_000);
                let uneven = released_bytes(bandwidth_bps, bytes, |now_ns| 1 + now_ns % 1_999_993);
                // Within a thousandth, plus the bytes due in one interval and one packet.
                for (released, interval_ns) in [(regular, 20_000), (uneven, 2_000_000)] {
                    let slack = due / 1000 + due * interval_ns / 1_000_000_000 + bytes;
                    assert!(
                        released.abs_diff(due) <= slack,
                        "{bandwidth_bps}: {released} of {due}"
                    );
                }
            }
        }
    }

    #[test]
    fn idle_time_is_lost_and_busy_time_is_not() {
        let mut link = PacketClock::new(8_000_000_000).unwrap(); // a byte a nanosecond
        link.idle_until(1_000);
        link.charge(500);
        assert_eq!(link.next_ns(), 1_500);
        link.idle_until(1_400); // the link was busy then
        assert_eq!(link.next_ns(), 1_500);
        link.charge(500);
        assert_eq!(link.next_ns(), 2_000);
    }

    #[test]
    fn charge_saturates_at_the_greatest_time() {
        let mut link = PacketClock::new(BANDWIDTH_MIN_BPS).unwrap();
        link.charge(u64::MAX);
        link.charge(u64::MAX);
        assert_eq!(link.next_ns(), u64::MAX);
    }
}
