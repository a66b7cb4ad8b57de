//! Import cycles: no more than two files of a crate may import one another.
//!
//! Definition: file A imports file B if a path in A's code outside of tests, in a `use` statement
//! or starting with `crate::`, `self::` or `super::` elsewhere, names an item that B defines. A
//! path through a re-export counts for the file at its end, so a `lib.rs` or `mod.rs` that
//! re-exports its children is in no cycle by that alone. A `mod` declaration is no import. Methods
//! called through a value and items in the expansion of a macro are not seen. A cycle is a strongly
//! connected component of this graph.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Source, Tree, Violation, words};

/// Name of the rule.
pub const RULE_NAME: &str = "circles";

/// Maximum number of files that may import one another.
pub const CYCLE_FILES_MAX: usize = 2;

/// Maximum number of re-exports that are followed to resolve a path.
const REEXPORTS_MAX: usize = 8;

/// Finds import cycles of more than two files in each crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let crates = tree.crates();
    crates
        .iter()
        .flat_map(|one| import_cycles(tree, &one.folder))
        .map(|it| violation(&it))
        .collect()
}

/// Creates the violation at the first import of a cycle.
fn violation(cycle: &ImportCycle) -> Violation {
    let names: Vec<String> = cycle.iter().map(|(path, line)| format!("{path}:{line}")).collect();
    Violation::new(
        RULE_NAME,
        &cycle[0].0,
        cycle[0].1,
        format!(
            "{count} files import one another: {paths}",
            count = cycle.len(),
            paths = names.join(", ")
        ),
        "move what they share to a file that imports none of them; pass the parts that a function needs, or \
         return what its caller is to do",
    )
}

/// Paths of the files in an import cycle, sorted. Each has the line on which the file imports
/// another one of the cycle.
type ImportCycle = Vec<(String, usize)>;

