//! Limits of this process on the machine: affinity, cpuset, quota.

use super::list::parse_cpu_list;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the sorted numbers of the CPUs that this process may run on. They are the affinity mask
/// at the first call, intersected with the cgroup's cpuset. The result is never empty.
///
/// The kernel applies the cpuset to the mask already, so that the two differ only if a mask was
/// read before the cpuset shrank. The mask is the union of the main thread's and the caller's, so
/// that the result does not depend on which pinned thread calls first.
///
/// # Cost
/// The first call reads some small files; later ones copy the list.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    /// CPUs that the first call has found.
    static ALLOWED: OnceLock<Vec<u32>> = OnceLock::new();
    let read = || {
        let mut cpus = crate::affinity::main_thread_cpus();
        cpus.extend(crate::affinity::thread_cpus());
        cpus.sort_unstable();
        cpus.dedup();
        let Some(cpuset) = Limits::read(Path::new("/")).cpuset else { return cpus };
        let both: Vec<u32> = cpus.iter().copied().filter(|cpu| cpuset.contains(cpu)).collect();
        if both.is_empty() { cpus } else { both }
    };
    ALLOWED.get_or_init(read).clone()
}

/// Returns the CPU quota of this process, in CPUs. A quota of 1.5 is 150 ms of CPU time in each 100
/// ms. The quota is the minimum over the process's cgroup and its visible ancestors; `None` without
/// a quota.
///
/// A process that has used up its quota is stopped until the next period, which measurements show
/// as pauses of tens of ms.
///
/// # Cost
/// Reads some small files at each call.
#[must_use]
pub fn quota_cpus() -> Option<f64> {
    Limits::read(Path::new("/")).quota_cpus
}

/// CPU limits of this process from its cgroups (v1 or v2).
#[derive(Debug, Default, PartialEq)]
struct Limits {
    /// CPUs of the cpuset; `None` without a cpuset.
    cpuset: Option<Vec<u32>>,
    /// CPU quota in CPUs; `None` without a quota.
    quota_cpus: Option<f64>,
}

impl Limits {
    /// Reads and returns the limits; `root` stands for `/`. The files are `proc/self/cgroup`,
    /// `proc/self/mountinfo` and the cgroup files that these name.
    fn read(root: &Path) -> Self {
        let mut limits = Limits::default();
        if cfg!(miri) {
            return limits; // Miri's isolation opens no files.
        }
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (cgroups, mounts) = (text("proc/self/cgroup"), text("proc/self/mountinfo"));
        for mount in mounts.lines().filter_map(Mount::parse) {
            for path in cgroups.lines().filter_map(|line| mount.cgroup_path(line)) {
                let folders = mount.ancestry(root, path);
                limits.cpuset = limits.cpuset.or_else(|| cpuset(&folders));
                limits.quota_cpus = folders
                    .iter()
                    .filter_map(|folder| quota_of_cgroup(folder))
                    .chain(limits.quota_cpus)
                    .min_by(f64::total_cmp);
            }
        }
        limits
    }
}

/// Mount of a cgroup hierarchy.
struct Mount<'a> {
    /// Path of the cgroup at the mount point.
    root: &'a str,
    /// Path of the mount point.
    point: &'a str,
    /// Mount options of a v1 hierarchy, among them its controllers; `None` for v2.
    controllers: Option<&'a str>,
}

impl<'a> Mount<'a> {
    /// Parses a line of mountinfo; returns `None` if it is not a cgroup mount. A line is `36 35
    /// 98:0 ROOT POINT options - TYPE source SUPER_OPTIONS`.
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let controllers = match after.next()? {
            "cgroup" => Some(after.nth(1)?),
            "cgroup2" => None,
            _ => return None,
        };
        Some(Mount { root, point, controllers })
    }

    /// Returns the path in a line of `/proc/self/cgroup`: `4:cpu,cpuacct:/path`, or `0::/path` in
    /// v2. Returns `None` unless the line belongs to this mount and, in v1, to a CPU controller.
    fn cgroup_path<'b>(&self, line: &'b str) -> Option<&'b str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let ours = match self.controllers {
            None => names.is_empty(),
            Some(options) => names.split(',').any(|name| {
                matches!(name, "cpu" | "cpuset") && options.split(',').any(|other| other == name)
            }),
        };
        ours.then_some(path)
    }

    /// Returns the folders of the cgroup at `path` and of its ancestors, up to the mount point.
    fn ancestry(&self, root: &Path, path: &str) -> Vec<PathBuf> {
        let point = root.join(self.point.trim_start_matches('/'));
        // A container may see its own cgroup as the mount's root, while the path is not below it.
        let below = Path::new(path).strip_prefix(self.root).unwrap_or(Path::new(""));
        let climbs = below.components().any(|part| part.as_os_str() == "..");
        let below = if climbs { Path::new("") } else { below };
        below.ancestors().map(|folder| point.join(folder)).collect()
    }
}

/// Returns the CPUs in the cpuset of the innermost cgroup that has one. Returns `None` if there is
/// none.
fn cpuset(folders: &[PathBuf]) -> Option<Vec<u32>> {
    /// Names of the files with the CPUs of a cpuset, in order of preference.
    const CPUSET_FILES: [&str; 3] =
        ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
    folders
        .iter()
        .flat_map(|folder| CPUSET_FILES.map(|file| folder.join(file)))
        .filter_map(|path| parse_cpu_list(&fs::read_to_string(path).ok()?).ok())
        .find(|cpus| !cpus.is_empty())
}

