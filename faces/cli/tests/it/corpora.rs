//! The fuzz targets on their corpora, and on prefixes of each input, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn fuzz_targets_and_corpora_correspond() {
    let entries = fs::read_dir(corpora()).expect("the corpora");
    let mut folders: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    folders.sort();
    let mut names: Vec<_> = targets::ALL.iter().map(|(name, _)| name.to_string()).collect();
    names.sort();
    assert_eq!(folders, names);
    let manifest = corpora().join("../Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the manifest");
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no program");
    }
}

/// Truncated inputs of each input: a few, and with `HANDOVER_LONG` set many.
fn prefixes_count() -> usize {
    if std::env::var_os("HANDOVER_LONG").is_some() { 64 } else { 3 }
}

#[test]
fn fuzz_targets_accept_their_corpora() {
    for (name, target) in targets::ALL {
        let mut count = 0;
        for entry in fs::read_dir(corpora().join(name)).expect("a corpus") {
            let input = fs::read(entry.expect("an entry").path()).expect("an input");
            target(&input);
            for cut in (0..input.len()).step_by(input.len() / prefixes_count() + 1) {
                target(&input[..cut]);
            }
            count += 1;
        }
        assert!(count >= 5, "{name}: {count} inputs");
    }
}
