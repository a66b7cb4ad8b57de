//! `handover prove --classics`: main figures of the classic programs compared with the suite's.
//!
//! Two measurements of one operation, by different code, must agree within [`RATIO_DEVIATION_MAX`].
//! A pair that does not must have a documented reason, or the machine itself differs by as much
//! between the rounds, in which both sides are measured in turn.

use super::ProveArgs;
use crate::commands::pool::median_if_any;
use crate::commands::{align_columns, run};
use crate::exit::{self, check_interrupt, to_usage_error};
use anyhow::{Context, bail, ensure};
use handover_base::units::format_ns;
use handover_classic::names;
use handover_harness::{Lab, Plan, Profile};
use handover_program::{child, console, signal_on_parent_exit};
use handover_record::Record;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum deviation of a ratio from 1 that needs no reason.
const RATIO_DEVIATION_MAX: f64 = 0.25;
/// Number of rounds; each measures with every classic program, then with the suite.
const ROUNDS_COUNT: usize = 3;
/// Measuring time of a benchmark of the suite in each round.
const SUITE_TIME: Duration = Duration::from_millis(300);

/// Numbers in the command lines, each with the smaller number that replaces it in a smoke run.
const SMOKE_VALUES: [(&str, &str); 8] = [
    ("200000", "500"),
    ("100000", "1000"),
    ("20000", "500"),
    ("536870912", "1048576"),
    ("2000", "200"),
    ("25", "0.01"),
    ("5", "0.01"),
    ("20", "1"),
];

/// Classic program: its command line, and the figures read from its output.
struct ClassicProgram {
    /// Command line after `handover`. `PORT` stands for the port of a server that is started first.
    line: &'static str,
    /// Figures in the output, each with the suite's figure for comparison.
    pairs: &'static [FigurePair],
}

/// Figure of a classic program, and the suite's figure for the same operation.
struct FigurePair {
    /// Name of the figure in the program's output; empty if the output has only one.
    figure: &'static str,
    /// Function that reads the figure, in ns, from the program's output.
    read: ReadNs,
    /// Id of the suite's benchmark or part.
    id: &'static str,
    /// Contender of the suite.
    contender: &'static str,
    /// Known reason why the ratio is not 1; empty if it must be 1.
    why: &'static str,
}

/// Function that reads the time of an operation, in ns. Its arguments are a program's output and a
/// figure's name.
type ReadNs = fn(&str, &str) -> Option<f64>;

/// Creates a pair of the figure that `read` finds in a program's output and the suite's figure `id`
/// of `contender`.
const fn pair(
    figure: &'static str,
    read: ReadNs,
    id: &'static str,
    contender: &'static str,
    why: &'static str,
) -> FigurePair {
    FigurePair { figure, read, id, contender, why }
}

/// Reason why the figure of the program `sched` differs.
const LINK_REASON: &str = "with a link (-b), the arbiter marks packets for transmission one by one; in the suite, without a link, several at once";
/// Reason why the sender's figure of the program `notify` differs.
const CONTENTION_REASON: &str = "a write can wait for a read of the receiver; reads follow every 2nd to 8th write, which varies between runs of this program too";
/// Reason why the figures of the program `margo-p2p-bw` differ.
const WARM_UP_REASON: &str = "before the timed part, the program accesses the memory about ten times, the suite once; the first accesses take longer";
/// Reason why the receiver's figure of the program `notify` differs.
const COALESCING_REASON: &str = "a wait takes all notifications since the last wait: 2 to 8 of them, which varies between runs of this program too";
/// Reason why the figure of the program `evh_perf` differs.
const MESSAGES_REASON: &str = "one connection with 10,000 messages of 3 to 10 letters; the suite has 16 connections with 64 messages of 64 bytes";

