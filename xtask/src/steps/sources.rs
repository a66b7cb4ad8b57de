//! Checks of the sources: format, rules, lints, tests, documentation.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::Result;

use super::prerequisites::{InstalledTool, install_components};
use super::programs;
use crate::context::TestContext;
use crate::run::CommandLine;
use crate::workspace::Crate;

/// Maximum duration of one example.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// Checks that the sources are formatted.
pub fn check_format(context: &mut TestContext) -> Result<()> {
    if let Err(error) =
        install_components(None, &["rustfmt"], CommandLine::new("cargo fmt --version"))
    {
        context.record_skipped("fmt", format!("{error:#}"));
        return Ok(());
    }
    cargo_in_root(context, "cargo fmt --all --check").run()
}

/// Package with the tidy rules, which are tests.
pub const TIDY_PACKAGE: &str = "handover-tidy";

/// Runs the tidy rules and shows their warnings. Also checks the workflows of GitHub.
pub fn check_tidy_rules(context: &mut TestContext) -> Result<()> {
    let rules: Vec<_> = programs::test_programs(context)?
        .iter()
        .filter(|it| it.package == TIDY_PACKAGE)
        .cloned()
        .collect();
    for program in rules {
        let run =
            CommandLine::program(program.path).args(["--nocapture"]).current_dir(&program.folder);
        context.passed_count +=
            run.env_path("CARGO_MANIFEST_DIR", &program.folder).count_tests()?;
    }
    check_workflows(context)
}

/// Checks the workflows of GitHub with actionlint, if it is installed.
fn check_workflows(context: &mut TestContext) -> Result<()> {
    if !CommandLine::new("actionlint --version").succeeds() {
        let install = "go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12";
        let why = format!("actionlint is not installed; install it with `{install}`");
        context.record_skipped("workflows", why);
        return Ok(());
    }
    // Without shellcheck, as the workflows split $PORTABLE into words on purpose.
    CommandLine::new("sh -c")
        .args(["exec actionlint -shellcheck= .github/workflows/*.yml"])
        .current_dir(&context.workspace.root)
        .run()
}

/// Runs clippy with all features. On net, rpc and the command, also runs it without features, and
/// on rpc with the default ones. The step `build` lints the other crates with the default features.
pub fn lint(context: &mut TestContext) -> Result<()> {
    if !context.has_clippy {
        return Ok(());
    }
    cargo_in_root(context, "cargo clippy --workspace --all-targets --all-features -- -D warnings")
        .run()?;
    cargo_in_root(
        context,
        "cargo clippy -p handover-net -p handover-rpc --no-default-features -- -D warnings",
    )
    .run()?;
    cargo_in_root(context, "cargo clippy -p handover --no-default-features -- -D warnings")
        .run()?;
    // The command line turns on all features of this crate.
    cargo_in_root(context, "cargo clippy -p handover-rpc -- -D warnings").run()
}

/// Last parts of the names of examples that measure costs. They are always compiled, but run only
/// with `--long`, because they take a minute in an unoptimised build.
const MEASURING_ENDINGS: [&str; 2] = ["-cost", "-rates"];

/// Runs every example.
pub fn run_examples(context: &mut TestContext) -> Result<()> {
    programs::test_programs(context)?;
    for one in context.workspace.crates.iter().filter(|one| context.should_test(&one.name)) {
        for example in &one.examples {
            if !context.is_long && MEASURING_ENDINGS.iter().any(|ending| example.ends_with(ending))
            {
                continue;
            }
            CommandLine::program(context.workspace.target.join("debug/examples").join(example))
                .current_dir(&context.workspace.root)
                .timeout(EXAMPLE_MAX)
                .count_tests_buffered()?;
        }
    }
    Ok(())
}

/// Shell script that cargo runs instead of rustdoc for documentation tests. It first builds the
/// documentation of the crates named in `HANDOVER_DOCUMENTED`, with warnings denied. `cargo doc`
/// would check every dependency anew, which takes minutes. The script does nothing for the crates
/// named in `HANDOVER_LEFT_OUT`.
const DOCUMENT_AND_TEST_SCRIPT: &str = r#"#!/bin/sh
case " $* " in *" --test "*) ;; *) exec rustdoc "$@" ;; esac
crate= previous=
for word do
    test "$previous" != --crate-name || crate=$word
    previous=$word
