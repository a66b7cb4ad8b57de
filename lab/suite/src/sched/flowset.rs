//! Sets of flows in the notation of dummynet's tester: `W:L:F[,...]`.
//!
//! `W` is the weight and `L` the longest packet in bytes, each `min[-max[-steps]]`: `steps` values
//! from the least to the greatest, evenly spaced and rounded down; without `steps` the two ends, or
//! a single value if they are equal. `F` is the number of flows of each weight and length, so that
//! a part makes `F` x weights x lengths flows. Numbers are whole; `K` and `M` stand for 10^3 and
//! 10^6, `k` and `m` for 2^10 and 2^20.
//!
//! ```
//! use handover_suite::sched::flowset::FlowSet;
//!
//! let set: FlowSet = "100:1500:1,1:64-1500:8".parse()?;
//! assert_eq!((set.flows_count(), set.weights_sum()), (17, 116));
//! assert_eq!(set.specs(200).next().map(|spec| spec.weight), Some(100));
//!
//! let refused = "1:1500".parse::<FlowSet>().unwrap_err();
//! assert_eq!(refused.to_string(), "part 1, column 7 of the flow set: expected `:` and the number of flows");
//! # Ok::<(), handover_suite::sched::flowset::FlowSetError>(())
//! ```
//!
//! Source: the tester of dummynet (L. Rizzo, 2010).

use handover_sched::engine::{FLOWS_LIMIT, FlowSpec, LENGTH_LIMIT_BYTES, WEIGHT_MAX};
use std::fmt::{self, Display};
use std::str::FromStr;

/// Set of flows, which consists of parts. Each part has a range of weights, a range of maximum
/// packet lengths, and a number of flows for each combination of both. The flows are numbered part
/// by part, weight by weight, length by length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSet {
    parts: Vec<FlowSetPart>,
}

/// Part of a flow set: flows of each combination of a weight and a packet length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlowSetPart {
    weights: ValueRange,
    /// Lengths of the flows' longest packets, in bytes.
    lengths_bytes: ValueRange,
    /// Number of flows of each weight and length.
    flows_count: u32,
}

/// Range of evenly spaced values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ValueRange {
    min: u32,
    max: u32,
    count: u32,
}

impl ValueRange {
    /// Iterates over the values in ascending order.
    fn values(self) -> impl Iterator<Item = u32> {
        let between = u64::from(self.count).saturating_sub(1).max(1);
        (0..self.count).map(move |index| {
            let above = u64::from(self.max - self.min) * u64::from(index) / between;
            self.min + above as u32 // at most max - min
        })
    }
}

impl FlowSetPart {
    /// Returns the number of flows of this part.
    fn flows_total(&self) -> u64 {
        let per_weight = u64::from(self.flows_count) * u64::from(self.lengths_bytes.count);
        per_weight.saturating_mul(self.weights.count.into())
    }
}

/// Error of parsing a flow set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("part {part}, column {column} of the flow set: {problem}")]
pub struct FlowSetError {
    /// Number of the part with the error, counted from 1.
    pub part: usize,
    /// Number of the character in the whole text, counted from 1.
    pub column: usize,
    /// Description of the error: the expected text and the text found, or a value and its limit.
    pub problem: String,
}

impl FlowSet {
    /// Creates a set of `flows_count` flows with the same weight and longest packet. The numbers
    /// are not checked against the limits of the notation.
    pub fn equal(weight: u32, length_max_bytes: u32, flows_count: u32) -> Self {
        let one = |value| ValueRange { min: value, max: value, count: 1 };
        let (weights, lengths_bytes) = (one(weight), one(length_max_bytes));
        Self { parts: vec![FlowSetPart { weights, lengths_bytes, flows_count }] }
    }

