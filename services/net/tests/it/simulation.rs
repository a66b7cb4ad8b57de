//! A pair of peers on a simulated network that delays, splits, merges and drops by a seed: every
//! message arrives once, in order and intact, or the connection is reported closed; and memory is
//! bounded.

use handover_net::Config;
use handover_net::engine::{
    BytesCodec, Codec, CodecError, ConnectionLimits, DecodeResult, InboundBuffer,
    LengthPrefixCodec, LinesCodec, ProtocolState, TimeoutError,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// Reproducible random generator: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

const MESSAGE_MAX: u32 = 3_000;
static LIMITS: LazyLock<ConnectionLimits> = LazyLock::new(|| {
    Config::default()
        .connection_limits()
        .queued_bytes_max(20_000)
        .high_bytes(5_000)
        .low_bytes(1_000)
        .message_timeout_ns(1_000_000)
        .write_timeout_ns(2_000_000)
        .handshake_timeout_ns(2_000_000)
});
/// Capacity of the simulated kernel's buffer, in bytes.
const WIRE_MAX: usize = 4_000;

/// One direction of a connection: segments of bytes, each with the time from which it can be read.
#[derive(Default)]
struct Wire {
    segments: VecDeque<(u64, Vec<u8>)>,
    held_bytes: usize,
}

impl Wire {
    /// Takes as many bytes as there is space for, cut into pieces with random delays, in order.
    fn accept(&mut self, bytes: &[u8], now_ns: u64, random: &mut Random) -> usize {
        let taken = bytes.len().min(WIRE_MAX - self.held_bytes);
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let size_max = if random.below(4) == 0 { 3 } else { 1_500 };
            let size = (1 + random.below(size_max) as usize).min(rest.len());
            let earliest = self.segments.back().map_or(now_ns, |last| last.0.max(now_ns));
            self.segments.push_back((earliest + random.below(3_000), rest[..size].to_vec()));
            rest = &rest[size..];
        }
        self.held_bytes += taken;
        taken
    }

    /// Returns the bytes that have arrived, several segments merged, up to `bytes_max`.
    fn deliver(&mut self, now_ns: u64, bytes_max: usize) -> Vec<u8> {
        let mut read = Vec::new();
        while let Some((at_ns, segment)) = self.segments.front_mut() {
            if *at_ns > now_ns || read.len() == bytes_max {
                break;
            }
            let size = segment.len().min(bytes_max - read.len());
            read.extend(segment.drain(..size));
            if segment.is_empty() {
                self.segments.pop_front();
            }
        }
        self.held_bytes -= read.len();
        read
    }
}

/// End that sends numbered messages and expects the peer's in order.
struct Peer {
    protocol: ProtocolState,
    sent_count: u64,
    received_count: u64,
    /// Time before which it reads nothing.
    paused_until_ns: u64,
    is_closed: Option<String>,
}

impl Peer {
    fn new() -> Self {
        Self {
            protocol: ProtocolState::default(),
            sent_count: 0,
            received_count: 0,
            paused_until_ns: 0,
            is_closed: None,
        }
    }
}

/// Returns the message with this number, which determines its length and its bytes.
fn message(number: u64) -> Vec<u8> {
    let mut random = Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let length = match random.below(10) {
        0 => random.below(u64::from(MESSAGE_MAX) + 1),
        _ => random.below(40),
    };
    // Letters only, so that the line codec accepts them too.
    (0..length).map(|_| b'a' + (random.next() % 26) as u8).collect()
}

