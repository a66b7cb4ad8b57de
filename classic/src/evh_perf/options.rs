//! The options, and the checks for contradictions among them.

use super::super::{raise_descriptors_limit, whole_number_parser};
use crate::load::wire::LETTERS_MAX;
use clap::{ArgAction, Args};
use handover_base::units::TimeSpan;
use handover_program::exit::to_usage_error;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Maximum number of threads of a client or a server.
const THREADS_MAX: u64 = 1024;
/// Maximum number of connections of a thread.
const HANDLES_MAX: u64 = 1 << 24;
/// Printed default of `--max_handles_per_thread`, which is not enforced. The original program does
/// the same.
const MAX_HANDLES_SETTING: u64 = 300;
/// Maximum number of processes of a client or a server.
pub const PROCESSES_MAX: u64 = 1000;
/// Maximum number of connections of `--connect`.
const CONNECTIONS_MAX: u64 = 1_000_000_000;
/// Size of one slab of a read buffer. The default of 20 slabs is a little over 64 KiB.
const SLAB_BYTES: u32 = 3277;
/// Maximum number of slabs of a read buffer. So many have 16 MB.
const SLABS_MAX: u64 = 5000;
/// Maximum width of a histogram bucket: a minute.
const DELTA_MICROS_MAX: u64 = 60_000_000;
/// Maximum of `--spin`.
const SPIN_NS_MAX: u32 = 1_000_000;
/// Default duration of each rate in a ramp or search.
const RATE_DURATION: Duration = Duration::from_secs(2);
/// Default duration of a load at one rate.
const LOAD_DURATION: Duration = Duration::from_secs(10);

