//! From events to calls: each end is put to its beginning, thread by thread.

use crate::names::{NameId, Names};
use crate::traces::Traces;
use handover_probe::read::{Event, EventKind, ReadAt, Thread, Trace};
use serde::Serialize;
use std::io;

/// Calls within calls beyond this are counted, and not shown: no thread's stack is that deep, and a trace
/// whose ends are lost is not to fill the memory.
pub const DEPTH_MAX: usize = 1 << 16;

/// Where and when something happens.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Where in [`Traces::all`] its trace is.
    pub process: usize,
    /// Where in [`Trace::threads`] its thread is.
    pub thread: usize,
    /// On CLOCK_MONOTONIC's time line; within a thread, never less than before.
    pub ns: i64,
}

/// How a call came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It was left.
    Left,
    /// The call around it was left, so it was too: the event is missing.
    Cut,
    /// It was not left when its thread, or the recording, ended.
    Open,
}

/// A call that is over.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Of what.
    pub name: NameId,
    /// When it began.
    pub begin_ns: i64,
    /// How long it took.
    pub total_ns: u64,
    /// ... without the calls in it.
    pub self_ns: u64,
    /// Whether it is in no other call of the same name.
    pub is_outermost: bool,
    /// How it ended. Unless it was left, its end is that of the call or thread around it.
    pub ending: Ending,
}

/// What is told of each step. Enters and leaves come in pairs, and nest, whatever the trace is.
pub trait Visitor {
    /// A thread's events follow.
    ///
    /// # Errors
    /// Where it writes; the walk ends.
    fn thread(&mut self, process: usize, trace: &Here<'_>) -> io::Result<()> {
        let _ = (process, trace);
        Ok(())
    }

    /// A call begins.
    ///
    /// # Errors
    /// As [`thread`](Visitor::thread).
    fn enter(&mut self, at: &At, name: NameId, values: &[u64]) -> io::Result<()>;

    /// The call that began last, of those that have not ended, ends.
    ///
    /// # Errors
    /// As [`thread`](Visitor::thread).
    fn leave(&mut self, at: &At, call: &Call) -> io::Result<()>;

    /// A mark was passed.
    ///
    /// # Errors
    /// As [`thread`](Visitor::thread).
    fn mark(&mut self, at: &At, name: NameId, values: &[u64]) -> io::Result<()>;
}

/// Two at once.
impl<A: Visitor, B: Visitor> Visitor for (A, B) {
    fn thread(&mut self, process: usize, here: &Here<'_>) -> io::Result<()> {
        self.0.thread(process, here)?;
        self.1.thread(process, here)
    }

    fn enter(&mut self, at: &At, name: NameId, values: &[u64]) -> io::Result<()> {
        self.0.enter(at, name, values)?;
        self.1.enter(at, name, values)
    }

    fn leave(&mut self, at: &At, call: &Call) -> io::Result<()> {
        self.0.leave(at, call)?;
        self.1.leave(at, call)
    }

    fn mark(&mut self, at: &At, name: NameId, values: &[u64]) -> io::Result<()> {
        self.0.mark(at, name, values)?;
        self.1.mark(at, name, values)
    }
}

/// A thread of a process.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    /// The process's number.
    pub pid: u32,
    /// Its program's path.
    pub program: &'a str,
    /// When the thread began to record, as [`At::ns`].
    pub begin_ns: i64,
    /// The same moment in ns since 1970.
    pub begin_realtime_ns: i64,
    /// Where in [`Trace::threads`] the thread is.
    pub index: usize,
    /// The thread.
    pub thread: &'a Thread,
}

impl Here<'_> {
    /// Whether events of the thread are missing among those that are there.
    pub(crate) fn has_losses(&self) -> bool {
        self.thread.missing.lost > 0 || self.thread.missing.damaged > 0
    }
}

/// What a walk has met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Found {
    /// Events, of the names that were chosen.
    pub events: u64,
    /// Calls that began and ended.
    pub calls: u64,
    /// Marks.
    pub marks: u64,
    /// Ends without a beginning: they are passed over.
    pub unmatched_leaves: u64,
    /// Beginnings without an end, within a call that has one.
    pub unmatched_enters: u64,
    /// Calls that had not ended when their thread or the recording did.
    pub open: u64,
    /// Calls beyond [`DEPTH_MAX`]; they are passed over.
    pub too_deep: u64,
    /// Threads that have lost events: self times in them may include calls that were lost.
    pub threads_with_losses: u64,
    /// Threads whose file was shortened or overwritten while it was read.
    pub cut_short: u64,
}

