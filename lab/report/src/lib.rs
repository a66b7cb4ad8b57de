#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anatomy;
pub mod compare;
mod detail;
mod export;
mod format;
pub mod history;
mod html;
mod ladder;
mod model;
mod seen;
pub mod svg;
mod sweep;
mod table;
mod text;
pub mod usl;

pub use anatomy::{anatomy, anatomy_chart};
pub use export::{Format, UnknownFormat, export, markdown};
pub use format::ShortFigure;
pub use html::{html, html_with_other_runs};
pub use ladder::ladder;
pub use seen::{remove_smoke_ratios, warn_of_differing_runs};
pub use sweep::{Sweep, sweeps};
pub use table::{row, table};
pub use text::{Style, is_control};
