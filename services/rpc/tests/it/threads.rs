//! Tests of where handlers run and which thread drives the endpoint: pool fibers, and
//! `start_progress`.

use crate::gate::gate;
use handover_fiber::block_on;
use handover_rpc::{
    Address, Bulk, BulkMemory, BulkPart, CallError, Calling, Config, ConnectionsConfig, Endpoint,
    Failure, Method, PoolConfig, Progress, Rights, SharedMemoryConfig, Timing,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MEET: Method = Method::new("meet");
const DOUBLE: Method = Method::new("double");
const HELD: Method = Method::new("held");
const TALLY: Method = Method::new("tally");
const HOUR: Duration = Duration::from_secs(3600);

fn server(how: &str, config: Config, more: impl FnOnce(&mut Endpoint)) -> (Progress, Address) {
    let mut server = Endpoint::new(config).unwrap();
    let address = server.listen(&how.parse().unwrap()).unwrap();
    server.register("double", 0, |_, number: u64| Ok(2 * number)).unwrap();
    more(&mut server);
    (server.start_progress().unwrap(), address)
}

/// Starts the pool with a handler that returns when `wait` does.
fn register_held(server: &mut Endpoint, wait: impl Fn() + Send + Sync + 'static) {
    server.start_pool().unwrap();
    let held = move |()| {
        wait();
        Ok(())
    };
    server.register_pooled("held", 0, held).unwrap();
}

fn fibers(threads: u32, queue_max: u32) -> Config {
    let pool = PoolConfig::default().fibers(true).threads(threads).queue_max(queue_max);
    Config::default().pool(pool)
}

#[test]
fn handlers_on_fibers_wait_for_each_other_on_one_thread() {
    const COUNT: u32 = 100;
    let barrier = Arc::new(handover_fiber::Barrier::new(COUNT as usize));
    let (_server, address) = server("sm://", fibers(1, 1000), |server| {
        server.start_pool().unwrap();
        let meet = move |number: u32| {
            barrier.wait();
            Ok(number)
        };
        server.register_pooled("meet", 0, meet).unwrap();
        let panics = |()| -> Result<(), Failure> { panic!("on purpose") };
        server.register_pooled("panics", 0, panics).unwrap();
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address).unwrap();
    let refused = client.call::<_, ()>(peer, Method::new("panics"), &());
    assert_eq!(refused, Err(CallError::Panicked));
    let calls = (0..COUNT).map(|number| client.start::<_, u32>(peer, MEET, &number).unwrap());
    for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(client.wait(call), Ok(number as u32));
    }
}

#[test]
fn requests_beyond_the_fiber_limit_are_refused_and_cancelled_ones_removed() {
    let (free, begun) = (Arc::new(handover_fiber::Eventual::new()), Arc::new(AtomicU32::new(0)));
    let (waits_for, counts) = (Arc::clone(&free), Arc::clone(&begun));
    let (_server, address) = server("uds://", fibers(1, 2), |server| {
        server.start_pool().unwrap();
        let meet = move |()| {
            counts.fetch_add(1, Ordering::SeqCst);
            waits_for.wait();
            Ok(())
        };
        server.register_pooled("meet", 0, meet).unwrap();
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address).unwrap();
    let calls: Vec<_> = (0..2).map(|_| client.start::<_, ()>(peer, MEET, &()).unwrap()).collect();
    assert_eq!(client.call::<_, ()>(peer, MEET, &()), Err(CallError::PeerFull));
    free.set(()).unwrap();
    for call in calls {
        assert_eq!(client.wait(call), Ok(()));
    }
    // The last fiber may still be ending.
    while let Err(refused) = client.call::<_, ()>(peer, MEET, &()) {
        assert_eq!(refused, CallError::PeerFull);
    }
    assert_eq!(begun.load(Ordering::SeqCst), 3);
}

#[test]
fn results_beyond_the_queue_limit_are_dropped_and_reported() {
    const COUNT: usize = 100;
    const RESULT_BYTES: usize = 4000;
    let (free, begun) = (Arc::new(handover_fiber::Eventual::new()), Arc::new(AtomicU32::new(0)));
    let ended = Arc::new(AtomicU32::new(0));
    let (waits_for, counts, ends) = (Arc::clone(&free), Arc::clone(&begun), Arc::clone(&ended));
    let small = Config::default()
        .shared_memory(SharedMemoryConfig::default().shared_bytes(8192))
        .connections(ConnectionsConfig::default().message_bytes_max(4096));
    let config =
        fibers(1, 1000).connections(ConnectionsConfig::default().queued_bytes_max(64 << 10));
    let (_server, address) = server("sm://", config, |server| {
        server.start_pool().unwrap();
        let meet = move |()| {
            counts.fetch_add(1, Ordering::SeqCst);
            waits_for.wait();
            ends.fetch_add(1, Ordering::SeqCst);
            Ok(vec![5u8; RESULT_BYTES])
        };
        server.register_pooled("meet", 0, meet).unwrap();
    });
    let mut client = Endpoint::new(small).unwrap();
    let peer = client.connect(&address).unwrap();
    let calls: Vec<_> =
        (0..COUNT).map(|_| client.start::<_, Vec<u8>>(peer, MEET, &()).unwrap()).collect();
    // All of them wait in their handlers, with nothing queued: none was kept from beginning.
    while begun.load(Ordering::SeqCst) < COUNT as u32 {
        client.progress(Duration::from_millis(1));
    }
    free.set(()).unwrap();
    // The client reads nothing until all handlers have ended.
    while ended.load(Ordering::SeqCst) < COUNT as u32 {
        thread::sleep(Duration::from_millis(1));
    }
    let results: Vec<_> = calls.into_iter().map(|call| client.wait(call)).collect();
    let kept = results.iter().filter(|it| it.is_ok()).count();
    let dropped = results.iter().filter(|it| **it == Err(CallError::ResultUnsent)).count();
    assert_eq!(kept + dropped, COUNT);
    // The queue limit, one more result from below the limit, two in the segment, and the last one,
    // which may end concurrently.
    let kept_max = (64 << 10) / RESULT_BYTES + 1 + 2 + 1;
    assert!(kept <= kept_max, "{kept} results were kept, where {kept_max} may be");
}

#[test]
fn handler_on_a_fiber_calls_through_a_progress_thread() {
    for how in ["sm://", "tcp://127.0.0.1:0"] {
        let (_behind, behind) = server(how, Config::default(), |_| ());
        let mut own = Endpoint::new(Config::default()).unwrap();
        let peer = own.connect(&behind).unwrap();
        let own = own.start_progress().unwrap();
        let caller = own.caller();
        let (_server, address) = server(how, fibers(1, 1000), |server| {
            server.start_pool().unwrap();
            let twice = move |number: u64| {
                let doubled: u64 = caller
                    .call(peer, DOUBLE, &number)
                    .map_err(|error| Failure::new(1, error.to_string()))?;
                Ok(doubled)
            };
            server.register_pooled("twice", 0, twice).unwrap();
        });
        let mut client = Endpoint::new(Config::default()).unwrap();
        let peer = client.connect(&address).unwrap();
        let twice = Method::new("twice");
        let calls = (0..50u64).map(|number| client.start::<_, u64>(peer, twice, &number).unwrap());
        for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(client.wait(call), Ok(2 * number as u64));
        }
    }
}

#[test]
fn calls_of_other_threads_end_at_deadline_disconnection_or_stop() {
    let (open, wait) = gate();
    let (server, address) = server("sm://", Config::default(), |server| {
        register_held(server, wait);
    });
    let client = Endpoint::new(Config::default()).unwrap().start_progress().unwrap();
    let caller = client.caller();
    let there = address.clone();
    let peer = caller.run(move |moment| moment.connect(&there)).unwrap().unwrap();
    assert_eq!(caller.call(peer, DOUBLE, &4u64), Ok(8u64));
    assert_eq!(caller.call::<_, ()>(peer, Method::new("none"), &()), Err(CallError::Unknown));
    let late = caller.call_within::<_, ()>(peer, HELD, &(), Duration::from_millis(5));
    assert_eq!(late, Err(CallError::Deadline));
    let within = caller.call_within(peer, DOUBLE, &5u64, Duration::from_secs(60));
    assert_eq!(within, Ok(10u64));
    let gone = caller.start::<_, ()>(peer, HELD, &()).unwrap();
    assert!(gone.test().is_none());
    drop(open);
    drop(server);
    assert!(matches!(gone.wait(), Err(CallError::Disconnected(_)) | Ok(())));
    let mut next = caller.call::<_, ()>(peer, DOUBLE, &());
    // If the answer came before the disconnection, this call may be the one that finds it.
    if matches!(next, Err(CallError::Disconnected(_))) {
        next = caller.call(peer, DOUBLE, &());
    }
    assert_eq!(next, Err(CallError::Stale));

    let (open, wait) = gate();
    let (_another, address) = self::server("sm://", Config::default(), |server| {
        register_held(server, wait);
    });
    let peer = caller.run(move |moment| moment.connect(&address)).unwrap().unwrap();
    let broken = caller.start::<_, ()>(peer, HELD, &()).unwrap();
    let mut back = client.stop();
    assert_eq!(broken.wait(), Err(CallError::EndpointStopped));
    drop(open);
    assert_eq!(caller.call::<_, u64>(peer, DOUBLE, &1u64), Err(CallError::EndpointStopped));
    assert_eq!(caller.run(|_| ()), Err(CallError::EndpointStopped));
    assert_eq!(back.call(peer, DOUBLE, &6u64), Ok(12u64), "and it goes on by hand");
}

#[test]
fn call_whose_deadline_finds_no_timer_is_refused_and_not_sent() {
    let handled_count = AtomicU32::new(0);
    let (_server, address) = server("sm://", Config::default(), move |server| {
        let tally = move |_: &mut handover_rpc::Context<'_>, ()| {
            Ok(handled_count.fetch_add(1, Ordering::Relaxed) + 1)
        };
        server.register("tally", 0, tally).unwrap();
    });
    let mut client = Endpoint::new(Config::default().timers_max(1)).unwrap();
    let peer = client.connect(&address).unwrap();
    client.start_timer(HOUR, |_| unreachable!("not within this test")).unwrap();
    let client = client.start_progress().unwrap();
    let caller = client.caller();
    let refused = caller.call_within::<_, u32>(peer, TALLY, &(), HOUR);
    assert_eq!(refused, Err(CallError::Full));
    assert_eq!(caller.call(peer, TALLY, &()), Ok(1u32), "the refused call was handled");
}

