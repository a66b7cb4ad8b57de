//! Pairing of events into calls, thread by thread.

use crate::names::{NameId, SiteNames};
use crate::traces::Traces;
use handover_probe::read::{Event, EventKind, ReadAt, Thread, Trace};
use serde::Serialize;
use std::io;

/// Maximum depth of calls. Deeper calls are counted, but not reported. No thread's stack is that
/// deep, but without a limit a trace that has lost its call ends could exhaust the memory.
pub const STACK_DEPTH_MAX: usize = 1 << 16;

/// Process, thread and time of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventPosition {
    /// Index of the event's trace in [`Traces::as_slice`].
    pub process: usize,
    /// Index of the event's thread in [`Trace::threads`].
    pub thread: usize,
    /// Time in ns on CLOCK_MONOTONIC. It never decreases within a thread.
    pub ns: i64,
}

/// Kind of a call's end: recorded, missing, or still to come when the recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallEnding {
    /// The function returned.
    Returned,
    /// The end of the call is missing. The call was ended when a surrounding call returned.
    Cut,
    /// The call was still open at the end of its thread or of the recording.
    Open,
}

/// Call that has ended, with its times. Its end may be missing in the trace.
#[derive(Debug, Clone, Copy)]
pub struct CompletedCall {
    /// Name of the function.
    pub name: NameId,
    /// Start time of the call, in ns on CLOCK_MONOTONIC.
    pub begin_ns: i64,
    /// Duration of the call in ns.
    pub total_ns: u64,
    /// Duration of the call without its nested calls, in ns.
    pub self_ns: u64,
    /// `true` if the call is not nested in another call of the same function.
    pub is_outermost: bool,
    /// Kind of the call's end. Unless it is `Returned`, the end time is that of the surrounding
    /// call or thread.
    pub ending: CallEnding,
}

/// Visitor of the events of a [`walk`]. Enters and leaves are paired and nested, for any trace.
/// Except for [`leave_call`](TraceVisitor::leave_call), the methods do nothing by default.
pub trait TraceVisitor {
    /// Starts the visit of a thread, whose events follow.
    ///
    /// # Errors
    /// Those of the visitor's output; the walk ends.
    fn start_thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        let _ = (process, thread_info);
        Ok(())
    }

    /// Visits the start of a call.
    ///
    /// # Errors
    /// Those of [`start_thread`](TraceVisitor::start_thread).
    fn enter_call(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        let _ = (at, name, values);
        Ok(())
    }

    /// Visits the end of the innermost open call.
    ///
    /// # Errors
    /// Those of [`start_thread`](TraceVisitor::start_thread).
    fn leave_call(&mut self, at: &EventPosition, call: &CompletedCall) -> io::Result<()>;

    /// Visits a mark, an event without a duration.
    ///
    /// # Errors
    /// Those of [`start_thread`](TraceVisitor::start_thread).
    fn visit_mark(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        let _ = (at, name, values);
        Ok(())
    }
}

/// Passes each event to both visitors.
impl<A: TraceVisitor, B: TraceVisitor> TraceVisitor for (A, B) {
    fn start_thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        self.0.start_thread(process, thread_info)?;
        self.1.start_thread(process, thread_info)
    }

    fn enter_call(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.0.enter_call(at, name, values)?;
        self.1.enter_call(at, name, values)
    }

    fn leave_call(&mut self, at: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        self.0.leave_call(at, call)?;
        self.1.leave_call(at, call)
    }

    fn visit_mark(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.0.visit_mark(at, name, values)?;
        self.1.visit_mark(at, name, values)
    }
}

/// Thread of a traced process.
#[derive(Debug, Clone, Copy)]
pub struct ThreadInfo<'a> {
    /// Process id.
    pub pid: u32,
    /// Path of the process's program.
    pub program: &'a str,
    /// Time at which the thread started to record, on the time line of [`EventPosition::ns`].
    pub begin_ns: i64,
    /// Time at which the thread started to record, in ns since 1970.
    pub begin_realtime_ns: i64,
    /// Index of the thread in [`Trace::threads`].
    pub index: usize,
    /// Description of the thread.
    pub thread: &'a Thread,
}

impl ThreadInfo<'_> {
    /// Returns `true` if events of the thread were lost.
    pub(crate) fn has_losses(&self) -> bool {
        self.thread.missing.lost > 0 || self.thread.missing.damaged > 0
    }
}

/// Counts of the events and calls of a walk, and of unpaired or missing events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WalkCounts {
    /// Number of events with selected names.
    pub events: u64,
    /// Number of reported calls, with a recorded or a substituted end.
    pub calls: u64,
    /// Number of marks.
    pub marks: u64,
    /// Number of call ends without a start, which are ignored.
    pub unmatched_leaves: u64,
    /// Number of calls without an end that are nested in a call with an end.
    pub unmatched_enters: u64,
    /// Number of calls still open at the end of their thread or of the recording.
    pub open: u64,
    /// Number of calls deeper than [`STACK_DEPTH_MAX`], which are ignored.
    pub too_deep: u64,
    /// Number of threads that have lost events. Their self times may include lost calls.
    pub threads_with_losses: u64,
    /// Number of threads whose events are incomplete. The file was truncated or overwritten while
    /// it was read.
    pub cut_short: u64,
}

/// Open call.
struct Frame {
    name: NameId,
    begin_ns: i64,
    /// Time in nested calls that have ended, in ns.
    nested_calls_ns: u64,
}

