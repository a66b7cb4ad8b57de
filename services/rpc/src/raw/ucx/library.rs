//! Functions and structures of UCX's `libucp`, which is loaded at run time.
//!
//! The structures are those of `ucp/api/ucp.h` and `ucp/api/ucp_def.h`, up to the last field that
//! is used here and with their full size. Each starts with a mask of its valid fields, by which
//! later versions of the library know which fields this version of the structure has.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error;
use std::sync::OnceLock;

/// File name of the library, with the version of its binary interface.
const LIBRARY_NAME: &str = "libucp.so.0";
/// Oldest version of UCX's interface that has all functions used here.
pub(super) const API_VERSION: (c_uint, c_uint) = (1, 11);

/// `ucs_status_t`, an enumeration of one byte; errors are negative.
pub(super) type Status = i8;
/// `ucs_status_ptr_t`: null, the address of a request, or a status between -100 and -1.
pub(super) type StatusPtr = *mut c_void;

pub(super) const OK: Status = 0;
pub(super) const ERR_BUSY: Status = -15;
pub(super) const ERR_EXCEEDS_LIMIT: Status = -21;
/// Lowest status, which is an error.
const ERR_LAST: isize = -100;

pub(super) const FEATURE_RMA: u64 = 1 << 1;
pub(super) const FEATURE_WAKEUP: u64 = 1 << 4;
pub(super) const FEATURE_AM: u64 = 1 << 6;
pub(super) const THREAD_MODE_SERIALIZED: c_int = 1;
pub(super) const ERR_HANDLING_MODE_NONE: c_int = 0;
pub(super) const ERR_HANDLING_MODE_PEER: c_int = 1;
pub(super) const WORKER_FLAG_IGNORE_REQUEST_LEAK: u64 = 1;
pub(super) const EP_CLOSE_FLAG_FORCE: u32 = 1;
pub(super) const AM_SEND_FLAG_EAGER: u32 = 1 << 1;
pub(super) const MEM_MAP_ALLOCATE: c_uint = 1 << 1;
pub(super) const AM_FLAG_WHOLE_MSG: u32 = 1;
pub(super) const AM_RECV_ATTR_FLAG_RNDV: u64 = 1 << 17;
pub(super) const OP_ATTR_FIELD_CALLBACK: u32 = 1 << 1;
pub(super) const OP_ATTR_FIELD_USER_DATA: u32 = 1 << 2;
pub(super) const OP_ATTR_FIELD_FLAGS: u32 = 1 << 4;

/// `ucp_params_t`.
#[repr(C)]
pub(super) struct ContextParameters {
    pub(super) field_mask: u64,
    pub(super) features: u64,
    pub(super) unused: [usize; 4],
    pub(super) mt_workers_shared: c_int,
    pub(super) unused_too: [usize; 3],
}

impl ContextParameters {
    pub(super) const FEATURES: u64 = 1;
    pub(super) const MT_WORKERS_SHARED: u64 = 1 << 5;
}

/// `ucp_worker_params_t`.
#[repr(C)]
pub(super) struct WorkerParameters {
    pub(super) field_mask: u64,
    pub(super) thread_mode: c_int,
    pub(super) cpu_mask: [u64; 16],
    pub(super) events: c_uint,
    pub(super) user_data: *mut c_void,
    pub(super) event_fd: c_int,
    pub(super) flags: u64,
    pub(super) unused: [usize; 3],
}

impl WorkerParameters {
    pub(super) const THREAD_MODE: u64 = 1;
    pub(super) const FLAGS: u64 = 1 << 5;
}

/// Type of the function that is called when an endpoint has failed (`ucp_err_handler_cb_t`).
pub(super) type ErrorCallback = unsafe extern "C" fn(*mut c_void, *mut c_void, Status);

