//! Ratios of a figure to its floor and to its peers.

use super::contender::{MeasuredContender, PartMeasurements, medians_by_pass};
use crate::bench::Bench;
use crate::stats;
use handover_record::{
    ContenderKind, PeerWithoutRatio, Ratio, Round, Spec, Wait, Warning, WarningCode,
};
use std::collections::BTreeMap;

/// Declared floor: its id, its benchmark, and the index of the benchmark's part.
pub(super) type FloorPart = (&'static str, &'static Bench, usize);

/// Returns the ratio of a contender's figure to its floor; `None` without a measured floor. The
/// figure is that of the part at `index`. The floor is a contender of the same benchmark that is a
/// floor, or else a declared floor: the first that waits in the same way, or the first that does
/// not wait.
pub(super) fn ratio_to_floor(
    spec: &Spec,
    floors: &[FloorPart],
    contenders: &[MeasuredContender],
    ours: &MeasuredContender,
    index: usize,
) -> Option<Ratio> {
    let waits = ours.waits(index);
    ratio_to_own_floor(spec, contenders, ours, index).or_else(|| {
        let part = spec.parts.get(index).and_then(|part| part.floor);
        let first = spec.floor.filter(|_| part.is_none());
        let named = part.into_iter().chain(first).chain(spec.floors.iter().copied());
        let found = named.filter_map(|wanted| resolve_floor(floors, contenders, wanted));
        let alike: Vec<_> = found.filter(|it| it.2.waits(it.1).is_lower_bound_for(waits)).collect();
        let best = alike.iter().find(|it| it.2.waits(it.1) == waits).or(alike.first())?;
        let (id, part, contender) = best;
        ratio(
            &ours.measured.parts[index],
            &contender.measured.parts[*part],
            id,
            contender.bench.contender().name,
        )
    })
}

/// Returns the ratio to a floor among the contenders of the same benchmark. If possible, the floor
/// waits in the same way. Otherwise the floor is one that does not wait.
fn ratio_to_own_floor(
    spec: &Spec,
    contenders: &[MeasuredContender],
    ours: &MeasuredContender,
    index: usize,
) -> Option<Ratio> {
    if ours.contender_in(index).kind == ContenderKind::Floor {
        return None;
    }
    let id = figure_id(spec, index);
    let floors = || {
        let own = contenders.iter().filter(|it| !it.is_floor && !it.facts.is_out);
        own.filter(|it| it.contender_in(index).kind == ContenderKind::Floor)
    };
    let waits = ours.waits(index);
    let of = |wanted: Wait| {
        floors().filter(|it| it.waits(index) == wanted).find_map(|contender| {
            ratio(
                &ours.measured.parts[index],
                &contender.measured.parts[index],
                &id,
                contender.bench.contender().name,
            )
        })
    };
    of(waits).or_else(|| of(Wait::None))
}

/// Returns the id, part index and contender of the declared floor `wanted`. Returns `None` if it is
/// not measured.
fn resolve_floor<'a>(
    floors: &[FloorPart],
    contenders: &'a [MeasuredContender],
    wanted: &'static str,
) -> Option<(&'static str, usize, &'a MeasuredContender)> {
    let (id, bench, part) = floors.iter().find(|(id, ..)| *id == wanted)?;
    let contender = contenders
        .iter()
        .find(|it| it.is_floor && !it.facts.is_out && it.bench.spec().id == bench.spec().id)?;
    Some((id, *part, contender))
}

/// Returns the ratios of a contender's figure to the figures of peers that wait in the same way.
/// The figures are those of the part at `index`.
pub(super) fn ratios_to_peers(
    spec: &Spec,
    contenders: &[MeasuredContender],
    ours: &MeasuredContender,
    index: usize,
) -> Vec<Ratio> {
    if ours.contender_in(index).kind == ContenderKind::Floor {
        return Vec::new();
    }
    let id = figure_id(spec, index);
    rivals(contenders, ours, index)
        .filter(|it| it.waits(index) == ours.waits(index))
        .filter_map(|contender| {
            let (ours, other) = (&ours.measured.parts[index], &contender.measured.parts[index]);
            ratio(ours, other, &id, contender.bench.contender().name)
        })
        .collect()
}

/// Returns the contenders with which `ours` is compared in the part at `index`. They may wait in
/// other ways.
fn rivals<'a>(
    contenders: &'a [MeasuredContender],
    ours: &'a MeasuredContender,
    index: usize,
) -> impl Iterator<Item = &'a MeasuredContender> {
    let contender = ours.contender_in(index);
    contenders
        .iter()
        .filter(move |other| !other.is_floor && !other.facts.is_out && !std::ptr::eq(*other, ours))
        .filter(move |other| contender.is_compared_with(&other.contender_in(index)))
}

/// Returns the figures of the peers that wait in another way, for which there is no ratio.
pub(super) fn peers_with_other_waits(
    contenders: &[MeasuredContender],
    ours: &MeasuredContender,
    index: usize,
) -> Vec<PeerWithoutRatio> {
    if ours.contender_in(index).kind == ContenderKind::Floor {
        return Vec::new();
    }
    rivals(contenders, ours, index)
        .filter(|it| it.waits(index) != ours.waits(index))
        .filter(|it| !it.measured.parts[index].rounds.is_empty())
        .map(|contender| PeerWithoutRatio {
            contender: contender.bench.contender().name.to_string(),
            waits: contender.waits(index),
            other: contender.measured.parts[index].figure().median,
        })
        .collect()
}

