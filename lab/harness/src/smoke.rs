//! Smoke test: runs every benchmark of a suite once, with its smallest arguments.

use crate::bench::Bench;
use crate::lab::{Lab, Plan, PlanError, Profile};
use crate::own::{FaultPrinter, fail, run_as_participant};
use crate::select::Selection;
use handover_record::ContenderKind;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Runs every benchmark of a suite once as a test, in threads and, where supported, in processes.
/// Prints a line for each and the closing line `N passed, N failed`. The body of a `harness =
/// false` test; it dispatches participants' processes itself.
///
/// Arguments that do not start with a dash are patterns, as for [`select`](crate::select).
pub fn smoke(all: &[&'static [Bench]]) -> ExitCode {
    if let Some(code) = run_as_participant(all) {
        return code;
    }
    let mut patterns: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if patterns.is_empty() {
        patterns.push("*".to_string());
    }
    run_smoke(all, &patterns).unwrap_or_else(|error| fail(&error, 1))
}

/// Runs the selected benchmarks in threads and then in processes. Prints their results, and returns
/// the exit code.
fn run_smoke(all: &[&'static [Bench]], patterns: &[String]) -> Result<ExitCode, PlanError> {
    let selections = crate::select(all, patterns)?;
    let (mut passed, mut failed) = (0, 0);
    for processes in [false, true] {
        let can = |it: &&Selection| {
            !processes
                || it.spec.hands_over && it.contenders.iter().any(|it| it.can_use_processes())
        };
        let chosen: Vec<&Selection> = selections.iter().filter(can).collect();
        let ids: Vec<String> = chosen.iter().map(|it| it.spec.id.to_string()).collect();
        if ids.is_empty() {
            continue;
        }
        let plan = Plan { profile: Profile::Smoke, processes, ..Plan::default() };
        let outcome = Lab::new(all, &ids, plan)?.run(&mut FaultPrinter, &AtomicBool::new(false));
        let way = if processes { " (processes)" } else { "" };
        // The id of a fault of one contender ends with the contender's name.
        let is_of = |fault_id: &str, id: &str| {
            fault_id.strip_prefix(id).is_some_and(|rest| rest.is_empty() || rest.starts_with(" ["))
        };
        // Null benchmarks and floors that were not chosen are measured too; their faults count.
        let is_chosen = |fault_id: &str| chosen.iter().any(|it| is_of(fault_id, it.spec.id));
        failed += outcome.faults.iter().filter(|(of, _)| !is_chosen(of)).count();
        for selection in chosen {
            let id = selection.spec.id;
            let faults: Vec<_> = outcome.faults.iter().filter(|(of, _)| is_of(of, id)).collect();
            let absent = missing_figures(selection, &outcome.records, processes);
            if faults.is_empty() && absent.is_empty() {
                passed += 1;
                eprintln!("{id}{way} ... ok");
            } else {
                failed += 1;
                eprintln!("{id}{way} ... FAILED {faults:?} {absent:?}");
            }
        }
    }
    eprintln!("{passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the ids of the figures that the benchmark must have and the run did not measure.
fn missing_figures(
    selection: &Selection,
    records: &[handover_record::Record],
    processes: bool,
) -> Vec<String> {
    let spec = selection.spec;
    let optional = |id: &String| {
        spec.parts.iter().any(|part| part.optional && id.ends_with(&format!("/{}", part.name)))
    };
    let mut absent = Vec::new();
    // A floor next to other contenders has figures only for those that wait in the same way.
    let has_others =
        selection.contenders.iter().any(|it| it.contender().kind != ContenderKind::Floor);
    for bench in selection.contenders.iter().filter(|bench| !processes || bench.can_use_processes())
    {
        if has_others && bench.contender().kind == ContenderKind::Floor {
            let name = bench.contender().name;
            if !records.iter().any(|it| it.spec == spec.id && it.contender == name) {
                absent.push(format!("{} [{name}]", spec.id));
            }
            continue;
        }
        for id in spec.figure_ids().into_iter().filter(|id| !optional(id)) {
            let name = bench.contender().name;
            if !records.iter().any(|record| record.id == id && record.contender == name) {
                absent.push(format!("{id} [{name}]"));
            }
        }
    }
    absent
}
