//! Fuzz targets for the parsers of untrusted input, as functions of bytes. Each property must hold
//! for every input: a panic is a bug. `fuzz_targets/` passes the functions to libFuzzer, and the
//! tests of the command line replay `corpus/` with them.

#![deny(unsafe_code)]

use handover_base::units::{self, BitRate, ByteSize, Count, TimeSpan};
use handover_harness::{Bench, Fault, Samples, Setup, Workload, select};
use handover_net::engine::{
    Codec, CodecError, InboundBuffer, LengthPrefixCodec, LinesCodec, TlsState,
};
use handover_net::tls;
use handover_probe::read::{self, Trace};
use handover_record::{ArgValues, Bytes, Contender, Document, Spec, args};
use handover_report::{Format as Foreign, NamedRun, Style};
use handover_rpc::engine as rpc;
use handover_sched::drive::{BANDWIDTH_MAX_BPS, LENGTH_MAX_BYTES};
use handover_store::Store;
use handover_suite::sched::flowset::FlowSet;
use handover_suite::sched::program::{self as load, BURST_MAX_PACKETS, CLIENTS_MAX};
use handover_trace::{
    CallStatistics, CallTree, ExclusionLimits, ExportFormat, SiteNames, SortOrder, Traces,
    TreeGrouping, estimate, export, walk,
};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::OnceLock;

/// Fuzz target: accepts any bytes, and panics if a property is violated.
pub type Target = fn(&[u8]);

/// All fuzz targets with their names, which are also the names of their corpus folders.
pub const ALL: &[(&str, Target)] = &[
    ("units", units),
    ("import", import),
    ("page", page),
    ("args", args),
    ("flowset", flowset),
    ("program", program),
    ("trace_reader", trace_reader),
    ("frames", frames),
    ("records", records),
    ("rpc_frames", rpc_frames),
    ("bulk", bulk),
];

/// Fuzzes rates, sizes, times and counts as users write them: an accepted text prints to one that
/// parses to the same value; an error is one line.
pub fn units(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    comes_back::<BitRate>(&text);
    comes_back::<ByteSize>(&text);
    comes_back::<TimeSpan>(&text);
    comes_back::<Count>(&text);
    for eight in bytes.as_chunks().0 {
        let whole = u64::from_le_bytes(*eight);
        assert_eq!(ByteSize(whole).to_string().parse(), Ok(ByteSize(whole)));
        assert_eq!(TimeSpan(whole).to_string().parse(), Ok(TimeSpan(whole)));
        assert_eq!(Count(whole).to_string().parse(), Ok(Count(whole)));
        let number = f64::from_le_bytes(*eight);
        for shown in [
            units::format_ns(number),
            units::format_rate(number),
            units::format_bytes_rate(number),
            units::format_count(number),
        ] {
            assert!(
                !shown.is_empty() && !shown.chars().any(char::is_control),
                "{number:e} is shown as {shown:?}"
            );
            // Values within the range of clocks and counters fit a table's column.
            assert!(
                number.abs() > 1e18 || shown.chars().count() <= 16,
                "{number:e} is shown in more than 16 characters: {shown}"
            );
        }
    }
}

fn comes_back<T: FromStr<Err: Display> + Display>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let shown = value.to_string();
            let again = shown.parse::<T>().map(|value| value.to_string());
            assert_eq!(again.ok().as_ref(), Some(&shown), "{text:?}");
        }
        Err(refused) => assert_is_one_line(&refused.to_string()),
    }
}

/// Fuzzes the import of an export: it is rejected with an error of one line, or the export of the
/// imported runs imports to the same runs.
pub fn import(bytes: &[u8]) {
    match handover_store::import_and_reexport(bytes) {
        Ok(exported) => {
            let again = handover_store::import_and_reexport(&exported).ok();
            assert!(again.as_ref() == Some(&exported), "the second import exported other bytes");
        }
        Err(refused) => assert_is_one_line(&refused.to_string()),
    }
}

