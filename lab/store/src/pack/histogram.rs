//! Range coder for a histogram's counts: a fifth smaller than deflate.
//!
//! HdrHistogram's V2 format is a header and a sequence of counts, zigzag-encoded in groups of seven
//! bits, with a negative number for a run of empty buckets; deflated, it is what a record holds.
//! Deflate finds repetitions, but counts do not repeat: they resemble their neighbours in size. So
//! each count is coded in bits with adaptive probabilities, whose context is the size of the two
//! counts before it: its sign, its number of bits, and the two bits below the highest. The bits
//! below those are noise and coded with even probability.
//!
//! Packing checks that unpacking restores every byte, and keeps any other input unchanged. If a
//! later version of deflate writes other bytes, they hold the same counts.
//!
//! Source of the coder: G. N. N. Martin, *Range encoding*, 1979, in the form of I. Pavlov's LZMA.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::io::{Read, Write};

/// First byte of the packed form: the input unchanged.
const AS_IT_CAME: u8 = 0;
const CODED: u8 = 1;

/// Cookies of the deflated format and of the format in it.
const COOKIE_DEFLATED: u32 = 0x1c84_9314;
const COOKIE: u32 = 0x1c84_9313;
/// Size of the header: cookie, length of the counts, offset, digits, lowest and highest value,
/// ratio.
const HEAD_BYTES: usize = 40;
/// Maximum number of counts, above that of any histogram of three digits; one with more is kept
/// unchanged.
const COUNTS_MAX: usize = 1 << 17;
/// Maximum length of a count: seven bits per byte, eight in the ninth.
const COUNT_BYTES_MAX: u32 = 9;

/// Packs the bytes of a histogram, or any other bytes.
pub fn pack(bytes: &[u8]) -> Vec<u8> {
    let coded = code(bytes).filter(|coded| decode(coded).is_ok_and(|back| back == bytes));
    coded.unwrap_or_else(|| [&[AS_IT_CAME], bytes].concat())
}

/// Unpacks the bytes, or returns a description of the error.
pub fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    match packed.split_first() {
        Some((&AS_IT_CAME, bytes)) => Ok(bytes.to_vec()),
        Some((&CODED, _)) => decode(packed),
        Some((other, _)) => Err(format!("its form is {other}")),
        None => Err("it is empty".to_string()),
    }
}

fn code(bytes: &[u8]) -> Option<Vec<u8>> {
    let (cookie, rest) = bytes.split_first_chunk()?;
    let (length, deflated) = rest.split_first_chunk()?;
    let is_whole = u32::from_be_bytes(*length) as usize == deflated.len();
    if u32::from_be_bytes(*cookie) != COOKIE_DEFLATED || !is_whole {
        return None;
    }
    let bytes_max = HEAD_BYTES + COUNTS_MAX * COUNT_BYTES_MAX as usize;
    let mut raw = Vec::new();
    ZlibDecoder::new(deflated).take(bytes_max as u64).read_to_end(&mut raw).ok()?;
    let (head, mut counts) = raw.split_at_checked(HEAD_BYTES)?;
    let mut coder = Encoder::default();
    let mut model = Model::default();
    let mut counts_count = 0_u32;
    while !counts.is_empty() {
        model.count(&mut Of(take_count(&mut counts)?, &mut coder));
        counts_count += 1;
    }
    if counts_count as usize > COUNTS_MAX {
        return None;
    }
    let mut packed = vec![CODED];
    // The length of the counts is not stored: it follows from them.
    let (cookie, rest) = head.split_at(4);
    if cookie != COOKIE.to_be_bytes() {
        return None;
    }
    put_head(&rest[4..], &mut packed)?;
    packed.extend_from_slice(&counts_count.to_le_bytes()[..3]);
    packed.extend_from_slice(&coder.finish());
    Some(packed)
}

