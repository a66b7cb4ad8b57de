//! Cargo manifests, flattened to dotted keys with their line numbers.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::source::line_at;

/// Cargo manifest as a flat list of values.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Path relative to the workspace root.
    pub path: String,
    /// All values that are not tables, in the order of the file.
    pub entries: Vec<ManifestEntry>,
    /// Line and message of the syntax error; `None` for a valid manifest.
    pub error: Option<(usize, String)>,
}

/// Value in a Cargo manifest, with its keys and its line.
#[derive(Clone, Debug)]
pub struct ManifestEntry {
    /// Keys on the path to the value. All values of an array have the keys of the array.
    pub keys: Vec<String>,
    /// Value as text: strings without quotes, numbers and booleans as printed.
    pub value: String,
    /// Line of the value, counted from 1.
    pub line: usize,
}

/// Dependency of a crate, of any kind and for any target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Name of the package, even if the crate renames the dependency.
    pub package: String,
    /// Name of the table: `dependencies`, `dev-dependencies` or `build-dependencies`.
    pub kind: String,
    /// `true` if the dependency has `workspace = true`: version and source are in the root
    /// manifest.
    pub is_inherited: bool,
    /// Line of the dependency's name.
    pub line: usize,
}

/// Crate of the workspace.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Folder of the crate, relative to the workspace root.
    pub folder: String,
    /// Package name; empty if the manifest has none.
    pub name: String,
    /// Manifest of the crate.
    pub manifest: Manifest,
    /// Dependencies of the crate.
    pub dependencies: Vec<Dependency>,
}

impl Manifest {
    /// Parses the manifest `text`. Text that is not TOML yields no entries, and `error` is set.
    pub fn parse(path: &str, text: &str) -> Self {
        let mut entries = Vec::new();
        let error = match DeTable::parse(text) {
            Ok(table) => {
                flatten_table(text, table.get_ref(), &mut Vec::new(), &mut entries);
                None
            }
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start.min(text.len()));
                Some((line_at(text, offset), error.message().to_owned()))
            }
        };
        Self { path: path.to_owned(), entries, error }
    }

    /// Returns the value at a dotted key, with its line. Returns the first value of an array, and
    /// `None` if the key is missing.
    pub fn get(&self, key: &str) -> Option<(&str, usize)> {
        self.array_values(key).next()
    }

    /// Returns all values of the array at a dotted key, each with its line.
    pub fn array_values(&self, key: &str) -> impl Iterator<Item = (&str, usize)> {
        let key: Vec<String> = key.split('.').map(str::to_owned).collect();
        let found = self.entries.iter().filter(move |entry| entry.keys == key);
        found.map(|entry| (entry.value.as_str(), entry.line))
    }

    /// Returns the keys of the table at a dotted key, each with its line.
    pub fn members_of(&self, table: &str) -> Vec<(&str, usize)> {
        let table: Vec<&str> = table.split('.').collect();
        let mut members: Vec<(&str, usize)> = Vec::new();
        for entry in &self.entries {
            let inside =
                entry.keys.len() > table.len() && table.iter().eq(&entry.keys[..table.len()]);
            let Some(name) = entry.keys.get(table.len()).filter(|_| inside) else { continue };
            match members.last_mut() {
                Some((last, line)) if last == name => *line = (*line).min(entry.line),
                _ => members.push((name, entry.line)),
            }
        }
        members
    }

    /// Returns the dependencies of all tables for dependencies.
    fn dependencies(&self) -> Vec<Dependency> {
        let mut found: Vec<Dependency> = Vec::new();
        let mut last: Option<&[String]> = None;
        for entry in &self.entries {
            let Some(at) = entry.keys.iter().position(|key| key.ends_with("dependencies")) else {
                continue;
            };
            let table =
                matches!(entry.keys[..at].first().map(String::as_str), None | Some("target"));
            let Some(name) = entry.keys.get(at + 1).filter(|_| table) else { continue };
            let whose = &entry.keys[..at + 2];
            if last != Some(whose) {
                last = Some(whose);
                found.push(Dependency {
                    package: name.clone(),
                    kind: entry.keys[at].clone(),
                    is_inherited: false,
                    line: entry.line,
                });
            }
            let Some(dependency) = found.last_mut() else { continue };
            dependency.line = dependency.line.min(entry.line);
            match entry.keys.get(at + 2).map(String::as_str) {
                Some("workspace") => dependency.is_inherited = entry.value == "true",
                Some("package") => dependency.package.clone_from(&entry.value),
                _ => {}
            }
        }
        found
    }
}

