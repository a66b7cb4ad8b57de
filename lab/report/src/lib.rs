#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod model;
mod table;
mod text;
mod words;

pub use table::{row, table};
pub use text::Style;
