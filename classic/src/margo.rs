//! Common code of margo's point-to-point programs: two ranks, the first of which serves the other.
//!
//! Three ways to start, one output: alone, where this program starts itself once more as rank 0; by
//! mpiexec or srun, where the environment says which rank this is; and by hand on two hosts, with
//! `--rank`.

pub mod bw;
#[cfg(feature = "mpi")]
mod by_mpi;
pub mod latency;
pub mod meeting;

use crate::ranks::{self, Rank};
use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use handover_base::affinity;
use handover_base::topology::{self, Placement, Topology};
use handover_program::console::{self, print_error};
use handover_program::exit::{ChildExit, interrupt_error, to_usage_error};
use handover_program::files::{self, FileReplacement};
use handover_program::signal_on_parent_exit;
use handover_rpc::{Address, AddressError, CallError, Config, Endpoint, Peer, TlsFiles};
use meeting::{MeetingFile, WaitLimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Map, Value};
use std::any::Any;
use std::cell::OnceCell;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which rank 0 checks its time limit while it waits for rank 1 to connect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time until rank 1 connects after it has released the meeting file or address.
const CONNECT_AFTER_RELEASE_MAX: Duration = Duration::from_secs(1);
/// Maximum time for a rank to exit after it was asked to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum of `--wait`, in seconds: a day.
const WAIT_S_MAX: u64 = 86_400;

/// Time after an interrupt in which rank 0 may still answer rank 1, which has started it.
const ANSWER_AFTER_INTERRUPT_MAX: Duration = Duration::from_secs(1);

/// Options that margo-p2p-latency and margo-p2p-bw share.
#[derive(Debug, Args)]
pub struct SharedOptions {
    /// Transport: sm://, tcp://, tls://, uds:// or ucx://, or in the form of margo (na+sm://,
    /// ofi+tcp://, ofi+tcp;ofi_rxm://, ucx+tcp://). If an address follows, rank 0 listens there
    #[arg(short = 'n', value_name = "TRANSPORT")]
    transport: TransportArg,
    /// Time limits of a progress call of the client and of the server, in ms. With 0 a rank spins;
    /// otherwise it polls for 20 us, then sleeps until it is woken
    #[arg(short = 't', value_name = "CLIENT,SERVER")]
    timeouts: Option<Timeouts>,
    /// Write each rank's configuration and statistics as JSON into FILE.0 (server) and FILE.1
    /// (client). The statistics count calls by procedure, with their latencies
    #[arg(short = 'd', value_name = "FILE")]
    diagnostics: Option<String>,
    /// Configuration of both ranks' endpoints: JSON or a file of JSON, such as '{"spin_ns_max":
    /// 50000}'. -d shows every key. -t and -d take precedence
    #[arg(long, value_name = "JSON|FILE")]
    config: Option<String>,
    /// With -n tls://: this rank's certificate, a PEM file. The certificate of a rank that accepts
    /// connections must name its host
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<String>,
    /// With -n tls://: the private key of this rank's certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<String>,
    /// With -n tls://: the authorities that sign the other rank's certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<String>,
    /// Address of rank 0's host at which the ranks meet; needed across hosts only
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<String>,
    /// Rank of this process if no launcher gives it: 0 serves, 1 calls. While rank 0 serves, it
    /// ends when rank 1 does; only a second signal ends it before
    #[arg(long, value_name = "NUMBER", requires = "rendezvous")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1))]
    rank: Option<u32>,
    /// Maximum wait for the other rank, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    #[arg(value_parser = crate::whole_number_parser(1..=WAIT_S_MAX))]
    wait: u64,
    /// Pin both ranks, by their distance: near, far, smt or same [default: near without a launcher;
    /// not pinned with one]
    #[arg(long, value_name = "NAME")]
    place: Option<Placement>,
    /// Run as rank 0, started by rank 1
    #[arg(long, hide = true)]
    partner: bool,
    /// `true` if both ranks run on one CPU, so that neither may spin. Set when the ranks are
    /// pinned.
    #[arg(skip)]
    is_cpu_shared: OnceCell<bool>,
}

/// Value of `-n` as the user wrote it, and the address that it stands for.
#[derive(Debug, Clone)]
struct TransportArg {
    text: String,
    /// Address in this project's form.
    address: Address,
}