/// Fuzzes the display of an export: whatever texts it contains, the page is well-formed and has
/// only known elements, and terminal output has no control characters.
pub fn page(mut bytes: &[u8]) {
    let mut store = Store::open_in_memory().expect("create a store in memory");
    if store.import(&mut bytes).is_err() {
        return;
    }
    let runs = store.runs().expect("list the imported runs");
    let document = |id: &str| store.load_run(id).expect("load an imported run");
    let documents: Vec<Document> = runs.iter().map(|run| document(&run.id)).collect();
    for one in &documents {
        let others = documents.iter().filter(|it| it.run.id != one.run.id);
        let others: Vec<_> = others.cloned().map(NamedRun::from).collect();
        let named = NamedRun::from(one.clone());
        assert_is_a_page(&handover_report::render_html_with_other_runs(&named, &others));
        for (width, unicode, all) in [(0, false, true), (60, true, false), (200, true, true)] {
            let style = Style { color: false, unicode, all };
            assert_is_text(&handover_report::render_table(one, width, style));
            for record in &one.records {
                assert_is_text(&handover_report::render_row(record, width, style));
                assert_is_text(&handover_report::render_anatomy(record, width, style));
            }
        }
        assert_is_text(&handover_report::render_markdown(one, true));
    }
    // Formats for other tools: only checked not to panic.
    for form in ["csv", "openmetrics", "hdr", "github-action"] {
        handover_report::export(&documents, form.parse::<Foreign>().expect("parse the format"));
    }
}

/// All elements that a page may contain.
const ELEMENTS: &[&str] = &[
    "abbr", "b", "body", "br", "circle", "code", "dd", "desc", "details", "div", "dl", "dt", "em",
    "figure", "footer", "g", "h1", "h2", "head", "header", "html", "i", "kbd", "line", "main",
    "meta", "p", "path", "polyline", "rect", "script", "section", "span", "style", "summary",
    "svg", "table", "tbody", "td", "text", "th", "thead", "title", "tr",
];
/// Attributes that a page must not contain: they load resources or execute scripts.
const ATTRIBUTES_NEVER: &[&str] = &["action", "formaction", "href", "src", "srcdoc", "srcset"];

fn assert_is_a_page(page: &str) {
    let xml = as_xml(page);
    let tree = roxmltree::Document::parse(&xml).unwrap_or_else(|error| panic!("{error}"));
    let mut scripts_count = 0;
    for element in tree.descendants().filter(roxmltree::Node::is_element) {
        let name = element.tag_name().name();
        assert!(ELEMENTS.contains(&name), "the page contains the unknown element <{name}>");
        scripts_count += usize::from(name == "script");
        for attribute in element.attributes() {
            let name = attribute.name();
            assert!(
                !name.starts_with("on") && !ATTRIBUTES_NEVER.contains(&name),
                "forbidden attribute {name}"
            );
        }
    }
    // The data; `as_xml` has removed the page's own script.
    assert!(scripts_count <= 1, "the page has {scripts_count} scripts, more than 1");
    assert!(!page.contains("<!--"), "the script's data contains `<!--`");
}

/// Removes the parts of a page that are not XML: doctype, script, elements without an end tag.
fn as_xml(page: &str) -> String {
    let page = page.strip_prefix("<!DOCTYPE html>").expect("the page starts without a doctype");
    let (before, after) = match page.split_once("\n<script>\n") {
        Some((before, after)) => (before, after.split_once("</script>").expect("its end").1),
        None => (page, ""),
    };
    let closed = |line: &str| match line.strip_suffix('>') {
        Some(open) if line.starts_with("<meta ") => format!("{open}/>\n"),
        _ => format!("{line}\n"),
    };
    format!("{before}{after}")
        .replace("<br>", "<br/>")
        .replace("<meta charset=\"utf-8\">", "")
        .lines()
        .map(closed)
        .collect()
}

/// Asserts that a text cannot move a terminal's cursor, change its colours or the direction of
/// writing.
fn assert_is_text(text: &str) {
    let is_control = |char: char| match char {
        '\n' => false,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    };
    assert!(!text.chars().any(is_control), "control character in {text:?}");
}

args! {
    /// Arguments of the declared benchmarks, like those of floor/memcpy and lock/passed.
    struct Moved {
        /// Size of a transfer in bytes.
        size_bytes: Bytes = 65536 (smoke 64, range 1 ..= 268435456),
        /// Number of participating threads.
        threads_count: u32 = 2 (smoke 2, range 1 ..= 64),
    }
}

/// Benchmark that is selected and configured, but never run.
struct Declared<const PLACE: usize>;

impl<const PLACE: usize> Workload for Declared<PLACE> {
    type Args = Moved;
    const SPEC: Spec = Spec::new(["floor/memcpy", "lock/free", "lock/passed/busy"][PLACE], "");

    fn setup(_: &Moved, _: &mut Setup) -> Result<Self, Fault> {
        Ok(Self)
    }

    fn sample(&mut self, _: &mut Samples) {}
}

