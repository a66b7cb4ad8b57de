//! Perfetto's protobuf, encoded by hand: a sequence of packets, each with a time and part of a
//! track.
//!
//! Each thread is a packet sequence, with its track and clock as defaults and with interned names:
//! an event takes 18 to 22 bytes. Times are those of CLOCK_MONOTONIC; a clock snapshot relates them
//! to the wall clock.
//!
//! Source: the definitions in Perfetto's `protos/perfetto/trace`, which give the numbers below.

use super::sink::Sink;
use crate::names::{NameId, Names};
use crate::walk::{Call, Ending, Position, ThreadInfo, Visitor};
use std::io::{self, Write};

/// Field number of `Trace.packet`.
const PACKET: u32 = 1;
/// Field numbers of `TracePacket`.
mod packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub const DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
}
const INCREMENTAL_STATE_CLEARED: u64 = 1;
const NEEDS_INCREMENTAL_STATE: u64 = 2;
/// Field numbers of `TrackEvent`, and of its defaults.
mod event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK_UUID: u32 = 11;
}
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
/// Field numbers of `DebugAnnotation`.
mod annotation {
    pub const NAME_IID: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const INT: u32 = 4;
}
/// Field numbers of `InternedData`, and of each interned string.
mod interned {
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const IID: u32 = 1;
    pub const NAME: u32 = 2;
}
/// Field numbers of `TrackDescriptor`, `ProcessDescriptor` and `ThreadDescriptor`.
mod track {
    pub const UUID: u32 = 1;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT_UUID: u32 = 5;
    pub const PID: u32 = 1;
    pub const PROCESS_COMMAND: u32 = 2;
    pub const PROCESS_NAME: u32 = 6;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}
/// Field numbers of `ClockSnapshot` and its clocks.
mod clock {
    pub const CLOCKS: u32 = 1;
    pub const PRIMARY: u32 = 2;
    pub const ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const REALTIME: u64 = 1;
    pub const MONOTONIC: u64 = 3;
}

/// Names of annotations; an annotation's number is its index plus one.
const ANNOTATIONS: &[&str] = &["value", "value 2", "end is missing"];
const FIRST_VALUE: u64 = 1;
const END_IS_MISSING: u64 = 3;

/// Id of the packet sequence that belongs to no thread.
const GLOBAL_SEQUENCE: u64 = 1;

/// Buffer size of one event: with two values and a name's number it takes 70 bytes at most.
const EVENT_BYTES_MAX: usize = 96;

pub struct PerfettoWriter<'a, W> {
    names: &'a Names,
    sink: &'a mut Sink<W>,
    sequence: u64,
    process: Option<usize>,
    /// For each name, the sequence in which it was last interned.
    interned: Vec<u64>,
}

impl<'a, W: Write> PerfettoWriter<'a, W> {
    pub fn new(names: &'a Names, sink: &'a mut Sink<W>) -> Self {
        let interned = vec![0; names.count()];
        Self { names, sink, sequence: GLOBAL_SEQUENCE, process: None, interned }
    }

    fn clocks(&mut self, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        let mut clocks = Message::default();
        for (id, ns) in [
            (clock::MONOTONIC, thread_info.begin_ns),
            (clock::REALTIME, thread_info.begin_realtime_ns),
        ] {
            let mut one = Message::default();
            one.number(clock::ID, id).number(clock::TIMESTAMP, ns.max(0) as u64);
            clocks.message(clock::CLOCKS, &one);
        }
        clocks.number(clock::PRIMARY, clock::MONOTONIC);
        let mut packet = Message::default();
        packet.number(packet::SEQUENCE_ID, GLOBAL_SEQUENCE);
        packet.message(packet::CLOCK_SNAPSHOT, &clocks);
        self.packet(&packet)
    }

