//! Switching the sites of another process.
//!
//! The other process does not take part: it needs no thread, signal or socket for this. Its sites
//! are found in the ELF sections of the files that it maps, and switched by writing the code of
//! their instructions into its memory. The recording's configuration is written into its memory
//! too; its first event reads it.
//!
//! ```no_run
//! use handover_probe::{Config, other_process::Process};
//! let mut process = Process::attach(4711)?;
//! process.enable("lock.*", &Config::stream("/tmp/4711.trace"))?;
//! // ... and later; the trace can be read at any time
//! process.disable("*")?;
//! # Ok::<(), handover_probe::OtherProcessError>(())
//! ```

use crate::config::Config;
use crate::config_request;
use crate::elf;
use crate::error::OtherProcessError;
use crate::raw::code::{CODE_BYTES, CODE_OFF, Code, ENTRY_BYTES, TARGET_OFFSET, code_on};
use crate::site::{
    CONTROL_BYTES, KIND_CONTROL, RemoteSiteData, STATE_OFF, STATE_OFFSET, STATE_ON, Site,
    TEXT_OFFSET,
};
use handover_base::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Name of the ELF section that lists the probe sites.
const SECTION: &str = "handover_probes";
/// Maximum size in bytes of the section of sites. A larger section belongs to other software and is
/// skipped.
const SECTION_BYTES_MAX: u64 = 1 << 28;

/// Running process whose probe sites can be switched, possibly the calling one.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    /// File `/proc/PID/mem`.
    memory: File,
    sites: Vec<Site>,
    /// Addresses of each site's data and instructions, in the order of `sites`.
    addresses: Vec<SiteAddresses>,
    /// Addresses in the process at which a recording's configuration is written. There is one in
    /// each loaded object with sites.
    control_addresses: Vec<u64>,
}

/// Addresses of a site's data and instructions in another process.
#[derive(Debug, Clone, Default)]
struct SiteAddresses {
    /// Address of the site's [`SiteData`](crate::site::SiteData).
    meta: u64,
    /// Address of each instruction, and its code while the site is on.
    instructions: Vec<(u64, Code)>,
}

/// Mapped part of a file, as a line of `/proc/PID/maps` describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    is_executable: bool,
    offset: u64,
    path: String,
}

impl Mapping {
    /// Returns the address at which the file's first byte would be mapped.
    fn base(&self) -> u64 {
        self.start.wrapping_sub(self.offset)
    }
}

impl Process {
    /// Opens process `pid`, and finds the probe sites in its program and its shared objects.
    ///
    /// # Errors
    /// If there is no such process, this process may not trace it (as a debugger would), or it has
    /// no sites.
    pub fn attach(pid: u32) -> Result<Self, OtherProcessError> {
        let folder = format!("/proc/{pid}");
        let maps = std::fs::read_to_string(format!("{folder}/maps"))
            .map_err(|source| attach_error(pid, source))?;
        let memory = File::options().read(true).write(true).open(format!("{folder}/mem"));
        let memory = memory.map_err(|source| attach_error(pid, source))?;
        let mut process = Self {
            pid,
            memory,
            sites: Vec::new(),
            addresses: Vec::new(),
            control_addresses: Vec::new(),
        };
        let mappings: Vec<Mapping> = maps.lines().filter_map(parse_mapping).collect();
        let paths: BTreeSet<&str> = mappings.iter().map(|one| one.path.as_str()).collect();
        for path in paths {
            let Some(section) = find_site_section(&folder, path) else { continue };
            let of_path: Vec<&Mapping> = mappings.iter().filter(|it| it.path == path).collect();
            for start in section_addresses(&of_path, &section) {
                process.read_section(start, section.bytes)?;
            }
        }
        if process.sites.is_empty() {
            return Err(OtherProcessError::NoSites { pid });
        }
        Ok(process)
    }

