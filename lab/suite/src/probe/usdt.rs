//! Probes in the form of `<sys/sdt.h>`. On, each would be a trap into the kernel, several
//! microseconds; only their cost when off is compared.

use super::Sites;
use crate::raw::usdt;

/// Floor: USDT probes, each a `nop` whose address is in an ELF note.
pub(super) struct Usdt;

impl Sites for Usdt {
    #[inline(always)]
    fn site(x: u64) -> u64 {
        usdt::pass_site(x)
    }

    #[inline(always)]
    fn eight_sites(x: u64) -> u64 {
        usdt::pass_eight_sites(x)
    }

    #[inline(always)]
    fn span(x: u64) -> u64 {
        usdt::pass_span(x)
    }
}
