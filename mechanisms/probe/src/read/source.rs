//! Sources of a trace's bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Source of a trace's bytes with random access: a file, or memory.
pub trait ReadAt {
    /// Reads bytes from `offset` on into `to`, and returns their number, 0 at the end.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;

    /// Returns the length of the source in bytes.
    ///
    /// # Errors
    /// If the length cannot be determined.
    fn bytes(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, to, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = to.len().min(self.len() - start);
        to[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// Reads bytes from `offset` on into `to`, until `to` is full or the source ends. Returns the
/// number of bytes read.
pub(crate) fn read_full(source: &impl ReadAt, mut offset: u64, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match source.read_at(offset, &mut to[done..]) {
            Ok(0) => break,
            Ok(count) => {
                done += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