/// Returns the import cycles of more than two files in the crate at `folder`.
fn import_cycles(tree: &Tree, folder: &str) -> Vec<ImportCycle> {
    let modules = Modules::new(tree, folder);
    let edges: BTreeMap<&str, BTreeMap<String, usize>> =
        modules.files.values().map(|file| (file.path, modules.imports(file))).collect();
    let reached = |from: &str| {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = left.pop() {
            for to in edges[next.as_str()].keys() {
                if reached.insert(to.clone()) {
                    left.push(to.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<String>> =
        edges.keys().map(|&path| (path, reached(path))).collect();
    let mut found = BTreeSet::new();
    for (&path, its) in &reached {
        let cycle: Vec<&str> =
            its.iter().map(String::as_str).filter(|to| reached[to].contains(path)).collect();
        if cycle.len() > CYCLE_FILES_MAX {
            found.insert(cycle);
        }
    }
    let line = |path: &str, cycle: &[&str]| {
        let lines = edges[path].iter().filter(|it| cycle.contains(&it.0.as_str()));
        lines.map(|it| *it.1).min().unwrap_or(1)
    };
    found
        .iter()
        .map(|cycle| cycle.iter().map(|it| ((*it).to_owned(), line(it, cycle))).collect())
        .collect()
}

/// Path of a module in its crate; empty for the root module.
type ModulePath = Vec<String>;

/// Source file of a crate, with the paths of items that its code names.
struct File<'t> {
    path: &'t str,
    /// Paths of items in the code without tests. Each has the module to which it is relative, and
    /// its line.
    item_paths: Vec<(Vec<String>, ModulePath, usize)>,
    /// Number of entries at the start of `item_paths` that are from `use` statements.
    uses_count: usize,
}

/// Source files of a crate, by module path.
struct Modules<'t> {
    files: BTreeMap<ModulePath, File<'t>>,
}

impl<'t> Modules<'t> {
    fn new(tree: &'t Tree, folder: &str) -> Self {
        let sources = format!("{folder}/src/");
        let root = if tree.contains_path(&format!("{sources}lib.rs")) { "lib" } else { "main" };
        let mut files = BTreeMap::new();
        let of_crate = |path: &str| path.starts_with(&sources) && path.ends_with(".rs");
        for (path, text) in tree.files().filter(|it| of_crate(it.0)) {
            let source = Source::new(path, text);
            let path = source.path[sources.len()..].trim_end_matches(".rs");
            let mut module: ModulePath = path.split('/').map(str::to_owned).collect();
            if path == root || path.ends_with("/mod") {
                module.pop();
            }
            files.insert(module.clone(), File::new(&source, &module));
        }
        Self { files }
    }

    /// Returns the paths of the files that `file` imports, each with the line of the first import.
    fn imports(&self, file: &File<'t>) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for (path, within, line) in &file.item_paths {
            let Some(to) = self.defining_file(path, within, REEXPORTS_MAX) else { continue };
            if to != file.path {
                found.entry(to.to_owned()).or_insert(*line);
            }
        }
        found
    }

    /// Returns the source file that defines the item at a path. Returns `None` if another crate
    /// defines the item.
    fn defining_file(
        &self,
        path: &[String],
        within: &ModulePath,
        reexports_max: usize,
    ) -> Option<&'t str> {
        let (mut module, mut rest) = match path.first()?.as_str() {
            "crate" => (ModulePath::new(), &path[1..]),
            "self" => (within.clone(), &path[1..]),
            "super" => (within[..within.len().checked_sub(1)?].to_vec(), &path[1..]),
            name => {
                let child = [&within[..], &[name.to_owned()]].concat();
                let is_known = self.files.contains_key(&child);
                let is_imported = self.imported_path(name, within).is_some();
                (is_known || is_imported).then_some((within.clone(), path))?
            }
        };
        while let Some((next, behind)) = rest.split_first() {
            let child = [&module[..], std::slice::from_ref(next)].concat();
            match next.as_str() {
                "super" => drop(module.pop()?),
                _ if self.files.contains_key(&child) => module = child,
                _ => break,
            }
            rest = behind;
        }
        // An inline module has no file of its own.
        let mut file = self.files.get(&module);
        while file.is_none() {
            module.pop()?;
            file = self.files.get(&module);
        }
        let file = file?;
        let reexport = rest.first().and_then(|name| self.imported_path(name, &module));
        match reexport.filter(|_| reexports_max > 0) {
            Some(to) if to != path => self.defining_file(to, &module, reexports_max - 1),
            _ => Some(file.path),
        }
    }

    /// Returns the path from which a module imports `name`. Returns `None` if the module does not
    /// import it.
    fn imported_path(&self, name: &str, module: &ModulePath) -> Option<&[String]> {
        let file = self.files.get(module)?;
        let uses = file.item_paths[..file.uses_count].iter().map(|it| &it.0[..]);
        uses.filter(|path| path.len() > 1).find(|path| path.last().is_some_and(|it| it == name))
    }
}

impl<'t> File<'t> {
    fn new(source: &Source<'t>, module: &ModulePath) -> Self {
        let split = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
        // `self` at the end of a tree stands for the module itself.
        let paths = source.imports().into_iter();
        let mut paths: Vec<(Vec<String>, usize)> = paths
            .map(|(path, line)| (split(path.strip_suffix("::self").unwrap_or(&path)), line))
            .collect();
        let uses_count = paths.iter().filter(|it| !source.is_test(it.1)).count();
        let uses = source.use_ranges();
        for start in ["crate::", "self::", "super::"] {
            for at in words(&source.code, start) {
                let in_use = uses.iter().any(|&(start, end)| start <= at && at < end);
                if in_use || source.code[..at].ends_with("::") {
                    continue;
                }
                let end =
                    source.code[at..].find(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
                let path = &source.code[at..end.map_or(source.code.len(), |end| at + end)];
                paths.push((split(path.trim_end_matches(':')), source.line_at(at)));
            }
        }
        paths.retain(|it| !source.is_test(it.1));
        let inline = inline_modules(&source.code);
        let within = |line: usize| {
            let names =
                inline.iter().filter(|it| it.1 <= line && line <= it.2).map(|it| it.0.clone());
            module.iter().cloned().chain(names).collect()
        };
        let paths = paths.into_iter().map(|(path, line)| (path, within(line), line)).collect();
        Self { path: source.path, item_paths: paths, uses_count }
    }
}

/// Returns the name, the first line and the last line of each inline module in the code.
fn inline_modules(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    let mut open: Vec<(Option<String>, usize)> = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut name = match words.iter().position(|&it| it == "mod") {
            Some(at) if words.get(at + 2) == Some(&"{") => Some(words[at + 1].to_owned()),
            _ => None,
        };
        for c in text.chars() {
            match c {
                '{' => open.push((name.take(), line)),
                '}' => {
                    if let Some((Some(name), first)) = open.pop() {
                        found.push((name, first, line));
                    }
                }
                _ => {}
            }
        }
    }
    found.sort_by_key(|it| it.1);
    found
}