impl FromStr for TransportArg {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Ok(TransportArg { text: text.to_owned(), address: text.parse()? })
    }
}

/// Value of `-t`: time limits of a progress call of the client and of the server.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Timeouts {
    client_ms: u32,
    server_ms: u32,
}

impl FromStr for Timeouts {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parsed = text.split_once(',').and_then(|(client, server)| {
            Some(Timeouts { client_ms: client.parse().ok()?, server_ms: server.parse().ok()? })
        });
        parsed.ok_or("must be CLIENT,SERVER in ms, as in 0,0")
    }
}

/// Roles of the two ranks of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    /// Rank 0, which serves the calls.
    Server,
    /// Rank 1, which makes the calls.
    Client,
}

/// Ways in which rank 1 receives the address of rank 0.
enum AddressSource {
    /// Rank 1 starts rank 0 as its child process.
    Alone,
    /// Rank 1 reads the address from a file named after the job.
    File(MeetingFile),
    /// Rank 0 sends the address by MPI, which this process has initialised.
    #[cfg(feature = "mpi")]
    Mpi(by_mpi::MpiMeeting),
    /// Rank 1 requests the address from rank 0 at the HOST:PORT of `--rendezvous`.
    Host { meeting_address: String, job: String },
}

/// A point-to-point program with a server and a client.
pub trait PointToPointProgram {
    const NAME: &'static str;

    fn shared_options(&self) -> &SharedOptions;

    /// Raises the limits of `config` to those that the program needs.
    fn config(&self, config: Config) -> Config {
        config
    }

    /// Registers the procedures that the server offers.
    fn register(&self, endpoint: &mut Endpoint) -> anyhow::Result<()>;

