//! Tests of statistics, dumps, configurations, timers, and callbacks at the end of an endpoint.

use handover_rpc::{
    AccessConfig, CallError, CallOutcome, CallRole, CallbackContext, Calling, Config, ConfigError,
    ConnectionsConfig, Dump, Endpoint, EndpointError, Failure, Method, ObservedCall, PoolConfig,
    SharedMemoryConfig, Timing,
};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ECHO: Method = Method::new("echo");
const MS: Duration = Duration::from_millis(1);

/// Creates two connected endpoints in this thread, and returns the client's key of the server.
fn pair(server: Config, client: Config) -> (Endpoint, Endpoint, handover_rpc::Peer) {
    let mut server = Endpoint::new(server.listen(vec!["sm://".parse().unwrap()])).unwrap();
    server.register("echo", 0, |_, bytes: Vec<u8>| Ok(bytes)).unwrap();
    server.register("fail", 3, |_, ()| Err::<(), _>(Failure::new(1, "no"))).unwrap();
    let address = server.addresses().next().unwrap().clone();
    let connecting = std::thread::spawn(move || {
        let mut client = Endpoint::new(client).unwrap();
        let peer = client.connect(&address).unwrap();
        (client, peer)
    });
    while server.peers().next().is_none() {
        server.progress(10 * MS);
    }
    let (client, peer) = connecting.join().unwrap();
    (server, client, peer)
}

/// Starts a call, and runs the other endpoint until it has answered.
fn ask(server: &mut Endpoint, client: &mut Endpoint, peer: handover_rpc::Peer, name: Method) {
    let call = match name {
        ECHO => client.start::<_, ()>(peer, name, &[7u8; 10][..]).unwrap(),
        _ => client.start::<_, ()>(peer, name, &()).unwrap(),
    };
    while client.test(call).is_none() {
        server.progress(Duration::ZERO);
    }
}

#[test]
fn calls_are_counted_by_procedure_at_both_ends() {
    let watched = Config::default().monitoring(true);
    let (mut server, mut client, peer) = pair(watched.clone(), watched);
    client.name_method("echo", 0);
    for _ in 0..5 {
        ask(&mut server, &mut client, peer, ECHO);
    }
    ask(&mut server, &mut client, peer, Method::new("fail").with_provider(3));
    ask(&mut server, &mut client, peer, Method::new("nobody registers this"));

    let counts = |endpoint: &Endpoint, side| {
        let of_side = endpoint.calls_report().into_iter().filter(move |it| it.side == side);
        of_side.map(|it| (it.name, it.provider, it.count, it.failed_count)).collect::<Vec<_>>()
    };
    // Unknown procedures are not counted at the server: peers could send any number of them.
    let known = [("echo".to_string(), 0, 5, 0), ("fail".to_string(), 3, 1, 1)];
    assert_eq!(counts(&server, CallRole::Server), known);
    assert_eq!(counts(&server, CallRole::Caller), []);
    let seen = counts(&client, CallRole::Caller);
    assert_eq!(seen.len(), 3);
    assert!(seen.contains(&("echo".into(), 0, 5, 0)));
    assert!(seen.iter().filter(|it| it.0.starts_with("0x")).all(|it| (it.2, it.3) == (1, 1)));

    let echo = client.calls_report().into_iter().find(|it| it.name == "echo").unwrap();
    // A length of one byte, and ten bytes.
    assert_eq!((echo.arguments_bytes, echo.result_bytes), (55, 55));
    let its = echo.latency_ns;
    assert!(0 < its.min && its.min <= its.p50 && its.p50 <= its.p99 && its.p99 <= its.max);
}

