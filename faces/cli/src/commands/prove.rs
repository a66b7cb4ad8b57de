//! `handover prove`: planted known costs and their measurement; classic programs compared with the
//! suite.

mod classics;

use super::{align_columns, compare, run};
use crate::app::{NameOption, StoreOption, parse_duration};
use crate::commands::stored;
use crate::exit;
use anyhow::bail;
use clap::Args;
use handover_harness::{Bench, Lab, Plan, Profile, prove};
use handover_program::console;
use handover_record::{Document, Proof};
use handover_report::compare::{PROCESSES_MIN, Verdict};
use handover_suite::proof;
use std::io::Write;
use std::time::{Duration, Instant};

/// Arguments of `handover prove`.
#[derive(Debug, Args)]
#[command(
    after_help = "Planted are constants from 1 ns to 10 ms, a tail, two modes, a drift, a stall in an open loop, \
a slowed peer, our lock beside itself with a known delay, one function at two alignments, and this program compared \
with a copy of itself. Exit 1 if a figure is outside its bound and its interval does not contain the planted cost."
)]
pub struct ProveArgs {
    /// Length of the measurement: smoke (once, to check that it works, without verdicts), quick,
    /// full
    #[arg(long, value_name = "NAME", default_value = "quick")]
    profile: Profile,
    /// Measuring time of each planted cost, 100ms to 1h [default: given by the profile]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    time: Option<Duration>,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Compare the classic programs with the suite's benchmarks of the same operations instead.
    /// Exit 1 if a figure differs by more than 25 % without a known reason
    #[arg(long)]
    classics: bool,
    #[command(flatten)]
    name: NameOption,
    #[command(flatten)]
    db: StoreOption,
}

/// Returns every benchmark that a child process of this program may run.
pub fn all_child_benchmarks() -> Vec<&'static [Bench]> {
    [handover_suite::SUITES, &[prove::BENCHES, proof::BENCHES]].concat()
}

pub fn prove(args: &ProveArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.classics {
        return classics::prove(args, out);
    }
    let lab = |lasts: Duration| {
        let plan = Plan {
            profile: args.profile,
            time: args.time,
            set: prove::drift_arguments(lasts),
            ..Plan::default()
        };
        Lab::new(&all_child_benchmarks(), &["proof/*".to_string()], plan).map_err(exit::plan_error)
    };
    // The duration is known only after the setup, and is an argument of the planted costs. Most
    // benchmarks settle before a third of the longest time is over: a drift over all of it would
    // hardly have begun.
    let longest = lab(Duration::ZERO)?.time_max().unwrap_or(Duration::from_secs(1));
    let lab = lab(longest / 3)?;
    let display =
        run::ProgressDisplay { is_quiet: args.json, is_plain: false, swept_argument: None };
    let began = Instant::now();
    let (profile, name) = (args.profile.to_string(), args.name.name.as_deref());
    let mut measured = run::measure(&lab, &profile, &args.db, display, name)?;
    let copied = match measured.is_interrupted {
        true => None,
        false => Some(compare_with_identical_build(args.profile)),
    };
    let took = began.elapsed();
    let document = &mut measured.document;
    let mut proofs = prove::evaluate_proofs(&document.records, document.run.null_one);
    proofs.extend(lock_delay_proof(document));
    let copied = copied.transpose().map(|proof| proofs.extend(proof));
    document.run.proofs = proofs;
    measured.store_description();
    let document = &measured.document;
    let is_judged = args.profile != Profile::Smoke;
    let shown = match args.json {
        true => stored::write_json(document, out),
        false => {
            let table = format_table(&document.run.proofs, is_judged);
            writeln!(out, "{table}\nrun {}, {:.0} s", document.run.id, took.as_secs_f64())
                .map_err(anyhow::Error::from)
        }
    };
    let missed = document.run.proofs.iter().filter(|it| !it.is_proven()).count();
    let judged = measured.into_result(Ok(())).and(copied).and_then(|()| match missed {
        0 => Ok(()),
        _ if !is_judged => {
            console::print_error("a smoke run has no verdicts");
            Ok(())
        }
        1 => bail!("1 planted cost was measured with too large an error"),
        count => bail!("{count} planted costs were measured with too large an error"),
    });
    exit::join_results(judged, shown)
}

/// Compares the measured cost of the delay in our lock with the planted delay. Returns `None` if
/// the records lack it.
fn lock_delay_proof(document: &Document) -> Option<Proof> {
    let of = |contender: &str| {
        let mut records = document.records.iter();
        records.find(|it| it.id == "proof/our-lock" && it.contender == contender)
    };
    let (plain, delayed) = (of("planted")?, of("delayed")?);
    Some(Proof {
        what: "proof/our-lock, the delay".to_string(),
        unit: "ns".to_string(),
        planted: proof::DELAY_NS as f64,
        read: Some(delayed.summary.median - plain.summary.median),
        bound: proof::DELAY_NS as f64 * 0.01,
        ends: None,
    })
}

/// Returns the number of processes per side for the comparison with a copy. It is the minimum for a
/// verdict, or 1 in a smoke run.
fn processes_per_side(profile: Profile) -> u32 {
    match profile {
        Profile::Smoke => 1,
        _ => PROCESSES_MIN as u32,
    }
}

/// Compares this program with a copy of itself. The proof is the number of figures that the
/// comparison calls worse or better.
fn compare_with_identical_build(profile: Profile) -> anyhow::Result<Proof> {
    let ids: &[&str] = match profile {
        Profile::Smoke => &["clock/now"],
        _ => &["lock/free", "event/call", "ring/round-trip"],
    };
    let comparison = compare::compare_with_copy(processes_per_side(profile), "100ms", ids)?;
    let called = comparison.count(Verdict::Worse) + comparison.count(Verdict::Better);
    Ok(Proof {
        what: "two builds of one code, figures that differ".to_string(),
        unit: "rows".to_string(),
        planted: 0.0,
        // A comparison without figures shows nothing.
        read: (!comparison.rows.is_empty()).then_some(called as f64),
        bound: 0.0,
        ends: None,
    })
}

/// Formats a table of the planted and the measured costs, the errors and the verdicts.
fn format_table(proofs: &[Proof], is_judged: bool) -> String {
    let shown = |proof: &Proof, value: f64| match &*proof.unit {
        "ns" => handover_base::units::format_ns(value),
        "share" => format!("{:.1} %", value * 100.0),
        "rows" => format!("{value:.0}"),
        "seen" => if value > 0.0 { "seen" } else { "not seen" }.to_string(),
        _ => format!("{value:.3}×"),
    };
    let mut lines =
        vec![["planted cost", "planted", "read", "error", "bound", "verdict"].map(str::to_string)];
    for proof in proofs {
        let percent = |by: f64| match &*proof.unit {
            // Counted, not measured: the planted value is zero.
            "rows" | "seen" => "–".to_string(),
            _ => format!("{:.1} %", by / proof.planted * 100.0),
        };
        lines.push([
            proof.what.strip_prefix("proof/").unwrap_or(&proof.what).to_string(),
            shown(proof, proof.planted),
            proof.read.map_or("–".to_string(), |read| shown(proof, read)),
            proof.read.map_or("–".to_string(), |read| percent(read - proof.planted)),
            percent(proof.bound),
            match (is_judged, proof.is_proven()) {
                (false, _) => "–",
                (true, true) if proof.is_within_bound() => "right",
                (true, true) => "right by its interval",
                (true, false) => "WRONG",
            }
            .to_string(),
        ]);
    }
    align_columns(&lines, &[0])
}
