//! Tests of the consistency of the suite's declarations.

use handover_harness::Bench;
use handover_record::{ContenderKind, Spec};
use handover_suite::net::server_address;
use handover_suite::{PEERS, SUITES};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of specs on the ladder: the default run takes about a minute, of which each needs
/// enough.
const LADDER_MAX: usize = 31;

fn benches() -> impl Iterator<Item = &'static Bench> {
    SUITES.iter().flat_map(|benches| benches.iter())
}

/// Returns every spec once, by id.
fn specs() -> BTreeMap<&'static str, &'static Spec> {
    benches().map(|bench| (bench.spec().id, bench.spec())).collect()
}

fn figure_ids() -> BTreeSet<String> {
    benches().flat_map(|bench| bench.spec().figure_ids()).collect()
}

#[test]
fn no_figure_has_the_same_id_and_contender_as_another() {
    let mut seen = BTreeSet::new();
    for bench in benches() {
        for id in bench.spec().figure_ids() {
            let name = bench.contender().name;
            assert!(seen.insert((id.clone(), name)), "{id} [{name}] is declared twice");
        }
    }
    assert!(seen.len() > 30, "{} figures", seen.len());
}

#[test]
fn contenders_of_one_benchmark_are_adjacent_and_share_one_spec() {
    let mut last = "";
    let mut done = BTreeSet::new();
    for bench in benches() {
        let spec = bench.spec();
        if spec.id != last {
            assert!(done.insert(spec.id), "the contenders of {} are not adjacent", spec.id);
            last = spec.id;
        }
        let first = specs()[spec.id];
        assert_eq!(format!("{spec:?}"), format!("{first:?}"), "{bench:?}");
        let names = |of: &Bench| of.params().iter().map(|it| it.name).collect::<Vec<_>>();
        let Some(sibling) = benches().find(|it| it.spec().id == spec.id) else {
            panic!("{} is not listed", spec.id)
        };
        assert_eq!(names(bench), names(sibling), "{bench:?} takes other arguments");
    }
}

#[test]
fn contender_with_one_rival_names_one_of_ours_in_its_benchmark() {
    let mut count = 0;
    for bench in benches() {
        let contender = bench.contender();
        let Some(rival) = contender.rival_of else { continue };
        let beside = benches().filter(|it| it.spec().id == bench.spec().id).map(Bench::contender);
        for ours in beside.filter(|it| it.kind == ContenderKind::Ours) {
            assert_eq!(
                ours.is_compared_with(&contender),
                ours.name == rival,
                "{ours:?} {contender:?}"
            );
            count += usize::from(ours.name == rival);
        }
    }
    assert_eq!(count, 8, "the schedulers behind a mutex");
}

#[test]
fn an_id_is_a_mechanism_and_an_operation() {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    for (id, spec) in specs() {
        let steps: Vec<&str> = id.split('/').collect();
        assert_eq!(steps.len(), 2, "{id}");
        assert!(steps.into_iter().all(is_name), "{id}");
        for part in spec.parts {
            assert!(is_name(&part.name.replace('_', "-")), "{id}/{}", part.name);
        }
    }
}

#[test]
fn every_declaration_has_a_description_and_a_source_location() {
    for (id, spec) in specs() {
        assert!(spec.what.len() > 10 || id == "clock/gettimeofday", "{id}: {:?}", spec.what);
        assert!(!spec.what.ends_with('.') && !spec.what.contains('\n'), "{id}: {:?}", spec.what);
        assert!(spec.line > 0, "{id}");
        let mechanism = id.split('/').next().unwrap_or_default();
        let home = [format!("src/{mechanism}.rs"), format!("src/{mechanism}/")];
        assert!(home.iter().any(|home| spec.file.contains(home.as_str())), "{id}: {}", spec.file);
        for part in spec.parts {
            assert!(!part.what.is_empty(), "{id}/{}", part.name);
        }
    }
}

/// Benchmark without a floor. How far flows fall behind depends on when their packets arrive: the
/// bound of the best algorithm, one longest packet, is for the worst arrivals.
const WITHOUT_FLOOR: &str = "sched/fair-index";

#[test]
fn every_floor_is_a_figure_that_is_measured() {
    let figures = figure_ids();
    for (id, spec) in specs() {
        let floors = spec.floor.into_iter().chain(spec.parts.iter().filter_map(|part| part.floor));
        for floor in floors.chain(spec.floors.iter().copied()) {
            assert!(figures.contains(floor), "{id}: no figure {floor}");
            assert_ne!(floor, id, "{id} is its own floor");
        }
        let own =
            benches().any(|it| it.spec().id == id && it.contender().kind == ContenderKind::Floor);
        if own && spec.floor.is_none() || id == WITHOUT_FLOOR {
            continue;
        }
        let grounded = spec.floor.is_some() || spec.parts.iter().all(|part| part.floor.is_some());
        let is_ground = id.starts_with("floor/");
        assert!(
            is_ground || (grounded && !(spec.floor.is_none() && spec.parts.is_empty())),
            "{id}"
        );
    }
}