    /// Runs the client, prints the results, and asks the server to stop.
    fn call(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        interrupted: &AtomicBool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()>;
}

/// Runs the server or the client, depending on the rank of this process.
pub fn run(program: &impl PointToPointProgram, out: &mut dyn Write) -> anyhow::Result<()> {
    run_role(program, out).map_err(|error| match error.downcast_ref::<CallError>() {
        // The loss may be noticed within a call or between two calls.
        Some(CallError::Disconnected(_) | CallError::Stale) => {
            error.context("rank 0 has disconnected")
        }
        _ => error,
    })
}

/// Runs the server or the client, without adding context to errors.
fn run_role<P: PointToPointProgram>(program: &P, out: &mut dyn Write) -> anyhow::Result<()> {
    let options = program.shared_options();
    options.check_certificates()?;
    let interrupted = console::interrupt_flag().context("cannot install the signal handlers")?;
    let (side, via) = options.role(P::NAME)?;
    let diagnostics = options.create_diagnostics(side)?;
    let limit = WaitLimit::new(Duration::from_secs(options.wait), &interrupted);
    match side {
        Role::Server => {
            // A terminal's signal reaches both processes; the process that started this one decides
            // when it ends.
            let never = AtomicBool::new(false);
            let limit = match via {
                AddressSource::Alone => WaitLimit::new(Duration::from_secs(options.wait), &never),
                _ => limit,
            };
            serve(program, via, limit, diagnostics, out)
        }
        Role::Client => {
            options.explain_transport(P::NAME);
            let config = program.config(options.config()?);
            /// Meeting file or endpoint, kept open until this rank has connected to rank 0.
            type OpenMeeting = Option<Box<dyn Any>>;
            let (partner, address, meeting): (_, _, OpenMeeting) = match via {
                AddressSource::Alone => {
                    let (partner, address) = Partner::start(P::NAME, limit)?;
                    partner.kill_after_interrupt()?;
                    (Some(partner), address, None)
                }
                AddressSource::File(place) => {
                    let (address, file) = place.wait_for_address(limit)?;
                    (None, address, Some(Box::new(file)))
                }
                AddressSource::Host { meeting_address, job } => {
                    let (address, endpoint) =
                        meeting::address_from_host(&meeting_address, &job, limit)?;
                    (None, address, Some(Box::new(endpoint)))
                }
                #[cfg(feature = "mpi")]
                AddressSource::Mpi(met) => (None, met.receive_address()?, None),
            };
            // Rank 0 inherits this process's CPUs: it has been started before this rank keeps only
            // one of them.
            let mut endpoint = Endpoint::new(options.pin_rank(config, side, partner.is_some())?)?;
            let peer = endpoint.connect(&address)?;
            drop(meeting);
            let called = program.call(&mut endpoint, peer, &interrupted, out);
            write_diagnostics(diagnostics, &endpoint)?;
            drop(endpoint);
            match partner {
                Some(partner) => called.and(partner.end()),
                None => called,
            }
        }
    }
}

/// Runs rank 0: tells rank 1 its address, then serves calls until rank 1 asks it to stop.
fn serve<P: PointToPointProgram>(
    program: &P,
    via: AddressSource,
    limit: WaitLimit<'_>,
    diagnostics: Option<FileReplacement>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let options = program.shared_options();
    let at = options.transport.address.clone();
    let config = program.config(options.config()?);
    let is_alone = matches!(via, AddressSource::Alone);
    let mut endpoint = Endpoint::new(options.pin_rank(config, Role::Server, is_alone)?)?;
    program.register(&mut endpoint)?;
    let peer = match via {
        AddressSource::Alone => {
            writeln!(out, "{}", endpoint.listen(&at)?)?;
            out.flush()?;
            wait_for_rank_1(&mut endpoint, limit, || false)?
        }
        AddressSource::File(place) => {
            let address = endpoint.listen(&at)?;
            let published = place.publish(&address)?;
            wait_for_rank_1(&mut endpoint, limit, || published.is_released())?
        }
        AddressSource::Host { meeting_address, job } => {
            let host =
                meeting_address.rsplit_once(':').map_or(meeting_address.as_str(), |(host, _)| host);
            let address = endpoint.listen(&match at {
                Address::Tcp(at) if at.is_empty() => Address::Tcp(format!("{host}:0")),
                Address::Tls(at) if at.is_empty() => Address::Tls(format!("{host}:0")),
                Address::Ucx(at) if at.is_empty() => Address::Ucx(format!("{host}:0")),
                at => at,
            })?;
            let mut met = meeting::wait_at_host(&meeting_address, &job, &address, limit)?;
            wait_for_rank_1(&mut endpoint, limit, || met.is_released())?
        }
        #[cfg(feature = "mpi")]
        AddressSource::Mpi(met) => {
            met.send_address(at, |at| endpoint.listen(at))?;
            wait_for_rank_1(&mut endpoint, limit, || false)?
        }
    };
    let stopped = endpoint.serve_while_connected(peer);
    write_diagnostics(diagnostics, &endpoint)?;
    match stopped || is_alone {
        // Rank 1 has started this process, and reports its own end.
        true => Ok(()),
        false => bail!("rank 1 has disconnected before it sent `stop`"),
    }
}

/// Returns an error once `interrupted` is set. `has_printed` is `true` if results were printed.
fn check_interrupt(interrupted: &AtomicBool, has_printed: bool) -> anyhow::Result<()> {
    // Relaxed: the flag publishes no other data.
    match interrupted.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(interrupt_error(has_printed, false)),
    }
}

/// Waits for rank 1 to connect. `is_released` returns `true` once rank 1 has released the meeting
/// file or address: it has connected, or it has exited.
fn wait_for_rank_1(
    endpoint: &mut Endpoint,
    limit: WaitLimit<'_>,
    mut is_released: impl FnMut() -> bool,
) -> anyhow::Result<Peer> {
    let mut released: Option<Instant> = None;
    loop {
        let peer = endpoint.peers().next();
        if let Some(peer) = peer {
            return Ok(peer);
        }
        if endpoint.stats().closed_count > 0 {
            bail!("rank 1 has disconnected before its first call");
        }
        limit.check(|| "rank 1 has not connected".into())?;
        if is_released()
            && released.get_or_insert_with(Instant::now).elapsed() > CONNECT_AFTER_RELEASE_MAX
        {
            bail!("rank 1 has exited before it connected");
        }
        endpoint.progress(POLL_INTERVAL);
    }
}