struct Frame {
    name: NameId,
    begin_ns: i64,
    in_calls_ns: u64,
}

struct Walk<'a, V> {
    names: &'a Names,
    visitor: &'a mut V,
    found: Found,
    stack: Vec<Frame>,
    /// How often each name is on the stack.
    open: Vec<u32>,
    /// Calls that are not on the stack for its depth.
    beyond: u64,
}

/// Goes through all events, thread by thread in the order of their traces. Beginnings without an end get
/// one, ends without a beginning are passed over, and both are counted.
///
/// # Errors
/// Those of the visitor.
///
/// # Cost
/// Memory for one stretch of a thread, some 200 kB.
pub fn walk<S: ReadAt, V: Visitor>(
    traces: &Traces<S>,
    names: &Names,
    visitor: &mut V,
) -> io::Result<Found> {
    let open = vec![0; names.count()];
    let (found, stack) = (Found::default(), Vec::new());
    let mut walk = Walk { names, visitor, found, stack, open, beyond: 0 };
    for (process, trace) in traces.all().iter().enumerate() {
        for index in 0..trace.threads().len() {
            walk.thread(process, trace, index)?;
        }
    }
    Ok(walk.found)
}

impl<V: Visitor> Walk<'_, V> {
    fn thread<S: ReadAt>(
        &mut self,
        process: usize,
        trace: &Trace<S>,
        index: usize,
    ) -> io::Result<()> {
        let thread = &trace.threads()[index];
        let here = Here {
            pid: trace.pid(),
            program: trace.program(),
            begin_ns: trace.ns(thread.begin_ticks),
            begin_realtime_ns: trace.realtime_ns(thread.begin_ticks),
            index,
            thread,
        };
        self.visitor.thread(process, &here)?;
        self.found.threads_with_losses += u64::from(here.has_losses());
        let mut at = At { process, thread: index, ns: i64::MIN };
        let mut events = trace.events(index);
        for event in events.by_ref() {
            let name = self.names.of(process, event.site);
            at.ns = trace.ns(event.ticks).max(at.ns);
            if self.names.is_chosen(name) {
                self.step(&at, name, &event)?;
            }
        }
        self.found.cut_short += u64::from(events.is_cut_short());
        if !self.stack.is_empty() {
            let end_ticks = thread.end_ticks.or(trace.end_ticks());
            at.ns = end_ticks.map_or(at.ns, |ticks| trace.ns(ticks)).max(at.ns);
        }
        while !self.stack.is_empty() {
            self.found.open += 1;
            self.pop(&at, Ending::Open)?;
        }
        self.beyond = 0;
        Ok(())
    }

    fn step(&mut self, at: &At, name: NameId, event: &Event) -> io::Result<()> {
        self.found.events += 1;
        match event.kind {
            EventKind::Enter if self.stack.len() >= DEPTH_MAX => {
                self.beyond += 1;
                self.found.too_deep += 1;
                Ok(())
            }
            EventKind::Enter => {
                self.stack.push(Frame { name, begin_ns: at.ns, in_calls_ns: 0 });
                self.open[name.index()] += 1;
                self.visitor.enter(at, name, event.values())
            }
            EventKind::Leave if self.beyond > 0 => {
                self.beyond -= 1;
                Ok(())
            }
            EventKind::Leave if self.open[name.index()] == 0 => {
                self.found.unmatched_leaves += 1;
                Ok(())
            }
            EventKind::Leave => {
                while self.stack.last().is_some_and(|frame| frame.name != name) {
                    self.found.unmatched_enters += 1;
                    self.pop(at, Ending::Cut)?;
                }
                self.pop(at, Ending::Left)
            }
            _ => {
                self.found.marks += 1;
                self.visitor.mark(at, name, event.values())
            }
        }
    }

    fn pop(&mut self, at: &At, ending: Ending) -> io::Result<()> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let total_ns = at.ns.saturating_sub(frame.begin_ns).max(0) as u64;
        if let Some(around) = self.stack.last_mut() {
            around.in_calls_ns = around.in_calls_ns.saturating_add(total_ns);
        }
        let open = &mut self.open[frame.name.index()];
        *open -= 1;
        self.found.calls += 1;
        let call = Call {
            name: frame.name,
            begin_ns: frame.begin_ns,
            total_ns,
            self_ns: total_ns.saturating_sub(frame.in_calls_ns),
            is_outermost: *open == 0,
            ending,
        };
        self.visitor.leave(at, &call)
    }
}