/// Replacement of the suite, which takes ten minutes to compile with a fuzzer's instrumentation.
const SUITE: &[&[Bench]] = &[
    &[Bench::one::<Declared<0>>(Contender::floor("libc"))],
    &[
        Bench::one::<Declared<1>>(Contender::ours("handover")),
        Bench::one::<Declared<1>>(Contender::peer("std")),
        Bench::one::<Declared<2>>(Contender::ours("handover")),
    ],
];

/// Fuzzes the selection of benchmarks: a pattern in the first line and `--set NAME=VALUE` in the
/// others. Every selected benchmark is selected by its own id, and every value is within its
/// bounds.
pub fn args(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let pattern = lines.next().unwrap_or_default().to_string();
    let sets: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once('=')).collect();
    let selections = match select(SUITE, std::slice::from_ref(&pattern)) {
        Ok(selections) => selections,
        Err(refused) => {
            assert!(refused.to_string().contains(&pattern));
            return;
        }
    };
    assert!(!selections.is_empty(), "{pattern:?} was accepted, but selects no benchmark");
    for selection in selections {
        let again = select(SUITE, &[selection.spec.id.to_string()]);
        let again = again.unwrap_or_default();
        assert!(again.iter().any(|it| it.spec.id == selection.spec.id), "{}", selection.spec.id);
        for bench in &selection.contenders {
            let mut values = ArgValues::defaults(bench.params());
            for (name, value) in &sets {
                let before = values.clone();
                if let Err(refused) = values.parse_and_set(name, value) {
                    assert!(refused.to_string().contains(name), "no {name} in the error {refused}");
                    assert_eq!(values, before, "the value was rejected, but set");
                }
            }
            for param in bench.params() {
                assert!((param.min..=param.max).contains(&values.get(param.name)));
            }
        }
    }
}

/// Fuzzes sets of flows: an accepted text prints to one that parses to the same set, has as many
/// flows as it states, and a scheduler can hold each; an error is one line with a column within the
/// text or directly after it.
pub fn flowset(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<FlowSet>() {
        Ok(set) => {
            let (again, flows_count) = (set.to_string().parse(), set.flows_count());
            assert_eq!(again.as_ref(), Ok(&set), "{text:?}");
            assert!(flows_count > 0 && set.weights_sum() >= flows_count.into());
            if flows_count <= 100_000 {
                assert_eq!(set.flows().count(), flows_count as usize, "{text:?}");
                let sum: u64 = set.flows().map(|(weight, _)| u64::from(weight)).sum();
                assert_eq!(sum, set.weights_sum(), "{text:?}");
            }
            for (weight, length_bytes) in set.flows().take(100) {
                assert!(weight > 0 && (1..=set.length_max_bytes()).contains(&length_bytes));
            }
        }
        Err(refused) => {
            assert_is_one_line(&refused.to_string());
            let (columns, parts) = (text.chars().count() + 1, text.split(',').count());
            assert!(
                (1..=columns).contains(&refused.column),
                "column outside of {text:?}: {refused}"
            );
            assert!((1..=parts).contains(&refused.part), "part outside of {text:?}: {refused}");
        }
    }
}

/// Fuzzes programs for the clients of `sched`: every accepted line can be sent; the first other
/// line is rejected with an error of one line and a position in the text.
pub fn program(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match load::parse_load_program(&text) {
        Ok(program) => {
            for (thread, specs) in program.clients() {
                assert!(
                    thread < CLIENTS_MAX
                        && specs == program.sections_of(thread)
                        && !specs.is_empty()
                );
                for spec in specs {
                    assert!(!spec.duration.is_zero(), "an accepted line has no duration: {spec:?}");
                    assert!((1..=BANDWIDTH_MAX_BPS).contains(&spec.bandwidth_bps), "{spec:?}");
                    assert!((1..=LENGTH_MAX_BYTES).contains(&spec.length_bytes), "{spec:?}");
                    assert!((1..=BURST_MAX_PACKETS).contains(&spec.burst_packets), "{spec:?}");
                }
            }
            assert_eq!(program.ignored_clients(0).count(), program.clients().count());
        }
        Err(refused) => {
            assert_is_one_line(&refused.to_string());
            let line = text.lines().nth(refused.line - 1).unwrap_or_default();
            let columns = line.chars().count() + 1;
            assert!(
                (1..=columns).contains(&refused.column),
                "column outside of {text:?}: {refused}"
            );
        }
    }
}

