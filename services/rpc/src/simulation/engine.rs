//! Simulation of a caller and a server on a network that delays, splits and cuts, from a seed: the
//! engine alone, without sockets or clocks.

use crate::engine::{
    CallCompletion, CallId, Calls, FrameHeader, FrameKind, PeerKey, ReceiveBuffer, Refusal,
};
use crate::{CloseReason, FrameError};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

const BODY_BYTES_MAX: u32 = 300;
const SERVER: PeerKey = PeerKey { slot: 0, generation: 0 };

/// Bytes in flight in one direction, each with its arrival time.
#[derive(Default)]
struct DelayedBytes {
    bytes: VecDeque<(u64, u8)>,
    last_arrival_ns: u64,
}

impl DelayedBytes {
    fn send(&mut self, header: FrameHeader, body: &[u8], arrives_ns: u64) {
        self.last_arrival_ns = self.last_arrival_ns.max(arrives_ns);
        let frame = header.encode().into_iter().chain(body.iter().copied());
        self.bytes.extend(frame.map(|byte| (self.last_arrival_ns, byte)));
    }

    /// Moves at most `count` bytes that have arrived to the receive buffer.
    fn receive(&mut self, now_ns: u64, count: usize, into: &mut ReceiveBuffer) {
        for _ in 0..count {
            match self.bytes.front() {
                Some(&(at_ns, byte)) if at_ns <= now_ns => {
                    into.free_space()[0] = byte;
                    into.mark_received(1);
                    self.bytes.pop_front();
                }
                _ => return,
            }
        }
    }
}

/// Returns the server's answer to a request. It is a refusal if the first byte of the body is below
/// 20, otherwise the reversed body.
fn answer(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    match body.first() {
        Some(0..=19) => Err(Refusal::Failed),
        _ => Ok(body.iter().rev().copied().collect()),
    }
}

/// Random step: starts a call with this body, and delivers bytes in both directions.
#[derive(Debug, Clone)]
struct Step {
    body: Vec<u8>,
    /// Delay of the request, in ns; an answer sent in this step takes half as long.
    delay_ns: u64,
    /// Maximum number of bytes that arrive in each direction in this step.
    received_bytes_max: usize,
    cancels_call: bool,
}

/// Returns a strategy that generates random steps.
fn step() -> impl Strategy<Value = Step> {
    let body = proptest::collection::vec(any::<u8>(), 0..BODY_BYTES_MAX as usize);
    (body, 0u64..5000, 1usize..200, proptest::bool::weighted(0.1)).prop_map(
        |(body, delay_ns, received_bytes_max, cancels_call)| Step {
            body,
            delay_ns,
            received_bytes_max,
            cancels_call,
        },
    )
}

