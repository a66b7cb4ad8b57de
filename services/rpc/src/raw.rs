//! All unsafe code of this crate: memory that two processes share.

mod segment;

pub(crate) use segment::{INLINE_BYTES, Segment, SegmentError};
