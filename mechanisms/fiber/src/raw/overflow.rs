//! Signal handler for stack overflow: prints a message that names the fiber, and ends the process.
//!
//! The handler runs on an alternate stack, and checks whether the faulting address is in the guard
//! of the running fiber's stack. If not, the signal is passed on to the previous handler.

use super::control::FiberControl;
use super::current::this_worker;
use super::regions::find_region;
use std::io::{Cursor, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

/// Signal actions of SIGSEGV and SIGBUS from before this handler was installed.
static PREVIOUS_ACTIONS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
/// Signals that an access to a stack guard may raise.
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Size, in bytes, of the alternate signal stack. The kernel saves the registers there, and the
/// handler needs a few hundred bytes.
const ALTERNATE_STACK_BYTES: usize = 64 << 10;

/// Returns the running fiber, and its stack's size in bytes, if `addr` is in the guard of this
/// stack. `stack_pointer` is that of the interrupted code.
fn find_overflowed_fiber(
    addr: usize,
    stack_pointer: usize,
) -> Option<(&'static FiberControl, usize)> {
    let region = find_region(addr)?;
    let control = region.control_address_above(addr)?;
    // On a thread's own stack no fiber runs. What the worker takes for its running fiber is then
    // the previous one, which may have ended.
    find_region(stack_pointer)?;
    let running = this_worker()?.running_fiber().filter(|it| it.addr().get() == control)?;
    // SAFETY: the stack pointer is in a slab, so this thread was interrupted in a fiber. A fiber is
    // noted as running before the switch to it, and this one cannot end, and so its control block
    // stays valid, before the interrupted code continues.
    let control = unsafe { running.as_ref() };
    Some((control, region.stack_bytes()))
}

/// Returns the stack pointer of the code that a signal has interrupted.
///
/// # Safety
/// `context` is the third argument of a handler with SA_SIGINFO, which has not returned yet.
unsafe fn interrupted_stack_pointer(context: *mut libc::c_void) -> usize {
    // SAFETY: the kernel passes a valid ucontext to a handler with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "aarch64")]
    let stack_pointer = context.uc_mcontext.sp;
    #[cfg(target_arch = "x86_64")]
    let stack_pointer = context.uc_mcontext.gregs[libc::REG_RSP as usize];
    stack_pointer as usize
}

/// Writes the message about a fiber that has overflowed its stack of `stack_bytes` bytes. Does not
/// allocate.
fn write_message(
    to: &mut impl Write,
    fiber: &FiberControl,
    stack_bytes: usize,
) -> std::io::Result<()> {
    write!(to, "\nfiber ")?;
    if let Some(name) = fiber.name() {
        write!(to, "'")?;
        to.write_all(&name.as_bytes()[..name.len().min(200)])?;
        write!(to, "' ")?;
    }
    write!(to, "(number {}) has overflowed its stack of {stack_bytes} bytes: ", fiber.id())?;
    writeln!(to, "raise Config::stack_bytes, or reduce its recursion")
}

/// Handles SIGSEGV and SIGBUS. Ends the process with a message if a fiber has overflowed its stack,
/// else forwards the signal.
extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
    let info_ref = unsafe { &*info };
    let overflowed = if is_sent(info_ref) {
        None
    } else {
        // SAFETY: the kernel sets the address of SIGSEGV and SIGBUS unless they were sent.
        let addr = unsafe { info_ref.si_addr() } as usize;
        // SAFETY: `context` is this handler's third argument, and the handler has SA_SIGINFO.
        find_overflowed_fiber(addr, unsafe { interrupted_stack_pointer(context) })
    };
    if let Some((control, stack_bytes)) = overflowed {
        let mut buffer = Cursor::new([0u8; 512]);
        let _ = write_message(&mut buffer, control, stack_bytes);
        let text = &buffer.get_ref()[..buffer.position() as usize];
        // SAFETY: the slice is valid for reads of its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        // SAFETY: abort() is async-signal-safe.
        unsafe { libc::abort() };
    }
    forward_signal(signal, info, context);
    if is_sent(info_ref) && has_default_action(signal) {
        // A handler that gives up restores the default action and relies on the faulting
        // instruction, which runs again. No instruction has raised a sent signal, so it is sent
        // again: the thread receives it once this handler has returned.
        // SAFETY: raise() takes no pointers, and is async-signal-safe.
        unsafe { libc::raise(signal) };
    }
}

/// Returns `true` if a thread or process has sent the signal, by kill(2) for example. Its siginfo
/// then contains the sender instead of the faulting address.
fn is_sent(info: &libc::siginfo_t) -> bool {
    info.si_code <= 0
}

/// Returns `true` if the current action of the signal is the default action.
fn has_default_action(signal: libc::c_int) -> bool {
    // SAFETY: all zeros is a valid sigaction.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: a null new action only reads the current one into `action`, which is valid for
    // writes; sigaction() is async-signal-safe.
    let is_read = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } == 0;
    is_read && action.sa_sigaction == libc::SIG_DFL
}

/// Passes a signal on to the action that was installed before this handler.
fn forward_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let index = usize::from(signal == libc::SIGBUS);
    let before = PREVIOUS_ACTIONS[index].get();
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
        // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO.
        Some((libc::SIG_IGN, _)) if is_sent(unsafe { &*info }) => {}
        _ => {
            // The faulting instruction runs again, or the caller sends the signal again, and the
            // default action follows. The kernel does not ignore a fault.
            // SAFETY: signal() with SIG_DFL takes no pointers of this program, and is
            // async-signal-safe.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

/// Installs the handler of stack overflows once in the process. Gives this thread an alternate
/// stack if it has none.
pub(crate) fn install_fault_handler() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&PREVIOUS_ACTIONS) {
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
    let memory = Box::leak(vec![0u8; ALTERNATE_STACK_BYTES].into_boxed_slice());
    alternate.ss_sp = memory.as_mut_ptr().cast();
    alternate.ss_size = memory.len();
    alternate.ss_flags = 0;
    // SAFETY: the memory has that length, is leaked, and is used for nothing else.
    unsafe { libc::sigaltstack(&raw const alternate, ptr::null_mut()) };
}
