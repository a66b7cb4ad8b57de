//! Perfetto's protobuf, encoded by hand: a sequence of packets, each with a time and part of a
//! track.
//!
//! Each thread is a packet sequence, with its track and clock as defaults and with interned names.
//! The clock is incremental: the time of an event is the difference from the previous event. An
//! event takes 12 to 15 bytes without values, and 2 to 5 after compression, depending on how
//! regular the times are. The file is a sequence of packets that each contain a compressed chunk of
//! packets.
//!
//! Times are those of CLOCK_MONOTONIC; a clock snapshot relates them to the wall clock.
//!
//! Source: the definitions in Perfetto's `protos/perfetto/trace`, which give the numbers below.

use super::sink::ExportBuffer;
use crate::names::{NameId, SiteNames};
use crate::walk::{CallEnding, CompletedCall, EventPosition, ThreadInfo, TraceVisitor};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::{self, Write};

const TRACE_PACKET_FIELD: u32 = 1;
/// Field numbers of `TracePacket`.
mod packet {
    pub const CLOCK_SNAPSHOT_FIELD: u32 = 6;
    pub const TIMESTAMP_FIELD: u32 = 8;
    pub const SEQUENCE_ID_FIELD: u32 = 10;
    pub const TRACK_EVENT_FIELD: u32 = 11;
    pub const INTERNED_DATA_FIELD: u32 = 12;
    pub const SEQUENCE_FLAGS_FIELD: u32 = 13;
    pub const COMPRESSED_PACKETS_FIELD: u32 = 50;
    pub const TIMESTAMP_CLOCK_ID_FIELD: u32 = 58;
    pub const DEFAULTS_FIELD: u32 = 59;
    pub const TRACK_DESCRIPTOR_FIELD: u32 = 60;
}
const INCREMENTAL_STATE_CLEARED_FLAG: u64 = 1;
const NEEDS_INCREMENTAL_STATE_FLAG: u64 = 2;
/// Field numbers of `TrackEvent`, and of its defaults.
mod event {
    pub const ANNOTATION_FIELD: u32 = 4;
    pub const TYPE_FIELD: u32 = 9;
    pub const NAME_IID_FIELD: u32 = 10;
    pub const TRACK_UUID_FIELD: u32 = 11;
}
const SLICE_BEGIN_EVENT_TYPE: u64 = 1;
const SLICE_END_EVENT_TYPE: u64 = 2;
const INSTANT_EVENT_TYPE: u64 = 3;
/// Field numbers of `DebugAnnotation`.
mod annotation {
    pub const NAME_IID_FIELD: u32 = 1;
    pub const BOOL_VALUE_FIELD: u32 = 2;
    pub const INT_VALUE_FIELD: u32 = 4;
}
/// Field numbers of `InternedData`, and of each interned string.
mod interned {
    pub const EVENT_NAMES_FIELD: u32 = 2;
    pub const ANNOTATION_NAMES_FIELD: u32 = 3;
    pub const STRING_IID_FIELD: u32 = 1;
    pub const STRING_NAME_FIELD: u32 = 2;
}
/// Field numbers of `TrackDescriptor`, `ProcessDescriptor` and `ThreadDescriptor`.
mod track {
    pub const TRACK_UUID_FIELD: u32 = 1;
    pub const PROCESS_DESCRIPTOR_FIELD: u32 = 3;
    pub const THREAD_DESCRIPTOR_FIELD: u32 = 4;
    pub const PARENT_TRACK_UUID_FIELD: u32 = 5;
    pub const PID_FIELD: u32 = 1;
    pub const PROCESS_COMMAND_FIELD: u32 = 2;
    pub const PROCESS_NAME_FIELD: u32 = 6;
    pub const TID_FIELD: u32 = 2;
    pub const THREAD_NAME_FIELD: u32 = 5;
}
/// Field numbers of `ClockSnapshot` and its clocks.
mod clock {
    pub const CLOCKS_FIELD: u32 = 1;
    pub const PRIMARY_CLOCK_FIELD: u32 = 2;
    pub const CLOCK_ID_FIELD: u32 = 1;
    pub const CLOCK_TIMESTAMP_FIELD: u32 = 2;
    pub const IS_INCREMENTAL_FIELD: u32 = 3;
    pub const REALTIME_CLOCK_ID: u64 = 1;
    pub const MONOTONIC_CLOCK_ID: u64 = 3;
    /// Clock of one packet sequence, in ns. The ids from 64 to 127 are valid within a sequence.
    pub const SEQUENCE_CLOCK_ID: u64 = 64;
}

