//! Tests of the API of an endpoint, over each transport.

use crate::gate::gate;
use handover_rpc::engine::{HELLO_BYTES, Hello};
use handover_rpc::{
    ADDRESS_NAME_BYTES_MAX, Address, CallError, Calling, CloseReason, Config, ConnectionsConfig,
    Context, Endpoint, EndpointError, Failure, Method, Peer, PoolConfig, RegisterError,
    SharedMemoryConfig, Stopper,
};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
const EACH: [&str; 4] = ["sm://", "uds://", "tcp://127.0.0.1:0", "tls://127.0.0.1:0"];
#[cfg(not(feature = "tls"))]
const EACH: [&str; 3] = ["sm://", "uds://", "tcp://127.0.0.1:0"];
const ECHO: Method = Method::new("echo");
const HELD: Method = Method::new("held");

struct Server {
    address: Address,
    stopper: Stopper,
    thread: Option<JoinHandle<Endpoint>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

/// Creates an endpoint that can use every transport.
fn endpoint(config: Config) -> Result<Endpoint, EndpointError> {
    Endpoint::new(crate::credentials::with_tls(config))
}

fn serve(how: &str, config: Config, more: impl FnOnce(&mut Endpoint)) -> Server {
    let mut server = endpoint(config).unwrap();
    let address = server.listen(&how.parse().unwrap()).unwrap();
    server
        .register_bytes("echo", 0, |_, bytes, answer| {
            answer.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    server.register("fail", 0, |_, ()| Err::<(), _>(Failure::new(-7, "on purpose"))).unwrap();
    server.register("panic", 0, |_, ()| -> Result<(), Failure> { panic!("on purpose") }).unwrap();
    server.start_pool().unwrap();
    server.register_pooled("later", 0, |number: u64| Ok(number)).unwrap();
    more(&mut server);
    let stopper = server.stopper();
    let thread = thread::spawn(move || {
        server.serve();
        server
    });
    Server { address, stopper, thread: Some(thread) }
}

/// Registers a pooled handler that returns when `wait` does.
fn register_held(server: &mut Endpoint, wait: impl Fn() + Send + Sync + 'static) {
    let held = move |()| {
        wait();
        Ok(())
    };
    server.register_pooled("held", 0, held).unwrap();
}

fn client(server: &Server) -> (Endpoint, Peer) {
    let mut client = endpoint(Config::default()).unwrap();
    let peer = client.connect(&server.address).unwrap();
    (client, peer)
}

#[test]
fn echo_returns_messages_of_all_lengths() {
    for how in EACH {
        let server = serve(how, Config::default(), |_| {});
        let (mut client, peer) = client(&server);
        for length in [0usize, 1, 31, 32, 33, 94, 95, 96, 97, 4095, 4096, 70_000, (1 << 20) - 3] {
            let sent: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            let came: Vec<u8> = client.call(peer, ECHO, &sent).unwrap();
            assert!(came == sent, "{how}: {length} bytes");
        }
        let too_long = client.call::<_, Vec<u8>>(peer, ECHO, &vec![0u8; 1 << 20]);
        let (bytes, bytes_max) = ((1 << 20) + 3, 1 << 20);
        assert_eq!(too_long, Err(CallError::TooLong { bytes, bytes_max }), "{how}");
    }
}

#[test]
fn each_refusal_has_its_own_error() {
    for how in EACH {
        let server = serve(how, Config::default(), |server| {
            server.register("long", 0, |_, ()| Ok(vec![0u8; 2 << 20])).unwrap();
        });
        let (mut client, peer) = client(&server);
        let mut call = |name| client.call::<_, ()>(peer, Method::new(name), &());
        assert_eq!(call("fail"), Err(CallError::Failed(Failure::new(-7, "on purpose"))));
        assert_eq!(call("panic"), Err(CallError::Panicked));
        assert_eq!(call("nothing"), Err(CallError::Unknown));
        assert_eq!(call("later"), Err(CallError::BadArguments));
        assert_eq!(call("long"), Err(CallError::ResultTooLong));
        assert_eq!(call("echo"), Ok(()));
        let other = client.call::<_, ()>(peer, ECHO.with_provider(1), &());
        assert_eq!(other, Err(CallError::Unknown), "another provider's");
        assert_eq!(client.call::<_, String>(peer, ECHO, &[9u8, 1]), Err(CallError::BadResult));
    }
}

#[test]
fn ten_thousand_concurrent_calls_all_return_their_result() {
    for how in EACH {
        let server = serve(how, Config::default(), |_| {});
        let (mut client, peer) = client(&server);
        let start = |number| client.start::<_, u64>(peer, ECHO, &number).map(|it| (it, number));
        let calls: Result<Vec<_>, _> = (0..10_000u64).map(start).collect();
        for (call, number) in calls.unwrap() {
            assert_eq!(client.wait(call), Ok(number), "{how}");
            assert_eq!(client.wait(call), Err(CallError::Stale), "only once");
        }
    }
}

#[test]
fn deadline_ends_a_call_and_its_late_answer_is_dropped() {
    for how in EACH {
        let (open, wait) = gate();
        let server = serve(how, Config::default(), |server| register_held(server, wait));
        let (mut client, peer) = client(&server);
        let late = client.call_within::<_, ()>(peer, HELD, &(), Duration::from_millis(5));
        assert_eq!(late, Err(CallError::Deadline), "{how}");
        drop(open);
        assert_eq!(client.call::<_, ()>(peer, HELD, &()), Ok(()));
        assert_eq!(client.call::<_, u64>(peer, ECHO, &5u64), Ok(5));
        assert!(client.stats().late_count <= 1);
    }
}

#[test]
fn wait_any_returns_calls_in_order_of_completion() {
    let (open, wait) = gate();
    let server = serve("sm://", Config::default(), |server| register_held(server, wait));
    let (mut client, peer) = client(&server);
    let mut calls = vec![
        client.start::<_, ()>(peer, HELD, &()).unwrap(),
        client.start::<_, ()>(peer, ECHO, &()).unwrap(),
    ];
    assert_eq!(client.test(calls[0]), None);
    assert_eq!(client.wait_any(&mut calls), Some((1, Ok(()))));
    let soon = Duration::from_millis(3);
    let mut late = vec![client.start_within::<_, ()>(peer, HELD, &(), soon).unwrap()];
    assert_eq!(client.wait_any(&mut late), Some((0, Err(CallError::Deadline))));
    drop(open);
    assert_eq!(client.wait_any(&mut calls), Some((0, Ok(()))));
    assert_eq!(client.wait_any::<()>(&mut calls), None);
}

#[test]
fn cancelled_call_is_removed_and_its_handler_does_not_run() {
    let (tell, told) = std::sync::mpsc::channel();
    let (open, wait) = gate();
    let config = Config::default().pool(PoolConfig::default().threads(1));
    let server = serve("sm://", config, |server| {
        let begun = move |number: u64| {
            tell.send(number).unwrap();
            wait();
            Ok(())
        };
        server.register_pooled("begun", 0, begun).unwrap();
    });
    let (mut client, peer) = client(&server);
    let begun = Method::new("begun");
    let mut start = |number: u64| client.start::<_, ()>(peer, begun, &number).unwrap();
    let (first, second, third) = (start(1), start(2), start(3));
    client.cancel(second);
    assert_eq!(client.wait(second), Err(CallError::Stale));
    // Messages are read in order: this answer shows that the cancellation was read.
    assert_eq!(client.call::<_, ()>(peer, ECHO, &()), Ok(()));
    drop(open);
    assert_eq!((client.wait(first), client.wait(third)), (Ok(()), Ok(())));
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn request_that_is_cancelled_while_it_is_deferred_is_not_handled() {
    let (tally, ask, begin) = (Method::new("tally"), Method::new("ask"), Method::new("begin"));
    for how in EACH {
        let server = serve(how, Config::default(), |server| {
            let mut handled_count = 0u32;
            let tally = move |_: &mut handover_rpc::Context<'_>, ()| {
                handled_count += 1;
                Ok(handled_count)
            };
            server.register("tally", 0, tally).unwrap();
            // Requests that arrive while it waits for the answer are deferred.
            let ask = move |context: &mut handover_rpc::Context<'_>, ()| {
                let peer = context.peer();
                context
                    .call::<_, ()>(peer, begin, &())
                    .map_err(|it| Failure::new(1, it.to_string()))
            };
            server.register("ask", 0, ask).unwrap();
        });
        let (mut client, peer) = client(&server);
        // Messages are read in order: the cancellation before the answer.
        let begin = move |context: &mut handover_rpc::Context<'_>, ()| {
            let started = context.start::<_, u32>(context.peer(), tally, &());
            context.cancel(started.map_err(|it| Failure::new(2, it.to_string()))?);
            Ok(())
        };
        client.register("begin", 0, begin).unwrap();
        client.call::<_, ()>(peer, ask, &()).unwrap();
        assert_eq!(client.call(peer, tally, &()), Ok(1u32), "{how}");
    }
}

#[test]
fn one_way_requests_arrive_in_order_and_are_not_answered() {
    for how in EACH {
        let (tell, told) = std::sync::mpsc::channel();
        let server = serve(how, Config::default(), |server| {
            let note = move |_: &mut handover_rpc::Context<'_>, number: u32| {
                tell.send(number).unwrap();
                Ok(())
            };
            server.register("note", 0, note).unwrap();
        });
        let (mut client, peer) = client(&server);
        for number in 0..1000u32 {
            client.send(peer, Method::new("note"), &number).unwrap();
        }
        client.call::<_, ()>(peer, ECHO, &()).unwrap();
        assert!(told.try_iter().eq(0..1000), "{how}");
        assert_eq!(client.stats().late_count, 0);
    }
}

