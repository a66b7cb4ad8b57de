//! Choice of CPUs for the participants of a hand-over.

use super::{Cpu, Topology};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Placement of participants (threads or processes) on CPUs, relative to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Participants run on separate cores that share a last-level cache.
    Near,
    /// Participants run alternately in two packages. Without a second package, they run in two NUMA
    /// nodes; without a second node, near the two most distant CPUs.
    Far,
    /// Participants run on the hardware threads of one core.
    Smt,
    /// All participants run on one CPU.
    Same,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 4] =
        [Placement::Near, Placement::Far, Placement::Smt, Placement::Same];

    /// Returns the name of the placement: `near`, `far`, `smt` or `same`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Near => "near",
            Placement::Far => "far",
            Placement::Smt => "smt",
            Placement::Same => "same",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Error of parsing a [`Placement`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a placement: write near, far, smt or same")]
pub struct PlacementError {
    text: String,
}

impl FromStr for Placement {
    type Err = PlacementError;
    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let named = Placement::ALL.into_iter().find(|placement| placement.name() == text);
        named.ok_or_else(|| PlacementError { text: text.to_owned() })
    }
}

/// CPUs chosen for the participants, and deviations from the requested placement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacedCpus {
    /// CPU of each participant, in the order of the participants. A CPU is repeated if participants
    /// share it.
    pub cpus: Vec<u32>,
    /// Deviations from the requested placement, one per element.
    pub notes: Vec<String>,
}

/// Distance between two CPUs; closer CPUs compare as less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    SameCpu,
    SameCore,
    SameCache,
    SameNode,
    OtherNode,
    OtherPackage,
}

impl Distance {
    fn between(a: &Cpu, b: &Cpu) -> Self {
        if a.id == b.id {
            Distance::SameCpu
        } else if a.siblings.contains(&b.id) {
            Distance::SameCore
        } else if a.package != b.package {
            Distance::OtherPackage
        } else if a.node != b.node {
            Distance::OtherNode
        } else if a.l3 != b.l3 {
            Distance::SameNode
        } else {
            Distance::SameCache
        }
    }

    /// Describes a CPU at this distance, as part of a sentence: `another package`.
    fn describe_cpu(self) -> &'static str {
        match self {
            Distance::SameCpu => "the same CPU",
            Distance::SameCore => "a hardware thread of the same core",
            Distance::SameCache => "another core below the same last-level cache",
            Distance::SameNode => "another last-level cache of the same node",
            Distance::OtherNode => "another node of the same package",
            Distance::OtherPackage => "another package",
        }
    }
}

impl Topology {
    /// Chooses a CPU for each of `participants_count` participants from the CPUs in `allowed`.
    ///
    /// Deterministic: the same arguments give the same result. If the placement is not possible,
    /// the closest to it is chosen, with a note; if there are more participants than CPUs, some
    /// share one. An empty `allowed` means all CPUs; ids that the topology does not contain count
    /// as cores of their own in the first CPU's package.
    ///
    /// ```
    /// use handover_base::topology::{Placement, Topology, allowed_cpus};
    /// let placed = Topology::read()?.choose_cpus(Placement::Near, &allowed_cpus(), 2);
    /// assert_eq!(placed.cpus.len(), 2);
    /// # Ok::<(), handover_base::topology::TopologyError>(())
    /// ```
    #[must_use]
    pub fn choose_cpus(
        &self,
        placement: Placement,
        allowed: &[u32],
        participants_count: usize,
    ) -> PlacedCpus {
        let usable = UsableCpus(self.usable_cpus(allowed));
        if usable.0.is_empty() || participants_count == 0 {
            return PlacedCpus::default();
        }
        let mut notes = Vec::new();
        let order = match placement {
            Placement::Same => vec![usable.0[0].id],
            Placement::Near => usable.near(participants_count, &mut notes),
            Placement::Far => usable.far(participants_count, &mut notes),
            Placement::Smt => usable.smt(participants_count, &mut notes),
        };
        if placement != Placement::Same && participants_count > order.len() {
            let cpus = match order.len() {
                1 => format!("CPU {}", order[0]),
                count => format!("{count} CPUs"),
            };
            notes.push(format!("{participants_count} participants share {cpus}"));
        }
        PlacedCpus { cpus: order.into_iter().cycle().take(participants_count).collect(), notes }
    }

