//! The few functions of an MPI library that are used here, found when they are needed.
//!
//! MPI fixes names and arguments, and leaves to each library what its handles are: Open MPI's are pointers to
//! objects of its own, those of MPICH and its descendants (one ABI, since 2013) are numbers of 32 bits. On
//! this architecture both travel in a register of 64 bits, of which a callee that wants 32 reads the lower
//! half; so one set of signatures, with handles as `usize`, is right for both.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::error::Error;
use std::ffi::CStr;
use std::sync::OnceLock;

type Handle = usize;

/// What `MPI_SUCCESS` is in both.
const SUCCESS: c_int = 0;
/// More than the longest description of a library (`MPI_MAX_LIBRARY_VERSION_STRING`: 8192 in MPICH).
const VERSION_BYTES: usize = 16_384;

/// The functions, as both libraries have them.
#[derive(Clone, Copy)]
struct Functions {
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
    wtime: unsafe extern "C" fn() -> f64,
    window: unsafe extern "C" fn(isize, c_int, Handle, Handle, *mut c_void, *mut Handle) -> c_int,
    lock_all: unsafe extern "C" fn(c_int, Handle) -> c_int,
    unlock_all: unsafe extern "C" fn(Handle) -> c_int,
    flush: unsafe extern "C" fn(c_int, Handle) -> c_int,
    free: unsafe extern "C" fn(*mut Handle) -> c_int,
    put: Moves,
    get: Moves,
}

/// From or to this side's memory; the window's offset is in its units, bytes here.
type Moves =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, isize, c_int, Handle, Handle) -> c_int;

/// The handles and the constants in which the two differ.
#[derive(Clone, Copy)]
struct Constants {
    world: Handle,
    byte: Handle,
    no_info: Handle,
    /// `MPI_STATUS_IGNORE`.
    no_status: usize,
}

/// A library that was found.
#[derive(Clone, Copy)]
struct Loaded {
    functions: Functions,
    constants: Constants,
}

/// Where Open MPI is, and MPICH: by the names that their ABIs have.
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
const MPICH: &[&str] = &["libmpich.so.12", "libmpi.so.12"];

/// The library of whoever has launched this process; otherwise whichever there is.
fn names() -> Vec<&'static str> {
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    match (is_set("OMPI_COMM_WORLD_RANK"), is_set("PMI_RANK")) {
        (true, _) => OPEN_MPI.to_vec(),
        (false, true) => MPICH.to_vec(),
        (false, false) => [OPEN_MPI, MPICH].concat(),
    }
}

fn load() -> Result<Loaded, String> {
    let mut refused = Vec::new();
    for name in names() {
        // SAFETY: an MPI library's initialisers set up its own state; it stays loaded for ever. Open MPI's
        // plug-ins look for its symbols among those that all can see.
        match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return of(library).map_err(|error| format!("{name}: {error}")),
            Err(error) => {
                refused.push(error.source().map_or(error.to_string(), ToString::to_string))
            }
        }
    }
    Err(format!("no MPI library; install Open MPI's or MPICH's: {}", refused.join("; ")))
}

fn of(library: Library) -> Result<Loaded, libloading::Error> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the MPI standard fixes name and arguments; for handles see the module.
            *unsafe { library.get($name) }?
        };
    }
    let functions = Functions {
        init: function!("MPI_Init"),
        finalize: function!("MPI_Finalize"),
        version: function!("MPI_Get_library_version"),
        rank: function!("MPI_Comm_rank"),
        size: function!("MPI_Comm_size"),
        send: function!("MPI_Send"),
        receive: function!("MPI_Recv"),
        wtime: function!("MPI_Wtime"),
        window: function!("MPI_Win_allocate"),
        lock_all: function!("MPI_Win_lock_all"),
        unlock_all: function!("MPI_Win_unlock_all"),
        flush: function!("MPI_Win_flush"),
        free: function!("MPI_Win_free"),
        put: function!("MPI_Put"),
        get: function!("MPI_Get"),
    };
    let object = |name: &str| {
        // SAFETY: only its address is taken.
        let symbol = unsafe { library.get::<*mut c_void>(name) };
        symbol.map(|it| it.into_raw() as Handle)
    };
    let constants = match object("ompi_mpi_comm_world") {
        Ok(world) => Constants {
            world,
            byte: object("ompi_mpi_byte")?,
            no_info: object("ompi_mpi_info_null")?,
            no_status: 0,
        },
        // Of MPICH's ABI.
        Err(_) => {
            Constants { world: 0x4400_0000, byte: 0x4c00_010d, no_info: 0x1c00_0000, no_status: 1 }
        }
    };
    // MPI cannot be begun again, nor its library be unloaded: it has threads and exit handlers.
    std::mem::forget(library);
    Ok(Loaded { functions, constants })
}

