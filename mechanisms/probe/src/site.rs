//! Sites: name, position in the source, and state.

use handover_base::sync::shared::{AtomicU8, AtomicU32, Ordering};

/// Version of [`SiteData`]'s layout and of the section's entries.
pub(crate) const LAYOUT_VERSION: u8 = 1;
/// Maximum number of probe sites in one program. An event has 18 bits for the site's number.
pub const SITES_MAX: u32 = (1 << 18) - 1;

/// Offset in bytes of the state in a [`SiteData`], for reading another process's memory.
pub(crate) const STATE_OFFSET: usize = std::mem::offset_of!(SiteData<[u8; 0]>, state);
/// Offset in bytes of the texts in a [`SiteData`].
pub(crate) const TEXT_OFFSET: usize = std::mem::offset_of!(SiteData<[u8; 0]>, text);

/// State of a site that is switched by a flag and is not registered yet.
pub(crate) const STATE_UNKNOWN: u8 = 0;
pub(crate) const STATE_OFF: u8 = 1;
pub(crate) const STATE_ON: u8 = 2;

/// Kind of a site of `probe!`.
pub const KIND_MARK: u8 = 0;
/// Kind of a site of `span!`.
pub const KIND_SPAN: u8 = 1;
/// Kind of the control entry, into which another process writes a recording's configuration.
pub(crate) const KIND_CONTROL: u8 = 255;

/// Kind of a probe site: the events that it records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SiteKind {
    /// The site records one event, as `probe!` does.
    Mark,
    /// The site records the start and the end of a span, as `span!` and `#[probed]` do.
    Span,
}

/// Static data of a probe site, in a layout that C code can share.
///
/// It is position-independent and has no pointers, so that it can be read from the program's file
/// too: a header of 16 bytes, then the name, then the file's name.
#[repr(C)]
#[derive(Debug)]
pub struct SiteData<T: ?Sized = [u8]> {
    /// Number of the site, shifted left by two; zero until a number is assigned.
    code: AtomicU32,
    line: u32,
    /// State of the site: on, off or unknown. Sites without patched code read it when they run.
    state: AtomicU8,
    /// Kind of the entry: one of the constants `KIND_*`.
    kind: u8,
    /// Number of values of each event of the site.
    values_count: u8,
    /// [`LAYOUT_VERSION`] of the code that created the entry.
    version: u8,
    /// Length of the site's name in bytes.
    name_bytes: u16,
    /// Length of the file's path in bytes.
    file_bytes: u16,
    /// Name of the site, then the path of its source file.
    text: T,
}

/// Size in bytes of the memory into which another process writes a configuration.
pub(crate) const CONTROL_BYTES: usize = 1024;
/// Control entry, into which another process writes a recording's configuration. It does so through
/// `/proc/PID/mem`; the entry is in the section of sites.
pub(crate) static CONTROL: SiteData<[AtomicU8; CONTROL_BYTES]> = SiteData::control();

impl<const N: usize> SiteData<[AtomicU8; N]> {
    /// Creates the control entry, into whose text another process writes a configuration.
    pub(crate) const fn control() -> Self {
        Self {
            code: AtomicU32::new(0),
            line: 0,
            state: AtomicU8::new(STATE_OFF),
            kind: KIND_CONTROL,
            values_count: 0,
            version: LAYOUT_VERSION,
            name_bytes: N as u16,
            file_bytes: 0,
            text: [const { AtomicU8::new(0) }; N],
        }
    }

    /// Returns the bytes that another process has written into the control entry. They end before
    /// the first zero.
    pub(crate) fn written_bytes(&self) -> Vec<u8> {
        self.iter_written_bytes().collect()
    }

    /// Iterates over the bytes that [`written_bytes`](Self::written_bytes) returns.
    pub(crate) fn iter_written_bytes(&self) -> impl Iterator<Item = u8> {
        let bytes = self.text.iter().map(|byte| byte.load(Ordering::Relaxed));
        bytes.take_while(|byte| *byte != 0)
    }
}

impl<T: ?Sized> SiteData<T> {
    /// Returns the total length in bytes of the site's name and its file's name.
    #[allow(dead_code)] // unused in the flag form, which reads no sections
    pub(crate) fn text_bytes(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.file_bytes)
    }
}

/// Maximum length in bytes of a site's name or of its file's name.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

impl<const N: usize> SiteData<[u8; N]> {
    /// Creates a site's data, for the macros. `N` is the total length of both texts.
    ///
    /// # Panics
    /// If `N` is another length, or a text is longer than 65,535 bytes: at compile time.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &str, file: &str, line: u32, kind: u8, values_count: u8) -> Self {
        let (name, file) = (name.as_bytes(), file.as_bytes());
        assert!(name.len() <= TEXT_BYTES_MAX && file.len() <= TEXT_BYTES_MAX);
        assert!(N == name.len() + file.len());
        let mut text = [0; N];
        let mut at = 0;
        while at < N {
            text[at] = if at < name.len() { name[at] } else { file[at - name.len()] };
            at += 1;
        }
        Self {
            code: AtomicU32::new(0),
            line,
            state: AtomicU8::new(STATE_UNKNOWN),
            kind,
            values_count,
            version: LAYOUT_VERSION,
            name_bytes: name.len() as u16,
            file_bytes: file.len() as u16,
            text,
        }
    }
}

