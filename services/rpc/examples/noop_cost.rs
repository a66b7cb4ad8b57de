//! Cost of a call without arguments, compared with its floors: two cache lines, and bare sockets.
//!
//! `cargo run --release -p handover-rpc --example rpc-noop-cost [MS_PER_ROW [WORD]]`. Needs two
//! CPUs to itself for meaningful figures. The rows of a block alternate, and the figures are
//! medians over the blocks. With WORD, only the rows whose names contain it are measured, and their
//! floors.

use handover_base::sync::CachePadded;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_base::{affinity, clock};
use handover_rpc::{Calling, Config, Endpoint, Method};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Number of times that each row is measured.
const REPETITIONS_COUNT: usize = 5;
/// Length of a call without arguments on a stream, in bytes.
const MESSAGE_BYTES: usize = 24;

/// Median and 99th percentile of the round-trip times, in ns.
#[derive(Clone, Copy)]
struct Quantiles(f64, f64);

fn main() -> Result<(), Box<dyn Error>> {
    let ms = std::env::args()
        .nth(1)
        .map_or(Ok(if cfg!(debug_assertions) { 5 } else { 250 }), |it| it.parse())?;
    let cpus = affinity::thread_cpus();
    let [near_cpu, far_cpu] = [cpus[0], cpus[cpus.len().min(2) - 1]];
    affinity::pin(near_cpu)?;
    /// Row of the table. It has a name, the index of its floor's row, and the function that
    /// measures it. The function measures on this CPU and a second one.
    type Row = (&'static str, usize, fn(u64, u32) -> Result<Quantiles, Box<dyn Error>>);
    let rows: [Row; 13] = [
        ("memory, two lines", 0, time_memory_lines),
        ("sm, spinning", 0, |ms, far_cpu| time_rpc("sm://", true, 20_000, ms, far_cpu)),
        ("sm, by default", 0, |ms, far_cpu| time_rpc("sm://", false, 20_000, ms, far_cpu)),
        ("sm, asleep", 0, |ms, far_cpu| time_rpc("sm://", false, 0, ms, far_cpu)),
        ("raw TCP, spinning", 4, |ms, far_cpu| time_raw_tcp(true, ms, far_cpu)),
        ("tcp, spinning", 4, |ms, far_cpu| time_rpc("tcp://", true, 20_000, ms, far_cpu)),
        ("raw TCP, asleep", 6, |ms, far_cpu| time_raw_tcp(false, ms, far_cpu)),
        ("tcp, asleep", 6, |ms, far_cpu| time_rpc("tcp://", false, 0, ms, far_cpu)),
        ("raw Unix socket, asleep", 8, |ms, far_cpu| time_raw_uds(false, ms, far_cpu)),
        ("uds, asleep", 8, |ms, far_cpu| time_rpc("uds://", false, 0, ms, far_cpu)),
        ("raw Unix socket, spinning", 10, |ms, far_cpu| time_raw_uds(true, ms, far_cpu)),
        ("uds, spinning", 10, |ms, far_cpu| time_rpc("uds://", true, 20_000, ms, far_cpu)),
        ("memory, two lines, again", 0, time_memory_lines),
    ];
    let word = std::env::args().nth(2).unwrap_or_default();
    let named = |at: usize| rows[at].0.contains(&word);
    let is_floor = |at: usize| (0..rows.len()).any(|its| rows[its].1 == at && named(its));
    let wanted: Vec<usize> = (0..rows.len()).filter(|at| named(*at) || is_floor(*at)).collect();
    let mut blocks = Vec::new();
    for _ in 0..REPETITIONS_COUNT {
        let mut block = [Quantiles(f64::NAN, f64::NAN); 13];
        for &at in &wanted {
            block[at] = rows[at].2(ms, far_cpu)?;
        }
        blocks.push(block);
    }
    println!("{:<26}{:>10}{:>10}{:>22}", "a round trip", "p50 ns", "p99 ns", "p50 over its floor");
    for at in wanted {
        let (name, floor, _) = rows[at];
        let of =
            |pick: &dyn Fn(&[Quantiles]) -> f64| median(blocks.iter().map(|it| pick(it)).collect());
        let (p50, p99) = (of(&|block| block[at].0), of(&|block| block[at].1));
        let ratio = of(&|block| block[at].0 / block[floor].0);
        println!("{name:<26}{p50:>10.0}{p99:>10.0}{ratio:>22.2}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Calls `trip` in timed batches for `ms` ms. Returns the quantiles of the time of one trip. A
/// batch must be long enough for the clock's resolution.
fn time_round_trips(
    ms: u64,
    batch: u64,
    mut trip: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<Quantiles> {
    let end_ns = clock::now_ns() + ms * 1_000_000;
    for _ in 0..100 {
        trip()?;
    }
    let mut samples = Vec::new();
    // At least once: on a busy machine, the first hundred trips may take longer than the time
    // given.
    loop {
        for _ in 0..64 {
            let began = clock::ticks();
            for _ in 0..batch {
                trip()?;
            }
            samples.push(clock::ticks() - began);
        }
        if clock::now_ns() >= end_ns {
            break;
        }
    }
    samples.sort_unstable();
    let at = |share: f64| {
        clock::ns_from_ticks(samples[(samples.len() as f64 * share) as usize]) as f64 / batch as f64
    };
    Ok(Quantiles(at(0.5), at(0.99)))
}

/// Starts a thread that runs `run` on the CPU `far_cpu`.
fn spawn_on<T: Send + 'static>(
    far_cpu: u32,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        // Fails if the CPU has been taken away: then all figures, those of the floors too, are of
        // another CPU.
        let _ = affinity::pin(far_cpu);
        run()
    })
}

/// Measures round trips of two cache lines between two threads.
fn time_memory_lines(ms: u64, far_cpu: u32) -> Result<Quantiles, Box<dyn Error>> {
    let words = Arc::new([const { CachePadded::new(AtomicU64::new(0)) }; 2]);
    let its = Arc::clone(&words);
    let echo = spawn_on(far_cpu, move || {
        let mut turn = 0;
        while turn != u64::MAX {
            // Acquire and Release pair on each word: words[0] carries a turn there, words[1]
            // carries it back.
            let seen = its[0].load(Ordering::Acquire);
            if seen != turn {
                turn = seen;
                its[1].store(turn, Ordering::Release);
            }
        }
    });
    let mut turn = 0;
    let quantiles = time_round_trips(ms, 1, || {
        turn += 1;
        // Release and Acquire: pair with those in the other thread.
        words[0].store(turn, Ordering::Release);
        while words[1].load(Ordering::Acquire) != turn {}
        Ok(())
    })?;
    words[0].store(u64::MAX, Ordering::Release);
    echo.join().map_err(|_| "the echo panicked")?;
    Ok(quantiles)
}

/// Measures calls without arguments to a server at `listen_at`.
fn time_rpc(
    listen_at: &str,
    spins: bool,
    spin_ns_max: u32,
    ms: u64,
    far_cpu: u32,
) -> Result<Quantiles, Box<dyn Error>> {
    let config =
        Config::default().spin_forever(spins).spin_max(Duration::from_nanos(spin_ns_max.into()));
    let mut server = Endpoint::new(config.clone())?;
    let address = server.listen(&listen_at.parse()?)?;
    server.register("noop", 0, |_, ()| Ok(()))?;
    let stopper = server.stopper();
    let serving = spawn_on(far_cpu, move || server.serve());
    let mut client = Endpoint::new(config)?;
    let peer = client.connect(&address)?;
    let noop = Method::new("noop");
    let trip = || client.call::<_, ()>(peer, noop, &()).map_err(std::io::Error::other);
    let quantiles = time_round_trips(ms, 1, trip)?;
    stopper.stop();
    serving.join().map_err(|_| "the server panicked")?;
    Ok(quantiles)
}

/// Measures round trips of a message between `near` and a thread that echoes at `away`.
fn time_stream<S: Read + Write + Send + 'static>(
    mut near: S,
    mut away: S,
    ms: u64,
    far_cpu: u32,
) -> Result<Quantiles, Box<dyn Error>> {
    let echo = spawn_on(far_cpu, move || {
        let mut message = [0; MESSAGE_BYTES];
        while read_message(&mut away, &mut message).is_ok() && away.write_all(&message).is_ok() {}
    });
    let mut message = [0; MESSAGE_BYTES];
    let quantiles = time_round_trips(ms, 1, || {
        near.write_all(&message)?;
        read_message(&mut near, &mut message)
    })?;
    drop(near);
    echo.join().map_err(|_| "the echo panicked")?;
    Ok(quantiles)
}

/// Fills `message` from the stream, like `read_exact`, but spins if the socket is nonblocking.
fn read_message(stream: &mut impl Read, message: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < message.len() {
        match stream.read(&mut message[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Measures round trips over a TCP connection without the library.
fn time_raw_tcp(spins: bool, ms: u64, far_cpu: u32) -> Result<Quantiles, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (away, _) = listener.accept()?;
    for end in [&near, &away] {
        end.set_nodelay(true)?;
        end.set_nonblocking(spins)?;
        end.set_read_timeout((!spins).then_some(Duration::from_secs(5)))?;
    }
    time_stream(near, away, ms, far_cpu)
}

/// Measures round trips over a pair of Unix sockets without the library.
fn time_raw_uds(spins: bool, ms: u64, far_cpu: u32) -> Result<Quantiles, Box<dyn Error>> {
    let (near, away) = UnixStream::pair()?;
    for end in [&near, &away] {
        end.set_nonblocking(spins)?;
    }
    time_stream(near, away, ms, far_cpu)
}
