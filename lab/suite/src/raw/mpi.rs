//! The functions of an MPI library that this crate uses, loaded at run time.
//!
//! MPI standardises names and arguments, but not handles: Open MPI's are pointers to its objects,
//! those of MPICH and its descendants (one ABI, since 2013) are 32-bit numbers. On this
//! architecture both are passed in a 64-bit register, of which a callee that expects 32 bits reads
//! the lower half; so one set of signatures, with handles as `usize`, is right for both.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use handover_harness::Fault;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::error::Error;
use std::ffi::CStr;
use std::sync::OnceLock;

/// Handle of an MPI object: a pointer or an integer, depending on the library.
type Handle = usize;

/// Value of `MPI_SUCCESS` in Open MPI and in MPICH.
const SUCCESS: c_int = 0;
/// Size of the buffer for a library's description. It exceeds `MPI_MAX_LIBRARY_VERSION_STRING`,
/// which is 8192 in MPICH.
const VERSION_BYTES: usize = 16_384;

/// Functions of a loaded MPI library; Open MPI and MPICH declare them with the same signatures.
#[derive(Clone, Copy)]
struct MpiFunctions {
    init: unsafe extern "C" fn(*const c_int, *const c_void) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    version: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int,
    rank: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    size: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    send: unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int,
    receive: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        Handle,
        c_int,
        c_int,
        Handle,
        *mut c_void,
    ) -> c_int,
    probe: unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut c_void) -> c_int,
    set_error_handler: unsafe extern "C" fn(Handle, Handle) -> c_int,
    wtime: unsafe extern "C" fn() -> f64,
    allocate_window:
        unsafe extern "C" fn(isize, c_int, Handle, Handle, *mut c_void, *mut Handle) -> c_int,
    lock_all: unsafe extern "C" fn(c_int, Handle) -> c_int,
    unlock_all: unsafe extern "C" fn(Handle) -> c_int,
    flush: unsafe extern "C" fn(c_int, Handle) -> c_int,
    free_window: unsafe extern "C" fn(*mut Handle) -> c_int,
    put: MoveFunction,
    get: MoveFunction,
}

/// Type of the functions `MPI_Get` and `MPI_Put`.
type MoveFunction =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, isize, c_int, Handle, Handle) -> c_int;

/// Handles and constants of MPI whose values differ between Open MPI and MPICH.
#[derive(Clone, Copy)]
struct MpiConstants {
    /// Value of `MPI_COMM_WORLD`.
    world: Handle,
    /// Value of `MPI_BYTE`.
    byte: Handle,
    /// Value of `MPI_INFO_NULL`.
    no_info: Handle,
    /// Value of `MPI_STATUS_IGNORE`.
    no_status: usize,
    /// Value of `MPI_ERRORS_RETURN`.
    errors_return: Handle,
}

/// Functions and constants of the MPI library that was loaded.
#[derive(Clone, Copy)]
struct LoadedMpi {
    functions: MpiFunctions,
    constants: MpiConstants,
}

/// File names of Open MPI's library.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
/// File names of MPICH's library.
const MPICH: &[&str] = &["libmpich.so.12", "libmpi.so.12"];

/// Returns the file names to try: those of the launcher's MPI library, or of both without a
/// launcher.
fn library_names() -> Vec<&'static str> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    match (is_set("OMPI_COMM_WORLD_RANK"), is_set("PMI_RANK")) {
        (true, _) => OPEN_MPI.to_vec(),
        (false, true) => MPICH.to_vec(),
        (false, false) => [OPEN_MPI, MPICH].concat(),
    }
}

/// Loads the first MPI library that is installed. A static program refuses: the library would load
/// a second C library.
fn load() -> Result<LoadedMpi, Fault> {
    if cfg!(target_feature = "crt-static") {
        return Err(Fault::new("a static program cannot load an MPI library"));
    }
    let mut refused = Vec::new();
    for name in library_names() {
        // SAFETY: an MPI library's initialisers set up only its own state, and it is never
        // unloaded. RTLD_GLOBAL, as Open MPI's plug-ins use its symbols.
        match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => {
                return resolve_symbols(library)
                    .map_err(|error| Fault::new(format!("{name}: {error}")));
            }
            Err(error) => {
                refused.push(error.source().map_or(error.to_string(), ToString::to_string))
            }
        }
    }
    let errors = refused.join("; ");
    Err(Fault::new(format!("no MPI library could be loaded; install Open MPI or MPICH: {errors}")))
}