impl SharedOptions {
    /// Returns the role of this process, and the way in which rank 1 receives the address of rank
    /// 0.
    fn role(&self, program: &str) -> anyhow::Result<(Role, AddressSource)> {
        if self.partner {
            return Ok((Role::Server, AddressSource::Alone));
        }
        let rank = match self.rank {
            Some(number) => Some(Rank::from_option(number)),
            None => Rank::from_environment(|name| std::env::var(name).ok())?,
        };
        let Some(rank) = rank else {
            if self.rendezvous.is_some() {
                return Err(to_usage_error(
                    "--rendezvous: this process has no rank; use a launcher such as mpiexec, or --rank 0 and --rank 1",
                ));
            }
            return Ok((Role::Client, AddressSource::Alone));
        };
        if rank.ranks_count != 2 || rank.number > 1 {
            let (number, count) = (rank.number, rank.ranks_count);
            return Err(to_usage_error(format!(
                "rank {number} of {count}: exactly 2 are needed, as in mpiexec -n 2 {program}"
            )));
        }
        let side = if rank.number == 0 { Role::Server } else { Role::Client };
        #[cfg(feature = "mpi")]
        if self.rendezvous.is_none()
            && let Some(met) = by_mpi::init_mpi(&rank)?
        {
            return Ok((side, AddressSource::Mpi(met)));
        }
        let via = match (&self.rendezvous, rank.ranks_on_host_count) {
            (Some(place), _) => {
                let job = rank.job.clone().unwrap_or_else(|| "-".into());
                AddressSource::Host {
                    meeting_address: place.clone(),
                    job: format!("{program}.{job}"),
                }
            }
            (None, Some(1)) => {
                let say = "the ranks are on different hosts: give --rendezvous HOST:PORT, of rank 0's host";
                return Err(to_usage_error(say));
            }
            (None, _) => {
                AddressSource::File(MeetingFile::for_job(program, &rank.job_on_this_host())?)
            }
        };
        Ok((side, via))
    }

    /// Prints the address in this project's form if `-n` was given in another form.
    fn explain_transport(&self, program: &str) {
        let (text, meant) = (&self.transport.text, &self.transport.address);
        if text.trim_end_matches("://") != meant.to_string().trim_end_matches("://") {
            print_error(format_args!("{program}: {text} stands for {meant} here"));
        }
    }

    /// Returns `true` if this process starts the other rank, or was started by it.
    fn is_alone(&self) -> bool {
        self.partner
            || self.rank.is_none()
                && std::env::vars_os().all(|(name, _)| !ranks::is_rank_variable(&name))
    }

    /// Returns `true` if the rank spins while it waits; `false` if it may sleep.
    fn should_spin(&self, side: Role) -> bool {
        match (self.timeouts, side) {
            _ if self.is_cpu_shared.get() == Some(&true) => false,
            (Some(it), Role::Server) => it.server_ms == 0,
            (Some(it), Role::Client) => it.client_ms == 0,
            (None, _) => self.config().is_ok_and(|it| it.spin_forever),
        }
    }

    /// Returns the endpoint configuration of `--config`, with the TLS files of `--cert`, `--key`
    /// and `--ca`.
    fn config(&self) -> anyhow::Result<Config> {
        let mut config = self.config_in_json()?;
        if let (Some(cert), Some(key), Some(ca)) = (&self.cert, &self.key, &self.ca) {
            let files = TlsFiles::default();
            let files = files.certificates(cert.clone()).private_key(key.clone()).roots(ca.clone());
            config.access.tls = Some(files);
        }
        Ok(config)
    }

    /// Rejects tls:// without certificates, and certificates without tls://.
    fn check_certificates(&self) -> anyhow::Result<()> {
        let is_tls = matches!(self.transport.address, Address::Tls(_));
        if self.cert.is_some() && !is_tls {
            return Err(to_usage_error("--cert needs -n tls://"));
        }
        if is_tls && self.config()?.access.tls.is_none() {
            return Err(to_usage_error(
                "-n tls:// needs --cert, --key and --ca, or `tls` in --config",
            ));
        }
        Ok(())
    }

    /// Parses the configuration given with `--config`; returns the default without the option.
    fn config_in_json(&self) -> anyhow::Result<Config> {
        let Some(given) = &self.config else { return Ok(Config::default()) };
        let json = match given.trim_start().starts_with('{') {
            true => given.clone(),
            false => files::read_text(given.as_ref()).map_err(|error| {
                to_usage_error(format!("--config {given}: cannot read the file: {error}"))
            })?,
        };
        config_from_json(&json).map_err(|error| to_usage_error(format!("--config: {error}")))
    }