proptest! {
    // A quarter of the usual number, as each case has some hundred frames. PROPTEST_CASES raises
    // it.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn every_call_ends_once_with_its_own_answer_or_a_disconnection(
        steps in proptest::collection::vec(step(), 1..60),
        cut_at in proptest::option::of(0usize..120),
    ) {
        let (mut there, mut back) = (DelayedBytes::default(), DelayedBytes::default());
        let (mut at_server, mut at_client) = (ReceiveBuffer::new(BODY_BYTES_MAX), ReceiveBuffer::new(BODY_BYTES_MAX));
        let mut calls = Calls::new(1000);
        let mut asked: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut ids: Vec<CallId> = Vec::new();
        let (mut now_ns, mut answered, mut given_up) = (0u64, 0, 0);
        let idle = Step { body: Vec::new(), delay_ns: 1000, received_bytes_max: 500, cancels_call: false };
        let turns = steps.len() + 120;
        let mut cut = false;
        for turn in 0..turns {
            let step = steps.get(turn).unwrap_or(&idle);
            now_ns += 700;
            if turn < steps.len() && !cut {
                let id = calls.start(SERVER, u64::MAX).expect("cannot start a call");
                let body_bytes = step.body.len() as u32;
                let header = FrameHeader { body_bytes, kind: FrameKind::Request, method: 7, call: id.word() };
                there.send(header, &step.body, now_ns + step.delay_ns);
                if step.cancels_call {
                    calls.remove(id);
                    given_up += 1;
                } else {
                    asked.insert(id.word(), step.body.clone());
                    ids.push(id);
                }
            }
            there.receive(now_ns, step.received_bytes_max, &mut at_server);
            while let Some((header, body)) = at_server.next_frame().expect("cannot parse a frame") {
                let (kind, method, body) = match answer(body) {
                    Ok(body) => (FrameKind::Response, 0, body),
                    Err(refusal) => (FrameKind::Refusal, refusal as u64, Vec::new()),
                };
                let header = FrameHeader { body_bytes: body.len() as u32, kind, method, ..header };
                back.send(header, &body, now_ns + step.delay_ns / 2);
            }
            back.receive(now_ns, step.received_bytes_max, &mut at_client);
            while let Some((header, body)) = at_client.next_frame().expect("cannot parse a frame") {
                let outcome = match header.kind {
                    FrameKind::Response => CallCompletion::Result,
                    _ => CallCompletion::Refused(Refusal::from_code(header.method)),
                };
                calls.complete_call(header.call, SERVER, outcome.clone(), body);
                prop_assert!(!calls.complete_call(header.call, SERVER, outcome, body), "once");
            }
            if cut_at == Some(turn) {
                there.bytes.clear();
                back.bytes.clear();
                calls.fail_calls_to(SERVER, &CloseReason::ClosedByPeer);
                cut = true;
            }
            ids.retain(|&id| {
                let taken = calls.take_completed(id, |outcome, body| (outcome, body.to_vec()));
                let Some((outcome, body)) = taken else { return true };
                let expected = answer(&asked[&id.word()]);
                match outcome {
                    CallCompletion::Result => assert_eq!(Ok(body), expected),
                    CallCompletion::Refused(refusal) => assert_eq!(Err(refusal), expected),
                    CallCompletion::Disconnected(gone) => assert!(cut && gone == CloseReason::ClosedByPeer),
                }
                answered += 1;
                false
            });
        }
        prop_assert!(ids.is_empty(), "{} calls have not completed", ids.len());
        prop_assert_eq!(calls.calls_count(), 0);
        let started = if cut { cut_at.map_or(0, |at| steps.len().min(at + 1)) } else { steps.len() };
        prop_assert_eq!(answered + given_up, started);
    }

    #[test]
    fn frames_and_error_do_not_depend_on_the_pieces_in_which_bytes_arrive(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        frames in proptest::collection::vec((1u8..=6, proptest::collection::vec(any::<u8>(), 0..50)), 0..5),
        piece in 1usize..70,
    ) {
        let mut stream = Vec::new();
        for (kind, body) in frames {
            let words = [u64::from(kind) << 32 | body.len() as u64, 5, 6];
            let header = FrameHeader::from_words(words, BODY_BYTES_MAX).expect("cannot parse the header");
            stream.extend(header.encode().into_iter().chain(body));
        }
        stream.extend(bytes);
        let read = |pieces: usize| -> (Vec<(FrameHeader, Vec<u8>)>, Option<FrameError>) {
            let (mut inbound, mut found) = (ReceiveBuffer::new(BODY_BYTES_MAX), Vec::new());
            for piece in stream.chunks(pieces) {
                inbound.free_space()[..piece.len()].copy_from_slice(piece);
                inbound.mark_received(piece.len());
                loop {
                    match inbound.next_frame() {
                        Ok(Some((header, body))) => found.push((header, body.to_vec())),
                        Ok(None) => break,
                        Err(error) => return (found, Some(error)),
                    }
                }
            }
            (found, None)
        };
        prop_assert_eq!(read(piece), read(stream.len().max(1)));
    }
}
