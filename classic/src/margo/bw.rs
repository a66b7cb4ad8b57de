//! `margo-p2p-bw`: the bandwidth of memory transfers between two processes, in both directions.

mod server;

use super::meeting::local_address_towards;
use super::{PointToPointProgram, Role, SharedOptions};
use crate::available_memory_bytes;
use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use handover_base::clock;
use handover_program::exit::to_usage_error;
use handover_rpc::{
    Address, Bulk, BulkHandle, BulkMemory, Call, CallError, Calling, Endpoint, Method, Peer, Rights,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use server::BandwidthServer;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Procedure by which the server connects its threads to the client's buffer.
const PREPARE: Method = Method::new("prepare");
/// Procedure by which the server transfers for a given time.
const TRANSFER: Method = Method::new("transfer");
/// Procedure by which the server checks the pulled data.
const CHECK: Method = Method::new("check");
/// Procedure that stops the server.
const STOP: Method = Method::new("stop");

/// Maximum of `-x`, the size of a transfer. The original stores it in a C int.
const XFER_BYTES_MAX: u64 = (1 << 31) - 1;
/// Minimum of `-x` with `--halves`: shorter transfers are not halved.
const HALVED_XFER_BYTES_MIN: u64 = 1 << 15;
/// Maximum of `-D`, `-w` and `--interval`, in seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// Maximum of `-c`, the number of transfers in flight.
const CONCURRENCY_MAX: u64 = 4096;
/// Maximum of `-T`, the number of the server's threads for transfers.
const THREADS_MAX: u64 = 64;
/// Default size of the buffers, as in the original.
const BUFFER_BYTES_DEFAULT: u64 = 2_147_483_648;
/// Maximum of `-X`, the size of each buffer.
const BUFFER_BYTES_MAX: u64 = 1 << 40;
/// Pause between the two directions, as in the original.
const DIRECTION_PAUSE: Duration = Duration::from_millis(100);
/// Interval between checks of the interrupt flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for the server to release the client's memory at the end.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);
/// Alignment of plain memory without `-a`, in bytes: a cache line. The allocator's 16 bytes behind
/// the start of a page doubled the time of the kernel's copy into it: 53 against 25 us for 64 KiB,
/// AMD EPYC, 2026-11.
const CACHE_LINE_BYTES: usize = 64;
/// Size of the pieces in which a buffer is filled and checked.
const PIECE_BYTES: usize = 1 << 20;

/// Bandwidth of bulk transfers between two processes: the server pulls from the client's memory,
/// pauses, and pushes into it. The client prints.
#[derive(Debug, Args)]
#[command(
    after_help = "Prints, tab-separated, a line for PULL and one for PUSH: op, warmup_seconds, concurrency, \
threads, xfer_size, total_bytes, seconds, MiB/s (of 2^20 bytes), xfer_memory, align_buffer. Then, as a \
comment, what the transport is here, by which path memory is reached (mapped, process, messages), of which \
kind the client's memory is, and how client and server wait. What has arrived is compared with what was \
sent, outside of the timing.\n\n\
Starts as margo-p2p-latency does: alone, by mpiexec -n 2, or by srun -n 2."
)]
pub struct Bandwidth {
    /// Size of each transfer in bytes
    #[arg(short = 'x', value_name = "BYTES", value_parser = crate::whole_number_parser(1..=XFER_BYTES_MAX))]
    xfer_bytes: u64,
    /// Duration of each direction in seconds
    #[arg(short = 'D', value_name = "SECONDS", value_parser = crate::whole_number_parser(1..=SECONDS_MAX))]
    seconds: u64,
    /// Number of transfers in flight
    #[arg(short = 'c', value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = crate::whole_number_parser(1..=CONCURRENCY_MAX))]
    concurrency: u64,
    /// Number of the server's threads for transfers; with 0 the serving thread transfers
    #[arg(short = 'T', value_name = "COUNT", default_value_t = 0)]
    #[arg(value_parser = crate::whole_number_parser(0..=THREADS_MAX))]
    threads: u64,
    /// Use a file in FILE's folder as the server's buffer. The file has no name, and is freed when
    /// the server ends
    #[arg(short = 'm', value_name = "FILE")]
    file: Option<String>,
    /// Size in bytes of the client's and of the server's buffer. Successive transfers use
    /// successive parts
    #[arg(short = 'X', value_name = "BYTES", default_value_t = BUFFER_BYTES_DEFAULT)]
    #[arg(value_parser = crate::whole_number_parser(1..=BUFFER_BYTES_MAX))]
    buffer_bytes: u64,
    /// Align buffers to pages; shared memory is always aligned
    #[arg(short = 'a')]
    align: bool,
    /// Duration of the warm-up of each direction in seconds
    #[arg(short = 'w', value_name = "SECONDS", default_value_t = 1)]
    #[arg(value_parser = crate::whole_number_parser(0..=SECONDS_MAX))]
    warmup_seconds: u64,
    /// The client's memory: shared, which a server on the same machine can map, or plain
    #[arg(long, value_name = "KIND", value_enum, default_value_t = MemoryKind::Shared)]
    memory: MemoryKind,
    /// Let client and server each copy one half of each transfer. This needs sm:// and -x of at
    /// least 32768
    #[arg(long)]
    halves: bool,
    /// Also print the bandwidth of each interval of this many seconds, as comments
    #[arg(long, value_name = "SECONDS", value_parser = crate::whole_number_parser(1..=SECONDS_MAX))]
    interval: Option<u64>,
    #[command(flatten)]
    shared_options: SharedOptions,
}