/// Returns the CPU quota of one cgroup in CPUs; `None` if it has no quota.
fn quota_of_cgroup(folder: &Path) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let file = |name| fs::read_to_string(folder.join(name)).ok();
    let (quota_us, period_us) = match file("cpu.max") {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (number(quota)?, number(period)?) // "max" is not a number and means no quota
        }
        None => (number(&file("cpu.cfs_quota_us")?)?, number(&file("cpu.cfs_period_us")?)?),
    };
    // v1 has -1 for no quota.
    (quota_us > 0.0 && period_us > 0.0).then_some(quota_us / period_us)
}

/// Returns the hypervisor's name from its cpuid signature: `KVM` for `KVMKVMKVM`. Returns `None`
/// without a hypervisor, and on processors without cpuid.
#[must_use]
pub fn hypervisor_name() -> Option<String> {
    crate::cpu::hypervisor_signature().map(|signature| hypervisor_from_signature(&signature))
}

fn hypervisor_from_signature(signature: &[u8]) -> String {
    let printable: String =
        signature.iter().filter(|it| it.is_ascii_graphic()).map(|it| char::from(*it)).collect();
    match printable.as_str() {
        "KVMKVMKVM" => "KVM".to_owned(),
        "VMwareVMware" => "VMware".to_owned(),
        "MicrosoftHv" => "Hyper-V".to_owned(),
        "XenVMMXenVMM" => "Xen".to_owned(),
        "TCGTCGTCGTCG" => "QEMU".to_owned(),
        "" => "present, unnamed".to_owned(),
        _ => printable,
    }
}

#[cfg(all(test, not(miri)))] // Miri supports no such files, and the code is safe
mod tests {
    use super::*;

    /// Makes a tree of files in a temporary folder that stands for `/`.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const V2_MOUNT: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    #[test]
    fn hypervisor_signature_becomes_its_usual_name() {
        assert_eq!(hypervisor_from_signature(b"KVMKVMKVM\0\0\0"), "KVM");
        assert_eq!(hypervisor_from_signature(b"bhyve bhyve "), "bhyvebhyve");
        assert_eq!(hypervisor_from_signature(&[0; 12]), "present, unnamed");
    }

    #[test]
    fn v2_limits_are_the_smallest_quota_and_innermost_cpuset() {
        let root = tree(&[
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpuset.cpus.effective", "0-7\n"),
            ("sys/fs/cgroup/outer/cpuset.cpus.effective", "0-3\n"),
            ("sys/fs/cgroup/outer/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n"),
        ]);
        let limits = Limits::read(root.path());
        assert_eq!(limits.quota_cpus, Some(1.5));
        assert_eq!(limits.cpuset, Some(vec![0, 1, 2, 3]));
    }

    #[test]
    fn v1_limits_are_read_from_two_hierarchies() {
        let mounts = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      33 24 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let root = tree(&[
            ("proc/self/cgroup", "5:memory:/m\n4:cpuset:/set\n3:cpu,cpuacct:/job\n1:name=x:/\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpuset/set/cpuset.cpus", "1,3\n"),
        ]);
        let limits = Limits::read(root.path());
        assert_eq!(limits, Limits { cpuset: Some(vec![1, 3]), quota_cpus: Some(0.5) });
    }

    #[test]
    fn container_with_only_its_own_cgroup_finds_its_limits() {
        // docker with cgroup v1: the path is the host's, the mount shows the container's cgroup.
        let mounts = "31 24 0:27 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let root = tree(&[
            ("proc/self/cgroup", "3:cpu:/docker/ab\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(Limits::read(root.path()).quota_cpus, Some(2.0));
        // A cgroup outside of the namespace is shown as /../..
        let root = tree(&[
            ("proc/self/cgroup", "0::/../../other\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "100000 100000\n"),
        ]);
        assert_eq!(Limits::read(root.path()).quota_cpus, Some(1.0));
    }

    #[test]
    fn missing_and_malformed_files_mean_no_limits() {
        let cases: [&[(&str, &str)]; 4] = [
            &[],
            &[("proc/self/cgroup", "0::/\n")],
            &[
                ("proc/self/cgroup", "rubbish"),
                ("proc/self/mountinfo", "a - b\n - \n1 2 3 - cgroup\n"),
            ],
            &[
                ("proc/self/cgroup", "0::/\n"),
                ("proc/self/mountinfo", V2_MOUNT),
                ("sys/fs/cgroup/cpu.max", "0 0\n"),
                ("sys/fs/cgroup/cpuset.cpus.effective", "x\n"),
            ],
        ];
        for files in cases {
            assert_eq!(Limits::read(tree(files).path()), Limits::default(), "{files:?}");
        }
    }

    #[test]
    fn allowed_cpus_are_not_empty_and_contain_the_callers_cpu() {
        let allowed = allowed_cpus();
        assert!(allowed.is_sorted());
        assert!(crate::affinity::thread_cpus().iter().all(|cpu| allowed.contains(cpu)));
    }
}