/// `ucp_ep_params_t`.
#[repr(C)]
pub(super) struct EndpointParameters {
    pub(super) field_mask: u64,
    pub(super) address: *const c_void,
    pub(super) err_mode: c_int,
    pub(super) error_callback: Option<ErrorCallback>,
    pub(super) error_argument: *mut c_void,
    pub(super) unused: [usize; 8],
}

impl EndpointParameters {
    pub(super) const REMOTE_ADDRESS: u64 = 1;
    pub(super) const ERR_HANDLING_MODE: u64 = 1 << 1;
    pub(super) const ERR_HANDLER: u64 = 1 << 2;
}

/// Type of the function that is called for each active message (`ucp_am_recv_callback_t`).
pub(super) type MessageCallback = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *const MessageParameters,
) -> Status;

/// `ucp_am_handler_param_t`.
#[repr(C)]
pub(super) struct HandlerParameters {
    pub(super) field_mask: u64,
    pub(super) id: c_uint,
    pub(super) flags: u32,
    pub(super) callback: Option<MessageCallback>,
    pub(super) argument: *mut c_void,
}

impl HandlerParameters {
    pub(super) const ALL_FIELDS: u64 = 0b1111;
}

/// `ucp_am_recv_param_t`.
#[repr(C)]
pub(super) struct MessageParameters {
    pub(super) recv_attr: u64,
    pub(super) reply_ep: *mut c_void,
}

/// Type of the function that is called when an operation is complete (`ucp_send_nbx_callback_t`).
pub(super) type CompletionCallback = unsafe extern "C" fn(*mut c_void, Status, *mut c_void);

/// `ucp_request_param_t`.
#[repr(C)]
pub(super) struct RequestParameters {
    pub(super) op_attr_mask: u32,
    pub(super) flags: u32,
    pub(super) request: *mut c_void,
    pub(super) callback: Option<CompletionCallback>,
    pub(super) datatype: u64,
    pub(super) user_data: *mut c_void,
    pub(super) unused: [usize; 4],
}

/// `ucp_mem_map_params_t`.
#[repr(C)]
pub(super) struct MemoryParameters {
    pub(super) field_mask: u64,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) flags: c_uint,
    pub(super) prot: c_uint,
    pub(super) memory_type: c_int,
}

impl MemoryParameters {
    pub(super) const ADDRESS: u64 = 1;
    pub(super) const LENGTH: u64 = 1 << 1;
    pub(super) const FLAGS: u64 = 1 << 2;
}

/// `ucp_mem_attr_t`.
#[repr(C)]
pub(super) struct MemoryAttributes {
    pub(super) field_mask: u64,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) memory_type: c_int,
}

impl MemoryAttributes {
    pub(super) const ADDRESS: u64 = 1;
    pub(super) const LENGTH: u64 = 1 << 1;
}

/// Type of a handler of log messages (`ucs_log_func_t`), whose last argument is a `va_list`.
type LogFunction = unsafe extern "C" fn(
    *const c_char,
    c_uint,
    *const c_char,
    c_int,
    *const c_void,
    *const c_char,
    *mut c_void,
) -> c_int;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the loaded library.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn resolve(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the header of the library declares the function with these arguments.
                    $($field: *unsafe { library.get($name) }?,)*
                })
            }
        }
    };
}