    /// Pins this rank to a CPU if `--place` or its default requires it. Returns `config` with the
    /// rank's spinning and monitoring set.
    fn pin_rank(&self, config: Config, side: Role, is_alone: bool) -> anyhow::Result<Config> {
        let usual = is_alone.then_some(Placement::Near);
        if let Some(place) = self.place.or(usual) {
            let placed = Topology::read()?.choose_cpus(place, &topology::allowed_cpus(), 2);
            let [server_cpu, client_cpu] = placed.cpus[..] else {
                bail!("cannot place the two ranks: found no CPU that this process may use")
            };
            let is_shared = server_cpu == client_cpu;
            if side == Role::Client {
                for note in &placed.notes {
                    print_error(format_args!("warning: {note}"));
                }
                if is_shared && self.should_spin(Role::Client) && self.should_spin(Role::Server) {
                    print_error(format_args!(
                        "warning: both ranks run on CPU {client_cpu}, where one that spins keeps the other \
                         waiting: they poll for 20 us, then sleep"
                    ));
                }
            }
            // Set once in each process.
            let _ = self.is_cpu_shared.set(is_shared);
            affinity::pin(if side == Role::Client { client_cpu } else { server_cpu })?;
        }
        let monitoring = config.monitoring || self.diagnostics.is_some();
        Ok(config.spin_forever(self.should_spin(side)).monitoring(monitoring))
    }

    /// Returns the name of a rank's waiting mode: `spin`, `sleep` or `adaptive`.
    fn mode(&self, side: Role) -> &'static str {
        match self.should_spin(side) {
            true => "spin",
            false if self.config().is_ok_and(|it| it.spin_max.is_zero()) => "sleep",
            false => "adaptive",
        }
    }

    /// Returns the name of the transport, without an address.
    fn transport(&self) -> String {
        self.transport.address.transport().to_string()
    }

    /// Creates this rank's file of `-d`, if requested. It replaces an existing one at the end.
    fn create_diagnostics(&self, side: Role) -> anyhow::Result<Option<FileReplacement>> {
        let Some(file) = &self.diagnostics else { return Ok(None) };
        let path = format!("{file}.{}", u32::from(side == Role::Client));
        FileReplacement::create(path.as_ref()).map(Some).map_err(|error| {
            to_usage_error(format!(
                "-d {file}: cannot create the file {path}: {}",
                files::format_create_error(&error)
            ))
        })
    }
}

/// Writes the configuration and the statistics of this rank to its file of `-d`, if requested.
fn write_diagnostics(file: Option<FileReplacement>, endpoint: &Endpoint) -> anyhow::Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(&endpoint.dump())? + "\n";
    let written = file.write_all(text.as_bytes()).and_then(|()| file.commit());
    written.context("-d: cannot write the configuration and statistics")
}

