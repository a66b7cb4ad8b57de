//! Comparison of the functions of two traces.

use crate::statistics::FunctionStatistics;
use serde::Serialize;
use std::collections::BTreeMap;

/// Statistics of one function, or mark, in two traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FunctionComparison {
    /// Name of the function or mark.
    pub name: String,
    /// Statistics in the first trace; `None` if the trace has no event of this name.
    pub before: Option<FunctionStatistics>,
    /// Statistics in the second trace; `None` if the trace has no event of this name.
    pub after: Option<FunctionStatistics>,
}

impl FunctionComparison {
    /// Returns the change of the function's self time in ns.
    #[must_use]
    pub fn self_time_change_ns(&self) -> i128 {
        let self_ns = |side: &Option<FunctionStatistics>| side.as_ref().map_or(0, |it| it.self_ns);
        i128::from(self_ns(&self.after)) - i128::from(self_ns(&self.before))
    }
}

/// Pairs the functions of two traces by name. The greatest change of self time, in either
/// direction, comes first.
///
/// ```
/// # fn functions(_: &str) -> Vec<handover_trace::FunctionStatistics> { Vec::new() }
/// let compared = handover_trace::compare_functions(functions("old.trace"), functions("new.trace"));
/// assert!(compared.is_sorted_by_key(|it| std::cmp::Reverse(it.self_time_change_ns().abs())));
/// ```
#[must_use]
pub fn compare_functions(
    before: Vec<FunctionStatistics>,
    after: Vec<FunctionStatistics>,
) -> Vec<FunctionComparison> {
    let mut by_name: BTreeMap<String, [Option<FunctionStatistics>; 2]> = BTreeMap::new();
    for (side, functions) in [before, after].into_iter().enumerate() {
        for function in functions {
            let name = function.name.clone();
            by_name.entry(name).or_default()[side] = Some(function);
        }
    }
    let mut compared: Vec<FunctionComparison> = by_name
        .into_iter()
        .map(|(name, [before, after])| FunctionComparison { name, before, after })
        .collect();
    // Stable: functions with equal changes stay in the order of their names.
    compared.sort_by_key(|it| std::cmp::Reverse(it.self_time_change_ns().abs()));
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, self_ns: u64) -> FunctionStatistics {
        FunctionStatistics {
            name: name.to_string(),
            calls: 1,
            marks: 0,
            threads: 1,
            total_ns: self_ns,
            self_ns,
            cut: 0,
            has_losses: false,
            durations: None,
        }
    }

    #[test]
    fn functions_are_paired_and_the_greatest_change_comes_first() {
        let before = vec![function("same", 900), function("faster", 500), function("removed", 50)];
        let after = vec![function("added", 70), function("faster", 100), function("same", 900)];
        let compared = compare_functions(before, after);
        let changes: Vec<(&str, i128)> =
            compared.iter().map(|it| (it.name.as_str(), it.self_time_change_ns())).collect();
        assert_eq!(changes, [("faster", -400), ("added", 70), ("removed", -50), ("same", 0)]);
        assert!(compared[1].before.is_none() && compared[2].after.is_none());
    }
}
