//! `handover links DIR`: symbolic links to this binary by the classic programs' names, and by
//! cargo's name for `handover bench`.

use crate::app::LinksArgs;
use crate::exit::to_usage_error;
use anyhow::Context;
use handover_classic::names::{CARGO_SUBCOMMAND, CLASSIC_PROGRAMS, ClassicProgram};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

pub fn links(args: &LinksArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let binary = std::env::current_exe().context("cannot find the path of this binary")?;
    let folder = &args.folder;
    if folder.exists() && !folder.is_dir() {
        return Err(to_usage_error(format!(
            "{path}: not a folder; name a folder",
            path = folder.display()
        )));
    }
    let paths: Vec<String> = CLASSIC_PROGRAMS
        .iter()
        .flat_map(ClassicProgram::link_paths)
        .chain([CARGO_SUBCOMMAND.to_string()])
        .collect();
    // Everything is checked before anything is created: a file that is not a link is never
    // replaced, and an error leaves no links behind.
    for path in &paths {
        let link = folder.join(path);
        if link.symlink_metadata().is_ok_and(|it| !it.is_symlink()) {
            let shown = link.display();
            return Err(to_usage_error(format!(
                "{shown}: a file with this name exists; choose another folder"
            )));
        }
    }
    fs::create_dir_all(folder).map_err(|error| {
        to_usage_error(format!(
            "cannot create {path}: {error}; name another folder",
            path = folder.display()
        ))
    })?;
    for path in &paths {
        make_link(&folder.join(path), &binary)?;
    }
    let count = paths.len();
    let folders: BTreeSet<&str> =
        paths.iter().filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
    let folders = folders.into_iter().collect::<Vec<_>>().join(", ");
    let below = if folders.is_empty() { folders } else { format!(" and its folders {folders}") };
    writeln!(out, "{count} links to {} in {}{below}", binary.display(), folder.display())?;
    Ok(())
}

/// Creates a link to the binary; replaces an existing link.
fn make_link(link: &Path, binary: &Path) -> anyhow::Result<()> {
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent).with_context(|| {
            format!("cannot create the folder {folder}", folder = parent.display())
        })?;
    }
    match fs::remove_file(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot replace {link}", link = link.display()));
        }
        _ => {}
    }
    symlink(binary, link)
        .with_context(|| format!("cannot create the link {link}", link = link.display()))
}