/// Echo server, its load client, or a client with a great many idle connections.
///
/// `-e` serves, `-c` sends messages and checks their echoes, both do both in one process;
/// `--connect` opens connections and holds them.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Here -h is an option of the classic program; help is --help alone.\n\n\
Each client sends --count messages and waits for their echoes, --itt times. Each thread connects --clients clients, \
--reconns times, and pauses for --sleep after each time. With --duration, --rate, --ramp or --slo the load is \
limited by time: in a closed loop each client has --depth messages in flight, in an open loop each message is sent \
when it is due. Exit code 1: a message is missing or wrong, or --slo is violated. docs/evh_perf.md describes all \
modes, and how to hold a million connections.")]
pub struct EvhPerf {
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
    /// Serve, until SIGINT or SIGTERM
    #[arg(short = 'e', long)]
    pub eventhandler: bool,
    /// Send messages, and check their echoes
    #[arg(short = 'c', long)]
    pub client: bool,
    /// Open --count connections, and hold them until Enter, SIGINT, or --hold
    #[arg(short = 'b', long)]
    pub connect: bool,
    /// Number of messages in each burst of a client; with --connect, number of connections
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=u64::MAX))]
    pub count: Option<u64>,
    /// Number of bursts of --count messages that each client sends. A burst starts after all echoes
    /// of the one before [default: 1]
    #[arg(short = 'i', long, value_name = "N", value_parser = whole_number_parser(1..=u64::MAX))]
    pub itt: Option<u64>,
    /// Clients of each thread [default: 1]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=HANDLES_MAX))]
    pub clients: Option<u64>,
    /// Number of threads of the client, and of the server
    #[arg(short = 't', long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole_number_parser(1..=THREADS_MAX))]
    pub threads: u64,
    /// The port; with -e, 0 stands for any free port
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 8081, value_parser = parse_port)]
    pub port: u16,
    /// The server's host; with -e, the address on which it listens
    #[arg(short = 'w', long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Minimum number of letters of a message [default: 3]
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = whole_number_parser(0..=LETTERS_MAX.into()))]
    pub min: Option<u64>,
    /// Maximum number of letters of a message [default: 10]
    #[arg(short = 'm', long, value_name = "BYTES", value_parser = whole_number_parser(0..=LETTERS_MAX.into()))]
    pub max: Option<u64>,
    /// Number of times that each thread opens its connections [default: 1]
    #[arg(short = 'r', long, value_name = "N", value_parser = whole_number_parser(1..=u64::MAX))]
    pub reconns: Option<u64>,
    /// Pause of a thread before it connects again, in ms [default: 0]
    #[arg(short = 'x', long, value_name = "MS", value_parser = whole_number_parser(0..=86_400_000))]
    pub sleep: Option<u64>,
    /// Print the latency histogram
    #[arg(short = 'z', long)]
    pub histo: bool,
    /// Width of the histogram's buckets in µs [default: 10]
    #[arg(short = 'v', long = "histo_delta_micros", value_name = "US")]
    #[arg(value_parser = whole_number_parser(1..=DELTA_MICROS_MAX))]
    pub histo_delta_micros: Option<u64>,
    /// Number of slabs of each thread's read buffer; a slab has 3277 bytes
    #[arg(short = 's', long = "read_slab_count", value_name = "N", default_value_t = 20)]
    #[arg(value_parser = whole_number_parser(1..=SLABS_MAX))]
    pub read_slab_count: u64,
    /// Maximum number of connections of a thread. Without it, the settings list 300, as the
    /// original does, and the limit is the number of descriptors that this process may open
    #[arg(short = 'h', long = "max_handles_per_thread", value_name = "N")]
    #[arg(value_parser = whole_number_parser(1..=HANDLES_MAX))]
    pub max_handles_per_thread: Option<u64>,
    /// With -e: listen in every thread, so that the kernel distributes the connections to the
    /// threads
    #[arg(long = "reuse_port")]
    pub reuse_port: bool,
    /// Print each connection that fails, and with -e each one that is opened or closed
    #[arg(short = 'd', long)]
    pub debug: bool,
    /// Print the event handler's statistics every 3 s and at the end
    #[arg(short = 'l', long)]
    pub stats: bool,
    /// Encrypt the connections by TLS
    #[arg(long)]
    pub tls: bool,
    /// With -e: the certificate, a PEM file; without it, one is generated
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// With -e: the private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// With -c or --connect: PEM file of the authorities that verify the server's certificate.
    /// Without it, the certificate is not verified
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Number of processes: each has --threads threads, and with --connect its share of --count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number_parser(1..=PROCESSES_MAX))]
    pub processes: u64,
    /// With -e: maximum time that a thread polls before it sleeps, such as 50us. It polls only
    /// while polling finds work. For threads that have a CPU of their own
    #[arg(long, value_name = "TIME", value_parser = parse_spin)]
    pub spin: Option<u32>,
    /// With --connect: time in s after which the connections are closed
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub hold: Option<Duration>,
    /// With --connect: number of connections that echo a message when all are open [default: 1000]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(0..=1 << 32))]
    pub sample: Option<u64>,
    /// Duration of the load in s, instead of numbers of messages
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<Duration>,
    /// Time in s for which messages are sent before the measurement [default: a tenth of
    /// --duration]
    #[arg(long = "warm-up", value_name = "SECONDS", value_parser = parse_seconds)]
    pub warm_up: Option<Duration>,
    /// Rate in messages a second, each sent when it is due (an open loop): 5000, 50k, 1.5M. Without
    /// --duration, for 10 s
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Maximum number of a client's messages in flight [default: --count]
    #[arg(long, value_name = "N", value_parser = whole_number_parser(1..=u64::MAX))]
    pub depth: Option<u64>,
    /// Range of rates that are run in turn, each for --duration: 1k..50k (10 rates), 1k..50k:20 (20
    /// rates)
    #[arg(long, value_name = "FROM..TO[:STEPS]")]
    pub ramp: Option<RateRamp>,
    /// Bounds of latency percentiles: p99=1ms, p50=100us,p99.9=5ms. Without --rate and --ramp:
    /// search for the highest rate that holds them
    #[arg(long, value_name = "PERCENTILE=TIME,...")]
    pub slo: Option<LatencyBounds>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
    /// Write the latencies to this file, as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
    /// Maximum wait for an echo or a connection in s, more than 0
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_positive_seconds)]
    pub timeout: Duration,
    /// Run as one of several processes
    #[arg(long, hide = true, value_name = "INDEX")]
    pub part: Option<u32>,
}

/// Parses a port number; 0 stands for any free port.
fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "must be a port number from 0 to 65535".to_string())
}

/// Parses a duration in seconds, with or without a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "must be a number of seconds".to_string())?;
    match (0.0..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("must be between 0 and 86400 seconds".to_string()),
    }
}

/// Parses a duration in seconds that is longer than 0.
fn parse_positive_seconds(text: &str) -> Result<Duration, String> {
    match parse_seconds(text)? {
        Duration::ZERO => Err("must be greater than 0: no echo arrives in 0 s".to_string()),
        duration => Ok(duration),
    }
}

/// Parses a spin time of at most 1 ms, as in `50us`; returns it in ns.
fn parse_spin(text: &str) -> Result<u32, String> {
    let span: TimeSpan = text.parse().map_err(|refused| format!("{refused}"))?;
    let ns = u32::try_from(span.0).ok().filter(|ns| *ns <= SPIN_NS_MAX);
    ns.ok_or_else(|| "must be at most 1ms".to_string())
}

