//! `cargo xtask dist`: builds a release below dist/: packages of the binary and of the C library, a
//! list of the binary's dependencies (SBOM), and checksums.
//!
//! Each package is laid out once as a folder, which tar, dpkg-deb and rpmbuild pack.

use std::collections::BTreeSet;
use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::capi;
use crate::run::CommandLine;
use crate::workspace::Workspace;

/// Options of `dist`.
#[derive(clap::Args, Debug)]
pub struct DistOptions {
    /// Also pack a static binary, which runs on any Linux of this architecture. It loads no shared
    /// objects: `call/plt` and the like, MPI and UCX are refused
    #[arg(long = "static")]
    is_static: bool,
}

/// Files below usr/share whose content the binary prints, each with the arguments that do so.
const PRINTED_FILES: &[(&str, &[&str])] = &[
    ("bash-completion/completions/handover", &["completions", "bash"]),
    ("zsh/site-functions/_handover", &["completions", "zsh"]),
    ("fish/vendor_completions.d/handover.fish", &["completions", "fish"]),
];
/// Folder of the manual pages below usr/share.
const MANUAL_FOLDER: &str = "man/man1";

/// Files of the workspace that are installed below usr/share/doc.
const DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Folder of the links with the names of the classic programs. Some names are too general for
/// usr/bin.
const LINKS_FOLDER: &str = "usr/lib/handover/classic";

/// Version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Part of a release that has its own packages: the programs or the C library.
struct ReleasePart {
    /// Name of the packages.
    name: &'static str,
    /// Description of the packages in one line.
    summary: &'static str,
    /// Folder with the files of the part, in the layout of an installation.
    root: PathBuf,
    /// ELF file below `root`. Its shared libraries are the dependencies of the Debian package.
    elf: String,
}

/// Function that writes a package of a release part into a folder.
type Packer = fn(&ReleasePart, &Path) -> Result<()>;

/// Package formats that need a tool: file extension, tool, and packing function.
const PACKERS: [(&str, &str, Packer); 2] =
    [("deb", "dpkg-shlibdeps", pack_deb), ("rpm", "rpmbuild", pack_rpm)];

/// Builds a release and prints the paths of its files.
pub fn dist(options: &DistOptions) -> Result<ExitCode> {
    let (files, skipped) = build_release(&Workspace::find()?, options.is_static)?;
    for file in files {
        println!("{} ({} bytes)", file.display(), file.metadata()?.len());
    }
    skipped.iter().for_each(|line| println!("skipped: {line}"));
    Ok(ExitCode::SUCCESS)
}

/// Builds a release into the folder dist/, after deleting its old content. Returns the files, and
/// lines about packages that were skipped for lack of a tool.
pub fn build_release(
    workspace: &Workspace,
    is_static: bool,
) -> Result<(Vec<PathBuf>, Vec<String>)> {
    let folder = workspace.root.join("dist");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .context("cannot delete the folder dist/ of the last release")?;
    }
    fs::create_dir(&folder)
        .with_context(|| format!("cannot create the folder {path}", path = folder.display()))?;
    let staging = tempfile::tempdir_in(&workspace.target)?;
    let staged = |name, summary, elf: String| -> Result<ReleasePart> {
        let root = staging.path().join(name);
        let documents = root.join("usr/share/doc").join(name);
        fs::create_dir_all(&documents)?;
        for document in DOCUMENTS {
            fs::copy(workspace.root.join(document), documents.join(document))?;
        }
        Ok(ReleasePart { name, summary, root, elf })
    };

    build_command(workspace).run()?;
    let binary = workspace.binary_path("dist");
    let summary = "Measures what it costs to hand work over on this machine";
    let program = staged("handover", summary, "usr/bin/handover".to_owned())?;
    stage_program(&binary, &program.root)?;
    let summary = "C interface of handover's mechanisms and RPC";
    let elf = format!("usr/lib/libhandover.so.{VERSION}");
    let library = staged("libhandover-dev", summary, elf)?;
    capi::install(workspace, &library.root.join("usr"))?;
    let mut skipped = Vec::new();
    for package in [&program, &library] {
        pack_tar(package, "linux", &folder)?;
        for (kind, tool, pack) in PACKERS {
            match CommandLine::new(tool).args(["--version"]).succeeds() {
                true => pack(package, &folder)?,
                false => {
                    let name = &package.name;
                    skipped.push(format!("{name}.{kind}: {tool} is not installed"));
                }
            }
        }
    }
    if is_static {
        let binary = build_static_binary(workspace)?;
        fs::copy(binary, program.root.join("usr/bin/handover"))?;
        pack_tar(&program, "linux-static", &folder)?;
    }
    let bill = serde_json::to_string_pretty(&bill_of_materials(workspace)?)?;
    fs::write(folder.join(format!("handover-{VERSION}.cdx.json")), bill)?;
    let files = fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name()));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    files.sort();
    let sums = CommandLine::new("sha256sum").args(&files).current_dir(&folder).capture_stdout()?;
    fs::write(folder.join("SHA256SUMS"), sums)?;
    files.push("SHA256SUMS".into());
    Ok((files.into_iter().map(|name| folder.join(name)).collect(), skipped))
}