/// Simulates one connection; returns the number of messages that arrived, and `true` if it was cut.
fn simulate<C: Codec>(codec: &C, seed: u64, messages_count: u64, cut: bool) -> (u64, bool) {
    let mut random = Random(seed | 1);
    let mut peers = [Peer::new(), Peer::new()];
    let mut wires = [Wire::default(), Wire::default()];
    let cut_after = cut.then(|| random.below(messages_count * 4));
    let mut now_ns = 0;
    for step in 0..u64::MAX {
        assert!(step < 3_000_000, "seed {seed}: no end after 3,000,000 steps");
        now_ns += random.below(400);
        let sender = random.below(2) as usize;
        if cut_after == Some(step) {
            // Both ends learn of the cut, here at once.
            for peer in &mut peers {
                peer.is_closed = Some("the network cut it".into());
            }
            break;
        }
        let (mine, theirs) = (sender, 1 - sender);
        let peer = &mut peers[mine];
        match random.below(4) {
            0 if peer.sent_count < messages_count && !peer.protocol.is_above_high_water() => {
                let mut framed = Vec::new();
                codec.encode(&message(peer.sent_count), &mut framed).unwrap();
                let mut rest = &framed[..];
                if peer.protocol.queued_bytes() == 0 {
                    rest = &rest[wires[mine].accept(rest, now_ns, &mut random)..];
                }
                peer.protocol.queue_bytes(rest, &LIMITS, now_ns).unwrap();
                peer.sent_count += 1;
            }
            1 => {
                let taken = wires[mine].accept(peer.protocol.unsent_bytes(), now_ns, &mut random);
                peer.protocol.mark_sent(taken, &LIMITS, now_ns);
            }
            2 if now_ns >= peer.paused_until_ns => {
                if random.below(50) == 0 {
                    peer.paused_until_ns = now_ns + random.below(20_000);
                }
                let bytes_max = 1 + random.below(4_000) as usize;
                let bytes = wires[theirs].deliver(now_ns, bytes_max);
                let (received, mut enough) = (&mut peer.received_count, random.below(6));
                let taken = peer.protocol.deliver_messages(&bytes, codec, now_ns, |it| {
                    assert_eq!(it, message(*received), "seed {seed}: message {received}");
                    *received += 1;
                    enough = enough.wrapping_sub(1);
                    if enough == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                taken.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            _ => {}
        }
        let held_max = LIMITS.high_bytes + (2 * MESSAGE_MAX) as usize + 2 * WIRE_MAX;
        assert!(
            peer.protocol.heap_bytes() <= 2 * held_max,
            "seed {seed}: {}",
            peer.protocol.heap_bytes()
        );
        assert_eq!(peer.protocol.exceeded_timeout(&LIMITS, now_ns), None, "seed {seed}");
        if peers.iter().all(|it| it.received_count == messages_count) {
            break;
        }
    }
    let received_count = peers.iter().map(|it| it.received_count).sum();
    (received_count, peers[0].is_closed.is_some())
}

#[test]
fn every_message_arrives_once_in_order_and_intact() {
    for seed in 1..=120 {
        let codec = LengthPrefixCodec::new(MESSAGE_MAX);
        assert_eq!(simulate(&codec, seed * 7_919, 60, false), (120, false));
        assert_eq!(
            simulate(&LinesCodec::new(MESSAGE_MAX), seed * 104_729, 60, false),
            (120, false)
        );
    }
}

#[test]
fn cut_connection_is_reported_after_messages_in_order() {
    let mut cut_count = 0;
    for seed in 1..=120 {
        let (received_count, was_cut) =
            simulate(&LengthPrefixCodec::new(MESSAGE_MAX), seed * 6_007, 60, true);
        assert!(
            was_cut || received_count == 120,
            "seed {seed}: {received_count} came and nobody was told"
        );
        cut_count += u32::from(was_cut);
    }
    assert!(cut_count > 60, "only {cut_count} of 120 connections were cut");
}

#[test]
fn incomplete_message_and_unread_queue_time_out() {
    let codec = LengthPrefixCodec::new(MESSAGE_MAX);
    let mut protocol = ProtocolState::default();
    let continue_all = |_: &[u8]| ControlFlow::Continue(());
    protocol.deliver_messages(&[0, 0, 0, 9, 1], &codec, 100, continue_all).unwrap();
    assert_eq!(
        protocol.exceeded_timeout(&LIMITS, 100 + LIMITS.message_timeout_ns),
        Some(TimeoutError::Message)
    );
    assert_eq!(protocol.check_end_of_stream().unwrap_err().bytes, 5);

    let mut protocol = ProtocolState::default();
    protocol.queue_bytes(&[7; 100], &LIMITS, 0).unwrap();
    assert_eq!(
        protocol.exceeded_timeout(&LIMITS, LIMITS.write_timeout_ns),
        Some(TimeoutError::Write)
    );
    let refused = protocol.queue_bytes(&vec![7; LIMITS.queued_bytes_max], &LIMITS, 0).unwrap_err();
    assert_eq!(refused.queued_bytes, LIMITS.queued_bytes_max + 100);
    assert_eq!(protocol.queued_bytes(), 100);
}

#[test]
fn memory_grows_with_received_bytes_not_announced_length() {
    let codec = LengthPrefixCodec::new(1 << 30);
    let mut protocol = ProtocolState::default();
    let continue_all = |_: &[u8]| ControlFlow::Continue(());
    protocol.deliver_messages(&(1_u32 << 30).to_be_bytes(), &codec, 0, continue_all).unwrap();
    protocol.deliver_messages(&[0; 10_000], &codec, 0, continue_all).unwrap();
    assert!(protocol.heap_bytes() < 50_000, "{} bytes held for 10,004", protocol.heap_bytes());
}

/// Codec that claims to have used more, or fewer, bytes than it was given.
#[derive(Clone)]
struct InvalidCodec(usize);

impl Codec for InvalidCodec {
    fn decode(&self, bytes: &[u8], _: usize) -> Result<DecodeResult, CodecError> {
        Ok(DecodeResult::Message { body: 0..bytes.len().min(self.0), used_bytes: self.0 })
    }

    fn encode(
        &self,
        _: &[u8],
        _: &mut Vec<u8>,
    ) -> Result<(), handover_net::engine::MessageTooLongError> {
        Ok(())
    }
}

#[test]
fn codec_with_invalid_used_bytes_returns_error() {
    for used_bytes in [0, 100] {
        let taken =
            InboundBuffer::default()
                .deliver_messages(b"abc", &InvalidCodec(used_bytes), |_| ControlFlow::Continue(()));
        assert_eq!(taken, Err(CodecError::InvalidRange));
    }
}

/// Passes `stream` in pieces given by `cuts`, stopping after messages as the bits of `stops` say.
fn taken_in_pieces<C: Codec>(
    codec: &C,
    stream: &[u8],
    cuts: &[usize],
    stops: u32,
) -> Result<Vec<Vec<u8>>, CodecError> {
    let mut inbound = InboundBuffer::default();
    let (mut received, mut turn, mut rest) = (Vec::new(), 0_u32, stream);
    let mut each = |message: &[u8]| {
        received.push(message.to_vec());
        turn += 1;
        match stops >> (turn % 32) & 1 {
            1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    for &cut in cuts.iter().chain([&usize::MAX]) {
        let (now, later) = rest.split_at(cut.min(rest.len()));
        rest = later;
        let mut taken = inbound.deliver_messages(now, codec, &mut each)?;
        while taken.is_stopped {
            taken = inbound.deliver_messages(&[], codec, &mut each)?;
        }
    }
    assert!(inbound.is_empty() && inbound.capacity_bytes() == 0);
    Ok(received)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn length_prefixed_messages_survive_any_split(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 3..200), 0..12),
        cuts in prop::collection::vec(0_usize..90, 0..40),
        stops in any::<u32>(),
    ) {
        let codec = LengthPrefixCodec::new(200).with_header(3);
        let mut stream = Vec::new();
        for message in &messages {
            codec.encode(message, &mut stream).unwrap();
        }
        prop_assert_eq!(taken_in_pieces(&codec, &stream, &cuts, stops), Ok(messages));
    }

    #[test]
    fn lines_survive_any_split(
        messages in prop::collection::vec("[a-z ]{0,60}", 0..12),
        cuts in prop::collection::vec(0_usize..40, 0..40),
        stops in any::<u32>(),
    ) {
        let codec = LinesCodec::new(60);
        let mut stream = Vec::new();
        for message in &messages {
            codec.encode(message.as_bytes(), &mut stream).unwrap();
        }
        let expected: Vec<Vec<u8>> = messages.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(taken_in_pieces(&codec, &stream, &cuts, stops), Ok(expected));
    }

    #[test]
    fn raw_bytes_keep_their_order(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(0_usize..90, 0..10),
    ) {
        prop_assert_eq!(taken_in_pieces(&BytesCodec, &stream, &cuts, 0).map(|it| it.concat()), Ok(stream));
    }

    #[test]
    fn garbage_decodes_the_same_for_any_split(
        stream in prop::collection::vec(prop_oneof![Just(0_u8), Just(b'\n'), any::<u8>()], 0..200),
        cuts in prop::collection::vec(0_usize..40, 0..20),
    ) {
        let whole = |codec: &LengthPrefixCodec| {
            let mut received = Vec::new();
            let taken = InboundBuffer::default().deliver_framed_messages(&stream, codec, |message, frame| {
                received.push(message.to_vec());
                let mut written = Vec::new();
                let exact = codec.encode(message, &mut written).is_ok() && written == stream[frame];
                assert!(exact, "IS_EXACT promises that encode reverses decode");
                ControlFlow::Continue(())
            });
            (received, taken.is_err())
        };
        let codec = LengthPrefixCodec::new(50);
        let (expected, is_error) = whole(&codec);
        let mut inbound = InboundBuffer::default();
        let (mut received, mut rest, mut had_error) = (Vec::new(), &stream[..], false);
        for &cut in cuts.iter().chain([&usize::MAX]) {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            rest = later;
            let taken = inbound.deliver_messages(now, &codec, |message| {
                received.push(message.to_vec());
                ControlFlow::Continue(())
            });
            if taken.is_err() {
                had_error = true;
                break;
            }
        }
        prop_assert_eq!((received, had_error), (expected, is_error));
    }
}
