//! `call/*`: the cost of a function call, by the function's location and the way of reaching it.
//!
//! Every loop does `i = next(i)` until `i` is `n`, where `next` adds one: `n` calls, each of which
//! depends on the previous one, and the result proves that none was left out. The figure includes
//! an iteration of the loop; `call/inline` is an iteration without a call. The C loops are compiled
//! from `c/` by build.rs, at -O0 and at -O3, into an archive and a shared object; the Rust loops
//! are in [`rust`]. The benchmarks run the C loops at -O3, the classic program both.

pub mod library;
pub mod rust;

use crate::common::ensure;
use crate::raw::{calls, shared};
use handover_harness::{Bench, Fault, Samples, Setup, Workload, benches};
use handover_record::Spec;
use std::hint::black_box;
use std::marker::PhantomData;

/// All benchmarks of function calls.
pub const BENCHES: &[Bench] = benches! {
    one floor "c": CallsInC<Inline>;
    one floor "rust": CallsInRust<Inline>;
    one floor "c": CallsInC<SameFile>;
    one floor "rust": CallsInRust<SameFile>;
    one floor "c": CallsInC<OtherObject>;
    one floor "c": CallsInC<Static>;
    one floor "c": CallsInC<Plt>;
    one floor "c": CallsInC<NoPlt>;
    one floor "c": CallsInC<Pointer>;
    one floor "rust": CallsInRust<Pointer>;
    one floor "rust": CallsInRust<Dyn>;
    one floor "c": CallsInC<TwoExtra>;
};

/// C or Rust function that makes `n` calls in a loop. It returns the number of calls counted by the
/// callee.
pub type CallLoop = extern "C" fn(n: u64) -> u64;

/// Way in which the C loop reaches the called function. Examples are a direct call, a pointer, and
/// a shared object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallPath {
    /// No call: the loop contains only the addition.
    Alone,
    /// The function is inlined at every optimisation level.
    Inline,
    /// The function is in the same source file as the loop.
    SameFile,
    /// The function is in another object file of the same archive.
    OtherObject,
    /// The function is in a static library.
    Static,
    /// The function is in a shared object, and is called through the procedure linkage table.
    Plt,
    /// The function is in a shared object, and is called through the global offset table alone
    /// (`-fno-plt`).
    NoPlt,
    /// The function is called through a pointer.
    Pointer,
    /// The function is in the same source file and calls two further functions. The calls are at
    /// its start and at its end.
    TwoExtra,
    /// The function is in the same source file and has one probe of `<sys/sdt.h>`. The probe is a
    /// `nop`, because no tool has enabled it.
    OneProbe,
    /// The function is in the same source file and has two `<sys/sdt.h>` probes. They are at its
    /// start and at its end.
    TwoProbes,
    /// The function is in the same source file, is empty, and must not be inlined. An optimising
    /// compiler removes the call.
    Empty,
    /// The function is in the same source file and contains only a `<sys/sdt.h>` probe. The call is
    /// thus not removed.
    EmptyProbe,
    /// The function is empty, is in a shared object, and is called through the procedure linkage
    /// table.
    EmptyPlt,
}

/// Optimisation level of the C compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptLevel {
    /// `-O0`: no optimisation.
    O0,
    /// `-O3`.
    O3,
}

/// Error of loading a shared object that this crate embeds; contains the loader's message.
#[derive(Debug, thiserror::Error)]
#[error("{0}; calls into shared objects cannot be measured")]
#[non_exhaustive]
pub struct LibraryLoadError(&'static str);

/// Returns the C loop for a call path and an optimisation level.
///
/// # Errors
/// Fails if the call path needs the shared objects and they cannot be loaded.
///
/// # Blocking
/// The first use of a shared object loads it, which takes a millisecond or so.
pub fn c_call_loop(path: CallPath, level: OptLevel) -> Result<CallLoop, LibraryLoadError> {
    let [o0, o3] = match path {
        CallPath::Alone => calls::ALONE,
        CallPath::Inline => calls::INLINE,
        CallPath::SameFile => calls::SAME_FILE,
        CallPath::OtherObject => calls::OTHER_OBJECT,
        CallPath::Static => calls::STATIC,
        CallPath::Plt => shared::load_loops().map_err(LibraryLoadError)?.plt,
        CallPath::NoPlt => shared::load_loops().map_err(LibraryLoadError)?.no_plt,
        CallPath::Pointer => [pointer_o0, pointer_o3],
        CallPath::TwoExtra => calls::TWO_EXTRA,
        CallPath::OneProbe => calls::ONE_PROBE,
        CallPath::TwoProbes => calls::TWO_PROBES,
        CallPath::Empty => calls::EMPTY,
        CallPath::EmptyProbe => calls::EMPTY_PROBE,
        CallPath::EmptyPlt => shared::load_loops().map_err(LibraryLoadError)?.empty_plt,
    };
    Ok(match level {
        OptLevel::O0 => o0,
        OptLevel::O3 => o3,
    })
}

/// Runs the C loop of [`CallPath::Pointer`] at -O0.
extern "C" fn pointer_o0(n: u64) -> u64 {
    calls::handover_loop_pointer_o0(n, black_box(calls::handover_next_static_o0))
}

/// Runs the C loop of [`CallPath::Pointer`] at -O3.
extern "C" fn pointer_o3(n: u64) -> u64 {
    c_call_through_pointer(n, black_box(calls::handover_next_static_o3))
}

/// Calls `next` from a C loop at -O3 until it returns `n` or more. Returns that result; the first
/// argument is 0, and each later one the previous result.
pub fn c_call_through_pointer(n: u64, next: extern "C" fn(u64) -> u64) -> u64 {
    calls::handover_loop_pointer_o3(n, next)
}

/// Shared object whose file is embedded in this crate.
#[derive(Clone, Copy, Debug)]
pub struct SharedObject {
    /// Soname of the object.
    pub name: &'static str,
    /// Content of the file.
    pub bytes: &'static [u8],
}

/// The two shared objects that [`CallPath::Plt`] and [`CallPath::NoPlt`] load: the callee, and the
/// loops that call it.
pub const SHARED_OBJECTS: [SharedObject; 2] = [
    SharedObject { name: "libhandover_callee.so", bytes: shared::CALLEE_OBJECT },
    SharedObject { name: "libhandover_caller.so", bytes: shared::CALLER_OBJECT },
];

/// Instrumentation of the function entries in a C program: none, calls of hooks, or space for a
/// jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// No instrumentation.
    Plain,
    /// Calls of `__cyg_profile_func_enter` and `_exit` in each function (`-finstrument-functions`).
    Hooks,
    /// Space for a jump instruction at each function's start (`-fpatchable-function-entry=5`).
    Patchable,
}