/// Returns the command that builds the binary of a release. The peers in C and C++ are left out:
/// the binary would otherwise contain whatever libraries the build machine has, and the list of
/// dependencies has crates only.
fn build_command(workspace: &Workspace) -> CommandLine {
    CommandLine::new("cargo build -p handover --profile dist")
        .env("HANDOVER_C_PEERS", "0")
        .current_dir(&workspace.root)
}

/// Builds a binary that contains the C library, and returns its path.
///
/// The C library is glibc. Musl's compiler lacks the kernel's headers, and a user of a binary with
/// musl would measure musl's malloc and memcpy.
fn build_static_binary(workspace: &Workspace) -> Result<PathBuf> {
    let target = format!("{ARCH}-unknown-linux-gnu");
    // With a target, so that the flag is not used for procedural macros, which are shared objects.
    // It is added to the flags of .cargo/config.toml.
    build_command(workspace)
        .args(["--config", "build.rustflags=['-Ctarget-feature=+crt-static']", "--target", &target])
        // Cargo takes flags from one source; these variables come before the configuration.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .run()?;
    let binary = workspace.target.join(target).join("dist/handover");
    ensure_static(&binary)?;
    Ok(binary)
}

/// Returns an error if an ELF file names an interpreter, the loader of its shared libraries.
fn ensure_static(file: &Path) -> Result<()> {
    let segments = CommandLine::new("readelf --segments --wide").args([file]).capture_stdout()?;
    ensure!(
        !segments.contains("INTERP"),
        "{} is not static: another `rustflags` setting hides that of this build; remove `target.*.rustflags` from \
         cargo's configuration, and the variables CARGO_TARGET_*_RUSTFLAGS",
        file.display()
    );
    Ok(())
}

/// Creates the files of the part `handover` below `root`: the binary, files that it prints, and
/// links. The links have the classic programs' names.
fn stage_program(binary: &Path, root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("usr/bin"))?;
    fs::copy(binary, root.join("usr/bin/handover"))?;
    write_printed_files(binary, &root.join("usr/share"))?;
    // Absolute links to the binary, some in the subfolders of the classic programs' build trees.
    let made = tempfile::tempdir()?;
    CommandLine::program(binary).args(["links"]).args([made.path()]).capture_stdout()?;
    let links = root.join(LINKS_FOLDER);
    fs::create_dir_all(&links)?;
    for link in fs::read_dir(made.path())? {
        let link = link?;
        if link.file_type()?.is_symlink() {
            symlink("../../../bin/handover", links.join(link.file_name()))?;
        }
    }
    Ok(())
}

/// Runs the binary to write [`PRINTED_FILES`] and the manual pages below `share`.
fn write_printed_files(binary: &Path, share: &Path) -> Result<()> {
    for (name, command) in PRINTED_FILES {
        let text = CommandLine::program(binary).args(*command).capture_stdout()?;
        ensure!(!text.is_empty(), "`handover {}` printed nothing", command.join(" "));
        let file = share.join(name);
        let parent = file.parent().unwrap_or(share);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create the folder {path}", path = parent.display()))?;
        fs::write(&file, text)
            .with_context(|| format!("cannot write {path}", path = file.display()))?;
    }
    let manual = share.join(MANUAL_FOLDER);
    let listed =
        CommandLine::program(binary).args(["man"]).arg_path("--dir", &manual).capture_stdout()?;
    ensure!(!listed.is_empty(), "`handover man --dir {}` printed nothing", manual.display());
    Ok(())
}

/// Packs the folder usr of a part as a tar archive. It can be unpacked anywhere.
fn pack_tar(package: &ReleasePart, system: &str, folder: &Path) -> Result<()> {
    let name = format!("{}-{VERSION}", package.name);
    let file = folder.join(format!("{name}-{ARCH}-{system}.tar.gz"));
    CommandLine::new("tar --create --gzip --sort=name --owner=0 --group=0 --numeric-owner")
        .args([format!("--transform=s,^usr,{name},")])
        .arg_path("--file", &file)
        .arg_path("--directory", &package.root)
        .args(["usr"])
        .run()
}