/// Kind of memory of the client's buffer.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum MemoryKind {
    /// Memory that a server on the same machine can map.
    Shared,
    /// Memory from the allocator, which the server cannot map.
    Plain,
}

/// Arguments of the call `prepare`, by which the client describes its buffer to the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Prepare {
    /// Handle of the memory that contains the client's buffer.
    handle: BulkHandle,
    /// Offset of the client's buffer in the memory of `handle`.
    base_offset: u64,
    /// Address of the client, to which the server's threads connect.
    client: String,
}

/// Direction of transfers: the server pulls from the client's memory, or pushes into it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum TransferDirection {
    Pull,
    Push,
}

impl TransferDirection {
    /// Returns the name that is printed.
    fn name(self) -> &'static str {
        match self {
            TransferDirection::Pull => "PULL",
            TransferDirection::Push => "PUSH",
        }
    }
}

pub fn run(args: &Bandwidth, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.xfer_bytes > args.buffer_bytes {
        let (xfer, buffer) = (args.xfer_bytes, args.buffer_bytes);
        return Err(to_usage_error(format!(
            "-x {xfer}: exceeds the size of the buffer, -X {buffer}"
        )));
    }
    args.check_halves()?;
    args.check_free_memory()?;
    super::run(args, out)
}

impl PointToPointProgram for Bandwidth {
    const NAME: &'static str = "margo-p2p-bw";

    fn shared_options(&self) -> &SharedOptions {
        &self.shared_options
    }

    fn register(&self, endpoint: &mut Endpoint) -> anyhow::Result<()> {
        BandwidthServer::new(self)?.register(endpoint)
    }

    fn call(
        &self,
        endpoint: &mut Endpoint,
        peer: Peer,
        interrupted: &AtomicBool,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let (memory, base) = self.allocate_buffer(endpoint)?;
        let handle = endpoint.register_memory(&memory, Rights::ReadWrite)?;
        let client = match self.threads {
            0 => String::new(),
            _ => endpoint.listen(&self.listen_address()?)?.to_string(),
        };
        let mut client_side = BandwidthClient {
            endpoint,
            peer,
            memory,
            base_offset: base,
            buffer_bytes: self.buffer_bytes,
            has_printed: false,
            interrupted,
        };
        let path: String =
            client_side.call(PREPARE, &Prepare { handle, base_offset: base, client })?;
        if self.warmup_seconds > 0 {
            self.measure_both_directions(
                &mut client_side,
                self.warmup_seconds,
                &mut std::io::sink(),
            )?;
            client_side.has_printed = false;
        }
        self.measure_both_directions(&mut client_side, self.seconds, out)?;
        let options = &self.shared_options;
        let (transport, memory) = (options.transport(), crate::value_name(self.memory));
        let (client, server) = (options.mode(Role::Client), options.mode(Role::Server));
        writeln!(out, "# <transport> <path> <memory> <client> <server>")?;
        writeln!(out, "#{transport}\t{path}\t{memory}\t{client}\t{server}")?;
        client_side.call::<_, ()>(STOP, &())?;
        endpoint.withdraw_memory(&handle, WITHDRAW_TIMEOUT)?;
        Ok(())
    }
}