/// Returns the functions and constants of a loaded library, which is then never unloaded.
fn resolve_symbols(library: Library) -> Result<LoadedMpi, libloading::Error> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the MPI standard fixes name and arguments; the module's documentation
            // explains the handles.
            *unsafe { library.get($name) }?
        };
    }
    let functions = MpiFunctions {
        init: function!("MPI_Init"),
        finalize: function!("MPI_Finalize"),
        version: function!("MPI_Get_library_version"),
        rank: function!("MPI_Comm_rank"),
        size: function!("MPI_Comm_size"),
        send: function!("MPI_Send"),
        receive: function!("MPI_Recv"),
        probe: function!("MPI_Iprobe"),
        set_error_handler: function!("MPI_Comm_set_errhandler"),
        wtime: function!("MPI_Wtime"),
        allocate_window: function!("MPI_Win_allocate"),
        lock_all: function!("MPI_Win_lock_all"),
        unlock_all: function!("MPI_Win_unlock_all"),
        flush: function!("MPI_Win_flush"),
        free_window: function!("MPI_Win_free"),
        put: function!("MPI_Put"),
        get: function!("MPI_Get"),
    };
    let object = |name: &str| {
        // SAFETY: only the symbol's address is used.
        let symbol = unsafe { library.get::<*mut c_void>(name) };
        symbol.map(|it| it.into_raw() as Handle)
    };
    let constants = match object("ompi_mpi_comm_world") {
        Ok(world) => MpiConstants {
            world,
            byte: object("ompi_mpi_byte")?,
            no_info: object("ompi_mpi_info_null")?,
            no_status: 0,
            errors_return: object("ompi_mpi_errors_return")?,
        },
        // MPICH's ABI.
        Err(_) => MpiConstants {
            world: 0x4400_0000,
            byte: 0x4c00_010d,
            no_info: 0x1c00_0000,
            no_status: 1,
            errors_return: 0x5400_0001,
        },
    };
    // Never unloaded: MPI cannot be initialised again, and its library has threads and exit
    // handlers.
    std::mem::forget(library);
    Ok(LoadedMpi { functions, constants })
}

/// Returns an error if the MPI function `name` did not return `MPI_SUCCESS`. Unless
/// [`Mpi::return_errors`] was called, MPI ends the process on an error instead.
fn check(name: &str, code: c_int) -> Result<(), Fault> {
    match code == SUCCESS {
        true => Ok(()),
        false => Err(Fault::new(format!("{name} failed with the MPI error code {code}"))),
    }
}

/// Converts a size to the `int` that the function `name` expects.
fn size_as_int(name: &str, bytes: usize) -> Result<c_int, Fault> {
    let why = |_| Fault::new(format!("{name}: {bytes} bytes exceed the range of an int"));
    c_int::try_from(bytes).map_err(why)
}

/// An initialised MPI library. A process can initialise it once, and all ranks must finalise it.
pub struct Mpi {
    loaded: LoadedMpi,
    /// Marker that makes the type `!Send`, as only the thread that initialised MPI may use it.
    _not_send: std::marker::PhantomData<*const ()>,
}

handover_base::debug_struct!(Mpi);

impl Mpi {
    /// Loads and initialises an MPI library. A process without a launcher is the only rank.
    ///
    /// # Errors
    /// Fails if no library is found or it cannot be initialised.
    ///
    /// # Blocking
    /// Blocks until all ranks have called it: some 0.3 s on one machine.
    pub fn init() -> Result<Self, Fault> {
        static INITIALISED: OnceLock<()> = OnceLock::new();
        if INITIALISED.set(()).is_err() {
            return Err(Fault::new("MPI_Init: MPI was already initialised in this process"));
        }
        let loaded = load()?;
        // SAFETY: INITIALISED makes this the only call in the process; MPI_Init accepts null
        // arguments.
        check("MPI_Init", unsafe { (loaded.functions.init)(null(), null()) })?;
        Ok(Self { loaded, _not_send: std::marker::PhantomData })
    }