#[test]
fn observer_is_called_once_for_each_call_whatever_its_outcome() {
    let (mut server, mut client, peer) = pair(Config::default(), Config::default());
    let (tell, told) = channel();
    client.observe(move |it: &ObservedCall<'_>| tell.send((it.method, it.ending)).unwrap());
    client.name_method("echo", 0);
    ask(&mut server, &mut client, peer, ECHO);
    let fail = Method::new("fail").with_provider(3);
    ask(&mut server, &mut client, peer, fail);
    client.send(peer, ECHO, &[1u8][..]).unwrap();
    let given_up = client.start::<_, ()>(peer, ECHO, &()).unwrap();
    client.cancel(given_up);
    client.start::<_, ()>(peer, fail, &()).unwrap();
    drop(server);
    while client.is_connected(peer) {
        client.progress(10 * MS);
    }
    let ends: Vec<_> = told.try_iter().collect();
    assert_eq!(
        ends,
        [
            (ECHO, CallOutcome::Result),
            (fail, CallOutcome::Refused),
            (ECHO, CallOutcome::Result),
            (ECHO, CallOutcome::Cancelled),
            (fail, CallOutcome::Disconnected),
        ]
    );
}

#[test]
fn signal_wakes_the_endpoint_and_passes_its_dump_to_the_callback() {
    let (mut server, mut client, peer) =
        pair(Config::default().monitoring(true), Config::default());
    let (sender, dumps) = channel();
    let to_json = move |dump: &Dump| sender.send(serde_json::to_value(dump).unwrap()).unwrap();
    server.dump_on(Signal::USR1.as_raw(), to_json).unwrap();
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || server.serve());
    let _: Vec<u8> = client.call(peer, ECHO, &[1u8, 2][..]).unwrap();
    // The server most likely sleeps by now, and is woken by the signal.
    std::thread::sleep(20 * MS);
    kill_process(getpid(), Signal::USR1).unwrap();
    let dump = dumps.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(dump["pid"], std::process::id());
    assert_eq!(dump["stats"]["peers_count"], 1);
    assert_eq!(dump["peers"][0]["is_in_memory"], true);
    assert_eq!(
        (&dump["calls"][0]["name"], &dump["calls"][0]["count"]),
        (&"echo".into(), &1.into())
    );
    assert!(dump["config"]["listen"][0].as_str().unwrap().len() > "sm://".len(), "resolved");
    assert!(dumps.try_recv().is_err(), "one signal, one dump");
    stopper.stop();
    serving.join().unwrap();
}

#[test]
fn timers_call_in_the_order_of_their_deadlines_and_never_early() {
    let mut endpoint = Endpoint::new(Config::default().timers_max(3)).unwrap();
    let (tell, told) = channel();
    let began = Instant::now();
    for ms in [30, 10] {
        let tell = tell.clone();
        endpoint
            .start_timer(ms * MS, move |moment| {
                tell.send((ms, began.elapsed())).unwrap();
                if ms == 30 {
                    moment.start_timer(5 * MS, |moment| moment.stop()).unwrap();
                }
            })
            .unwrap();
    }
    let never = endpoint.start_timer(20 * MS, |_| panic!("it was cancelled")).unwrap();
    let full = endpoint.start_timer(MS, |_| ()).unwrap_err();
    assert_eq!(full.to_string(), "3 timers are running: raise timers_max, or cancel some");
    assert!(endpoint.cancel_timer(never) && !endpoint.cancel_timer(never));
    endpoint.serve();
    assert!(began.elapsed() >= 35 * MS);
    let order: Vec<_> = told.try_iter().collect();
    assert_eq!(order.iter().map(|it| it.0).collect::<Vec<_>>(), [10, 30]);
    assert!(order.iter().all(|(ms, at)| *at >= *ms * MS), "{order:?}");
}

#[test]
fn timers_due_before_a_sleep_are_handled_at_once() {
    fn chain(moment: &mut CallbackContext<'_>, left: u32) {
        match left {
            0 => moment.stop(),
            _ => {
                let next = move |moment: &mut CallbackContext<'_>| chain(moment, left - 1);
                moment.start_timer(Duration::ZERO, next).unwrap();
            }
        }
    }
    let mut endpoint = Endpoint::new(Config::default().spin_max(Duration::ZERO)).unwrap();
    endpoint.start_timer(Duration::ZERO, |moment| chain(moment, 20_000)).unwrap();
    let (stopper, (end, ended)) = (endpoint.stopper(), channel::<()>());
    let watchman = std::thread::spawn(move || {
        let slept_through = ended.recv_timeout(Duration::from_secs(60)).is_err();
        if slept_through {
            stopper.stop();
        }
        slept_through
    });
    endpoint.serve();
    end.send(()).unwrap();
    assert!(!watchman.join().unwrap());
}