    /// Creates a set of `flows_count` flows with weights from the least to the greatest of
    /// `weights` and longest packets of 64 to 1500 bytes: as many as possible in 50 weights with 4
    /// lengths each, and each further flow with a weight of its own. The numbers are not checked
    /// against the limits of the notation.
    pub fn mixed([min, max]: [u32; 2], flows_count: u32) -> Self {
        let weights = |count| ValueRange { min, max, count };
        let lengths_bytes = ValueRange { min: 64, max: 1500, count: 4 };
        let (each, further) = (flows_count / 200, flows_count % 200);
        let mut parts = Vec::new();
        if each > 0 {
            parts.push(FlowSetPart { weights: weights(50), lengths_bytes, flows_count: each });
        }
        let lengths: Vec<u32> = lengths_bytes.values().collect();
        for (weight, &length) in weights(further).values().zip(lengths.iter().cycle()) {
            parts.extend(Self::equal(weight, length, 1).parts);
        }
        Self { parts }
    }

    /// Returns the number of flows: at most [`FLOWS_LIMIT`] for a parsed set.
    pub fn flows_count(&self) -> u32 {
        self.parts.iter().map(|part| part.flows_total() as u32).sum()
    }

    /// Returns the sum of all flows' weights.
    pub fn weights_sum(&self) -> u64 {
        let of = |part: &FlowSetPart| {
            let per_weight = u64::from(part.flows_count) * u64::from(part.lengths_bytes.count);
            part.weights.values().map(|weight| u64::from(weight) * per_weight).sum::<u64>()
        };
        self.parts.iter().map(of).sum()
    }

    /// Returns the length in bytes of the longest packet of all flows.
    pub fn length_max_bytes(&self) -> u32 {
        self.parts.iter().map(|part| part.lengths_bytes.max).max().unwrap_or(0)
    }

    /// Iterates over the weight of each flow and the length of its longest packet in bytes.
    pub fn flows(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.parts.iter().flat_map(|part| {
            part.weights.values().flat_map(move |weight| {
                part.lengths_bytes.values().flat_map(move |length| {
                    std::iter::repeat_n((weight, length), part.flows_count as usize)
                })
            })
        })
    }

    /// Iterates over the specification of each flow, with a queue of `packets_max` packets and tail
    /// drop.
    pub fn specs(&self, packets_max: u32) -> impl Iterator<Item = FlowSpec> + '_ {
        self.flows().map(move |(weight, length_max_bytes)| {
            FlowSpec::default()
                .weight(weight.into())
                .length_max_bytes(length_max_bytes)
                .packets_max(packets_max)
        })
    }
}

impl Display for FlowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{}:{}:{}", part.weights, part.lengths_bytes, part.flows_count)?;
        }
        Ok(())
    }
}

impl Display for ValueRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count, self.min == self.max) {
            (1, _) => write!(f, "{}", self.min),
            (2, false) => write!(f, "{}-{}", self.min, self.max),
            (count, _) => write!(f, "{}-{}-{count}", self.min, self.max),
        }
    }
}

impl FromStr for FlowSet {
    type Err = FlowSetError;

    fn from_str(text: &str) -> Result<Self, FlowSetError> {
        let mut parser = Parser { rest: text, part: 1, column: 1 };
        let mut parts = Vec::new();
        let mut flows_count = 0;
        loop {
            let start_column = parser.column;
            let part = parser.parse_part()?;
            flows_count = u64::saturating_add(flows_count, part.flows_total());
            if flows_count > FLOWS_LIMIT.into() {
                parser.column = start_column;
                let message = format!(
                    "{flows_count} flows up to and with this part: at most {FLOWS_LIMIT} are allowed"
                );
                return Err(parser.error(message));
            }
            parts.push(part);
            match parser.take_char() {
                None => return Ok(Self { parts }),
                Some(',') => parser.part += 1,
                Some(other) => {
                    parser.column -= 1;
                    return Err(parser.error(format!("expected `,` or the end, found {other:?}")));
                }
            }
        }
    }
}

/// Name and upper limit of a number in the notation.
struct NumberKind {
    name: &'static str,
    max: u64,
}