/// Parses a number per second: 5000, 50k, 1.5M.
fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1e6)),
    };
    let rate = number.parse::<f64>().map_err(|_| "must be a number, as in 5000, 50k or 1.5M")?;
    match (0.1..=1e9).contains(&(rate * factor)) {
        true => Ok(rate * factor),
        false => Err("must be between 0.1 and 1000M per second".to_string()),
    }
}

/// Series of evenly spaced rates, in messages a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateRamp {
    /// First and lowest rate.
    pub from: f64,
    /// Last and highest rate.
    pub to: f64,
    /// Number of rates.
    pub steps: u32,
}

impl RateRamp {
    /// Returns the rates of the ramp, the lowest first.
    pub fn rates(self) -> impl Iterator<Item = f64> {
        let gaps = f64::from(self.steps.max(2) - 1);
        (0..self.steps).map(move |step| self.from + (self.to - self.from) * f64::from(step) / gaps)
    }
}

impl fmt::Display for RateRamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}:{}", self.from, self.to, self.steps)
    }
}

impl FromStr for RateRamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (range, steps) = text.split_once(':').unwrap_or((text, "10"));
        let form = || "must be FROM..TO or FROM..TO:STEPS, as in 1k..50k:20".to_string();
        let (from, to) = range.split_once("..").ok_or_else(form)?;
        let (from, to) = (parse_rate(from)?, parse_rate(to)?);
        let steps = steps.parse().ok().filter(|steps| (1..=1000).contains(steps));
        let steps = steps.ok_or("STEPS must be a whole number from 1 to 1000")?;
        match from <= to {
            true => Ok(Self { from, to, steps }),
            false => Err("FROM must not be above TO".to_string()),
        }
    }
}

/// Upper bounds on latency percentiles.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyBounds {
    /// Value of `--slo` as the user wrote it.
    pub text: String,
    /// Pairs of a percentile and its maximum latency in ns.
    pub bounds: Vec<(f64, u64)>,
}

impl FromStr for LatencyBounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bound = |part: &str| {
            let form = || format!("{part:?} is not a latency bound: write one like p99=1ms");
            let (percentile, time) =
                part.strip_prefix('p').and_then(|it| it.split_once('=')).ok_or_else(form)?;
            let percentile = percentile.parse().ok().filter(|it| (0.0..=100.0).contains(it));
            let span: TimeSpan = time.parse().map_err(|refused| format!("{refused}"))?;
            Ok::<_, String>((percentile.ok_or_else(form)?, span.0))
        };
        let bounds = text.split(',').map(bound).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_string(), bounds })
    }
}

/// Load that the options select. It is given by numbers of messages, a time, a ramp of rates, or a
/// search for the highest rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadMode {
    /// Fixed numbers of messages, as in the classic program.
    Counted,
    /// A fixed duration, in a closed loop, or in an open loop at a rate.
    Timed { duration: Duration, rate: Option<f64> },
    /// A series of rates, each for a fixed duration.
    RateRamp { ramp: RateRamp, each: Duration },
    /// Search for the highest rate within the latency bounds. Each rate runs for a fixed duration.
    Search { each: Duration },
}

