//! Independent reader of Perfetto's protobuf: prost decodes; this module decompresses chunks, and
//! resolves interned names, defaults, incremental clocks and tracks like `trace_processor`. The
//! field numbers are those of Perfetto's definitions.

use flate2::read::ZlibDecoder;
use prost::Message;
use std::collections::HashMap;
use std::io::Read;

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(message, optional, tag = "6")]
    clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "50")]
    compressed_packets: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    trace_packet_defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    primary_trace_clock: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    is_incremental: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(uint32, optional, tag = "9")]
    r#type: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    bool_value: Option<bool>,
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Interned>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Defaults {
    #[prost(message, optional, tag = "11")]
    track_event_defaults: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "58")]
    timestamp_clock_id: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, repeated, tag = "2")]
    cmdline: Vec<String>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
/// Ids of clocks that are valid within their packet sequence.
const SEQUENCE_CLOCKS: std::ops::Range<u32> = 64..128;
/// Maximum size of a packet with a compressed chunk, according to Perfetto's definitions.
const COMPRESSED_BYTES_MAX: usize = 512_000;
const CLEARED: u32 = 1;
const NEEDED: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Begin,
    End,
    Instant,
}

/// Decoded event; ends have no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedEvent {
    pub ns: u64,
    pub kind: Kind,
    pub name: Option<String>,
    pub values: Vec<i64>,
    pub end_is_missing: bool,
}

/// Track of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Track {
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    pub process: String,
    pub events: Vec<DecodedEvent>,
}

#[derive(Default)]
struct Sequence {
    is_valid: bool,
    names: HashMap<u64, String>,
    annotations: HashMap<u64, String>,
    clock: Option<u32>,
    track: Option<u64>,
    /// Last time of each incremental clock, in ns.
    clocks_ns: HashMap<u32, u64>,
}

impl Sequence {
    fn take(&mut self, packet: &Packet) {
        if packet.sequence_flags.unwrap_or(0) & CLEARED != 0 {
            *self = Sequence { is_valid: true, ..Sequence::default() };
        }
        if let Some(defaults) = &packet.trace_packet_defaults {
            self.clock = defaults.timestamp_clock_id;
            self.track = defaults.track_event_defaults.as_ref().and_then(|it| it.track_uuid);
        }
        if let Some(snapshot) = &packet.clock_snapshot {
            let monotonic = snapshot.clocks.iter().find(|it| it.clock_id == Some(MONOTONIC));
            let monotonic_ns = monotonic.and_then(|it| it.timestamp).expect("a monotonic time");
            for clock in snapshot.clocks.iter().filter(|it| it.is_incremental == Some(true)) {
                let id = clock.clock_id.unwrap();
                assert!(SEQUENCE_CLOCKS.contains(&id), "only clocks of a sequence are incremental");
                assert_eq!(clock.timestamp, Some(monotonic_ns), "the clocks have an offset");
                self.clocks_ns.insert(id, monotonic_ns);
            }
        }
        if let Some(data) = &packet.interned_data {
            let tables = [
                (&mut self.names, &data.event_names),
                (&mut self.annotations, &data.debug_annotation_names),
            ];
            for (table, entries) in tables {
                for entry in entries {
                    let (iid, name) = (entry.iid.unwrap(), entry.name.clone().unwrap());
                    assert!(iid > 0, "0 is not an interning number");
                    let before = table.insert(iid, name.clone());
                    assert!(
                        before.is_none_or(|before| before == name),
                        "{iid} is interned for two names"
                    );
                }
            }
        }
    }

    /// Advances the sequence's clock by the packet's time, and returns the clock's new time.
    fn absolute_ns(&mut self, packet: &Packet) -> u64 {
        let clock = packet.timestamp_clock_id.or(self.clock).expect("a clock");
        let ns = self.clocks_ns.get_mut(&clock).expect("a snapshot of the sequence's clock");
        *ns += packet.timestamp.expect("a time");
        *ns
    }

