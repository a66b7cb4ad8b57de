//! Traces of several processes, read as one.

use crate::error::TraceError;
use handover_probe::read::{self, MergedTraces, MissingEvents, ReadAt, Trace};
use handover_probe::trace_file::with_suffix;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Traces of several processes whose times can be compared.
#[derive(Debug)]
pub struct Traces<S = File> {
    paths: Vec<PathBuf>,
    traces: Vec<Trace<S>>,
    /// Errors of the traces of other processes that were skipped.
    skipped_children: Vec<TraceError>,
}

impl Traces {
    /// Opens the traces at `paths`, and the traces of other processes of these recordings, such as
    /// forked ones. The latter are at `PATH.PID`. A file that is named repeatedly is read once.
    ///
    /// # Errors
    /// If one of `paths` cannot be read, or these traces have no common time line. The trace of
    /// another process is then listed in [`skipped_children`](Traces::skipped_children).
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, TraceError> {
        Self::read(paths, true)
    }

    /// Opens the traces at `paths` only. Traces of processes forked during these recordings are not
    /// opened.
    ///
    /// # Errors
    /// Those of [`Traces::open`].
    pub fn open_without_children<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Self, TraceError> {
        Self::read(paths, false)
    }

    /// Opens the traces at `paths` and, if `with_children`, those of forked processes.
    fn read<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        with_children: bool,
    ) -> Result<Self, TraceError> {
        let mut traces =
            Self { paths: Vec::new(), traces: Vec::new(), skipped_children: Vec::new() };
        for path in paths {
            traces.push(path.as_ref(), open(path.as_ref())?);
        }
        if with_children {
            for named in 0..traces.paths.len() {
                traces.push_children(named)?;
            }
        }
        traces.check_time_lines()
    }

    /// Adds a trace, unless a trace of the same file was added before.
    fn push(&mut self, path: &Path, trace: Trace) {
        if !self.contains(path) {
            self.paths.push(path.to_owned());
            self.traces.push(trace);
        }
    }

    /// Returns `true` if a trace of the file at `path` was added.
    fn contains(&self, path: &Path) -> bool {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        self.paths.iter().any(|other| whole(other) == whole(path))
    }

    /// Adds the traces of other processes of a recording, which are beside its first trace, that at
    /// index `named`.
    /// - Children: their parent's trace was added.
    /// - Siblings: they have the same parent as the first process, as the programs of a script that
    ///   is not recorded itself, and ended after the first process began. Others may be of an
    ///   earlier recording.
    /// - The parent of the first process.
    fn push_children(&mut self, named: usize) -> Result<(), TraceError> {
        let path = self.paths[named].clone();
        let first = &self.traces[named];
        let (parent_pid, begin_ns) = (first.parent_pid(), first.ns_from_ticks(first.begin_ticks()));
        let beside = |source| TraceError::Folder { path: path.clone(), source };
        let mut candidates = Vec::new();
        for child in read::find_traces(&path).map_err(beside)?.into_iter().skip(1) {
            if self.contains(&child) {
                continue;
            }
            match open(&child) {
                Ok(trace) => candidates.push((child, trace)),
                Err(error) => self.skipped_children.push(error),
            }
        }
        // A shared object with its own recorder uses its process's PID, also in the file's name.
        let has_its_name = |child: &Path, trace: &Trace| {
            let own = with_suffix(&path, &trace.pid().to_string());
            let rest = child.as_os_str().as_encoded_bytes();
            let rest = rest.strip_prefix(own.as_os_str().as_encoded_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
        };
        let mut pids: HashSet<u32> = self.traces.iter().map(Trace::pid).collect();
        loop {
            let found = candidates.iter().position(|(child, trace)| {
                let is_sibling = trace.parent_pid() == parent_pid
                    && end_ns(trace).is_none_or(|end_ns| end_ns >= begin_ns);
                let is_related =
                    is_sibling || trace.pid() == parent_pid || pids.contains(&trace.pid());
                pids.contains(&trace.parent_pid()) || (is_related && has_its_name(child, trace))
            });
            let Some(found) = found else { break };
            let (child, trace) = candidates.remove(found);
            if trace.has_time_line_of(&self.traces[0]) {
                pids.insert(trace.pid());
                self.push(&child, trace);
            } else {
                let first = self.paths[0].clone();
                self.skipped_children.push(TraceError::Incomparable { path: child, first });
            }
        }
        candidates.retain(|(child, trace)| has_its_name(child, trace));
        let unrelated = candidates.into_iter().map(|(child, _)| child);
        let error = |child| TraceError::Unrelated { path: child, first: path.clone() };
        self.skipped_children.extend(unrelated.map(error));
        Ok(())
    }
}