#[test]
fn requests_that_arrive_together_are_all_handled_after_one_notification() {
    const REQUESTS_COUNT: u32 = 200; // More than are handled in a turn.
    // Shared memory has not as many slots: the rest would wait for the client.
    for how in &EACH[1..] {
        let (open, wait) = gate();
        let (tell, told) = std::sync::mpsc::channel();
        // While it spins, it would read streams without a notification.
        let config = Config::default().spin_max(Duration::ZERO);
        let server = serve(how, config, |server| {
            let note = move |_: &mut handover_rpc::Context<'_>, number: u32| {
                if number == 0 {
                    wait();
                }
                tell.send(number).unwrap();
                Ok(())
            };
            server.register("note", 0, note).unwrap();
        });
        let (mut client, peer) = client(&server);
        for number in 0..REQUESTS_COUNT {
            client.send(peer, Method::new("note"), &number).unwrap();
        }
        drop(open);
        for number in 0..REQUESTS_COUNT {
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(number), "{how}");
        }
    }
}

#[test]
fn nested_calls_between_two_endpoints_return_their_results() {
    for how in EACH {
        // The server calls its caller with half of the number, and the caller calls back, down to
        // zero.
        let down = Method::new("down");
        let handler = move |context: &mut handover_rpc::Context<'_>, number: u32| {
            let peer = context.peer();
            match number {
                0 => Ok(0),
                _ => {
                    let sum: Result<u32, _> = context.call(peer, down, &(number / 2));
                    Ok(number + sum.map_err(|error| Failure::new(1, error.to_string()))?)
                }
            }
        };
        // A handler that waits puts off the peer's requests, so this goes only one level deep.
        let server = serve(how, Config::default(), |server| {
            server.register("down", 0, handler).unwrap();
        });
        let (mut client, peer) = client(&server);
        client.register("down", 0, |_, number: u32| Ok(number)).unwrap();
        assert_eq!(client.call::<_, u32>(peer, down, &10u32), Ok(15), "{how}");
    }
}

