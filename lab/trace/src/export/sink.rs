//! Buffered output of an export.

use std::io::{self, Write};

/// Number of buffered bytes at which the buffer is written to the output.
const FLUSH_BYTES: usize = 1 << 16;

/// Buffer of an export's output.
#[derive(Debug)]
pub struct ExportBuffer<W> {
    out: W,
    bytes: Vec<u8>,
}

impl<W: Write> ExportBuffer<W> {
    pub fn new(out: W) -> Self {
        Self { out, bytes: Vec::with_capacity(FLUSH_BYTES + (1 << 12)) }
    }

    /// Returns the buffer to append to. Call [`flush_if_full`](ExportBuffer::flush_if_full) after
    /// each event.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the buffer to the output if it holds at least `FLUSH_BYTES`.
    #[inline]
    pub fn flush_if_full(&mut self) -> io::Result<()> {
        if self.bytes.len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer to the output, and clears the buffer.
    #[cold]
    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the rest of the buffer, and flushes the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }
}

/// Appends a number in decimal digits.
#[inline]
pub fn push_decimal(to: &mut Vec<u8>, mut number: u64) {
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
pub fn push_signed_decimal(to: &mut Vec<u8>, number: i64) {
    if number < 0 {
        to.push(b'-');
    }
    push_decimal(to, number.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_like_display() {
        for number in [0, 1, 10, 999, i64::MAX, i64::MIN, -7] {
            let mut bytes = Vec::new();
            push_signed_decimal(&mut bytes, number);
            assert_eq!(bytes, number.to_string().as_bytes());
        }
    }
}