    fn process(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(track::PID, thread_info.pid.into());
        if !thread_info.program.is_empty() {
            let name = thread_info.program.rsplit('/').next().unwrap_or_default();
            descriptor.text(track::PROCESS_COMMAND, thread_info.program);
            descriptor.text(track::PROCESS_NAME, name);
        }
        let mut track = Message::default();
        track.number(track::UUID, uuid(process, thread_info.pid, u64::MAX));
        track.message(track::PROCESS, &descriptor);
        let mut packet = Message::default();
        packet.number(packet::SEQUENCE_ID, GLOBAL_SEQUENCE);
        packet.message(packet::TRACK_DESCRIPTOR, &track);
        self.packet(&packet)
    }

    /// Starts the packet sequence of a thread with its track, its defaults and the annotation names.
    fn sequence(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        self.sequence += 1;
        let uuid_of_thread = uuid(process, thread_info.pid, thread_info.index as u64);
        let mut descriptor = Message::default();
        descriptor
            .number(track::PID, thread_info.pid.into())
            .number(track::TID, thread_info.thread.tid);
        if !thread_info.thread.name.is_empty() {
            descriptor.text(track::THREAD_NAME, &thread_info.thread.name);
        }
        let mut track = Message::default();
        track.number(track::UUID, uuid_of_thread);
        track.number(track::PARENT_UUID, uuid(process, thread_info.pid, u64::MAX));
        track.message(track::THREAD, &descriptor);
        let mut events = Message::default();
        events.number(event::TRACK_UUID, uuid_of_thread);
        let mut defaults = Message::default();
        defaults.number(packet::TIMESTAMP_CLOCK_ID, clock::MONOTONIC);
        defaults.message(packet::TRACK_EVENT, &events);
        let mut names = Message::default();
        for (iid, name) in (1..).zip(ANNOTATIONS) {
            names.interned(interned::ANNOTATION_NAMES, iid, name);
        }
        let mut packet = Message::default();
        packet.number(packet::SEQUENCE_ID, self.sequence);
        packet.number(packet::SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED);
        packet.message(packet::INTERNED_DATA, &names);
        packet.message(packet::DEFAULTS, &defaults);
        packet.message(packet::TRACK_DESCRIPTOR, &track);
        self.packet(&packet)
    }

    /// Writes a packet that interns a name, before the first event with that name: `InternedData`
    /// may precede its use.
    #[cold]
    fn intern(&mut self, name: NameId) -> io::Result<()> {
        self.interned[name.index()] = self.sequence;
        let mut names = Message::default();
        names.interned(interned::EVENT_NAMES, iid(name), self.names.text(name));
        let mut packet = Message::default();
        packet.number(packet::SEQUENCE_ID, self.sequence);
        packet.number(packet::SEQUENCE_FLAGS, NEEDS_INCREMENTAL_STATE);
        packet.message(packet::INTERNED_DATA, &names);
        self.packet(&packet)
    }

    fn packet(&mut self, packet: &Message) -> io::Result<()> {
        let mut framed = Message::default();
        framed.message(PACKET, packet);
        self.sink.bytes().extend_from_slice(&framed.0);
        self.sink.flush_if_full()
    }

    #[inline]
    fn event(
        &mut self,
        at: &Position,
        kind: u64,
        name: Option<NameId>,
        annotations: Annotations<'_>,
    ) -> io::Result<()> {
        if let Some(name) = name
            && self.interned[name.index()] != self.sequence
        {
            self.intern(name)?;
        }
        let mut short = ShortMessage::default();
        short.tag(PACKET, LENGTH);
        let packet = short.open();
        short.number(packet::TIMESTAMP, at.ns.max(0) as u64);
        short.number(packet::SEQUENCE_ID, self.sequence);
        short.number(packet::SEQUENCE_FLAGS, NEEDS_INCREMENTAL_STATE);
        short.tag(packet::TRACK_EVENT, LENGTH);
        let event = short.open();
        short.number(event::TYPE, kind);
        if let Some(name) = name {
            short.number(event::NAME_IID, iid(name));
        }
        match annotations {
            Annotations::Values(values) => {
                for (iid, value) in (FIRST_VALUE..).zip(values) {
                    short.annotation(iid, annotation::INT, *value);
                }
            }
            Annotations::EndIsMissing => short.annotation(END_IS_MISSING, annotation::BOOL, 1),
        }
        short.close(event);
        short.close(packet);
        self.sink.bytes().extend_from_slice(short.bytes());
        self.sink.flush_if_full()
    }
}

