//! Configuration file of the clients' load programs.
//!
//! ```text
//! # client 0: slow, then fast
//! 1s    100M  64    1     duration, bandwidth, packet size, burst
//! 2s    1G    1500  8
//! thread 1
//! 500ms 10M   300   2
//! ```
//!
//! Lines before the first `thread` are client 0's. A line that contains the words `thread` and a
//! number, wherever they stand and whatever else it contains, begins the lines of that client. A
//! `#` begins a comment.

use handover_base::units::{BitRate, ByteSize, Count, TimeSpan, UnitError};
use handover_sched::drive::{LENGTH_MAX_BYTES, LoadSection, PacketClock};
use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Maximum number of clients. Their numbers are 0 to `CLIENTS_MAX - 1`.
pub const CLIENTS_MAX: u32 = 65_536;

/// Longest burst, in packets.
pub const BURST_MAX_PACKETS: u32 = 1_000_000;

/// Load programs of the clients: a list of load sections for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadProgram {
    /// Load sections of each client, by the client's number.
    sections_by_client: BTreeMap<u32, Vec<LoadSection>>,
}

impl LoadProgram {
    /// Returns the load sections of a client; an empty slice means a load without limit.
    pub fn sections_of(&self, client: u32) -> &[LoadSection] {
        self.sections_by_client.get(&client).map_or(&[], Vec::as_slice)
    }

    /// Iterates over the clients that have load sections: client number and sections.
    pub fn clients(&self) -> impl Iterator<Item = (u32, &[LoadSection])> {
        self.sections_by_client.iter().map(|(&client, specs)| (client, specs.as_slice()))
    }

    /// Iterates over the numbers of clients whose load sections are ignored, because there are only
    /// `clients_count` clients.
    pub fn ignored_clients(&self, clients_count: u32) -> impl Iterator<Item = u32> {
        self.sections_by_client.range(clients_count..).map(|(&client, _)| client)
    }
}

/// Error of parsing a configuration file: its position, and the text expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct LoadProgramError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1, in characters.
    pub column: usize,
    /// Expected text, with an example.
    pub expected: String,
    /// Text found, or the reason why it is invalid.
    pub found: String,
}

impl LoadProgramError {
    /// Returns the error's message with the path of the file.
    pub fn display_in_file(&self, path: &Path) -> String {
        format!("{}: {self}", path.display())
    }
}

/// Parses the text of a configuration file.
///
/// # Errors
/// [`LoadProgramError`] at the first mistake.
pub fn parse_load_program(text: &str) -> Result<LoadProgram, LoadProgramError> {
    let mut program = LoadProgram::default();
    let mut client = 0;
    for (at, text) in text.lines().enumerate() {
        let mut words = Words { line: at + 1, text, rest: text };
        let Some(first) = words.next().filter(|word| !word.text.starts_with('#')) else {
            continue;
        };
        if let Some(number) = words.thread_number() {
            client = words.read_at(number, EXPECTED_THREAD, parse_thread_number)?;
            continue;
        }
        if first.text == THREAD_WORD {
            // Without a number: the error contains the text found instead.
            client = words.read(EXPECTED_THREAD, parse_thread_number)?;
            continue;
        }
        let spec = LoadSection {
            duration: words.read_at(first, EXPECTED_DURATION, |word| {
                parse_positive::<TimeSpan>(word, |it| it.0).map(Duration::from_nanos)
            })?,
            bandwidth_bps: words.read(EXPECTED_BANDWIDTH, parse_bandwidth)?,
            length_bytes: words.read(EXPECTED_SIZE, |word| {
                parse_up_to::<ByteSize>(word, LENGTH_MAX_BYTES, |it| it.0).and_then(check_not_zero)
            })?,
            burst_packets: words.read(EXPECTED_BURST, |word| {
                parse_up_to::<Count>(word, BURST_MAX_PACKETS, |it| it.0).and_then(check_not_zero)
            })?,
        };
        words.end()?;
        program.sections_by_client.entry(client).or_default().push(spec);
    }
    Ok(program)
}

/// Word that precedes a client's number.
const THREAD_WORD: &str = "thread";
const EXPECTED_DURATION: &str = "a duration such as 1s or 500ms, or `thread` and a number";
const EXPECTED_BANDWIDTH: &str = "a bandwidth such as 100M or 1G";
const EXPECTED_SIZE: &str = "a packet size in bytes, 1 to 65535, such as 64 or 1500";
const EXPECTED_BURST: &str = "a burst of packets, 1 to 1000000, such as 1 or 8";
const EXPECTED_THREAD: &str = "a thread's number, 0 to 65535";