/// Fuzzes the trace reader, with unchanged and with corrected checksums, alone and with the bytes
/// also as its rings: times do not decrease, there are no more events than the bytes can hold, and
/// calls are paired in every format.
pub fn trace_reader(bytes: &[u8]) {
    let repair_checksums = read::repair_checksums(bytes.to_vec());
    let mended_stream = || (repair_checksums.clone(), None);
    for (stream, rings) in [
        (bytes.to_vec(), None),
        mended_stream(),
        (repair_checksums.clone(), Some(repair_checksums.clone())),
    ] {
        let events_max = 2 * stream.len();
        match Trace::read(stream, rings) {
            Ok(trace) => trace_is_sound(trace, events_max),
            Err(refused) => assert_is_one_line(&refused.to_string()),
        }
    }
}

fn trace_is_sound(trace: Trace<Vec<u8>>, events_max: usize) {
    let (mut last_ticks, mut count) = (0, 0);
    for event in trace.merged_events() {
        assert!(event.ticks >= last_ticks && event.thread < trace.threads().len());
        last_ticks = event.ticks;
        count += 1;
    }
    assert!(
        count <= events_max,
        "{count} events were read, more than {events_max} fit into the bytes"
    );
    let _ = (
        trace.missing_events().total_count(),
        trace.state(),
        trace.program(),
        trace.realtime_ns_from_ticks(last_ticks),
    );
    let traces = Traces::from_trace(trace);
    let names = SiteNames::with_all_selected(&traces);
    let mut both = (CallStatistics::new(), CallTree::new(TreeGrouping::Threads));
    let found = walk(&traces, &names, &mut both).unwrap_or_default();
    assert_eq!(found.events, count as u64);
    let functions = both.0.functions(&names, SortOrder::default());
    let calls: u64 = functions.iter().map(|function| function.calls).sum();
    assert_eq!(calls, found.calls);
    for format in ExportFormat::ALL {
        let written = export(&traces, &names, *format, TreeGrouping::Threads, std::io::sink());
        assert!(written.is_ok_and(|found| found.events == count as u64));
    }
    let estimated = estimate(&traces, &names, &ExclusionLimits::default());
    assert!(estimated.is_ok_and(|estimate| estimate.events == count as u64));
}

/// Fuzzes messages on a connection: the messages, and a final error, do not depend on how the
/// stream is cut; an accepted message can be framed so that it decodes to the same; and no more
/// bytes are buffered than have arrived.
///
/// The first byte determines the length of the pieces.
pub fn frames(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let cut = usize::from(cut).max(1);
    cut_anyhow(&LengthPrefixCodec::new(100), stream, cut);
    cut_anyhow(&LengthPrefixCodec::new(1 << 20).with_header(5), stream, cut);
    cut_anyhow(&LinesCodec::new(40), stream, cut);
}

fn cut_anyhow<C: Codec>(codec: &C, stream: &[u8], cut: usize) {
    let whole = messages_of(codec, [stream]);
    let pieces = messages_of(codec, stream.chunks(cut));
    assert_eq!(whole.0, pieces.0);
    assert_eq!(whole.1.is_some(), pieces.1.is_some(), "{:?} {:?}", whole.1, pieces.1);
    if let Some(refused) = whole.1 {
        assert_is_one_line(&refused.to_string());
    }
    let mut framed = Vec::new();
    for message in &whole.0 {
        codec.encode(message, &mut framed).expect("encode a decoded message");
    }
    assert_eq!(messages_of(codec, [&framed[..]]), (whole.0, None));
}

