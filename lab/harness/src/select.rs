//! Which benchmarks a pattern means.

use crate::bench::Bench;
use globset::{Glob, GlobSet};
use handover_record::Spec;

/// A spec with its contenders, and the floors that are measured in the same blocks.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The declaration.
    pub spec: &'static Spec,
    /// Its contenders, in the order of the suite.
    pub contenders: Vec<&'static Bench>,
    /// What its floors and its parts' floors name: the benchmark, and the index of the part.
    pub floors: Vec<(&'static str, &'static Bench, usize)>,
}

/// A pattern that means nothing here.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectError {
    /// No id begins so, or matches so.
    #[error("{pattern}: no benchmark by this name{hint}; `handover list` shows them all")]
    Unknown {
        /// The pattern.
        pattern: String,
        /// The nearest id.
        hint: String,
    },
    /// Not a glob.
    #[error("{pattern}: not a pattern: {why}; write a prefix of an id or a glob such as 'lock/*'")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The benchmarks that the patterns mean, each once, in the order of the suite; without a pattern,
/// those on the ladder. A pattern is an id (of the spec's or of one of its figures'), a prefix of ids, or a
/// glob over them; an id means itself alone, though others begin with it.
///
/// # Errors
/// A pattern that means nothing: with the nearest id.
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
            // A prefix of everything, but more likely a variable that was not set.
            return Err(SelectError::Unknown { pattern: "''".to_string(), hint: String::new() });
        }
        let is_id = specs.iter().any(|spec| is_named(spec, |id| id == pattern));
        let matches = if is_id { exactly(pattern) } else { matcher(pattern)? };
        let mut found = false;
        for (wanted, spec) in wanted.iter_mut().zip(&specs) {
            if is_named(spec, &matches) {
                (*wanted, found) = (true, true);
            }
        }
        if !found {
            return Err(unknown(pattern, &specs));
        }
    }
    let wanted = specs.iter().zip(wanted).filter(|(_, wanted)| *wanted);
    Ok(wanted.map(|(spec, _)| selection(spec, &benches)).collect())
}

/// Whether an id is meant.
type Matcher = Box<dyn Fn(&str) -> bool>;

/// Whether the spec's id or that of one of its figures is meant.
fn is_named(spec: &Spec, matches: impl Fn(&str) -> bool) -> bool {
    matches(spec.id) || spec.figure_ids().iter().any(|id| matches(id))
}

fn exactly(id: &str) -> Matcher {
    let id = id.to_string();
    Box::new(move |other| other == id)
}

fn matcher(pattern: &str) -> Result<Matcher, SelectError> {
    if !pattern.contains(['*', '?', '[', '{']) {
        let prefix = pattern.to_string();
        return Ok(Box::new(move |id| id.starts_with(&prefix)));
    }
    // A set of one: unlike a matcher, it refuses a glob that is too large or too deep for an automaton.
    let set = Glob::new(pattern).and_then(|glob| GlobSet::builder().add(glob).build());
    let glob = set.map_err(|refused| SelectError::Glob {
        pattern: pattern.to_string(),
        why: refused.kind().to_string(),
    })?;
    Ok(Box::new(move |id| glob.is_match(id)))
}

fn unknown(pattern: &str, specs: &[&'static Spec]) -> SelectError {
    let near = specs
        .iter()
        .map(|spec| (strsim::jaro_winkler(pattern, spec.id), spec.id))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match near {
        Some((likeness, id)) if likeness > 0.6 => format!(", did you mean {id}?"),
        _ => String::new(),
    };
    SelectError::Unknown { pattern: pattern.to_string(), hint }
}

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
        if let Some((bench, part)) = figure(id, benches)
            && bench.spec().id != spec.id
        {
            floors.push((id, bench, part));
        }
    }
    Selection { spec, contenders, floors }
}

/// A figure that stands as a floor beside others, with its id as it stays.
pub(crate) fn floor(
    id: &str,
    benches: &[&'static Bench],
) -> Option<(&'static str, &'static Bench, usize)> {
    let (bench, part) = figure(id, benches)?;
    // One without parts, as floors are.
    (bench.spec().id == id).then_some((bench.spec().id, bench, part))
}

/// The first contender that yields the figure of this id, and the index of its part.
fn figure(id: &str, benches: &[&'static Bench]) -> Option<(&'static Bench, usize)> {
    benches.iter().copied().find_map(|bench| {
        let part = bench.spec().figure_ids().iter().position(|it| it == id)?;
        Some((bench, part))
    })
}
