//! Search for numbers that JSON cannot represent.
//!
//! JSON has no NaN and no infinity; a serializer writes `null` for both, which would read back as
//! another value or not at all. So the store rejects them. The patterns below name every field and
//! have no `..`: a new field of the record does not compile until it is handled here.

use handover_record::{
    Anatomy, AnatomyFloor, AnatomyStage, FigureMode, HardwareCounts, Host, PeerWithoutRatio, Proof,
    Ratio, Record, Round, Run, Summary,
};

/// Returns the name and value of a run's first field that is not a finite number. Returns `None` if
/// all are finite.
pub(crate) fn non_finite_in_run(run: &Run) -> Option<(String, f64)> {
    let Run {
        id: _,
        started_unix_ns: _,
        version: _,
        commit: _,
        profile: _,
        command: _,
        seed: _,
        host,
        findings: _,
        complete: _,
        null_one,
        null_several,
        proofs,
    } = run;
    let Host {
        name: _,
        cpu_model: _,
        cpus_online: _,
        cpus_allowed: _,
        cores: _,
        packages: _,
        threads_per_core: _,
        numa_nodes: _,
        caches: _,
        memory_bytes: _,
        kernel: _,
        hypervisor: _,
        mitigations: _,
        governor: _,
        turbo: _,
        clock_source: _,
        clock: _,
        clock_cost_ns,
        cgroup_cpus,
        cgroup_memory_bytes: _,
        isolation: _,
        huge_pages: _,
        counters: _,
        load_1min,
        microcode: _,
        compiler: _,
        build_profile: _,
        features: _,
        peers: _,
        libc: _,
    } = host;
    let mut find = FiniteCheck::default();
    find.check_optional_number("null_one", *null_one);
    find.check_optional_number("null_several", *null_several);
    for (place, proof) in proofs.iter().enumerate() {
        let Proof { what: _, unit: _, planted, read, bound, ends } = proof;
        let (low, high) = ends.unwrap_or_default();
        for value in [*planted, read.unwrap_or_default(), *bound, low, high] {
            find.check_number(&format!("proofs[{place}]"), value);
        }
    }
    find.check_number("host.clock_cost_ns", *clock_cost_ns);
    find.check_optional_number("host.cgroup_cpus", *cgroup_cpus);
    find.check_number("host.load_1min", *load_1min);
    find.found
}

/// Returns the name and value of a record's first field that is not a finite number. Returns `None`
/// if all are finite.
pub(crate) fn non_finite_in_record(record: &Record) -> Option<(String, f64)> {
    let Record {
        id: _,
        spec: _,
        contender: _,
        kind: _,
        waits: _,
        allocates: _,
        what: _,
        unit: _,
        ladder: _,
        args: _,
        participants: _,
        started_unix_ns: _,
        summary,
        rate_per_s,
        bytes_per_s,
        cpus_user,
        cpus_system,
        switches_voluntary_per_op,
        switches_involuntary_per_s,
        faults_minor_per_op,
        faults_major_per_s,
        roles,
        empty,
        floor,
        peers,
        peers_without_ratio,
        modes,
        counters,
        hardware,
        rounds,
        histogram: _,
        warnings: _,
        anatomy,
    } = record;
    let mut find = FiniteCheck::default();
    find.check_summary(*summary);
    find.check_number("rate_per_s", *rate_per_s);
    find.check_optional_number("bytes_per_s", *bytes_per_s);
    find.check_number("cpus_user", *cpus_user);
    find.check_number("cpus_system", *cpus_system);
    find.check_number("switches_voluntary_per_op", *switches_voluntary_per_op);
    find.check_number("switches_involuntary_per_s", *switches_involuntary_per_s);
    find.check_number("faults_minor_per_op", *faults_minor_per_op);
    find.check_number("faults_major_per_s", *faults_major_per_s);
    for (place, mut role) in roles.iter().cloned().enumerate() {
        role.numeric_fields_mut()
            .for_each(|it| find.check_number(&format!("roles[{place}].{}", it.0), *it.1));
    }
    find.check_optional_number("empty", *empty);
    if let Some(ratio) = floor {
        find.check_ratio("floor", ratio);
    }
    for (place, ratio) in peers.iter().enumerate() {
        find.check_ratio(&format!("peers[{place}]"), ratio);
    }
    for (place, PeerWithoutRatio { contender: _, waits: _, other }) in
        peers_without_ratio.iter().enumerate()
    {
        find.check_number(&format!("beside[{place}].other"), *other);
    }
    for (place, FigureMode { share, median }) in modes.iter().enumerate() {
        find.check_number(&format!("modes[{place}].share"), *share);
        find.check_number(&format!("modes[{place}].median"), *median);
    }
    for (name, value) in counters {
        find.check_number(&format!("counters.{name}"), *value);
    }
    if let Some(HardwareCounts { instructions, cycles, cache_misses }) = hardware {
        find.check_number("hardware.instructions", *instructions);
        find.check_number("hardware.cycles", *cycles);
        find.check_number("hardware.cache_misses", *cache_misses);
    }
    for (place, round) in rounds.iter().enumerate() {
        find.check_round(place, round);
    }
    if let Some(anatomy) = anatomy {
        find.check_anatomy(anatomy);
    }
    find.found
}

