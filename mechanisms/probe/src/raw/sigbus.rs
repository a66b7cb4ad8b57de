//! Handling of SIGBUS, which the kernel sends for an access to a mapping whose file was cut short.
//!
//! Only a handler helps: a file that outlives the process has a name, and anyone who may write to
//! the file may truncate it; only anonymous memory can be sealed against truncation.

use handover_base::sync::shared::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr;
use std::sync::OnceLock;

/// Memory range to which a file is mapped. The handler of SIGBUS searches a list of them for the
/// faulting address.
#[derive(Debug)]
pub(super) struct MappedRange {
    start: AtomicUsize,
    /// Length of the range in bytes; zero while no file is mapped.
    bytes: AtomicUsize,
    /// `true` while the entry of the list belongs to a mapping.
    is_in_use: AtomicBool,
    /// `true` once the file was truncated and the memory was replaced.
    is_truncated: AtomicBool,
    /// Next older entry of the list.
    next: *const MappedRange,
}

// SAFETY: `next` is written before the range is published and never again; the rest are atomics.
unsafe impl Sync for MappedRange {}

// SAFETY: `next` only points to ranges that are never freed; the other fields are atomics.
unsafe impl Send for MappedRange {}

/// Newest entry of the list of all ranges. Ranges are reused and never freed, so that the handler
/// can walk the list without a lock.
static NEWEST_NODE: AtomicPtr<MappedRange> = AtomicPtr::new(ptr::null_mut());

/// Signal action of SIGBUS before [`install_fault_handler`].
static PREVIOUS_ACTION: PreviousAction<libc::sigaction> = PreviousAction::new();

/// Signal action before the installation of a handler. The handler can read it from its first
/// signal on.
#[derive(Debug)]
struct PreviousAction<A> {
    /// Action that was read before the installation.
    read: OnceLock<A>,
    /// Action that the installation has replaced. It differs from `read` only if another thread has
    /// set an action in between.
    replaced: OnceLock<A>,
}

impl<A> PreviousAction<A> {
    const fn new() -> Self {
        Self { read: OnceLock::new(), replaced: OnceLock::new() }
    }

    /// Stores the action that `read` returns, then calls `install`, which installs the handler and
    /// returns the action that it has replaced. Further calls have no effect.
    fn install_once(&self, read: impl FnOnce() -> A, install: impl FnOnce() -> A) {
        self.replaced.get_or_init(|| {
            // Before the installation: a signal may arrive before `replaced` is set.
            self.read.get_or_init(read);
            install()
        });
    }

    /// Returns the action; `None` before the installation.
    fn get(&self) -> Option<&A> {
        self.replaced.get().or_else(|| self.read.get())
    }
}

impl MappedRange {
    /// Registers a mapping, until [`unregister`](MappedRange::unregister).
    pub(super) fn register(start: usize, bytes: usize) -> &'static Self {
        let range = Self::nodes().find(|range| range.claim()).unwrap_or_else(Self::add_node);
        range.is_truncated.store(false, Ordering::Relaxed);
        range.start.store(start, Ordering::Relaxed);
        // Release: pairs with Acquire in contains(), which reads the start after the length.
        range.bytes.store(bytes, Ordering::Release);
        range
    }

    /// Unregisters the mapping. Call it before the memory is unmapped.
    pub(super) fn unregister(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        // Release: pairs with Acquire in claim().
        self.is_in_use.store(false, Ordering::Release);
    }

    /// Returns `true` if the file was truncated. Stores then no longer reach the file.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated.load(Ordering::Relaxed)
    }

    /// Claims an entry of the list; returns `false` if it is in use.
    fn claim(&self) -> bool {
        // Acquire: pairs with Release in unregister().
        !self.is_in_use.swap(true, Ordering::Acquire)
    }

    /// Adds an entry that is in use to the list. Entries are never freed.
    fn add_node() -> &'static Self {
        let range = Box::into_raw(Box::new(Self {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_in_use: AtomicBool::new(true),
            is_truncated: AtomicBool::new(false),
            next: ptr::null(),
        }));
        let publish = |last: *mut Self| {
            // SAFETY: the range is a live allocation that no other thread can reach before it is
            // published.
            unsafe { (*range).next = last };
            Some(range)
        };
        // Release: pairs with Acquire in nodes(). The result is never Err, as publish() always
        // returns Some.
        let _ = NEWEST_NODE.fetch_update(Ordering::Release, Ordering::Relaxed, publish);
        // SAFETY: allocated above, and never freed.
        unsafe { &*range }
    }

    /// Iterates over all entries of the list, including those not in use.
    fn nodes() -> impl Iterator<Item = &'static Self> {
        // Acquire: pairs with Release in add_node(), for this range and all that it links to.
        let mut next: *const Self = NEWEST_NODE.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a range that add_node() has leaked.
            let range = unsafe { next.as_ref() }?;
            next = range.next;
            Some(range)
        })
    }

    /// Returns `true` if the mapping contains address `at`. If the caller faulted within this
    /// mapping, its thread cannot release the mapping, so that the range does not change.
    fn contains(&self, at: usize) -> bool {
        // Acquire: pairs with Release in register().
        let bytes = self.bytes.load(Ordering::Acquire);
        at.wrapping_sub(self.start.load(Ordering::Relaxed)) < bytes
    }

    /// Replaces the mapping of the file by anonymous memory; returns `false` if the kernel refuses.
    fn replace_by_anonymous(&self) -> bool {
        let start = ptr::with_exposed_provenance_mut(self.start.load(Ordering::Relaxed));
        let bytes = self.bytes.load(Ordering::Relaxed);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // Before the mapping changes: stores from now on do not reach the file.
        self.is_truncated.store(true, Ordering::Relaxed);
        // SAFETY: start and length are those of a mapping of this crate, accessed as atomics only,
        // for which any content is valid. It is still mapped: the access that faulted in it has not
        // returned.
        unsafe { mmap_anonymous(start, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED) }.is_ok()
    }
}

