#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod checksum;
mod error;
mod file;
mod finite;
mod lines;
mod names;
mod pack;
mod row;
mod series;
mod store;
mod tags;
mod transfer;

pub use error::{ExportError, ImportError, StoreError};
pub use file::{STORE_SCHEMA_VERSION, db_option, default_path};
pub use lines::LINE_BYTES_MAX;
pub use names::check_tag;
pub use row::RunRow;
pub use series::StoredFigure;
pub use store::Store;
pub use transfer::{ExportCounts, ImportCounts, import_and_reexport};