impl Crate {
    /// Reads the name and the dependencies of the crate in `folder` from its manifest.
    pub fn new(folder: &str, manifest: Manifest) -> Self {
        let name = manifest.get("package.name").map_or_else(String::new, |(name, _)| name.into());
        let dependencies = manifest.dependencies();
        Self { folder: folder.to_owned(), name, manifest, dependencies }
    }

    /// Returns the folder without its first component, with `-` for `/`, as the crate's short name.
    /// A subcrate's name thus starts with the name of its parent crate.
    pub fn short_name(&self) -> String {
        self.folder.split_once('/').map_or(&*self.folder, |(_, rest)| rest).replace('/', "-")
    }

    /// Returns the folder of the parent crate, if any. It is `mechanisms/probe` for
    /// `mechanisms/probe/macros`.
    pub fn parent(&self) -> Option<&str> {
        self.folder.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| parent.contains('/'))
    }
}

/// Appends the values in a table to `out`, including those in nested tables.
fn flatten_table(
    text: &str,
    table: &DeTable<'_>,
    keys: &mut Vec<String>,
    out: &mut Vec<ManifestEntry>,
) {
    let mut members: Vec<_> = table.iter().collect();
    members.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in members {
        keys.push(key.get_ref().to_string());
        flatten_value(text, key.span().start, value, keys, out);
        keys.pop();
    }
}

/// Appends a value to `out`. For an array or a table, appends each value in it.
fn flatten_value(
    text: &str,
    key_offset: usize,
    value: &Spanned<DeValue<'_>>,
    keys: &mut Vec<String>,
    out: &mut Vec<ManifestEntry>,
) {
    let shown = match value.get_ref() {
        DeValue::Table(table) => return flatten_table(text, table, keys, out),
        DeValue::Array(array) => {
            for one in array.iter() {
                flatten_value(text, one.span().start, one, keys, out);
            }
            return;
        }
        DeValue::String(string) => string.to_string(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        DeValue::Integer(integer) => integer.as_str().to_owned(),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Datetime(datetime) => datetime.to_string(),
    };
    out.push(ManifestEntry { keys: keys.clone(), value: shown, line: line_at(text, key_offset) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcrate_name_begins_with_the_parent_name() {
        for (folder, name, parent) in [
            ("base", "base", None),
            ("mechanisms/probe", "probe", None),
            ("mechanisms/probe/macros", "probe-macros", Some("mechanisms/probe")),
        ] {
            let one = Crate::new(folder, Manifest::parse("Cargo.toml", ""));
            assert_eq!((one.short_name().as_str(), one.parent()), (name, parent), "{folder}");
        }
    }

    const TEXT: &str = r#"
[package]
name = "handover-lock"
version.workspace = true

[dependencies]
handover-base.workspace = true
other = { package = "handover-ring", workspace = true }

[target.'cfg(handover_loom)'.dev-dependencies]
loom = "0.7"

[workspace.dependencies]
anyhow = "1"
"#;

    #[test]
    fn keys_are_found_with_their_lines() {
        let manifest = Manifest::parse("Cargo.toml", TEXT);
        assert_eq!(manifest.get("package.name"), Some(("handover-lock", 3)));
        assert_eq!(manifest.get("package.version.workspace"), Some(("true", 4)));
        assert_eq!(manifest.get("package.edition"), None);
    }

    #[test]
    fn each_member_of_a_table_is_found_once() {
        let manifest = Manifest::parse("Cargo.toml", TEXT);
        assert_eq!(manifest.members_of("dependencies"), [("handover-base", 7), ("other", 8)]);
        assert_eq!(manifest.members_of("workspace.dependencies"), [("anyhow", 14)]);
        assert_eq!(manifest.members_of("workspace.lints"), []);
    }

    #[test]
    fn dependencies_of_every_kind_are_found_with_their_package_names() {
        let krate = Crate::new("mechanisms/lock", Manifest::parse("Cargo.toml", TEXT));
        let found: Vec<_> = krate
            .dependencies
            .iter()
            .map(|one| (one.package.as_str(), one.kind.as_str(), one.is_inherited, one.line))
            .collect();
        let expected = [
            ("handover-base", "dependencies", true, 7),
            ("handover-ring", "dependencies", true, 8),
            ("loom", "dev-dependencies", false, 11),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn syntax_error_has_its_line() {
        let manifest = Manifest::parse("Cargo.toml", "[package]\nname = \n");
        assert_eq!(manifest.error.map(|(line, _)| line), Some(2));
    }
}