    /// Returns the name and version of the MPI library, the first line of its own description.
    ///
    /// # Errors
    /// Fails if the library does not give one.
    pub fn library_version(&self) -> Result<String, Fault> {
        let (mut text, mut bytes) = (vec![0u8; VERSION_BYTES], 0);
        let to = text.as_mut_ptr().cast();
        // SAFETY: the buffer is longer than the longest description, and `bytes` is writable.
        check("MPI_Get_library_version", unsafe {
            (self.loaded.functions.version)(to, &raw mut bytes)
        })?;
        let text = CStr::from_bytes_until_nul(&text).map_err(Fault::from_error)?;
        Ok(text.to_string_lossy().lines().next().unwrap_or_default().to_owned())
    }

    /// Returns this process's rank and the number of ranks.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn rank_and_count(&self) -> Result<(u32, u32), Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised while `self` exists; `rank` is a writable int.
        check("MPI_Comm_rank", unsafe { (functions.rank)(constants.world, &raw mut rank) })?;
        // SAFETY: MPI is initialised while `self` exists; `size` is a writable int.
        check("MPI_Comm_size", unsafe { (functions.size)(constants.world, &raw mut size) })?;
        Ok((rank.try_into().unwrap_or_default(), size.try_into().unwrap_or_default()))
    }

    /// Sends bytes to a rank.
    ///
    /// # Errors
    /// Fails with the library's error.
    ///
    /// # Blocking
    /// Blocks until the bytes may be changed again; possibly until the rank receives them.
    #[inline]
    pub fn send(&self, to_rank: u32, bytes: &[u8]) -> Result<(), Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        let (count, rank) = (size_as_int("MPI_Send", bytes.len())?, to_rank as c_int);
        let from = bytes.as_ptr().cast();
        // SAFETY: MPI reads `count` bytes of the slice, during the call only.
        check("MPI_Send", unsafe {
            (functions.send)(from, count, constants.byte, rank, 0, constants.world)
        })
    }

    /// Receives at most `into.len()` bytes from a rank.
    ///
    /// # Errors
    /// Fails with the library's error.
    ///
    /// # Blocking
    /// Blocks until the rank has sent a message.
    #[inline]
    pub fn receive(&self, from_rank: u32, into: &mut [u8]) -> Result<(), Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        let (count, rank) = (size_as_int("MPI_Recv", into.len())?, from_rank as c_int);
        let no_status = constants.no_status as *mut c_void;
        let to = into.as_mut_ptr().cast();
        // SAFETY: MPI writes at most `count` bytes to the slice, during the call only; the last
        // argument is the library's constant for "no status".
        check("MPI_Recv", unsafe {
            (functions.receive)(to, count, constants.byte, rank, 0, constants.world, no_status)
        })
    }

    /// Returns `true` if a message from this rank can be received without waiting.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn has_message(&self, from_rank: u32) -> Result<bool, Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        let (rank, mut found) = (from_rank as c_int, 0);
        let no_status = constants.no_status as *mut c_void;
        // SAFETY: MPI is initialised while `self` exists; `found` is a writable int, and the last
        // argument is the library's constant for "no status".
        check("MPI_Iprobe", unsafe {
            (functions.probe)(rank, 0, constants.world, &raw mut found, no_status)
        })?;
        Ok(found != 0)
    }

    /// Makes MPI's functions return errors instead of ending the process. A rank that has died is
    /// such an error.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn return_errors(&self) -> Result<(), Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        // SAFETY: MPI is initialised while `self` exists; both handles are the library's constants.
        check("MPI_Comm_set_errhandler", unsafe {
            (functions.set_error_handler)(constants.world, constants.errors_return)
        })
    }

    /// Calls `MPI_Wtime`; returns its time in seconds.
    #[inline]
    #[must_use]
    pub fn wtime_s(&self) -> f64 {
        // SAFETY: MPI is initialised while `self` exists.
        unsafe { (self.loaded.functions.wtime)() }
    }

    /// Allocates memory on each rank that the other ranks can access; called by all ranks together.
    pub(crate) fn allocate_window(&self, bytes: usize) -> Result<Window<'_>, Fault> {
        let LoadedMpi { functions, constants } = &self.loaded;
        let size = isize::try_from(bytes).map_err(Fault::from_error)?;
        let (mut start, mut window): (*mut u8, Handle) = (null_mut(), 0);
        // SAFETY: `start` is a writable pointer, and `window` is zero and has room for a handle of
        // either width.
        check("MPI_Win_allocate", unsafe {
            (functions.allocate_window)(
                size,
                1,
                constants.no_info,
                constants.world,
                (&raw mut start).cast(),
                &raw mut window,
            )
        })?;
        let window = Window { world: self, window, start, bytes };
        // SAFETY: the window was created above; 0 means no assertions.
        check("MPI_Win_lock_all", unsafe { (functions.lock_all)(0, window.window) })?;
        Ok(window)
    }

    /// Finalises MPI, together with all other ranks.
    ///
    /// # Errors
    /// Fails with the library's error.
    pub fn finalise(self) -> Result<(), Fault> {
        // SAFETY: MPI is initialised, and `self`, the only value that uses it, is consumed.
        check("MPI_Finalize", unsafe { (self.loaded.functions.finalize)() })
    }
}

