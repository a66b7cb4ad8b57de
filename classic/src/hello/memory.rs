//! Check, before any thread starts, that a demo's threads will find enough memory.
//!
//! A thread that finds no memory while it starts cannot report it: the runtime ends the process, or
//! waits for ever for a lock that its own message needs. A limit that makes the creation of a
//! thread fail (`ulimit -u`, the cgroup's pids.max) is an ordinary error and is not checked here.

use super::{CLIENT_STACK_BYTES, raw};
use anyhow::bail;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Memory of a thread in addition to its stack. It is for the guard page, a signal stack with its
/// own guard, its machine with an inbox, and the allocator's overhead; 40 KiB were measured.
const NON_STACK_BYTES: u64 = 64 << 10;
/// Memory of a thread, with its stack.
const THREAD_BYTES: u64 = CLIENT_STACK_BYTES as u64 + NON_STACK_BYTES;
/// Memory that a demo needs in addition to that of its threads: thread lists and output buffers.
const BASE_MEMORY_BYTES: u64 = 4 << 20;

/// Margin added to the suggested limit, as memory use differs by some pages from start to start.
const MARGIN_BYTES: u64 = 1 << 20;

/// Memory limit of this process, and the memory in use that counts towards it.
#[derive(Debug, Clone, Copy)]
struct MemoryLimit {
    /// Option of the shell's `ulimit` that sets the limit.
    ulimit_option: &'static str,
    limit_bytes: u64,
    used_bytes: u64,
}

/// Checks that the memory limits allow `threads_count` threads. One of them waits for signals.
///
/// # Errors
/// The limit, the memory needed, and the remedy. The check requires somewhat more than was
/// measured, so that a demo that passes has enough.
pub fn check_for_threads(threads_count: u64) -> anyhow::Result<()> {
    for limit in limits() {
        // Otherwise the arenas take the address space that the stacks need. Not done without a
        // limit.
        raw::share_one_arena();
        limit.check(threads_count)?;
    }
    Ok(())
}

/// Returns the memory limits that are set for this process. Without /proc it returns none, because
/// the memory in use is unknown.
fn limits() -> Vec<MemoryLimit> {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used_bytes = |place| {
        let pages = statm.split_ascii_whitespace().nth(place)?.parse::<u64>().ok()?;
        Some(pages * page_size() as u64)
    };
    // Fields 0 and 5 of statm: the whole address space; data and stacks.
    let known = [("-v", Resource::As, 0), ("-d", Resource::Data, 5)];
    let set = known.into_iter().filter_map(|(option, resource, place)| {
        let limit_bytes = getrlimit(resource).current?;
        Some(MemoryLimit { ulimit_option: option, limit_bytes, used_bytes: used_bytes(place)? })
    });
    set.collect()
}

impl MemoryLimit {
    /// Checks that this limit leaves enough memory for this number of threads.
    fn check(&self, threads_count: u64) -> anyhow::Result<()> {
        let MemoryLimit { ulimit_option, limit_bytes, used_bytes } = *self;
        let needed_bytes = BASE_MEMORY_BYTES + threads_count * THREAD_BYTES;
        let left_bytes = limit_bytes.saturating_sub(used_bytes);
        if needed_bytes <= left_bytes {
            return Ok(());
        }
        let kib = |bytes: u64| bytes.div_ceil(1024);
        let fit_count = left_bytes.saturating_sub(BASE_MEMORY_BYTES) / THREAD_BYTES;
        // One thread waits for signals.
        let remedy = match fit_count.saturating_sub(1) {
            0 => "allow more".to_owned(),
            threads_max => format!("use at most {threads_max} threads, or allow more"),
        };
        bail!(
            "the threads of this demo need {} KiB, of which `ulimit {ulimit_option}` leaves {}: \
             {remedy} with `ulimit {ulimit_option} {}`",
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
    fn too_many_threads_are_refused_with_a_limit_that_suffices() {
        let used_bytes = 10 << 20;
        let limit = |limit_bytes| MemoryLimit { ulimit_option: "-v", limit_bytes, used_bytes };
        let needed_bytes = BASE_MEMORY_BYTES + 11 * THREAD_BYTES;
        limit(used_bytes + needed_bytes).check(11).expect("the limit is enough");
        let refused =
            limit(used_bytes + needed_bytes - 1).check(11).expect_err("the limit is too low");
        let kib = (used_bytes + needed_bytes + MARGIN_BYTES) / 1024;
        assert_eq!(
            refused.to_string(),
            format!(
                "the threads of this demo need {} KiB, of which `ulimit -v` leaves {}: use at \
                 most 9 threads, or allow more with `ulimit -v {kib}`",
                needed_bytes / 1024,
                needed_bytes / 1024 - 1
            )
        );
        limit(kib * 1024).check(11).expect("the suggested limit is enough");
        limit(used_bytes + needed_bytes - 1)
            .check(10)
            .expect("the suggested number of threads fits");
    }

    #[test]
    fn limit_below_current_use_asks_for_more() {
        let limit = MemoryLimit { ulimit_option: "-d", limit_bytes: 0, used_bytes: 1 << 20 };
        let refused = limit.check(1).expect_err("the limit is too low").to_string();
        assert!(refused.contains("`ulimit -d` leaves 0: allow more with"), "{refused}");
    }
}