/// Process of rank 0, which rank 1 has started. Dropping this kills it.
struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        // The process may have ended by itself, which is not an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Partner {
    /// Starts rank 0 of the program of that name; returns the address at which it listens.
    fn start(name: &str, limit: WaitLimit<'_>) -> anyhow::Result<(Self, Address)> {
        let mut command = crate::own_program_command(name)?;
        command.arg("--partner").args(crate::own_arguments(name));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        signal_on_parent_exit(&mut command, Signal::KILL);
        let mut partner = Partner(command.spawn().context("cannot start the process of rank 0")?);
        let stdout = partner.0.stdout.take();
        let stdout =
            stdout.context("cannot read the output of rank 0: it was started without a pipe")?;
        let look = Timespec::try_from(POLL_INTERVAL).unwrap_or_default();
        let wait = || poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&look));
        // A signal ends the wait early, without output to read.
        while matches!(wait(), Ok(0) | Err(Errno::INTR)) {
            limit.check(|| "rank 0 does not listen".into())?;
        }
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read the output of rank 0")?;
        match line.strip_suffix('\n') {
            Some(address) => Ok((partner, address.parse()?)),
            None => {
                let status = partner.0.wait().context("cannot wait for the process of rank 0")?;
                match status.code().and_then(|code| u8::try_from(code).ok()) {
                    // It has printed its error.
                    Some(code @ 1..) => Err(ChildExit(code).into()),
                    _ => bail!("rank 0 has exited before it listened: {status}"),
                }
            }
        }
    }

    /// Starts a thread that kills rank 0 some time after an interrupt. A call to a rank 0 that does
    /// not answer, as a stopped one, then ends.
    fn kill_after_interrupt(&self) -> anyhow::Result<()> {
        // Not by the process id: another process may have it by then. Before Linux 5.3, a second
        // interrupt is needed.
        let Ok(pidfd) = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty()) else {
            return Ok(());
        };
        let (mut signals, sender) = UnixStream::pair().context("cannot create a socket pair")?;
        for signal in console::interrupt_signals() {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)
                .context("cannot install the signal handlers")?;
        }
        let kill = move || {
            if signals.read_exact(&mut [0]).is_ok() {
                std::thread::sleep(ANSWER_AFTER_INTERRUPT_MAX);
                // The process may have ended by itself, which is not an error.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
        };
        let thread = std::thread::Builder::new().name("interrupt".into());
        thread.spawn(kill).context("cannot start the thread that waits for signals")?;
        Ok(())
    }

    /// Waits for rank 0 to exit, after it was asked to stop.
    fn end(mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            match self.0.try_wait().context("cannot wait for the process of rank 0")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the process of rank 0 failed: {status}"),
                None if began.elapsed() > STOP_TIMEOUT => {
                    bail!("rank 0 has not exited within {STOP_TIMEOUT:?}")
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Parses a configuration from JSON and validates it. The keys `secret_file` and `tls` of `access`
/// may also stand at the top, but not in both places. Errors name the key.
fn config_from_json(json: &str) -> anyhow::Result<Config> {
    // serde would take a list as the fields' values in their order.
    ensure!(
        json.trim_start().starts_with('{'),
        "the configuration must be a JSON object, as in {{\"key\": value}}"
    );
    let mut keys: Map<String, Value> = serde_json::from_str(json)?;
    let found = ["secret_file", "tls"].into_iter().filter_map(|key| keys.remove_entry(key));
    let found: Vec<_> = found.collect();
    let config = if found.is_empty() {
        serde_json::from_str(json)
    } else {
        let access = keys.entry("access").or_insert_with(|| Map::new().into());
        let access = access.as_object_mut().context("`access` must be a JSON object")?;
        for (key, value) in found {
            let before = access.insert(key.clone(), value);
            ensure!(before.is_none(), "`{key}` is given both at the top and in `access`");
        }
        serde_json::from_value(keys.into())
    };
    let config: Config = config.map_err(|error| match error.to_string() {
        text if text.starts_with("unknown field") => {
            anyhow!("{text}; keys are grouped, as `-d FILE` shows")
        }
        text => anyhow!(text),
    })?;
    config.validate()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_parse_in_pairs_only() {
        assert_eq!("0,5".parse(), Ok(Timeouts { client_ms: 0, server_ms: 5 }));
        for text in ["", "0", "0,", "1,2,3", "-1,0", "a,b"] {
            assert!(text.parse::<Timeouts>().is_err(), "{text}");
        }
    }

    #[test]
    fn keys_of_access_are_accepted_at_the_top() {
        let parse = |json| config_from_json(json).map(|config| config.access);
        let nested = parse(r#"{"access": {"secret_file": "s", "remote_stop": true}}"#);
        let access = nested.expect("nested keys");
        assert_eq!((access.secret_file.as_deref(), access.remote_stop), (Some("s"), true));
        let top = parse(r#"{"secret_file": "s", "access": {"remote_stop": true}}"#);
        assert_eq!(top.expect("a key at the top"), access);
        assert!(parse(r#"{"secret_file": "s", "remote_stop": true}"#).is_err());
    }

    #[test]
    fn misplaced_keys_are_refused_by_name() {
        for (json, expected) in [
            (r#"{"secret_file": "s", "access": []}"#, "`access` must be a JSON object"),
            (r#"{"connections": [5]}"#, "invalid type: sequence, expected an object"),
            (r#"{"secret_file": "a", "pool": [0]}"#, "invalid type: sequence, expected an object"),
            (
                r#"{"secret_file": "a", "access": {"secret_file": "b"}}"#,
                "`secret_file` is given both at the top and in `access`",
            ),
            (r#"{"pool_threads": 0}"#, "; keys are grouped, as `-d FILE` shows"),
        ] {
            let error = config_from_json(json).expect_err(json).to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