impl Bandwidth {
    /// Rejects `--halves` if it would have no effect.
    fn check_halves(&self) -> anyhow::Result<()> {
        let (xfer, transport) = (self.xfer_bytes, self.shared_options.transport());
        let address = &self.shared_options.transport.address;
        match self.halves {
            true if !matches!(address, Address::Sm(_)) => Err(to_usage_error(format!(
                "--halves: needs -n sm://; over {transport} the server cannot reach the client's memory"
            ))),
            true if xfer < HALVED_XFER_BYTES_MIN => Err(to_usage_error(format!(
                "--halves: needs -x of at least {HALVED_XFER_BYTES_MIN}; transfers of {xfer} bytes are not halved"
            ))),
            _ => Ok(()),
        }
    }

    /// Rejects buffers larger than the available memory. Every page of them is touched, and the
    /// machine would run out of memory.
    fn check_free_memory(&self) -> anyhow::Result<()> {
        let count =
            if self.shared_options.is_alone() && !self.shared_options.partner { 2 } else { 1 };
        let (bytes, Some(free)) = (self.buffer_bytes, available_memory_bytes()) else {
            return Ok(());
        };
        ensure!(
            self.shared_options.partner || count * bytes <= free,
            "-X {bytes}: {count} buffers of this size need more than the {free} bytes that are free"
        );
        Ok(())
    }

    /// Allocates the client's memory. Returns it with the offset of the aligned buffer in it.
    fn allocate_buffer(&self, endpoint: &mut Endpoint) -> anyhow::Result<(BulkMemory, u64)> {
        let bytes = usize::try_from(self.buffer_bytes)?;
        match self.memory {
            MemoryKind::Shared => {
                let allocated = endpoint.allocate_memory(bytes);
                Ok((allocated.with_context(|| cannot_allocate(bytes))?, 0))
            }
            MemoryKind::Plain => {
                let align_bytes =
                    if self.align { rustix::param::page_size() } else { CACHE_LINE_BYTES };
                let vec = vec![0u8; bytes + align_bytes - 1];
                let base = vec.as_ptr().align_offset(align_bytes) as u64;
                Ok((BulkMemory::plain(vec), base))
            }
        }
    }

    /// Returns the address at which the client listens for the server's threads.
    fn listen_address(&self) -> anyhow::Result<Address> {
        let options = &self.shared_options;
        Ok(match (&options.transport.address, &options.rendezvous) {
            (Address::Sm(_), _) => Address::Sm(String::new()),
            (Address::Uds(_), _) => Address::Uds(String::new()),
            (Address::Tcp(_), place) => Address::Tcp(local_host(place.as_deref())?),
            (Address::Tls(_), place) => Address::Tls(local_host(place.as_deref())?),
            (Address::Ucx(_), place) => Address::Ucx(local_host(place.as_deref())?),
        })
    }

    /// Transfers for `seconds` in each direction, and prints the bandwidths. Checks the data after
    /// each direction.
    fn measure_both_directions(
        &self,
        client: &mut BandwidthClient<'_>,
        seconds: u64,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        client.fill(0);
        writeln!(
            out,
            "<op>\t<warmup_seconds>\t<concurrency>\t<threads>\t<xfer_size>\t<total_bytes>\t<seconds>\t\
             <MiB/s>\t<xfer_memory>\t<align_buffer>"
        )?;
        self.measure_direction(TransferDirection::Pull, client, seconds, out)?;
        // The server checks the data that arrived, and fills its buffer for the way back.
        client.call::<_, ()>(CHECK, &())?;
        std::thread::sleep(DIRECTION_PAUSE);
        let written_bytes =
            self.measure_direction(TransferDirection::Push, client, seconds, out)?;
        let walked_bytes = self.buffer_bytes / self.xfer_bytes * self.xfer_bytes;
        client.check(1, written_bytes.min(walked_bytes))
    }