#[test]
fn calls_are_awaited_and_cancelled() {
    let begun = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&begun);
    let (open, wait) = gate();
    let (open_last, wait_last) = gate();
    let (tell, told) = std::sync::mpsc::channel();
    let (_server, address) = server("uds://", fibers(1, 1000), |server| {
        register_held(server, move || {
            tell.send(()).unwrap();
            wait();
        });
        let later = move |number: u64| {
            counts.fetch_add(1, Ordering::SeqCst);
            Ok(number)
        };
        server.register_pooled("later", 0, later).unwrap();
        let last = move |()| {
            wait_last();
            Ok(())
        };
        server.register_pooled("last", 0, last).unwrap();
    });
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address).unwrap();
    let client = client.start_progress().unwrap();
    let (caller, later) = (client.caller(), Method::new("later"));
    let sum = block_on(async {
        let calls: Vec<_> =
            (0..50u64).map(|it| caller.start::<_, u64>(peer, DOUBLE, &it).unwrap()).collect();
        let mut sum = 0;
        for call in calls {
            sum += call.await?;
        }
        Ok::<_, CallError>(sum + caller.start::<_, u64>(peer, later, &20u64)?.await?)
    });
    assert_eq!(sum, Ok(2 * 49 * 50 / 2 + 20));
    let held = caller.start::<_, ()>(peer, HELD, &()).unwrap();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let within = Duration::from_millis(20);
    let late = caller.start_within::<_, ()>(peer, HELD, &(), within).unwrap();
    assert_eq!(block_on(late), Err(CallError::Deadline));
    // The first call occupies the only thread: a call that is cancelled before its turn does not
    // begin.
    let before = begun.load(Ordering::SeqCst);
    caller.start::<_, u64>(peer, later, &1u64).unwrap().cancel();
    let second = caller.start::<_, u64>(peer, later, &2u64).unwrap();
    // Messages are read in order: this answer shows that the cancellation was read.
    assert_eq!(caller.call(peer, DOUBLE, &3u64), Ok(6u64));
    drop(open);
    assert_eq!(block_on(held), Ok(()));
    assert_eq!(block_on(second), Ok(2));
    assert_eq!(begun.load(Ordering::SeqCst), before + 1);
    // A call with an answer has nothing to cancel, and a call through an endpoint that nobody
    // drives ends.
    let done = caller.start::<_, u64>(peer, DOUBLE, &4u64).unwrap();
    assert_eq!(caller.call(peer, DOUBLE, &5u64), Ok(10u64));
    done.cancel();
    let broken = caller.start::<_, ()>(peer, Method::new("last"), &()).unwrap();
    drop(client.stop());
    assert_eq!(block_on(broken), Err(CallError::EndpointStopped));
    drop(open_last);
}