/// What a function returned, by its name. MPI's own way, unless told otherwise, is to end the process.
fn done(name: &str, code: c_int) -> Result<(), String> {
    if code == SUCCESS { Ok(()) } else { Err(format!("{name} failed with {code}")) }
}

fn count_of(name: &str, bytes: usize) -> Result<c_int, String> {
    c_int::try_from(bytes).map_err(|_| format!("{name}: {bytes} bytes are more than MPI counts"))
}

/// MPI, from its beginning to its end: of one process once, and of the thread that has begun it.
pub(crate) struct World {
    loaded: Loaded,
    /// MPI may be used by the thread that has begun it.
    here: std::marker::PhantomData<*const ()>,
}

impl World {
    /// Begins it.
    pub(crate) fn begin() -> Result<Self, String> {
        static BEGUN: OnceLock<()> = OnceLock::new();
        if BEGUN.set(()).is_err() {
            return Err("MPI can be begun once in a process".into());
        }
        let loaded = load()?;
        // SAFETY: the first and only call in this process; no arguments are handed in.
        done("MPI_Init", unsafe { (loaded.functions.init)(null(), null()) })?;
        Ok(Self { loaded, here: std::marker::PhantomData })
    }

    /// What the library says that it is, in one line.
    pub(crate) fn library(&self) -> Result<String, String> {
        let (mut text, mut bytes) = (vec![0u8; VERSION_BYTES], 0);
        let to = text.as_mut_ptr().cast();
        // SAFETY: room for more than the longest description, and for its length.
        done("MPI_Get_library_version", unsafe {
            (self.loaded.functions.version)(to, &raw mut bytes)
        })?;
        let text = CStr::from_bytes_until_nul(&text).map_err(|error| error.to_string())?;
        Ok(text.to_string_lossy().lines().next().unwrap_or_default().to_owned())
    }

    /// Which rank this process is, of how many.
    pub(crate) fn rank(&self) -> Result<(u32, u32), String> {
        let Loaded { functions, constants } = &self.loaded;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI has begun; room for an int.
        done("MPI_Comm_rank", unsafe { (functions.rank)(constants.world, &raw mut rank) })?;
        // SAFETY: as above.
        done("MPI_Comm_size", unsafe { (functions.size)(constants.world, &raw mut size) })?;
        Ok((rank.try_into().unwrap_or_default(), size.try_into().unwrap_or_default()))
    }

    /// Sends bytes, and waits until they can be changed.
    #[inline]
    pub(crate) fn send(&self, to_rank: u32, bytes: &[u8]) -> Result<(), String> {
        let Loaded { functions, constants } = &self.loaded;
        let (count, rank) = (count_of("MPI_Send", bytes.len())?, to_rank as c_int);
        let from = bytes.as_ptr().cast();
        // SAFETY: MPI reads the slice while the call lasts.
        done("MPI_Send", unsafe {
            (functions.send)(from, count, constants.byte, rank, 0, constants.world)
        })
    }

    /// Waits for so many bytes at most.
    #[inline]
    pub(crate) fn receive(&self, from_rank: u32, into: &mut [u8]) -> Result<(), String> {
        let Loaded { functions, constants } = &self.loaded;
        let (count, rank) = (count_of("MPI_Recv", into.len())?, from_rank as c_int);
        let no_status = constants.no_status as *mut c_void;
        let to = into.as_mut_ptr().cast();
        // SAFETY: MPI writes to the slice while the call lasts; the last argument is its own constant for
        // "no status is wanted".
        done("MPI_Recv", unsafe {
            (functions.receive)(to, count, constants.byte, rank, 0, constants.world, no_status)
        })
    }

