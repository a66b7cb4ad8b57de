use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::{Crate, ExceptionLists, Manifest, Source, Violation, WORKSPACE_EXCEPTIONS};

/// Names of folders that contain no sources.
const SKIPPED_FOLDERS: [&str; 4] = [".git", "target", "dist", "node_modules"];

/// Texts of a workspace's files, by path, with the exceptions to the rules.
///
/// Paths are relative to the workspace root and use `/`. A file that is not UTF-8 is present with
/// an empty text.
#[derive(Clone, Debug)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Exceptions to the rules, each with its reason.
    pub lists: ExceptionLists,
}

impl Tree {
    /// Creates a tree from pairs of path and text, without exceptions to the rules.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self { files: files.collect(), lists: ExceptionLists::default() }
    }

    /// Reads the files of the workspace at `root`. They are the files that git tracks, and
    /// untracked files that git does not ignore. If git cannot list them, reads all files except
    /// build output.
    ///
    /// # Errors
    /// An I/O error if a folder or an existing file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let paths = match git_paths(root) {
            Some(paths) => paths,
            None => all_paths(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            match fs::read(root.join(&path)) {
                Ok(bytes) => {
                    files.insert(path, String::from_utf8(bytes).unwrap_or_default());
                }
                // In the index but not on disk, or a link to a folder: there is no file to read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { files, lists: WORKSPACE_EXCEPTIONS })
    }

    /// Returns the text of the file at `path`; `None` if the file does not exist.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Iterates over the path and the text of every file.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns `true` if a file exists at `path` or in the folder `path`.
    pub fn contains_path(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// Inserts or replaces the file at `path`.
    pub fn insert(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.files.insert(path.into(), text.into());
    }

    /// Removes the file at `path`, and returns its text; `None` if the file did not exist.
    pub fn remove(&mut self, path: &str) -> Option<String> {
        self.files.remove(path)
    }

    /// Iterates over every Rust source file.
    pub fn sources(&self) -> impl Iterator<Item = Source<'_>> {
        self.files()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| Source::new(path, text))
    }

    /// Parses the workspace's root manifest.
    pub fn root_manifest(&self) -> Manifest {
        Manifest::parse("Cargo.toml", self.text("Cargo.toml").unwrap_or_default())
    }

    /// Returns every crate of the workspace. A crate is a folder with a manifest, except the root
    /// and the folders that the workspace excludes.
    pub fn crates(&self) -> Vec<Crate> {
        let root = self.root_manifest();
        let excluded: Vec<&str> =
            root.array_values("workspace.exclude").map(|(folder, _)| folder).collect();
        self.files()
            .filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, path, text)))
            .filter(|(folder, ..)| {
                !excluded.iter().any(|out| Path::new(folder).starts_with(Path::new(out)))
            })
            .map(|(folder, path, text)| Crate::new(folder, Manifest::parse(path, text)))
            .collect()
    }

    /// Creates a violation for an unneeded entry in lists.rs. Its line is that of the entry.
    pub fn unneeded_entry(&self, rule: &'static str, entry: &str, what: &str) -> Violation {
        const LISTS: &str = "tidy/src/lists.rs";
        let quoted = format!("\"{entry}\"");
        let lines = self.text(LISTS).unwrap_or_default().lines();
        let line = lines.zip(1..).find(|(text, _)| text.contains(&quoted)).map_or(1, |(_, n)| n);
        Violation::new(rule, LISTS, line, format!("`{entry}` {what}"), "remove it from the list")
    }
}

/// Returns the paths of the files that git does not ignore; `None` if git cannot list them.
fn git_paths(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut paths: Vec<String> =
        text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

/// Returns the paths of all files below `root`, except in [`SKIPPED_FOLDERS`].
fn all_paths(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            if entry.file_type()?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) && !name.starts_with("target-") {
                    folders.push(path);
                }
            } else {
                paths.push(path.to_string_lossy().into_owned());
            }
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_exists_if_a_file_in_it_exists() {
        let tree = Tree::new([("a/b.md", ""), ("a-b/c.md", "")]);
        assert!(
            tree.contains_path("a")
                && tree.contains_path("a/")
                && tree.contains_path("a/b.md")
                && tree.contains_path("a-b")
        );
        assert!(
            !tree.contains_path("a/b") && !tree.contains_path("b") && !tree.contains_path("a-")
        );
    }

    #[test]
    fn without_git_all_files_but_build_output_are_read() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        fs::create_dir_all(root.path().join("target/debug"))?;
        fs::create_dir_all(root.path().join("base/src"))?;
        fs::write(root.path().join("target/debug/x.rs"), "")?;
        fs::write(root.path().join("base/src/lib.rs"), "//! Base.")?;
        fs::write(root.path().join("picture.png"), [0xff, 0xfe])?;
        assert_eq!(all_paths(root.path())?, ["base/src/lib.rs", "picture.png"]);
        let tree = Tree::read(root.path())?;
        assert_eq!(tree.text("base/src/lib.rs"), Some("//! Base."));
        assert_eq!(tree.text("picture.png"), Some(""));
        Ok(())
    }

    #[test]
    fn excluded_folders_have_no_crates_of_the_workspace() {
        let tree = Tree::new([
            ("Cargo.toml", "[workspace]\nexclude = [\"fuzz\"]\n"),
            ("fuzz/Cargo.toml", "[package]\nname = \"fuzz\"\n"),
            ("base/Cargo.toml", "[package]\nname = \"handover-base\"\n"),
        ]);
        let names: Vec<String> = tree.crates().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["handover-base"]);
    }
}
