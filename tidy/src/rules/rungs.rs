//! Layering: rungs are an ordered list of layers, and no crate depends on a higher one. Crates on
//! one rung do not depend on each other, so that each can be used alone. Lab crates depend on each
//! other only as [`LAB_DEPENDENCIES`] lists; only the faces may depend on everything.

use crate::{Crate, Dependency, Tree, Violation};

/// Name of the rule.
pub const RULE_NAME: &str = "rungs";

/// Layers of crates (rungs), lowest first. A folder that ends in `/` stands for every crate
/// directly below it.
pub const LAYERS: &[&[&str]] = &[
    &["base"],
    &["mechanisms/probe/macros"],
    &["mechanisms/probe"],
    &["mechanisms/lock", "mechanisms/notify", "mechanisms/ring", "mechanisms/timer"],
    &["mechanisms/event", "mechanisms/fiber", "mechanisms/sched"],
    &["services/net"],
    &["services/rpc"],
    &["faces/capi"],
    &["lab/"],
    &["faces/program"],
    &["classic"],
    &["faces/"],
    &["etc/"],
];

/// Lab crates, each with the lab crates on which it may depend.
pub const LAB_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("lab/record", &[]),
    ("lab/harness", &["lab/record"]),
    ("lab/anatomy", &["lab/record", "lab/harness"]),
    ("lab/store", &["lab/record"]),
    ("lab/report", &["lab/record"]),
    ("lab/suite", &["lab/record", "lab/harness"]),
    ("lab/trace", &[]),
];

/// Lab crates that may depend on all crates of lower layers.
const LAB_WITH_LOWER_LAYERS: &[&str] = &["lab/suite"];

/// Crates outside the lab on which every lab crate may depend.
const LAB_FOUNDATION: &[&str] = &["base", "mechanisms/probe"];

/// Crates without a layer. No crate depends on them, and they depend on none.
pub const UNLAYERED_CRATES: &[&str] = &["tidy", "xtask"];

/// Finds crates without a layer, and dependencies that the layering forbids.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let crates = tree.crates();
    let mut found = Vec::new();
    for one in &crates {
        if layer_index(&one.folder).is_none() && !UNLAYERED_CRATES.contains(&one.folder.as_str()) {
            found.push(Violation::new(
                RULE_NAME,
                &one.manifest.path,
                1,
                format!(
                    "the crate `{folder}` has no layer: LAYERS does not list it",
                    folder = one.folder
                ),
                "add it to LAYERS (and LAB_DEPENDENCIES) in tidy/src/rules/rungs.rs",
            ));
        }
        for dependency in &one.dependencies {
            let Some(other) = crates.iter().find(|other| other.name == dependency.package) else {
                continue;
            };
            if let Err(why) = check_dependency(&one.folder, &other.folder) {
                found.push(violation(one, dependency, &why));
            }
        }
    }
    found
}

/// Creates the violation of a forbidden dependency.
fn violation(one: &Crate, dependency: &Dependency, why: &str) -> Violation {
    Violation::new(
        RULE_NAME,
        &one.manifest.path,
        dependency.line,
        format!(
            "`{name}` depends on `{package}` ({kind}): {why}",
            name = one.name,
            package = dependency.package,
            kind = dependency.kind
        ),
        "move what both need to a lower layer, or the code that joins them to lab/suite or a face",
    )
}

/// Returns the index of the layer of the crate in `folder`; `None` if it is in no layer.
fn layer_index(folder: &str) -> Option<usize> {
    let stands = |places: &&[&str]| {
        places.iter().any(|place| match place.strip_suffix('/') {
            Some(parent) => folder.rsplit_once('/').is_some_and(|(above, _)| above == parent),
            None => *place == folder,
        })
    };
    let height = LAYERS.iter().position(stands)?;
    let known =
        !folder.starts_with("lab/") || LAB_DEPENDENCIES.iter().any(|(room, _)| *room == folder);
    known.then_some(height)
}

/// Checks that the crate in the folder `one` may depend on the crate in `other`. The error says why
/// it must not.
fn check_dependency(one: &str, other: &str) -> Result<(), String> {
    // A crate's tests name the crate itself to enable its features.
    if one == other {
        return Ok(());
    }
    if UNLAYERED_CRATES.contains(&one) || UNLAYERED_CRATES.contains(&other) {
        return Err("no crate may depend on tidy or xtask, and these on none".into());
    }
    let (Some(own), Some(its)) = (layer_index(one), layer_index(other)) else { return Ok(()) };
    if own < its {
        return Err(format!("`{one}` is in a lower layer than `{other}`"));
    }
    if let Some((_, allowed)) = LAB_DEPENDENCIES.iter().find(|(room, _)| *room == one) {
        let fine = if other.starts_with("lab/") {
            allowed.contains(&other)
        } else {
            LAB_WITH_LOWER_LAYERS.contains(&one) || LAB_FOUNDATION.contains(&other)
        };
        return if fine { Ok(()) } else { Err(format!("`{one}` must not depend on `{other}`")) };
    }
    if own == its {
        Err(format!("`{one}` must not depend on `{other}`: both are in the same layer"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_dependencies_are_accepted() {
        for (one, other) in [
            ("mechanisms/lock", "base"),
            ("mechanisms/lock", "mechanisms/probe"),
            ("mechanisms/event", "mechanisms/notify"),
            ("services/rpc", "services/net"),
            ("lab/record", "base"),
            ("lab/harness", "lab/record"),
            ("lab/suite", "lab/harness"),
            ("lab/suite", "services/rpc"),
            ("faces/cli", "lab/report"),
            ("faces/capi", "mechanisms/lock"),
            ("faces/capi", "services/rpc"),
            ("lab/suite", "faces/capi"),
            ("classic", "faces/program"),
            ("faces/cli", "classic"),
            ("etc/evh_perf", "faces/cli"),
        ] {
            assert_eq!(check_dependency(one, other), Ok(()), "{one} -> {other}");
        }
    }

    #[test]
    fn forbidden_dependencies_are_refused() {
        for (one, other) in [
            ("base", "mechanisms/probe"),
            ("mechanisms/probe", "mechanisms/lock"),
            ("mechanisms/lock", "mechanisms/notify"),
            ("mechanisms/notify", "mechanisms/event"),
            ("mechanisms/lock", "lab/record"),
            ("services/net", "services/rpc"),
            ("services/rpc", "lab/harness"),
            ("lab/record", "lab/harness"),
            ("lab/record", "mechanisms/lock"),
            ("lab/harness", "lab/store"),
            ("lab/harness", "mechanisms/notify"),
            ("lab/store", "lab/report"),
            ("lab/report", "lab/suite"),
            ("lab/suite", "lab/store"),
            ("lab/suite", "faces/cli"),
            ("classic", "faces/cli"),
            ("faces/capi", "lab/harness"),
            ("faces/capi", "faces/program"),
            ("services/rpc", "faces/capi"),
            ("faces/cli", "tidy"),
            ("xtask", "lab/record"),
        ] {
            assert!(check_dependency(one, other).is_err(), "{one} -> {other}");
        }
    }

    #[test]
    fn unknown_folder_has_no_layer() {
        for folder in ["mechanisms/gate", "lab/shed", "attic"] {
            assert_eq!(layer_index(folder), None, "{folder}");
        }
        assert!(layer_index("faces/window") > layer_index("lab/suite"));
    }
}