#[test]
fn endpoint_waiting_for_an_answer_handles_calls_and_the_disconnection() {
    let config = Config::default().spin_max(Duration::ZERO);
    for how in EACH {
        let ask_back = |context: &mut handover_rpc::Context<'_>, number: u64| {
            thread::sleep(Duration::from_millis(2));
            let peer = context.peer();
            let back: Result<u64, _> = context.call(peer, ECHO, &number);
            back.map_err(|error| Failure::new(1, error.to_string()))
        };
        let leave = |context: &mut handover_rpc::Context<'_>, ()| {
            context.stop();
            Ok(())
        };
        let (open, wait) = gate();
        let mut server = serve(how, config.clone(), |server| {
            server.register("ask-back", 0, ask_back).unwrap();
            server.register("leave", 0, leave).unwrap();
            register_held(server, wait);
        });
        let mut client = endpoint(config.clone()).unwrap();
        let peer = client.connect(&server.address).unwrap();
        client.register("echo", 0, |_, number: u64| Ok(number + 1)).unwrap();
        for number in 0..5 {
            let asked = client.call::<_, u64>(peer, Method::new("ask-back"), &number);
            assert_eq!(asked, Ok(number + 1), "{how}");
        }
        let held = client.start::<_, ()>(peer, HELD, &()).unwrap();
        client.send(peer, Method::new("leave"), &()).unwrap();
        let thread = server.thread.take().unwrap();
        let leaving = thread::spawn(move || {
            let stopped = thread.join().unwrap();
            // The endpoint waits for the handler to return, and its result is not sent any more.
            drop(open);
            drop(stopped);
        });
        assert_eq!(
            client.wait(held),
            Err(CallError::Disconnected(CloseReason::ClosedByPeer)),
            "{how}"
        );
        leaving.join().unwrap();
    }
}

#[test]
fn busy_caller_accepts_connections_and_handles_requests() {
    for how in EACH {
        for spin_forever in [false, true] {
            let config = Config::default().spin_forever(spin_forever);
            let server = serve(how, config.clone(), |_| {});
            let mut busy = endpoint(config).unwrap();
            let address = busy.listen(&how.parse().unwrap()).unwrap();
            busy.register("echo", 0, |_, number: u64| Ok(number + 1)).unwrap();
            let peer = busy.connect(&server.address).unwrap();
            let stranger = thread::spawn(move || {
                let mut stranger = endpoint(Config::default()).unwrap();
                let peer = stranger.connect(&address).unwrap();
                stranger.call::<_, u64>(peer, ECHO, &1u64)
            });
            while !stranger.is_finished() {
                assert_eq!(busy.call::<_, u64>(peer, ECHO, &7u64), Ok(7), "{how}");
            }
            assert_eq!(stranger.join().unwrap(), Ok(2), "{how}");
        }
    }
}

#[test]
fn two_endpoints_of_one_thread_connect_and_an_endpoint_connects_to_itself() {
    for how in EACH {
        let mut one = endpoint(Config::default()).unwrap();
        let address = one.listen(&how.parse().unwrap()).unwrap();
        one.register("echo", 0, |_, number: u64| Ok(number)).unwrap();
        let itself = one.connect(&address).unwrap();
        assert_eq!(one.call::<_, u64>(itself, ECHO, &9u64), Ok(9), "{how}");
        assert_eq!(one.peers().count(), 2, "both ends");
        assert!(one.disconnect(itself) && !one.disconnect(itself));
        assert_eq!(one.call::<_, u64>(itself, ECHO, &9u64), Err(CallError::Stale));
        assert!(one.progress(Duration::from_secs(5)), "the other end is told");
        assert_eq!(one.peers().count(), 0);
    }
}

