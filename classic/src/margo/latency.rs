//! `margo-p2p-latency`: the round trip of a procedure that does nothing, between two processes.

use super::{PointToPointProgram, Role, SharedOptions};
use anyhow::{bail, ensure};
use clap::Args;
use handover_base::clock;
use handover_harness::stats::quantile_sorted;
use handover_rpc::{CallError, Calling, Config, Context, Endpoint, Failure, Method, Peer};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Procedure that returns its payload.
const NOOP: Method = Method::new("noop");
/// Procedure that checks the number of calls, and stops the server.
const STOP: Method = Method::new("stop");

/// Maximum number of timed calls. The time of each takes 8 bytes.
const ITERATIONS_MAX: u64 = 1_000_000_000;
/// Maximum of `-x`, the size of a call's payload.
const PAYLOAD_BYTES_MAX: u64 = 1 << 26;
/// Time limit of each call with `-T`.
const CALL_TIME_LIMIT: Duration = Duration::from_secs(2);

/// Round trip of a no-op RPC between two processes: one serves, the other calls and prints.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints two lines of tab-separated columns, times in seconds: op, iterations, \
warmup_iterations, size, min, q1, med, avg, q3, max. Then, as comments, p99 and p99.9 in seconds, what the \
transport is here, how client and server wait, and the deadline of each call.\n\n\
Alone, it starts its partner itself. By mpiexec -n 2 or srun -n 2, rank 0 serves and rank 1 calls; on one \
host they find each other through a file of the user's that is named by the job, across hosts with \
--rendezvous HOST:PORT."
)]
pub struct Latency {
    /// Number of calls that are timed
    #[arg(short = 'i', value_name = "ITERATIONS", value_parser = crate::whole_number_parser(1..=ITERATIONS_MAX))]
    iterations: u64,
    /// Bytes that each call carries in each direction
    #[arg(short = 'x', value_name = "BYTES", default_value_t = 0)]
    #[arg(value_parser = crate::whole_number_parser(0..=PAYLOAD_BYTES_MAX))]
    payload_bytes: u64,
    /// Number of calls before those that are timed
    #[arg(short = 'w', value_name = "ITERATIONS", default_value_t = 100)]
    #[arg(value_parser = crate::whole_number_parser(0..=ITERATIONS_MAX))]
    warmup_iterations: u64,
    /// Give each call a deadline of 2 seconds
    #[arg(short = 'T')]
    timed: bool,
    #[command(flatten)]
    shared_options: SharedOptions,
}

impl PointToPointProgram for Latency {
    const NAME: &'static str = "margo-p2p-latency";

    fn shared_options(&self) -> &SharedOptions {
        &self.shared_options
    }

    fn config(&self, mut config: Config) -> Config {
        // Twice PAYLOAD_BYTES_MAX fits a u32.
        let payload_bytes = self.payload_bytes as u32;
        let limits = &mut config.connections;
        let message_bytes_max = limits.message_bytes_max.max(payload_bytes);
        limits.message_bytes_max = message_bytes_max;
        limits.queued_bytes_max = limits.queued_bytes_max.max(4 * message_bytes_max);
        let shared_bytes = &mut config.shared_memory.shared_bytes;
        *shared_bytes = (*shared_bytes).max((2 * message_bytes_max).next_power_of_two());
        config
    }

    fn register(&self, endpoint: &mut Endpoint) -> anyhow::Result<()> {
        let served = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&served);
        endpoint.register_bytes("noop", 0, move |_, payload, answer| {
            // Relaxed: only this thread accesses the counter.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            answer.extend_from_slice(payload);
            Ok(())
        })?;
        endpoint.register("stop", 0, move |context: &mut Context<'_>, called: u64| {
            context.stop();
            match served.load(Ordering::Relaxed) {
                served if served == called => Ok(()),
                served => Err(Failure::new(
                    1,
                    format!("the client made {called} calls, but the server received {served}"),
                )),
            }
        })?;
        Ok(())
    }

    fn call(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        interrupted: &AtomicBool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let payload = vec![b'a'; usize::try_from(self.payload_bytes)?];
        for _ in 0..self.warmup_iterations.max(1) {
            // Relaxed: the flag publishes no other data.
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            match endpoint.call_bytes(peer, NOOP, &payload, |echo| echo == payload) {
                Err(_) if interrupted.load(Ordering::Relaxed) => break,
                same => ensure!(same?, "the echo differs from the payload sent"),
            }
        }
        let mut ticks = Vec::new();
        for _ in 0..self.iterations {
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
            let began = clock::ticks();
            let echoed = self.call_noop(endpoint, peer, &payload);
            let took = clock::ticks() - began;
            if echoed.is_err() && interrupted.load(Ordering::Relaxed) {
                break;
            }
            let echo_bytes = echoed?;
            ensure!(
                echo_bytes == payload.len(),
                "sent {} bytes, but the echo has {echo_bytes}",
                payload.len()
            );
            ticks.push(took);
        }
        // With a warm-up of 0, one call more is made than printed, to verify the echo.
        let called = endpoint.stats().calls_count;
        let stopped = endpoint.call::<_, ()>(peer, STOP, &called);
        let has_results = !ticks.is_empty();
        if has_results {
            let seconds = |ticks| clock::ns_from_ticks(ticks) as f64 / 1e9;
            self.print_table(ticks.into_iter().map(seconds).collect(), out)?;
        }
        // After an interrupt, rank 0 may not answer.
        super::check_interrupt(interrupted, has_results)?;
        Ok(stopped?)
    }
}

impl Latency {
    /// Calls the no-op procedure once, and returns the length of the echo.
    #[inline]
    fn call_noop(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        payload: &[u8],
    ) -> anyhow::Result<usize> {
        let echoed = match self.timed {
            false => endpoint.call_bytes(peer, NOOP, payload, <[u8]>::len),
            true => endpoint.call_bytes_within(peer, NOOP, payload, CALL_TIME_LIMIT, <[u8]>::len),
        };
        match echoed {
            Err(CallError::Deadline) => bail!("a call was not answered within {CALL_TIME_LIMIT:?}"),
            echoed => Ok(echoed?),
        }
    }

    /// Prints the statistics of the calls from their times.
    fn print_table(&self, mut took_s: Vec<f64>, out: &mut dyn Write) -> anyhow::Result<()> {
        took_s.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| quantile_sorted(&took_s, share);
        let avg = took_s.iter().sum::<f64>() / took_s.len() as f64;
        writeln!(
            out,
            "# <op> <iterations> <warmup_iterations> <size> <min> <q1> <med> <avg> <q3> <max>"
        )?;
        let (warmup, size) = (self.warmup_iterations, self.payload_bytes);
        let [min, q1, q3, max] = [0.0, 0.25, 0.75, 1.0].map(at);
        let count = took_s.len();
        let med = took_s[(count - 1) / 2].midpoint(took_s[count / 2]);
        writeln!(
            out,
            "noop\t{count}\t{warmup}\t{size}\t{min:.9}\t{q1:.9}\t{med:.9}\t{avg:.9}\t{q3:.9}\t{max:.9}"
        )?;
        let options = &self.shared_options;
        let (client, server) = (options.mode(Role::Client), options.mode(Role::Server));
        let deadline = if self.timed { "2" } else { "none" };
        writeln!(out, "# <p99> <p99.9> <transport> <client> <server> <deadline>")?;
        let (p99, p999, how) = (at(0.99), at(0.999), options.transport());
        writeln!(out, "#{p99:.9}\t{p999:.9}\t{how}\t{client}\t{server}\t{deadline}")?;
        Ok(())
    }
}
