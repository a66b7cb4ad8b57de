//! `cargo xtask peers --classics`: comparison of handover's classic programs with plain C loops and
//! the originals.

use super::{PeersOptions, RUN_MAX, install};
use crate::run::CommandLine;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// C source with plain loops for the operations that node-microbench measures.
const C_LOOPS_SOURCE: &str = include_str!("../../c/node-microbench.c");

/// Classic program that prints a line of tab-separated columns for each figure.
struct ClassicProgram {
    /// Name of the program.
    name: &'static str,
    /// Arguments of the program, and of its original.
    args: &'static [&'static str],
    /// Index of the column with the figure; column 0 has the name.
    column: usize,
    /// Unit of the figures.
    unit: &'static str,
    /// `true` if the original program must be run by `mpiexec`, as two ranks.
    needs_mpi: bool,
}

/// Classic programs that are compared with their originals.
const PROGRAMS: [ClassicProgram; 5] = [
    ClassicProgram {
        name: "node-microbench",
        args: &["-m", "5"],
        column: 4,
        unit: "ns",
        needs_mpi: false,
    },
    ClassicProgram {
        name: "margo-p2p-latency",
        args: &["-i", "20000", "-n", "na+sm://"],
        column: 6,
        unit: "s",
        needs_mpi: true,
    },
    ClassicProgram {
        name: "margo-p2p-latency",
        args: &["-i", "20000", "-n", "ofi+tcp://"],
        column: 6,
        unit: "s",
        needs_mpi: true,
    },
    ClassicProgram {
        name: "margo-p2p-bw",
        args: &["-x", "65536", "-n", "na+sm://", "-D", "1", "-X", "67108864"],
        column: 7,
        unit: "MiB/s",
        needs_mpi: true,
    },
    ClassicProgram {
        name: "abt-eventual-bench",
        args: &["-d", "2", "-i", "1", "-n", "16"],
        column: 3,
        unit: "ops/s",
        needs_mpi: false,
    },
];

/// Figures of all runs of a program, by the names of their rows.
type Figures = BTreeMap<String, Vec<f64>>;

/// Runs handover's programs, the C loops and the originals in turn, several times. Prints a table
/// for each program.
pub(super) fn compare(options: &PeersOptions, binary: &Path) -> Result<()> {
    if !CommandLine::new("cc --version").succeeds() {
        install(options, &["gcc", "libc6-dev"])?;
    }
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("node-microbench.c");
    std::fs::write(&source, C_LOOPS_SOURCE)?;
    let loops = folder.path().join("node-microbench");
    // As Rust calls the C library: through the global offset table alone. The jump through the
    // procedure linkage table is a tenth of what a coarse clock takes. Aligned, as handover's own
    // loops are.
    CommandLine::new("cc -O2 -fno-plt -falign-functions=64 -falign-loops=32 -pthread -o")
        .args([&loops, &source])
        .capture_stdout()?;
    let has_mpiexec = CommandLine::new("mpiexec --version").succeeds();
    let mut left_out = Vec::new();
    for program in &PROGRAMS {
        let original = options.originals.as_ref().map(|folder| folder.join(program.name));
        let original = original.filter(|it| it.exists() && (has_mpiexec || !program.needs_mpi));
        if original.is_none() {
            let why = "not in the --originals folder, or no mpiexec";
            left_out.push(format!("the original of {program} ({why})", program = program.name));
        }
        let c = (program.name == "node-microbench").then_some(&*loops);
        let (mut ours, mut beside, mut theirs) = (Figures::new(), Figures::new(), Figures::new());
        for _ in 0..options.rounds {
            if let Some(c) = c {
                program.run(CommandLine::program(c), &mut beside)?;
            }
            program.run(CommandLine::program(binary).args([program.name]), &mut ours)?;
            if let Some(original) = &original {
                let run = match program.needs_mpi {
                    true => CommandLine::new("mpiexec -n 2").args([original]),
                    false => CommandLine::program(original),
                };
                program.run(run, &mut theirs)?;
            }
        }
        println!("\n{} {}, {}", program.name, program.args.join(" "), program.unit);
        print!("{}", format_table(&ours, &beside, &theirs));
    }
    println!();
    left_out.dedup();
    for why in left_out {
        println!("left out: {why}");
    }
    Ok(())
}