#[test]
fn invalid_names_addresses_and_configurations_are_refused() {
    let mut one = endpoint(Config::default()).unwrap();
    one.register("a", 0, |_, ()| Ok(())).unwrap();
    let again = one.register("a", 0, |_, ()| Ok(()));
    assert_eq!(again, Err(RegisterError::Taken { name: "a".into(), provider: 0 }));
    assert!(one.unregister("a", 0) && !one.unregister("a", 0));

    for how in EACH {
        let address = one.listen(&how.parse().unwrap()).unwrap();
        let again = endpoint(Config::default()).unwrap().listen(&address);
        assert!(matches!(again, Err(EndpointError::SystemCall { call: "bind", .. })), "{again:?}");
    }
    for nobody in ["sm://nobody-is-here", "uds:///nobody/is/here", "tcp://127.0.0.1:1"] {
        let refused = one.connect(&nobody.parse().unwrap());
        assert!(matches!(refused, Err(EndpointError::SystemCall { .. })), "{refused:?}");
    }
    let unknown = one.connect(&"tcp://no.such.host.invalid:1".parse().unwrap());
    assert!(matches!(unknown, Err(EndpointError::HostUnresolved { .. })), "{unknown:?}");
    let half = one.connect(&"sm://".parse().unwrap());
    assert!(matches!(half, Err(EndpointError::IncompleteAddress(_))), "{half:?}");
    let config =
        Config::default().shared_memory(SharedMemoryConfig::default().shared_bytes(1 << 20));
    assert!(matches!(endpoint(config), Err(EndpointError::Config(_))));
}

#[test]
fn name_of_the_maximum_length_can_be_listened_at() {
    let name = format!("{:0>1$}", std::process::id(), ADDRESS_NAME_BYTES_MAX);
    let address: Address = format!("sm://{name}").parse().unwrap();
    let listened = endpoint(Config::default()).unwrap().listen(&address);
    assert_eq!(listened.unwrap(), address);
}

#[test]
fn peers_beyond_peers_max_are_refused() {
    for how in EACH {
        let server = serve(
            how,
            Config::default().connections(ConnectionsConfig::default().peers_max(2)),
            |_| {},
        );
        let ((mut one, peer), _two) = (client(&server), client(&server));
        let mut three = endpoint(Config::default()).unwrap();
        let refused = three.connect(&server.address);
        let why = CloseReason::ClosedByPeer;
        assert!(matches!(refused, Err(EndpointError::Handshake { why: it, .. }) if it == why));
        assert_eq!(one.call::<_, u64>(peer, ECHO, &1u64), Ok(1), "{how}");
    }
}

