//! Tests of `ucx://` between two processes, for several choices of UCX's transports. They are
//! skipped where UCX's library cannot be loaded.

use handover_rpc::{
    AccessConfig, Address, AuthenticationError, Bulk, BulkError, BulkHandle, BulkMemory, BulkPart,
    BulkPath, CallError, Calling, CloseReason, Config, Endpoint, EndpointError, FrameError, Method,
    Peer, Rights,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ECHO: Method = Method::new("echo");
const COUNT: Method = Method::new("count");
const WAIT: Method = Method::new("wait");
const HANDLES: Method = Method::new("handles");
const SUM: Method = Method::new("sum");
/// Length of the server's memories, in bytes.
const MEMORY_BYTES: usize = (3 << 20) + 5;
/// Liveness limit of everything that is waited for.
const SOON: Duration = Duration::from_secs(20);
const SECRET: &str = "0123456789abcdef0123456789abcdef";

type Test = (&'static str, fn());

/// Tests for each choice of transports between two processes.
const TESTS: &[Test] = &[
    ("calls_of_all_lengths_return_their_results", calls_of_all_lengths_return),
    ("thousand_calls_under_way_return_their_own_results", thousand_calls_under_way),
    ("waiting_endpoint_sleeps_and_is_woken", waiting_endpoint_sleeps),
    ("one_way_requests_before_a_disconnect_arrive", one_way_requests_before_a_disconnect),
    ("killed_server_is_an_error", killed_server_is_an_error),
    ("killed_client_is_forgotten", killed_client_is_forgotten),
    ("killed_owner_of_memory_is_an_error", killed_owner_is_an_error),
    ("memory_is_pulled_and_pushed", memory_is_pulled_and_pushed),
    ("withdrawn_memory_is_refused_and_returned", withdrawn_memory_is_refused),
    ("secret_admits_only_peers_that_know_it", secret_admits_only_those_that_know_it),
    ("other_transport_is_an_error_on_both_sides", other_transport_is_an_error),
];

/// Choices of UCX's transports (`UCX_TLS`), `None` for the library's own choice; and the address of
/// the server. From the second address of the loopback, the server counts as another host, whose
/// failure UCX reports.
const CHOICES: &[(Option<&str>, &str)] = &[
    (Some("tcp"), "ucx://127.0.0.2:0"),
    (Some("tcp"), "ucx://"),
    (Some("posix,self"), "ucx://"),
    (Some("sysv,cma,self"), "ucx://"),
    (None, "ucx://"),
];
/// Environment variable with the address on which servers listen.
const LISTEN_ON: &str = "HANDOVER_TEST_LISTEN_ON";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", secret] => return serve(secret),
        ["call", address] => return call_and_wait(address),
        ["run", wanted] => {
            for (name, test) in TESTS.iter().filter(|it| it.0.contains(wanted)) {
                let began = Instant::now();
                test();
                println!("test {name} ... ok ({:.1} s)", began.elapsed().as_secs_f64());
            }
            return ExitCode::SUCCESS;
        }
        ["self"] => {
            endpoint_calls_itself();
            return ExitCode::SUCCESS;
        }
        ["--list", ..] => {
            TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let wanted = words.iter().find(|it| !it.starts_with('-')).copied().unwrap_or_default();
    if let Err(error) = endpoint().listen(&ucx()) {
        println!("skipped: {error}");
        return ExitCode::SUCCESS;
    }
    for (choice, address) in CHOICES {
        println!("UCX_TLS: {}, server: {address}", choice.unwrap_or("not set"));
        run_with(*choice, address, &["run", wanted]);
    }
    run_with(Some("self"), "ucx://", &["self"]);
    println!("test result: ok");
    ExitCode::SUCCESS
}

/// Runs this program again with a choice of transports, which the library reads once, and an
/// address of the servers.
fn run_with(choice: Option<&str>, address: &str, arguments: &[&str]) {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(arguments).env_remove("UCX_TLS").env_remove("UCX_NET_DEVICES");
    command.env(LISTEN_ON, address);
    choice.map(|it| command.env("UCX_TLS", it));
    let status = command.status().expect("start the program");
    assert!(status.success(), "UCX_TLS={choice:?}, server {address}, {arguments:?}: {status}");
}

fn ucx() -> Address {
    let address = std::env::var(LISTEN_ON).unwrap_or_else(|_| "ucx://".into());
    address.parse().expect("parse the address")
}

fn endpoint() -> Endpoint {
    Endpoint::new(Config::default()).expect("create an endpoint")
}

/// Server process, which is killed when this value is dropped.
struct Server {
    child: Child,
    address: Address,
}

impl Server {
    fn start(secret: &str) -> Self {
        let mut child = start(&["serve", secret]);
        let line = read_line(&mut child);
        Self { child, address: line.parse().expect("parse the address") }
    }

    fn connected() -> (Self, Endpoint, Peer) {
        let server = Self::start("");
        let mut client = endpoint();
        let peer = client.connect(&server.address).expect("connect to the server");
        (server, client, peer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

fn kill(child: &mut Child) {
    child.kill().expect("kill the process");
    child.wait().expect("wait for the process");
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("start the program")
}

fn read_line(child: &mut Child) -> String {
    let mut line = String::new();
    let output = child.stdout.as_mut().expect("its output is piped");
    BufReader::new(output).read_line(&mut line).expect("read a line");
    line.trim().to_owned()
}

fn say(what: impl std::fmt::Display) {
    println!("{what}");
    std::io::stdout().flush().expect("write a line");
}

/// Creates a file with a secret, in a folder that is removed with the returned value.
fn secret_file(secret: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("create a temporary folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).expect("write the secret");
    let path = path.to_str().expect("the path is text").to_owned();
    (folder, path)
}

/// Role: serves until it is killed.
fn serve(secret: &str) -> ExitCode {
    let file = (!secret.is_empty()).then(|| secret_file(secret));
    let secret_file = file.as_ref().map(|it| it.1.clone());
    let mut server =
        Endpoint::new(Config::default().access(AccessConfig::default().secret_file(secret_file)))
            .expect("create an endpoint");
    let address = server.listen(&ucx()).expect("listen");
    let memories = [
        BulkMemory::plain(vec![7; MEMORY_BYTES]),
        BulkMemory::shared(MEMORY_BYTES).expect("allocate memory"),
        server.allocate_memory(MEMORY_BYTES).expect("allocate memory"),
    ];
    assert!(memories[2].to_vec().iter().all(|&it| it == 0), "the memory is not zeroed");
    let handles = [0, 1, 2].map(|at| {
        server.register_memory(&memories[at], Rights::ReadWrite).expect("register the memory")
    });
    server.register("echo", 0, |_, bytes: Vec<u8>| Ok(bytes)).expect("register");
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    // Relaxed: a counter of one thread.
    let note = move |_: &mut handover_rpc::Context<'_>, ()| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    server.register("note", 0, note).expect("register");
    let read = move |_: &mut handover_rpc::Context<'_>, ()| Ok(count.load(Ordering::Relaxed));
    server.register("count", 0, read).expect("register");
    server.register("handles", 0, move |_, ()| Ok(handles)).expect("register");
    let sum = move |_: &mut handover_rpc::Context<'_>, number: u32| {
        let bytes = memories[number as usize].to_vec();
        Ok(bytes.iter().zip(1u64..).map(|(&it, at)| u64::from(it) * at).fold(0, u64::wrapping_add))
    };
    server.register("sum", 0, sum).expect("register");
    server.start_pool().expect("start the pool");
    let wait = |ms: u64| {
        std::thread::sleep(Duration::from_millis(ms));
        Ok(ms)
    };
    server.register_pooled("wait", 0, wait).expect("register");
    say(address);
    server.serve();
    ExitCode::SUCCESS
}

fn calls_of_all_lengths_return() {
    let (_server, mut client, peer) = Server::connected();
    for length in [0, 1, 40, 60, 100, 5_000, 8_192, 100_000, (1 << 20) - 16] {
        let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let returned = client.call::<_, Vec<u8>>(peer, ECHO, &sent).expect("call echo");
        assert!(returned == sent, "{length} bytes came back changed");
    }
    assert_eq!(client.bulk_stats().refused_count, 0);
}

fn thousand_calls_under_way() {
    let (_server, mut client, peer) = Server::connected();
    for length in [8, 3_000] {
        let calls = (0..1000u32).map(|number| {
            let mut bytes = vec![1; length];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            let call = client.start::<_, Vec<u8>>(peer, ECHO, &bytes).expect("start a call");
            (number, call)
        });
        for (number, call) in calls.collect::<Vec<_>>() {
            let returned = client.wait(call).expect("wait for the result");
            assert_eq!((returned.len(), &returned[..4]), (length, &number.to_le_bytes()[..]));
        }
    }
}

fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn waiting_endpoint_sleeps() {
    let (_server, mut client, peer) = Server::connected();
    let (began, cpu_before) = (Instant::now(), thread_cpu_time());
    assert_eq!(client.call(peer, WAIT, &500u64), Ok(500u64));
    let (waited, spent) = (began.elapsed(), thread_cpu_time() - cpu_before);
    assert!(waited >= Duration::from_millis(500) && waited < SOON, "the call took {waited:?}");
    assert!(spent < Duration::from_millis(250), "the waiting thread used {spent:?} of CPU time");
}

fn one_way_requests_before_a_disconnect() {
    let (server, mut client, peer) = Server::connected();
    for _ in 0..1000 {
        client.send(peer, Method::new("note"), &()).expect("send a request");
    }
    client.disconnect(peer);
    let peer = client.connect(&server.address).expect("connect again");
    let began = Instant::now();
    while client.call(peer, COUNT, &()) != Ok(1000u64) {
        assert!(began.elapsed() < SOON, "requests were lost");
    }
    let mut other = endpoint();
    let peer = other.connect(&server.address).expect("connect");
    other.send(peer, Method::new("note"), &()).expect("send a request");
    drop(other);
    let peer = client.connect(&server.address).expect("connect again");
    while client.call(peer, COUNT, &()) != Ok(1001u64) {
        assert!(began.elapsed() < SOON, "the request of a dropped endpoint was lost");
    }
}

fn killed_server_is_an_error() {
    let (mut server, mut client, peer) = Server::connected();
    assert_eq!(client.call(peer, WAIT, &0u64), Ok(0u64));
    let call = client.start::<_, u64>(peer, WAIT, &60_000u64).expect("start a call");
    assert_eq!(client.test(call), None);
    kill(&mut server.child);
    let killed = Instant::now();
    let ended = client.wait(call);
    let is_gone = matches!(
        ended,
        Err(CallError::Disconnected(CloseReason::ClosedByPeer | CloseReason::Ucx(_)))
    );
    assert!(is_gone, "{ended:?}");
    assert!(killed.elapsed() < SOON, "the error came after {:?}", killed.elapsed());
    assert_eq!(client.call::<_, u64>(peer, WAIT, &0u64), Err(CallError::Stale));
    // The endpoint remains usable.
    let server = Server::start("");
    let peer = client.connect(&server.address).expect("connect to another server");
    assert_eq!(client.call(peer, WAIT, &1u64), Ok(1u64));
}

/// Role: calls the server, and then waits to be killed.
fn call_and_wait(address: &str) -> ExitCode {
    let mut client = endpoint();
    let peer = client.connect(&address.parse().expect("an address")).expect("connect");
    assert_eq!(client.call(peer, WAIT, &0u64), Ok(0u64));
    let _ = client.call::<_, u64>(peer, WAIT, &60_000u64);
    std::thread::sleep(SOON);
    ExitCode::FAILURE
}

fn killed_client_is_forgotten() {
    let mut server = endpoint();
    let address = server.listen(&ucx()).expect("listen");
    server.start_pool().expect("start the pool");
    let wait = |ms: u64| {
        std::thread::sleep(Duration::from_millis(ms.min(100)));
        Ok(ms)
    };
    server.register_pooled("wait", 0, wait).expect("register");
    let mut others = [(); 2].map(|()| start(&["call", &address.to_string()]));
    let mut serve_until = |peers_count: u32, requests_count: u64| {
        let began = Instant::now();
        while server.stats().peers_count != peers_count
            || server.stats().requests_count < requests_count
        {
            server.progress(Duration::from_millis(1));
            assert!(began.elapsed() < SOON, "{:?}", server.stats());
        }
    };
    serve_until(2, 4);
    others.iter_mut().for_each(kill);
    serve_until(0, 4);
}

fn killed_owner_is_an_error() {
    let (mut server, mut client, peer) = Server::connected();
    let handles: [BulkHandle; 3] = client.call(peer, HANDLES, &()).expect("call");
    let ours = BulkMemory::plain(vec![0; MEMORY_BYTES]);
    let part = BulkPart::new(MEMORY_BYTES as u64);
    client.pull(peer, &handles[0], &ours, part).expect("pull");
    let start = |client: &mut Endpoint| client.start_pull(peer, &handles[0], &ours, part);
    let transfers: Vec<_> = (0..20).map(|_| start(&mut client).expect("start to pull")).collect();
    kill(&mut server.child);
    let killed = Instant::now();
    for transfer in transfers {
        // Those that were complete before have succeeded. UCX's error comes first where it reports
        // failures.
        let ended = client.wait_transfer(transfer);
        let is_gone = matches!(
            ended,
            Err(BulkError::Disconnected(CloseReason::ClosedByPeer | CloseReason::Ucx(_)))
        );
        assert!(ended.is_ok() || is_gone, "{ended:?}");
    }
    assert!(killed.elapsed() < SOON, "the error came after {:?}", killed.elapsed());
    let began = Instant::now();
    while client.is_connected(peer) {
        client.progress(Duration::from_millis(1));
        assert!(began.elapsed() < SOON, "the killed owner is still connected");
    }
}

/// Returns the sum that the server's procedure `sum` computes of these bytes.
fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().zip(1u64..).map(|(&it, at)| u64::from(it) * at).fold(0, u64::wrapping_add)
}

fn memory_is_pulled_and_pushed() {
    let (_server, mut client, peer) = Server::connected();
    let handles: [BulkHandle; 3] = client.call(peer, HANDLES, &()).expect("call");
    for (number, handle) in (0u32..).zip(handles) {
        for kind in ["plain", "shared", "allocated"] {
            let content: Vec<u8> =
                (0..MEMORY_BYTES).map(|at| (at % (240 + number as usize)) as u8).collect();
            let [ours, back] = [content.clone(), vec![0; MEMORY_BYTES]].map(|bytes| {
                let memory = match kind {
                    "plain" => return BulkMemory::plain(bytes),
                    "shared" => BulkMemory::shared(MEMORY_BYTES).expect("allocate memory"),
                    _ => client.allocate_memory(MEMORY_BYTES).expect("allocate memory"),
                };
                memory.write(0, &bytes);
                memory
            });
            let all = BulkPart::new(MEMORY_BYTES as u64).timeout(SOON);
            client.push(peer, &handle, &ours, all).expect("push all");
            assert_eq!(client.bulk_path(peer, &handle), Some(BulkPath::Remote));
            assert_eq!(client.call(peer, SUM, &number), Ok(sum_of(&content)));
            client.pull(peer, &handle, &back, all).expect("pull all");
            assert!(back.to_vec() == content, "other bytes came back");
            for (theirs, ours_at, bytes) in [(5, 1, 1), (1000, 0, 0), (77, 33, 70_001)] {
                let part = BulkPart::new(bytes).offsets(theirs, ours_at).timeout(SOON);
                client.pull(peer, &handle, &back, part).expect("pull a part");
                let mut expected = vec![0; bytes as usize];
                ours.read(theirs, &mut expected);
                let mut found = vec![0; bytes as usize];
                back.read(ours_at, &mut found);
                assert!(found == expected, "other bytes came back");
            }
            // Several segments on this side, and several transfers at the same time.
            let parts = [100_000, 1, MEMORY_BYTES - 100_001];
            let joined =
                BulkMemory::joined(parts.map(|it| BulkMemory::plain(vec![0; it]))).expect("join");
            let half = MEMORY_BYTES as u64 / 2;
            let halves = [(0, half), (half, MEMORY_BYTES as u64 - half)].map(|(at, bytes)| {
                let part = BulkPart::new(bytes).offsets(at, at).timeout(SOON);
                client.start_pull(peer, &handle, &joined, part).expect("start to pull")
            });
            for transfer in halves {
                client.wait_transfer(transfer).expect("pull a half");
            }
            assert!(joined.to_vec() == content, "other bytes came back");
        }
    }
}

fn withdrawn_memory_is_refused() {
    let mut server = endpoint();
    let address = server.listen(&ucx()).expect("listen");
    let memory = BulkMemory::plain(vec![3; 100_000]);
    let handle = server.register_memory(&memory, Rights::Read).expect("register the memory");
    let stop = server.stopper();
    server.register("handle", 0, move |_, ()| Ok(handle)).expect("register");
    let withdraw = move |context: &mut handover_rpc::Context<'_>, ()| {
        Ok(context.withdraw_memory(&handle, SOON).is_ok())
    };
    server.register("withdraw", 0, withdraw).expect("register");
    let serving = std::thread::spawn(move || {
        server.serve();
        server
    });
    let mut client = endpoint();
    let peer = client.connect(&address).expect("connect");
    let handle: BulkHandle = client.call(peer, Method::new("handle"), &()).expect("call");
    let ours = BulkMemory::plain(vec![0; 100_000]);
    let part = BulkPart::new(100_000);
    client.pull(peer, &handle, &ours, part).expect("pull");
    let refused = client.push(peer, &handle, &ours, part).map_err(|it| it.to_string());
    assert!(refused.is_err_and(|it| it.contains("right")), "pushed into read-only memory");
    assert_eq!(client.call(peer, Method::new("withdraw"), &()), Ok(true));
    let refused = client.pull(peer, &handle, &ours, part);
    assert!(matches!(refused, Err(BulkError::Refused(_))), "{refused:?}");
    stop.stop();
    let server = serving.join().expect("the other thread panicked");
    assert_eq!(memory.into_vecs().expect("no other holder is left"), [vec![3; 100_000]]);
    drop(server);
}

fn secret_admits_only_those_that_know_it() {
    let server = Server::start(SECRET);
    let connect = |secret: Option<&str>| {
        let file = secret.map(secret_file);
        let secret_file = file.as_ref().map(|it| it.1.clone());
        let config = Config::default().access(AccessConfig::default().secret_file(secret_file));
        let mut client = Endpoint::new(config).expect("create an endpoint");
        let peer = client.connect(&server.address)?;
        Ok(client.call::<_, u64>(peer, WAIT, &1u64))
    };
    let refusal = |result: Result<_, EndpointError>| match result {
        Err(EndpointError::Handshake { why: CloseReason::Authentication(why), .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(connect(Some(SECRET)).expect("connect"), Ok(1));
    assert_eq!(refusal(connect(None)), AuthenticationError::SecretRequired);
    let other = SECRET.replace('0', "1");
    assert_eq!(refusal(connect(Some(&other))), AuthenticationError::WrongSecret);
}

fn other_transport_is_an_error() {
    let server = Server::start("");
    let address: Address = Address::Tcp(server.address.without_scheme().into());
    let refused = |result: Result<Peer, EndpointError>| match result {
        Err(EndpointError::Handshake { why: CloseReason::Protocol(why), .. }) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(endpoint().connect(&address)), FrameError::OtherTransport);
    let mut server = endpoint();
    let address = server.listen(&"tcp://".parse().expect("an address")).expect("listen");
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || server.serve());
    let address = Address::Ucx(address.without_scheme().into());
    assert_eq!(refused(endpoint().connect(&address)), FrameError::OtherTransport);
    stopper.stop();
    serving.join().expect("the other thread panicked");
}

/// Tests an endpoint that is connected to itself, over UCX's transport within one worker.
fn endpoint_calls_itself() {
    let mut endpoint = endpoint();
    let address = endpoint.listen(&ucx()).expect("listen");
    endpoint.register("echo", 0, |_, bytes: Vec<u8>| Ok(bytes)).expect("register");
    let peer = endpoint.connect(&address).expect("connect");
    for length in [0, 100, 20_000] {
        let sent = vec![5; length];
        // A call handles requests only while it is driven from outside of handlers.
        let call = endpoint.start::<_, Vec<u8>>(peer, ECHO, &sent).expect("start a call");
        let began = Instant::now();
        let returned = loop {
            endpoint.progress(Duration::from_millis(1));
            if let Some(returned) = endpoint.test(call) {
                break returned;
            }
            assert!(began.elapsed() < SOON, "the call does not return");
        };
        assert!(returned == Ok(sent), "{length} bytes came back changed");
    }
    println!("test endpoint_calls_itself ... ok");
}
