//! What a site is: its name, where it stands, and whether it is on.

use handover_base::sync::shared::{AtomicU8, AtomicU32, Ordering};

/// The version of [`Meta`]'s layout and of the section's entries.
pub(crate) const LAYOUT_VERSION: u8 = 1;
/// How many distinct sites one program can record: what the bits of an event's number hold.
pub const SITES_MAX: u32 = (1 << 18) - 1;

/// Where in a Meta its state, its numbers and its texts lie: for who reads one in another process.
pub(crate) const STATE_OFFSET: usize = std::mem::offset_of!(Meta<[u8; 0]>, state);
/// As above.
pub(crate) const TEXT_OFFSET: usize = std::mem::offset_of!(Meta<[u8; 0]>, text);

pub(crate) const STATE_UNKNOWN: u8 = 0;
pub(crate) const STATE_OFF: u8 = 1;
pub(crate) const STATE_ON: u8 = 2;

/// What kind of site `probe!` makes.
pub const KIND_MARK: u8 = 0;
/// What kind of site `span!` makes.
pub const KIND_SPAN: u8 = 1;
/// The kind of the entry behind which another process leaves its wishes.
pub(crate) const KIND_CONTROL: u8 = 255;

/// What a site does when it is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One event (`probe!`).
    Mark,
    /// An event when a span is entered and one when it is left (`span!`, `#[probed]`).
    Span,
}

/// What lies in memory for each site: the layout that a C header will share.
///
/// Position-independent and complete in itself, so that it can be read from the program's file as well:
/// 16 bytes of header, then the name, then the file's name.
#[repr(C)]
#[derive(Debug)]
pub struct Meta<T: ?Sized = [u8]> {
    /// The site's number shifted by two, zero as long as it has none.
    code: AtomicU32,
    line: u32,
    /// Whether it is on; in the flag form this is what the site reads.
    state: AtomicU8,
    kind: u8,
    values_count: u8,
    version: u8,
    name_bytes: u16,
    file_bytes: u16,
    text: T,
}

impl<const N: usize> Meta<[AtomicU8; N]> {
    /// What no site is: room for what another process writes here.
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

    /// What was written, up to the first zero.
    pub(crate) fn written(&self) -> Vec<u8> {
        let bytes = self.text.iter().map(|byte| byte.load(Ordering::Relaxed));
        bytes.take_while(|byte| *byte != 0).collect()
    }
}

impl<T: ?Sized> Meta<T> {
    /// Bytes of both texts.
    #[allow(dead_code)] // as below
    pub(crate) fn text_bytes(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.file_bytes)
    }
}

/// How many bytes of a site's name are kept.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

impl<const N: usize> Meta<[u8; N]> {
    /// For the macros: `N` is the length of both texts together.
    ///
    /// # Panics
    /// When it is not, or a text is longer than 65,535 bytes: while compiling.
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

impl Meta {
    /// The number shifted by two: what the low bits of each of its events are. It never changes once
    /// it is there, and whoever records has seen it written (see `Registry`), hence relaxed.
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
        self.state.store(state, Ordering::Relaxed);
    }

    #[allow(dead_code)] // asked of sections, which the flag form does not have
    pub(crate) fn is_control(&self) -> bool {
        self.kind == KIND_CONTROL
    }

    #[allow(dead_code)] // as above
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    pub(crate) fn name(&self) -> &str {
        self.part(0, self.name_bytes.into())
    }

    pub(crate) fn site(&self) -> Site {
        let name = self.name();
        Site {
            number: self.number(),
            name: name.to_owned(),
            file: self.part(self.name_bytes.into(), self.file_bytes.into()).to_owned(),
            line: self.line,
            kind: if self.kind == KIND_SPAN { Kind::Span } else { Kind::Mark },
            values_count: self.values_count,
            is_on: self.state() == STATE_ON,
        }
    }

    fn part(&self, start: usize, bytes: usize) -> &str {
        let part = self.text.get(start..start + bytes).unwrap_or_default();
        std::str::from_utf8(part).unwrap_or_default()
    }
}

/// A Meta as it lies in another process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreign {
    pub kind: u8,
    pub is_ours: bool,
    pub name_bytes: usize,
    pub file_bytes: usize,
    line: u32,
    state: u8,
    values_count: u8,
}

impl Foreign {
    /// From the bytes before its texts.
    pub(crate) fn decode(header: &[u8; TEXT_OFFSET]) -> Self {
        let half = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        Self {
            line: u32::from_le_bytes([header[4], header[5], header[6], header[7]]),
            state: header[STATE_OFFSET],
            kind: header[9],
            values_count: header[10],
            is_ours: header[11] == LAYOUT_VERSION,
            name_bytes: half(12),
            file_bytes: half(14),
        }
    }

    /// The site that it describes, with texts of the lengths that it says.
    pub(crate) fn site(&self, number: u32, text: &[u8]) -> Site {
        let (name, file) = text.split_at(self.name_bytes.min(text.len()));
        Site {
            number,
            name: String::from_utf8_lossy(name).into_owned(),
            file: String::from_utf8_lossy(file).into_owned(),
            line: self.line,
            kind: if self.kind == KIND_SPAN { Kind::Span } else { Kind::Mark },
            values_count: self.values_count,
            is_on: self.state == STATE_ON,
        }
    }
}

/// A site, as [`sites`](crate::sites) lists them and as a trace names them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Site {
    /// Its number in this process and in the traces that it records, from 1.
    pub number: u32,
    /// What it is called.
    pub name: String,
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// One event, or two around a span.
    pub kind: Kind,
    /// How many values it records, 0 to 2.
    pub values_count: u8,
    /// Whether it is on at the moment; false in a trace.
    pub is_on: bool,
}

/// What a site can record beside its time: integers, kept as 64 bits (negative ones in two's
/// complement).
pub trait Value: Copy {
    /// As it is recorded.
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
    fn a_site_knows_its_name_and_where_it_stands() {
        static META: Meta<[u8; 9]> = Meta::new("name", "a.cpp", 7, KIND_SPAN, 2);
        let meta: &'static Meta = &META;
        meta.set_number(3);
        let site = meta.site();
        assert_eq!((site.name.as_str(), site.file.as_str(), site.line), ("name", "a.cpp", 7));
        assert_eq!((site.number, site.kind, site.values_count), (3, Kind::Span, 2));
        assert!(!site.is_on);
    }

    #[test]
    fn negative_values_are_kept_in_twos_complement() {
        assert_eq!((-1i8).to_word(), u64::MAX);
        assert_eq!((-2i64).to_word() as i64, -2);
        assert_eq!(true.to_word(), 1);
    }
}
