//! Plants known costs and reads them back: `cargo run --release -p handover-harness --example prove`

use handover_harness::{Lab, Plan, Profile, dispatch_partner, prove};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let all = &[prove::ALL];
    if let Some(played) = dispatch_partner(all) {
        played?;
        return Ok(ExitCode::SUCCESS);
    }
    let profile =
        if std::env::args().any(|it| it == "--smoke") { Profile::Smoke } else { Profile::Quick };
    let plan = Plan { profile, set: prove::arguments(Duration::from_secs(20)), ..Plan::default() };
    let lab = Lab::new(all, &["proof/*".to_string()], plan)?;
    let outcome = lab.run(&mut (), &AtomicBool::new(false));
    outcome.records.iter().for_each(|record| println!("{record}"));
    let proofs = prove::read(&outcome.records, Some(0.01));
    for it in &proofs {
        let read = it.read.unwrap_or(f64::NAN);
        let verdict = if it.is_kept() { "kept" } else { "MISSED" };
        println!(
            "{:40} {:12.4} {:12.4} {:+8.2} % {verdict}",
            it.what,
            it.planted,
            read,
            (read / it.planted - 1.0) * 100.0
        );
    }
    Ok(if proofs.iter().all(|it| it.is_kept()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
