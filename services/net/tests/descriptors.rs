//! Descriptor exhaustion: the server waits for descriptors without burning CPU time, and accepts
//! again when some are free. A test binary of its own, as the limit applies to the whole process.

use handover_base::usage;
use handover_net::engine::BytesCodec;
use handover_net::{Config, Conn, FullConnectionsPolicy, Handler, Net, NetBuilder};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of connections for which the server has descriptors.
const ACCEPTED_COUNT: usize = 15;

struct Echo;

impl Handler for Echo {
    type Codec = BytesCodec;
    type Data = ();

    fn on_message(&mut self, conn: &mut Conn<'_, BytesCodec, ()>, bytes: &[u8]) {
        let _ = conn.write(bytes);
    }
}

fn connect(net: &Net<Echo>) -> std::io::Result<TcpStream> {
    let peer = TcpStream::connect(net.addresses()[0])?;
    peer.set_read_timeout(Some(TIMEOUT))?;
    Ok(peer)
}

fn is_served(peer: &mut TcpStream) -> bool {
    let mut reply = [0; 4];
    peer.write_all(b"ping").is_ok() && peer.read_exact(&mut reply).is_ok() && &reply == b"ping"
}

/// Both cases in one test, as they share the process's limit.
#[test]
fn server_without_descriptors_waits_or_refuses_and_recovers() {
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(64), maximum: before.maximum };
    setrlimit(Resource::Nofile, few).unwrap();
    for when_full in [FullConnectionsPolicy::Wait, FullConnectionsPolicy::Reject] {
        let config = Config::default().when_full(when_full);
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let net =
            NetBuilder::new().listen(here).config(config).start(BytesCodec, |_| Echo).unwrap();
        let mut first = connect(&net).unwrap();
        assert!(is_served(&mut first));
        // Sockets of clients take all descriptors but some. While they connect, only the server
        // opens descriptors.
        let new_socket = || socket(AddressFamily::INET, SocketType::STREAM, None).ok();
        let mut sockets: Vec<OwnedFd> = std::iter::from_fn(new_socket).collect();
        sockets.truncate(sockets.len() - ACCEPTED_COUNT);
        assert!((20..60).contains(&sockets.len()), "{} sockets", sockets.len());
        let connect_socket = |socket: OwnedFd| {
            rustix::net::connect(&socket, &net.addresses()[0]).unwrap();
            let peer = TcpStream::from(socket);
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            peer
        };
        let mut peers: Vec<TcpStream> = sockets.into_iter().map(connect_socket).collect();
        // The counters are published when the thread next goes to sleep.
        let deadline = Instant::now() + TIMEOUT;
        let count = || match when_full {
            FullConnectionsPolicy::Wait => net.stats().accept_pauses_count,
            FullConnectionsPolicy::Reject => net.stats().turned_away_count,
        };
        while count() == 0 {
            assert!(Instant::now() < deadline, "{when_full:?}: the server has not noticed in time");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(is_served(&mut first));
        if when_full == FullConnectionsPolicy::Wait {
            let before_ns = usage::process_usage().cpu_ns();
            std::thread::sleep(Duration::from_millis(300));
            let spent_ns = usage::process_usage().cpu_ns() - before_ns;
            assert!(spent_ns < 150_000_000, "{spent_ns} ns of CPU while there was nothing to do");
        }
        // Closing the oldest half frees descriptors for all others.
        let rest = peers.split_off(peers.len() / 2);
        drop(peers);
        let served = rest.into_iter().map(|mut peer| is_served(&mut peer)).filter(|&it| it).count();
        let mut late = connect(&net).unwrap();
        assert!(is_served(&mut late), "{when_full:?}");
        drop((first, late));
        // Counters that the thread has published before may lack the last ones.
        let (stats, _) = net.stop(TIMEOUT).unwrap();
        match when_full {
            FullConnectionsPolicy::Wait => {
                assert!(served > 10, "only {served} connections were served")
            }
            FullConnectionsPolicy::Reject => assert!(stats.turned_away_count > 10, "{stats:?}"),
        }
    }
}