impl SiteData {
    /// Returns the site's number shifted left by two. Relaxed: the number never changes once it is
    /// set, and it is set before the site is switched on (see `Registry`).
    #[inline(always)]
    pub(crate) fn code(&self) -> u32 {
        self.code.load(Ordering::Relaxed)
    }

    pub(crate) fn set_number(&self, number: u32) {
        self.code.store(number << 2, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u32 {
        self.code() >> 2
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    pub(crate) fn set_state(&self, state: u8) {
        // Release: publishes the site's number to the fence in is_on().
        self.state.store(state, Ordering::Release);
    }

    /// Returns `true` if this is the control entry.
    #[allow(dead_code)] // unused in the flag form, which reads no sections
    pub(crate) fn is_control(&self) -> bool {
        self.kind == KIND_CONTROL
    }

    #[allow(dead_code)] // unused in the flag form, which reads no sections
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    pub(crate) fn name(&self) -> &str {
        self.text_part(0, self.name_bytes.into())
    }

    /// Returns a description of the site.
    pub(crate) fn site(&self) -> Site {
        let name = self.name();
        Site {
            number: self.number(),
            name: name.to_owned(),
            file: self.text_part(self.name_bytes.into(), self.file_bytes.into()).to_owned(),
            line: self.line,
            kind: if self.kind == KIND_SPAN { SiteKind::Span } else { SiteKind::Mark },
            values_count: self.values_count,
            is_on: self.state() == STATE_ON,
        }
    }

    /// Returns `bytes` bytes of the text from `start` on.
    fn text_part(&self, start: usize, bytes: usize) -> &str {
        let part = self.text.get(start..start + bytes).unwrap_or_default();
        std::str::from_utf8(part).unwrap_or_default()
    }
}

/// Fields of a [`SiteData`] that were read from another process's memory, without the texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteSiteData {
    pub kind: u8,
    /// `true` if the entry has the layout of this version of the crate.
    pub is_supported: bool,
    /// Length of the site's name in bytes.
    pub name_bytes: usize,
    /// Length of the file's path in bytes.
    pub file_bytes: usize,
    line: u32,
    state: u8,
    values_count: u8,
}

impl RemoteSiteData {
    /// Decodes the header of a site's data, which precedes the texts.
    pub(crate) fn decode(header: &[u8; TEXT_OFFSET]) -> Self {
        let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        Self {
            line: u32::from_le_bytes([header[4], header[5], header[6], header[7]]),
            state: header[STATE_OFFSET],
            kind: header[9],
            values_count: header[10],
            is_supported: header[11] == LAYOUT_VERSION,
            name_bytes: half(12),
            file_bytes: half(14),
        }
    }

    /// Returns a description of the site with this number. `text` has the site's name and its
    /// file's path.
    pub(crate) fn site(&self, number: u32, text: &[u8]) -> Site {
        let (name, file) = text.split_at(self.name_bytes.min(text.len()));
        Site {
            number,
            name: String::from_utf8_lossy(name).into_owned(),
            file: String::from_utf8_lossy(file).into_owned(),
            line: self.line,
            kind: if self.kind == KIND_SPAN { SiteKind::Span } else { SiteKind::Mark },
            values_count: self.values_count,
            is_on: self.state == STATE_ON,
        }
    }
}

/// Description of a probe site, as listed by [`sites`](crate::sites) and as stored in a trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Site {
    /// Number of the site in this process and in its traces, from 1.
    pub number: u32,
    /// Name of the site, as passed to the macro.
    pub name: String,
    /// Path of the source file that contains the site, as passed to the compiler.
    pub file: String,
    /// Line of the site in the source file.
    pub line: u32,
    /// Kind of the site: a single event, or two events around a span.
    pub kind: SiteKind,
    /// Number of values of each event of the site, 0 to 2.
    pub values_count: u8,
    /// `true` if the site was on when it was listed; always `false` in a trace.
    pub is_on: bool,
}

/// Type of the values that a site can record: integers, `bool` and `char`. They are stored as 64
/// bits, negative numbers in two's complement.
pub trait Value: Copy {
    /// Converts the value to the word that is recorded.
    fn to_word(self) -> u64;
}

macro_rules! values {
    ($($integer:ty),+) => { $(impl Value for $integer {
        #[inline(always)]
        fn to_word(self) -> u64 {
            self as u64
        }
    })+ };
}
values!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, bool, char);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_has_its_name_and_source_position() {
        static META: SiteData<[u8; 9]> = SiteData::new("name", "a.cpp", 7, KIND_SPAN, 2);
        let meta: &'static SiteData = &META;
        meta.set_number(3);
        let site = meta.site();
        assert_eq!((site.name.as_str(), site.file.as_str(), site.line), ("name", "a.cpp", 7));
        assert_eq!((site.number, site.kind, site.values_count), (3, SiteKind::Span, 2));
        assert!(!site.is_on);
    }

    #[test]
    fn negative_value_is_stored_in_twos_complement() {
        assert_eq!((-1i8).to_word(), u64::MAX);
        assert_eq!((-2i64).to_word() as i64, -2);
        assert_eq!(true.to_word(), 1);
    }
}