#[test]
fn many_clients_are_served_and_sleeping_ones_are_woken() {
    for how in EACH {
        for config in [Config::default().spin_max(Duration::ZERO), Config::default()] {
            let server = serve(how, config.clone(), |_| {});
            thread::scope(|scope| {
                for number in 0..8u64 {
                    let (config, server) = (config.clone(), &server);
                    scope.spawn(move || {
                        let mut client = endpoint(config).unwrap();
                        let peer = client.connect(&server.address).unwrap();
                        for turn in 0..60 {
                            let sent = number << 32 | turn;
                            assert_eq!(client.call::<_, u64>(peer, ECHO, &sent), Ok(sent));
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn socket_file_is_private_and_removed_with_its_endpoint() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address: Address = format!("uds://{}", path.display()).parse().unwrap();
    // A socket file that a killed process has left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut one = endpoint(Config::default()).unwrap();
    one.listen(&address).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    drop(one);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn dropped_endpoint_keeps_the_socket_file_of_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut first = endpoint(Config::default()).unwrap();
    first.listen(&format!("uds://{}", path.display()).parse().unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists(), "the file belongs to another listener");
    drop(successor);
}

#[test]
fn path_with_a_held_lock_is_in_use_before_its_owner_listens() {
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address: Address = format!("uds://{}", path.display()).parse().unwrap();
    // Simulates a server between bind() and listen(): connecting is refused, as for a stale file.
    let lock = std::fs::File::create(folder.path().join("socket.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let inode = path.metadata().unwrap().ino();
    let mut second = endpoint(Config::default()).unwrap();
    let refused = second.listen(&address).unwrap_err();
    assert!(
        matches!(
            &refused,
            EndpointError::SystemCall { call: "flock", error, .. }
                if error.kind() == ErrorKind::AddrInUse
        ),
        "{refused}"
    );
    assert_eq!(path.metadata().unwrap().ino(), inode, "it was stolen");
    // That server is killed: its lock is free, and its files do not prevent listening. Not by
    // closing the file: a child that another test has just forked holds it open until it executes a
    // program.
    flock(&lock, FlockOperation::Unlock).unwrap();
    second.listen(&address).unwrap();
    drop(second);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "its lock goes with it");
}

#[test]
fn long_messages_wrap_around_the_smallest_shared_buffer() {
    let config = Config::default()
        .connections(ConnectionsConfig::default().message_bytes_max(1024))
        .shared_memory(SharedMemoryConfig::default().shared_bytes(4096));
    let server = serve("sm://", config.clone(), |_| {});
    let mut client = endpoint(config).unwrap();
    let peer = client.connect(&server.address).unwrap();
    let text = |number: u32| format!("{number:01000}");
    let within = Duration::from_secs(20);
    // Three calls are in flight: if only one were, its answer would free the whole buffer each
    // time.
    let mut calls = VecDeque::new();
    for number in 0..100 {
        calls.push_back(client.start_within(peer, ECHO, &text(number), within).unwrap());
        if calls.len() == 3 {
            let oldest = calls.pop_front().unwrap();
            assert_eq!(client.wait::<String>(oldest), Ok(text(number - 2)));
        }
    }
}

#[test]
fn requests_beyond_the_queue_limit_are_refused_and_their_sender_stays_connected() {
    for how in EACH {
        let config =
            Config::default().connections(ConnectionsConfig::default().queued_bytes_max(1 << 20));
        let server = serve(how, config, |server| {
            // Requests that come while the handler waits for an answer are put off, or refused.
            let busy = |context: &mut handover_rpc::Context<'_>, ()| {
                let peer = context.peer();
                while context.call::<_, bool>(peer, Method::new("is-held"), &()) == Ok(true) {}
                Ok(())
            };
            server.register("busy", 0, busy).unwrap();
        });
        let (mut client, peer) = client(&server);
        let held = Arc::new(AtomicBool::new(true));
        let is_held = Arc::clone(&held);
        client.register("is-held", 0, move |_, ()| Ok(is_held.load(Ordering::SeqCst))).unwrap();
        let keeps_busy = client.start::<_, ()>(peer, Method::new("busy"), &()).unwrap();
        // A string is encoded in one piece, a list of bytes one by one.
        let long = "7".repeat(64 << 10);
        let calls: Vec<_> =
            (0..40).map(|_| client.start::<_, String>(peer, ECHO, &long).unwrap()).collect();
        // This request exceeds the limit of put-off requests, so its refusal comes while the
        // handler is busy.
        let last = client.wait(calls[39]);
        assert_eq!(last.map(|_| ()), Err(CallError::PeerFull), "{how}");
        held.store(false, Ordering::SeqCst);
        let ends: Vec<_> = calls[..39].iter().map(|call| client.wait(*call).map(|_| ())).collect();
        let count = |end: Result<(), CallError>| ends.iter().filter(|it| **it == end).count();
        let (done, refused) = (count(Ok(())), count(Err(CallError::PeerFull)));
        assert!(done > 0 && done + refused == 39, "{how}: {ends:?}");
        assert!(client.wait(keeps_busy) == Ok(()) && client.is_connected(peer), "{how}");
    }
}

#[test]
fn request_longer_than_the_queue_limit_is_deferred_if_no_other_is() {
    let (ask, begin) = (Method::new("ask"), Method::new("begin"));
    for how in EACH {
        let config =
            Config::default().connections(ConnectionsConfig::default().queued_bytes_max(1 << 14));
        let server = serve(how, config, |server| {
            // Requests that arrive while it waits for the answer are deferred.
            let ask = move |context: &mut handover_rpc::Context<'_>, ()| {
                let peer = context.peer();
                context
                    .call::<_, ()>(peer, begin, &())
                    .map_err(|it| Failure::new(1, it.to_string()))
            };
            server.register("ask", 0, ask).unwrap();
        });
        let (mut client, peer) = client(&server);
        client.register("begin", 0, |_, ()| Ok(())).unwrap();
        let long = "7".repeat(64 << 10);
        let ask = client.start::<_, ()>(peer, ask, &()).unwrap();
        // Messages are read in order: this request before the answer to `begin`.
        let echo = client.start::<_, String>(peer, ECHO, &long).unwrap();
        assert_eq!(client.wait(ask), Ok(()), "{how}");
        assert!(client.wait(echo).as_ref() == Ok(&long), "{how}");
    }
}

#[test]
fn file_that_is_not_a_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "a letter").unwrap();
    let address = format!("uds://{}", path.display()).parse().unwrap();
    let refused = endpoint(Config::default()).unwrap().listen(&address).unwrap_err();
    assert!(matches!(refused, EndpointError::SystemCall { call: "bind", .. }), "{refused}");
    assert!(refused.to_string().contains("bind for "), "{refused}");
    assert!(std::error::Error::source(&refused).is_none(), "the message contains the cause");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a letter");
}

/// Returns `false`, and prints so, if this process may not open enough files or the kernel's queues
/// are too short.
fn has_room_for(connections_count: u64) -> bool {
    let files = getrlimit(Resource::Nofile);
    let wanted = 2 * connections_count + 200;
    let may_open = files.current.is_none_or(|it| it >= wanted)
        || files.maximum.is_none_or(|it| it >= wanted)
            && setrlimit(
                Resource::Nofile,
                rustix::process::Rlimit { current: files.maximum, ..files },
            )
            .is_ok();
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let queues = somaxconn.trim().parse::<u64>().unwrap() >= connections_count;
    if !may_open || !queues {
        println!("skipped: {connections_count} connections: RLIMIT_NOFILE or somaxconn is too low");
    }
    may_open && queues
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Connects to that address with a plain socket, without waiting for the endpoint to accept.
fn connect_by_hand(address: &Address) -> Box<dyn Stream> {
    // Ten times the time after which the first segment is sent again.
    let timeout = Duration::from_secs(10);
    if let Address::Tcp(place) = address {
        let stream = TcpStream::connect_timeout(&place.parse().unwrap(), timeout).unwrap();
        stream.set_read_timeout(Some(timeout)).unwrap();
        return Box::new(stream);
    }
    let name = address.without_scheme().strip_prefix('@').unwrap();
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(timeout)).unwrap();
    Box::new(stream)
}

fn hello() -> [u8; HELLO_BYTES] {
    let (slots_count, shared_bytes) = (0, 0);
    Hello {
        message_bytes_max: 4096,
        slots_count,
        shared_bytes,
        spins: false,
        has_secret: false,
        uses_ucx: false,
    }
    .encode()
}

#[test]
fn peers_that_connect_while_the_server_is_busy_are_all_accepted() {
    // More than the maximum number of handshakes.
    const PEERS: usize = 1200;
    if !has_room_for(PEERS as u64) {
        return;
    }
    for how in ["uds://", "tcp://127.0.0.1:0"] {
        let mut server = Endpoint::new(Config::default()).unwrap();
        let address = server.listen(&how.parse().unwrap()).unwrap();
        let began = Instant::now();
        let connect = |_| {
            let mut peer = connect_by_hand(&address);
            peer.write_all(&hello()).unwrap();
            peer
        };
        let mut peers: Vec<_> = (0..PEERS).map(connect).collect();
        while server.stats().peers_count < PEERS as u32 {
            server.progress(Duration::from_millis(5));
            let stats = server.stats();
            assert_eq!(stats.turned_away_count, 0, "{how}: {stats:?}");
            assert!(began.elapsed() < Duration::from_secs(50), "{how}: {stats:?}");
        }
        for peer in &mut peers {
            let mut answer = [0; HELLO_BYTES];
            peer.read_exact(&mut answer).unwrap();
            assert!(Hello::decode(&answer).is_ok());
        }
    }
}

/// Returns the number of connections that wait to be accepted at that TCP address.
fn waiting_count(address: &Address) -> usize {
    let port: u16 = address.without_scheme().rsplit_once(':').unwrap().1.parse().unwrap();
    let (listens, place) = ("0A", format!("0100007F:{port:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = words.into_iter().find(|it| it[1] == place && it[3] == listens).unwrap();
    usize::from_str_radix(found[4].split_once(':').unwrap().1, 16).unwrap()
}

#[test]
fn request_is_handled_before_all_waiting_connections_are_accepted() {
    const STRANGERS: usize = 1000;
    if !has_room_for(STRANGERS as u64) {
        return;
    }
    // While it spins, it would read the peer's stream before it asks for connections.
    let config = Config::default().spin_max(Duration::ZERO);
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
    let there = address.clone();
    server.register("waiting", 0, move |_, ()| Ok(waiting_count(&there))).unwrap();
    let mut peer = connect_by_hand(&address);
    peer.write_all(&hello()).unwrap();
    while server.stats().peers_count == 0 {
        server.progress(Duration::from_millis(5));
    }
    let strangers: Vec<_> = (0..STRANGERS).map(|_| connect_by_hand(&address)).collect();
    let method = Method::new("waiting").word();
    let (body_bytes, kind) = (0, handover_rpc::engine::FrameKind::Request);
    let request = handover_rpc::engine::FrameHeader { body_bytes, kind, method, call: 1 };
    peer.write_all(&request.encode()).unwrap();
    while server.stats().requests_count == 0 {
        server.progress(Duration::from_millis(5));
    }
    let mut answer = [0; HELLO_BYTES + handover_rpc::engine::FRAME_HEADER_BYTES];
    peer.read_exact(&mut answer).unwrap();
    let mut waiting = [0; 8];
    let count = peer.read(&mut waiting).unwrap();
    let waiting: usize = postcard::from_bytes(&waiting[..count]).unwrap();
    assert!(waiting >= STRANGERS / 2, "only {waiting} of {STRANGERS} still waited");
    drop(strangers);
}

#[test]
fn silent_connections_delay_a_peer_by_a_part_of_their_timeout() {
    const HANDSHAKES_MAX: u32 = 8;
    let limits = ConnectionsConfig::default()
        .handshakes_max(HANDSHAKES_MAX)
        .handshake_timeout(16 * Duration::from_millis(20));
    let config = Config::default().connections(limits);
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&"uds://".parse().unwrap()).unwrap();
    let _strangers: Vec<_> = (0..3 * HANDSHAKES_MAX).map(|_| connect_by_hand(&address)).collect();
    let began = Instant::now();
    let mut peer = connect_by_hand(&address);
    peer.write_all(&hello()).unwrap();
    while server.stats().peers_count == 0 {
        server.progress(Duration::from_millis(5));
        assert!(began.elapsed() < Duration::from_secs(50), "{:?}", server.stats());
    }
    // Two sets of handshakes had to be turned away first, each after 20 ms.
    assert!(began.elapsed() >= Duration::from_millis(40));
    assert!(server.stats().turned_away_count >= u64::from(2 * HANDSHAKES_MAX));
}

#[test]
fn handshakes_are_not_aborted_while_no_other_connection_waits() {
    let limits = ConnectionsConfig::default()
        .handshakes_max(2)
        .handshake_timeout(16 * Duration::from_millis(20));
    let mut server = Endpoint::new(Config::default().connections(limits)).unwrap();
    let address = server.listen(&"uds://".parse().unwrap()).unwrap();
    let strangers: Vec<_> = (0..2).map(|_| connect_by_hand(&address)).collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        server.progress(Duration::from_millis(5));
    }
    // If this thread does not get to run, their time may have passed.
    if began.elapsed() < Duration::from_millis(300) {
        assert_eq!(server.stats().turned_away_count, 0);
    }
    drop(strangers);
}

#[test]
fn test_returns_a_result_soon_after_its_arrival() {
    let server = serve("tcp://127.0.0.1:0", Config::default(), |_| {});
    let mut client = Endpoint::new(Config::default().spin_max(Duration::ZERO)).unwrap();
    let peer = client.connect(&server.address).unwrap();
    let call = client.start::<_, u64>(peer, Method::new("echo"), &7u64).unwrap();
    let mut count = 1;
    while client.test(call).is_none() {
        // Longer than a call takes, and than the time between two looks at epoll.
        thread::sleep(Duration::from_millis(20));
        count += 1;
    }
    assert!(count < 32, "found by test {count} only");
}

#[test]
fn client_reads_the_last_result_of_a_server_that_ended_with_unread_requests() {
    const BYTES: usize = 1 << 18;
    let (tell_handler_start, handler_start) = mpsc::channel();
    let (tell_request_sent, wait_for_request) = mpsc::channel::<()>();
    let (tell_address, server_address) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut server = Endpoint::new(Config::default()).unwrap();
        server
            .register("last", 0, move |context, ()| {
                context.stop();
                tell_handler_start.send(()).unwrap();
                wait_for_request.recv().unwrap();
                Ok(vec![7u8; BYTES])
            })
            .unwrap();
        server.register("other", 0, |_, _: Vec<u8>| Ok(())).unwrap();
        let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        tell_address.send(address).unwrap();
        server.serve();
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&server_address.recv().unwrap()).unwrap();
    let last = client.start::<_, Vec<u8>>(peer, Method::new("last"), &()).unwrap();
    client.progress(Duration::ZERO);
    handler_start.recv().unwrap();
    let bytes = vec![1u8; BYTES];
    let other = client.start::<_, ()>(peer, Method::new("other"), &bytes).unwrap();
    client.progress(Duration::ZERO);
    tell_request_sent.send(()).unwrap();
    // Its endpoint is dropped, and a part of the other request is unread there.
    server.join().unwrap();
    assert_eq!(client.wait(last), Ok(vec![7; BYTES]));
    let _ = client.wait(other);
}

/// Creates a listener that accepts no connection any more, with its address and the connections
/// that fill its queue.
fn full_listener(how: &str) -> (OwnedFd, Address, Vec<OwnedFd>) {
    let family = if how == "tcp" { AddressFamily::INET } else { AddressFamily::UNIX };
    let socket = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        net::socket_with(family, SocketType::STREAM, flags, None).unwrap()
    };
    let listener = socket();
    // Abstract names are those of all processes.
    let name = format!("handover-full-{}", std::process::id());
    if how == "tcp" {
        net::bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    } else {
        net::bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    }
    net::listen(&listener, 0).unwrap();
    let at = net::getsockname(&listener).unwrap();
    let address = match std::net::SocketAddr::try_from(at.clone()) {
        Ok(at) => Address::Tcp(at.to_string()),
        Err(_) => Address::Uds(format!("@{name}")),
    };
    let fillers = (0..4).map(|_| {
        let filler = socket();
        // Fails once the queue is full, or stays under way.
        let _ = net::connect(&filler, &at);
        filler
    });
    let fillers = fillers.collect();
    (listener, address, fillers)
}

#[test]
fn endpoint_serves_its_peers_while_it_connects() {
    for how in ["tcp", "uds"] {
        let (listener, unavailable, fillers) = full_listener(how);
        let config = Config::default().connections(
            ConnectionsConfig::default().handshake_timeout(Duration::from_millis(120_000)),
        );
        let mut server = Endpoint::new(config).unwrap();
        server.register("double", 0, |_, number: u64| Ok(2 * number)).unwrap();
        let address = server.listen(&"sm://".parse().unwrap()).unwrap();
        let client = std::thread::spawn(move || {
            let mut client = Endpoint::new(Config::default()).unwrap();
            let peer = client.connect(&address).unwrap();
            let doubled = client.call::<_, u64>(peer, Method::new("double"), &21u64);
            drop((listener, fillers));
            doubled
        });
        // Ends only when the listener is closed, after the call.
        let refused = server.connect(&unavailable).unwrap_err();
        assert!(
            matches!(refused, EndpointError::SystemCall { call: "connect", .. }),
            "{how}: {refused}"
        );
        assert_eq!(client.join().unwrap(), Ok(42), "{how}");
    }
}

#[test]
fn result_of_a_handler_that_stops_the_endpoint_arrives_completely() {
    const RESULT_BYTES: usize = 1_000_000; // More than a socket takes at once.
    for how in EACH {
        let mut server = serve(how, Config::default(), |server| {
            let last = |context: &mut Context<'_>, ()| {
                context.stop();
                Ok(vec![7u8; RESULT_BYTES])
            };
            server.register("last", 0, last).unwrap();
        });
        let (mut client, peer) = client(&server);
        let call = client.start::<_, Vec<u8>>(peer, Method::new("last"), &()).unwrap();
        let server = server.thread.take().unwrap();
        let dropped = thread::spawn(move || drop(server.join().unwrap()));
        assert_eq!(client.wait(call).map(|it| it.len()), Ok(RESULT_BYTES), "{how}");
        dropped.join().unwrap();
    }
}

#[test]
fn close_that_arrives_together_with_a_request_is_noticed() {
    for how in ["uds://", "tcp://127.0.0.1:0"] {
        let mut server = Endpoint::new(Config::default().spin_max(Duration::ZERO)).unwrap();
        server.register("noop", 0, |_, ()| Ok(())).unwrap();
        let address = server.listen(&how.parse().unwrap()).unwrap();
        let client = thread::spawn(move || {
            let mut client = Endpoint::new(Config::default()).unwrap();
            let peer = client.connect(&address).unwrap();
            (client, peer)
        });
        while !client.is_finished() || server.stats().peers_count == 0 {
            server.progress(Duration::from_millis(10));
        }
        while server.progress(Duration::from_millis(10)) {}
        let (mut client, peer) = client.join().unwrap();
        client.send(peer, Method::new("noop"), &()).unwrap();
        drop(client);
        let begun = Instant::now();
        while server.stats().peers_count > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "{how}: the peer is still connected"
            );
            server.progress(Duration::from_millis(10));
        }
        assert_eq!(server.stats().requests_count, 1, "{how}");
    }
}