/// State of a walk: visitor, counts, and open calls of the current thread.
struct WalkState<'a, V> {
    names: &'a SiteNames,
    visitor: &'a mut V,
    counts: WalkCounts,
    /// Open calls of the current thread, the innermost last.
    stack: Vec<Frame>,
    /// Number of open calls of each name.
    open: Vec<u32>,
    /// Number of open calls of each name that are deeper than [`STACK_DEPTH_MAX`].
    too_deep: Vec<u64>,
    /// Sum of `too_deep`.
    too_deep_count: u64,
}

/// Passes all events to `visitor`, thread by thread, and returns their counts. Calls without an end
/// are ended with the surrounding call, ends without a start are ignored, and both are counted.
///
/// # Errors
/// Those of the visitor.
///
/// # Cost
/// Memory for one chunk of a thread, some 200 kB.
pub fn walk<S: ReadAt, V: TraceVisitor>(
    traces: &Traces<S>,
    names: &SiteNames,
    visitor: &mut V,
) -> io::Result<WalkCounts> {
    let mut walk = WalkState {
        names,
        visitor,
        counts: WalkCounts::default(),
        stack: Vec::new(),
        open: vec![0; names.count()],
        too_deep: vec![0; names.count()],
        too_deep_count: 0,
    };
    for (process, trace) in traces.as_slice().iter().enumerate() {
        for index in 0..trace.threads().len() {
            walk.visit_thread(process, trace, index)?;
        }
    }
    Ok(walk.counts)
}

impl<V: TraceVisitor> WalkState<'_, V> {
    /// Passes the events of one thread to the visitor.
    fn visit_thread<S: ReadAt>(
        &mut self,
        process: usize,
        trace: &Trace<S>,
        index: usize,
    ) -> io::Result<()> {
        let thread = &trace.threads()[index];
        let thread_info = ThreadInfo {
            pid: trace.pid(),
            program: trace.program(),
            begin_ns: trace.ns_from_ticks(thread.begin_ticks),
            begin_realtime_ns: trace.realtime_ns_from_ticks(thread.begin_ticks),
            index,
            thread,
        };
        self.visitor.start_thread(process, &thread_info)?;
        self.counts.threads_with_losses += u64::from(thread_info.has_losses());
        let mut at = EventPosition { process, thread: index, ns: i64::MIN };
        let mut events = trace.events(index);
        for event in events.by_ref() {
            let name = self.names.id_of_site(process, event.site);
            at.ns = trace.ns_from_ticks(event.ticks).max(at.ns);
            if self.names.is_selected(name) {
                self.visit_event(&at, name, &event)?;
            }
        }
        self.counts.cut_short += u64::from(events.is_truncated());
        if !self.stack.is_empty() {
            let end_ticks = thread.end_ticks.or(trace.end_ticks());
            at.ns = end_ticks.map_or(at.ns, |ticks| trace.ns_from_ticks(ticks)).max(at.ns);
        }
        while !self.stack.is_empty() {
            self.counts.open += 1;
            self.end_innermost_call(&at, CallEnding::Open)?;
        }
        self.clear_too_deep();
        Ok(())
    }

    /// Sets the counts of open calls that are too deep to zero. A surrounding call or the thread
    /// has ended.
    fn clear_too_deep(&mut self) {
        if self.too_deep_count > 0 {
            self.too_deep.fill(0);
            self.too_deep_count = 0;
        }
    }

    /// Passes an event to the visitor, and updates the open calls and the counts.
    fn visit_event(&mut self, at: &EventPosition, name: NameId, event: &Event) -> io::Result<()> {
        self.counts.events += 1;
        match event.kind {
            EventKind::Enter if self.stack.len() >= STACK_DEPTH_MAX => {
                self.too_deep[name.index()] += 1;
                self.too_deep_count += 1;
                self.counts.too_deep += 1;
                Ok(())
            }
            EventKind::Enter => {
                self.stack.push(Frame { name, begin_ns: at.ns, nested_calls_ns: 0 });
                self.open[name.index()] += 1;
                self.visitor.enter_call(at, name, event.values())
            }
            EventKind::Leave if self.too_deep[name.index()] > 0 => {
                self.too_deep[name.index()] -= 1;
                self.too_deep_count -= 1;
                Ok(())
            }
            EventKind::Leave if self.open[name.index()] == 0 => {
                self.counts.unmatched_leaves += 1;
                Ok(())
            }
            EventKind::Leave => {
                // Open calls of other names that are too deep have lost their ends.
                self.clear_too_deep();
                while self.stack.last().is_some_and(|frame| frame.name != name) {
                    self.counts.unmatched_enters += 1;
                    self.end_innermost_call(at, CallEnding::Cut)?;
                }
                self.end_innermost_call(at, CallEnding::Returned)
            }
            _ => {
                self.counts.marks += 1;
                self.visitor.visit_mark(at, name, event.values())
            }
        }
    }

    /// Removes the innermost open call, and reports it to the visitor as ended.
    fn end_innermost_call(&mut self, at: &EventPosition, ending: CallEnding) -> io::Result<()> {
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let total_ns = at.ns.saturating_sub(frame.begin_ns).max(0) as u64;
        if let Some(around) = self.stack.last_mut() {
            around.nested_calls_ns = around.nested_calls_ns.saturating_add(total_ns);
        }
        let open = &mut self.open[frame.name.index()];
        *open -= 1;
        self.counts.calls += 1;
        let call = CompletedCall {
            name: frame.name,
            begin_ns: frame.begin_ns,
            total_ns,
            self_ns: total_ns.saturating_sub(frame.nested_calls_ns),
            is_outermost: *open == 0,
            ending,
        };
        self.visitor.leave_call(at, &call)
    }
}
