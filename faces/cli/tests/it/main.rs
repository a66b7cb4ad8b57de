//! The whole command line: the binary is run, and its output and files are checked.

mod anatomy;
mod book;
mod calls;
mod classic;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod corpora;
mod documents;
mod eventual;
mod evh_perf;
mod fleet;
mod hello;
mod margo;
mod netns;
mod refusals;
mod scale;
mod sched;
mod serve;
mod terminal;
mod trace;
mod trace_record;
mod transcript;
