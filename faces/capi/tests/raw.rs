//! Rust code calls the exported functions, as the suite does to measure what the interface costs.

use handover::handover_status::{self, HANDOVER_CLOSED, HANDOVER_EMPTY, HANDOVER_OK};
use handover::ring::{
    handover_ring_consumer_destroy, handover_ring_create, handover_ring_kind, handover_ring_pop,
    handover_ring_producer_destroy, handover_ring_push,
};
use std::mem::MaybeUninit;

#[test]
fn ring_passes_elements_of_rust() {
    let kind = handover_ring_kind::HANDOVER_RING_SPSC as u32;
    let (mut producer, mut consumer) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    let status =
        handover_ring_create(kind, size_of::<u64>(), 2, Some(&mut producer), Some(&mut consumer));
    assert_eq!(status, HANDOVER_OK);
    // SAFETY: handover_ring_create has written it, as it returned HANDOVER_OK.
    let producer = unsafe { producer.assume_init() };
    // SAFETY: as for the producer.
    let mut consumer = unsafe { consumer.assume_init() }.expect("a ring has two ends");
    let mut popped = 0_u64;
    let mut pop = || -> (handover_status, u64) {
        // SAFETY: the element is a u64, for which the ring was created, and no other thread uses
        // this end.
        (unsafe { handover_ring_pop(Some(&mut consumer), (&raw mut popped).cast()) }, popped)
    };
    assert_eq!(pop().0, HANDOVER_EMPTY);
    for element in [5_u64, 6] {
        // SAFETY: as for the pop.
        let status =
            unsafe { handover_ring_push(producer.as_deref(), (&raw const element).cast()) };
        assert_eq!(status, HANDOVER_OK);
    }
    handover_ring_producer_destroy(producer);
    assert_eq!([pop(), pop()], [(HANDOVER_OK, 5), (HANDOVER_OK, 6)]);
    assert_eq!(pop().0, HANDOVER_CLOSED);
    handover_ring_consumer_destroy(Some(consumer));
}

#[cfg(feature = "full")]
#[test]
fn failures_of_procedures_in_rust_have_statuses_and_codes() {
    use handover::handover_status::{HANDOVER_HANDLER_FAILED, HANDOVER_INVALID_ARGUMENT};
    use handover::rpc::{
        handover_rpc_call, handover_rpc_connect, handover_rpc_create, handover_rpc_destroy,
        handover_rpc_failure_code,
    };
    use handover_rpc::{Config, Context, Endpoint, Failure};

    let mut server = Endpoint::new(Config::default()).expect("the defaults are valid");
    let address = server.listen(&"sm://".parse().expect("an address")).expect("listen");
    let fails =
        |_: &mut Context<'_>, _: &[u8], _: &mut Vec<u8>| Err(Failure::new(-7, "on purpose"));
    server.register_bytes("fails", 0, fails).expect("a new name");
    let panics = |_: &mut Context<'_>, _: &[u8], _: &mut Vec<u8>| panic!("on purpose");
    server.register_bytes("panics", 0, panics).expect("a new name");
    server.register("typed", 0, |_: &mut Context<'_>, text: String| Ok(text)).expect("a new name");
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || server.serve());

    let mut client = MaybeUninit::uninit();
    // SAFETY: a null configuration stands for the defaults.
    let status = unsafe { handover_rpc_create(std::ptr::null(), Some(&mut client)) };
    assert_eq!(status, HANDOVER_OK);
    // SAFETY: handover_rpc_create has written it, as it returned HANDOVER_OK.
    let client = unsafe { client.assume_init() };
    // SAFETY: the handle is destroyed at the end of the test.
    let endpoint = unsafe { client.as_ref() };
    let address = std::ffi::CString::new(address.to_string()).expect("no zero byte");
    let mut peer = MaybeUninit::uninit();
    // SAFETY: the address ends with a zero byte.
    let status = unsafe { handover_rpc_connect(endpoint, address.as_ptr(), Some(&mut peer)) };
    assert_eq!(status, HANDOVER_OK);
    // SAFETY: handover_rpc_connect has written it, as it returned HANDOVER_OK.
    let peer = unsafe { peer.assume_init() };
    let call = |name: &std::ffi::CStr| {
        let (none, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (name, limit_ns) = (name.as_ptr(), 60_000_000_000);
        // SAFETY: the name ends with a zero byte, and there are no other buffers.
        unsafe { handover_rpc_call(endpoint, peer, name, 0, none, 0, none, no_length, limit_ns) }
    };
    for (name, status, code) in [
        (c"fails", HANDOVER_HANDLER_FAILED, -7),
        (c"typed", HANDOVER_INVALID_ARGUMENT, -7),
        (c"panics", HANDOVER_HANDLER_FAILED, 0),
    ] {
        assert_eq!((call(name), handover_rpc_failure_code(endpoint)), (status, code), "{name:?}");
    }
    stopper.stop();
    serving.join().expect("the server does not panic");
    // SAFETY: the handle was not destroyed, and no other thread uses it.
    assert_eq!(unsafe { handover_rpc_destroy(client) }, HANDOVER_OK);
}