#[test]
fn calls_are_awaited_by_tasks_of_tokio() {
    let (open, wait) = gate();
    let (_server, address) =
        server("uds://", fibers(1, 1000), |server| register_held(server, wait));
    let mut client = Endpoint::new(Config::default()).unwrap();
    let peer = client.connect(&address).unwrap();
    let client = client.start_progress().unwrap();
    let caller = client.caller();
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    executor.block_on(async {
        let start = |it: u64| caller.start::<_, u64>(peer, DOUBLE, &it).unwrap();
        let tasks: Vec<_> = (0..50).map(|it| tokio::spawn(start(it))).collect();
        for (it, task) in (0..).zip(tasks) {
            assert_eq!(task.await.unwrap(), Ok(2 * it));
        }
        let mut held = caller.start::<_, ()>(peer, HELD, &()).unwrap();
        let cancelled = tokio::time::timeout(Duration::from_millis(1), &mut held).await;
        assert!(cancelled.is_err(), "the handler waits");
        drop(open);
        assert_eq!(held.await, Ok(()));
    });
}

#[test]
fn closure_run_in_the_endpoints_thread_transfers_memory() {
    let memory = BulkMemory::shared(10_000).unwrap();
    memory.write(9_990, b"far behind");
    let (_server, address) = server("sm://", Config::default(), |server| {
        let handle = server.register_memory(&memory, Rights::Read).unwrap();
        server.register("handle", 0, move |_, ()| Ok(handle)).unwrap();
    });
    let client = Endpoint::new(Config::default()).unwrap().start_progress().unwrap();
    let caller = client.caller();
    let peer = caller.run(move |moment| moment.connect(&address)).unwrap().unwrap();
    let handle = caller.call(peer, Method::new("handle"), &()).unwrap();
    let came = caller.run(move |moment| {
        let ours = BulkMemory::plain(vec![0; 10]);
        moment
            .pull(peer, &handle, &ours, BulkPart::new(10).offsets(9_990, 0))
            .map(|()| ours.to_vec())
    });
    assert_eq!(came.unwrap().unwrap(), b"far behind");
}