/// Names of annotations. An annotation's number is its index plus one.
const ANNOTATION_NAMES: &[&str] = &["value", "value 2", "end is missing"];
const FIRST_VALUE_NAME_IID: u64 = 1;
const END_IS_MISSING_NAME_IID: u64 = 3;

/// Id of the packet sequence for packets that belong to no thread.
const GLOBAL_SEQUENCE_ID: u64 = 1;

/// Size of the buffer for one event, in bytes. An event takes 70 bytes at most, with two values and
/// a name's number.
const EVENT_BYTES_MAX: usize = 96;

/// Size of a chunk before compression, in bytes. Perfetto limits a packet with a compressed chunk
/// to 512 kB, which this chunk does not exceed even if it cannot be compressed.
const CHUNK_BYTES: usize = 1 << 18;

/// Writer of Perfetto's protobuf format.
pub struct PerfettoWriter<'a, W> {
    names: &'a SiteNames,
    sink: &'a mut ExportBuffer<W>,
    /// Packets of the current chunk, not yet compressed.
    chunk: Vec<u8>,
    /// Id of the current thread's packet sequence.
    sequence: u64,
    /// Time of the current thread's last event, in ns: the state of its incremental clock.
    last_ns: u64,
    /// Index of the current thread's process.
    process: Option<usize>,
    /// Id of the packet sequence in which a name was last interned, for each name.
    interned: Vec<u64>,
}

impl<'a, W: Write> PerfettoWriter<'a, W> {
    pub fn new(names: &'a SiteNames, sink: &'a mut ExportBuffer<W>) -> Self {
        Self {
            names,
            sink,
            chunk: Vec::with_capacity(CHUNK_BYTES + (1 << 12)),
            sequence: GLOBAL_SEQUENCE_ID,
            last_ns: 0,
            process: None,
            interned: vec![0; names.count()],
        }
    }

    /// Writes the last chunk.
    pub fn finish(mut self) -> io::Result<()> {
        if self.chunk.is_empty() { Ok(()) } else { self.write_chunk() }
    }

    /// Writes a packet with the thread's start time on two clocks.
    fn write_clock_snapshot(&mut self, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        let mut clocks = Message::default();
        clocks.push_clock(clock::MONOTONIC_CLOCK_ID, thread_info.begin_ns.max(0) as u64, false);
        clocks.push_clock(
            clock::REALTIME_CLOCK_ID,
            thread_info.begin_realtime_ns.max(0) as u64,
            false,
        );
        clocks.push_number(clock::PRIMARY_CLOCK_FIELD, clock::MONOTONIC_CLOCK_ID);
        let mut packet = Message::default();
        packet.push_number(packet::SEQUENCE_ID_FIELD, GLOBAL_SEQUENCE_ID);
        packet.push_message(packet::CLOCK_SNAPSHOT_FIELD, &clocks);
        self.write_packet(&packet)
    }

