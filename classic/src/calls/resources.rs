//! Resource usage of a process, and its format in the output of `/usr/bin/time`.

use handover_base::usage::Usage;

/// Resource usage of a process, including children that it has waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceUsage {
    /// CPU time, memory, page faults and context switches.
    pub usage: Usage,
    /// Number of blocks of 512 bytes read from file systems on disks.
    pub blocks_in: u64,
    /// Number of blocks of 512 bytes written to file systems on disks.
    pub blocks_out: u64,
    /// Number of times that the process was swapped out. Always 0 on Linux.
    pub swaps: u64,
}

impl ResourceUsage {
    /// Formats the usage as the two lines of `/usr/bin/time`. `wall_ns` is the wall time of the
    /// process.
    pub fn time_lines(&self, wall_ns: u64) -> [String; 2] {
        let hundredths = |ns: u64| {
            let all = ns / 10_000_000;
            (all / 100, all % 100)
        };
        let (user, user_part) = hundredths(self.usage.user_ns);
        let (system, system_part) = hundredths(self.usage.system_ns);
        let (wall, wall_part) = hundredths(wall_ns);
        let elapsed = match wall / 3600 {
            0 => format!("{}:{:02}.{wall_part:02}", wall / 60, wall % 60),
            hours => format!("{hours}:{:02}:{:02}", wall / 60 % 60, wall % 60),
        };
        let percent = self.usage.cpu_ns() * 100 / wall_ns.max(1);
        let resident = self.usage.rss_max_bytes / 1024;
        let Usage { faults_major, faults_minor, .. } = self.usage;
        let ResourceUsage { blocks_in, blocks_out, swaps, .. } = self;
        [
            format!(
                "{user}.{user_part:02}user {system}.{system_part:02}system {elapsed}elapsed \
                 {percent}%CPU (0avgtext+0avgdata {resident}maxresident)k"
            ),
            format!(
                "{blocks_in}inputs+{blocks_out}outputs \
                 ({faults_major}major+{faults_minor}minor)pagefaults {swaps}swaps"
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_lines_match_the_documented_runs() {
        let usage = Usage {
            user_ns: 8_210_000_000,
            system_ns: 3_709_999_999,
            rss_max_bytes: 3_770_624 * 1024,
            faults_minor: 3366,
            ..Usage::default()
        };
        let resources = ResourceUsage { usage, blocks_out: 3_125_032, ..ResourceUsage::default() };
        assert_eq!(
            resources.time_lines(12_500_000_000),
            [
                "8.21user 3.70system 0:12.50elapsed 95%CPU (0avgtext+0avgdata 3770624maxresident)k",
                "0inputs+3125032outputs (0major+3366minor)pagefaults 0swaps",
            ]
        );
        let [first, _] = ResourceUsage::default().time_lines(3_725_000_000_000);
        assert!(first.contains(" 1:02:05elapsed 0%CPU "), "{first}");
    }
}