impl Traces<Vec<u8>> {
    /// Creates a set of one trace that is in memory.
    #[must_use]
    pub fn from_trace(trace: Trace<Vec<u8>>) -> Self {
        Self { paths: vec![PathBuf::new()], traces: vec![trace], skipped_children: Vec::new() }
    }
}

impl<S: ReadAt> Traces<S> {
    /// Checks that the times of all traces can be compared, and returns `self`.
    fn check_time_lines(self) -> Result<Self, TraceError> {
        match read::merge(&self.traces) {
            Ok(_) => Ok(self),
            Err(read::MergeError { index }) => Err(TraceError::Incomparable {
                path: self.paths[index].clone(),
                first: self.paths[0].clone(),
            }),
        }
    }

    /// Returns the traces: those that were named, and then those of other processes.
    #[must_use]
    pub fn as_slice(&self) -> &[Trace<S>] {
        &self.traces
    }

    /// Returns the paths of the trace files, in the order of [`as_slice`](Traces::as_slice).
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Returns an error for each trace of another process that was skipped. It cannot be read, or
    /// its times cannot be compared, or it may be of another recording.
    #[must_use]
    pub fn skipped_children(&self) -> &[TraceError] {
        &self.skipped_children
    }

    /// Iterates over the events of all traces in time order, each with the index of its trace.
    ///
    /// # Panics
    /// Never: opening has checked that the traces can be merged.
    pub fn merged_events(&self) -> MergedTraces<'_, S> {
        match read::merge(&self.traces) {
            Ok(merged) => merged,
            Err(_) => unreachable!("traces without a common time line were opened"),
        }
    }

    /// Returns the name of a site; `None` if the trace does not contain the site.
    #[must_use]
    pub fn site_name(&self, trace: usize, site: u32) -> Option<&str> {
        Some(&self.traces.get(trace)?.site(site)?.name)
    }

    /// Returns the counts of missing events, summed over all traces.
    #[must_use]
    pub fn missing_events(&self) -> MissingEvents {
        let mut sum = MissingEvents::default();
        for missing in self.traces.iter().map(|trace| trace.missing_events()) {
            sum.lost = sum.lost.saturating_add(missing.lost);
            sum.overwritten = sum.overwritten.saturating_add(missing.overwritten);
            sum.damaged = sum.damaged.saturating_add(missing.damaged);
            sum.unread_max = sum.unread_max.saturating_add(missing.unread_max);
        }
        sum
    }
}

/// Returns the time at which a recording ended; `None` if it is unknown.
fn end_ns(trace: &Trace) -> Option<i64> {
    trace.end_ticks().map(|ticks| trace.ns_from_ticks(ticks))
}

fn open(path: &Path) -> Result<Trace, TraceError> {
    Trace::open(path).map_err(|source| TraceError::Read { path: path.to_owned(), source })
}

/// Returns the name that is most similar to `pattern`. The pattern matches no name. Returns `None`
/// if no name is similar enough.
#[must_use]
pub fn nearest_name<'a>(
    pattern: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let meant = pattern.trim_matches(['*', '-', ',']);
    let alike = |name: &str| strsim::jaro_winkler(meant, name);
    let scored = names.into_iter().map(|name| (alike(name), name));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 > 0.75).then_some(best.1)
}