impl EvhPerf {
    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// A usage error that says what to change.
    pub fn validate(&self) -> anyhow::Result<()> {
        let refuse = |text: String| Err(to_usage_error(text));
        if !(self.eventhandler || self.client || self.connect) {
            return refuse("one of -e (serve), -c (client) and --connect is needed".into());
        }
        if self.connect && (self.eventhandler || self.client) {
            return refuse("--connect excludes -e and -c: run it as a separate process".into());
        }
        let (server, client, either) =
            (self.eventhandler, self.client, self.client || self.connect);
        let (serves_or_sends, of_both) = (server || client, "needs -e or -c");
        let of_server = "is an option of the server: it needs -e";
        let of_client = "is an option of the client: it needs -c";
        let of_either = "is an option of the client: it needs -c or --connect";
        let requirements = [
            ("--itt", self.itt.is_some(), client, of_client),
            ("--clients", self.clients.is_some(), client, of_client),
            ("--min", self.min.is_some(), client, of_client),
            ("--max", self.max.is_some(), client, of_client),
            ("--reconns", self.reconns.is_some(), client, of_client),
            ("--sleep", self.sleep.is_some(), client, of_client),
            ("--histo", self.histo, client, of_client),
            ("--histo_delta_micros", self.histo_delta_micros.is_some(), client, of_client),
            ("--duration", self.duration.is_some(), client, of_client),
            ("--warm-up", self.warm_up.is_some(), client, of_client),
            ("--rate", self.rate.is_some(), client, of_client),
            ("--depth", self.depth.is_some(), client, of_client),
            ("--ramp", self.ramp.is_some(), client, of_client),
            ("--slo", self.slo.is_some(), client, of_client),
            ("--hdr", self.hdr.is_some(), client, of_client),
            (
                "--max_handles_per_thread",
                self.max_handles_per_thread.is_some(),
                serves_or_sends,
                of_both,
            ),
            ("--debug", self.debug, serves_or_sends, of_both),
            ("--stats", self.stats, serves_or_sends, of_both),
            ("--count", self.count.is_some(), either, of_either),
            ("--json", self.json, either, "needs -c or --connect"),
            ("--cert", self.cert.is_some(), self.tls, "needs --tls"),
            ("--ca", self.ca.is_some(), self.tls, "needs --tls"),
            ("--cert", self.cert.is_some(), server, of_server),
            ("--ca", self.ca.is_some(), either, of_either),
            ("--hold", self.hold.is_some(), self.connect, "needs -b or --connect"),
            ("--sample", self.sample.is_some(), self.connect, "needs -b or --connect"),
            ("--spin", self.spin.is_some(), server, of_server),
            ("--reuse_port", self.reuse_port, server, of_server),
        ];
        let missing = requirements.iter().find(|(_, given, is_met, _)| *given && !is_met);
        if let Some((name, _, _, why)) = missing {
            return refuse(format!("{name} {why}"));
        }
        if self.connect && self.count() > CONNECTIONS_MAX {
            let count = self.count();
            return refuse(format!(
                "--count {count}: --connect opens at most {CONNECTIONS_MAX} connections"
            ));
        }
        if self.port == 0 && !server {
            return refuse(
                "--port 0 lets a server choose a free port: name the server's port".into(),
            );
        }
        if self.processes > 1 && self.eventhandler && self.client {
            return refuse("--processes needs either -e or -c, not both".into());
        }
        if self.min() > self.max() {
            let (min, max) = (self.min(), self.max());
            return refuse(format!("--min {min} is above --max {max}"));
        }
        self.check_load_limits()?;
        let handles_max = self.handles_max();
        if self.client && self.clients() > handles_max {
            let clients = self.clients();
            return refuse(format!(
                "--clients {clients}: a thread may hold {handles_max} connections; raise \
                 --max_handles_per_thread, or what this process may open (ulimit -n)"
            ));
        }
        Ok(())
    }

    /// Checks that options for numbers of messages and for durations are not combined.
    fn check_load_limits(&self) -> anyhow::Result<()> {
        let times = [
            ("--duration", self.duration.is_some()),
            ("--rate", self.rate.is_some()),
            ("--ramp", self.ramp.is_some()),
        ];
        let is_timed = self.mode() != LoadMode::Counted;
        let numbers = [
            ("--itt", self.itt.is_some()),
            ("--reconns", self.reconns.is_some()),
            ("--sleep", self.sleep.is_some()),
        ];
        if let (true, Some((name, _))) = (is_timed, numbers.iter().find(|(_, given)| *given)) {
            let by = times.iter().find(|(_, given)| *given).map_or("--slo", |(name, _)| name);
            return Err(to_usage_error(format!(
                "{name} and {by} exclude each other: limit the load by counts or by time"
            )));
        }
        if self.count.is_some() && self.is_open_loop() {
            let by = times[1..].iter().find(|(_, given)| *given).map_or("--slo", |(name, _)| name);
            return Err(to_usage_error(format!(
                "--count and {by} exclude each other: {by} determines when messages are sent; \
                 limit those under way by --depth"
            )));
        }
        if self.warm_up.is_some() && !is_timed {
            return Err(to_usage_error("--warm-up needs --duration, --rate, --ramp or --slo"));
        }
        if self.ramp.is_some() && self.rate.is_some() {
            return Err(to_usage_error(
                "--ramp and --rate exclude each other: a ramp sets the rates itself",
            ));
        }
        if self.processes > 1
            && matches!(self.mode(), LoadMode::RateRamp { .. } | LoadMode::Search { .. })
        {
            return Err(to_usage_error(
                "--processes excludes --ramp, and --slo without --rate: it needs a single rate",
            ));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(to_usage_error("--duration 0: nothing would be measured"));
        }
        Ok(())
    }

