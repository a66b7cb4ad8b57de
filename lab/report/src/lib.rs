#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod anatomy;
mod columns;
pub mod compare;
mod counts;
mod detail;
mod export;
mod figure_key;
pub mod fleet;
mod format;
mod histogram;
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

pub use anatomy::{anatomy_chart, render_anatomy};
pub use export::{Format, UnknownFormat, export, render_markdown};
pub use figure_key::{FigureKey, comparable_key, usual_timing};
pub use format::{ShortFigure, warning_name};
pub use histogram::merge_histograms;
pub use html::{render_html, render_html_with_other_runs};
pub use ladder::ladder_chart;
pub use model::NamedRun;
pub use seen::{remove_smoke_ratios, warn_of_differing_runs};
pub use sweep::{Sweep, find_sweeps};
pub use table::{render_row, render_table};
pub use text::{Style, is_control};