/// Returns the ratio of our figure to another contender's, or `None` if no block has both. It is
/// computed per pass from the logarithms of the ratios within blocks, so that a/b and b/a are
/// reciprocal.
fn ratio(
    ours: &PartMeasurements,
    other: &PartMeasurements,
    id: &str,
    contender: &str,
) -> Option<Ratio> {
    let at = |round: &Round| (round.pass, round.block);
    let by_block: BTreeMap<_, f64> =
        other.rounds.iter().map(|it| (at(it), it.median)).filter(|it| it.1 > 0.0).collect();
    let logs =
        ours.rounds.iter().filter(|it| it.median > 0.0).filter_map(|round| {
            Some((round.pass, (round.median / by_block.get(&at(round))?).ln()))
        });
    let by_pass = medians_by_pass(logs);
    if by_pass.is_empty() {
        return None;
    }
    let found = stats::median_over_passes(&by_pass).map(f64::exp);
    Some(Ratio {
        id: id.to_string(),
        contender: contender.to_string(),
        other: other.figure().median,
        ratio: found.median,
        low: found.interval.map(|ends| ends.0),
        high: found.interval.map(|ends| ends.1),
    })
}

/// Returns the id of the figure of the part at `index`: the spec's id, or `spec/part`.
fn figure_id(spec: &Spec, index: usize) -> String {
    spec.parts.get(index).map_or(spec.id.to_string(), |part| format!("{}/{}", spec.id, part.name))
}

/// Returns a warning if the whole interval of the ratio to the floor lies below 1.
pub(super) fn warning_if_beaten(floor: &Ratio) -> Option<Warning> {
    let (low, high) = floor.interval_bounds().filter(|(_, high)| *high < 1.0)?;
    let text = format!(
        "takes {low:.2} to {high:.2} times as long as its floor, {} [{}]: the floor does more work than necessary",
        floor.id, floor.contender
    );
    Some(Warning { code: WarningCode::FloorBeaten, text })
}

/// Removes the warning about a beaten floor if the run cannot detect the difference. `least` is the
/// smallest relative difference that the run can detect.
pub(super) fn remove_if_undetectable(
    warnings: &mut Vec<Warning>,
    floor: Option<&Ratio>,
    least: f64,
) {
    let high = floor.and_then(Ratio::interval_bounds).map_or(1.0, |(_, high)| high);
    let is_visible = high < 1.0 / (1.0 + least);
    warnings.retain(|it| it.code != WarningCode::FloorBeaten || is_visible);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio_of(low: f64, high: f64) -> Ratio {
        Ratio {
            id: "floor/empty".to_string(),
            contender: "hardware".to_string(),
            other: 1.0,
            ratio: (low + high) / 2.0,
            low: Some(low),
            high: Some(high),
        }
    }

    #[test]
    fn floor_whose_whole_interval_lies_above_the_figure_is_beaten() {
        let warning = warning_if_beaten(&ratio_of(0.8, 0.95)).expect("a warning");
        assert_eq!(warning.code, WarningCode::FloorBeaten);
        assert!(warning.text.contains("0.80 to 0.95") && warning.text.contains("floor/empty"));
    }

    #[test]
    fn floor_is_beaten_only_by_more_than_the_run_can_detect() {
        let floor = ratio_of(0.8, 0.95);
        let mut warnings: Vec<Warning> = warning_if_beaten(&floor).into_iter().collect();
        remove_if_undetectable(&mut warnings, Some(&floor), 0.04);
        assert_eq!(warnings.len(), 1);
        remove_if_undetectable(&mut warnings, Some(&floor), 0.06);
        assert_eq!(warnings, []);
    }

    #[test]
    fn floor_within_the_interval_is_not_beaten() {
        assert_eq!(warning_if_beaten(&ratio_of(0.8, 1.01)), None);
        assert_eq!(warning_if_beaten(&ratio_of(1.1, 1.2)), None);
    }

    /// A part with one round per block and three blocks per pass.
    fn part(figure: impl Fn(u32) -> f64) -> PartMeasurements {
        let mut part = PartMeasurements::default();
        for block in 0..24 {
            let pass = block / 3;
            // Blocks are numbered from 0 in each pass.
            let block_of_pass = block % 3;
            part.add_figure(Round {
                pass,
                block: block_of_pass,
                median: figure(block),
                ..Round::default()
            });
        }
        part
    }

    #[test]
    fn drift_common_to_both_does_not_change_the_ratio() {
        let (ours, other) = (part(|it| 2.0 * f64::from(it + 1)), part(|it| f64::from(it + 1)));
        let it = ratio(&ours, &other, "a/b", "other").expect("no common block");
        let (low, high) = it.interval_bounds().expect("too few passes");
        assert!((it.ratio - 2.0).abs() < 1e-9 && high - low < 1e-9, "{it:?}");
        let turned = ratio(&other, &ours, "a/b", "ours").expect("no common block");
        assert!((it.ratio * turned.ratio - 1.0).abs() < 1e-9);
        assert!(ratio(&ours, &part(|_| 0.0), "a/b", "nothing").is_none());
    }
}
