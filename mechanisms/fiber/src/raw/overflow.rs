//! Signal handler for stack overflow: prints a message that names the fiber, and ends the process.
//!
//! The handler runs on an alternate stack, and checks whether the faulting address is in the guard
//! of a fiber's stack. If not, the fault is passed on to the previous handler.

use super::control::{CONTROL_BYTES, Control};
use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// Description of a slab for the handler, which must not take locks: a node of a list that only
/// ever grows.
struct Region {
    start: usize,
    bytes: usize,
    stride: usize,
    guard_bytes: usize,
    colours: usize,
    next: *const Region,
}

static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
/// Previous actions of SIGSEGV and SIGBUS.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Size of the alternate stack: the handler needs a few hundred bytes, and the kernel room for the
/// saved registers.
const ALTERNATE_BYTES: usize = 64 << 10;

/// Makes a slab known to the handler.
pub(super) fn register(
    start: usize,
    bytes: usize,
    stride: usize,
    guard_bytes: usize,
    colours: usize,
) {
    // Relaxed: compared, not dereferenced.
    let mut next = REGIONS.load(Ordering::Relaxed);
    let region =
        Box::into_raw(Box::new(Region { start, bytes, stride, guard_bytes, colours, next }));
    // Release: publishes the region to the Acquire in find().
    while let Err(now) =
        REGIONS.compare_exchange_weak(next, region, Ordering::Release, Ordering::Relaxed)
    {
        next = now;
        // SAFETY: not published yet, so only this thread accesses it.
        unsafe { (*region).next = next };
    }
}

/// Returns the fiber whose guard contains `addr`, and the size of its stack.
fn find(addr: usize) -> Option<(&'static Control, usize)> {
    // Acquire: pairs with the Release in register().
    let mut at = REGIONS.load(Ordering::Acquire).cast_const();
    while !at.is_null() {
        // SAFETY: regions are neither freed nor changed once they are in the list.
        let region = unsafe { &*at };
        let offset = addr.wrapping_sub(region.start);
        if offset < region.bytes {
            let index = offset / region.stride;
            if offset % region.stride >= region.guard_bytes {
                return None;
            }
            let top = region.start + (index + 1) * region.stride - (index % region.colours) * 64;
            let control = ptr::with_exposed_provenance::<Control>(top - CONTROL_BYTES);
            // SAFETY: a fiber overflows only its own stack, so the stack is in use and its control
            // block is initialised.
            let control = unsafe { &*control };
            return Some((control, region.stride - region.guard_bytes));
        }
        at = region.next;
    }
    None
}

/// Buffer that formats text without allocating.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    fn add(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn add_number(&mut self, mut number: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.add(&digits[at..]);
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let info_ref = unsafe { &*info };
    // SAFETY: every siginfo has room for the address; for a fault by an access the kernel sets it.
    let addr = unsafe { info_ref.si_addr() } as usize;
    if let Some((control, stack_bytes)) = find(addr) {
        let mut text = Text { bytes: [0; 512], len: 0 };
        text.add(b"\nfiber ");
        if let Some(name) = control.name() {
            text.add(b"'");
            text.add(&name.as_bytes()[..name.len().min(200)]);
            text.add(b"' ");
        }
        text.add(b"(number ");
        text.add_number(control.id());
        text.add(b") has overflowed its stack of ");
        text.add_number(stack_bytes as u64);
        text.add(b" bytes: raise Config::stack_bytes, or let it recurse less\n");
        // SAFETY: `text.len` bytes of the buffer are initialised.
        unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
        // SAFETY: abort() is async-signal-safe.
        unsafe { libc::abort() };
    }
    pass_on(signal, info, context);
}

/// Passes a signal on to the action that was installed before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let which = usize::from(signal == libc::SIGBUS);
    let before = BEFORE[which].get();
    match before.map(|action| (action.sa_sigaction, action.sa_flags)) {
        Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: SA_SIGINFO is set, so the handler was installed with this signature.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: SA_SIGINFO is not set, so the handler was installed with this signature.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
        _ => {
            // The faulting instruction runs again, and the default action follows.
            // SAFETY: signal() with SIG_DFL takes no pointers of this program, and is
            // async-signal-safe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Installs the handler once in the process, and gives this thread an alternate stack if it has
/// none.
pub(crate) fn arm() {
    static ARMED: OnceLock<()> = OnceLock::new();
    ARMED.get_or_init(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: all zeros is a valid sigaction.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut old = action;
            // SAFETY: a null new action only reads the current one into `old`, which is valid for
            // writes.
            if unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) } != 0 {
                continue;
            }
            let _ = before.set(old);
            // SAFETY: the handler has the signature for SA_SIGINFO, and calls async-signal-safe
            // functions only.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    });
    // SAFETY: all zeros is a valid stack_t.
    let mut alternate: libc::stack_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: a null new stack only reads the current one into `alternate`, which is valid for
    // writes.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut alternate) };
    if alternate.ss_flags & libc::SS_DISABLE == 0 {
        return; // the standard library has given it one
    }
    // Leaked: the thread uses it until its last instruction.
    let memory = Box::leak(vec![0u8; ALTERNATE_BYTES].into_boxed_slice());
    alternate.ss_sp = memory.as_mut_ptr().cast();
    alternate.ss_size = memory.len();
    alternate.ss_flags = 0;
    // SAFETY: the memory has that length, is leaked, and is used for nothing else.
    unsafe { libc::sigaltstack(&raw const alternate, ptr::null_mut()) };
}