/// Word of a line, with the column of its first character.
#[derive(Clone, Copy)]
struct Word<'a> {
    column: usize,
    text: &'a str,
}

/// Reader of the words of a line.
struct Words<'a> {
    line: usize,
    /// Whole line.
    text: &'a str,
    /// Rest of the line, which has not been read.
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.rest.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let column = self.column_of(rest);
        let text;
        (text, self.rest) = rest.split_at(end);
        (!text.is_empty()).then_some(Word { column, text })
    }

    /// Returns the number in `thread NUMBER`, anywhere before the line's comment; `None` if there
    /// is none.
    fn thread_number(&self) -> Option<Word<'a>> {
        let text = self.text.split_once('#').map_or(self.text, |(text, _)| text);
        let joins = |before: char| before.is_alphanumeric() || matches!(before, '_' | '-');
        let mut found =
            text.match_indices(THREAD_WORD).filter(|(at, _)| !text[..*at].ends_with(joins));
        found.find_map(|(at, word)| {
            let behind = &text[at + word.len()..];
            let number = behind.trim_start();
            let (digits, rest) = number
                .split_at(number.find(|it: char| !it.is_ascii_digit()).unwrap_or(number.len()));
            let is_whole = !rest.starts_with(joins)
                && !rest.strip_prefix('.').is_some_and(|it| it.starts_with(char::is_alphanumeric));
            let is_number = number.len() < behind.len() && !digits.is_empty() && is_whole;
            let column = self.text[..text.len() - number.len()].chars().count() + 1;
            is_number.then_some(Word { column, text: digits })
        })
    }

    /// Returns the column, from 1, at which `rest` starts.
    fn column_of(&self, rest: &str) -> usize {
        self.text[..self.text.len() - rest.len()].chars().count() + 1
    }

    fn error(&self, column: usize, expected: &str, found: String) -> LoadProgramError {
        LoadProgramError { line: self.line, column, expected: expected.to_owned(), found }
    }

    /// Parses the next word by `read`; fails at the end of the line.
    fn read<T>(
        &mut self,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, LoadProgramError> {
        match self.next() {
            Some(word) => self.read_at(word, expected, read),
            None => {
                let column = self.column_of(self.rest);
                Err(self.error(column, expected, "the end of the line".to_owned()))
            }
        }
    }

    /// Parses `word` by `read`; an error contains the word's column.
    fn read_at<T>(
        &self,
        word: Word<'_>,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, LoadProgramError> {
        read(word.text).map_err(|found| self.error(word.column, expected, found))
    }

    /// Fails if anything but a comment follows on the line.
    fn end(&mut self) -> Result<(), LoadProgramError> {
        match self.next().filter(|word| !word.text.starts_with('#')) {
            None => Ok(()),
            Some(word) => {
                Err(self.error(word.column, "the end of the line", format!("{:?}", word.text)))
            }
        }
    }
}

fn parse_thread_number(word: &str) -> Result<u32, String> {
    parse_up_to::<Count>(word, CLIENTS_MAX - 1, |it| it.0)
}

fn parse_number<Q: FromStr<Err = UnitError>>(
    word: &str,
    value: impl FnOnce(Q) -> u64,
) -> Result<u64, String> {
    word.parse().map(value).map_err(|error: UnitError| error.to_string())
}

fn parse_positive<Q: FromStr<Err = UnitError>>(
    word: &str,
    value: impl FnOnce(Q) -> u64,
) -> Result<u64, String> {
    parse_number(word, value).and_then(check_not_zero)
}

fn check_not_zero<N: Default + PartialEq>(value: N) -> Result<N, String> {
    if value == N::default() { Err("zero".to_owned()) } else { Ok(value) }
}

fn parse_up_to<Q: FromStr<Err = UnitError>>(
    word: &str,
    value_max: u32,
    value: impl FnOnce(Q) -> u64,
) -> Result<u32, String> {
    let value = parse_number(word, value)?;
    u32::try_from(value).ok().filter(|&it| it <= value_max).ok_or_else(|| value.to_string())
}

fn parse_bandwidth(word: &str) -> Result<u64, String> {
    let bandwidth_bps = parse_positive::<BitRate>(word, |it| it.0)?;
    PacketClock::new(bandwidth_bps).map_err(|refused| refused.to_string())?;
    Ok(bandwidth_bps)
}