/// Makes a Debian package of a part. It depends on the packages of the shared libraries that the
/// part needs.
fn pack_deb(package: &ReleasePart, folder: &Path) -> Result<()> {
    let ReleasePart { name, summary, root, elf } = package;
    let work = tempfile::tempdir()?;
    // dpkg-shlibdeps looks for the source package below which it runs.
    fs::create_dir(work.path().join("debian"))?;
    let source = format!("Source: {name}\n\nPackage: {name}\nArchitecture: any\n");
    fs::write(work.path().join("debian/control"), source)?;
    let depends = CommandLine::new("dpkg-shlibdeps -O")
        .args([root.join(elf)])
        .current_dir(work.path())
        .capture_stdout()?;
    let depends = depends.trim().trim_start_matches("shlibs:Depends=");
    let architecture = CommandLine::new("dpkg --print-architecture").capture_stdout()?;
    let architecture = architecture.trim();
    let control = format!(
        "Package: {name}\nVersion: {VERSION}\nArchitecture: {architecture}\nDepends: {depends}\n\
         Maintainer: the handover authors\nDescription: {summary}\n"
    );
    fs::create_dir(root.join("DEBIAN"))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    let file = folder.join(format!("{name}_{VERSION}_{architecture}.deb"));
    CommandLine::new("dpkg-deb --root-owner-group --build").args([root, &file]).run()?;
    Ok(fs::remove_dir_all(root.join("DEBIAN"))?)
}

/// Makes an RPM package of a part. Rpmbuild finds the shared libraries that the part needs.
fn pack_rpm(package: &ReleasePart, folder: &Path) -> Result<()> {
    let ReleasePart { name, summary, root, .. } = package;
    let files = CommandLine::new("find usr ! -type d -printf /%p\\n").current_dir(root);
    let spec = format!(
        "Name: {name}\nVersion: {VERSION}\nRelease: 1\nSummary: {summary}\nLicense: MIT OR Apache-2.0\n\
         %description\n{summary}.\n%install\ncp -a '{}/usr' '%{{buildroot}}'\n%files\n{}",
        root.display(),
        files.capture_stdout()?
    );
    let work = tempfile::tempdir()?;
    let spec_file = work.path().join("package.spec");
    fs::write(&spec_file, spec)?;
    CommandLine::new("rpmbuild -bb --quiet")
        .args(["--define", &format!("_topdir {}", work.path().display())])
        .args(["--define", &format!("_rpmdir {}", folder.display())])
        .args(["--define", "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"])
        // The files are installed as they are: neither stripped nor compressed.
        .args(["--define", "__os_install_post %{nil}"])
        .args(["--define", "debug_package %{nil}"])
        .args(["--define", "_build_id_links none"])
        .args([spec_file])
        .run()
}

/// Returns the crates that the binary is linked with, as a CycloneDX document.
fn bill_of_materials(workspace: &Workspace) -> Result<Value> {
    let tree =
        CommandLine::new("cargo tree --locked -p handover -e normal,no-proc-macro --prefix none")
            .args(["--format", "{p}|{l}"])
            .current_dir(&workspace.root)
            .capture_stdout()?;
    // cargo marks repeated packages.
    let crates: BTreeSet<&str> = tree.lines().map(|it| it.trim_end_matches(" (*)")).collect();
    let components: Vec<Value> = crates.into_iter().filter_map(component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": { "component": { "type": "application", "name": "handover", "version": VERSION } },
        "components": components,
    }))
}

/// Converts a line `NAME vVERSION ...|LICENCE` of `cargo tree` to a component. Returns `None` for
/// other lines.
fn component(line: &str) -> Option<Value> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // Some crates have the older form of "OR".
    let licence = licence.replace('/', " OR ");
    Some(json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        "licenses": [{ "expression": licence }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_the_output_of_its_command() -> Result<()> {
        let folder = tempfile::tempdir()?;
        write_printed_files(Path::new("/bin/echo"), folder.path())?;
        let text = fs::read_to_string(folder.path().join("zsh/site-functions/_handover"))?;
        assert_eq!(text, "completions zsh\n");
        Ok(())
    }

    #[test]
    fn command_without_output_is_an_error() -> Result<()> {
        let folder = tempfile::tempdir()?;
        assert!(write_printed_files(Path::new("/bin/true"), folder.path()).is_err());
        Ok(())
    }

    #[test]
    fn dynamic_program_is_rejected_as_static_binary() -> Result<()> {
        let error = ensure_static(&std::env::current_exe()?).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("rustflags")));
        Ok(())
    }

    #[test]
    fn component_has_the_name_version_and_licence_of_its_crate() {
        let text = |line| component(line).map(|it| it.to_string());
        let expected = r#"{"licenses":[{"expression":"MIT OR Apache-2.0"}],"name":"memchr","purl":"pkg:cargo/memchr@2.8.3","type":"library","version":"2.8.3"}"#;
        assert_eq!(text("memchr v2.8.3|MIT/Apache-2.0").as_deref(), Some(expected));
        let own =
            component("handover v0.1.0 (/h/faces/cli)|(MIT OR ISC) AND Zlib").unwrap_or_default();
        assert_eq!(own["licenses"][0]["expression"], "(MIT OR ISC) AND Zlib");
        assert_eq!(component(""), None);
    }
}
