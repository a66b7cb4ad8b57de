//! Whether a demo's threads will find memory, asked before there is any of them.
//!
//! A thread that finds none while it starts has nobody to tell: the runtime ends the process, or
//! waits for ever for a lock that its own message needs. What the system refuses to the thread that
//! starts another (`ulimit -u`, the cgroup's pids.max) is an error like others, and is left to it.

use super::{CLIENT_STACK_BYTES, raw};
use anyhow::bail;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// What a thread takes beside its stack: the stack's guard, a stack for signals with its own, its
/// machine with an inbox, and what the allocator keeps for it; 40 KiB were measured.
const BESIDE_STACK_BYTES: u64 = 64 << 10;
const THREAD_BYTES: u64 = CLIENT_STACK_BYTES as u64 + BESIDE_STACK_BYTES;
/// What a demo takes beside its threads: lists of them, lines that are printed.
const BESIDE_THREADS_BYTES: u64 = 4 << 20;

/// What is used differs by some pages from start to start: so much more is named as enough.
const MARGIN_BYTES: u64 = 1 << 20;

/// A limit of memory, and how much of it is used.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// The shell's option that sets it.
    option: &'static str,
    limit_bytes: u64,
    used_bytes: u64,
}

/// Makes sure that so many threads can be started, the one that waits for signals among them.
///
/// # Errors
/// Which limit there is, how much is needed, and the way out. It asks for somewhat more than was
/// measured: a demo that is let through is to have enough.
pub fn for_threads(threads_count: u64) -> anyhow::Result<()> {
    for limit in limits() {
        // Else the arenas take what the stacks need. Where there is no limit, nobody minds.
        raw::share_one_arena();
        limit.allows(threads_count)?;
    }
    Ok(())
}

/// The limits that are set. Without /proc there is none to compare with.
fn limits() -> Vec<Limit> {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used_bytes = |place| {
        let pages = statm.split_ascii_whitespace().nth(place)?.parse::<u64>().ok()?;
        Some(pages * page_size() as u64)
    };
    // Places 0 and 5: all of the address space; data and stacks.
    let known = [("-v", Resource::As, 0), ("-d", Resource::Data, 5)];
    let set = known.into_iter().filter_map(|(option, resource, place)| {
        let limit_bytes = getrlimit(resource).current?;
        Some(Limit { option, limit_bytes, used_bytes: used_bytes(place)? })
    });
    set.collect()
}

impl Limit {
    fn allows(&self, threads_count: u64) -> anyhow::Result<()> {
        let Limit { option, limit_bytes, used_bytes } = *self;
        let needed_bytes = BESIDE_THREADS_BYTES + threads_count * THREAD_BYTES;
        let left_bytes = limit_bytes.saturating_sub(used_bytes);
        if needed_bytes <= left_bytes {
            return Ok(());
        }
        let kib = |bytes: u64| bytes.div_ceil(1024);
        let fit_count = left_bytes.saturating_sub(BESIDE_THREADS_BYTES) / THREAD_BYTES;
        // One of them waits for signals.
        let fewer = match fit_count.saturating_sub(1) {
            0 => String::new(),
            fit_count => format!("ask for {fit_count} threads at most, or "),
        };
        bail!(
            "the threads of this demo need {} KiB, of which `ulimit {option}` leaves {}: \
             {fewer}allow more with `ulimit {option} {}`",
            kib(needed_bytes),
            left_bytes / 1024,
            kib(used_bytes + needed_bytes + MARGIN_BYTES),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_a_number_that_does() {
        let used_bytes = 10 << 20;
        let limit = |limit_bytes| Limit { option: "-v", limit_bytes, used_bytes };
        let needed_bytes = BESIDE_THREADS_BYTES + 11 * THREAD_BYTES;
        limit(used_bytes + needed_bytes).allows(11).expect("it fits");
        let refused = limit(used_bytes + needed_bytes - 1).allows(11).expect_err("it does not");
        let kib = (used_bytes + needed_bytes + MARGIN_BYTES) / 1024;
        assert_eq!(
            refused.to_string(),
            format!(
                "the threads of this demo need {} KiB, of which `ulimit -v` leaves {}: ask for 9 \
                 threads at most, or allow more with `ulimit -v {kib}`",
                needed_bytes / 1024,
                needed_bytes / 1024 - 1
            )
        );
        limit(kib * 1024).allows(11).expect("as it was told");
        limit(used_bytes + needed_bytes - 1).allows(10).expect("as it was told");
    }

    #[test]
    fn a_limit_below_what_is_used_already_asks_for_more() {
        let limit = Limit { option: "-d", limit_bytes: 0, used_bytes: 1 << 20 };
        let refused = limit.allows(1).expect_err("it does not fit").to_string();
        assert!(refused.contains("`ulimit -d` leaves 0: allow more with"), "{refused}");
    }
}