/// Classic programs whose figures are compared with the suite's.
static PROGRAMS: &[ClassicProgram] = &[
    ClassicProgram {
        line: "margo-p2p-latency -n sm:// -i 200000",
        pairs: &[pair("", latency_ns, "rpc/noop", "handover", "")],
    },
    ClassicProgram {
        line: "margo-p2p-latency -n tcp:// -t 0,0 -i 20000",
        pairs: &[pair("", latency_ns, "rpc/tcp-spin", "handover", "")],
    },
    ClassicProgram {
        // As many calls as in a round of the suite: where a processor polls before it halts, as in
        // many virtual machines, it adapts to the sleeps of the past, and later calls may take half
        // as long again.
        line: "margo-p2p-latency -n tcp:// --config {\"spin_ns_max\":0} -i 200 -w 10",
        pairs: &[pair("", latency_ns, "rpc/tcp", "handover", "")],
    },
    ClassicProgram {
        line: "margo-p2p-bw -n sm:// -x 65536 -X 536870912 -D 1",
        pairs: &[
            pair("PULL", transfer_ns, "bulk/pull", "handover", ""),
            pair("PUSH", transfer_ns, "bulk/push", "handover", ""),
        ],
    },
    ClassicProgram {
        line: "margo-p2p-bw -n sm:// -x 65536 -X 536870912 -D 1 --memory plain",
        pairs: &[
            pair("PULL", transfer_ns, "bulk/plain-pull", "handover", WARM_UP_REASON),
            pair("PUSH", transfer_ns, "bulk/plain-push", "handover", WARM_UP_REASON),
        ],
    },
    ClassicProgram {
        line: "margo-p2p-bw -n tcp:// -x 65536 -X 536870912 -D 1",
        pairs: &[
            pair("PULL", transfer_ns, "bulk/tcp-pull", "handover", ""),
            pair("PUSH", transfer_ns, "bulk/tcp-push", "handover", ""),
        ],
    },
    ClassicProgram {
        line: "hello1 -l --seconds 1",
        pairs: &[pair("", message_ns, "event/call", "handover-hello", "")],
    },
    ClassicProgram {
        line: "hello3 -l --seconds 1 --place near",
        pairs: &[pair("", round_trip_ns, "event/round-trip", "handover", "")],
    },
    ClassicProgram {
        line: "hello4 -l --seconds 1 --place near 10",
        pairs: &[pair("", round_trip_ns, "event/serve", "handover", "")],
    },
    ClassicProgram { line: "trylock -t 20", pairs: &[pair("", try_ns, "lock/busy", "sem", "")] },
    ClassicProgram {
        line: "notify -n 2000",
        pairs: &[
            pair("sender", side_ns, "notify/busy/sender", "eventfd", CONTENTION_REASON),
            pair("receiver", side_ns, "notify/busy/receiver", "eventfd", COALESCING_REASON),
        ],
    },
    ClassicProgram {
        line: "sched --stamp none --seconds 1 -b 10T -q 1000 -i 0 -- -alg rr -flowsets 1:1500:16",
        pairs: &[pair("", packet_ns, "sched/client-arbiter-client", "drr", LINK_REASON)],
    },
    ClassicProgram {
        line: "calls -m 25 --calls 100000 --runs 1",
        pairs: &[
            pair("(function in the same source file)", c_call_ns, "call/same-file", "c", ""),
            pair("(function in a dynamic library)", c_call_ns, "call/plt", "c", ""),
            pair("with two probes, off", probed_call_ns, "probe/off/span", "handover", ""),
            pair(
                "with two probes, recorded in memory",
                probed_call_ns,
                "probe/recorded",
                "handover",
                "",
            ),
        ],
    },
    ClassicProgram {
        line: "evh_perf -c -i 10 --count 10000 -p PORT",
        pairs: &[pair("", echo_ns, "net/load/message", "handover", MESSAGES_REASON)],
    },
    ClassicProgram {
        line: "abt-eventual-bench -d 1 -i 1 -n 100",
        pairs: &[pair("", loop_ns, "fiber/loops", "handover", "")],
    },
    ClassicProgram {
        line: "node-microbench -m 5",
        pairs: &[
            pair("fn_call_cross_object", operation_ns, "call/other-object", "c", ""),
            pair("gettimeofday", operation_ns, "clock/gettimeofday", "libc", ""),
            pair("clock_gettime(REALTIME)", operation_ns, "clock/realtime", "libc", ""),
            pair(
                "clock_gettime(REALTIME_COARSE)",
                operation_ns,
                "clock/realtime-coarse",
                "libc",
                "",
            ),
            pair("clock_gettime(MONOTONIC)", operation_ns, "clock/monotonic", "libc", ""),
            pair(
                "clock_gettime(MONOTONIC_COARSE)",
                operation_ns,
                "clock/monotonic-coarse",
                "libc",
                "",
            ),
            pair("rdtscp", operation_ns, "clock/rdtscp", "hardware", ""),
            pair("pthread_mutex_lock/unlock", operation_ns, "lock/free", "pthread_mutex", ""),
            pair("pthread_spin_lock/unlock", operation_ns, "lock/free", "pthread_spin", ""),
        ],
    },
];