fn decode(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut packed = packed.get(1..).unwrap_or_default();
    let early = || "it ends too early".to_string();
    let head = take_head(&mut packed).ok_or_else(early)?;
    let ([a, b, c], coded) = packed.split_first_chunk().ok_or_else(early)?;
    let counts_count = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
    if counts_count > COUNTS_MAX {
        return Err(format!("{counts_count} counts"));
    }
    let mut coder = Decoder::new(coded);
    let mut model = Model::default();
    let mut counts = Vec::new();
    for _ in 0..counts_count {
        put_count(model.count(&mut coder), &mut counts);
    }
    let mut raw = COOKIE.to_be_bytes().to_vec();
    raw.extend_from_slice(&(counts.len() as u32).to_be_bytes());
    raw.extend_from_slice(&head);
    raw.extend_from_slice(&counts);
    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::default());
    let deflated = deflated.write_all(&raw).and_then(|()| deflated.finish());
    let deflated = deflated.map_err(|refused| refused.to_string())?;
    let mut bytes = COOKIE_DEFLATED.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(deflated.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&deflated);
    Ok(bytes)
}

/// Header before the highest value, the same in all histograms of this project: offset 0, three
/// digits, lowest value 1.
const HEAD_BEFORE: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1];
/// Header after the highest value: a ratio of 1.0.
const HEAD_BEHIND: [u8; 8] = [0x3f, 0xf0, 0, 0, 0, 0, 0, 0];

/// Packs a header: only its highest value, as the rest is constant.
fn put_head(head: &[u8], packed: &mut Vec<u8>) -> Option<()> {
    let most = head.strip_prefix(&HEAD_BEFORE)?.strip_suffix(&HEAD_BEHIND)?;
    let leading = most.iter().take_while(|byte| **byte == 0).count();
    packed.push((most.len() - leading) as u8);
    packed.extend_from_slice(&most[leading..]);
    Some(())
}

fn take_head(packed: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = packed.split_first()?;
    let (most, rest) = rest.split_at_checked(usize::from(*length))?;
    *packed = rest;
    let leading = [0; 8].get(most.len()..)?;
    Some([&HEAD_BEFORE[..], leading, most, &HEAD_BEHIND].concat())
}