impl ClassicProgram {
    /// Runs a command with the arguments of the program. Adds the printed figures to `into`.
    fn run(&self, run: CommandLine, into: &mut Figures) -> Result<()> {
        let output = run.args(self.args.iter().copied()).timeout(RUN_MAX).output()?;
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{} failed ({}): {error}", self.name, output.status);
        let found = parse_figures(&text, self.column);
        ensure!(!found.is_empty(), "{} printed no figure: {text:?}", self.name);
        for (name, figure) in found {
            into.entry(name).or_default().push(figure);
        }
        Ok(())
    }
}

/// Parses the name and the figure in each row of output. Skips heads (#) and remarks (<).
fn parse_figures(text: &str, column: usize) -> Vec<(String, f64)> {
    let rows = text.lines().filter(|line| !line.starts_with(['#', '<']));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        Some((cells[0].trim_matches('"').to_string(), cells.get(column)?.trim().parse().ok()?))
    };
    rows.filter_map(row).collect()
}

/// Returns the median of the figures in the row `name`.
fn median(figures: &Figures, name: &str) -> Option<f64> {
    let mut all = figures.get(name)?.clone();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Formats a table of handover's figures, beside those of the C loop and the original.
fn format_table(ours: &Figures, loops: &Figures, originals: &Figures) -> String {
    let mut text = format!(
        "{:<38} {:>14} {:>14} {:>6} {:>14} {:>6}\n",
        "", "handover", "C loop", "ratio", "original", "ratio"
    );
    for name in ours.keys() {
        let Some(own) = median(ours, name) else { continue };
        let beside = |figures: &Figures| match median(figures, name) {
            Some(figure) => format!("{figure:>14.6} {:>6.2}", own / figure),
            None => format!("{:>14} {:>6}", "–", "–"),
        };
        let (c_loop_columns, original_columns) = (beside(loops), beside(originals));
        text += &format!("{name:<38} {own:>14.6} {c_loop_columns} {original_columns}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::process::Command;

    #[test]
    fn rows_are_parsed_and_compared_by_name() {
        let of = |text: &str| {
            let rows = parse_figures(text, 2).into_iter();
            rows.map(|(name, figure)| (name, vec![figure])).collect::<Figures>()
        };
        let ours =
            of("#<a>\t<b>\n# \"mpi_wtime\": none\n\"gettid\"\t1\t99.0\n\"rdtscp\"\t1\t18.0\n");
        let loops = of("<a>\n\"gettid\"\t1\t110.0\n");
        let text = format_table(&ours, &loops, &Figures::new());
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(row("gettid"), ["gettid", "99.000000", "110.000000", "0.90", "–", "–"]);
        assert_eq!(row("rdtscp"), ["rdtscp", "18.000000", "–", "–", "–", "–"]);
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn plain_c_loops_compile_and_print_rows() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (source, program) = (folder.path().join("loops.c"), folder.path().join("loops"));
        std::fs::write(&source, C_LOOPS_SOURCE)?;
        let flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
        let compiled = Command::new("cc").args(flags).args([&program, &source]).status();
        ensure!(compiled.context("cannot run cc")?.success(), "cc cannot compile the C loops");
        let output = Command::new(&program).args(["-m", "1"]).output()?;
        let found = parse_figures(&String::from_utf8_lossy(&output.stdout), 4);
        assert_eq!(found.len(), 15, "{found:?}");
        assert!(found.iter().all(|(_, ns)| *ns > 0.0), "{found:?}");
        assert_eq!(Command::new(&program).output()?.status.code(), Some(2), "no -m");
        Ok(())
    }
}
