//! Buffered output of an export.

use std::io::{self, Write};

/// Number of buffered bytes from which on the buffer is written.
const FLUSH_BYTES: usize = 1 << 16;

#[derive(Debug)]
pub struct Sink<W> {
    out: W,
    bytes: Vec<u8>,
}

impl<W: Write> Sink<W> {
    pub fn new(out: W) -> Self {
        Self { out, bytes: Vec::with_capacity(FLUSH_BYTES + (1 << 12)) }
    }

    /// Returns the buffer to append to; call [`flush_if_full`](Sink::flush_if_full) after each
    /// event.
    #[inline]
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the buffer if it has reached its limit.
    #[inline]
    pub fn flush_if_full(&mut self) -> io::Result<()> {
        if self.bytes.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }
}

/// Appends a number in decimal digits.
#[inline]
pub fn put_number(to: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

/// Appends a signed number in decimal digits.
#[inline]
pub fn put_signed(to: &mut Vec<u8>, number: i64) {
    if number < 0 {
        to.push(b'-');
    }
    put_number(to, number.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_like_display() {
        for number in [0, 1, 10, 999, i64::MAX, i64::MIN, -7] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, number);
            assert_eq!(bytes, number.to_string().as_bytes());
        }
    }
}
