//! `include/handover.h` is what cbindgen generates from the sources.

use std::path::Path;

/// Variable with which the header is written instead of compared.
const WRITE: &str = "HANDOVER_WRITE_HEADER";

#[test]
fn header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("read cbindgen.toml");
    // Sorted by name: cbindgen would follow the order of the modules otherwise.
    let bindings = cbindgen::Builder::new().with_config(config).with_crate(folder).generate();
    let mut text = Vec::new();
    bindings.expect("generate the header").write(&mut text);
    let text = String::from_utf8(text).expect("the header is UTF-8");
    let path = folder.join("include/handover.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, text).expect("write the header");
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "include/handover.h differs from the sources: {WRITE}=1 cargo test -p handover-capi --test header"
    );
}