    /// Returns the CPUs that may be chosen, sorted and without repetition.
    fn usable_cpus(&self, allowed: &[u32]) -> Vec<Cpu> {
        if allowed.is_empty() {
            return self.cpus.clone();
        }
        let mut ids = allowed.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let unknown_cpu = |id| match self.cpus.first() {
            Some(first) => Cpu { id, core: id, siblings: vec![id], ..first.clone() },
            None => Cpu { id, package: 0, core: id, node: 0, l3: id, siblings: vec![id] },
        };
        ids.into_iter().map(|id| self.cpu(id).cloned().unwrap_or_else(|| unknown_cpu(id))).collect()
    }
}

/// CPUs that may be chosen: at least one, sorted by number.
struct UsableCpus(Vec<Cpu>);

impl UsableCpus {
    /// Returns all CPUs in the order in which participants near `base` get them. One hardware
    /// thread of each core comes first, by distance from `base`, then the remaining threads.
    fn by_distance_from(&self, base: &Cpu) -> Vec<&Cpu> {
        let first_of_core = |cpu: &Cpu| {
            if cpu.siblings.contains(&base.id) {
                return cpu.id == base.id;
            }
            !self.0.iter().any(|other| other.id < cpu.id && cpu.siblings.contains(&other.id))
        };
        let mut order: Vec<&Cpu> = self.0.iter().collect();
        order.sort_by_key(|cpu| (!first_of_core(cpu), Distance::between(base, cpu), cpu.id));
        order
    }

    /// Returns the CPUs in the order for [`Placement::Near`]. The first is a CPU whose last-level
    /// cache serves the most cores.
    fn near(&self, participants_count: usize, notes: &mut Vec<String>) -> Vec<u32> {
        let cores = |cpus: &mut dyn Iterator<Item = &Cpu>| {
            cpus.map(|cpu| cpu.siblings[0]).collect::<BTreeSet<u32>>().len()
        };
        let near_count = |base: &Cpu| {
            let near = |cpu: &&Cpu| Distance::between(base, cpu) <= Distance::SameCache;
            cores(&mut self.0.iter().filter(near))
        };
        // The first of equals.
        let Some(base) = self.0.iter().min_by_key(|cpu| Reverse(near_count(cpu))) else {
            return Vec::new();
        };
        let order = self.by_distance_from(base);
        let chosen = &order[..participants_count.min(order.len())];
        let worst = chosen.iter().map(|cpu| Distance::between(base, cpu)).max();
        if let Some(distance) = worst.filter(|&distance| distance > Distance::SameCache) {
            notes.push(format!(
                "too few cores share the last-level cache: {cpu} is used too",
                cpu = distance.describe_cpu()
            ));
        }
        if cores(&mut chosen.iter().copied()) < chosen.len() {
            notes.push("fewer cores than participants: some share a core".to_string());
        }
        order.into_iter().map(|cpu| cpu.id).collect()
    }

    /// Returns the CPUs in the order for [`Placement::Far`], alternately near two distant CPUs.
    /// These two are as distant as possible.
    fn far(&self, participants_count: usize, notes: &mut Vec<String>) -> Vec<u32> {
        let pairs = self.0.iter().flat_map(|a| self.0.iter().map(move |b| (a, b)));
        // The first of equals.
        let farthest = pairs.min_by_key(|(a, b)| Reverse(Distance::between(a, b)));
        let Some((a, b)) = farthest.filter(|(a, b)| a.id != b.id) else {
            return vec![self.0[0].id];
        };
        let distance = Distance::between(a, b);
        if distance < Distance::OtherNode {
            notes.push(format!(
                "no CPU in another package or node is allowed: {}",
                distance.describe_cpu()
            ));
        }
        let around = |here: &Cpu, there: &Cpu| -> Vec<&Cpu> {
            let mut order = self.by_distance_from(here);
            let is_nearer =
                |cpu: &Cpu| Distance::between(here, cpu) <= Distance::between(there, cpu);
            order.sort_by_key(|cpu| !is_nearer(cpu)); // a stable sort
            order
        };
        let mut sides = [around(a, b).into_iter(), around(b, a).into_iter()];
        let mut order: Vec<&Cpu> = Vec::with_capacity(self.0.len());
        while order.len() < self.0.len() {
            for side in &mut sides {
                order.extend(side.find(|cpu| !order.iter().any(|taken| taken.id == cpu.id)));
            }
        }
        let chosen = &order[..participants_count.min(order.len())];
        if chosen.chunks_exact(2).any(|pair| Distance::between(pair[0], pair[1]) < distance) {
            notes.push("too few distant CPUs: some participants are closer".to_owned());
        }
        order.into_iter().map(|cpu| cpu.id).collect()
    }

