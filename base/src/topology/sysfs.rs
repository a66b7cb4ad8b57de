//! Reader of `/sys/devices/system/cpu` and `node`.

use super::list::parse_cpu_list;
use super::{Cache, Cpu, Topology, TopologyError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Returns a topology of one package, in which each CPU is a separate core. The reason is `why`.
pub(super) fn flat_topology(cpus: &[u32], why: &str) -> Topology {
    let lowest = cpus.first().copied().unwrap_or(0);
    let cpu = |&id: &u32| Cpu { id, package: 0, core: id, node: 0, l3: lowest, siblings: vec![id] };
    Topology {
        cpus: cpus.iter().map(cpu).collect(),
        caches: Vec::new(),
        nodes_count: 1,
        packages_count: 1,
        cores_count: cpus.len() as u32,
        assumed: vec![format!(
            "{why}: assumed one package of {cores_count} cores",
            cores_count = cpus.len()
        )],
    }
}

/// Assumptions made because information is missing from sysfs.
#[derive(Default)]
struct Assumptions(BTreeSet<&'static str>);

impl Assumptions {
    /// Returns `found`, or an assumed value if it is `None`. The assumed value is `default()`, and
    /// `note` is recorded as the assumption.
    fn value_or_assumed<T>(
        &mut self,
        found: Option<T>,
        note: &'static str,
        default: impl FnOnce() -> T,
    ) -> T {
        found.unwrap_or_else(|| {
            self.0.insert(note);
            default()
        })
    }
}

pub(super) fn read_topology(root: &Path) -> Result<Topology, TopologyError> {
    let folder = root.join("devices/system/cpu");
    let mut assumed = Assumptions::default();
    let online = online_cpus(&folder, &mut assumed)?;
    let nodes = nodes_by_cpu(&root.join("devices/system/node"), &online)?;
    if nodes.is_empty() {
        assumed.0.insert("NUMA nodes are not described: one assumed");
    }

    let mut cpus = Vec::with_capacity(online.len());
    let mut without_cache = Vec::new();
    for &id in &online {
        let cpu = folder.join(format!("cpu{id}"));
        let topology = cpu.join("topology");
        let siblings = match read_online_list(&topology.join("core_cpus_list"), &online)? {
            Some(siblings) => Some(siblings),
            // Linux before 5.3 has only this name.
            None => read_online_list(&topology.join("thread_siblings_list"), &online)?,
        };
        let siblings = siblings.filter(|siblings| siblings.contains(&id));
        let siblings = assumed.value_or_assumed(
            siblings,
            "SMT siblings are not described: none assumed",
            || vec![id],
        );
        // The file holds -1 if the firmware does not report the package.
        let package = read_number::<i64>(&topology.join("physical_package_id"))
            .and_then(|package| u32::try_from(package).ok());
        let package =
            assumed.value_or_assumed(package, "packages are not described: one assumed", || 0);
        let core = read_number(&topology.join("core_id")).unwrap_or(siblings[0]);
        let l3 = last_level_cache_id(&cpu, &online)?;
        if l3.is_none() {
            without_cache.push(cpus.len());
        }
        let node = nodes.get(&id).copied().unwrap_or(0);
        cpus.push(Cpu { id, package, core, node, l3: l3.unwrap_or(id), siblings });
    }
    for index in without_cache {
        assumed.0.insert("caches are not described: one last-level cache per package assumed");
        let package = cpus[index].package;
        if let Some(lowest) = cpus.iter().find(|cpu| cpu.package == package).map(|cpu| cpu.id) {
            cpus[index].l3 = lowest;
        }
    }

    let first = folder.join(format!("cpu{}", online[0]));
    let distinct = |of: fn(&Cpu) -> u32| cpus.iter().map(of).collect::<BTreeSet<_>>().len() as u32;
    Ok(Topology {
        caches: read_caches(&first, &online)?,
        nodes_count: distinct(|cpu| cpu.node),
        packages_count: distinct(|cpu| cpu.package),
        cores_count: distinct(|cpu| cpu.siblings[0]),
        cpus,
        assumed: assumed.0.into_iter().map(str::to_owned).collect(),
    })
}

/// Returns the numbers of the online CPUs, sorted, at least one.
fn online_cpus(folder: &Path, assumed: &mut Assumptions) -> Result<Vec<u32>, TopologyError> {
    let online = read_cpu_list(&folder.join("online"))?.filter(|cpus| !cpus.is_empty());
    let online = assumed.value_or_assumed(
        online,
        "the online CPUs are not listed: all described CPUs assumed online",
        || numbers_with_prefix(folder, "cpu"),
    );
    if online.is_empty() {
        return Err(TopologyError::NoCpus { path: folder.to_owned() });
    }
    Ok(online)
}

/// Returns the NUMA node number of each CPU, by CPU number.
fn nodes_by_cpu(folder: &Path, online: &[u32]) -> Result<BTreeMap<u32, u32>, TopologyError> {
    let mut nodes = BTreeMap::new();
    for node in numbers_with_prefix(folder, "node") {
        let path = folder.join(format!("node{node}/cpulist"));
        for cpu in read_online_list(&path, online)?.unwrap_or_default() {
            nodes.insert(cpu, node);
        }
    }
    Ok(nodes)
}

/// Returns the lowest number of the CPUs that share the last-level cache of `cpu`. Returns `None`
/// if it is not known.
fn last_level_cache_id(cpu: &Path, online: &[u32]) -> Result<Option<u32>, TopologyError> {
    let caches = read_caches(cpu, online)?;
    let data = caches.iter().filter(|cache| cache.kind != "Instruction");
    let last = data.max_by_key(|cache| cache.level);
    Ok(last.and_then(|cache| cache.shared_by.first().copied()))
}

/// Reads the caches of the CPU with the sysfs folder `cpu`. Each cache has the CPUs of `online`
/// that share it.
fn read_caches(cpu: &Path, online: &[u32]) -> Result<Vec<Cache>, TopologyError> {
    let folder = cpu.join("cache");
    let mut caches = Vec::new();
    for index in numbers_with_prefix(&folder, "index") {
        let cache = folder.join(format!("index{index}"));
        let Some(level) = read_number(&cache.join("level")) else { continue };
        caches.push(Cache {
            level,
            kind: read_text(&cache.join("type")).unwrap_or_else(|| "Unified".to_owned()),
            size_bytes: read_text(&cache.join("size"))
                .and_then(|size| size_bytes(&size))
                .unwrap_or(0),
            line_bytes: read_number(&cache.join("coherency_line_size")).unwrap_or(0),
            shared_by: read_online_list(&cache.join("shared_cpu_list"), online)?
                .unwrap_or_default(),
        });
    }
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    Ok(caches)
}

/// Parses a size in sysfs notation (`32K` for 32 KiB) into bytes.
fn size_bytes(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

fn read_text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    read_text(path)?.parse().ok()
}

/// Reads a list of CPUs; `None` if there is no such file.
fn read_cpu_list(path: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let Some(text) = read_text(path) else { return Ok(None) };
    let error = |error| TopologyError::List { path: path.to_owned(), error };
    parse_cpu_list(&text).map(Some).map_err(error)
}

/// Reads a list of CPUs and removes those that are offline; `None` if no CPU remains.
fn read_online_list(path: &Path, online: &[u32]) -> Result<Option<Vec<u32>>, TopologyError> {
    let mut cpus = read_cpu_list(path)?.unwrap_or_default();
    cpus.retain(|cpu| online.binary_search(cpu).is_ok());
    Ok((!cpus.is_empty()).then_some(cpus))
}

/// Returns the numbers N of the folder's entries called `<prefix>N`, sorted.
fn numbers_with_prefix(folder: &Path, prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}
