//! `handover trace export`: traces for other tools.

use super::{TraceSelection, check_undamaged, print_missing_events};
use crate::exit::{join_results, print_and_join, to_usage_error};
use anyhow::Context;
use clap::Args;
use handover_program::files;
use handover_trace::{ExportFormat, SiteNames, Traces, TreeGrouping, WalkCounts};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct TraceExport {
    #[command(flatten)]
    pub selection: TraceSelection,
    /// Format: perfetto, chrome, folded, flamegraph or csv
    #[arg(long, value_name = "FORMAT")]
    pub to: ExportFormat,
    /// Output file; - for standard output [default: the first FILE, with .pftrace, .json, .folded,
    /// .svg or .csv instead of .trace]
    #[arg(long, short = 'o', value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Write separate stacks for each thread (with --to folded or flamegraph)
    #[arg(long)]
    pub threads: bool,
}

pub fn export(args: &TraceExport, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.threads && !matches!(args.to, ExportFormat::Folded | ExportFormat::Flamegraph) {
        return Err(to_usage_error(format!(
            "--threads has no effect with --to {}: use it with folded or flamegraph",
            args.to
        )));
    }
    let (traces, names) = args.selection.open()?;
    let path = match &args.output {
        Some(path) => path.clone(),
        None => default_output(&args.selection.files[0], args.to),
    };
    if path == Path::new("-") {
        let written = write_traces(args, &traces, &names, &mut *out);
        let shown = written.map(|found| print_missing_events(&traces, &found));
        return join_results(check_undamaged(&traces), shown.map_err(anyhow::Error::from));
    }
    let output_path = path.display();
    if is_trace_file(&path, &traces) {
        return Err(to_usage_error(format!(
            "-o {output_path}: is one of the input traces; name another file"
        )));
    }
    let mut is_made = false;
    let written = files::replace_file_with(&path, |file| {
        is_made = true;
        Ok((write_traces(args, &traces, &names, file)?, file.metadata()?.len()))
    });
    let (found, bytes) = match written {
        Err(error) if !is_made => {
            return Err(to_usage_error(format!(
                "-o {output_path}: cannot write the file: {error}"
            )));
        }
        written => written.with_context(|| format!("{output_path}"))?,
    };
    let line = format!("{} events, {bytes} bytes: {output_path}\n", found.events);
    let printed = print_and_join(check_undamaged(&traces), &line, out);
    print_missing_events(&traces, &found);
    printed
}

/// Returns the trace's path with the format's extension instead of `.trace`. Any other extension is
/// kept, as in `prog.trace.4711`, the trace of a process that the program started.
fn default_output(trace: &Path, to: ExportFormat) -> PathBuf {
    let is_replaced = trace.extension().is_some_and(|it| it == "trace");
    let mut path = if is_replaced { trace.with_extension("") } else { trace.to_owned() };
    path.as_mut_os_string().push(format!(".{}", to.file_extension()));
    path
}

/// Writes the traces in the format of `--to`.
fn write_traces(
    args: &TraceExport,
    traces: &Traces,
    names: &SiteNames,
    out: impl Write,
) -> io::Result<WalkCounts> {
    let grouping = if args.threads { TreeGrouping::Threads } else { TreeGrouping::Processes };
    handover_trace::export(traces, names, args.to, grouping, out)
}

/// Returns `true` if `path` is one of the trace files, possibly by another path.
fn is_trace_file(path: &Path, traces: &Traces) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    let wanted = identity(path);
    wanted.is_some() && traces.paths().iter().any(|trace| identity(trace) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_output_replaces_the_extension_trace_and_keeps_any_other() {
        for (trace, expected) in [
            ("a.trace", "a.pftrace"),
            ("folder.trace/b", "folder.trace/b.pftrace"),
            ("prog.trace.4711", "prog.trace.4711.pftrace"),
            (".trace", ".trace.pftrace"),
        ] {
            assert_eq!(
                default_output(Path::new(trace), ExportFormat::Perfetto),
                Path::new(expected)
            );
        }
    }
}