    /// Writes a packet that describes the track of a process.
    fn write_process_track(
        &mut self,
        process: usize,
        thread_info: &ThreadInfo<'_>,
    ) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.push_number(track::PID_FIELD, thread_info.pid.into());
        if !thread_info.program.is_empty() {
            let name = thread_info.program.rsplit('/').next().unwrap_or_default();
            descriptor.push_text(track::PROCESS_COMMAND_FIELD, thread_info.program);
            descriptor.push_text(track::PROCESS_NAME_FIELD, name);
        }
        let mut track = Message::default();
        track.push_number(track::TRACK_UUID_FIELD, track_uuid(process, thread_info.pid, u64::MAX));
        track.push_message(track::PROCESS_DESCRIPTOR_FIELD, &descriptor);
        let mut packet = Message::default();
        packet.push_number(packet::SEQUENCE_ID_FIELD, GLOBAL_SEQUENCE_ID);
        packet.push_message(packet::TRACK_DESCRIPTOR_FIELD, &track);
        self.write_packet(&packet)
    }

    /// Starts the packet sequence of a thread. Writes the defaults, the annotation names, the
    /// sequence's clock and the thread's track.
    fn start_thread_sequence(
        &mut self,
        process: usize,
        thread_info: &ThreadInfo<'_>,
    ) -> io::Result<()> {
        self.sequence += 1;
        self.last_ns = 0;
        let uuid_of_thread = track_uuid(process, thread_info.pid, thread_info.index as u64);
        let mut descriptor = Message::default();
        descriptor
            .push_number(track::PID_FIELD, thread_info.pid.into())
            .push_number(track::TID_FIELD, thread_info.thread.tid);
        if !thread_info.thread.name.is_empty() {
            descriptor.push_text(track::THREAD_NAME_FIELD, &thread_info.thread.name);
        }
        let mut track = Message::default();
        track.push_number(track::TRACK_UUID_FIELD, uuid_of_thread);
        track.push_number(
            track::PARENT_TRACK_UUID_FIELD,
            track_uuid(process, thread_info.pid, u64::MAX),
        );
        track.push_message(track::THREAD_DESCRIPTOR_FIELD, &descriptor);
        let mut events = Message::default();
        events.push_number(event::TRACK_UUID_FIELD, uuid_of_thread);
        let mut defaults = Message::default();
        defaults.push_number(packet::TIMESTAMP_CLOCK_ID_FIELD, clock::SEQUENCE_CLOCK_ID);
        defaults.push_message(packet::TRACK_EVENT_FIELD, &events);
        // From 0: the first event has its absolute time, and may precede the thread's start time.
        let mut clocks = Message::default();
        clocks.push_clock(clock::MONOTONIC_CLOCK_ID, 0, false);
        clocks.push_clock(clock::SEQUENCE_CLOCK_ID, 0, true);
        let mut names = Message::default();
        for (iid, name) in (1..).zip(ANNOTATION_NAMES) {
            names.push_interned(interned::ANNOTATION_NAMES_FIELD, iid, name);
        }
        let mut packet = Message::default();
        packet.push_number(packet::SEQUENCE_ID_FIELD, self.sequence);
        packet.push_number(packet::SEQUENCE_FLAGS_FIELD, INCREMENTAL_STATE_CLEARED_FLAG);
        packet.push_message(packet::INTERNED_DATA_FIELD, &names);
        packet.push_message(packet::DEFAULTS_FIELD, &defaults);
        packet.push_message(packet::CLOCK_SNAPSHOT_FIELD, &clocks);
        self.write_packet(&packet)?;
        let mut packet = Message::default();
        packet.push_number(packet::SEQUENCE_ID_FIELD, self.sequence);
        packet.push_number(packet::SEQUENCE_FLAGS_FIELD, NEEDS_INCREMENTAL_STATE_FLAG);
        packet.push_message(packet::TRACK_DESCRIPTOR_FIELD, &track);
        self.write_packet(&packet)
    }

    /// Writes a packet that interns a name, before the first event with that name.
    #[cold]
    fn intern(&mut self, name: NameId) -> io::Result<()> {
        self.interned[name.index()] = self.sequence;
        let mut names = Message::default();
        names.push_interned(interned::EVENT_NAMES_FIELD, iid(name), self.names.text_of(name));
        let mut packet = Message::default();
        packet.push_number(packet::SEQUENCE_ID_FIELD, self.sequence);
        packet.push_number(packet::SEQUENCE_FLAGS_FIELD, NEEDS_INCREMENTAL_STATE_FLAG);
        packet.push_message(packet::INTERNED_DATA_FIELD, &names);
        self.write_packet(&packet)
    }

    fn write_packet(&mut self, packet: &Message) -> io::Result<()> {
        let mut framed = Message::default();
        framed.push_message(TRACE_PACKET_FIELD, packet);
        self.append_to_chunk(&framed.0)
    }

    /// Appends an encoded packet to the chunk, and writes the chunk if it is full.
    #[inline]
    fn append_to_chunk(&mut self, packet: &[u8]) -> io::Result<()> {
        self.chunk.extend_from_slice(packet);
        if self.chunk.len() >= CHUNK_BYTES { self.write_chunk() } else { Ok(()) }
    }

    /// Writes the chunk as one packet, compressed, and clears the chunk.
    #[cold]
    fn write_chunk(&mut self) -> io::Result<()> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.chunk)?;
        self.chunk.clear();
        let mut packet = Message::default();
        packet.push_bytes(packet::COMPRESSED_PACKETS_FIELD, &encoder.finish()?);
        let mut framed = Message::default();
        framed.push_message(TRACE_PACKET_FIELD, &packet);
        self.sink.buffer_mut().extend_from_slice(&framed.0);
        self.sink.flush_if_full()
    }

    /// Writes a packet with one event; interns the event's name if necessary.
    #[inline]
    fn write_event(
        &mut self,
        at: &EventPosition,
        kind: u64,
        name: Option<NameId>,
        annotations: Annotations<'_>,
    ) -> io::Result<()> {
        if let Some(name) = name
            && self.interned[name.index()] != self.sequence
        {
            self.intern(name)?;
        }
        // The times of a thread do not decrease, except in a damaged trace.
        let ns = (at.ns.max(0) as u64).max(self.last_ns);
        let mut short = ShortMessage::default();
        short.push_tag(TRACE_PACKET_FIELD, LENGTH_DELIMITED_WIRE_TYPE);
        let packet = short.begin_nested();
        short.push_number(packet::TIMESTAMP_FIELD, ns - self.last_ns);
        self.last_ns = ns;
        short.push_number(packet::SEQUENCE_ID_FIELD, self.sequence);
        short.push_number(packet::SEQUENCE_FLAGS_FIELD, NEEDS_INCREMENTAL_STATE_FLAG);
        short.push_tag(packet::TRACK_EVENT_FIELD, LENGTH_DELIMITED_WIRE_TYPE);
        let event = short.begin_nested();
        short.push_number(event::TYPE_FIELD, kind);
        if let Some(name) = name {
            short.push_number(event::NAME_IID_FIELD, iid(name));
        }
        match annotations {
            Annotations::Values(values) => {
                for (iid, value) in (FIRST_VALUE_NAME_IID..).zip(values) {
                    short.push_annotation(iid, annotation::INT_VALUE_FIELD, *value);
                }
            }
            Annotations::EndIsMissing => {
                short.push_annotation(END_IS_MISSING_NAME_IID, annotation::BOOL_VALUE_FIELD, 1)
            }
        }
        short.end_nested(event);
        short.end_nested(packet);
        self.append_to_chunk(short.bytes())
    }
}