    /// Returns the process's sites. [`Site::is_on`] is the state that `attach` read, or that this
    /// value has set since.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Switches on the sites whose names match `pattern`, and returns their number. Each CPU that
    /// runs the process sees the change by its next interrupt at the latest.
    ///
    /// If the process is not recording yet, its first event starts a recording with `config`, under
    /// the process's user and working directory. The recording ends with the process; its trace can
    /// be read at any time. All of `config` is used, with the maximum wait rounded up to
    /// milliseconds. A C program uses only the path and the ring's size: it keeps its newest
    /// events, whatever the policy.
    ///
    /// If that recording cannot be started (because its path is not writable, for example), the
    /// process reports it on its stderr and does not try this request again. Call `enable` again,
    /// with the same or another `config`, once the cause is removed. A C program takes only its
    /// first request.
    ///
    /// # Errors
    /// If a number in `config` is out of range, a path in it is not absolute or is too long, the
    /// process has ended, or it is a C program without the recording library. If `config` is
    /// refused, no site is switched.
    pub fn enable(&mut self, pattern: &str, config: &Config) -> Result<usize, OtherProcessError> {
        let request = encode_request(config)?;
        if self.control_addresses.is_empty() {
            return Err(OtherProcessError::NoRecorder { pid: self.pid });
        }
        for control in &self.control_addresses {
            let done = self.memory.write_all_at(&request, *control);
            done.map_err(|source| self.memory_error(source))?;
        }
        self.switch(pattern, true)
    }

    /// Switches off the sites whose names match `pattern`, and returns their number.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn disable(&mut self, pattern: &str) -> Result<usize, OtherProcessError> {
        self.switch(pattern, false)
    }

    /// Switches the sites whose names match `pattern` on or off, and returns their number.
    fn switch(&mut self, pattern: &str, on: bool) -> Result<usize, OtherProcessError> {
        let mut count = 0;
        for at in 0..self.sites.len() {
            if crate::matches(pattern, &self.sites[at].name) {
                self.switch_site(&self.addresses[at], on)
                    .map_err(|source| self.memory_error(source))?;
                self.sites[at].is_on = on;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Switches one site on or off.
    fn switch_site(&self, addresses: &SiteAddresses, on: bool) -> io::Result<()> {
        for (at, code_on) in &addresses.instructions {
            let (from, to) = if on { (CODE_OFF, *code_on) } else { (*code_on, CODE_OFF) };
            let mut code = [0; CODE_BYTES];
            self.memory.read_exact_at(&mut code, *at)?;
            if code == from.to_le_bytes() {
                self.memory.write_all_at(&to.to_le_bytes(), *at)?;
            }
        }
        let state = if on { STATE_ON } else { STATE_OFF };
        self.memory.write_all_at(&[state], addresses.meta + STATE_OFFSET as u64)
    }

    /// Reads the section of sites at address `start`, and adds its sites to `sites`.
    fn read_section(&mut self, start: u64, bytes: u64) -> Result<(), OtherProcessError> {
        if bytes > SECTION_BYTES_MAX {
            return Ok(());
        }
        let mut entries = vec![0; bytes as usize];
        self.read(start, &mut entries)?;
        let mut metas: BTreeMap<u64, Vec<(u64, Code)>> = BTreeMap::new();
        for (index, entry) in entries.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            let here = start + (index * ENTRY_BYTES) as u64;
            let distance = |at: usize| {
                let bytes = [entry[at], entry[at + 1], entry[at + 2], entry[at + 3]];
                (here + at as u64).wrapping_add_signed(i32::from_le_bytes(bytes).into())
            };
            let target = TARGET_OFFSET.map_or(0, distance);
            let instructions = metas.entry(distance(4)).or_default();
            instructions.extend(code_on(distance(0), target).map(|code| (distance(0), code)));
        }
        for (meta, instructions) in metas {
            let mut header = [0; TEXT_OFFSET];
            self.read(meta, &mut header)?;
            let remote_meta = RemoteSiteData::decode(&header);
            if !remote_meta.is_supported {
                continue;
            }
            if remote_meta.kind == KIND_CONTROL {
                self.control_addresses.push(meta + TEXT_OFFSET as u64);
                continue;
            }
            let mut text = vec![0; remote_meta.name_bytes + remote_meta.file_bytes];
            self.read(meta + TEXT_OFFSET as u64, &mut text)?;
            let number = self.sites.len() as u32 + 1;
            self.sites.push(remote_meta.site(number, &text));
            self.addresses.push(SiteAddresses { meta, instructions });
        }
        Ok(())
    }

    /// Reads the process's memory at address `at` into `to`.
    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), OtherProcessError> {
        self.memory.read_exact_at(to, at).map_err(|source| self.memory_error(source))
    }

    /// Returns the error of a failed access to the process's memory.
    fn memory_error(&self, source: io::Error) -> OtherProcessError {
        OtherProcessError::Memory { pid: self.pid, source }
    }
}

