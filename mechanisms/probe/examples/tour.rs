//! Five-minute tour: `cargo run --example probe-tour -p handover-probe`.

use handover_probe::read::{EventKind, Trace};
use handover_probe::{Config, Recording, disable, enable, prepare, probe, probed, sites, span};
use std::error::Error;

#[probed("tour.work")]
fn work(item: u64) -> u64 {
    probe!("tour.item", item);
    let _span = span!("tour.sum");
    (0..1_000 * item).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tour.trace");

    // Off: the sites cost nothing.
    work(1);
    println!("sites of this program, switched by {}:", handover_probe::backend());
    for site in sites() {
        println!("  {:10} {:?} at {}:{}", site.name, site.kind, site.file, site.line);
    }

    // On, for a while and by pattern, on two threads.
    let recording = Recording::start(Config::stream(&path))?;
    enable("tour.*,-tour.sum")?;
    prepare(); // makes this thread's ring now, not within the first span
    let other = std::thread::Builder::new().name("other".into()).spawn(|| work(3))?;
    work(2);
    other.join().map_err(|_| "the other thread panicked")?;
    disable("*")?;
    let summary = recording.finish();
    println!("{} events, {} lost, {} bytes", summary.recorded, summary.lost, summary.bytes);

    // Reads back the events of all threads, in time order.
    let trace = Trace::open(&path)?;
    let mut begin_ns = None;
    for event in trace.merged_events() {
        let ns = trace.ns_from_ticks(event.ticks);
        let since_ns = ns - *begin_ns.get_or_insert(ns);
        let name = trace.site(event.site).map_or("?", |site| &site.name);
        let thread = &trace.threads()[event.thread].name;
        let what = match event.kind {
            EventKind::Enter => "enter",
            EventKind::Leave => "leave",
            _ => "mark",
        };
        println!("  {since_ns:>8} ns {thread:>6} {what} {name} {:?}", event.values());
    }
    println!("missing: {}", trace.missing_events().total_count());
    Ok(())
}