done
case " $HANDOVER_LEFT_OUT " in *" $crate "*) exit ;; esac
case " $HANDOVER_DOCUMENTED " in *" $crate "*) ;; *) exec rustdoc "$@" ;; esac
(
    skip=
    for word do
        shift
        case "$skip$word" in
            --test | --no-run) ;;
            --test-run-directory | --test-args | --test-runtool | --test-runtool-arg) skip=next: ;;
            next:*) skip= ;;
            *) set -- "$@" "$word" ;;
        esac
    done
    exec rustdoc "$@" --deny warnings --out-dir "$HANDOVER_DOCS"
) || exit
exec rustdoc "$@"
"#;

/// Folders of the published libraries. Without `--long`, the documentation of those that differ
/// from `origin/HEAD` is built.
const LIBRARY_FOLDERS: [&str; 4] = ["base", "mechanisms", "services", "lab/harness"];

/// Builds the documentation of changed libraries with warnings denied, and runs the examples of
/// every crate.
pub fn run_doctests(context: &mut TestContext) -> Result<()> {
    let target = &context.workspace.target;
    let rustdoc = target.join("document-and-test");
    fs::create_dir_all(target)?;
    fs::write(&rustdoc, DOCUMENT_AND_TEST_SCRIPT)?;
    fs::set_permissions(&rustdoc, Permissions::from_mode(0o755))?;
    let line = format!("{nice} cargo test --workspace --doc", nice = programs::LOW_PRIORITY_PREFIX);
    let names = |is_it: &dyn Fn(&Crate) -> bool| {
        let crates = context.workspace.crates.iter().filter(|one| is_it(one));
        crates.map(|one| one.name.replace('-', "_")).collect::<Vec<_>>().join(" ")
    };
    let left_out = names(&|one| !context.should_test_thoroughly(&one.name));
    let documented = names(&|one| {
        LIBRARY_FOLDERS.iter().any(|folder| one.folder.starts_with(folder))
            && (context.has_selected_steps || context.differing_crates.contains(&one.name))
    });
    let run = context.cargo_command(&line).env_path("RUSTDOC", &rustdoc);
    let run = run.args(programs::feature_args(&context.workspace.crates));
    // Not by cargo's `-p`, which would select other features of the dependencies and rebuild them.
    let run = run.env("HANDOVER_LEFT_OUT", &left_out).env("HANDOVER_DOCUMENTED", &documented);
    context.passed_count += run.env_path("HANDOVER_DOCS", &target.join("doc")).count_tests()?;
    Ok(())
}

/// Packages every crate that can be published. With `--long`, also builds each crate from its
/// package and the packages of the others. With `--changed` alone, does nothing.
pub fn check_packages(context: &mut TestContext) -> Result<()> {
    /// Packages that cannot be published.
    const UNPUBLISHED: [&str; 3] = ["handover-evh_perf", "handover-tidy", "handover-xtask"];
    if context.selection.is_some() && !context.has_selected_steps && !context.is_long {
        return Ok(());
    }
    // The packages are made of the files as they are, committed or not.
    let mut run = cargo_in_root(context, "cargo package --workspace --allow-dirty --quiet");
    for name in UNPUBLISHED {
        run = run.args(["--exclude", name]);
    }
    if !context.is_long {
        run = run.args(["--no-verify"]);
    }
    run.run()
}

/// Tool mdBook, which builds the book. It is installed without its server and search index.
const MDBOOK: InstalledTool = InstalledTool {
    name: "mdbook",
    install_command: "cargo install --locked --debug --no-default-features mdbook@0.5.4",
};

/// Builds the book, and the API documentation of all packages with warnings denied.
pub fn build_docs(context: &mut TestContext) -> Result<()> {
    if let Some(mdbook) = MDBOOK.find_or_install(context) {
        let pages = context.workspace.target.join("book");
        let build = CommandLine::program(mdbook).args(["build", "docs/book"]);
        build.arg_path("--dest-dir", &pages).current_dir(&context.workspace.root).run()?;
    }
    cargo_in_root(context, "cargo doc --workspace --no-deps")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()
}

/// Returns the command `line`, to be run in the root folder of the workspace.
fn cargo_in_root(context: &TestContext, line: &str) -> CommandLine {
    CommandLine::new(line).current_dir(&context.workspace.root)
}
