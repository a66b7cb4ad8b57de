//! Probes as `<sys/sdt.h>` makes them. On, each would be a trap into the kernel, several microseconds: what
//! is compared is what they cost off.

use super::Sites;
use crate::raw::usdt;

/// A `nop` each, and a note of where it stands.
pub(super) struct Usdt;

impl Sites for Usdt {
    #[inline(always)]
    fn site(x: u64) -> u64 {
        usdt::site(x)
    }

    #[inline(always)]
    fn eight(x: u64) -> u64 {
        usdt::eight(x)
    }

    #[inline(always)]
    fn span(x: u64) -> u64 {
        usdt::span(x)
    }
}