/// Reads a count in HdrHistogram's encoding: seven bits per byte, the lowest first, and eight in
/// the ninth.
fn take_count(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for place in 0..COUNT_BYTES_MAX {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        if place + 1 == COUNT_BYTES_MAX {
            value |= u64::from(*byte) << (7 * place);
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
}

fn put_count(count: i64, bytes: &mut Vec<u8>) {
    let mut value = ((count << 1) ^ (count >> 63)).cast_unsigned();
    for _ in 1..COUNT_BYTES_MAX {
        if value < 0x80 {
            break;
        }
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Adaptive probability that a bit is 0.
#[derive(Clone, Copy)]
struct Chance {
    /// Probability, in units of 1/[`ONE`].
    zero: u32,
    /// Number of bits seen, up to [`SEEN_MAX`].
    seen: u32,
}

const ONE_BITS: u32 = 15;
const ONE: u32 = 1 << ONE_BITS;
/// Maximum of `seen`: the more bits were seen, the smaller each correction, down to 2/47 of the
/// error.
const SEEN_MAX: u32 = 22;
const EVEN: Chance = Chance { zero: ONE / 2, seen: 0 };

impl Chance {
    fn learn(&mut self, bit: bool) {
        let by = |wrong: u32| 2 * wrong / (2 * self.seen + 3);
        match bit {
            true => self.zero -= by(self.zero),
            false => self.zero += by(ONE - self.zero),
        }
        self.seen = (self.seen + 1).min(SEEN_MAX);
    }

    /// Returns the part of a range that represents 0: at least 1/512 of it, at most 511/512.
    fn part(self, range: u32) -> u32 {
        (range >> ONE_BITS) * self.zero.clamp(ONE / 512, ONE - ONE / 512)
    }
}

/// Number of distinct sizes of neighbours.
const SIZES: usize = 13;

/// Probabilities learnt from the counts so far.
struct Model {
    is_gap: [Chance; SIZES],
    /// Probability that a count has no more bits, by the neighbours' size, the sign, and the bits
    /// so far.
    has_more: [[[Chance; 65]; 2]; SIZES],
    /// Probabilities of the two bits below the highest, by the number of bits.
    below: [[Chance; 4]; 65],
    last: [u32; 2],
}

impl Default for Model {
    fn default() -> Model {
        Model {
            is_gap: [EVEN; SIZES],
            has_more: [[[EVEN; 65]; 2]; SIZES],
            below: [[EVEN; 4]; 65],
            last: [0; 2],
        }
    }
}

/// Sequence of bits that is written or read.
trait Bits {
    /// Codes the next bit with this probability. An encoder computes the bit from its count by
    /// `follows`.
    fn next(&mut self, chance: &mut Chance, follows: impl Fn(i64) -> bool) -> bool;
}

/// Writer of the bits of one count.
struct Of<'a>(i64, &'a mut Encoder);

impl Bits for Of<'_> {
    fn next(&mut self, chance: &mut Chance, follows: impl Fn(i64) -> bool) -> bool {
        let bit = follows(self.0);
        self.1.encode(chance, bit);
        bit
    }
}

impl Bits for Decoder<'_> {
    fn next(&mut self, chance: &mut Chance, _: impl Fn(i64) -> bool) -> bool {
        self.decode(chance)
    }
}

impl Model {
    /// Codes the bits of one count, and returns the count.
    fn count(&mut self, coder: &mut impl Bits) -> i64 {
        let [a, b] = self.last.map(|bits| bits.min(SIZES as u32 - 1));
        let size = (a + b).div_ceil(2) as usize;
        let is_gap = coder.next(&mut self.is_gap[size], |count| count < 0);
        let bits_of = |count: i64| u64::BITS - count.unsigned_abs().leading_zeros();
        let mut bits = 0;
        while bits < u64::BITS {
            let chance = &mut self.has_more[size][usize::from(is_gap)][bits as usize];
            if !coder.next(chance, |count| bits_of(count) > bits) {
                break;
            }
            bits += 1;
        }
        let mut value = u64::from(bits > 0);
        for place in (0..bits.saturating_sub(1)).rev() {
            let mut even = EVEN;
            let chance = match value {
                1..=3 => &mut self.below[bits as usize][value as usize],
                _ => &mut even,
            };
            let one = coder.next(chance, |count| (count.unsigned_abs() >> place) & 1 == 1);
            value = (value << 1) | u64::from(one);
        }
        self.last = [if is_gap { 0 } else { bits }, self.last[0]];
        let value = value.cast_signed();
        if is_gap { value.wrapping_neg() } else { value }
    }
}

/// Lower bound of the range; below it the range is extended by a byte.
const RANGE_MIN: u32 = 1 << 24;

struct Encoder {
    low: u64,
    range: u32,
    /// Byte that a carry may still change, followed by `held_count - 1` bytes of 0xff.
    held: u8,
    held_count: u64,
    bytes: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { low: 0, range: u32::MAX, held: 0, held_count: 1, bytes: Vec::new() }
    }
}

impl Encoder {
    fn encode(&mut self, chance: &mut Chance, bit: bool) {
        let bound = chance.part(self.range);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        chance.learn(bit);
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift();
        }
    }

    /// Emits the highest byte, or holds it back if a carry may still change it.
    fn shift(&mut self) {
        let (carry, low) = ((self.low >> 32) as u8, self.low as u32);
        if low < 0xff00_0000 || carry > 0 {
            let mut byte = self.held;
            for _ in 0..self.held_count {
                self.bytes.push(byte.wrapping_add(carry));
                byte = 0xff;
            }
            (self.held, self.held_count) = ((low >> 24) as u8, 0);
        }
        self.held_count += 1;
        self.low = u64::from(low << 8);
    }

    fn finish(mut self) -> Vec<u8> {
        for _ in 0..5 {
            self.shift();
        }
        // The first byte is the initial value of `held`, 0.
        let end = self.bytes.iter().rposition(|byte| *byte != 0).map_or(1, |place| place + 1);
        self.bytes.truncate(end.max(1));
        self.bytes.split_off(1)
    }
}