functions! {
    init_version = "ucp_init_version": fn(c_uint, c_uint, *const ContextParameters, *const c_void, *mut *mut c_void) -> Status;
    cleanup = "ucp_cleanup": fn(*mut c_void);
    config_read = "ucp_config_read": fn(*const c_char, *const c_char, *mut *mut c_void) -> Status;
    config_modify = "ucp_config_modify": fn(*mut c_void, *const c_char, *const c_char) -> Status;
    config_release = "ucp_config_release": fn(*mut c_void);
    worker_create = "ucp_worker_create": fn(*mut c_void, *const WorkerParameters, *mut *mut c_void) -> Status;
    worker_destroy = "ucp_worker_destroy": fn(*mut c_void);
    worker_get_address = "ucp_worker_get_address": fn(*mut c_void, *mut *mut c_void, *mut usize) -> Status;
    worker_release_address = "ucp_worker_release_address": fn(*mut c_void, *mut c_void);
    worker_progress = "ucp_worker_progress": fn(*mut c_void) -> c_uint;
    worker_get_efd = "ucp_worker_get_efd": fn(*mut c_void, *mut c_int) -> Status;
    worker_arm = "ucp_worker_arm": fn(*mut c_void) -> Status;
    worker_set_am_recv_handler = "ucp_worker_set_am_recv_handler": fn(*mut c_void, *const HandlerParameters) -> Status;
    ep_create = "ucp_ep_create": fn(*mut c_void, *const EndpointParameters, *mut *mut c_void) -> Status;
    ep_close_nbx = "ucp_ep_close_nbx": fn(*mut c_void, *const RequestParameters) -> StatusPtr;
    am_send_nbx = "ucp_am_send_nbx": fn(*mut c_void, c_uint, *const c_void, usize, *const c_void, usize, *const RequestParameters) -> StatusPtr;
    ep_flush_nbx = "ucp_ep_flush_nbx": fn(*mut c_void, *const RequestParameters) -> StatusPtr;
    mem_map = "ucp_mem_map": fn(*mut c_void, *const MemoryParameters, *mut *mut c_void) -> Status;
    mem_query = "ucp_mem_query": fn(*mut c_void, *mut MemoryAttributes) -> Status;
    mem_unmap = "ucp_mem_unmap": fn(*mut c_void, *mut c_void) -> Status;
    rkey_pack = "ucp_rkey_pack": fn(*mut c_void, *mut c_void, *mut *mut c_void, *mut usize) -> Status;
    rkey_buffer_release = "ucp_rkey_buffer_release": fn(*mut c_void);
    ep_rkey_unpack = "ucp_ep_rkey_unpack": fn(*mut c_void, *const c_void, *mut *mut c_void) -> Status;
    rkey_destroy = "ucp_rkey_destroy": fn(*mut c_void);
    get_nbx = "ucp_get_nbx": fn(*mut c_void, *mut c_void, usize, u64, *mut c_void, *const RequestParameters) -> StatusPtr;
    put_nbx = "ucp_put_nbx": fn(*mut c_void, *const c_void, usize, u64, *mut c_void, *const RequestParameters) -> StatusPtr;
    request_free = "ucp_request_free": fn(*mut c_void);
    status_string = "ucs_status_string": fn(Status) -> *const c_char;
    log_push_handler = "ucs_log_push_handler": fn(LogFunction);
}