#[test]
fn spinning_endpoint_receives_from_few_and_many_streams() {
    let config = Config::default().spin_forever(true);
    let (server, address) = server("uds://", config, |_| ());
    for count in [1, 6, 2] {
        let mut clients: Vec<_> = (0..count)
            .map(|_| {
                let mut client = Endpoint::new(Config::default()).unwrap();
                let peer = client.connect(&address).unwrap();
                (client, peer)
            })
            .collect();
        for number in 0..3u64 {
            for (client, peer) in &mut clients {
                assert_eq!(client.call(*peer, DOUBLE, &number), Ok(2 * number));
            }
        }
    }
    let mut server = server.stop();
    let until = Instant::now() + Duration::from_secs(60);
    while server.stats().peers_count > 0 {
        server.progress(Duration::from_millis(50));
        assert!(Instant::now() < until, "all have hung up");
    }
}

#[test]
fn panic_in_the_progress_thread_ends_all_waits() {
    let (tell, told) = std::sync::mpsc::channel();
    let (open, wait) = gate();
    let answered = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&answered);
    let (_silent, never) = server("uds://", Config::default(), |server| {
        let waits = move |_: &mut handover_rpc::Context<'_>, ()| {
            tell.send(()).unwrap();
            wait();
            answers.store(true, Ordering::SeqCst);
            Ok(())
        };
        server.register("held", 0, waits).unwrap();
    });
    let callers = Arc::new(std::sync::Mutex::new(None::<(handover_rpc::Caller, _)>));
    let its_callers = Arc::clone(&callers);
    let (server, address) = server("uds://", Config::default(), |server| {
        server.start_pool().unwrap();
        let asks = move |()| {
            let (caller, peer) = its_callers.lock().unwrap().clone().expect("a caller");
            // Ends with an answer or with an error; both are accepted.
            Ok(caller.call::<_, ()>(peer, HELD, &()).is_ok())
        };
        server.register_pooled("asks", 0, asks).unwrap();
    });
    let caller = server.caller();
    let peer = caller.run(move |moment| moment.connect(&never)).unwrap();
    *callers.lock().unwrap() = Some((caller.clone(), peer.unwrap()));
    let mut client = Endpoint::new(Config::default()).unwrap();
    let its = client.connect(&address).unwrap();
    let asked = client.start::<_, bool>(its, Method::new("asks"), &()).unwrap();
    // The handler is waiting.
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    let panics = |_: &mut handover_rpc::CallbackContext<'_>| -> () { panic!("on purpose") };
    assert_eq!(caller.run(panics), Err(CallError::EndpointStopped));
    drop(server);
    assert!(!answered.load(Ordering::SeqCst), "it waited for the answer");
    drop(open);
    assert!(client.wait(asked).is_err());
}