/// Memory of this rank that other ranks can access.
pub(crate) struct Window<'a> {
    world: &'a Mpi,
    window: Handle,
    start: *mut u8,
    bytes: usize,
}

impl Window<'_> {
    /// Fills this rank's memory; no other rank may access it at that time.
    pub(crate) fn fill(&mut self, byte: u8) {
        // SAFETY: MPI_Win_allocate has given this rank `bytes` bytes at `start`, writable until the
        // window is freed.
        unsafe { self.start.write_bytes(byte, self.bytes) }
    }

    /// Returns the first byte of this rank's memory; `None` if it has none. No other rank may write
    /// the memory at that time.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        // SAFETY: `start` has `bytes` bytes, at least one.
        (self.bytes > 0).then(|| unsafe { self.start.read_volatile() })
    }

    /// Calls `MPI_Get` or `MPI_Put`, and waits for completion.
    fn move_by(
        &self,
        (name, moves): (&str, MoveFunction),
        ours: *mut u8,
        (rank, offset, bytes): (u32, usize, usize),
    ) -> Result<(), Fault> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(Fault::new(format!(
                "{name}: {bytes} bytes at offset {offset} exceed the window of {} bytes",
                self.bytes
            )));
        }
        let LoadedMpi { functions, constants } = &self.world.loaded;
        let (count, byte, rank) = (size_as_int(name, bytes)?, constants.byte, rank as c_int);
        // SAFETY: `ours` has `bytes` bytes, by the callers below; the window has `offset + bytes`
        // bytes on each rank, as all ranks allocate the same size; it is locked.
        let moved = unsafe {
            moves(ours.cast(), count, byte, rank, offset as isize, count, byte, self.window)
        };
        check(name, moved)?;
        // SAFETY: the window is locked since allocate_window().
        check("MPI_Win_flush", unsafe { (functions.flush)(rank, self.window) })
    }

    /// Copies from another rank's memory, and waits for completion.
    #[inline]
    pub(crate) fn get(&self, rank: u32, offset: usize, into: &mut [u8]) -> Result<(), Fault> {
        let how = ("MPI_Get", self.world.loaded.functions.get);
        self.move_by(how, into.as_mut_ptr(), (rank, offset, into.len()))
    }

    /// Copies to another rank's memory, and waits for completion.
    #[inline]
    pub(crate) fn put(&self, rank: u32, offset: usize, from: &[u8]) -> Result<(), Fault> {
        let how = ("MPI_Put", self.world.loaded.functions.put);
        // MPI_Put only reads it.
        self.move_by(how, from.as_ptr().cast_mut(), (rank, offset, from.len()))
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let functions = &self.world.loaded.functions;
        // SAFETY: allocate_window() has locked it. A failure here also fails MPI_Finalize, which
        // reports it.
        unsafe { (functions.unlock_all)(self.window) };
        // SAFETY: allocate_window() has created it; this frees it once, together with the other
        // ranks.
        unsafe { (functions.free_window)(&raw mut self.window) };
    }
}