    /// Transfers for `seconds` in one direction, and prints the bandwidths. Returns the number of
    /// bytes of the longest interval, as each interval begins at the buffer's start.
    fn measure_direction(
        &self,
        op: TransferDirection,
        client: &mut BandwidthClient<'_>,
        seconds: u64,
        out: &mut dyn Write,
    ) -> anyhow::Result<u64> {
        let interval = self.interval.unwrap_or(seconds);
        let (mut total_bytes, mut total_ns, mut longest_bytes, mut begun) = (0, 0, 0, 0);
        while begun < seconds {
            let (bytes, ns) = client.time_transfers(op, interval.min(seconds - begun))?;
            if self.interval.is_some() {
                if begun == 0 {
                    writeln!(out, "# <op> <from> <to> <MiB/s>")?;
                }
                let (from, to) = (total_ns as f64 / 1e9, (total_ns + ns) as f64 / 1e9);
                let rate = mib_per_second(bytes, ns);
                writeln!(out, "#{}\t{from:.6}\t{to:.6}\t{rate:.6}", op.name())?;
                out.flush()?;
                client.has_printed = true;
            }
            (total_bytes, total_ns) = (total_bytes + bytes, total_ns + ns);
            longest_bytes = longest_bytes.max(bytes);
            begun += interval;
        }
        self.print_row(op.name(), (total_bytes, total_ns), out)?;
        client.has_printed = true;
        Ok(longest_bytes)
    }

    /// Prints the result of one direction.
    fn print_row(
        &self,
        op: &str,
        (bytes, ns): (u64, u64),
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let Bandwidth { warmup_seconds, concurrency, threads, xfer_bytes, buffer_bytes, .. } = self;
        let seconds = ns as f64 / 1e9;
        let rate = mib_per_second(bytes, ns);
        let align = u8::from(self.align);
        writeln!(
            out,
            "{op}\t{warmup_seconds}\t{concurrency}\t{threads}\t{xfer_bytes}\t{bytes}\t{seconds:.6}\t\
             {rate:.6}\t{buffer_bytes}\t{align}"
        )?;
        Ok(out.flush()?)
    }
}

/// Returns the text of the error if a buffer of `bytes` bytes cannot be allocated.
fn cannot_allocate(bytes: usize) -> String {
    format!("-X {bytes}: cannot allocate shared memory")
}

fn mib_per_second(bytes: u64, ns: u64) -> f64 {
    bytes as f64 / (ns as f64 / 1e9) / f64::from(1 << 20)
}

/// Returns this host's address on the route to the rendezvous host; empty without `--rendezvous`.
fn local_host(rendezvous: Option<&str>) -> anyhow::Result<String> {
    let Some(address) = rendezvous else { return Ok(String::new()) };
    let route = local_address_towards(address);
    let (own, _) = route.with_context(|| {
        format!("--rendezvous {address}: cannot find the local address that reaches it")
    })?;
    Ok(SocketAddr::new(own, 0).to_string())
}

/// State of the client during the transfers.
struct BandwidthClient<'a> {
    endpoint: &'a mut Endpoint,
    peer: Peer,
    memory: BulkMemory,
    /// Offset of the buffer in `memory`.
    base_offset: u64,
    buffer_bytes: u64,
    /// `true` once a measurement was printed.
    has_printed: bool,
    interrupted: &'a AtomicBool,
}

