//! Going on when a mapped file is cut short: the kernel sends SIGBUS to whoever touches what is gone.
//!
//! Nothing but a handler helps. A file that outlives the process has a name, and whoever may write it may
//! cut it short; only anonymous memory can be sealed against that.

use handover_base::sync::shared::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ptr;
use std::sync::OnceLock;

/// A stretch of mapped memory.
#[derive(Debug)]
pub(super) struct Range {
    start: AtomicUsize,
    /// Zero while nothing is mapped.
    bytes: AtomicUsize,
    is_taken: AtomicBool,
    is_cut: AtomicBool,
    next: *const Range,
}

// SAFETY: `next` is written before the range is published and never again; the rest are atomics.
unsafe impl Sync for Range {}

// SAFETY: as above; ranges are never freed.
unsafe impl Send for Range {}

/// The range that was made last; each leads to the one before. They are used again, and never freed: the
/// handler walks them without a lock.
static LAST: AtomicPtr<Range> = AtomicPtr::new(ptr::null_mut());

/// The action that was there before ours.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Range {
    /// Watches over a mapping, until [`release`](Range::release).
    pub(super) fn watch(start: usize, bytes: usize) -> &'static Self {
        let range = Self::all().find(|range| range.take()).unwrap_or_else(Self::push);
        range.is_cut.store(false, Ordering::Relaxed);
        range.start.store(start, Ordering::Relaxed);
        // Release: pairs with Acquire in holds(); who sees the length sees the start.
        range.bytes.store(bytes, Ordering::Release);
        range
    }

    /// To be called before the memory is unmapped.
    pub(super) fn release(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        // Release: pairs with Acquire in take().
        self.is_taken.store(false, Ordering::Release);
    }

    /// Whether its file was cut short, and what is stored there reaches nobody.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        // Acquire: pairs with Release in release().
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    fn push() -> &'static Self {
        let range = Box::into_raw(Box::new(Self {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_taken: AtomicBool::new(true),
            is_cut: AtomicBool::new(false),
            next: ptr::null(),
        }));
        let publish = |last: *mut Self| {
            // SAFETY: nobody else has it before it is published.
            unsafe { (*range).next = last };
            Some(range)
        };
        // Release: pairs with Acquire in all(). It ends, as publish() never refuses.
        let _ = LAST.fetch_update(Ordering::Release, Ordering::Relaxed, publish);
        // SAFETY: made above, and never freed.
        unsafe { &*range }
    }

    fn all() -> impl Iterator<Item = &'static Self> {
        // Acquire: pairs with Release in push(), for this one and all before it.
        let mut next: *const Self = LAST.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: null, or a range that push() has leaked.
            let range = unsafe { next.as_ref() }?;
            next = range.next;
            Some(range)
        })
    }

    /// Whoever asks from within the mapping keeps it, so that its own range does not change meanwhile.
    fn holds(&self, at: usize) -> bool {
        // Acquire: pairs with Release in watch().
        let bytes = self.bytes.load(Ordering::Acquire);
        at.wrapping_sub(self.start.load(Ordering::Relaxed)) < bytes
    }

    /// Puts memory of our own in the file's place; `false` if there is none.
    fn replace(&self) -> bool {
        let start = ptr::with_exposed_provenance_mut(self.start.load(Ordering::Relaxed));
        let bytes = self.bytes.load(Ordering::Relaxed);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // First: what is stored from now on is not believed.
        self.is_cut.store(true, Ordering::Relaxed);
        // SAFETY: the whole of a mapping of ours, reached as atomics alone, of any content; it is mapped
        // still, as the access that has faulted is on its way.
        unsafe { mmap_anonymous(start, bytes, access, MapFlags::PRIVATE | MapFlags::FIXED) }.is_ok()
    }
}

/// Has faults in ranges handled, once a process; all others go where they went before.
pub(crate) fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: all zeroes are a valid sigaction: the default, without flags.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: no new action, and room for the present one.
        unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) };
        before
    });
    // SAFETY: as above.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: an action whose handler has the signature that SA_SIGINFO asks for, and calls nothing that a
    // signal handler must not.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) };
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: SA_SIGINFO was set in install(): the kernel gives a siginfo_t that lives as long as this call.
    let info_here = unsafe { &*info };
    let code = info_here.si_code;
    // SAFETY: that of SIGBUS has an address; what another process has sent is not looked at below.
    let at = unsafe { info_here.si_addr() }.addr();
    // Negative or zero when another process has sent it.
    if code > 0
        && let Some(range) = Range::all().find(|range| range.holds(at))
        && range.replace()
    {
        return;
    }
    pass_on(signal, code, info, context);
}

/// As if this handler had not been there.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let handler = BEFORE.get().map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    let with_info = BEFORE.get().is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    match handler {
        libc::SIG_DFL | libc::SIG_IGN if handler == libc::SIG_DFL || code > 0 => {
            // SAFETY: the default action needs nothing. A fault that is not ignored comes again.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if code <= 0 {
                // SAFETY: as above: it ends the process when this handler returns.
                unsafe { libc::raise(signal) };
            }
        }
        libc::SIG_IGN => {}
        _ if with_info => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: whoever has installed it with SA_SIGINFO has given such a function.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        _ => {
            // SAFETY: whoever has installed it without SA_SIGINFO has given such a function.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
