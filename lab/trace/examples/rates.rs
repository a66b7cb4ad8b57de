//! Speed of reading and writing a trace: `cargo run --release --example trace-rates -p
//! handover-trace [MILLIONS]`, with the number of events in millions, ten by default.

use handover_probe::{Config, Recording, disable, enable, prepare, probe, span};
use handover_trace::{
    CallStatistics, CallTree, ExclusionLimits, ExportFormat, SiteNames, Traces, TreeGrouping,
    estimate, export, walk,
};
use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Records five events.
fn work(number: u64) {
    let _outer = span!("rates.outer");
    {
        let _inner = span!("rates.inner", number);
    }
    probe!("rates.mark");
}

/// Records `events` events into the trace `path`.
fn record(path: &Path, events: u64) -> Result<(), Box<dyn Error>> {
    let recording = Recording::start(Config::stream(path).ring_bytes(1 << 28))?;
    enable("rates.*")?;
    prepare();
    for number in 0..events / 5 {
        work(number);
        if number % 20_000 == 0 {
            // Gives the writer time, which shares the CPUs with other processes.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    disable("*")?;
    let summary = recording.finish();
    println!(
        "{} events, {} lost, {:.2} bytes an event",
        summary.recorded,
        summary.lost,
        summary.bytes as f64 / summary.recorded as f64
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let millions = std::env::args().nth(1).map_or(Ok(10), |text| text.parse::<u64>())?;
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let path = folder.path().join("rates.trace");
    record(&path, millions * 1_000_000)?;
    let timed = |what: &str, begin: Instant, events: u64| {
        let s = begin.elapsed().as_secs_f64();
        println!(
            "{what:>22} {:>6.1} M events/s {:>7.1} ns an event",
            events as f64 / s / 1e6,
            s * 1e9 / events as f64
        );
    };
    let begin = Instant::now();
    let traces = Traces::open([&path])?;
    let events = traces.as_slice()[0].threads().iter().map(|thread| thread.events_count).sum();
    timed("opened", begin, events);
    let names = SiteNames::with_all_selected(&traces);
    let begin = Instant::now();
    let count = traces.as_slice()[0].events(0).count() as u64;
    timed("decoded", begin, count);
    let begin = Instant::now();
    timed("decoded and merged", begin, traces.merged_events().count() as u64);
    let begin = Instant::now();
    walk(&traces, &names, &mut CallStatistics::new())?;
    timed("statistics", begin, events);
    let begin = Instant::now();
    walk(&traces, &names, &mut CallTree::new(TreeGrouping::Processes))?;
    timed("call tree", begin, events);
    let begin = Instant::now();
    estimate(&traces, &names, &ExclusionLimits::default())?;
    timed("estimate", begin, events);
    for format in ExportFormat::ALL {
        let begin = Instant::now();
        export(&traces, &names, *format, TreeGrouping::Processes, io::sink())?;
        timed(&format!("{format}, discarded"), begin, events);
        let out = folder.path().join(format.to_string());
        let begin = Instant::now();
        export(
            &Traces::open([&path])?,
            &names,
            *format,
            TreeGrouping::Processes,
            File::create(&out)?,
        )?;
        timed(&format!("open and write as {format}"), begin, events);
        println!("{:>22} {:>6.1} bytes an event", "", out.metadata()?.len() as f64 / events as f64);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!("most memory, the recording's rings included: {most}");
    Ok(())
}