/// Drives an endpoint until `is_done`. A single call of `progress` may return after other work,
/// such as a cancellation.
fn progress_until(endpoint: &mut Endpoint, mut is_done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_done() {
        assert!(Instant::now() < until, "not within 60 s");
        endpoint.progress(Duration::from_secs(1));
    }
}

#[test]
fn timer_runs_after_the_handler_has_returned_and_can_call_peers() {
    let (mut server, mut client, peer) = pair(Config::default(), Config::default());
    let fired = Arc::new(AtomicU64::new(0));
    let (its, seen) = (Arc::clone(&fired), Arc::clone(&fired));
    server
        .register("slow", 0, move |context, ()| {
            let its = Arc::clone(&its);
            // Relaxed: a single thread.
            let fires =
                move |_: &mut handover_rpc::CallbackContext<'_>| its.store(1, Ordering::Relaxed);
            context.start_timer(MS, fires).unwrap();
            // Waits for an answer that does not come, while the timer becomes due.
            let peer = context.peer();
            let late = context.call_within::<_, ()>(peer, ECHO, &(), 20 * MS);
            assert_eq!(late, Err(CallError::Deadline));
            Ok(seen.load(Ordering::Relaxed))
        })
        .unwrap();
    let call = client.start::<_, u64>(peer, Method::new("slow"), &()).unwrap();
    let mut seen = None;
    progress_until(&mut server, || {
        seen = client.test(call);
        seen.is_some()
    });
    assert_eq!(seen, Some(Ok(0)), "not within the handler");
    progress_until(&mut server, || fired.load(Ordering::Relaxed) == 1);

    let (tell, told) = channel();
    client.start_timer(MS, move |moment| tell.send(moment.is_connected(peer)).unwrap()).unwrap();
    let mut is_connected = None;
    progress_until(&mut client, || {
        is_connected = is_connected.or(told.try_recv().ok());
        is_connected.is_some()
    });
    assert_eq!(is_connected, Some(true));
}

#[test]
fn end_callbacks_run_in_reverse_order_before_the_disconnection() {
    let (mut server, mut client, peer) = pair(Config::default(), Config::default());
    let order = Arc::new(Mutex::new(Vec::new()));
    let says = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(what)
    };
    client.after_disconnect(says("after, first"));
    client.after_disconnect(says("after, second"));
    let (first, second) = (says("before, first"), says("before, second"));
    client.before_disconnect(move |_| first());
    client.before_disconnect(move |moment| {
        assert!(moment.is_connected(peer));
        moment.send(peer, ECHO, &[1u8][..]).unwrap();
        second();
    });
    drop(client);
    let all = ["before, second", "before, first", "after, second", "after, first"];
    assert_eq!(*order.lock().unwrap(), all);
    while server.peers().next().is_some() {
        server.progress(10 * MS);
    }
    assert_eq!(server.stats().requests_count, 1, "what was sent at the end has arrived");
}

#[test]
fn peer_can_stop_only_an_endpoint_that_allows_it() {
    for remote_stop in [true, false] {
        let (mut server, mut client, peer) = pair(
            Config::default().access(AccessConfig::default().remote_stop(remote_stop)),
            Config::default(),
        );
        let stopper = server.stopper();
        let serving = std::thread::spawn(move || server.serve());
        let expected = if remote_stop { Ok(()) } else { Err(CallError::Unknown) };
        assert_eq!(client.stop_peer(peer), expected);
        if !remote_stop {
            stopper.stop();
        }
        serving.join().unwrap();
    }
}