#[test]
fn handler_that_calls_a_peer_already_reported_as_closed_gets_an_error() {
    const CALLBACK: Method = Method::new("callback");
    // As many requests as are received before the reported end is handled: see FRAMES_MAX.
    const REQUESTS_BEFORE: u32 = 64;
    for clients_count in [1, 2] {
        let mut server = Endpoint::new(Config::default().spin_max(Duration::ZERO)).unwrap();
        let (outcome, outcomes) = mpsc::channel();
        let callee = Arc::new(Mutex::new(None));
        let known = Arc::clone(&callee);
        server.register("noop", 0, |_, ()| Ok(())).unwrap();
        let callback = move |context: &mut Context<'_>, ()| {
            let peer = known.lock().unwrap().unwrap_or(context.peer());
            outcome.send(context.call::<_, ()>(peer, Method::new("noop"), &())).unwrap();
            Ok(())
        };
        server.register("callback", 0, callback).unwrap();
        let register = move |context: &mut Context<'_>, ()| {
            *callee.lock().unwrap() = Some(context.peer());
            Ok(())
        };
        server.register("register", 0, register).unwrap();
        let address = server.listen(&"sm://".parse().unwrap()).unwrap();
        let connecting = thread::spawn(move || {
            let connect = |_| {
                let memory = SharedMemoryConfig::default().slots_count(256);
                let mut client = Endpoint::new(Config::default().shared_memory(memory)).unwrap();
                let peer = client.connect(&address).unwrap();
                (client, peer)
            };
            let mut clients: Vec<_> = (0..clients_count).map(connect).collect();
            // The ends are reported in the order of the drops: that of the callee is the last.
            let (client, peer) = clients.last_mut().unwrap();
            client.call::<_, ()>(*peer, Method::new("register"), &()).unwrap();
            clients
        });
        while !connecting.is_finished() {
            server.progress(Duration::from_millis(10));
        }
        while server.progress(Duration::from_millis(10)) {}
        let mut clients = connecting.join().unwrap();
        let (client, peer) = &mut clients[0];
        for _ in 0..REQUESTS_BEFORE {
            client.send(*peer, Method::new("noop"), &()).unwrap();
        }
        client.send(*peer, CALLBACK, &()).unwrap();
        drop(clients);
        // So long that the next call of `progress` begins with one of epoll.
        thread::sleep(Duration::from_millis(5));
        thread::spawn(move || server.progress(Duration::from_secs(1)));
        let called = outcomes.recv_timeout(Duration::from_secs(10)).expect("the call waits");
        let closed = CallError::Disconnected(CloseReason::ClosedByPeer);
        assert_eq!(called, Err(closed), "{clients_count} clients");
    }
}