enum Annotations<'a> {
    Values(&'a [u64]),
    EndIsMissing,
}

/// Returns the interning id of a name; 0 would mean none.
fn iid(name: NameId) -> u64 {
    u64::from(name.0) + 1
}

/// Returns a track's id, which should differ from those of other traces in the same view.
fn uuid(process: usize, pid: u32, thread: u64) -> u64 {
    // splitmix64's mixing (Steele, Lea, Flood, OOPSLA 2014).
    let mix = |word: u64| {
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    mix(mix(mix(u64::from(pid) | (process as u64) << 32) ^ thread) ^ 0x6861_6e64_6f76_6572).max(1)
}

impl<W: Write> Visitor for PerfettoWriter<'_, W> {
    fn thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        if self.process.is_none() {
            self.clocks(thread_info)?;
        }
        if self.process != Some(process) {
            self.process = Some(process);
            self.process(process, thread_info)?;
        }
        self.sequence(process, thread_info)
    }

    #[inline]
    fn enter(&mut self, at: &Position, name: NameId, values: &[u64]) -> io::Result<()> {
        self.event(at, SLICE_BEGIN, Some(name), Annotations::Values(values))
    }

    #[inline]
    fn leave(&mut self, at: &Position, call: &Call) -> io::Result<()> {
        let annotations = match call.ending {
            Ending::Returned => Annotations::Values(&[]),
            _ => Annotations::EndIsMissing,
        };
        self.event(at, SLICE_END, None, annotations)
    }

    fn mark(&mut self, at: &Position, name: NameId, values: &[u64]) -> io::Result<()> {
        self.event(at, INSTANT, Some(name), Annotations::Values(values))
    }
}

/// Wire types of integers and of length-delimited fields.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

/// Protobuf message of any length.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u32, number: u64) -> &mut Self {
        self.varint(u64::from(field << 3 | VARINT));
        self.varint(number);
        self
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field << 3 | LENGTH));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    fn interned(&mut self, field: u32, iid: u64, name: &str) {
        let mut one = Message::default();
        one.number(interned::IID, iid).text(interned::NAME, name);
        self.message(field, &one);
    }
}

/// Protobuf message of less than 128 bytes, so that each length takes one byte.
struct ShortMessage {
    bytes: [u8; EVENT_BYTES_MAX],
    at: usize,
}

impl Default for ShortMessage {
    #[inline]
    fn default() -> Self {
        Self { bytes: [0; EVENT_BYTES_MAX], at: 0 }
    }
}

impl ShortMessage {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }

    /// Appends a tag in one byte: all field numbers of events are below 16.
    #[inline]
    fn tag(&mut self, field: u32, wire: u32) {
        self.push((field << 3 | wire) as u8);
    }

    #[inline]
    fn number(&mut self, field: u32, number: u64) {
        self.tag(field, VARINT);
        self.varint(number);
    }

    #[inline]
    fn open(&mut self) -> usize {
        self.push(0);
        self.at
    }

    #[inline]
    fn close(&mut self, opened: usize) {
        self.bytes[opened - 1] = (self.at - opened) as u8;
    }

    fn annotation(&mut self, iid: u64, field: u32, value: u64) {
        self.tag(event::ANNOTATION, LENGTH);
        let annotation = self.open();
        self.number(annotation::NAME_IID, iid);
        self.number(field, value);
        self.close(annotation);
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.at]
    }
}