/// Returns the error of a failed access to the files of process `pid`.
fn attach_error(pid: u32, source: io::Error) -> OtherProcessError {
    match source.kind() {
        io::ErrorKind::NotFound => OtherProcessError::NoProcess { pid },
        _ => OtherProcessError::Forbidden { pid, source },
    }
}

/// Returns the section of sites in the file at `path`, which the process has mapped. Returns `None`
/// if there is none. The `path` is below the process's root folder.
fn find_site_section(folder: &str, path: &str) -> Option<elf::ElfSection> {
    let seen = format!("{folder}/root{path}");
    // `exe` still leads to a program whose file was replaced or removed.
    let program = std::fs::read_link(format!("{folder}/exe")).ok()?;
    let open = if program == Path::new(path) { format!("{folder}/exe") } else { seen };
    elf::find_section(&File::open(open).ok()?, SECTION).ok()?
}

/// Returns the addresses of a section in each image of its file, of which `mappings` are all. The
/// file may also be mapped as data, without code at the distance that the file gives.
fn section_addresses(mappings: &[&Mapping], section: &elf::ElfSection) -> Vec<u64> {
    let is_in_image = |it: &&&Mapping| {
        let code_base = it.base().wrapping_add(section.code_shift);
        let bytes = it.end - it.start;
        (it.offset..it.offset.saturating_add(bytes)).contains(&section.offset)
            && mappings.iter().any(|code| code.is_executable && code.base() == code_base)
    };
    let images = mappings.iter().filter(is_in_image);
    images.map(|it| it.base().wrapping_add(section.offset)).collect()
}

/// Parses a line of `/proc/PID/maps`; `None` if the line describes no mapped file.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let is_executable = fields.next()?.as_bytes().get(2) == Some(&b'x');
    let offset = fields.next()?;
    let path = fields.nth(2)?.trim_start();
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping {
        start: number(start)?,
        end: number(end)?,
        is_executable,
        offset: number(offset)?,
        path: path.to_owned(),
    };
    (path.starts_with('/') && mapping.start <= mapping.end).then_some(mapping)
}

/// Encodes the recording's configuration in the format that `config_request::parse_request` parses.
///
/// # Errors
/// If a number is out of range, or a path is not absolute, not UTF-8, or too long.
fn encode_request(config: &Config) -> Result<Vec<u8>, OtherProcessError> {
    config.check_ranges()?;
    let path_error = || OtherProcessError::Path { path: config.path().to_owned() };
    let path = path_line(config.path()).ok_or_else(path_error)?;
    let rings_path = config.rings_path.as_deref();
    let rings_error =
        || OtherProcessError::RingsPath { path: rings_path.unwrap_or(Path::new("")).to_owned() };
    let rings = rings_path.map_or(Some(""), path_line).ok_or_else(rings_error)?;
    let (policy, ring_bytes, wait_ms) = (config.policy(), config.ring_bytes, config.wait_ms());
    let threads_max = config.threads_max;
    // Makes each request different: the process does not try one again with which it has failed.
    let now_ns = clock::monotonic_ns();
    let text = config_request::with_checksum(&format!(
        "{path}\n{policy}\n{ring_bytes}\n{wait_ms}\n{threads_max}\n{rings}\n{now_ns}\n"
    )) + "\0";
    if text.len() < CONTROL_BYTES {
        return Ok(text.into_bytes());
    }
    Err(if rings.len() > path.len() { rings_error() } else { path_error() })
}

