//! Recordings of this process, one at a time.

use handover_probe::read::{Event, EventKind, ReadAt};
use handover_probe::{Config, Recording, Value, disable, enable, probe, span};
use handover_trace::Traces;
use std::any::Any;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use tempfile::TempDir;

/// Records `work` with the sites that match `pattern`, into `name` in a temporary folder.
pub fn recorded(name: &str, pattern: &str, work: impl FnOnce()) -> (TempDir, Traces) {
    let as_by_default = |config| config;
    recorded_with(as_by_default, name, pattern, work)
}

fn recorded_with(
    configure: impl FnOnce(Config) -> Config,
    name: &str,
    pattern: &str,
    work: impl FnOnce(),
) -> (TempDir, Traces) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let recording = Recording::start(configure(Config::stream(&path))).unwrap();
    enable(pattern).unwrap();
    work();
    disable(pattern).unwrap();
    let summary = recording.finish();
    assert_eq!(summary.lost, 0);
    let traces = Traces::open([&path]).unwrap();
    (folder, traces)
}

/// Opens a recording by a path that lasts as long as the process, and removes its folder: statics
/// are not dropped, so a folder in one would stay.
fn kept((_folder, traces): (TempDir, Traces)) -> (File, Traces) {
    let file = File::open(&traces.paths()[0]).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    (file, Traces::open([path]).unwrap())
}

fn on_thread(name: &str, work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name(name.to_owned());
        builder.spawn_scoped(scope, work).unwrap().join().unwrap();
    });
}

fn recurse(depth: u64) {
    let _span = span!("whole.fall", depth);
    if depth > 0 {
        recurse(depth - 1);
    }
}

/// Returns a recording of two threads with nested calls, values, marks, recursion, and names that
/// the formats must escape.
pub fn sample() -> &'static Traces {
    static SAMPLE: OnceLock<(File, Traces)> = OnceLock::new();
    let make = || {
        kept(recorded("whole", "whole.*", || {
            on_thread("one \"quoted\", thread", || {
                let _outer = span!("whole.outer");
                for number in 0..50u64 {
                    let _inner = span!("whole.f(int, \"x;y\")", -(number as i64), number << 40);
                    probe!("whole.mark", number);
                    let _short = span!("whole.short");
                }
                probe!("whole.\u{b5}s \\ \n", u64::MAX, 7u8);
            });
            on_thread("two", || {
                recurse(4);
                let _outer = span!("whole.outer");
            });
        }))
    };
    &SAMPLE.get_or_init(make).1
}

/// Returns a recording with an end without a beginning, a beginning without an end, and an open
/// call.
pub fn unpaired() -> &'static Traces {
    static UNPAIRED: OnceLock<(File, Traces)> = OnceLock::new();
    let make = || {
        kept(recorded("odd", "odd.around,odd.fine,odd.open", || {
            on_thread("odd", || {
                let around = span!("odd.around");
                let late = span!("odd.late");
                enable("odd.late,odd.lost").unwrap();
                drop(late);
                let lost = span!("odd.lost");
                {
                    let _fine = span!("odd.fine");
                }
                disable("odd.lost").unwrap();
                drop(lost);
                drop(around);
                let open = span!("odd.open");
                {
                    let _fine = span!("odd.fine");
                }
                disable("odd.*").unwrap();
                drop(open);
            });
        }))
    };
    &UNPAIRED.get_or_init(make).1
}

/// Returns a recording of `calls` calls of one thread, one after the other, each with a value.
pub fn long(calls: u64) -> (TempDir, Traces) {
    recorded_with(with_large_ring, "long", "long.*", || {
        on_thread("long", || {
            for number in 0..calls {
                let _call = span!("long.call", number);
            }
        });
    })
}

/// Sets a ring that holds all events, should the writing thread not run.
fn with_large_ring(config: Config) -> Config {
    config.ring_bytes(1 << 24)
}

/// Returns a recording of a call `deep.outer` with `depth` nested calls of `deep.fill`, and within
/// these one call of `deep.lost`, whose end is missing; then a call of `deep.outer` on its own.
pub fn deep(depth: usize) -> (TempDir, Traces) {
    recorded_with(with_large_ring, "deep", "deep.*", || {
        on_thread("deep", || {
            let outer = span!("deep.outer");
            let mut fills: Vec<_> = (0..depth).map(|_| span!("deep.fill")).collect();
            let lost = span!("deep.lost");
            disable("deep.lost").unwrap();
            drop(lost);
            while fills.pop().is_some() {}
            drop(outer);
            let _again = span!("deep.outer");
        });
    })
}

/// Returns a recording of many threads that enter and leave spans in random order and toggle sites.
pub fn random() -> &'static Traces {
    static RANDOM: OnceLock<(File, Traces)> = OnceLock::new();
    let make = || {
        kept(recorded("random", "random.*", || {
            let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
            let mut roll = |sides: u64| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                dice % sides
            };
            for number in 0..60 {
                on_thread(&format!("random {number}"), || {
                    let mut open: Vec<Box<dyn Any>> = Vec::new();
                    for _ in 0..roll(60) {
                        match roll(10) {
                            0 => enable("random.*").map(drop).unwrap(),
                            1 => disable("random.a,random.b").map(drop).unwrap(),
                            2..=4 if !open.is_empty() => {
                                let which = roll(open.len() as u64) as usize;
                                drop(open.remove(which));
                            }
                            5 => open.push(Box::new(span!("random.a"))),
                            6 => open.push(Box::new(span!("random.b", 1))),
                            7 => open.push(Box::new(span!("random.c"))),
                            _ => probe!("random.mark", 5),
                        }
                    }
                });
            }
        }))
    };
    &RANDOM.get_or_init(make).1
}

/// Event as returned by the reader: time in ns, kind, name, values.
pub type Raw = (i64, EventKind, String, Vec<u64>);

/// Returns the events of each thread, in the order of traces and threads.
pub fn raw<S: ReadAt>(traces: &Traces<S>) -> Vec<Vec<Raw>> {
    let mut all = Vec::new();
    for (process, trace) in traces.as_slice().iter().enumerate() {
        for thread in 0..trace.threads().len() {
            let event = |event: Event| {
                let name = traces.site_name(process, event.site).unwrap_or("(unnamed)").to_owned();
                (trace.ns_from_ticks(event.ticks), event.kind, name, event.values().to_vec())
            };
            all.push(trace.events(thread).map(event).collect());
        }
    }
    all
}

/// Returns a value as it is recorded.
pub fn word(value: impl Value) -> u64 {
    value.to_word()
}