#[test]
fn floor_has_the_same_default_for_each_argument_that_it_shares() {
    let benches: Vec<&Bench> = benches().collect();
    for bench in &benches {
        let spec = bench.spec();
        let floors = spec.floor.into_iter().chain(spec.parts.iter().filter_map(|part| part.floor));
        for floor in floors.chain(spec.floors.iter().copied()) {
            let its = benches.iter().find(|it| it.spec().figure_ids().iter().any(|id| id == floor));
            for own in bench.params() {
                let same = its.and_then(|it| it.params().iter().find(|it| it.name == own.name));
                let same = same.map_or(own.default, |it| it.default);
                assert_eq!(own.default, same, "{} and {floor}: {}", spec.id, own.name);
            }
        }
    }
}

#[test]
fn only_benchmarks_of_several_participants_hand_over() {
    for bench in benches() {
        let values = handover_record::ArgValues::smoke_values(bench.params());
        let several = bench.roles(&values).len() > 1;
        assert!(several || !bench.spec().hands_over, "{bench:?} hands over to nobody");
    }
}

#[test]
fn contender_of_several_participants_declares_how_it_waits() {
    // A try, a passive side, and contenders that copy or hold memory do not wait.
    let waits_for_nobody =
        |id: &str| id.starts_with("lock/") || id.starts_with("bulk/") || id.contains("-copy");
    for bench in benches().filter(|it| it.spec().hands_over) {
        let it = bench.contender();
        assert!(!it.waits.is_none() || waits_for_nobody(bench.spec().id), "{bench:?}");
    }
}

#[test]
fn contender_of_ours_has_a_floor_that_waits_alike() {
    for bench in benches().filter(|it| it.contender().kind == ContenderKind::Ours) {
        let spec = bench.spec();
        if spec.id == WITHOUT_FLOOR {
            continue;
        }
        let waits_of = |id: &str| {
            let part_of = |it: &Bench| it.spec().figure_ids().iter().position(|own| own == id);
            benches().find_map(|it| {
                let part = part_of(it)?;
                Some(it.contender().waits_in(it.spec().parts.get(part)))
            })
        };
        let parts: Vec<_> = spec.parts.iter().map(Some).collect();
        let parts = if parts.is_empty() { vec![None] } else { parts };
        for part in parts.into_iter().filter(|it| it.is_none_or(|it| !it.floors_are_peers)) {
            let waits = bench.contender().waits_in(part);
            let own = benches().filter(|it| it.spec().id == spec.id).map(Bench::contender);
            let own = own.filter(|it| it.kind == ContenderKind::Floor);
            let own = own.map(|it| it.waits_in(part)).any(|floor| floor.is_lower_bound_for(waits));
            let named = part.and_then(|part| part.floor).or(spec.floor);
            let named = named.into_iter().chain(spec.floors.iter().copied());
            let named = named.filter_map(waits_of).any(|floor| floor.is_lower_bound_for(waits));
            assert!(own || named, "{bench:?} {part:?}: no floor that {}", waits.table_verb());
        }
    }
}

#[test]
fn arguments_have_their_defaults_and_smoke_values_within_their_bounds() {
    for bench in benches() {
        for param in bench.params() {
            let within = |value: u64| (param.min..=param.max).contains(&value);
            assert!(within(param.default) && within(param.smoke), "{bench:?}: {}", param.name);
            assert!(!param.help.trim().is_empty(), "{bench:?}: {} has no help", param.name);
        }
    }
}

#[test]
fn readme_shows_the_benchmark_that_is_compiled_as_an_example() {
    let example = include_str!("../../examples/benchmark.rs");
    let begin = example.find("use handover_harness").unwrap_or(0);
    let end = example.find("\nfn main").unwrap_or(example.len());
    assert!(include_str!("../../README.md").contains(&example[begin..end]));
    assert!(example[begin..end].lines().count() <= 35);
}

#[test]
fn the_ladder_is_short_enough_for_a_minute() {
    let ladder: Vec<&str> =
        specs().into_iter().filter(|(_, spec)| spec.ladder).map(|(id, _)| id).collect();
    assert!(
        (10..=LADDER_MAX).contains(&ladder.len()),
        "{} on the ladder: {ladder:?}",
        ladder.len()
    );
}

#[test]
fn peers_missing_without_the_feature_tls_name_that_feature() {
    let note = handover_suite::peers_not_built().unwrap_or_default();
    let has_tls = cfg!(feature = "tls");
    assert_eq!(note.contains("rustls, tokio-rustls, OpenSSL (feature tls)"), !has_tls, "{note}");
    assert!(has_tls || !note.contains("libssl-dev"), "{note}");
}

#[test]
fn names_of_peers_not_built_cover_the_dependencies_of_the_feature_peers() {
    let manifest = include_str!("../../Cargo.toml");
    let dependencies = manifest.lines().find_map(|line| line.strip_prefix("peers = ")).unwrap();
    for dependency in dependencies.split('"').filter_map(|word| word.strip_prefix("dep:")) {
        let peer = match dependency {
            "crossbeam-channel" | "crossbeam-queue" => "crossbeam",
            "hierarchical_hash_wheel_timer" => "hashed-wheel",
            "tracing-subscriber" => "tracing",
            other => other,
        };
        let mut names = PEERS.split([',', '(']).map(str::trim);
        assert!(names.any(|name| name == peer), "{peer}: {PEERS}");
    }
}

#[test]
fn server_of_idle_bytes_has_several_addresses() {
    let addresses = [0, 19_999, 30_000, 999_999].map(|index| server_address(index).octets());
    assert_eq!(addresses, [[127, 0, 0, 2], [127, 0, 0, 2], [127, 0, 0, 3], [127, 0, 0, 51]]);
}