struct Decoder<'a> {
    code: u32,
    range: u32,
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8]) -> Decoder<'a> {
        let mut decoder = Decoder { code: 0, range: u32::MAX, bytes };
        for _ in 0..4 {
            decoder.shift();
        }
        decoder
    }

    /// Shifts the next byte in; after the end, zeros.
    fn shift(&mut self) {
        let (byte, rest) = self.bytes.split_first().unwrap_or((&0, &[]));
        self.bytes = rest;
        self.code = (self.code << 8) | u32::from(*byte);
    }

    fn decode(&mut self, chance: &mut Chance) -> bool {
        let bound = chance.part(self.range);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        chance.learn(bit);
        while self.range < RANGE_MIN {
            self.range <<= 8;
            self.shift();
        }
        bit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a histogram with these counts, as HdrHistogram writes it.
    fn histogram(counts: &[i64]) -> Vec<u8> {
        let mut payload = Vec::new();
        counts.iter().for_each(|count| put_count(*count, &mut payload));
        let mut raw = COOKIE.to_be_bytes().to_vec();
        raw.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        raw.extend_from_slice(&HEAD_BEFORE);
        raw.extend_from_slice(&123_456_u64.to_be_bytes());
        raw.extend_from_slice(&HEAD_BEHIND);
        raw.extend_from_slice(&payload);
        let mut deflated = ZlibEncoder::new(Vec::new(), Compression::default());
        deflated.write_all(&raw).expect("deflated");
        let deflated = deflated.finish().expect("deflated");
        let mut bytes = COOKIE_DEFLATED.to_be_bytes().to_vec();
        bytes.extend_from_slice(&(deflated.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&deflated);
        bytes
    }

    #[test]
    fn counts_take_less_than_deflated() {
        // A hill with noise, like the counts of real samples.
        let hill = |place: i64| 4000 / (1 + (place - 300).pow(2) / 900) + place * place * 7919 % 61;
        let counts: Vec<i64> = [-5000].into_iter().chain((0..900).map(hill)).collect();
        let (bytes, packed) = (histogram(&counts), pack(&histogram(&counts)));
        assert_eq!(packed[0], CODED);
        assert!(packed.len() < bytes.len(), "{} of {}", packed.len(), bytes.len());
        assert!(unpack(&packed).as_ref() == Ok(&bytes));
    }

    #[test]
    fn what_was_packed_by_an_earlier_build_is_read() {
        let packed = [1, 3, 1, 226, 64, 5, 0, 0, 232, 202, 187, 237, 200, 240, 248];
        let bytes = histogram(&[-3, 1, 2, 70_000, 0]);
        assert_eq!(pack(&bytes), packed);
        assert_eq!(unpack(&packed).as_ref(), Ok(&bytes));
    }

    #[test]
    fn what_is_no_histogram_of_ours_is_kept_as_it_came() {
        let good = histogram(&[1, 2, 3]);
        let cut = &good[..good.len() - 1];
        for bytes in [&b""[..], b"HISTFAA", cut, &COOKIE_DEFLATED.to_be_bytes()] {
            let packed = pack(bytes);
            assert_eq!(packed[0], AS_IT_CAME);
            assert!(unpack(&packed).is_ok_and(|back| back == bytes));
        }
        assert!(unpack(&[]).is_err() && unpack(&[9]).is_err());
        assert!(unpack(&[CODED, 8, 1]).is_err(), "it ends in its head");
        assert!(unpack(&[CODED, 0, 0xff, 0xff, 0xff]).is_err_and(|why| why.contains("counts")));
    }

    proptest! {
        #[test]
        fn any_counts_come_back_to_the_bit(counts in prop::collection::vec(
            prop_oneof![0_i64..9, -50_i64..5000, any::<i64>()], 0..60,
        )) {
            let bytes = histogram(&counts);
            let packed = pack(&bytes);
            prop_assert!(unpack(&packed).is_ok_and(|back| back == bytes));
            prop_assert_eq!(packed[0], CODED);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = unpack(&[&[CODED][..], &bytes].concat());
        }
    }
}
