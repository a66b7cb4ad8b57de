//! Selection of benchmarks by pattern.

use crate::bench::Bench;
use globset::{Glob, GlobSet};
use handover_record::{ContenderKind, Spec};

/// Selected benchmark: its spec, its contenders, and the floors to measure with them.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Declaration of the benchmark.
    pub spec: &'static Spec,
    /// Contenders of the benchmark, in the order of the suite.
    pub contenders: Vec<&'static Bench>,
    /// Floors that the spec and its parts name: id, benchmark, and index of the part.
    pub floors: Vec<(&'static str, &'static Bench, usize)>,
}

/// Error for a pattern that selects nothing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectError {
    /// No id equals, starts with, or matches the pattern.
    #[error("{pattern}: no benchmark matches{hint}; `handover list` shows all ids")]
    Unknown {
        /// Pattern as the user wrote it.
        pattern: String,
        /// Suggestion of the nearest id; empty if none is similar.
        hint: String,
    },
    /// The pattern is an invalid glob.
    #[error("{pattern}: invalid glob: {why}; write a prefix of an id or a glob such as 'lock/*'")]
    Glob {
        /// Pattern as the user wrote it.
        pattern: String,
        /// Error of the glob parser.
        why: String,
    },
}

/// Returns the benchmarks that the patterns select, each once, in the order of the suite. Without a
/// pattern, returns those of the default run. A pattern is an id (of a spec or of one of its
/// figures), a prefix of ids, or a glob over ids. An id selects only itself, even if other ids
/// start with it.
///
/// # Errors
/// Fails if a pattern selects nothing; the error names the nearest id.
pub fn select(
    all: &[&'static [Bench]],
    patterns: &[String],
) -> Result<Vec<Selection>, SelectError> {
    let benches: Vec<&'static Bench> = all.iter().flat_map(|some| some.iter()).collect();
    let mut specs: Vec<&'static Spec> = Vec::new();
    for bench in &benches {
        if !specs.iter().any(|spec| spec.id == bench.spec().id) {
            specs.push(bench.spec());
        }
    }
    let mut wanted = vec![false; specs.len()];
    if patterns.is_empty() {
        for (wanted, spec) in wanted.iter_mut().zip(&specs) {
            *wanted = spec.ladder;
        }
    }
    for pattern in patterns {
        if pattern.is_empty() {
            // The empty prefix matches every id, but is more likely an unset variable.
            return Err(SelectError::Unknown { pattern: "''".to_string(), hint: String::new() });
        }
        let is_id = specs.iter().any(|spec| has_matching_id(spec, |id| id == pattern));
        let matches = if is_id { matches_only(pattern) } else { parse_pattern(pattern)? };
        let mut found = false;
        for (wanted, spec) in wanted.iter_mut().zip(&specs) {
            if has_matching_id(spec, &matches) {
                (*wanted, found) = (true, true);
            }
        }
        if !found {
            return Err(unknown_pattern_error(pattern, &specs));
        }
    }
    let wanted = specs.iter().zip(wanted).filter(|(_, wanted)| *wanted);
    Ok(wanted.map(|(spec, _)| selection(spec, &benches)).collect())
}

/// Predicate on the id of a benchmark or figure.
type Matcher = Box<dyn Fn(&str) -> bool>;

/// Returns `true` if `matches` accepts the id of the spec or of one of its figures.
fn has_matching_id(spec: &Spec, matches: impl Fn(&str) -> bool) -> bool {
    matches(spec.id) || spec.figure_ids().iter().any(|id| matches(id))
}

/// Returns a matcher that accepts only this id.
fn matches_only(id: &str) -> Matcher {
    let id = id.to_string();
    Box::new(move |other| other == id)
}

/// Parses a pattern: a prefix of an id, or a glob.
fn parse_pattern(pattern: &str) -> Result<Matcher, SelectError> {
    if !pattern.contains(['*', '?', '[', '{']) {
        let prefix = pattern.to_string();
        return Ok(Box::new(move |id| id.starts_with(&prefix)));
    }
    // Unlike a `GlobMatcher`, a `GlobSet` rejects a glob that is too large or too deep for an
    // automaton.
    let set = Glob::new(pattern).and_then(|glob| GlobSet::builder().add(glob).build());
    let glob = set.map_err(|refused| SelectError::Glob {
        pattern: pattern.to_string(),
        why: refused.kind().to_string(),
    })?;
    Ok(Box::new(move |id| glob.is_match(id)))
}

/// Minimum similarity of a name that is suggested for a misspelt pattern. Similarity is 1 minus the
/// edits per character.
const SUGGESTED_SIMILARITY_MIN: f64 = 0.6;
/// Minimum length of a pattern for which ids that contain it are suggested.
const CONTAINED_CHARS_MIN: usize = 3;
/// Maximum number of suggested ids that contain a pattern.
const CONTAINED_IDS_MAX: usize = 3;

/// Creates the error for a pattern that matches no benchmark. It suggests similar ids.
fn unknown_pattern_error(pattern: &str, specs: &[&'static Spec]) -> SelectError {
    let hint = match pattern.contains(',') && !pattern.contains('{') {
        true => {
            let patterns = pattern.replace(',', " ");
            format!("; separate patterns by spaces: {patterns}", patterns = patterns.trim())
        }
        false => suggestion(pattern, specs),
    };
    SelectError::Unknown { pattern: pattern.to_string(), hint }
}

/// Returns the end of an error message that suggests ids. They are similar to the pattern or
/// contain it; the text is empty if there are none.
fn suggestion(pattern: &str, specs: &[&'static Spec]) -> String {
    let ids = || specs.iter().map(|spec| spec.id);
    if pattern.len() >= CONTAINED_CHARS_MIN {
        let within: Vec<&str> =
            ids().filter(|id| id.contains(pattern)).take(CONTAINED_IDS_MAX).collect();
        if !within.is_empty() {
            return format!(", did you mean {ids}?", ids = within.join(" or "));
        }
    }
    let groups = ids().filter_map(|id| Some(&id[..=id.find('/')?]));
    let similarity = |name: &str| {
        let name = if pattern.contains('/') { name } else { name.trim_end_matches('/') };
        strsim::normalized_damerau_levenshtein(pattern, name)
    };
    // A pattern much longer than a name is unlike it; the comparison takes time by the product of
    // the lengths.
    let near = ids()
        .chain(groups)
        .filter(|name| pattern.len() <= 4 * name.len())
        .map(|name| (similarity(name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((similarity, name)) if similarity >= SUGGESTED_SIMILARITY_MIN => {
            format!(", did you mean {name}?")
        }
        _ => String::new(),
    }
}

/// Returns the selection of a benchmark: its contenders, and the floors that its spec names.
fn selection(spec: &'static Spec, benches: &[&'static Bench]) -> Selection {
    let contenders = benches.iter().copied().filter(|it| it.spec().id == spec.id).collect();
    let mut named: Vec<&'static str> = spec.floor.into_iter().collect();
    named.extend(spec.parts.iter().filter_map(|part| part.floor));
    named.extend(spec.floors);
    named.dedup();
    let mut floors: Vec<(&'static str, &'static Bench, usize)> = Vec::new();
    for id in named {
        if floors.iter().any(|floor| floor.0 == id) {
            continue;
        }
        if let Some((bench, part)) = find_figure(id, benches)
            && bench.spec().id != spec.id
        {
            floors.push((id, bench, part));
        }
    }
    Selection { spec, contenders, floors }
}

/// Finds the floor `id`: its id, its benchmark, and the index of the benchmark's part.
pub(crate) fn find_floor(
    id: &str,
    benches: &[&'static Bench],
) -> Option<(&'static str, &'static Bench, usize)> {
    let (bench, part) = find_figure(id, benches)?;
    // Only a benchmark without parts can be a floor of others.
    (bench.spec().id == id).then_some((bench.spec().id, bench, part))
}

/// Returns a benchmark that measures the figure `id`, and the index of the figure's part. A floor's
/// benchmark is preferred.
fn find_figure(id: &str, benches: &[&'static Bench]) -> Option<(&'static Bench, usize)> {
    let yields = |bench: &&'static Bench| {
        let part = bench.spec().figure_ids().iter().position(|it| it == id)?;
        Some((*bench, part))
    };
    let is_other = |it: &(&Bench, usize)| it.0.contender().kind != ContenderKind::Floor;
    benches.iter().filter_map(yields).min_by_key(is_other)
}