// Functions that read the time of an operation in ns from a program's output.

/// Returns the number at word `index` of the first line that starts with the word `first`.
fn column(output: &str, first: &str, index: usize) -> Option<f64> {
    let mut lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let words = lines.find(|words| words.first() == Some(&first))?;
    words.get(index)?.parse().ok()
}

/// Returns the number after the first occurrence of `label`, with `,` between its digits.
fn number_after(output: &str, label: &str) -> Option<f64> {
    let rest = output.split_once(label)?.1.trim_start_matches([' ', '[']);
    let end = rest.find(|it: char| !it.is_ascii_digit() && !".,e+-".contains(it));
    rest[..end.unwrap_or(rest.len())].trim_end_matches(',').replace(',', "").parse().ok()
}

/// Reads the median time of an RPC from the output of `margo-p2p-latency`.
fn latency_ns(output: &str, _: &str) -> Option<f64> {
    column(output, "noop", 6).map(|median_s| median_s * 1e9)
}

/// Reads the time of a bulk transfer from the output of `margo-p2p-bw`.
fn transfer_ns(output: &str, direction: &str) -> Option<f64> {
    let bytes = column(output, direction, 4)?;
    column(output, direction, 7).map(|mib_per_s| bytes / (mib_per_s * f64::from(1 << 20)) * 1e9)
}

/// Reads the time per message, in ns, from the line `N messages in S s: ...`.
fn message_ns(output: &str, _: &str) -> Option<f64> {
    let (before, after) = output.lines().find_map(|line| line.split_once(" messages in "))?;
    let count: f64 = before.rsplit(' ').next()?.parse().ok()?;
    let seconds: f64 = after.split(' ').next()?.parse().ok()?;
    Some(seconds * 1e9 / count)
}

/// Reads the time per round trip, in ns: twice the time per message.
fn round_trip_ns(output: &str, _: &str) -> Option<f64> {
    message_ns(output, "").map(|each_ns| 2.0 * each_ns)
}

/// Reads the time per attempt to take the lock from the output of `trylock`.
fn try_ns(output: &str, _: &str) -> Option<f64> {
    number_after(output, "per-thread").map(|per_s| 1e9 / per_s)
}

/// Reads the time per operation of one side (sender or receiver) from the output of `notify`.
fn side_ns(output: &str, side: &str) -> Option<f64> {
    number_after(output, &format!("{side} rate")).map(|per_s| 1e9 / per_s)
}

