//! Tests that no call was optimised away: counted by the callee if the test can supply it,
//! otherwise read from the machine code of this program and of the embedded shared objects.

use crate::image::{Call, Image};
use handover_suite::call::rust::{Increment, call_through_dyn, call_through_pointer};
use handover_suite::call::{
    CallLoop, CallPath, OptLevel, SHARED_OBJECTS, c_call_loop, c_call_through_pointer, library,
    rust,
};
use std::cell::Cell;
use std::time::Duration;

const WAYS: [CallPath; 14] = [
    CallPath::Alone,
    CallPath::Inline,
    CallPath::SameFile,
    CallPath::OtherObject,
    CallPath::Static,
    CallPath::Plt,
    CallPath::NoPlt,
    CallPath::Pointer,
    CallPath::TwoExtra,
    CallPath::OneProbe,
    CallPath::TwoProbes,
    CallPath::Empty,
    CallPath::EmptyProbe,
    CallPath::EmptyPlt,
];

thread_local! {
    static CALLS_COUNT: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn counting_c(i: u64) -> u64 {
    CALLS_COUNT.set(CALLS_COUNT.get() + 1);
    i + 1
}

fn counting_rust(i: u64) -> u64 {
    counting_c(i)
}

struct Counting(Cell<u64>);

impl Increment for Counting {
    fn next(&self, i: u64) -> u64 {
        self.0.set(self.0.get() + 1);
        i + 1
    }
}

#[test]
fn every_loop_makes_the_requested_number_of_calls() {
    let mut loops: Vec<(String, CallLoop)> = vec![
        ("rust inline".into(), rust::inline),
        ("rust same_file".into(), rust::same_file),
        ("rust pointer".into(), rust::pointer),
        ("rust dynamic".into(), rust::dynamic),
    ];
    for way in WAYS {
        for level in [OptLevel::O0, OptLevel::O3] {
            loops.push((format!("{way:?} {level:?}"), c_call_loop(way, level).unwrap()));
        }
    }
    for (name, run) in loops {
        for n in [0, 1, 2, 12_345] {
            assert_eq!(run(n), n, "{name}");
        }
    }
}

#[test]
fn callee_behind_a_pointer_or_trait_object_counts_every_call() {
    CALLS_COUNT.set(0);
    assert_eq!(c_call_through_pointer(1000, counting_c), 1000);
    assert_eq!(CALLS_COUNT.get(), 1000);
    assert_eq!(call_through_pointer(500, counting_rust), 500);
    assert_eq!(CALLS_COUNT.get(), 1500);
    let counting = Counting(Cell::new(0));
    assert_eq!(call_through_dyn(700, &counting), 700);
    assert_eq!(counting.0.get(), 700);
}

/// Returns the only call in the loop of the function whose symbol contains `name`.
#[track_caller]
fn call_in_loop(image: &Image, name: &str) -> Call {
    let function = image.function(name);
    match function.calls_in_loops().as_slice() {
        [call] => call.clone(),
        calls => panic!("{name} calls {} times in its loop: {calls:?}\n{function}", calls.len()),
    }
}

#[test]
fn loops_linked_into_the_program_call_their_function() {
    let program = Image::of_this_program();
    for level in ["o0", "o3"] {
        for (way, callee) in [
            ("same_file", "next".to_string()),
            ("two_extra", "next".to_string()),
            ("other_object", format!("handover_next_other_object_{level}")),
            ("static", format!("handover_next_static_{level}")),
        ] {
            let call = call_in_loop(&program, &format!("handover_loop_{way}_{level}"));
            assert!(matches!(call, Call::Direct { .. }), "{way} {level}: {call:?}");
            assert!(program.names_at(&call).contains(&callee), "{way} {level}: {call:?}");
        }
        let call = call_in_loop(&program, &format!("handover_loop_pointer_{level}"));
        assert!(matches!(call, Call::Indirect), "{level}: {call:?}");
    }
}

#[test]
fn loops_without_a_call_have_an_iteration_for_each_addition() {
    let program = Image::of_this_program();
    // The last is the function that does nothing: its calls are removed.
    for name in ["alone_o0", "alone_o3", "inline_o0", "inline_o3", "empty_o3"] {
        let function = program.function(&format!("handover_loop_{name}"));
        assert_eq!(function.calls_in_loops().len(), 0, "{name}\n{function}");
        assert_eq!(function.loops_count(), 1, "{name}\n{function}");
    }
}

#[test]
fn an_empty_function_is_called_without_optimisation_or_with_a_probe_inside() {
    let program = Image::of_this_program();
    for name in ["empty_o0", "empty_probe_o0", "empty_probe_o3"] {
        let call = call_in_loop(&program, &format!("handover_loop_{name}"));
        assert!(program.names_at(&call).contains(&"empty".to_string()), "{name}: {call:?}");
    }
}

#[test]
fn a_function_with_probes_has_a_nop_for_each_and_calls_nothing() {
    let program = Image::of_this_program();
    for level in ["o0", "o3"] {
        for (way, count) in [("one_probe", 1), ("two_probes", 2)] {
            let call = call_in_loop(&program, &format!("handover_loop_{way}_{level}"));
            let next = program.function_at(&call);
            assert_eq!(
                (next.nops_count(), next.calls().len()),
                (count, 0),
                "{way} {level}\n{next}"
            );
        }
    }
}

#[test]
fn a_function_with_two_further_calls_makes_both() {
    let program = Image::of_this_program();
    for level in ["o0", "o3"] {
        let call = call_in_loop(&program, &format!("handover_loop_two_extra_{level}"));
        let next = program.function_at(&call);
        let names: Vec<String> =
            next.calls().iter().flat_map(|call| program.names_at(call)).collect();
        assert_eq!(next.calls().len(), 2, "{level}\n{next}");
        assert!(names.contains(&"enter".into()) && names.contains(&"leave".into()), "{names:?}");
    }
}

#[test]
fn rust_loops_call_their_function() {
    // Called here, so that the linker keeps them.
    for run in [rust::same_file, rust::pointer, rust::dynamic] {
        assert_eq!(run(3), 3);
    }
    let program = Image::of_this_program();
    // Besides the call there may be one to the code that ends the program when a C function
    // unwinds.
    let calls = program.function("call4rust9same_file").calls_in_loops();
    let names: Vec<String> = calls.iter().flat_map(|call| program.names_at(call)).collect();
    assert!(names.iter().any(|name| name.contains("call4rust4next")), "{names:?}");
    for name in ["call4rust20call_through_pointer", "call4rust16call_through_dyn"] {
        let calls = program.function(name).calls_in_loops();
        assert!(calls.contains(&Call::Indirect), "{name}: {calls:?}");
    }
}

#[test]
fn the_shared_loops_leave_their_object_for_every_call() {
    let [callee, caller] = SHARED_OBJECTS.map(|object| Image::of_bytes(object.bytes));
    for level in ["o0", "o3"] {
        let plt = call_in_loop(&caller, &format!("handover_loop_plt_{level}"));
        assert!(matches!(plt, Call::Direct { .. }), "{level}: {plt:?}");
        let slot = caller.slot_of_stub(&plt);
        let name = format!("handover_next_plt_{level}");
        assert_eq!(caller.symbol_in_slot(slot).as_deref(), Some(name.as_str()));

        let no_plt = caller.function(&format!("handover_loop_no_plt_{level}"));
        let slot = no_plt.slot_of_loop_call();
        let name = format!("handover_next_no_plt_{level}");
        assert_eq!(caller.symbol_in_slot(slot).as_deref(), Some(name.as_str()), "{no_plt}");

        let empty = call_in_loop(&caller, &format!("handover_loop_empty_plt_{level}"));
        let slot = caller.slot_of_stub(&empty);
        let name = format!("handover_next_empty_plt_{level}");
        assert_eq!(caller.symbol_in_slot(slot).as_deref(), Some(name.as_str()));

        for way in ["plt", "no_plt", "empty_plt"] {
            let name = format!("handover_next_{way}_{level}");
            assert!(!caller.defines(&name) && callee.defines(&name), "{name}");
        }
    }
}

#[test]
fn the_shared_objects_are_loaded_from_memory_so_that_the_program_can_be_moved() {
    assert_eq!(c_call_loop(CallPath::Plt, OptLevel::O3).unwrap()(3), 3);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for name in SHARED_OBJECTS.map(|object| object.name) {
        let lines: Vec<&str> = maps.lines().filter(|line| line.contains(name)).collect();
        assert!(!lines.is_empty(), "{name} is not loaded");
        assert!(lines.iter().all(|line| line.contains("/memfd:")), "{lines:?}");
    }
}

#[test]
fn an_environment_variable_is_found_when_set_and_not_otherwise() {
    assert!(!library::call_getenv(2, c"HANDOVER_CERTAINLY_UNSET"));
    // Cargo sets variables for every test; a bare run of this program has at least one variable.
    let set = std::env::vars_os().next().map(|(name, _)| name.into_encoded_bytes());
    let name = std::ffi::CString::new(set.unwrap()).unwrap();
    assert!(library::call_getenv(2, &name));
    assert!(!library::call_getenv(0, &name), "getenv was not called, but has found the variable");
}

#[test]
fn locks_are_freed_after_each_iteration() {
    // A second turn on a lock that was not freed would wait for ever.
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        library::mutex_lock_unlock(3).unwrap();
        library::recursive_mutex_lock_unlock(3).unwrap();
        library::spin_lock_unlock(3).unwrap();
        library::atomic_lock_unlock(3);
        done.send(()).unwrap();
    });
    assert_eq!(finished.recv_timeout(Duration::from_secs(10)), Ok(()));
}
