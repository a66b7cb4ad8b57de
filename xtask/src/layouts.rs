//! `cargo xtask layouts`: links one commit several times, each time with the functions in a new
//! random order.
//!
//! The address of a function alone changes a short figure by some percent (Mytkowicz and others,
//! *Producing Wrong Data Without Doing Anything Obviously Wrong!*, ASPLOS 2009). A comparison with
//! several links per side counts this effect as noise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Options of `layouts`.
#[derive(clap::Args, Debug)]
pub struct LayoutsOptions {
    /// Folder for the binaries, which are named handover-1, handover-2, and so on
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Number of binaries to link
    #[arg(long, value_name = "COUNT", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=50))]
    count: u32,
    /// Seed for the order of functions in the first binary; it is increased by 1 for each further
    /// binary
    #[arg(long, value_name = "SEED", default_value = "1")]
    seed: u32,
}

/// Links the release binary `count` times, each time with another order of functions.
pub fn layouts(options: &LayoutsOptions) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    fs::create_dir_all(&options.folder).with_context(|| {
        format!("cannot create the folder {path}", path = options.folder.display())
    })?;
    let linker = find_linker()?;
    for number in 0..options.count {
        CommandLine::new("cargo rustc --release --package handover --bin handover --")
            .args(linker.rustc_arguments(options.seed + number))
            .current_dir(&workspace.root)
            .run()?;
        let copy = options.folder.join(format!("handover-{}", number + 1));
        fs::copy(workspace.binary_path("release"), &copy)
            .with_context(|| format!("cannot copy the binary to {path}", path = copy.display()))?;
        println!("{}", copy.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Linker that can shuffle functions.
struct Linker {
    /// Options that select the linker; empty for the default linker.
    selecting_options: Vec<String>,
    /// Linker option that shuffles functions. The seed must be appended.
    shuffle_option: &'static str,
}

impl Linker {
    /// Returns the rustc options that shuffle the functions with this seed.
    fn rustc_arguments(&self, seed: u32) -> Vec<String> {
        let order = format!("{}{seed}", self.shuffle_option);
        let links = self.selecting_options.iter().chain([&order]);
        links.flat_map(|it| ["-C".to_string(), format!("link-arg={it}")]).collect()
    }
}

/// Returns the first linker on this machine that can shuffle functions. Tries rustc's default (lld
/// since Rust 1.90), rustc's own lld, lld and mold.
fn find_linker() -> Result<Linker> {
    let lld = "-Wl,--shuffle-sections=.text*=";
    let mut linkers = vec![Linker { selecting_options: Vec::new(), shuffle_option: lld }];
    if let Ok(libraries) = CommandLine::new("rustc --print target-libdir").capture_stdout() {
        let folder = Path::new(libraries.trim()).with_file_name("bin").join("gcc-ld");
        let selecting_options = vec![format!("-B{}", folder.display()), "-fuse-ld=lld".to_string()];
        linkers.push(Linker { selecting_options, shuffle_option: lld });
    }
    for (name, shuffle_option) in [("lld", lld), ("mold", "-Wl,--shuffle-sections=")] {
        linkers
            .push(Linker { selecting_options: vec![format!("-fuse-ld={name}")], shuffle_option });
    }
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let source = folder.path().join("empty.rs");
    fs::write(&source, "fn main() {}")
        .context("cannot write the program that tests the linkers")?;
    let links = |it: &Linker| link(&source, &it.rustc_arguments(1)).is_ok();
    linkers.into_iter().find(links).context(
        "no linker with --shuffle-sections found: neither the compiler's default nor its lld, nor lld or mold; install lld or mold",
    )
}

/// Compiles and links a program in the folder of its source; returns the binary's path.
fn link(source: &Path, rustc_arguments: &[String]) -> Result<PathBuf> {
    let binary = source.with_extension("");
    CommandLine::new("rustc --edition 2024 -o")
        .args([&binary, source])
        .args(rustc_arguments)
        .capture_stdout()?;
    Ok(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_order_is_determined_by_the_seed() {
        let Ok(linker) = find_linker() else {
            println!("skipped: layouts: no linker here has --shuffle-sections");
            return;
        };
        let folder = tempfile::tempdir().expect("create a temporary folder");
        let source = folder.path().join("functions.rs");
        let functions: String = (0..20)
            .map(|it| format!("#[inline(never)] fn f{it}() {{ std::hint::black_box({it}); }}\n"))
            .collect();
        let names: Vec<String> =
            (0..20).map(|it| format!("({it}, f{it} as fn() as usize)")).collect();
        let main = format!(
            "fn main() {{ let mut all = [{}]; all.sort_by_key(|it| it.1);\n\
             println!(\"{{:?}}\", all.map(|it| it.0)); }}\n",
            names.join(", ")
        );
        fs::write(&source, functions + &main).expect("a program");
        let order = |seed| {
            let binary = link(&source, &linker.rustc_arguments(seed)).expect("linked");
            CommandLine::program(&binary).capture_stdout().expect("its output")
        };
        let first = order(1);
        assert_ne!(first, order(2));
        assert_eq!(first, order(1));
    }
}