    fn decoded(&mut self, packet: &Packet, event: &TrackEvent) -> DecodedEvent {
        // Required of all packets of a sequence with defaults.
        assert_eq!(packet.sequence_flags, Some(NEEDED));
        assert!(self.is_valid, "an event before its sequence");
        let kind = match event.r#type {
            Some(1) => Kind::Begin,
            Some(2) => Kind::End,
            Some(3) => Kind::Instant,
            other => panic!("type {other:?}"),
        };
        let mut decoded = DecodedEvent {
            ns: self.absolute_ns(packet),
            kind,
            name: event.name_iid.map(|iid| self.names[&iid].clone()),
            values: Vec::new(),
            end_is_missing: false,
        };
        for annotation in &event.debug_annotations {
            match self.annotations[&annotation.name_iid.unwrap()].as_str() {
                "value" | "value 2" => decoded.values.push(annotation.int_value.unwrap()),
                "end is missing" => decoded.end_is_missing = annotation.bool_value.unwrap(),
                other => panic!("{other}"),
            }
        }
        decoded
    }
}

/// Returns the packets of a file or of a chunk.
fn packets(bytes: &[u8]) -> Vec<Packet> {
    let file = File::decode(bytes).expect("protobuf");
    assert_eq!(file.encoded_len(), bytes.len(), "unknown fields");
    file.packet
}

/// Returns the packets in the compressed chunks of a file.
fn decompressed_packets(bytes: &[u8]) -> Vec<Packet> {
    let inflated = |packet: Packet| {
        assert!(packet.encoded_len() < COMPRESSED_BYTES_MAX);
        let compressed = packet.compressed_packets.expect("a compressed chunk");
        let mut chunk = Vec::new();
        ZlibDecoder::new(&compressed[..]).read_to_end(&mut chunk).expect("zlib");
        packets(&chunk)
    };
    packets(bytes).into_iter().flat_map(inflated).collect()
}

/// Returns the number of compressed chunks of a file.
pub fn chunks_count(bytes: &[u8]) -> usize {
    packets(bytes).len()
}

/// Returns the threads' tracks in the order of their descriptors, as a viewer shows them.
pub fn tracks(bytes: &[u8]) -> Vec<Track> {
    let mut sequences: HashMap<u32, Sequence> = HashMap::new();
    let mut processes: HashMap<u64, ProcessDescriptor> = HashMap::new();
    let mut tracks: Vec<(u64, Track)> = Vec::new();
    let mut has_clock = false;
    for packet in &decompressed_packets(bytes) {
        if let Some(snapshot) = &packet.clock_snapshot {
            assert_eq!(snapshot.clocks.len(), 2);
            // The first snapshot selects the trace's clock, before any time is converted to it.
            if !has_clock {
                assert_eq!(snapshot.primary_trace_clock, Some(MONOTONIC));
                assert!(snapshot.clocks.iter().any(|it| it.clock_id == Some(REALTIME)));
                has_clock = true;
            }
        }
        let id = packet.trusted_packet_sequence_id.expect("a sequence");
        let sequence = sequences.entry(id).or_default();
        sequence.take(packet);
        if let Some(track) = &packet.track_descriptor {
            let uuid = track.uuid.expect("a number");
            if let Some(process) = &track.process {
                processes.insert(uuid, process.clone());
            }
            if let Some(thread) = &track.thread {
                let process = &processes[&track.parent_uuid.expect("a parent")];
                assert_eq!(process.pid, thread.pid);
                let track = Track {
                    pid: thread.pid.unwrap(),
                    tid: thread.tid.unwrap(),
                    thread: thread.thread_name.clone().unwrap_or_default(),
                    process: process.process_name.clone().unwrap_or_default(),
                    events: Vec::new(),
                };
                assert!(tracks.iter().all(|(other, _)| *other != uuid), "duplicate track");
                tracks.push((uuid, track));
            }
        }
        if let Some(event) = &packet.track_event {
            assert!(has_clock, "an event before the clocks");
            let uuid = event.track_uuid.or(sequence.track).expect("a track");
            let decoded = sequence.decoded(packet, event);
            let track = tracks.iter_mut().find(|(other, _)| *other == uuid);
            track.expect("a track with a descriptor").1.events.push(decoded);
        }
    }
    tracks.into_iter().map(|(_, track)| track).collect()
}

/// Asserts that begins and ends are paired and that time does not decrease.
pub fn assert_nests(track: &Track) {
    let mut depth = 0u64;
    let mut last_ns = 0;
    for event in &track.events {
        assert!(event.ns >= last_ns, "time decreases: {event:?}");
        last_ns = event.ns;
        match event.kind {
            Kind::Begin => depth += 1,
            Kind::End => depth = depth.checked_sub(1).expect("a begin for each end"),
            Kind::Instant => {}
        }
    }
    assert_eq!(depth, 0, "an end for each begin");
}
