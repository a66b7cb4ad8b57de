//! Relay between a client and a server that simulates network faults.

use handover_base::random::SplitMix64;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Way in which a connection ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cut {
    /// Both sides get the end of the stream.
    End,
    /// Both sides get a reset.
    Reset,
}

/// Network faults of a relay, for each direction.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Maximum length of the pieces that are passed on; lengths are random.
    pub piece_bytes_max: usize,
    /// Maximum delay before a piece; most pieces have none.
    pub delay_max: Duration,
    /// Number of bytes, of both directions together, after which the connection ends, and the way
    /// in which it does.
    pub cut: Option<(u64, Cut)>,
    pub seed: u64,
}

pub const FAIR: Weather =
    Weather { piece_bytes_max: 1 << 16, delay_max: Duration::ZERO, cut: None, seed: 1 };

/// Relay that passes bytes on until it is dropped.
pub struct Relay {
    pub address: SocketAddr,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Control {
    stalled: AtomicBool,
    over: AtomicBool,
}

impl Relay {
    /// Starts a relay to that `HOST:PORT`.
    pub fn new(server: &str, weather: Weather) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let control = Arc::new(Control::default());
        let (server, its) = (server.to_string(), Arc::clone(&control));
        let thread = Some(std::thread::spawn(move || accept(&listener, &server, weather, &its)));
        Self { address, control, thread }
    }

    /// Stops passing bytes on, or continues.
    pub fn stall(&self, stalled: bool) {
        self.control.stalled.store(stalled, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.control.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || std::thread::panicking(), "the relay panicked");
    }
}

fn accept(listener: &TcpListener, server: &str, weather: Weather, control: &Arc<Control>) {
    let mut pumps = Vec::new();
    while !control.over.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let server = TcpStream::connect(server).unwrap();
        let connection = Arc::new(Connection::default());
        for stream in [&client, &server] {
            stream.set_nonblocking(false).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        }
        for (from, to, salt) in [(&client, &server, 0), (&server, &client, 1)] {
            let pump = Pump {
                from: from.try_clone().unwrap(),
                to: to.try_clone().unwrap(),
                weather,
                random: SplitMix64::new(weather.seed.wrapping_mul(2) + salt),
                connection: Arc::clone(&connection),
                control: Arc::clone(control),
            };
            pumps.push(std::thread::spawn(move || pump.run()));
        }
    }
    for pump in pumps {
        pump.join().unwrap();
    }
}

/// State shared by both directions of a connection.
#[derive(Default)]
struct Connection {
    passed_bytes: AtomicU64,
    reset: AtomicBool,
}

/// One direction of a connection.
struct Pump {
    from: TcpStream,
    to: TcpStream,
    weather: Weather,
    random: SplitMix64,
    connection: Arc<Connection>,
    control: Arc<Control>,
}

impl Pump {
    fn run(mut self) {
        let mut bytes = vec![0; 1 << 16];
        while !self.is_over() {
            let count = match self.from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_patience(error.kind()) => continue,
                Err(_) => break,
            };
            // Bytes received before a stall are held back, too.
            while self.control.stalled.load(Ordering::SeqCst) && !self.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !self.pass_on(&bytes[..count]) {
                return;
            }
        }
        if self.connection.reset.load(Ordering::SeqCst) {
            return;
        }
        // Passes the end on. Fails if the connection is over already.
        let _ = self.to.shutdown(Shutdown::Write);
    }

    fn is_over(&self) -> bool {
        let flags = [&self.control.over, &self.connection.reset];
        flags.iter().any(|it| it.load(Ordering::SeqCst))
    }

    /// Passes bytes on. Returns `false` if the connection is cut.
    fn pass_on(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let most = self.weather.piece_bytes_max.min(rest.len()) as u64;
            let count = 1 + self.random_below(most) as usize;
            if !self.weather.delay_max.is_zero() && self.random_below(8) == 0 {
                let most = self.weather.delay_max.as_nanos() as u64;
                std::thread::sleep(Duration::from_nanos(self.random_below(most)));
            }
            let before = self.connection.passed_bytes.fetch_add(count as u64, Ordering::SeqCst);
            if let Some((at, cut)) = self.weather.cut.filter(|it| before + count as u64 > it.0) {
                // Bytes before the cut still arrive.
                let last = at.saturating_sub(before) as usize;
                let _ = self.to.write_all(&rest[..last]);
                self.cut(cut);
                return false;
            }
            if self.to.write_all(&rest[..count]).is_err() {
                return false;
            }
            rest = &rest[count..];
        }
        true
    }

    fn cut(&self, how: Cut) {
        match how {
            // Fails if the connection is over already.
            Cut::End => {
                let _ = [&self.from, &self.to].map(|it| it.shutdown(Shutdown::Both));
            }
            Cut::Reset => {
                // Closing a socket with a linger time of 0 resets the connection; both directions
                // close it.
                let _ =
                    [&self.from, &self.to].map(|it| set_socket_linger(it, Some(Duration::ZERO)));
                self.connection.reset.store(true, Ordering::SeqCst);
            }
        }
    }

    fn random_below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }
}

fn is_patience(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
