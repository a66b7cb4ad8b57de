//! Names under which this binary can be called: its own, and those of the classic programs.

use std::ffi::OsStr;
use std::path::Path;

/// Names of a classic program: its subcommand, and the paths under which its own documentation
/// calls it.
pub struct ClassicProgram {
    /// Name of the subcommand that runs the program.
    pub command: &'static str,
    /// Name of the original program's file.
    file: &'static str,
    /// Folders in which the original's documentation calls the program, with a final slash.
    folders: &'static [&'static str],
}

impl ClassicProgram {
    /// Returns the paths of the links to create for the program, relative to a folder of links.
    /// They are the paths by which the original's documentation calls the program.
    pub fn link_paths(&self) -> impl Iterator<Item = String> {
        self.folders.iter().map(|folder| format!("{folder}{}", self.file))
    }
}

/// Name under which cargo calls the binary: `cargo handover`.
pub const CARGO_SUBCOMMAND: &str = "cargo-handover";

/// Folders of programs that are called from the current folder.
const TOP_FOLDER: &[&str] = &[""];
/// Folders of the programs `hello1_evm` to `hello5_evm`.
const DEMO_FOLDERS: &[&str] = &["", "build/demos/"];
/// Folders of `evh_perf`: the current folder, and cargo's folder of release builds.
const RELEASE_FOLDERS: &[&str] = &["", "target/release/"];
/// Folders of margo's performance tests, and of `abt-eventual-bench`.
const MARGO_FOLDERS: &[&str] =
    &["", "perf-regression/", "tests/perf-regression/", "build/perf-regression/"];
/// Folders of the scripts that run `abt-eventual-bench` and plot its results.
const TEST_FOLDERS: &[&str] = &["", "tests/"];

/// Returns the names of a classic program.
const fn classic(
    command: &'static str,
    file: &'static str,
    folders: &'static [&'static str],
) -> ClassicProgram {
    ClassicProgram { command, file, folders }
}

/// Classic programs that are subcommands of this binary: all, or none without the feature
/// `programs`.
pub const CLASSIC_PROGRAMS: &[ClassicProgram] =
    if cfg!(feature = "programs") { ALL_PROGRAMS } else { &[] };

/// All classic programs.
const ALL_PROGRAMS: &[ClassicProgram] = &[
    classic("hello1", "hello1_evm", DEMO_FOLDERS),
    classic("hello2", "hello2_evm", DEMO_FOLDERS),
    classic("hello3", "hello3_evm", DEMO_FOLDERS),
    classic("hello4", "hello4_evm", DEMO_FOLDERS),
    classic("hello5", "hello5_evm", DEMO_FOLDERS),
    classic("sched", "sched", TOP_FOLDER),
    classic("trylock", "trylock", TOP_FOLDER),
    classic("notify", "notify", TOP_FOLDER),
    classic("calls", "calls", TOP_FOLDER),
    classic("evh_perf", "evh_perf", RELEASE_FOLDERS),
    classic("margo-p2p-latency", "margo-p2p-latency", MARGO_FOLDERS),
    classic("margo-p2p-bw", "margo-p2p-bw", MARGO_FOLDERS),
    classic("node-microbench", "node-microbench", MARGO_FOLDERS),
    classic("abt-eventual-bench", "abt-eventual-bench", MARGO_FOLDERS),
    classic("sweep-abt-eventual-bench", "sweep-abt-eventual-bench.sh", TEST_FOLDERS),
    classic("plot-abt-eventual-bench", "plot-abt-eventual-bench.sh", TEST_FOLDERS),
];

/// Returns the classic program whose file has the name `called`, even if this binary has no such
/// subcommand; `None` for other names.
pub fn find_by_file_name(called: &OsStr) -> Option<&'static ClassicProgram> {
    let name = Path::new(called).file_name()?.to_str()?;
    let name = name.strip_suffix(".sh").unwrap_or(name);
    let name = name.strip_suffix("_evm").unwrap_or(name);
    ALL_PROGRAMS.iter().find(|classic| classic.command == name)
}

/// Returns `true` if the binary was called as a subcommand of cargo.
pub fn is_cargo_subcommand(called: &OsStr) -> bool {
    Path::new(called).file_name().is_some_and(|name| name == CARGO_SUBCOMMAND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_calls_its_own_program() {
        for classic in ALL_PROGRAMS {
            for link in classic.link_paths() {
                let found = find_by_file_name(OsStr::new(&link)).map(|it| it.command);
                assert_eq!(found, Some(classic.command), "{link}");
            }
        }
        assert!(find_by_file_name(OsStr::new("/usr/bin/handover")).is_none());
        assert!(find_by_file_name(OsStr::new("")).is_none());
        assert!(is_cargo_subcommand(OsStr::new("/home/a/.cargo/bin/cargo-handover")));
        assert!(!is_cargo_subcommand(OsStr::new("handover")));
    }
}