const WEIGHT: NumberKind = NumberKind { name: "weight", max: WEIGHT_MAX };
const LENGTH: NumberKind = NumberKind { name: "length in bytes", max: LENGTH_LIMIT_BYTES as u64 };
const STEPS: NumberKind = NumberKind { name: "number of steps", max: FLOWS_LIMIT as u64 };
const FLOWS: NumberKind = NumberKind { name: "number of flows", max: FLOWS_LIMIT as u64 };

/// Parser of the notation.
struct Parser<'a> {
    rest: &'a str,
    /// Number of the current part, from 1.
    part: usize,
    /// Number of the next character, from 1.
    column: usize,
}

impl Parser<'_> {
    fn error(&self, problem: String) -> FlowSetError {
        FlowSetError { part: self.part, column: self.column, problem }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take_char(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        self.column += 1;
        Some(next)
    }

    /// Takes the next character if it is `expected`; returns `true` if so.
    fn take_if(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.take_char();
        }
        found
    }

    fn parse_part(&mut self) -> Result<FlowSetPart, FlowSetError> {
        let weights = self.parse_range(&WEIGHT)?;
        self.parse_colon("the packets' lengths")?;
        let lengths_bytes = self.parse_range(&LENGTH)?;
        self.parse_colon("the number of flows")?;
        let flows_count = self.parse_number(&FLOWS)?;
        Ok(FlowSetPart { weights, lengths_bytes, flows_count })
    }

    /// Parses a colon; an error says that a colon and `next` were expected.
    fn parse_colon(&mut self, next: &str) -> Result<(), FlowSetError> {
        match self.peek() {
            Some(':') => {
                self.take_char();
                Ok(())
            }
            None | Some(',') => Err(self.error(format!("expected `:` and {next}"))),
            Some(other) => Err(self.error(format!("expected `:` and {next}, found {other:?}"))),
        }
    }

    fn parse_range(&mut self, range: &NumberKind) -> Result<ValueRange, FlowSetError> {
        let min = self.parse_number(range)?;
        if !self.take_if('-') {
            return Ok(ValueRange { min, max: min, count: 1 });
        }
        let start_column = self.column;
        let max = self.parse_number(range)?;
        if max < min {
            self.column = start_column;
            let name = range.name;
            return Err(
                self.error(format!("the maximum {name}, {max}, is below the minimum, {min}"))
            );
        }
        if !self.take_if('-') {
            return Ok(ValueRange { min, max, count: if max > min { 2 } else { 1 } });
        }
        let start_column = self.column;
        let count = self.parse_number(&STEPS)?;
        if count == 1 && max > min {
            self.column = start_column;
            return Err(
                self.error(format!("1 step from {min} to {max}: 2 or more steps are needed"))
            );
        }
        Ok(ValueRange { min, max, count })
    }

    fn parse_number(&mut self, range: &NumberKind) -> Result<u32, FlowSetError> {
        let NumberKind { name, max } = *range;
        let start_column = self.column;
        let mut value = None::<u64>;
        while let Some(digit) = self.peek().and_then(|next| next.to_digit(10)) {
            self.take_char();
            let before = value.unwrap_or(0);
            value = Some(before.saturating_mul(10).saturating_add(digit.into()));
        }
        let Some(value) = value else {
            let found = match self.peek() {
                None => "the end".to_string(),
                Some(other) => format!("{other:?}"),
            };
            let message =
                format!("expected a {name}, a whole number from 1 to {max}, found {found}");
            return Err(self.error(message));
        };
        let factor = match self.peek() {
            Some('K') => 1_000,
            Some('M') => 1_000_000,
            Some('k') => 1 << 10,
            Some('m') => 1 << 20,
            None | Some(':' | ',' | '-') => 1,
            Some(other) => {
                return Err(self.error(format!(
                    "expected a digit, a suffix (K, M, k, m) or the end of the number, found {other:?}"
                )));
            }
        };
        if factor > 1 {
            self.take_char();
        }
        let value = value.saturating_mul(factor);
        if !(1..=max).contains(&value) {
            self.column = start_column;
            return Err(self.error(format!("a {name} of {value}: must lie in 1..={max}")));
        }
        Ok(value as u32) // the limits of all ranges fit
    }
}
