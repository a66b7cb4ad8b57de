//! CPU time and memory that a load costs the client and the server.

use super::options::EvhPerf;
use super::printer::Printer;
use crate::load::LoadReport;
use crate::load::process::{self, ProcessUsage};
use handover_base::topology;
use handover_base::units::format_ns;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Share of the available CPU time above which the client or the server counts as saturated.
const SATURATED_CPU_SHARE: f64 = 0.9;
/// Name prefix of the server's threads in the client's process.
const SERVER_THREAD_PREFIX: &str = "net-";

/// CPU time and memory of the client and of the server during a load.
#[derive(Debug, Clone)]
pub struct LoadCosts {
    duration: Duration,
    /// Costs of the client; `None` if one of its processes could not be read.
    pub client: Option<ProcessUsage>,
    /// Costs of the server; `None` if its processes were not found, or one has exited.
    pub server: Option<ProcessUsage>,
    /// `true` if some of the client's processes may be on other hosts.
    is_distributed: bool,
}

/// Resource usage of client and server at the start of a load.
pub struct UsageBaseline {
    began: Instant,
    /// Process ids of the client.
    client_pids: Vec<u32>,
    /// Process ids of the server, without this process.
    server_pids: Vec<u32>,
    /// `true` if the server runs in this process.
    is_server_here: bool,
    /// Usage of the client at the start.
    client: Option<ProcessUsage>,
    /// Usage of the processes in `server_pids` at the start.
    server: Option<ProcessUsage>,
    /// CPU time of the server's threads in this process at the start.
    server_threads_cpu: Duration,
}

impl UsageBaseline {
    /// Reads the usage of the client processes, and of the server processes that listen at
    /// `address`.
    pub fn start(clients: Vec<u32>, address: SocketAddr) -> Self {
        let own = std::process::id();
        let mut servers = process::listening_processes(address);
        let is_shared = servers.contains(&own);
        servers.retain(|server| *server != own);
        Self {
            began: Instant::now(),
            client: sum_usage(&clients),
            server: sum_usage(&servers),
            server_threads_cpu: process::threads_cpu_time(own, SERVER_THREAD_PREFIX),
            client_pids: clients,
            server_pids: servers,
            is_server_here: is_shared,
        }
    }

    /// Returns the CPU time since the start, and the current memory.
    pub fn costs_since_start(&self) -> LoadCosts {
        let mut client = usage_since(&self.client_pids, self.client);
        let server = if self.is_server_here {
            let threads = process::threads_cpu_time(std::process::id(), SERVER_THREAD_PREFIX);
            let cpu = threads.saturating_sub(self.server_threads_cpu);
            client = client.map(|it| ProcessUsage { cpu: it.cpu.saturating_sub(cpu), ..it });
            client.map(|it| ProcessUsage { cpu, ..it })
        } else {
            usage_since(&self.server_pids, self.server)
        };
        LoadCosts { duration: self.began.elapsed(), client, server, is_distributed: false }
    }
}

/// Returns the total resource usage of processes. Returns `None` if there are none, or if one of
/// them cannot be read.
pub fn sum_usage(processes: &[u32]) -> Option<ProcessUsage> {
    sum_usages(processes.iter().map(|it| process::read_process_usage(*it)))
}

/// Returns the sum of usages. Returns `None` if there are none, or if one of them is unknown.
pub fn sum_usages(usages: impl IntoIterator<Item = Option<ProcessUsage>>) -> Option<ProcessUsage> {
    usages.into_iter().reduce(|sum, usage| Some(sum?.plus(usage?))).flatten()
}

/// Returns the CPU time that processes have used since their usage was `then`, and their current
/// memory. Returns `None` if one of them is unknown.
pub fn usage_since(processes: &[u32], then: Option<ProcessUsage>) -> Option<ProcessUsage> {
    let now = sum_usage(processes)?;
    Some(ProcessUsage { cpu: now.cpu.saturating_sub(then?.cpu), ..now })
}

impl LoadCosts {
    /// Returns these costs with the usage of the client's processes. `is_distributed` is `true` if
    /// some of them may be on other hosts.
    pub fn with_client(self, client: Option<ProcessUsage>, is_distributed: bool) -> Self {
        Self { client, is_distributed, ..self }
    }

    /// Prints the costs of the client and of the server, each on a line.
    pub fn print(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let took_s = self.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let of_client = ("client", self.client, "one of its processes could not be read");
        let of_server = (
            "server",
            self.server,
            "it must run here, as the same user, at a loopback address, and to the end",
        );
        for (who, costs, why) in [of_client, of_server] {
            let Some(ProcessUsage { cpu, anon_bytes }) = costs else {
                printer.print_info(format_args!("{who}: CPU and memory unknown; {why}"))?;
                continue;
            };
            let (cpu_s, mib) = (cpu.as_secs_f64(), anon_bytes as f64 / f64::from(1 << 20));
            let percent = 100.0 * cpu_s / took_s;
            printer.print_info(format_args!(
                "{who}: {cpu_s:.2} s of CPU ({percent:.0} % of one), {mib:.1} MiB"
            ))?;
        }
        Ok(())
    }

    /// Returns a warning if the client rather than the server limited the rate. Returns `None` if
    /// the client's CPU time is unknown.
    pub fn bottleneck_warning(&self, args: &EvhPerf, outcome: &LoadReport) -> Option<String> {
        let took_s = self.duration.as_secs_f64();
        if took_s < 0.2 {
            // Too short: CPU time is counted in hundredths of a second.
            return None;
        }
        let cpus = topology::allowed_cpus().len() as f64;
        let threads = (args.threads * args.processes) as f64;
        let server = self.server.map(|server| server.cpu.as_secs_f64() / took_s);
        let late_ns = outcome.latencies.late.value_at_percentile(99.0);
        let judged_ns = outcome.judged_latencies().value_at_percentile(99.0);
        if !outcome.latencies.late.is_empty() && late_ns > 100_000 && late_ns * 2 > judged_ns {
            let late = format_ns(late_ns as f64);
            return Some(format!(
                "the client was late itself: its p99 of {late} is more than half of the latency; \
                 use more --threads or --processes, or a lower rate"
            ));
        }
        let client = self.client?.cpu.as_secs_f64() / took_s;
        // The number of CPUs is that of this host.
        let uses_all_cpus =
            !self.is_distributed && client >= SATURATED_CPU_SHARE * threads.min(cpus);
        let is_busy = uses_all_cpus || outcome.busy_share >= SATURATED_CPU_SHARE;
        let of_server = match server {
            Some(server) if server >= client * 0.5 => return None,
            Some(_) => ", and the server less than half of that",
            None => "",
        };
        is_busy.then(|| {
            let percent = 100.0 * client;
            format!(
                "the client was the bottleneck: it used {percent:.0} % of a CPU{of_server}; \
                 use more --threads or --processes, or another machine"
            )
        })
    }
}