/// Fuzzes frames of a peer of the procedure calls, and its greeting: the frames, and a final error,
/// do not depend on how the stream is cut; an accepted frame encodes to the same bytes; and no more
/// bytes are buffered than the reader's buffer and twice the bytes that have arrived.
///
/// The first byte determines the length of the pieces.
pub fn rpc_frames(bytes: &[u8]) {
    const BODY_MAX: u32 = 100;
    let Some((&cut, stream)) = bytes.split_first() else { return };
    if let Some(greeting) = stream.first_chunk()
        && let Ok(hello) = rpc::Hello::decode(greeting)
    {
        assert_eq!(&hello.encode(), greeting);
    }
    let read = |piece_bytes: usize| {
        let (mut inbound, mut written) = (rpc::ReceiveBuffer::new(BODY_MAX), Vec::new());
        let mut data_bytes = 0;
        for piece in stream.chunks(piece_bytes) {
            let mut rest = piece;
            while !rest.is_empty() {
                let room = inbound.free_space();
                let count = room.len().min(rest.len());
                room[..count].copy_from_slice(&rest[..count]);
                inbound.mark_received(count);
                rest = &rest[count..];
                loop {
                    let data = inbound.take_body_bytes(data_bytes);
                    data_bytes -= data.len() as u64;
                    written.extend(data);
                    if data_bytes > 0 {
                        break;
                    }
                    match inbound.next_frame() {
                        Ok(Some((header, body))) => {
                            let is_bulk = header.kind == rpc::FrameKind::Bulk;
                            let bytes_max =
                                if is_bulk { rpc::BULK_MESSAGE_BYTES_MAX } else { BODY_MAX };
                            assert!(header.body_bytes <= bytes_max);
                            written.extend(header.encode());
                            written.extend(body);
                            if header.kind == rpc::FrameKind::Data {
                                assert!(body.is_empty());
                                data_bytes = header.body_bytes.into();
                            } else {
                                assert_eq!(header.body_bytes as usize, body.len());
                            }
                        }
                        Ok(None) => break,
                        Err(refused) => {
                            assert_is_one_line(&refused.to_string());
                            return (written, Some(refused));
                        }
                    }
                }
            }
            assert!(inbound.capacity_bytes() <= (1 << 16) + 2 * stream.len());
        }
        (written, None)
    };
    let whole = read(stream.len().max(1));
    assert!(stream.starts_with(&whole.0), "an accepted frame encodes to other bytes");
    assert_eq!(whole, read(usize::from(cut).max(1)));
}

/// Fuzzes messages about bulk transfers, including handles: an accepted message is consistent and
/// encodes to bytes that decode to the same message.
pub fn bulk(bytes: &[u8]) {
    match rpc::BulkMessage::decode(bytes) {
        Ok(message) => {
            let written = message.encode(Vec::new());
            assert!(
                written.len() <= bytes.len()
                    && written.len() <= rpc::BULK_MESSAGE_BYTES_MAX as usize
            );
            assert_eq!(rpc::BulkMessage::decode(&written).as_ref(), Ok(&message));
            match &message {
                rpc::BulkMessage::Attached { segments, .. } => {
                    assert!(segments.len() <= rpc::BULK_SEGMENTS_MAX);
                    let total = rpc::segments_total_bytes(segments).map(u128::from);
                    assert_eq!(
                        total,
                        Some(segments.iter().map(|it| u128::from(it.len_bytes())).sum())
                    );
                }
                rpc::BulkMessage::Read { transfer, handle, offset, bytes }
                | rpc::BulkMessage::Write { transfer, handle, offset, bytes } => {
                    assert!(*transfer < rpc::TRANSFER_NUMBER_LIMIT);
                    let total = handle.len_bytes();
                    let fits = u128::from(*offset) + u128::from(*bytes) <= u128::from(total);
                    assert_eq!(rpc::is_range_within(*offset, *bytes, total), fits);
                }
                _ => {}
            }
        }
        Err(refused) => assert_is_one_line(&refused.to_string()),
    }
}

