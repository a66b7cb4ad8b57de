//! The JSON document, and the log of histograms.

use super::options::EvhPerf;
use super::outcome::{linear_to_json, percentiles};
use super::stages::LoadCosts;
use crate::load::LoadReport;
use anyhow::Context as _;
use handover_program::exit::to_usage_error;
use handover_program::files::{self, FileReplacement};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde_json::{Map, Value, json};
use std::io::{BufWriter, IntoInnerError};
use std::time::{Duration, SystemTime};

/// Version of the JSON document's format.
const SCHEMA: u32 = 1;

/// Returns the results of one load as JSON.
pub fn load_to_json(outcome: &LoadReport, costs: &LoadCosts) -> Value {
    let shares = outcome.shares.slowest_and_fastest();
    json!({
        "messages": {
            "sent": outcome.sent_count,
            "received": outcome.received_count,
            "measured": outcome.latencies.count(),
            "lost": outcome.lost_count,
            "unsent": outcome.unsent_count,
        },
        "connections": {
            "made": outcome.connected_count,
            "failed": outcome.faults_count,
            "slowest_share": shares.map(|(slowest, _)| slowest),
            "fastest_share": shares.map(|(_, fastest)| fastest),
        },
        "elapsed_s": outcome.elapsed_ns as f64 / 1e9,
        "messages_per_second": outcome.per_second(),
        "latency_ns": {
            "raw": latencies_to_json(&outcome.latencies.raw),
            "corrected": latencies_to_json(&outcome.latencies.corrected),
            "late": latencies_to_json(&outcome.latencies.late),
        },
        "client": {
            "cpu_s": costs.client.map(|client| client.cpu.as_secs_f64()),
            "anon_bytes": costs.client.map(|client| client.anon_bytes),
            "busiest_thread": outcome.busy_share,
        },
        "server": costs.server.map(|server| json!({
            "cpu_s": server.cpu.as_secs_f64(),
            "anon_bytes": server.anon_bytes,
        })),
        "histogram": outcome.latencies.linear.as_ref().map(linear_to_json),
        "faults": outcome.faults,
    })
}

/// Returns the percentiles of a histogram as JSON; null for an empty histogram.
fn latencies_to_json(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut found = Map::new();
    found.insert("count".into(), histogram.len().into());
    found.insert("min".into(), histogram.min().into());
    found.insert("mean".into(), histogram.mean().into());
    found.extend(percentiles(histogram).map(|(name, ns)| (name.to_string(), ns.into())));
    Value::Object(found)
}

/// Returns the JSON document of a run: settings, loads and warnings.
pub fn to_json(args: &EvhPerf, loads: Vec<Value>, more: Value, warnings: &[String]) -> Value {
    let mut document = json!({
        "schema": SCHEMA,
        "program": "evh_perf",
        "version": env!("CARGO_PKG_VERSION"),
        "settings": {
            "host": args.host,
            "port": args.port,
            "threads": args.threads,
            "processes": args.processes,
            "clients": args.clients(),
            "count": args.count(),
            "iterations": args.itt.unwrap_or(1),
            "reconns": args.reconns.unwrap_or(1),
            "min": args.min(),
            "max": args.max(),
            "depth": args.depth,
            "rate": args.rate,
            "ramp": args.ramp.map(|ramp| ramp.to_string()),
            "duration_s": args.load_duration().map(|each| each.as_secs_f64()),
            "warm_up_s": args.load_duration().map(|each| args.warm_up(each).as_secs_f64()),
            "slo": args.slo.as_ref().map(|slo| slo.text.clone()),
            "tls": args.tls,
        },
        "loads": loads,
        "warnings": warnings,
    });
    if let (Value::Object(document), Value::Object(more)) = (&mut document, more) {
        document.extend(more);
    }
    document
}

/// Log file of latency histograms, requested by `--hdr`.
pub struct HistogramLog {
    file: FileReplacement,
    /// Path of the file for messages.
    file_name: String,
}

impl HistogramLog {
    /// Creates the log file, which replaces an existing one when it is written. Returns `None`
    /// without `--hdr`. Called before anything is measured.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn new(args: &EvhPerf) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.hdr else { return Ok(None) };
        let shown = path.display().to_string();
        let file = FileReplacement::create(path).map_err(|error| {
            to_usage_error(format!(
                "--hdr {shown}: cannot create the file: {}",
                files::format_create_error(&error)
            ))
        })?;
        Ok(Some(Self { file, file_name: shown }))
    }

    /// Writes the histograms of the loads to the log, each on a line of its own. A load has `raw`,
    /// and `corrected` unless that is empty.
    ///
    /// # Errors
    /// If writing fails, because the disk is full for example.
    pub fn write<'a>(self, outcomes: impl Iterator<Item = &'a LoadReport>) -> anyhow::Result<()> {
        let context =
            || format!("--hdr: cannot write the histograms to {file}", file = self.file_name);
        let mut file = BufWriter::new(self.file);
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[evh_perf: latencies in ns]")
            .with_start_time(SystemTime::now())
            .with_base_time(SystemTime::now())
            .with_max_value_divisor(1e6)
            .begin_log_with(&mut file, &mut serializer)
            .with_context(context)?;
        let mut start = Duration::ZERO;
        for outcome in outcomes {
            let took = Duration::from_nanos(outcome.elapsed_ns);
            for (name, histogram) in
                [("raw", &outcome.latencies.raw), ("corrected", &outcome.latencies.corrected)]
            {
                if !histogram.is_empty() {
                    let written = log.write_histogram(histogram, start, took, Tag::new(name));
                    written.map_err(|error| anyhow::anyhow!("{error:?}")).with_context(context)?;
                }
            }
            start += took;
        }
        drop(log);
        let written = file.into_inner().map_err(IntoInnerError::into_error);
        written.and_then(FileReplacement::commit).with_context(context)
    }
}