    /// Seconds, of MPI's clock.
    #[inline]
    pub(crate) fn wtime(&self) -> f64 {
        // SAFETY: MPI has begun.
        unsafe { (self.loaded.functions.wtime)() }
    }

    /// Memory of each rank that the others can reach; all ranks ask for it together.
    pub(crate) fn window(&self, bytes: usize) -> Result<Window<'_>, String> {
        let Loaded { functions, constants } = &self.loaded;
        let size = isize::try_from(bytes).map_err(|error| error.to_string())?;
        let (mut start, mut window): (*mut u8, Handle) = (null_mut(), 0);
        // SAFETY: room for a pointer, and for a handle of either width, which is 0 beforehand.
        done("MPI_Win_allocate", unsafe {
            (functions.window)(
                size,
                1,
                constants.no_info,
                constants.world,
                (&raw mut start).cast(),
                &raw mut window,
            )
        })?;
        let window = Window { world: self, window, start, bytes };
        // SAFETY: the window is there; no assertions are made.
        done("MPI_Win_lock_all", unsafe { (functions.lock_all)(0, window.window) })?;
        Ok(window)
    }

    /// Ends it, together with all other ranks.
    pub(crate) fn end(self) -> Result<(), String> {
        // SAFETY: MPI has begun, and `self` was the only way to use it.
        done("MPI_Finalize", unsafe { (self.loaded.functions.finalize)() })
    }
}

/// Memory of this rank that others reach.
pub(crate) struct Window<'a> {
    world: &'a World,
    window: Handle,
    start: *mut u8,
    bytes: usize,
}

impl Window<'_> {
    /// Fills this rank's own memory; nobody may reach for it meanwhile.
    pub(crate) fn fill(&mut self, byte: u8) {
        // SAFETY: MPI_Win_allocate has given so many bytes to this rank, writable until the window is freed.
        unsafe { self.start.write_bytes(byte, self.bytes) }
    }

    /// The first and the last byte of this rank's own memory; nobody may reach for it meanwhile.
    pub(crate) fn ends(&self) -> Option<(u8, u8)> {
        let last = self.bytes.checked_sub(1)?;
        // SAFETY: as in fill(): at least one byte long.
        let first = unsafe { self.start.read_volatile() };
        // SAFETY: the last of its bytes.
        Some((first, unsafe { self.start.wrapping_add(last).read_volatile() }))
    }

    fn move_by(
        &self,
        (name, moves): (&str, Moves),
        ours: *mut u8,
        (rank, offset, bytes): (u32, usize, usize),
    ) -> Result<(), String> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(format!("{name}: outside of the window"));
        }
        let Loaded { functions, constants } = &self.world.loaded;
        let (count, byte, rank) = (count_of(name, bytes)?, constants.byte, rank as c_int);
        // SAFETY: so many bytes lie at `ours`, by the callers below, and at that offset of the window, which
        // is as long on each rank; it is locked.
        let moved = unsafe {
            moves(ours.cast(), count, byte, rank, offset as isize, count, byte, self.window)
        };
        done(name, moved)?;
        // SAFETY: the window is locked.
        done("MPI_Win_flush", unsafe { (functions.flush)(rank, self.window) })
    }

    /// Copies from that rank's memory, and waits until it is there.
    #[inline]
    pub(crate) fn get(&self, rank: u32, offset: usize, into: &mut [u8]) -> Result<(), String> {
        let how = ("MPI_Get", self.world.loaded.functions.get);
        self.move_by(how, into.as_mut_ptr(), (rank, offset, into.len()))
    }

    /// Copies into that rank's memory, and waits until it is there.
    #[inline]
    pub(crate) fn put(&self, rank: u32, offset: usize, from: &[u8]) -> Result<(), String> {
        let how = ("MPI_Put", self.world.loaded.functions.put);
        // MPI_Put reads it only.
        self.move_by(how, from.as_ptr().cast_mut(), (rank, offset, from.len()))
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let functions = &self.world.loaded.functions;
        // SAFETY: locked in window(). What fails now fails in MPI_Finalize too, where it is told.
        unsafe { (functions.unlock_all)(self.window) };
        // SAFETY: made in window(), and freed once; together with the other ranks.
        unsafe { (functions.free)(&raw mut self.window) };
    }
}
