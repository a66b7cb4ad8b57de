//! Reading of files of limited length: a device such as `/dev/zero` has no end.

use crate::units::ByteSize;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Maximum length of files that people write, such as configurations and certificates, in bytes.
pub const LENGTH_MAX_BYTES: u64 = 16 << 20;

/// Reads a file of at most `length_max_bytes` bytes.
///
/// # Errors
/// If the file cannot be read, or is longer.
///
/// # Blocking
/// If the file is a pipe: until its writers have closed it.
pub fn read(path: &Path, length_max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(length_max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > length_max_bytes {
        let why = format!("longer than {}", ByteSize(length_max_bytes));
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Reads a text file in UTF-8 of at most `length_max_bytes` bytes.
///
/// # Errors
/// If the file cannot be read, is longer, or is not UTF-8 ([`ErrorKind::InvalidData`]).
///
/// # Blocking
/// If the file is a pipe: until its writers have closed it.
pub fn read_text(path: &Path, length_max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read(path, length_max_bytes)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_the_maximum_length_is_read_and_a_longer_one_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "1234").expect("write the file");
        assert_eq!(read(&path, 4).expect("read the file"), b"1234");
        let error = read(&path, 3).expect_err("the file is too long");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "longer than 3B");
    }

    #[test]
    fn device_without_an_end_and_bytes_that_are_not_text_are_refused() {
        let error = read_text(Path::new("/dev/zero"), 1000).expect_err("it has no end");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"\xff").expect("write the file");
        let error = read_text(&path, 1000).expect_err("it is not text");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