/// Reads the time per packet of client 0 from the output of `sched`. The heading of the column
/// names the unit.
fn packet_ns(output: &str, _: &str) -> Option<f64> {
    let mut heads = output.lines().find(|line| line.starts_with("client "))?.split_whitespace();
    let (index, unit) = heads.by_ref().enumerate().find(|(_, head)| head.ends_with("pps"))?;
    let unit_per_s = match unit {
        "Mpps" => 1e6,
        "kpps" => 1e3,
        _ => 1.0,
    };
    column(output, "0", index).map(|rate| 1e9 / (rate * unit_per_s))
}

/// Reads the time of a call in C from the row `row` of the output of `calls`. The call is compiled
/// with -O3.
fn c_call_ns(output: &str, row: &str) -> Option<f64> {
    call_ns(output, "-O3", row)
}

/// Reads the time of a call with probes from the row `row` of the output of `calls`.
fn probed_call_ns(output: &str, row: &str) -> Option<f64> {
    call_ns(output, "With probes", row)
}

/// Reads the time of a call from the row `row` of a section in the output of `calls`.
fn call_ns(output: &str, section: &str, row: &str) -> Option<f64> {
    let is_head = |line: &&str| !line.starts_with(' ') && line.contains(section);
    let rows = output.lines().skip_while(|line| !is_head(line)).skip(1);
    let line = rows.take_while(|line| line.starts_with(' ')).find(|line| line.contains(row))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "ns")?;
    words.get(unit.checked_sub(1)?)?.parse().ok()
}

/// Reads the time per message from the output of `evh_perf`.
fn echo_ns(output: &str, _: &str) -> Option<f64> {
    number_after(output, "messages_per_second=").map(|per_s| 1e9 / per_s)
}

/// Reads the time per loop iteration from the output of `abt-eventual-bench`.
fn loop_ns(output: &str, _: &str) -> Option<f64> {
    let line = output.lines().find(|line| !line.starts_with('#'))?;
    let number = |index: usize| line.split('\t').nth(index)?.parse::<f64>().ok();
    Some(number(0)? * 1e9 / number(3)?)
}

/// Reads the time of an operation from its row in the output of `node-microbench`.
fn operation_ns(output: &str, row: &str) -> Option<f64> {
    let head = format!("\"{row}\"\t");
    let line = output.lines().find_map(|line| line.strip_prefix(&head))?;
    line.split('\t').nth(3)?.parse().ok()
}

/// Times of one operation, measured by a classic program and by the suite.
struct ComparedFigures {
    /// Command line of the classic program.
    line: &'static str,
    /// Figure of the classic program, and the suite's figure for the same operation.
    pair: &'static FigurePair,
    /// Values of the classic program, one per round.
    classic_ns: Vec<f64>,
    /// Values of the suite, one per round; empty if the suite has no such figure.
    suite_ns: Vec<f64>,
}

impl ComparedFigures {
    /// Returns the ratio of the classic program's median to the suite's.
    fn ratio(&self) -> Option<f64> {
        let median = |values: &[f64]| median_if_any(values.iter().copied());
        Some(median(&self.classic_ns)? / median(&self.suite_ns)?)
    }

    /// Returns the verdict on the ratio of the medians.
    fn verdict(&self) -> Verdict {
        let is_alike = |ratio: f64| (ratio - 1.0).abs() <= RATIO_DEVIATION_MAX;
        let mut each = self
            .classic_ns
            .iter()
            .flat_map(|classic_ns| self.suite_ns.iter().map(move |suite_ns| classic_ns / suite_ns));
        match self.ratio() {
            Some(ratio) if is_alike(ratio) => Verdict::Same,
            Some(_) if !self.pair.why.is_empty() => Verdict::Explained,
            Some(_) if each.any(is_alike) => Verdict::Unsteady,
            Some(_) => Verdict::Differs,
            None => Verdict::Missing,
        }
    }
}

