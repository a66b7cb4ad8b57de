//! Folders that traces are written to, and their file systems.

use super::costed::MeasuredFunction;
use anyhow::Context;
use handover_harness::ScratchFolder;
use handover_program::exit::to_usage_error;
use handover_suite::call::counting_program_file;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Folder of a file system in memory.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Temporary folder for traces. Dropping this removes the folder.
pub(super) struct TraceFolder {
    folder: ScratchFolder,
    /// Path of the parent folder, as the user named it.
    pub parent_path: String,
    /// Name of the folder's file system, such as `ext4`.
    pub file_system: &'static str,
}

impl TraceFolder {
    fn new(within: &Path) -> std::io::Result<TraceFolder> {
        let folder = ScratchFolder::new("handover-calls-", within)?;
        let file_system = file_system_name(within);
        Ok(TraceFolder { folder, parent_path: within.display().to_string(), file_system })
    }

    /// Returns the path of a file in the folder.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Folders for traces: one in memory, and one in the folder of `--dir`.
pub(super) struct TraceFolders {
    /// Folder in memory; `None` if no file can be created in /dev/shm.
    pub memory: Option<TraceFolder>,
    /// Folder within the folder of `--dir`.
    pub dir: TraceFolder,
}

/// Measured functions that are in separate C programs.
const C_FUNCTIONS: [MeasuredFunction; 2] = [MeasuredFunction::Hooks, MeasuredFunction::Patchable];

impl TraceFolders {
    /// Creates the folders, and writes the measured C programs into the folder of `--dir`.
    pub fn new(dir: &Path) -> anyhow::Result<TraceFolders> {
        let refused = |error: std::io::Error| {
            to_usage_error(format!(
                "--dir {}: {error}; name a folder in which files can be created",
                dir.display()
            ))
        };
        let folders = TraceFolders {
            memory: TraceFolder::new(Path::new(MEMORY_FOLDER)).ok(),
            dir: TraceFolder::new(dir).map_err(refused)?,
        };
        for subject in C_FUNCTIONS {
            if let Some(entries) = subject.entries() {
                let path = folders.program_path(subject);
                let mut options = File::options();
                options.mode(0o700).write(true).create_new(true);
                let written = options
                    .open(&path)
                    .and_then(|mut it| it.write_all(counting_program_file(entries)));
                written.with_context(|| {
                    format!(
                        "--dir: cannot write the measured program {path}",
                        path = path.display()
                    )
                })?;
            }
        }
        Ok(folders)
    }

    /// Returns the path of the C program that contains the function.
    pub fn program_path(&self, subject: MeasuredFunction) -> PathBuf {
        self.dir.file(&format!("{subject:?}").to_lowercase())
    }

    /// Returns the paths of the trace file and of the file with the rings. A trace is streamed from
    /// the rings, or written at the end. The rings are in memory if possible.
    pub fn files(&self, on: TraceMedium) -> [PathBuf; 2] {
        let memory = self.memory.as_ref().unwrap_or(&self.dir);
        let trace = match on {
            TraceMedium::Memory => memory,
            TraceMedium::Dir => &self.dir,
        };
        [trace.file("trace"), memory.file("rings")]
    }

    /// Returns the label of a medium: the folder and its file system.
    pub fn label(&self, on: TraceMedium) -> String {
        match on {
            TraceMedium::Memory => MEMORY_FOLDER.to_string(),
            TraceMedium::Dir => format!("{} ({})", self.dir.parent_path, self.dir.file_system),
        }
    }

    /// Returns the short label of a medium: /dev/shm, or the name of a file system.
    pub fn short_label(&self, on: TraceMedium) -> &str {
        match on {
            TraceMedium::Memory => MEMORY_FOLDER,
            TraceMedium::Dir => self.dir.file_system,
        }
    }

    /// Returns `true` if traces can be written to the medium.
    pub fn has_medium(&self, on: TraceMedium) -> bool {
        on == TraceMedium::Dir || self.memory.is_some()
    }
}

/// Medium of a trace: the folder in memory, or the folder of `--dir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceMedium {
    /// Folder in memory.
    Memory,
    /// Folder of `--dir`.
    Dir,
}

/// Names of common file systems, by the kernel's magic numbers.
const FILE_SYSTEMS: [(u64, &str); 14] = [
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0bd0_0bd0, "lustre"),
    (0x00c3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
];

/// Returns the name of the file system that contains `path`.
fn file_system_name(path: &Path) -> &'static str {
    let number = rustix::fs::statfs(path).map_or(0, |it| it.f_type as u64 & 0xffff_ffff);
    FILE_SYSTEMS
        .iter()
        .find(|(known, _)| *known == number)
        .map_or("another file system", |(_, name)| name)
}
