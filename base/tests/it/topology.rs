//! Topologies of generated trees and of this machine.
#![cfg(not(miri))] // files and safe code only: takes minutes under Miri, which would find nothing

use handover_base::topology::{Placement, Topology, TopologyError, allowed_cpus};
use std::fs;
use std::path::Path;

/// A folder that stands for `/sys`.
struct Sysfs(tempfile::TempDir);

impl Sysfs {
    fn new() -> Self {
        Sysfs(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: impl ToString) {
        let path = self.root().join("devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.to_string() + "\n").unwrap();
    }

    fn cpu(&self, id: u32, package: i32, core: u32, siblings: &str) {
        self.write(&format!("cpu/cpu{id}/topology/physical_package_id"), package);
        self.write(&format!("cpu/cpu{id}/topology/core_id"), core);
        self.write(&format!("cpu/cpu{id}/topology/thread_siblings_list"), siblings);
    }

    fn cache(&self, cpu: u32, index: u32, level: u32, kind: &str, size: &str, shared: &str) {
        let folder = format!("cpu/cpu{cpu}/cache/index{index}");
        self.write(&format!("{folder}/level"), level);
        self.write(&format!("{folder}/type"), kind);
        self.write(&format!("{folder}/size"), size);
        self.write(&format!("{folder}/coherency_line_size"), 64);
        self.write(&format!("{folder}/shared_cpu_list"), shared);
    }

    fn read(&self) -> Topology {
        Topology::from_sysfs(self.root()).unwrap()
    }
}

/// Makes two packages, each a node, of two cores of two threads, numbered like Linux does: the
/// second threads after all first ones. Package 0 has CPUs 0, 1, 4, 5.
fn two_packages() -> Sysfs {
    let sysfs = Sysfs::new();
    sysfs.write("cpu/online", "0-7");
    for id in 0..8 {
        let (core, package) = (id % 2, id / 2 % 2);
        let siblings = format!("{},{}", id % 4, id % 4 + 4);
        sysfs.cpu(id, package as i32, core, &siblings);
        sysfs.cache(id, 0, 1, "Data", "32K", &siblings);
        sysfs.cache(id, 1, 1, "Instruction", "32K", &siblings);
        sysfs.cache(id, 2, 2, "Unified", "1M", &siblings);
        sysfs.cache(
            id,
            3,
            3,
            "Unified",
            "16384K",
            if package == 0 { "0-1,4-5" } else { "2-3,6-7" },
        );
    }
    sysfs.write("node/node0/cpulist", "0-1,4-5");
    sysfs.write("node/node1/cpulist", "2-3,6-7");
    sysfs
}

const ALL: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

#[test]
fn packages_cores_siblings_caches_and_nodes_are_read() {
    let topology = two_packages().read();
    assert_eq!(topology.cpus.len(), 8);
    assert_eq!((topology.packages_count, topology.nodes_count, topology.cores_count), (2, 2, 4));
    assert_eq!(topology.assumed, [""; 0]);
    let cpu = topology.cpu(7).unwrap();
    assert_eq!((cpu.package, cpu.core, cpu.node, cpu.l3), (1, 1, 1, 2));
    assert_eq!(cpu.siblings, [3, 7]);
    assert_eq!(topology.cpu(8), None);

    let caches: Vec<_> = topology
        .caches
        .iter()
        .map(|cache| (cache.level, cache.kind.as_str(), cache.size_bytes, cache.line_bytes))
        .collect();
    let expected = [
        (1, "Data", 32 << 10, 64),
        (1, "Instruction", 32 << 10, 64),
        (2, "Unified", 1 << 20, 64),
        (3, "Unified", 16 << 20, 64),
    ];
    assert_eq!(caches, expected);
    assert_eq!(topology.caches[3].shared_by, [0, 1, 4, 5]);
}

/// Calls `Topology::place`; returns the CPUs, and the notes in one text.
fn place(
    topology: &Topology,
    placement: Placement,
    allowed: &[u32],
    participants: usize,
) -> (Vec<u32>, String) {
    let placed = topology.choose_cpus(placement, allowed, participants);
    (placed.cpus, placed.notes.join("; "))
}

#[test]
fn near_places_participants_on_separate_cores_of_one_cache() {
    let topology = two_packages().read();
    let near =
        |allowed: &[u32], participants| place(&topology, Placement::Near, allowed, participants);
    assert_eq!(near(&ALL, 2), (vec![0, 1], String::new()));
    assert_eq!(near(&[], 2), (vec![0, 1], String::new()));
    // The only two cores that share a cache, though CPU 1 comes first.
    assert_eq!(near(&[1, 2, 3], 2), (vec![2, 3], String::new()));
    // Other cores rather than siblings, with a note.
    let (cpus, notes) = near(&ALL, 4);
    assert_eq!(cpus, [0, 1, 2, 3]);
    assert!(notes.contains("too few cores share the last-level cache: another package"), "{notes}");
    let (cpus, notes) = near(&[0, 1, 4, 5], 3);
    assert_eq!(cpus, [0, 1, 4]);
    assert!(notes.contains("share a core"), "{notes}");
}

#[test]
fn far_alternates_between_two_packages() {
    let topology = two_packages().read();
    let far =
        |allowed: &[u32], participants| place(&topology, Placement::Far, allowed, participants);
    assert_eq!(far(&ALL, 2), (vec![0, 2], String::new()));
    assert_eq!(far(&ALL, 4), (vec![0, 2, 1, 3], String::new()));
    assert_eq!(far(&ALL, 8), (vec![0, 2, 1, 3, 4, 6, 5, 7], String::new()));
    let (cpus, notes) = far(&[0, 1, 4], 2);
    assert_eq!(cpus, [0, 1]);
    assert!(
        notes.contains("no CPU in another package or node is allowed: another core"),
        "{notes}"
    );
    let (cpus, notes) = far(&[0, 1, 2, 5], 4);
    assert_eq!(cpus, [0, 2, 1, 5]);
    assert!(notes.contains("too few distant CPUs"), "{notes}");
}

#[test]
fn far_in_one_package_uses_another_cache() {
    let sysfs = Sysfs::new();
    sysfs.write("cpu/online", "0-3");
    for id in 0..4 {
        sysfs.cpu(id, 0, id, &id.to_string());
        sysfs.cache(id, 0, 3, "Unified", "32768K", if id < 2 { "0-1" } else { "2-3" });
    }
    sysfs.write("node/node0/cpulist", "0-3");
    let (cpus, notes) = place(&sysfs.read(), Placement::Far, &[], 2);
    assert_eq!(cpus, [0, 2]);
    assert!(notes.contains("another last-level cache"), "{notes}");
}

#[test]
fn smt_uses_siblings_or_near_with_a_note() {
    let topology = two_packages().read();
    let smt =
        |allowed: &[u32], participants| place(&topology, Placement::Smt, allowed, participants);
    assert_eq!(smt(&ALL, 2), (vec![0, 4], String::new()));
    assert_eq!(smt(&[0, 1, 2, 3, 7], 2), (vec![3, 7], String::new()));
    let (cpus, notes) = smt(&ALL, 3);
    assert_eq!(cpus, [0, 4, 1]);
    assert!(notes.contains("other cores"), "{notes}");
    let (cpus, notes) = smt(&[0, 1, 2, 3], 2);
    assert_eq!(cpus, [0, 1]);
    assert!(notes.contains("no SMT sibling"), "{notes}");
}

#[test]
fn same_uses_an_allowed_cpu() {
    let topology = two_packages().read();
    assert_eq!(place(&topology, Placement::Same, &[5, 3], 3), (vec![3, 3, 3], String::new()));
}

#[test]
fn excess_participants_share_cpus_with_a_note() {
    let topology = two_packages().read();
    let (cpus, notes) = place(&topology, Placement::Near, &[0, 1], 3);
    assert_eq!(cpus, [0, 1, 0]);
    assert!(notes.contains("3 participants share 2 CPUs"), "{notes}");
    for placement in [Placement::Near, Placement::Far, Placement::Smt] {
        let (cpus, notes) = place(&topology, placement, &[6], 2);
        assert_eq!(cpus, [6, 6], "{placement}");
        assert!(notes.contains("2 participants share CPU 6"), "{placement}: {notes}");
    }
}

#[test]
fn allowed_cpus_missing_from_the_topology_are_used() {
    let topology = two_packages().read();
    assert_eq!(place(&topology, Placement::Near, &[40, 41], 2), (vec![40, 41], String::new()));
    assert_eq!(place(&topology, Placement::Same, &[40], 1), (vec![40], String::new()));
    assert!(topology.choose_cpus(Placement::Near, &ALL, 0).cpus.is_empty());
}

#[test]
fn offline_cpu_is_no_sibling() {
    let sysfs = two_packages();
    sysfs.write("cpu/online", "0-3,5-7");
    let topology = sysfs.read();
    assert_eq!(topology.cpus.len(), 7);
    assert_eq!(topology.cpu(0).unwrap().siblings, [0]);
    assert_eq!(topology.cpu(4), None);
    assert_eq!(topology.caches[3].shared_by, [0, 1, 5]);
}

#[test]
fn cpu_list_alone_gives_a_flat_topology() {
    let sysfs = Sysfs::new();
    sysfs.write("cpu/online", "2-3");
    let topology = sysfs.read();
    assert_eq!((topology.packages_count, topology.nodes_count, topology.cores_count), (1, 1, 2));
    assert_eq!(topology.cpus[1].siblings, [3]);
    assert_eq!(topology.cpus[1].l3, 2);
    assert!(topology.caches.is_empty());
    let assumed = topology.assumed.join("\n");
    for word in ["SMT", "packages", "NUMA", "cache"] {
        assert!(assumed.contains(word), "{word} is not among: {assumed}");
    }
    assert_eq!(place(&topology, Placement::Near, &[], 2), (vec![2, 3], String::new()));
}

#[test]
fn missing_cpu_list_falls_back_to_the_folders() {
    let sysfs = Sysfs::new();
    sysfs.write("cpu/cpu10/uevent", "");
    sysfs.write("cpu/cpu9/uevent", "");
    sysfs.write("cpu/cpufreq/boost", "1");
    let topology = sysfs.read();
    let ids: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
    assert_eq!(ids, [9, 10]);
    assert!(topology.assumed.join("\n").contains("not listed"), "{:?}", topology.assumed);
}

#[test]
fn package_minus_one_means_unknown() {
    let sysfs = Sysfs::new();
    sysfs.write("cpu/online", "0");
    sysfs.cpu(0, -1, 0, "0");
    let topology = sysfs.read();
    assert_eq!(topology.cpus[0].package, 0);
    assert!(topology.assumed.join("\n").contains("packages"), "{:?}", topology.assumed);
}

#[test]
fn missing_cpus_and_malformed_list_are_errors_naming_the_file() {
    let sysfs = Sysfs::new();
    let error = Topology::from_sysfs(sysfs.root()).unwrap_err();
    assert!(matches!(error, TopologyError::NoCpus { .. }), "{error}");
    assert!(error.to_string().contains("devices/system/cpu"), "{error}");
    for rubbish in ["0-", "3-1", "0,,1", "a", "-1", "99999999999", "0-4294967295"] {
        sysfs.write("cpu/online", rubbish);
        let error = Topology::from_sysfs(sysfs.root()).unwrap_err();
        assert!(matches!(error, TopologyError::List { .. }), "{error}");
        assert!(error.to_string().contains("cpu/online"), "{error}");
        assert!(error.to_string().contains(rubbish), "{error}");
    }
}

#[test]
fn topology_of_this_machine_contains_the_allowed_cpus() {
    let topology = Topology::read().unwrap();
    for cpu in allowed_cpus() {
        assert!(topology.cpu(cpu).is_some(), "CPU {cpu} is allowed but not described");
    }
    for placement in Placement::ALL {
        let placed = topology.choose_cpus(placement, &allowed_cpus(), 3);
        assert_eq!(placed.cpus.len(), 3, "{placement}");
        assert!(
            placed.cpus.iter().all(|cpu| allowed_cpus().contains(cpu)),
            "{placement}: {placed:?}"
        );
    }
}

#[test]
fn placement_parses_from_its_display_and_errors_list_the_names() {
    for placement in Placement::ALL {
        assert_eq!(placement.to_string().parse(), Ok(placement));
    }
    let error = "nearby".parse::<Placement>().unwrap_err().to_string();
    assert_eq!(error, r#""nearby" is not a placement: write near, far, smt or same"#);
}