/// Verdict on the ratio of a classic program's figure to the suite's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The ratio of the medians deviates from 1 by at most [`RATIO_DEVIATION_MAX`].
    Same,
    /// The ratio deviates from 1 by more than [`RATIO_DEVIATION_MAX`], for a known reason.
    Explained,
    /// The medians differ too much for no known reason, but at least one pair of values does not.
    Unsteady,
    /// No reason is known, and the ratio deviates from 1 by more than [`RATIO_DEVIATION_MAX`] for
    /// every two values.
    Differs,
    /// The suite has no such figure.
    Missing,
}

/// Formats the median, and the range if there are several values.
fn format_times(values_ns: &[f64]) -> String {
    let Some(middle_ns) = median_if_any(values_ns.iter().copied()) else {
        return "–".to_string();
    };
    let least_ns = values_ns.iter().copied().fold(f64::INFINITY, f64::min);
    let most_ns = values_ns.iter().copied().fold(0.0, f64::max);
    match values_ns.len() {
        1 => format_ns(middle_ns),
        _ => {
            let (least, most) = (format_ns(least_ns), format_ns(most_ns));
            format!("{middle} ({least} to {most})", middle = format_ns(middle_ns))
        }
    }
}

/// Returns a usage error if this build has no classic programs.
fn check_classic_programs() -> anyhow::Result<()> {
    match names::CLASSIC_PROGRAMS {
        [] => Err(to_usage_error(
            "--classics: this build of handover has no classic programs; build it with the feature classic",
        )),
        _ => Ok(()),
    }
}

/// Compares the classic programs with the suite, and prints a table. Returns an error if a pair
/// differs without a known reason.
pub fn prove(args: &ProveArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    check_classic_programs()?;
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let is_smoke = args.profile == Profile::Smoke;
    let mut compared: Vec<ComparedFigures> = PROGRAMS
        .iter()
        .flat_map(|program| program.pairs.iter().map(|pair| (program.line, pair)))
        .map(|(line, pair)| ComparedFigures {
            line,
            pair,
            classic_ns: Vec::new(),
            suite_ns: Vec::new(),
        })
        .collect();
    for _ in 0..if is_smoke { 1 } else { ROUNDS_COUNT } {
        for program in PROGRAMS {
            let output = run_program(program.line, is_smoke, &interrupted)?;
            for it in compared.iter_mut().filter(|it| std::ptr::eq(it.line, program.line)) {
                let FigurePair { figure, read, .. } = it.pair;
                let found = read(&output, figure).filter(|ns| ns.is_finite() && *ns > 0.0);
                it.classic_ns.push(found.with_context(|| {
                    let line = it.line;
                    format!("cannot find the figure {figure:?} in the output of `handover {line}`:\n{output}")
                })?);
            }
        }
        let records = measure_suite(args)?;
        for it in &mut compared {
            let FigurePair { id, contender, .. } = it.pair;
            let record = records.iter().find(|it| it.id == *id && it.contender == *contender);
            it.suite_ns.extend(record.map(|it| it.summary.median));
        }
    }
    let text = match args.json {
        true => {
            let rows: Vec<_> = compared.iter().map(pair_json).collect();
            format!("{}\n", serde_json::to_string_pretty(&rows)?)
        }
        false => format_table(&compared, is_smoke),
    };
    exit::print_and_join(judge(&compared, is_smoke), &text, out)
}

/// Returns an error if a pair differs without a known reason, or the suite lacks a figure.
fn judge(compared: &[ComparedFigures], is_smoke: bool) -> anyhow::Result<()> {
    let missing = compared.iter().find(|it| it.suite_ns.is_empty());
    if let Some(it) = missing {
        let FigurePair { id, contender, .. } = it.pair;
        bail!("the suite has measured no figure for {id} [{contender}]");
    }
    match compared.iter().filter(|it| it.verdict() == Verdict::Differs).count() {
        _ if is_smoke => {
            console::print_error("a smoke run has no verdicts");
            Ok(())
        }
        0 => Ok(()),
        1 => bail!("1 figure differs from the suite's without a known reason"),
        count => bail!("{count} figures differ from the suite's without a known reason"),
    }
}

