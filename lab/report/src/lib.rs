#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anatomy;
mod html;
mod ladder;
mod model;
pub mod svg;
mod table;
mod text;
mod words;

pub use anatomy::{anatomy, anatomy_chart};
pub use html::html;
pub use ladder::ladder;
pub use table::{row, table};
pub use text::Style;
