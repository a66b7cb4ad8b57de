//! Tables, charts, pages, comparisons and exports.

mod anatomy;
mod chart;
mod compare;
mod export;
mod fleet;
mod history;
mod page;
mod seen;
mod support;
mod table;