    /// Returns the kind of load that the options select.
    pub fn mode(&self) -> LoadMode {
        if let Some(ramp) = self.ramp {
            return LoadMode::RateRamp { ramp, each: self.duration.unwrap_or(RATE_DURATION) };
        }
        if self.rate.is_some() || self.duration.is_some() && self.slo.is_none() {
            return LoadMode::Timed {
                duration: self.duration.unwrap_or(LOAD_DURATION),
                rate: self.rate,
            };
        }
        match self.slo {
            Some(_) => LoadMode::Search { each: self.duration.unwrap_or(RATE_DURATION) },
            None => LoadMode::Counted,
        }
    }

    /// Returns the duration of each load; `None` if a load ends after a number of messages.
    pub fn load_duration(&self) -> Option<Duration> {
        match self.mode() {
            LoadMode::Counted => None,
            LoadMode::Timed { duration: each, .. }
            | LoadMode::RateRamp { each, .. }
            | LoadMode::Search { each } => Some(each),
        }
    }

    /// Returns `true` if messages are sent at their due times, regardless of outstanding echoes.
    fn is_open_loop(&self) -> bool {
        match self.mode() {
            LoadMode::Counted => false,
            LoadMode::Timed { rate, .. } => rate.is_some(),
            LoadMode::RateRamp { .. } | LoadMode::Search { .. } => true,
        }
    }

    /// Returns `--count`, or its default.
    pub fn count(&self) -> u64 {
        self.count.unwrap_or(1)
    }

    /// Returns `--clients`, or its default.
    pub fn clients(&self) -> u64 {
        self.clients.unwrap_or(1)
    }

    /// Returns the minimum number of letters of a message.
    pub fn min(&self) -> u64 {
        // The default minimum yields to a smaller `--max`.
        self.min.unwrap_or(3.min(self.max.unwrap_or(3)))
    }

    /// Returns the maximum number of letters of a message.
    pub fn max(&self) -> u64 {
        // The default maximum yields to a larger `--min`.
        self.max.unwrap_or(10.max(self.min.unwrap_or(10)))
    }

    /// Returns the duration of the warm-up before a measurement of `duration`.
    pub fn warm_up(&self, duration: Duration) -> Duration {
        self.warm_up.unwrap_or(duration / 10)
    }

    /// Returns the maximum number of connections of a thread. By default, it is as many as the
    /// process may open, at most `HANDLES_MAX`.
    pub fn handles_max(&self) -> u64 {
        self.max_handles_per_thread.unwrap_or_else(|| raise_descriptors_limit().min(HANDLES_MAX))
    }

    /// Returns the value of `--max_handles_per_thread` to print. Without the option it is the
    /// original's default, which limits nothing.
    pub fn max_handles_setting(&self) -> u64 {
        self.max_handles_per_thread.unwrap_or(MAX_HANDLES_SETTING)
    }

    /// Returns the size of a thread's read buffer, in bytes.
    pub fn read_bytes(&self) -> u32 {
        // Fits: there are at most 5000 slabs.
        self.read_slab_count as u32 * SLAB_BYTES
    }

    /// Resolves host and port to an address.
    ///
    /// # Errors
    /// If the host is not an address and does not resolve to one.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        let refused = |why: String| {
            to_usage_error(format!(
                "--host {host}: cannot resolve the host: {why}",
                host = self.host
            ))
        };
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut found = found.map_err(|error| refused(error.to_string()))?;
        found.next().ok_or_else(|| refused("the name resolves to no address".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_ramps_and_bounds_parse_with_suffixes() {
        assert_eq!(parse_rate("50k"), Ok(50_000.0));
        assert_eq!(parse_rate("1.5M"), Ok(1_500_000.0));
        assert!(
            parse_rate("0").is_err() && parse_rate("-1").is_err() && parse_rate("fast").is_err()
        );
        let ramp: RateRamp = "1k..50k:3".parse().expect("a ramp");
        assert_eq!(ramp.rates().collect::<Vec<_>>(), [1000.0, 25_500.0, 50_000.0]);
        assert_eq!(
            "5..5:1".parse::<RateRamp>().expect("parse the ramp").rates().collect::<Vec<_>>(),
            [5.0]
        );
        assert!("50k..1k".parse::<RateRamp>().is_err() && "1k".parse::<RateRamp>().is_err());
        let slo: LatencyBounds = "p99=1ms,p99.9=5ms".parse().expect("parse the bounds");
        assert_eq!(slo.bounds, [(99.0, 1_000_000), (99.9, 5_000_000)]);
        for text in ["99=1ms", "p101=1ms", "p99", "p99=soon", ""] {
            assert!(text.parse::<LatencyBounds>().is_err(), "{text}");
        }
    }
}