/// Search for the first field that is not a finite number.
#[derive(Default)]
struct FiniteCheck {
    /// Name and value of the first field that is not finite.
    found: Option<(String, f64)>,
}

impl FiniteCheck {
    /// Stores the field's name and value if it is the first value that is not finite.
    fn check_number(&mut self, field: &str, value: f64) {
        if !value.is_finite() && self.found.is_none() {
            self.found = Some((field.to_string(), value));
        }
    }

    fn check_optional_number(&mut self, field: &str, value: Option<f64>) {
        self.check_number(field, value.unwrap_or(0.0));
    }

    fn check_ratio(&mut self, field: &str, ratio: &Ratio) {
        let Ratio { id: _, contender: _, other, ratio, low, high } = ratio;
        for (name, value) in [("other", other), ("ratio", ratio)] {
            self.check_number(&format!("{field}.{name}"), *value);
        }
        for (name, value) in [("low", low), ("high", high)] {
            self.check_optional_number(&format!("{field}.{name}"), *value);
        }
    }

    fn check_summary(&mut self, mut summary: Summary) {
        for (name, value) in summary.numeric_fields_mut() {
            self.check_number(&format!("summary.{name}"), *value);
        }
    }

    fn check_anatomy(&mut self, anatomy: &Anatomy) {
        let Anatomy {
            line: _,
            stages,
            total,
            bands,
            floor,
            handoffs_count: _,
            rounds_count: _,
            unmatched: _,
            site_ns,
            is_site_cost_subtracted: _,
            clock_step_ns,
            off_ns,
            on_ns,
            outliers,
        } = anatomy;
        for (place, stage) in stages.iter().chain([total]).enumerate() {
            let AnatomyStage { passed, p50_ns, p99_ns, mean_ns, share, .. } = stage;
            for value in [passed, p50_ns, p99_ns, mean_ns, share] {
                self.check_number(&format!("anatomy.stages[{place}]"), *value);
            }
        }
        let bands = bands.iter().flat_map(|band| &band.stages_ns);
        for value in bands.chain(site_ns).chain([clock_step_ns]).chain(off_ns).chain(on_ns) {
            self.check_number("anatomy", *value);
        }
        if let Some(AnatomyFloor { id: _, figure_ns, handoffs }) = floor {
            self.check_number("anatomy.floor.figure_ns", *figure_ns);
            self.check_number("anatomy.floor.handoffs", *handoffs);
        }
        for (place, outlier) in outliers.iter().enumerate() {
            let times = [outlier.total_ns, outlier.excess_ns];
            for value in times.iter().chain(&outlier.stages_ns) {
                self.check_number(&format!("anatomy.outliers[{place}]"), *value);
            }
        }
    }

    /// Checks the numbers of the round at index `place`.
    fn check_round(&mut self, place: usize, round: &Round) {
        let Round { block: _, median, p99, mean, steal, slowed, .. } = round;
        for (name, value) in
            [("median", median), ("p99", p99), ("mean", mean), ("steal", steal), ("slowed", slowed)]
        {
            // Built only for a field that is not finite: there are thousands of rounds.
            if !value.is_finite() {
                self.check_number(&format!("rounds[{place}].{name}"), *value);
            }
        }
    }
}
