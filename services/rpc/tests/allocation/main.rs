//! Test that a repeated call allocates nothing, on either side.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
#[path = "../../../../base/tests/raw/allocations.rs"]
mod raw;

use handover_rpc::{Calling, Config, Endpoint, Method};
use raw::allocations_count;
use std::time::Duration;

const NOOP: Method = Method::new("noop");
const ADD: Method = Method::new("add");
const ECHO: Method = Method::new("echo");

/// Runs a server and a caller, each in its own thread, with the given ways of waiting.
fn calls_allocate_nothing(address: &str, config: &Config) {
    let mut server = Endpoint::new(config.clone()).unwrap();
    let address = server.listen(&address.parse().unwrap()).unwrap();
    server.register("noop", 0, |_, ()| Ok(())).unwrap();
    server.register("add", 3, |_, (a, b): (u64, u64)| Ok(a + b)).unwrap();
    server
        .register_bytes("echo", 0, |_, bytes, answer| {
            answer.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || {
        let mut per_call = Vec::new();
        // Three rounds; the server is stopped after each.
        for _ in 0..3 {
            let before = allocations_count();
            server.serve();
            per_call.push(allocations_count() - before);
        }
        per_call
    });
    let mut client = Endpoint::new(config.clone()).unwrap();
    let peer = client.connect(&address).unwrap();
    let text = "x".repeat(3000);
    let mut round = || {
        let before = allocations_count();
        // The result is stored in the table of calls. That of a call which is waited for may be
        // taken from shared memory instead, so that the table would have made room for it only in a
        // later round.
        let echo = client.start::<_, ()>(peer, ECHO, text.as_str()).unwrap();
        let result = loop {
            if let Some(result) = client.test(echo) {
                break result;
            }
        };
        result.unwrap();
        for number in 0..100u64 {
            client.call::<_, ()>(peer, NOOP, &()).unwrap();
            let sum: u64 = client.call(peer, ADD.with_provider(3), &(number, 2 * number)).unwrap();
            assert_eq!(sum, 3 * number);
            client.call::<_, (u64, u8)>(peer, ECHO, &(number, 1u8)).unwrap();
            // Too long for a slot. The result is decoded as `()`, so that no string is allocated
            // for it.
            let echo = client.start::<_, ()>(peer, ECHO, text.as_str()).unwrap();
            client.wait(echo).unwrap();
        }
        stopper.stop();
        allocations_count() - before
    };
    let of_client = [round(), round(), round()];
    let of_server = serving.join().unwrap();
    assert!(of_client[0] > 0, "the first calls make room: {of_client:?}");
    assert_eq!(of_client[2], 0, "{address}: {of_client:?}");
    assert_eq!(of_server[2], 0, "{address}: {of_server:?}");
}

/// Checks each way of waiting.
fn calls_never_allocate(address: &str) {
    calls_allocate_nothing(address, &Config::default());
    calls_allocate_nothing(address, &Config::default().spin_max(Duration::ZERO));
    calls_allocate_nothing(address, &Config::default().spin_forever(true));
}

// One test: two at once would have four threads that spin.
#[test]
fn call_over_shared_memory_or_a_socket_allocates_nothing() {
    for address in ["sm://", "tcp://127.0.0.1:0", "uds://"] {
        calls_never_allocate(address);
    }
}