/// Measures the suite's benchmarks of all pairs. Operations that cross processes are measured in
/// processes, and peers only if a pair refers to a peer.
fn measure_suite(args: &ProveArgs) -> anyhow::Result<Vec<Record>> {
    let mut records = Vec::new();
    for (are_processes, needs_peers) in [(true, false), (false, false), (false, true)] {
        let ids = PROGRAMS.iter().flat_map(|program| program.pairs).map(|pair| pair.id);
        let mut patterns: Vec<String> = ids
            .filter(|id| {
                let crosses = id.starts_with("rpc/") || id.starts_with("bulk/");
                let has_peer = ["lock/", "notify/"].iter().any(|it| id.starts_with(it));
                (crosses, has_peer) == (are_processes, needs_peers)
            })
            .map(|id| id.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"))
            .collect();
        patterns.sort();
        patterns.dedup();
        let plan = Plan {
            profile: args.profile,
            time: args.time.or((args.profile != Profile::Smoke).then_some(SUITE_TIME)),
            processes: are_processes,
            peers: needs_peers,
            ..Plan::default()
        };
        let lab = Lab::new(handover_suite::SUITES, &patterns, plan).map_err(exit::plan_error)?;
        let display =
            run::ProgressDisplay { is_quiet: args.json, is_plain: false, swept_argument: None };
        let (profile, name) = (args.profile.to_string(), args.name.name.as_deref());
        let mut measured = run::measure(&lab, &profile, &args.db, display, name)?;
        records.append(&mut measured.document.records);
        measured.into_result(Ok(()))?;
    }
    Ok(records)
}

/// Runs this binary as a classic program and returns its output. Starts a server first if the
/// program needs one.
fn run_program(line: &str, is_smoke: bool, interrupted: &AtomicBool) -> anyhow::Result<String> {
    let binary = std::env::current_exe().context("cannot find the path of this program")?;
    let server = line.contains("PORT").then(|| Server::start(&binary)).transpose()?;
    let port = server.as_ref().map_or(String::new(), |it| it.port.to_string());
    let words = line.split(' ').map(|word| match word {
        "PORT" => port.as_str(),
        word if is_smoke => SMOKE_VALUES.iter().find(|it| it.0 == word).map_or(word, |it| it.1),
        word => word,
    });
    let mut output = tempfile::tempfile()
        .context("cannot create a temporary file for the output of the classic program")?;
    let mut command = Command::new(&binary);
    command.args(words).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let status = child::run(&mut command, interrupted)?.status;
    check_interrupt(interrupted)?;
    let mut text = String::new();
    output.rewind()?;
    output.read_to_string(&mut text)?;
    ensure!(status.success(), "`handover {line}` failed with {status}:\n{text}");
    Ok(text)
}

/// Server of evh_perf on a free port; terminated on drop.
struct Server {
    child: Child,
    port: u16,
    /// Pipe from the server's standard output. It is open as long as the server runs: without a
    /// reader, the server's next output would end it.
    output: BufReader<ChildStdout>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited by itself, which is not an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(binary: &std::path::Path) -> anyhow::Result<Server> {
        let mut command = Command::new(binary);
        command.args(["evh_perf", "-e", "-p", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        signal_on_parent_exit(&mut command, Signal::KILL);
        let mut child = command.spawn().context("cannot start the server of evh_perf")?;
        let output = child.stdout.take().context("the server of evh_perf has no output pipe")?;
        let mut server = Server { child, port: 0, output: BufReader::new(output) };
        let mut line = String::new();
        while server.output.read_line(&mut line)? > 0 {
            if let Some((_, port)) = line.split_once(" port:") {
                let port = port.trim().trim_matches('\'').replace(',', "");
                server.port = port.parse().with_context(|| {
                    format!("cannot find the port in the line {line:?} of the server of evh_perf")
                })?;
            }
            if line.contains("Server started") {
                return Ok(server);
            }
            line.clear();
        }
        let status = server.child.wait()?;
        bail!("the server of evh_perf exited before it listened: {status}")
    }
}

fn pair_json(it: &ComparedFigures) -> serde_json::Value {
    let FigurePair { figure, id, contender, why, .. } = it.pair;
    serde_json::json!({
        "classic": it.line, "figure": figure, "classic_ns": it.classic_ns,
        "suite": id, "contender": contender, "suite_ns": it.suite_ns,
        "ratio": it.ratio(), "reason": why,
        "differs": matches!(it.verdict(), Verdict::Differs | Verdict::Missing),
    })
}

fn format_table(compared: &[ComparedFigures], is_smoke: bool) -> String {
    let head = ["classic program", "an operation", "suite", "an operation", "ratio", "verdict"];
    let mut lines = vec![head.map(str::to_string)];
    for it in compared {
        let FigurePair { figure, id, contender, why, .. } = it.pair;
        let verdict = match it.verdict() {
            _ if is_smoke => "–",
            Verdict::Same => "the same",
            Verdict::Explained => why,
            Verdict::Unsteady => "unsteady: some rounds are the same",
            Verdict::Differs | Verdict::Missing => "DIFFERS",
        };
        lines.push([
            format!("{} {figure}", it.line).trim_end().to_string(),
            format_times(&it.classic_ns),
            format!("{id} [{contender}]"),
            format_times(&it.suite_ns),
            it.ratio().map_or("–".to_string(), |ratio| format!("{ratio:.2}")),
            verdict.to_string(),
        ]);
    }
    align_columns(&lines, &[0, 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_without_classic_programs_names_the_missing_feature() {
        let error = check_classic_programs().err().map(|error| error.to_string());
        let refused = "--classics: this build of handover has no classic programs; build it with the feature classic";
        assert_eq!(error.as_deref(), (!cfg!(feature = "classic")).then_some(refused));
    }

    #[test]
    fn every_pair_names_a_contender_of_the_suite() {
        for pair in PROGRAMS.iter().flat_map(|it| it.pairs) {
            let FigurePair { id, contender, .. } = pair;
            let is_there = handover_suite::SUITES.iter().flat_map(|it| it.iter()).any(|bench| {
                let spec = bench.spec();
                let parts = spec.parts.iter().map(|part| format!("{}/{}", spec.id, part.name));
                let ids: Vec<String> = match spec.parts {
                    [] => vec![spec.id.to_string()],
                    _ => parts.collect(),
                };
                bench.contender().name == *contender && ids.iter().any(|it| it == id)
            });
            assert!(is_there, "{id} [{contender}]");
        }
    }

    #[test]
    fn every_line_starts_with_a_classic_program() {
        for program in PROGRAMS {
            let command = program.line.split(' ').next();
            let found = command.and_then(|name| names::find_by_file_name(name.as_ref()));
            assert!(found.is_some(), "{command:?}");
            assert!(!program.pairs.is_empty());
        }
    }

    #[test]
    fn figures_are_parsed_from_program_output() {
        let close = |found: Option<f64>, expected: f64| {
            assert!(
                found.is_some_and(|it| (it / expected - 1.0).abs() < 1e-3),
                "{found:?} {expected}"
            );
        };
        let margo =
            "# <op> <iterations>\nnoop\t9\t100\t0\t0.1\t0.2\t0.000000130\t0.3\t0.4\t0.5\n#x\n";
        close(latency_ns(margo, ""), 130.0);
        let bw = "<op>\t<x>\nPULL\t1\t1\t0\t65536\t99\t1.0\t20000.0\t1\t0\nPUSH\t1\t1\t0\t65536\t99\t1.0\t10000.0\t1\t0\n";
        close(transfer_ns(bw, "PULL"), 3125.0);
        close(transfer_ns(bw, "PUSH"), 6250.0);
        let hello = "[1.0|2|DEMO1EVM] QUIT timer expired (4 messages sent)!\n\
                     [1.0|2|DEMO1EVM] 2000000 messages in 0.500 s: 4.00 M/s, 250 ns each\n";
        close(message_ns(hello, ""), 250.0);
        close(round_trip_ns(hello, ""), 500.0);
        close(try_ns("x main [158] BUSY: total 4.0e+07 ops, per-thread 2.000e+07 ops\n", ""), 50.0);
        let notify = "0 snd_body [158] sender rate 1.000e+07 ops\n\
                      0 rcv_body [160] receiver rate 2.500e+06 ops, #wakeups 44306\n";
        close(side_ns(notify, "sender"), 100.0);
        close(side_ns(notify, "receiver"), 400.0);
        close(
            packet_ns("client packets kpps\n     0  13947  4000.0  327.9 0 0 100.00 %\n", ""),
            250.0,
        );
        close(
            packet_ns("client packets Mpps\n     0  13947  40.00  327.9 0 0 100.00 %\n", ""),
            25.0,
        );
        let calls = "Compiled with -O0\n  Function call (here): 6.3 cycles 2.57 ns\n\n\
                     Compiled with -O3\n  Function call (here): 5.0 cycles 1.50 ns (+0.1)\n\n\
                     With probes (Rust, optimised)\n  Function call with two probes, off: 4 cycles 1.75 ns\n";
        close(c_call_ns(calls, "(here)"), 1.5);
        close(probed_call_ns(calls, "two probes, off"), 1.75);
        assert_eq!(c_call_ns(calls, "two probes, off"), None);
        close(
            echo_ns("(INFO)  messages_per_second=[1,000,000],average_latency=[1.06us]\n", ""),
            1000.0,
        );
        close(loop_ns("#<num_ults>\n16\t1\t1\t8000.000000\t0.1\n#late\n", ""), 2_000_000.0);
        let small_rows =
            "#<test case>\n# \"mpi_wtime\": no MPI library\n\"gettid\"\t1\t0.1\t10.0\t99.5\n";
        close(operation_ns(small_rows, "gettid"), 99.5);
        assert_eq!(operation_ns(small_rows, "mpi_wtime"), None);
    }

    #[test]
    fn pair_beyond_the_bound_needs_a_reason_or_rounds_that_agree() {
        let compared = |why: &'static str, classic_ns: &[f64], suite_ns: &[f64]| ComparedFigures {
            line: "hello1",
            pair: Box::leak(Box::new(pair("", latency_ns, "event/call", "handover", why))),
            classic_ns: classic_ns.to_vec(),
            suite_ns: suite_ns.to_vec(),
        };
        let verdict = |why, classic_ns, suite_ns| compared(why, classic_ns, suite_ns).verdict();
        assert!(
            verdict("", &[900.0, 120.0, 110.0], &[100.0]) == Verdict::Same,
            "the median, 120, was found outside the bound"
        );
        assert!(verdict("", &[130.0], &[100.0]) == Verdict::Differs);
        assert!(verdict("", &[130.0, 140.0, 150.0], &[100.0, 100.0, 125.0]) == Verdict::Unsteady);
        assert!(verdict("it does more", &[130.0], &[100.0]) == Verdict::Explained);
        assert!(
            verdict("it does more", &[130.0], &[]) == Verdict::Missing,
            "a pair without figures of the suite was not reported as missing"
        );
        let rows = [compared("", &[130.0], &[100.0]), compared("it does more", &[200.0], &[100.0])];
        let text = format_table(&rows, false);
        assert!(text.contains("1.30  DIFFERS") && text.contains("2.00  it does more"), "{text}");
        let text = format_table(&[compared("", &[90.0, 100.0, 120.0], &[100.0])], false);
        assert!(text.contains("100 ns (90.0 ns to 120 ns)"), "{text}");
    }
}