impl Functions {
    /// Returns the library's text for a status.
    pub(super) fn status_text(&self, status: Status) -> String {
        // SAFETY: any status is allowed; the function returns a constant or a static text that ends
        // with a zero.
        let text = unsafe { (self.status_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, as checked above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Result of an operation that UCX may complete later.
pub(super) enum Started {
    Completed,
    /// The operation is under way. Its callback is called when it is complete.
    Pending,
    Failed(Status),
}

impl Started {
    pub(super) fn from_pointer(pointer: StatusPtr) -> Self {
        match pointer as isize {
            0 => Self::Completed,
            // A status, which is in this range: it fits one byte.
            status @ ERR_LAST..0 => Self::Failed(status as Status),
            _ => Self::Pending,
        }
    }
}

/// Discards a log message of the library. Errors are reported as statuses.
unsafe extern "C" fn discard_log(
    _file: *const c_char,
    _line: c_uint,
    _function: *const c_char,
    _level: c_int,
    _component: *const c_void,
    _format: *const c_char,
    _arguments: *mut c_void,
) -> c_int {
    0 // UCS_LOG_FUNC_RC_STOP
}

/// Environment variables by which a user asks for the library's log.
const LOG_VARIABLES: [&str; 2] = ["UCX_LOG_LEVEL", "UCX_LOG_FILE"];
/// Signals for which the library installs handlers when it is loaded.
const HANDLED_SIGNALS: [c_int; 5] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// Loads the library. A static program refuses: the library would load a second C library.
fn load() -> Result<Functions, String> {
    if cfg!(target_feature = "crt-static") {
        return Err(format!("a static program cannot load {LIBRARY_NAME}"));
    }
    let handlers = HANDLED_SIGNALS.map(|signal| {
        // SAFETY: all zeros is a valid `sigaction`: an empty mask, no flags and the default
        // handler.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null pointer as the new action leaves the action unchanged; `before` is
        // writable.
        let read = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut before) };
        (signal, before, read == 0)
    });
    // SAFETY: the library's initialisers set up its own state, and the signal handlers that are
    // restored below; it is never unloaded.
    let opened = unsafe { Library::open(Some(LIBRARY_NAME), RTLD_NOW | RTLD_LOCAL) };
    for (signal, before, _) in handlers.iter().filter(|it| it.2) {
        // SAFETY: the action that was in place before, for the same signal.
        unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
    }
    let library =
        opened.map_err(|error| error.source().map_or(error.to_string(), ToString::to_string))?;
    let functions = Functions::resolve(&library).map_err(|error| {
        let (major, minor) = API_VERSION;
        format!("{LIBRARY_NAME} is older than UCX {major}.{minor}: {error}")
    })?;
    if LOG_VARIABLES.iter().all(|it| std::env::var_os(it).is_none()) {
        // SAFETY: the handler has the type that the library calls, and reads none of its arguments.
        unsafe { (functions.log_push_handler)(discard_log) };
    }
    // Never unloaded: the library has threads and exit handlers.
    std::mem::forget(library);
    Ok(functions)
}

/// Returns the functions of the library, which the first call loads. Fails with the reason if it
/// cannot be loaded.
pub(super) fn functions() -> Result<&'static Functions, &'static str> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(String::as_str)
}

/// Returns `true` if the library can be loaded.
pub(crate) fn is_available() -> bool {
    functions().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use std::process::Command;

    #[test]
    fn layouts_are_those_of_the_installed_header() {
        let expected = [
            ("sizeof(ucs_status_t)", size_of::<Status>()),
            ("sizeof(ucp_params_t)", size_of::<ContextParameters>()),
            (
                "offsetof(ucp_params_t, mt_workers_shared)",
                offset_of!(ContextParameters, mt_workers_shared),
            ),
            ("sizeof(ucp_worker_params_t)", size_of::<WorkerParameters>()),
            (
                "offsetof(ucp_worker_params_t, thread_mode)",
                offset_of!(WorkerParameters, thread_mode),
            ),
            ("offsetof(ucp_worker_params_t, flags)", offset_of!(WorkerParameters, flags)),
            ("sizeof(ucp_ep_params_t)", size_of::<EndpointParameters>()),
            ("offsetof(ucp_ep_params_t, address)", offset_of!(EndpointParameters, address)),
            ("offsetof(ucp_ep_params_t, err_mode)", offset_of!(EndpointParameters, err_mode)),
            (
                "offsetof(ucp_ep_params_t, err_handler.cb)",
                offset_of!(EndpointParameters, error_callback),
            ),
            (
                "offsetof(ucp_ep_params_t, err_handler.arg)",
                offset_of!(EndpointParameters, error_argument),
            ),
            ("sizeof(ucp_am_handler_param_t)", size_of::<HandlerParameters>()),
            ("offsetof(ucp_am_handler_param_t, id)", offset_of!(HandlerParameters, id)),
            ("offsetof(ucp_am_handler_param_t, cb)", offset_of!(HandlerParameters, callback)),
            ("offsetof(ucp_am_handler_param_t, arg)", offset_of!(HandlerParameters, argument)),
            ("sizeof(ucp_am_recv_param_t)", size_of::<MessageParameters>()),
            ("offsetof(ucp_am_recv_param_t, recv_attr)", offset_of!(MessageParameters, recv_attr)),
            ("sizeof(ucp_request_param_t)", size_of::<RequestParameters>()),
            ("offsetof(ucp_request_param_t, flags)", offset_of!(RequestParameters, flags)),
            ("offsetof(ucp_request_param_t, cb)", offset_of!(RequestParameters, callback)),
            ("offsetof(ucp_request_param_t, user_data)", offset_of!(RequestParameters, user_data)),
            ("sizeof(ucp_mem_map_params_t)", size_of::<MemoryParameters>()),
            ("offsetof(ucp_mem_map_params_t, length)", offset_of!(MemoryParameters, length)),
            ("offsetof(ucp_mem_map_params_t, prot)", offset_of!(MemoryParameters, prot)),
            ("offsetof(ucp_mem_map_params_t, flags)", offset_of!(MemoryParameters, flags)),
            ("sizeof(ucp_mem_attr_t)", size_of::<MemoryAttributes>()),
            ("offsetof(ucp_mem_attr_t, address)", offset_of!(MemoryAttributes, address)),
            ("offsetof(ucp_mem_attr_t, length)", offset_of!(MemoryAttributes, length)),
            ("UCP_MEM_MAP_ALLOCATE", MEM_MAP_ALLOCATE as usize),
            ("UCP_MEM_MAP_PARAM_FIELD_FLAGS", MemoryParameters::FLAGS as usize),
            ("UCP_MEM_ATTR_FIELD_LENGTH", MemoryAttributes::LENGTH as usize),
            ("UCP_FEATURE_RMA", FEATURE_RMA as usize),
            ("UCP_FEATURE_WAKEUP", FEATURE_WAKEUP as usize),
            ("UCP_FEATURE_AM", FEATURE_AM as usize),
            ("UCS_THREAD_MODE_SERIALIZED", THREAD_MODE_SERIALIZED as usize),
            ("UCP_ERR_HANDLING_MODE_PEER", ERR_HANDLING_MODE_PEER as usize),
            ("UCP_EP_CLOSE_FLAG_FORCE", EP_CLOSE_FLAG_FORCE as usize),
            ("UCP_AM_SEND_FLAG_EAGER", AM_SEND_FLAG_EAGER as usize),
            ("UCP_AM_RECV_ATTR_FLAG_RNDV", AM_RECV_ATTR_FLAG_RNDV as usize),
            ("UCP_OP_ATTR_FIELD_FLAGS", OP_ATTR_FIELD_FLAGS as usize),
            ("-UCS_ERR_BUSY", -isize::from(ERR_BUSY) as usize),
            ("-UCS_ERR_EXCEEDS_LIMIT", -isize::from(ERR_EXCEEDS_LIMIT) as usize),
        ];
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
        let lines =
            expected.iter().map(|(what, _)| format!("printf(\"%zu\\n\", (size_t)({what}));"));
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <ucp/api/ucp.h>\nint main(void) {{ {} return 0; }}\n",
            lines.collect::<String>()
        );
        std::fs::write(&source, text).expect("write the program");
        let compiled = Command::new("cc").arg("-w").arg(&source).arg("-o").arg(&program).output();
        match compiled {
            Ok(it) if it.status.success() => {}
            other => {
                let why = other.map_or_else(
                    |error| error.to_string(),
                    |it| {
                        String::from_utf8_lossy(&it.stderr)
                            .lines()
                            .next()
                            .unwrap_or_default()
                            .into()
                    },
                );
                return println!("skipped: a program with ucp/api/ucp.h cannot be compiled: {why}");
            }
        }
        let printed = Command::new(&program).output().expect("run the program").stdout;
        let printed = String::from_utf8(printed).expect("numbers");
        for ((what, here), there) in expected.iter().zip(printed.lines()) {
            assert_eq!(here.to_string(), there, "{what}");
        }
        assert_eq!(printed.lines().count(), expected.len());
    }
}
