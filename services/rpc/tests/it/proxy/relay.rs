//! A relay between a client and a server, which does to their bytes what networks do.

use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cut {
    /// Both are told that nothing more comes.
    End,
    /// Both are told that the connection is reset.
    Reset,
}

/// What is done to the bytes of each direction.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// They are passed on in pieces of so many at most, of any length.
    pub piece_bytes_max: usize,
    /// Before a piece there passes so long at most; before most of them nothing.
    pub delay_max: Duration,
    /// Behind so many bytes of both directions the connection ends.
    pub cut: Option<(u64, Cut)>,
    pub seed: u64,
}

pub const FAIR: Weather =
    Weather { piece_bytes_max: 1 << 16, delay_max: Duration::ZERO, cut: None, seed: 1 };

/// Passes on what comes, until it is dropped.
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
    /// A relay to that `HOST:PORT`.
    pub fn new(server: &str, weather: Weather) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let control = Arc::new(Control::default());
        let (server, its) = (server.to_string(), Arc::clone(&control));
        let thread = Some(std::thread::spawn(move || accept(&listener, &server, weather, &its)));
        Self { address, control, thread }
    }

    /// From now on nothing is passed on, or again.
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
                random: weather.seed.wrapping_mul(2) + salt,
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

/// What both directions know of each other.
#[derive(Default)]
struct Connection {
    passed_bytes: AtomicU64,
    reset: AtomicBool,
}

/// One direction.
struct Pump {
    from: TcpStream,
    to: TcpStream,
    weather: Weather,
    random: u64,
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
            // What came when it was stalled already stays here, too.
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
        // What has ended here ends there. Refused where it is over already.
        let _ = self.to.shutdown(Shutdown::Write);
    }

    fn is_over(&self) -> bool {
        let flags = [&self.control.over, &self.connection.reset];
        flags.iter().any(|it| it.load(Ordering::SeqCst))
    }

    /// False when the connection is cut.
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
                // What comes before the cut still arrives.
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
            // Refused where it is over already.
            Cut::End => {
                let _ = [&self.from, &self.to].map(|it| it.shutdown(Shutdown::Both));
            }
            Cut::Reset => {
                // Closed by both directions and without a linger, a connection is reset.
                let _ =
                    [&self.from, &self.to].map(|it| set_socket_linger(it, Some(Duration::ZERO)));
                self.connection.reset.store(true, Ordering::SeqCst);
            }
        }
    }

    /// SplitMix64 (Steele, Lea, Flood).
    fn random_below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % limit.max(1)
    }
}

fn is_patience(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