/// Fuzzes TLS connections: arbitrary bytes in place of a handshake, for client and server; and data
/// in records after the handshake, intact and tampered with. The result does not depend on how
/// records are cut; intact records open to the data that was sealed, which decodes to the same
/// messages; of tampered records only the data before the change is returned; and no more bytes are
/// buffered than have arrived.
///
/// The first byte selects the case and the length of the pieces.
pub fn records(bytes: &[u8]) {
    let Some((&how, rest)) = bytes.split_first() else { return };
    let cut = usize::from(how >> 2) + 1;
    let ends = ends();
    match how & 3 {
        side @ 0..=1 => {
            let of_stranger = |pieces_bytes: usize| {
                let mut tls = if side == 0 { ends.server() } else { ends.client() };
                let (mut plain, mut out) = (Vec::new(), Vec::new());
                let refused = tls.open_records(&mut [], &mut plain, &mut out).err();
                assert_eq!(refused, None, "opening an empty input failed");
                let refused = rest.chunks(pieces_bytes).find_map(|piece| {
                    let refused = tls.open_records(&mut piece.to_vec(), &mut plain, &mut out).err();
                    let held = tls.heap_bytes();
                    let limit = 2 * rest.len() + 64;
                    assert!(held <= limit, "{held} bytes are buffered, more than {limit}");
                    refused
                });
                assert!(
                    plain.is_empty() && !tls.is_handshake_complete(),
                    "data was decrypted, or the handshake completed, without a key"
                );
                refused.inspect(|it| assert_is_one_line(&it.to_string()))
            };
            let (whole, pieces) = (of_stranger(rest.len().max(1)), of_stranger(cut));
            assert_eq!(whole.is_some(), pieces.is_some(), "{whole:?} {pieces:?}");
        }
        2 => {
            let (mut client, mut server) = ends.shaken();
            let mut sealed = Vec::new();
            // Sealed as at least two records.
            for part in [rest, rest] {
                client.seal_messages(part, &[], &mut sealed).expect("seal after the handshake");
            }
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            for piece in sealed.chunks_mut(cut * 7) {
                server.open_records(piece, &mut plain, &mut out).expect("open an intact record");
            }
            assert_eq!(plain, [rest, rest].concat());
            assert_eq!(server.heap_bytes(), 0, "the empty buffer was not freed");
            let codec = LengthPrefixCodec::new(100);
            let direct = messages_of(&codec, [rest, rest]);
            assert_eq!(messages_of(&codec, plain.chunks(cut)).0, direct.0);
        }
        _ => {
            let Some((&[high, low, change], rest)) = rest.split_first_chunk() else { return };
            let (mut client, mut server) = ends.shaken();
            let mut sealed = Vec::new();
            client.seal_messages(rest, &[], &mut sealed).expect("seal after the handshake");
            let at = usize::from(u16::from_be_bytes([high, low]));
            let is_changed = change > 0 && at < sealed.len();
            if is_changed {
                sealed[at] ^= change;
            }
            let (mut plain, mut out) = (Vec::new(), Vec::new());
            for piece in sealed.chunks_mut(cut * 7) {
                if let Err(refused) = server.open_records(piece, &mut plain, &mut out) {
                    assert_is_one_line(&refused.to_string());
                    assert!(is_changed, "an intact record was rejected: {refused}");
                    break;
                }
            }
            assert!(rest.starts_with(&plain), "the opened data differ from the sealed data");
        }
    }
}

/// Client and server configurations that accept any certificate.
struct Ends {
    client: tls::TlsClientConfig,
    server: tls::TlsServerConfig,
}

/// Returns the configurations, created once, as generating a certificate takes a while.
fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(|| {
        let identity = tls::Identity::generate(&["localhost"]).expect("generate a certificate");
        let options = tls::ClientOptions::default();
        Ends {
            client: tls::TlsClientConfig::new(tls::ServerVerification::Nothing, options)
                .expect("create a client"),
            server: tls::TlsServerConfig::new(&identity, tls::ServerOptions::default())
                .expect("create a server"),
        }
    })
}

impl Ends {
    fn client(&self) -> TlsState {
        TlsState::new_client(&self.client, "localhost", 0).expect("create a client")
    }

    fn server(&self) -> TlsState {
        TlsState::new_server(&self.server, 0).expect("create a server")
    }

    /// Returns a client and a server after their handshake.
    fn shaken(&self) -> (TlsState, TlsState) {
        let (mut client, mut server) = (self.client(), self.server());
        let (mut plain, mut to_client, mut to_server) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            client
                .open_records(&mut to_client, &mut plain, &mut to_server)
                .expect("the handshake failed");
            to_client.clear();
            if to_server.is_empty() {
                break;
            }
            server
                .open_records(&mut to_server, &mut plain, &mut to_client)
                .expect("the handshake failed");
            to_server.clear();
        }
        assert!(
            client.is_handshake_complete() && server.is_handshake_complete() && plain.is_empty()
        );
        (client, server)
    }
}

type Messages = (Vec<Vec<u8>>, Option<CodecError>);

fn messages_of<'a, C: Codec>(codec: &C, pieces: impl IntoIterator<Item = &'a [u8]>) -> Messages {
    let (mut inbound, mut messages) = (InboundBuffer::default(), Vec::new());
    let mut came = 0;
    for piece in pieces {
        came += piece.len();
        let taken = inbound.deliver_messages(piece, codec, |message| {
            messages.push(message.to_vec());
            ControlFlow::Continue(())
        });
        if let Err(refused) = taken {
            return (messages, Some(refused));
        }
        let held = inbound.capacity_bytes();
        let limit = 2 * came + 64;
        assert!(held <= limit, "{held} bytes are buffered, more than {limit}");
    }
    (messages, None)
}

fn assert_is_one_line(said: &str) {
    assert!(!said.is_empty() && !said.chars().any(char::is_control), "not one line: {said:?}");
    assert!(
        said.chars().count() <= 1000,
        "the error has {} characters, more than 1000: {said}",
        said.chars().count()
    );
}
