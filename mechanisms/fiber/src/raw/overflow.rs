//! What happens when a stack is too small: a message that names the fiber, and the end of the process.
//!
//! The handler runs on a stack of its own, and looks whether the address that faulted is in the guard of one
//! of our stacks. If it is not, the fault is none of ours, and whoever handled it before does.

use super::control::{CONTROL_BYTES, Control};
use handover_base::sync::atomic::{AtomicPtr, Ordering};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// A slab, for the handler, which may not lock: a list to which is only ever added.
struct Region {
    start: usize,
    bytes: usize,
    stride: usize,
    guard_bytes: usize,
    colours: usize,
    next: *const Region,
}

static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());
/// What handled these signals before us: SIGSEGV, and SIGBUS.
static BEFORE: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// For the handler: it needs a few hundred bytes, and what the kernel saves of the registers.
const ALTERNATE_BYTES: usize = 64 << 10;

/// Makes a slab known to the handler.
pub(super) fn register(
    start: usize,
    bytes: usize,
    stride: usize,
    guard_bytes: usize,
    colours: usize,
) {
    // Relaxed: compared, not followed.
    let mut next = REGIONS.load(Ordering::Relaxed);
    let region =
        Box::into_raw(Box::new(Region { start, bytes, stride, guard_bytes, colours, next }));
    // Release: publishes the region to the Acquire in find().
    while let Err(now) =
        REGIONS.compare_exchange_weak(next, region, Ordering::Release, Ordering::Relaxed)
    {
        next = now;
        // SAFETY: not published yet, so it is ours alone.
        unsafe { (*region).next = next };
    }
}

/// The fiber in whose guard `addr` is.
fn find(addr: usize) -> Option<(&'static Control, usize)> {
    // Acquire: pairs with the Release in register().
    let mut at = REGIONS.load(Ordering::Acquire).cast_const();
    while !at.is_null() {
        // SAFETY: regions are never freed nor changed once they are in the list.
        let region = unsafe { &*at };
        let offset = addr.wrapping_sub(region.start);
        if offset < region.bytes {
            let index = offset / region.stride;
            if offset % region.stride >= region.guard_bytes {
                return None;
            }
            let top = region.start + (index + 1) * region.stride - (index % region.colours) * 64;
            let control = ptr::with_exposed_provenance::<Control>(top - CONTROL_BYTES);
            // SAFETY: a stack whose guard is run into is in use, so that its control block is there.
            let control = unsafe { &*control };
            return Some((control, region.stride - region.guard_bytes));
        }
        at = region.next;
    }
    None
}

/// Puts text together without allocating.
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
    // SAFETY: the kernel gives a valid siginfo to a handler with SA_SIGINFO.
    let info_ref = unsafe { &*info };
    // SAFETY: for these signals the address is the union's member that is set.
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
        // SAFETY: the buffer is ours and so long.
        unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
        // SAFETY: allowed in a handler.
        unsafe { libc::abort() };
    }
    pass_on(signal, info, context);
}

/// Does what would have been done without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let which = usize::from(signal == libc::SIGBUS);
    let before = BEFORE[which].get();
    match before.map(|action| (action.sa_sigaction, action.sa_flags)) {
        Some((handler, flags)) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: it was installed as a handler of this kind.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(handler) };
                handler(signal, info, context);
            } else {
                // SAFETY: it was installed as a handler of this kind.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
                handler(signal);
            }
        }
        _ => {
            // The instruction faults again, and the default action follows.
            // SAFETY: restores the default.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Installs the handler, once in the process; and gives this thread a stack for it if it has none.
pub(crate) fn arm() {
    static ARMED: OnceLock<()> = OnceLock::new();
    ARMED.get_or_init(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            // SAFETY: all zeros is a valid sigaction.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut old = action;
            // SAFETY: reads what is there.
            if unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) } != 0 {
                continue;
            }
            let _ = before.set(old);
            // SAFETY: the handler is one for SA_SIGINFO and does only what a handler may.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    });
    // SAFETY: all zeros is a valid stack_t.
    let mut alternate: libc::stack_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: reads what is there.
    unsafe { libc::sigaltstack(ptr::null(), &raw mut alternate) };
    if alternate.ss_flags & libc::SS_DISABLE == 0 {
        return; // the standard library has given it one
    }
    // Kept for ever: the thread has it until its last instruction.
    let memory = Box::leak(vec![0u8; ALTERNATE_BYTES].into_boxed_slice());
    alternate.ss_sp = memory.as_mut_ptr().cast();
    alternate.ss_size = memory.len();
    alternate.ss_flags = 0;
    // SAFETY: the memory is of that length and nobody else's.
    unsafe { libc::sigaltstack(&raw const alternate, ptr::null_mut()) };
}