    /// Returns the CPUs in the order for [`Placement::Smt`]: core after core.
    fn smt(&self, participants_count: usize, notes: &mut Vec<String>) -> Vec<u32> {
        let threads = |cpu: &Cpu| -> Vec<u32> {
            self.0.iter().map(|c| c.id).filter(|id| cpu.siblings.contains(id)).collect()
        };
        let mut cores: Vec<Vec<u32>> = self.0.iter().map(threads).collect();
        cores.sort_by_key(|threads| (usize::MAX - threads.len(), threads[0]));
        cores.dedup();
        if cores[0].len() < 2 {
            notes.push("no SMT sibling is allowed: using placement near instead".to_owned());
            return self.near(participants_count, notes);
        }
        if participants_count > cores[0].len() {
            notes.push(format!(
                "a core has only {} threads: other cores are used too",
                cores[0].len()
            ));
        }
        cores.concat()
    }
}

#[cfg(all(test, not(miri)))] // only safe code: Miri would find nothing
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Regular machines of up to 3 packages x 2 nodes x 2 caches x 3 cores x 2 threads.
    fn topologies() -> impl Strategy<Value = Topology> {
        let shape = (1u32..=3, 1u32..=2, 1u32..=2, 1u32..=3, 1u32..=2);
        shape.prop_map(|(packages, nodes, caches, cores, threads)| {
            let cores_count = packages * nodes * caches * cores;
            let cpu = |id: u32| {
                let core = id % cores_count;
                let cache = core / cores;
                Cpu {
                    id,
                    core,
                    l3: cache * cores,
                    node: cache / caches,
                    package: cache / caches / nodes,
                    siblings: (0..threads).map(|thread| core + thread * cores_count).collect(),
                }
            };
            Topology {
                cpus: (0..cores_count * threads).map(cpu).collect(),
                caches: Vec::new(),
                nodes_count: packages * nodes,
                packages_count: packages,
                cores_count,
                assumed: Vec::new(),
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn participants_share_a_cpu_only_if_there_are_too_few(
            machine in topologies(),
            allowed in prop::collection::btree_set(0u32..72, 0..72),
            participants_count in 0usize..80,
            placement in prop::sample::select(&Placement::ALL[..]),
        ) {
            let allowed: Vec<u32> = allowed.into_iter().collect();
            let usable: BTreeSet<u32> = if allowed.is_empty() {
                machine.cpus.iter().map(|cpu| cpu.id).collect()
            } else {
                allowed.iter().copied().collect()
            };
            let placed = machine.choose_cpus(placement, &allowed, participants_count);
            prop_assert_eq!(placed.cpus.len(), participants_count);
            prop_assert!(placed.cpus.iter().all(|cpu| usable.contains(cpu)));
            let distinct: BTreeSet<u32> = placed.cpus.iter().copied().collect();
            if placement == Placement::Same {
                prop_assert!(distinct.len() <= 1);
                prop_assert!(placed.notes.is_empty());
            } else {
                prop_assert_eq!(distinct.len(), participants_count.min(usable.len()));
                let has_note = placed.notes.iter().any(|note| note.contains("participants share"));
                prop_assert_eq!(has_note, participants_count > usable.len());
            }
        }

        #[test]
        fn two_participants_without_a_note_match_the_placement(
            machine in topologies(),
            placement in prop::sample::select(&Placement::ALL[..]),
        ) {
            let placed = machine.choose_cpus(placement, &[], 2);
            let [a, b] = [0, 1].map(|participant| machine.cpu(placed.cpus[participant]).unwrap());
            let distance = Distance::between(a, b);
            let kept = match placement {
                Placement::Near => distance == Distance::SameCache,
                Placement::Far => distance >= Distance::OtherNode,
                Placement::Smt => distance == Distance::SameCore,
                Placement::Same => distance == Distance::SameCpu,
            };
            prop_assert_eq!(kept, placed.notes.is_empty(), "{:?}", placed);
        }
    }
}