#[test]
fn calls_of_other_threads_beyond_the_limit_are_refused() {
    const CALLS_MAX: u32 = 10;
    let (_server, address) = server("sm://", Config::default(), |_| ());
    let mut client = Endpoint::new(Config::default().calls_max(CALLS_MAX)).unwrap();
    let peer = client.connect(&address).unwrap();
    let client = client.start_progress().unwrap();
    let (caller, busy) = (client.caller(), client.caller());
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel();
    let errand = thread::spawn(move || {
        busy.run(move |_| {
            begun.send(()).unwrap();
            ends.recv().unwrap();
        })
    });
    has_begun.recv().unwrap();
    let start = |number: u64| caller.start::<_, u64>(peer, DOUBLE, &number);
    let calls: Vec<_> = (0..CALLS_MAX.into()).map(|number| start(number).unwrap()).collect();
    assert_eq!(start(0).err(), Some(CallError::Full));
    assert_eq!(caller.run(|_| ()), Err(CallError::Full));
    end.send(()).unwrap();
    errand.join().unwrap().unwrap();
    for (number, call) in (0..).zip(calls) {
        assert_eq!(call.wait(), Ok(2 * number));
    }
    assert_eq!(caller.call(peer, DOUBLE, &4u64), Ok(8u64));
}