#[test]
fn configuration_is_deserialized_resolved_and_refused_by_its_key() {
    let config = r#"{
        "listen": ["na+sm://", "tcp://127.0.0.1:0"],
        "spin_ns_max": 7,
        "connections": {"handshake_timeout_ms": 30},
        "pool": {"threads": 0}
    }"#;
    let endpoint = Endpoint::new(serde_json::from_str(config).unwrap()).unwrap();
    let json = serde_json::to_string(endpoint.config()).unwrap();
    let resolved: Config = serde_json::from_str(&json).unwrap();
    assert_eq!(&resolved, endpoint.config());
    assert_eq!((resolved.pool.threads, resolved.spin_max), (0, Duration::from_nanos(7)));
    assert_eq!(resolved.connections.handshake_timeout, Duration::from_millis(30));
    assert!(resolved.listen.iter().eq(endpoint.addresses()));
    assert!(resolved.listen.iter().all(|it| it.is_complete() && !it.to_string().ends_with(":0")));

    let refused = |json: &str| serde_json::from_str::<Config>(json).unwrap_err().to_string();
    for (json, key) in [
        (r#"{"spin": 1}"#, "unknown field `spin`"),
        (r#"{"pool": {"pool_threads": 1}}"#, "unknown field `pool_threads`"),
        (r#"{"calls_max": 1, "calls_max": 2}"#, "duplicate field `calls_max`"),
        (r#"{"listen": ["verbs://x"]}"#, "`verbs`: unknown transport"),
        (r#"{"log_level": "loud"}"#, "unknown variant `loud`"),
        (r#"{"calls_max": "many"}"#, "invalid type: string \"many\""),
        (r#"{"connections": [5]}"#, "invalid type: sequence, expected an object at line 1"),
        (r#"{"access": []}"#, "invalid type: sequence, expected an object"),
        (r#"{"shared_memory": [64]}"#, "invalid type: sequence, expected an object"),
        (r#"{"pool": [0]}"#, "invalid type: sequence, expected an object"),
        (r#"{"bulk": [1]}"#, "invalid type: sequence, expected an object"),
        (r#"{"access": {"tls": ["c", "k", "r"]}}"#, "invalid type: sequence, expected an object"),
    ] {
        assert!(refused(json).contains(key), "{json}: {}", refused(json));
    }
    let outside =
        |limits| Config::default().connections(limits).validate().unwrap_err().to_string();
    assert_eq!(
        outside(ConnectionsConfig::default().peers_max(0)),
        "connections.peers_max=0: must lie in 1..=1048576"
    );
    assert_eq!(
        outside(ConnectionsConfig::default().handshake_timeout(Duration::ZERO)),
        "connections.handshake_timeout=0ns: must lie in 1ms..=86400s"
    );
    let slots = SharedMemoryConfig::default().slots_count(3);
    let cannot = Endpoint::new(Config::default().shared_memory(slots)).unwrap_err();
    assert!(matches!(cannot, EndpointError::Config(ConfigError::NoPowerOfTwo { .. })));
}

#[test]
fn pooled_handlers_run_on_the_configured_cpus() {
    let here = std::thread::current().id();
    for (threads, cpu) in [(0, None), (1, Some(handover_base::topology::allowed_cpus()[0]))] {
        let pool = PoolConfig::default().threads(threads).cpus(cpu.into_iter().collect());
        let config = Config::default().pool(pool);
        let (mut server, mut client, peer) = pair(config, Config::default());
        server.start_pool().unwrap();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        server
            .register_pooled("where", 0, move |()| {
                let mask = handover_base::affinity::thread_cpus();
                tell.lock().unwrap().send((std::thread::current().id(), mask)).unwrap();
                Ok(())
            })
            .unwrap();
        ask(&mut server, &mut client, peer, Method::new("where"));
        let (thread, mask) = told.recv().unwrap();
        assert_eq!(thread == here, threads == 0);
        assert!(cpu.is_none_or(|cpu| mask == [cpu]), "{mask:?}");
    }
    let config = Config::default().pool(PoolConfig::default().cpus(vec![1 << 20]));
    let refused = Endpoint::new(config).unwrap().start_pool();
    assert!(matches!(refused, Err(EndpointError::Thread(_))), "{refused:?}");
}
