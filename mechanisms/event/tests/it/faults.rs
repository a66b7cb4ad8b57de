//! Refusals by the system: each is reported as an error, and the value that was passed in comes
//! back.

use handover_event::{
    Config, EndReason, Group, Interest, Machine, MachineError, ParkOn, Ready, Signals,
    ThreadConfig, handler,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Runs one test of this file in a child process, since limits and signal masks belong to a
/// process.
fn run_in_child_process(test: &str) {
    let executable = std::env::current_exe().expect("find this test's executable");
    let output = Command::new(executable)
        .args(["--exact", &format!("faults::{test}"), "--nocapture", "--test-threads=1"])
        .env("HANDOVER_ALONE", test)
        .output()
        .expect("start a child process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Returns `true` in the child process that [`run_in_child_process`] started for `test`; otherwise
/// runs that child.
fn is_child_process(test: &str) -> bool {
    let is_child_process = std::env::var("HANDOVER_ALONE").is_ok_and(|name| name == test);
    if !is_child_process {
        run_in_child_process(test);
    }
    is_child_process
}

/// Lowers this process's limit on `resource` to `current`.
fn limit(resource: Resource, current: u64) {
    let Rlimit { maximum, .. } = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(current), maximum }).expect("lower the limit");
}

#[test]
fn machine_is_returned_and_runs_if_no_thread_can_be_started() {
    if !is_child_process("machine_is_returned_and_runs_if_no_thread_can_be_started") {
        return;
    }
    let machine = Machine::new(handler(|(), cx| cx.stop()), Config::default()).expect("valid");
    machine.address().send(()).expect("send a message");
    // No address space holds such a stack: thread creation fails as under `ulimit -v`, but without
    // a limit that affects other threads.
    let refused = machine.spawn(thread::Builder::new().stack_size(1 << 46)).expect_err("no thread");
    assert!(
        refused.to_string().starts_with("cannot start a thread for the machine: "),
        "{refused}"
    );
    let mut machine = refused.machine;
    assert_eq!(machine.run().expect("runs"), EndReason::Stopped);
    assert_eq!(machine.stats().handled, 1);

    let group = Group::new(ThreadConfig::default()).expect("valid");
    let refused = group.spawn(thread::Builder::new().stack_size(1 << 46)).expect_err("no thread");
    assert_eq!(refused.machine.machines_count(), 0);
}

#[test]
fn machine_that_needs_a_descriptor_is_refused_if_there_is_none() {
    if !is_child_process("machine_that_needs_a_descriptor_is_refused_if_there_is_none") {
        return;
    }
    let (ours, _theirs) = UnixStream::pair().expect("a socket pair");
    limit(Resource::Nofile, 0);
    let mut machine =
        Machine::new(handler(|_: Ready, _cx| ()), Config::default()).expect("needs none");
    let refused = machine.context().watch(ours, Interest::READ, |ready| ready);
    assert!(refused.expect_err("no eventfd").to_string().contains("failed"));
    machine.context().after(Duration::from_millis(1), Ready::default()).expect("a timer");
    assert_eq!(machine.run_once().expect("it still sleeps and wakes").handled, 1);
    let thread = ThreadConfig::default().park_on(ParkOn::Descriptor);
    let config = Config::default().thread(thread);
    let refused = Machine::new(handler(|(), _cx| ()), config).expect_err("no eventfd");
    assert!(matches!(refused, MachineError::SystemCall { call: "eventfd2", .. }), "{refused}");
    assert!(Signals::block(&[Signals::USR1]).is_err());
}

#[test]
fn inbox_that_does_not_fit_into_memory_is_refused() {
    let config = Config::default().inbox_messages_max(1 << 31);
    let refused = Machine::new(handler(|_: [u64; 64], _cx| ()), config);
    assert!(matches!(refused, Err(MachineError::Inbox(_))), "{refused:?}");
}

#[test]
fn requested_signal_stops_a_machine_and_is_reported() {
    if !is_child_process("requested_signal_stops_a_machine_and_is_reported") {
        return;
    }
    let signals = Signals::block(&[Signals::INT, Signals::TERM]).expect("blocked");
    let raise = handler(|signal: i32, _cx| {
        // Sent to this very thread, which blocks the signal; other threads of the test process may
        // not block it.
        signal_hook::low_level::raise(signal).expect("a signal");
    });
    let mut machine = Machine::new(raise, Config::default()).expect("valid");
    machine.stop_on(signals).expect("watched");
    machine.address().send(Signals::TERM).expect("send a message");
    assert_eq!(machine.run().expect("runs"), EndReason::Signal(Signals::TERM));
    machine.address().send(Signals::INT).expect("send a message");
    assert_eq!(machine.run().expect("runs"), EndReason::Signal(Signals::INT), "and again");
}

#[test]
fn number_that_is_no_signal_is_refused() {
    let refused = Signals::block(&[0]).expect_err("no signal");
    assert_eq!(
        refused.to_string(),
        "cannot receive signals: sigaddset failed: Invalid argument (os error 22)"
    );
    assert!(Signals::block(&[1000]).is_err());
}
