//! Names under which this binary can be called: its own, and those of the classic programs.

use std::ffi::OsStr;
use std::path::Path;

/// A classic program.
pub struct Classic {
    /// Subcommand that does the program's work.
    pub command: &'static str,
    /// Paths below a links folder under which the program's own documentation calls it.
    pub links: &'static [&'static str],
    /// `true` if this version has the program.
    pub here: bool,
}

/// Name under which cargo calls the binary: `cargo handover`.
pub const CARGOS: &str = "cargo-handover";

/// All classic programs, including future ones: a link to such a name says so when it is called.
pub const CLASSICS: &[Classic] = &[
    Classic { command: "hello1", links: &["hello1_evm", "build/demos/hello1_evm"], here: true },
    Classic { command: "hello2", links: &["hello2_evm", "build/demos/hello2_evm"], here: true },
    Classic { command: "hello3", links: &["hello3_evm", "build/demos/hello3_evm"], here: true },
    Classic { command: "hello4", links: &["hello4_evm", "build/demos/hello4_evm"], here: true },
    Classic { command: "hello5", links: &["hello5_evm", "build/demos/hello5_evm"], here: true },
    Classic { command: "sched", links: &["sched"], here: true },
    Classic { command: "trylock", links: &["trylock"], here: true },
    Classic { command: "notify", links: &["notify"], here: true },
    Classic { command: "calls", links: &["calls"], here: true },
    Classic { command: "evh_perf", links: &["evh_perf", "target/release/evh_perf"], here: true },
    Classic {
        command: "margo-p2p-latency",
        links: &[
            "margo-p2p-latency",
            "perf-regression/margo-p2p-latency",
            "tests/perf-regression/margo-p2p-latency",
            "build/perf-regression/margo-p2p-latency",
        ],
        here: true,
    },
    Classic {
        command: "margo-p2p-bw",
        links: &[
            "margo-p2p-bw",
            "perf-regression/margo-p2p-bw",
            "tests/perf-regression/margo-p2p-bw",
            "build/perf-regression/margo-p2p-bw",
        ],
        here: true,
    },
    Classic {
        command: "node-microbench",
        links: &[
            "node-microbench",
            "perf-regression/node-microbench",
            "tests/perf-regression/node-microbench",
            "build/perf-regression/node-microbench",
        ],
        here: true,
    },
    Classic {
        command: "abt-eventual-bench",
        links: &[
            "abt-eventual-bench",
            "perf-regression/abt-eventual-bench",
            "tests/perf-regression/abt-eventual-bench",
            "build/perf-regression/abt-eventual-bench",
        ],
        here: true,
    },
    Classic {
        command: "sweep-abt-eventual-bench",
        links: &["sweep-abt-eventual-bench.sh", "tests/sweep-abt-eventual-bench.sh"],
        here: true,
    },
    Classic {
        command: "plot-abt-eventual-bench",
        links: &["plot-abt-eventual-bench.sh", "tests/plot-abt-eventual-bench.sh"],
        here: true,
    },
];

/// Returns the classic program that the name `called` stands for, if any.
pub fn called_as(called: &OsStr) -> Option<&'static Classic> {
    let name = Path::new(called).file_name()?.to_str()?;
    let name = name.strip_suffix(".sh").unwrap_or(name);
    let name = name.strip_suffix("_evm").unwrap_or(name);
    CLASSICS.iter().find(|classic| classic.command == name)
}

/// Returns `true` if the binary was called as a subcommand of cargo.
pub fn is_cargos(called: &OsStr) -> bool {
    Path::new(called).file_name().is_some_and(|name| name == CARGOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_calls_its_own_program() {
        for classic in CLASSICS {
            for link in classic.links {
                let found = called_as(OsStr::new(link)).map(|it| it.command);
                assert_eq!(found, Some(classic.command), "{link}");
            }
        }
        assert!(called_as(OsStr::new("/usr/bin/handover")).is_none());
        assert!(called_as(OsStr::new("")).is_none());
        assert!(is_cargos(OsStr::new("/home/a/.cargo/bin/cargo-handover")));
        assert!(!is_cargos(OsStr::new("handover")));
    }
}