/// Returns the bytes of an executable that calls a function with this kind of entry. Its argument
/// is the number of calls. The function is in the same source file, compiled at -O3. The program
/// exits with status 0 if the function has counted all calls.
pub fn counting_program_file(entries: EntryKind) -> &'static [u8] {
    match entries {
        EntryKind::Plain => include_bytes!(concat!(env!("OUT_DIR"), "/program-plain")),
        EntryKind::Hooks => include_bytes!(concat!(env!("OUT_DIR"), "/program-hooks")),
        EntryKind::Patchable => include_bytes!(concat!(env!("OUT_DIR"), "/program-entries")),
    }
}

/// Declaration of a benchmark of function calls.
trait CallBenchmark {
    const SPEC: Spec;
}

/// Benchmark of function calls by a loop in C.
trait BenchmarkInC: CallBenchmark {
    const CALL_PATH: CallPath;
}

/// Benchmark of function calls by a loop in Rust.
trait BenchmarkInRust: CallBenchmark {
    const CALL_LOOP: CallLoop;
}

/// Declares benchmarks of function calls, each by a loop in C, in Rust, or both.
macro_rules! kinds {
    ($($name:ident $(C $way:ident)? $(Rust $run:ident)?: $id:literal, $what:literal
        $(. $option:ident($($value:literal)?))*;)*) => {$(
        struct $name;

        impl CallBenchmark for $name {
            const SPEC: Spec = Spec::new($id, $what)$(.$option($($value)?))*;
        }
        $(impl BenchmarkInC for $name {
            const CALL_PATH: CallPath = CallPath::$way;
        })?
        $(impl BenchmarkInRust for $name {
            const CALL_LOOP: CallLoop = rust::$run;
        })?
    )*};
}

kinds! {
    // Without a floor, as the empty operation has an additional store.
    Inline C Inline Rust inline: "call/inline",
        "inlined function: one loop iteration with one addition".classic("calls");
    SameFile C SameFile Rust same_file: "call/same-file",
        "call of a function in the same source file".floor("call/inline").classic("calls").ladder();
    OtherObject C OtherObject: "call/other-object",
        "call of a function in another object file".floor("call/inline").classic("node-microbench");
    Static C Static: "call/static",
        "call of a function in a static library".floor("call/inline").classic("calls");
    Plt C Plt: "call/plt", "call of a function in a shared object through the procedure linkage table"
        .floor("call/inline").classic("calls");
    NoPlt C NoPlt: "call/no-plt",
        "call of a function in a shared object through the global offset table (-fno-plt)"
        .floor("call/inline");
    Pointer C Pointer Rust pointer: "call/pointer",
        "call through a function pointer".floor("call/inline");
    Dyn Rust dynamic: "call/dyn",
        "call of a method of a trait object".floor("call/inline").ladder();
    TwoExtra C TwoExtra: "call/two-extra",
        "call of a function that calls two others, as a traced function calls its tracer"
        .floor("call/inline").classic("calls");
}

/// Workload: function calls by a loop in C.
struct CallsInC<K>(CallLoop, PhantomData<K>);

impl<K: BenchmarkInC> Workload for CallsInC<K> {
    type Args = ();
    const SPEC: Spec = K::SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(CallsInC(
            c_call_loop(K::CALL_PATH, OptLevel::O3).map_err(Fault::from_error)?,
            PhantomData,
        ))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        check_calls_count(self.0)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            black_box((self.0)(n));
        });
    }
}

/// Workload: function calls by a loop in Rust.
struct CallsInRust<K>(PhantomData<K>);

impl<K: BenchmarkInRust> Workload for CallsInRust<K> {
    type Args = ();
    const SPEC: Spec = K::SPEC;

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(CallsInRust(PhantomData))
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        check_calls_count(K::CALL_LOOP)
    }

    fn sample(&mut self, out: &mut Samples) {
        let run = black_box(K::CALL_LOOP);
        out.time_batches(|n| {
            black_box(run(n));
        });
    }
}

/// Fails if a loop makes more or fewer calls than requested.
fn check_calls_count(run: CallLoop) -> Result<(), Fault> {
    for n in [0, 1, 1000] {
        let counted = run(n);
        ensure(counted == n, || format!("{n} calls were requested, but {counted} were counted"))?;
    }
    Ok(())
}