/// Annotations of an event: its values, or a note that the call's end is missing.
enum Annotations<'a> {
    Values(&'a [u64]),
    EndIsMissing,
}

/// Returns the number, from 1, under which Perfetto interns a name.
fn iid(name: NameId) -> u64 {
    u64::from(name.0) + 1
}

/// Returns the id of a thread's track. For the thread `u64::MAX`, it is that of its process's
/// track; ids of different traces should differ.
fn track_uuid(process: usize, pid: u32, thread: u64) -> u64 {
    // splitmix64's mixing (Steele, Lea, Flood, OOPSLA 2014).
    let mix = |word: u64| {
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    mix(mix(mix(u64::from(pid) | (process as u64) << 32) ^ thread) ^ 0x6861_6e64_6f76_6572).max(1)
}

impl<W: Write> TraceVisitor for PerfettoWriter<'_, W> {
    fn start_thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        if self.process.is_none() {
            self.write_clock_snapshot(thread_info)?;
        }
        if self.process != Some(process) {
            self.process = Some(process);
            self.write_process_track(process, thread_info)?;
        }
        self.start_thread_sequence(process, thread_info)
    }

    #[inline]
    fn enter_call(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.write_event(at, SLICE_BEGIN_EVENT_TYPE, Some(name), Annotations::Values(values))
    }

    #[inline]
    fn leave_call(&mut self, at: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        let annotations = match call.ending {
            CallEnding::Returned => Annotations::Values(&[]),
            _ => Annotations::EndIsMissing,
        };
        self.write_event(at, SLICE_END_EVENT_TYPE, None, annotations)
    }

    fn visit_mark(&mut self, at: &EventPosition, name: NameId, values: &[u64]) -> io::Result<()> {
        self.write_event(at, INSTANT_EVENT_TYPE, Some(name), Annotations::Values(values))
    }
}

