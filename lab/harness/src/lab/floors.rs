//! Choice of the floor to which a figure is compared.

use super::lane::Lane;
use super::summarise::{Context, ratio};
use handover_record::{ContenderKind, Ratio, Wait, Warning, WarningCode};

/// Returns the ratio of a lane's part to its floor: a floor among the contenders of the same
/// benchmark, which does the same work by the same procedure, or else the first of the declared
/// floors that waits alike.
pub(super) fn ratio_to_floor(
    context: &Context<'_>,
    lanes: &[Lane],
    ours: &Lane,
    index: usize,
) -> Option<Ratio> {
    let waits = ours.waits(index);
    own_floor(context, lanes, ours, index).or_else(|| {
        let part = context.spec.parts.get(index).and_then(|part| part.floor);
        let spec = context.spec.floor.filter(|_| part.is_none());
        let named = part.into_iter().chain(spec).chain(context.spec.floors.iter().copied());
        let found = named.filter_map(|wanted| named_floor(context, lanes, wanted));
        let alike: Vec<_> = found.filter(|it| it.2.waits(it.1).is_below(waits)).collect();
        let best = alike.iter().find(|it| it.2.waits(it.1) == waits).or(alike.first())?;
        let (id, part, lane) = best;
        ratio(
            &ours.measured.parts[index],
            &lane.measured.parts[*part],
            id,
            lane.bench.contender().name,
        )
    })
}

/// Returns the ratio to a floor of the same benchmark that waits alike, or else to one that does
/// not wait.
fn own_floor(context: &Context<'_>, lanes: &[Lane], ours: &Lane, index: usize) -> Option<Ratio> {
    if ours.bench.contender().kind == ContenderKind::Floor {
        return None;
    }
    let declared = context.spec.parts.get(index);
    let id = declared
        .map_or(context.spec.id.to_string(), |part| format!("{}/{}", context.spec.id, part.name));
    let floors = || {
        let own = lanes.iter().filter(|lane| !lane.is_floor && !lane.known.is_out);
        own.filter(|lane| lane.bench.contender().kind == ContenderKind::Floor)
    };
    let waits = ours.waits(index);
    let of = |wanted: Wait| {
        floors().filter(|lane| lane.waits(index) == wanted).find_map(|lane| {
            ratio(
                &ours.measured.parts[index],
                &lane.measured.parts[index],
                &id,
                lane.bench.contender().name,
            )
        })
    };
    of(waits).or_else(|| of(Wait::None))
}

/// Returns the id, part and lane of a declared floor.
fn named_floor<'a>(
    context: &Context<'_>,
    lanes: &'a [Lane],
    wanted: &'static str,
) -> Option<(&'static str, usize, &'a Lane)> {
    let (id, bench, part) = context.floors.iter().find(|(id, ..)| *id == wanted)?;
    let lane = lanes.iter().find(|lane| {
        lane.is_floor && !lane.known.is_out && lane.bench.spec().id == bench.spec().id
    })?;
    Some((id, *part, lane))
}

/// Returns the warning for a figure below its floor.
pub(super) fn beaten(floor: &Ratio) -> Option<Warning> {
    let (low, high) = floor.ends().filter(|(_, high)| *high < 1.0)?;
    let text = format!(
        "takes {low:.2} to {high:.2} times as long as its floor, {} [{}]: the floor does more than it has to",
        floor.id, floor.contender
    );
    Some(Warning { code: WarningCode::FloorBeaten, text })
}

/// Withdraws the warning about a beaten floor if the difference is below `least`, the smallest relative difference
/// that the run can see.
pub(super) fn keep_if_visible(warnings: &mut Vec<Warning>, floor: Option<&Ratio>, least: f64) {
    let high = floor.and_then(Ratio::ends).map_or(1.0, |(_, high)| high);
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
        let warning = beaten(&ratio_of(0.8, 0.95)).expect("a warning");
        assert_eq!(warning.code, WarningCode::FloorBeaten);
        assert!(warning.text.contains("0.80 to 0.95") && warning.text.contains("floor/empty"));
    }

    #[test]
    fn floor_is_beaten_only_by_more_than_the_run_can_see() {
        let floor = ratio_of(0.8, 0.95);
        let mut warnings: Vec<Warning> = beaten(&floor).into_iter().collect();
        keep_if_visible(&mut warnings, Some(&floor), 0.04);
        assert_eq!(warnings.len(), 1);
        keep_if_visible(&mut warnings, Some(&floor), 0.06);
        assert_eq!(warnings, []);
    }

    #[test]
    fn floor_within_the_interval_is_not_beaten() {
        assert_eq!(beaten(&ratio_of(0.8, 1.01)), None);
        assert_eq!(beaten(&ratio_of(1.1, 1.2)), None);
    }
}