impl BandwidthClient<'_> {
    /// Calls a procedure of the server. Returns an error if this process is interrupted meanwhile.
    fn call<A: Serialize, R: DeserializeOwned>(
        &mut self,
        method: Method,
        arguments: &A,
    ) -> anyhow::Result<R> {
        let started = self.endpoint.start(self.peer, method, arguments);
        let call: Call<R> = started.map_err(|error| self.interrupt_or(error))?;
        loop {
            if let Some(result) = self.endpoint.test(call) {
                return result.map_err(|error| self.interrupt_or(error));
            }
            super::check_interrupt(self.interrupted, self.has_printed)?;
            self.endpoint.progress(POLL_INTERVAL);
        }
    }

    /// Returns the error of an interrupt, some time after which rank 0 is killed; `error` if there
    /// was none.
    fn interrupt_or(&self, error: CallError) -> anyhow::Error {
        let interrupted = super::check_interrupt(self.interrupted, self.has_printed);
        interrupted.err().unwrap_or_else(|| error.into())
    }

    /// Requests transfers for `seconds` from the server. Returns the number of bytes moved, and the
    /// time in ns, which includes the request.
    fn time_transfers(
        &mut self,
        op: TransferDirection,
        seconds: u64,
    ) -> anyhow::Result<(u64, u64)> {
        let began = clock::ticks();
        let bytes = self.call(TRANSFER, &(op, seconds * 1_000_000_000))?;
        Ok((bytes, clock::ns_from_ticks(clock::ticks() - began).max(1)))
    }

    /// Fills the buffer with words of eight bytes, each its index plus `addend`.
    fn fill(&self, addend: u64) {
        fill((&self.memory, self.base_offset), self.buffer_bytes, addend);
    }

    /// Checks that the buffer's first `bytes` bytes have the data of [`fill`].
    fn check(&self, addend: u64, bytes: u64) -> anyhow::Result<()> {
        let wrong = first_wrong((&self.memory, self.base_offset), bytes, addend);
        ensure!(wrong.is_none(), "the pushed data is wrong, first at byte {}", wrong.unwrap_or(0));
        Ok(())
    }
}

/// Fills the piece of a buffer at the offset `at`: each word of eight bytes is its index plus
/// `addend`.
fn fill_piece(at: u64, addend: u64, into: &mut [u8]) {
    for (number, word) in (at / 8..).zip(into.chunks_mut(8)) {
        word.copy_from_slice(&(number + addend).to_ne_bytes()[..word.len()]);
    }
}

/// Returns the offset and the length of each piece of a buffer of `bytes` bytes.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let starts = (0..bytes).step_by(PIECE_BYTES);
    // At most PIECE_BYTES.
    starts.map(move |at| (at, (bytes - at).min(PIECE_BYTES as u64) as usize))
}

/// Fills a buffer with words of eight bytes, each its index plus `addend`.
fn fill((memory, base): (&BulkMemory, u64), bytes: u64, addend: u64) {
    let mut made = vec![0; PIECE_BYTES];
    for (at, piece_bytes) in pieces(bytes) {
        fill_piece(at, addend, &mut made[..piece_bytes]);
        memory.write(base + at, &made[..piece_bytes]);
    }
}

/// Returns the offset of the first byte in a buffer that differs from the data of [`fill`].
fn first_wrong((memory, base): (&BulkMemory, u64), bytes: u64, addend: u64) -> Option<u64> {
    let (mut made, mut found) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for (at, piece_bytes) in pieces(bytes) {
        let (made, found) = (&mut made[..piece_bytes], &mut found[..piece_bytes]);
        fill_piece(at, addend, made);
        memory.read(base + at, found);
        if let Some(wrong) = made.iter().zip(&*found).position(|(made, found)| made != found) {
            return Some(at + wrong as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_byte_is_found() {
        let bytes = PIECE_BYTES as u64 + 21;
        let memory = BulkMemory::plain(vec![0; PIECE_BYTES + 100]);
        fill((&memory, 3), bytes, 1);
        assert_eq!(first_wrong((&memory, 3), bytes, 1), None);
        assert_eq!(first_wrong((&memory, 3), bytes, 2), Some(0));
        memory.write(3 + PIECE_BYTES as u64 + 20, &[0xee]);
        assert_eq!(first_wrong((&memory, 3), bytes, 1), Some(PIECE_BYTES as u64 + 20));
    }
}
