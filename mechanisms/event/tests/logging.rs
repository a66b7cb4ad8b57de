//! Logged events, and their number. One test runs at a time, in a process of their own: an event
//! that is first reached by another thread, just when a subscriber is installed, stays disabled for
//! that subscriber.
#![cfg(not(handover_loom))]

use handover_event::{
    Config, Context, EndReason, Group, HandlerTable, Machine, MessageKind, OnPanic, ThreadConfig,
    Verbosity, handler,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Returns the guard under which each test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // Poisoned by a test that failed: the others are independent of it.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Subscriber that keeps events as `LEVEL target message`.
#[derive(Clone)]
struct Log {
    verbosity: Verbosity,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Log {
    fn new(verbosity: Verbosity) -> Self {
        Self { verbosity, lines: Arc::default() }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("never poisoned").clone()
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.verbosity.allows(metadata)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let line = format!("{level} {target} {}", message.0);
        self.lines.lock().expect("never poisoned").push(line);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Numbered(usize);

impl MessageKind for Numbered {
    fn kind(&self) -> usize {
        self.0
    }
}

/// Sends messages of kinds without a handler, and stops.
fn unhandled() {
    let table = HandlerTable::new(()).on(0, |(), _message: Numbered, cx| cx.stop());
    let mut machine = Machine::new(table, Config::default()).expect("valid");
    for kind in [3, 5, 3, 3, 5, 0] {
        machine.address().send(Numbered(kind)).expect("send a message");
    }
    machine.run().expect("runs");
    assert_eq!(machine.stats().unhandled, 5);
}

#[test]
fn message_kind_without_handler_is_reported_once() {
    let _alone = alone();
    let log = Log::new(Verbosity::Normal);
    tracing::subscriber::with_default(log.clone(), unhandled);
    let line =
        "WARN handover_event::machine no handler for this kind of message: dropped, reported once";
    assert_eq!(log.lines(), [line, line], "once for each of two kinds");
}

#[test]
fn higher_verbosity_logs_more() {
    let _alone = alone();
    let log = Log::new(Verbosity::Quiet);
    tracing::subscriber::with_default(log.clone(), unhandled);
    assert_eq!(log.lines(), [""; 0]);
    let log = Log::new(Verbosity::Verbose);
    tracing::subscriber::with_default(log.clone(), unhandled);
    assert_eq!(log.lines().len(), 3);
    assert_eq!(log.lines()[2], "DEBUG handover_event::machine the run ends");
}

#[test]
fn end_of_a_run_is_logged_once_by_each_method_that_returns_it() {
    let _alone = alone();
    let stops = || handler(|_: u32, cx: &mut Context<'_, u32>| cx.stop());
    let machine = || {
        let machine = Machine::new(stops(), Config::default()).expect("valid");
        machine.address().send(1).expect("send a message");
        machine
    };
    let group = || {
        let mut group = Group::new(ThreadConfig::default()).expect("valid");
        let joined = group.add(stops(), Config::default()).expect("valid");
        joined.address().send(1).expect("send a message");
        group
    };
    type Run<'a> = &'a dyn Fn() -> Option<EndReason>;
    let runs: [(&str, Run<'_>); 6] = [
        ("Machine::run", &|| machine().run().ok()),
        ("Machine::run_once", &|| machine().run_once().expect("runs").end_reason),
        ("Machine::poll", &|| machine().poll().expect("runs").end_reason),
        ("Group::run", &|| group().run().ok()),
        ("Group::run_once", &|| group().run_once().expect("runs").end_reason),
        ("Group::poll", &|| group().poll().expect("runs").end_reason),
    ];
    for (method, run) in runs {
        let log = Log::new(Verbosity::Verbose);
        let ended = tracing::subscriber::with_default(log.clone(), run);
        assert_eq!(ended, Some(EndReason::Stopped), "{method}");
        assert_eq!(log.lines(), ["DEBUG handover_event::machine the run ends"], "{method}");
    }
}

#[test]
fn contained_panic_is_logged_at_the_lowest_verbosity() {
    let _alone = alone();
    let log = Log::new(Verbosity::Quiet);
    let config = Config::default().on_panic(OnPanic::DropMessage);
    tracing::subscriber::with_default(log.clone(), || {
        let panics = handler(|_: u32, _cx: &mut Context<'_, u32>| panic!("contained"));
        let mut machine = Machine::new(panics, config).expect("valid");
        machine.address().send(1).expect("send a message");
        machine.poll().expect("runs");
    });
    let line = "ERROR handover_event::machine a handler panicked: the message is lost";
    assert_eq!(log.lines(), [line]);
}