const VARINT_WIRE_TYPE: u32 = 0;
const LENGTH_DELIMITED_WIRE_TYPE: u32 = 2;

/// Protobuf message of any length.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Appends a number as a varint, without a field number.
    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a field that contains a number.
    fn push_number(&mut self, field: u32, number: u64) -> &mut Self {
        self.push_varint(u64::from(field << 3 | VARINT_WIRE_TYPE));
        self.push_varint(number);
        self
    }

    /// Appends a field that contains bytes.
    fn push_bytes(&mut self, field: u32, bytes: &[u8]) {
        self.push_varint(u64::from(field << 3 | LENGTH_DELIMITED_WIRE_TYPE));
        self.push_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Appends a field that contains a text.
    fn push_text(&mut self, field: u32, text: &str) {
        self.push_bytes(field, text.as_bytes());
    }

    /// Appends a field that contains another message.
    fn push_message(&mut self, field: u32, message: &Message) {
        self.push_bytes(field, &message.0);
    }

    /// Appends the time of a clock to a clock snapshot.
    fn push_clock(&mut self, id: u64, ns: u64, is_incremental: bool) {
        let mut one = Message::default();
        one.push_number(clock::CLOCK_ID_FIELD, id)
            .push_number(clock::CLOCK_TIMESTAMP_FIELD, ns)
            .push_number(clock::IS_INCREMENTAL_FIELD, u64::from(is_incremental));
        self.push_message(clock::CLOCKS_FIELD, &one);
    }

    /// Appends an interned string: a message with the string's id and its text.
    fn push_interned(&mut self, field: u32, iid: u64, name: &str) {
        let mut one = Message::default();
        one.push_number(interned::STRING_IID_FIELD, iid)
            .push_text(interned::STRING_NAME_FIELD, name);
        self.push_message(field, &one);
    }
}

/// Protobuf message of less than 128 bytes. Each length in it takes one byte.
struct ShortMessage {
    bytes: [u8; EVENT_BYTES_MAX],
    /// Number of bytes written.
    len: usize,
}

impl Default for ShortMessage {
    #[inline]
    fn default() -> Self {
        Self { bytes: [0; EVENT_BYTES_MAX], len: 0 }
    }
}

impl ShortMessage {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends a number as a varint, without a field number.
    #[inline]
    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.push(number as u8);
    }

    /// Appends the tag of a field whose number is below 16. Such a tag takes one byte.
    #[inline]
    fn push_tag(&mut self, field: u32, wire: u32) {
        self.push((field << 3 | wire) as u8);
    }

    /// Appends a field that contains a number.
    #[inline]
    fn push_number(&mut self, field: u32, number: u64) {
        self.push_tag(field, VARINT_WIRE_TYPE);
        self.push_varint(number);
    }

    /// Begins a nested message; returns the offset of its content.
    #[inline]
    fn begin_nested(&mut self) -> usize {
        self.push(0);
        self.len
    }

    /// Ends a nested message, and writes its length.
    #[inline]
    fn end_nested(&mut self, opened: usize) {
        self.bytes[opened - 1] = (self.len - opened) as u8;
    }

    /// Appends an annotation of an event: the number of its name, and a value.
    fn push_annotation(&mut self, iid: u64, field: u32, value: u64) {
        self.push_tag(event::ANNOTATION_FIELD, LENGTH_DELIMITED_WIRE_TYPE);
        let annotation = self.begin_nested();
        self.push_number(annotation::NAME_IID_FIELD, iid);
        self.push_number(field, value);
        self.end_nested(annotation);
    }

    /// Returns the bytes written so far.
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