/// Returns `path` as a line of a request; `None` if it is not absolute, not UTF-8, or has more than
/// one line.
fn path_line(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with('/') && !text.contains(['\n', '\0']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn maps_line_with_spaces_in_path_is_parsed() {
        let line = "7f1c2000-7f1c3000 r-xp 00001000 08:01 1234                     /a path/x y.so";
        let expected = Mapping {
            start: 0x7f1c_2000,
            end: 0x7f1c_3000,
            is_executable: true,
            offset: 0x1000,
            path: "/a path/x y.so".into(),
        };
        assert_eq!(parse_mapping(line), Some(expected));
        for other in
            ["7ffd0-7ffd1 rw-p 00000000 00:00 0   [stack]", "10-20 rw-p 0 00:00 0", "", "x"]
        {
            assert_eq!(parse_mapping(other), None, "{other}");
        }
    }

    #[test]
    fn section_is_found_in_the_image_and_not_in_data() {
        let mapping = |line: &str| parse_mapping(line).unwrap();
        // The file as data, below and above the image, and the image, of which two mappings have
        // the section's page.
        let mappings = [
            mapping("10000-18000 r--p 00000000 08:01 1 /lib.so"),
            mapping("20000-22000 r--p 00000000 08:01 1 /lib.so"),
            mapping("22000-25000 r-xp 00002000 08:01 1 /lib.so"),
            mapping("26000-28000 rw-p 00004000 08:01 1 /lib.so"),
            mapping("30000-38000 r--p 00000000 08:01 1 /lib.so"),
        ];
        let mappings: Vec<&Mapping> = mappings.iter().collect();
        // At address 0x6800 in the file, and the code at its offset.
        let code_shift = 0u64.wrapping_sub(0x2000);
        let section = elf::ElfSection { offset: 0x4800, bytes: 8, code_shift };
        assert_eq!(section_addresses(&mappings, &section), [0x26800]);
    }

    #[test]
    #[cfg(not(miri))] // some thousand texts are parsed, which takes minutes under Miri
    fn request_read_during_overwrite_is_old_or_new_or_none() {
        let (one, other) = (Config::last("/tmp/a.trace"), Config::stream("/tmp/other/b.trace"));
        let texts = [&one, &other].map(|config| encode_request(config).unwrap());
        let read = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            config_request::parse_request(bytes[..end].to_vec())
        };
        for (before, after) in [(0, 1), (1, 0)] {
            let whole = [read(&texts[0]).expect("whole"), read(&texts[1]).expect("whole")];
            assert_eq!(whole, [one.clone(), other.clone()]);
            for first in 0..texts[after].len() {
                for last in first..=texts[after].len() {
                    let mut bytes = texts[before].clone();
                    bytes.resize(bytes.len().max(texts[after].len()), 0);
                    bytes[first..last].copy_from_slice(&texts[after][first..last]);
                    let plan = read(&bytes);
                    assert!(plan.is_none_or(|plan| whole.contains(&plan)), "{first} {last}");
                }
            }
        }
    }

    #[test]
    fn request_carries_every_setting() {
        let config = Config::stream("/tmp/a.trace")
            .ring_bytes(1 << 16)
            .threads_max(3)
            .rings_path("/tmp/a b.rings")
            .wait_max(Duration::from_millis(20));
        for config in [config, Config::last("/tmp/a.trace")] {
            let mut text = encode_request(&config).unwrap();
            assert_eq!(text.pop(), Some(0));
            assert_eq!(config_request::parse_request(text).unwrap(), config);
        }
    }

    #[test]
    fn request_without_the_newer_lines_has_their_defaults() {
        let text = config_request::with_checksum("/tmp/a.trace\nstream\n65536\n20\n");
        let expected =
            Config::stream("/tmp/a.trace").ring_bytes(1 << 16).wait_max(Duration::from_millis(20));
        assert_eq!(config_request::parse_request(text.into_bytes()), Some(expected));
    }

    #[test]
    fn request_with_invalid_setting_is_refused() {
        let refusal = |config| encode_request(&config).unwrap_err().to_string();
        let error = refusal(Config::last("/tmp/x").ring_bytes(100));
        assert_eq!(error, "ring_bytes=100: must lie in 8192..=4294967296");
        let error = refusal(Config::last("/tmp/x").threads_max(0));
        assert_eq!(error, "threads_max=0: must lie in 1..=65536");
        let error = refusal(Config::stream("/tmp/x").wait_max(Duration::from_secs(3601)));
        assert_eq!(error, "wait_max_ms=3601000: must lie in 0..=3600000");
        for rings in ["relative".to_owned(), "/a\nb".to_owned(), format!("/{}", "a".repeat(1_000))]
        {
            let error = refusal(Config::stream("/tmp/x").rings_path(&rings));
            assert!(error.starts_with(&format!("rings_path {rings}: ")), "{error}");
        }
    }

    #[test]
    fn request_with_invalid_path_is_refused() {
        assert!(
            encode_request(&Config::last("/a")).unwrap().starts_with(b"/a\nlast\n1048576\n0\n")
        );
        assert!(encode_request(&Config::last("a")).is_err());
        assert!(encode_request(&Config::last("/a\nb")).is_err());
        assert!(encode_request(&Config::last(format!("/{}", "a".repeat(2_000)))).is_err());
    }
}
