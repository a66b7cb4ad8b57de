//! `handover man`: manual pages of the program and of its commands.

use crate::exit::to_usage_error;
use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Arguments of `handover man`.
#[derive(Debug, Args)]
#[command(after_help = "To read a page: handover man run | man -l -")]
pub struct ManArgs {
    /// Command whose page is printed, as in `run` or `trace show` [default: the page of handover]
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
    /// Folder to write all pages to; created if it does not exist
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    dir: Option<PathBuf>,
}

/// Entries of a section, each a term and its description.
type Entries = &'static [(&'static str, &'static str)];

/// Sections that all pages share, each with its name and entries.
const SECTIONS: [(&str, Entries); 3] = [
    (
        "EXIT STATUS",
        &[
            ("0", "Success."),
            (
                "1",
                "A failure of the system or of a check: a benchmark could not be measured, the disk is full, a figure \
                 regressed.",
            ),
            ("2", "An error in the command line, or in a file named on it; nothing was measured."),
            (
                "130",
                "The program was ended by SIGINT, SIGTERM or SIGHUP; the completed measurements are shown, and stored by \
                 the commands that store runs.",
            ),
        ],
    ),
    (
        "FILES",
        &[
            (
                "$XDG_DATA_HOME/handover/results.db",
                "The store of all runs, an SQLite database; without XDG_DATA_HOME in $HOME/.local/share. The option \
                 --db names another file.",
            ),
            ("report.html", "The report of the last run, unless --report or --no-report is given."),
            ("handover.PID.trace", "A trace of a program that is run with HANDOVER_TRACE."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("XDG_DATA_HOME, HOME", "Folder of the store."),
            ("COLUMNS", "Width of the output, instead of the terminal's."),
            ("NO_COLOR", "If set to any text: no colours, and no live view."),
            ("TERM", "With the value dumb: no colours, and no live view."),
            (
                "LC_ALL, LC_CTYPE, LANG",
                "Without UTF-8 in the first that is set, the tables of run, show, compare, history, sweep, plot, fleet and \
                 anatomy are ASCII.",
            ),
            (
                "HANDOVER_CLOCK",
                "Clock of all measurements: tsc (on aarch64 cntvct) or clock_gettime, instead of the program's choice.",
            ),
            (
                "HANDOVER_TRACE",
                "Pattern of the probe sites that a program with probes enables at its start.",
            ),
            ("HANDOVER_TRACE_FILE", "Path of the trace, where %p stands for the process id."),
            ("HANDOVER_TRACE_POLICY", "stream (all events) or last (the newest events)."),
            ("HANDOVER_TRACE_RING", "Size of each thread's ring in bytes."),
            (
                "HANDOVER_TRACE_WAIT",
                "Maximum time in milliseconds for which a thread waits rather than lose an event.",
            ),
        ],
    ),
];

pub fn man(args: &ManArgs, root: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    let Some(folder) = &args.dir else {
        let mut command = &root;
        for word in &args.words {
            command = command.find_subcommand(word).ok_or_else(|| {
                to_usage_error(format!("{word}: no such command; `handover --help` lists them"))
            })?;
        }
        return Ok(out.write_all(&page(command)?)?);
    };
    fs::create_dir_all(folder).map_err(|error| {
        to_usage_error(format!(
            "--dir {folder}: cannot create the folder: {error}",
            folder = folder.display()
        ))
    })?;
    let mut pages = vec![&root];
    let mut count = 0;
    while let Some(command) = pages.pop() {
        let path = folder.join(Man::new(command.clone()).get_filename());
        fs::write(&path, page(command)?)
            .with_context(|| format!("cannot write the man page {path}", path = path.display()))?;
        count += 1;
        pages.extend(command.get_subcommands().filter(|it| !it.is_hide_set()));
    }
    Ok(writeln!(out, "{count} manual pages are in {}", folder.display())?)
}

/// Renders the page of a command, with the sections that all pages share.
fn page(command: &Command) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    let mut roff = Roff::new();
    for (name, entries) in SECTIONS {
        roff.control("SH", [name]);
        for (term, description) in entries {
            roff.control("TP", []);
            roff.text([bold(*term)]).text([roman(*description)]);
        }
    }
    text.extend(roff.to_roff().into_bytes());
    Ok(text)
}