/// Installs the handler for faults in registered mappings, once. The handler passes all other
/// signals to the previous action. It does not replace a handler that the program installs later.
pub(crate) fn install_fault_handler() {
    // SAFETY: all zeroes are a valid sigaction: the default, without flags.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let read = || {
        let mut current = default;
        // SAFETY: sets no action, as the new one is null. `current` is valid for writing.
        unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut current) };
        current
    };
    let install = || {
        let (mut before, mut ours) = (default, default);
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: SA_SIGINFO is set and the handler has its signature; it calls only functions that
        // are async-signal-safe. `before` is valid for writing the current action.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
        before
    };
    PREVIOUS_ACTION.install_once(read, install);
}

/// Handles SIGBUS. Replaces the mapping that contains the address if its file was truncated, or
/// else passes the signal on.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: SA_SIGINFO was set in install_fault_handler(): the kernel passes a siginfo_t that is
    // valid for this call.
    let info_here = unsafe { &*info };
    let code = info_here.si_code;
    // SAFETY: a siginfo_t of SIGBUS has an address; if another process sent the signal, the value
    // is not used below.
    let at = unsafe { info_here.si_addr() }.addr();
    // Zero or negative if a process sent the signal.
    if code > 0
        && let Some(range) = MappedRange::nodes().find(|range| range.contains(at))
        && range.replace_by_anonymous()
    {
        return;
    }
    forward(signal, code, info, context);
}

/// Passes the signal to the signal action that was installed before this crate's handler.
fn forward(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let previous = PREVIOUS_ACTION.get();
    let handler = previous.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let wants_info = previous.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    match handler {
        libc::SIG_DFL | libc::SIG_IGN if handler == libc::SIG_DFL || code > 0 => {
            // SAFETY: sets the default action. A fault then occurs again when the handler returns.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if code <= 0 {
                // SAFETY: raises a signal with its default action; it ends the process when this
                // handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        libc::SIG_IGN => {}
        _ if wants_info => {
            /// Signal handler that takes the signal's details (`SA_SIGINFO`).
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: the action was installed with SA_SIGINFO, so that it is a function of this
            // type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        _ => {
            // SAFETY: the action was installed without SA_SIGINFO, so that it is a function of this
            // type.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(all(test, not(handover_loom)))]
mod tests {
    use super::*;

    #[test]
    fn previous_action_is_known_when_the_handler_is_installed() {
        let previous = PreviousAction::new();
        assert_eq!(previous.get(), None);
        let install = || {
            // A signal that arrives now is handled by the new handler.
            assert_eq!(previous.get(), Some(&"read"));
            "replaced"
        };
        previous.install_once(|| "read", install);
        assert_eq!(previous.get(), Some(&"replaced"));
        previous.install_once(|| unreachable!(), || unreachable!());
        assert_eq!(previous.get(), Some(&"replaced"));
    }
}
