//! Warnings about figures, which are stored with the figures.

use crate::stats::{self, MedianEstimate, Modes};
use handover_record::{Round, Warning, WarningCode};
use std::collections::BTreeSet;

/// Share of steal time above which a warning names the hypervisor as the cause.
const STEAL_MAX: f64 = 0.02;
/// Number of involuntary context switches above which a round counts as disturbed. One or two are
/// normal.
const ROUND_SWITCHES_MAX: u64 = 3;
/// Share of disturbed rounds or samples above which a figure gets a warning. It applies if the
/// others are too few for a figure.
const DISTURBED_MAX: f64 = 0.25;
/// Relative effect of disturbed samples above which a figure gets a warning. The warning gives the
/// figure without them.
const DISTURBANCE_EFFECT_MAX: f64 = 0.02;
/// Half-width of a 95 % interval, relative to the figure, above which a warning is issued.
const HALF_WIDTH_MAX: f64 = 0.04;
/// Relative change during the run above which a warning is issued. It is the change from the first
/// to the last third of the rounds, whose intervals must not overlap. The median of all rounds lies
/// in between, and the rounds are spread over the whole run, so a smaller drift moves the median
/// less than two runs differ anyway.
const DRIFT_MAX: f64 = 0.15;
/// Smallest time of an operation that the harness can measure, in ns.
const RESOLUTION_NS: f64 = 0.2;
/// Ratio of the measured to the expected rate, or its inverse, above which a warning is issued. The
/// figure implies the expected rate.
const RATE_RATIO_MAX: f64 = 1.5;
/// Minimum number of rounds of a reliable figure. The figure without disturbed samples needs as
/// many.
pub(crate) const ROUNDS_MIN: usize = 15;

/// Returns `true` if other programs disturbed a round. Always returns `false` if threads of this
/// program share a CPU (`is_crowded`). Steal time is ignored: the kernel counts it in units as long
/// as a round, over all CPUs.
pub(crate) fn is_disturbed(switches_involuntary: u64, is_crowded: bool) -> bool {
    !is_crowded && switches_involuntary > ROUND_SWITCHES_MAX
}

/// Facts about one figure, from which its warnings are derived.
#[derive(Clone, Copy)]
pub(crate) struct FigureFacts<'a> {
    pub rounds: &'a [Round],
    pub figure: MedianEstimate,
    /// Figure without disturbed rounds and samples; `None` if none was disturbed or too few are
    /// left.
    pub undisturbed: Option<f64>,
    /// Two modes of the figure's values, if it has two, and the kind of these values. The kind is
    /// `operations`, `rounds` or `passes`.
    pub modes: Option<(&'static str, Modes)>,
    /// `true` if the figure is a time; `false` for bytes or a count.
    pub is_time: bool,
    /// `true` if the operations only ran once as a test.
    pub is_smoke: bool,
}

/// Returns the warnings about the noise of a figure. For a smoke run, the only warning is that it
/// was one.
pub(crate) fn noise_warnings(found: &FigureFacts<'_>) -> Vec<Warning> {
    let FigureFacts { rounds, figure, undisturbed, modes, is_time, is_smoke } = *found;
    let mut said = Vec::new();
    let mut say = |code, text: String| said.push(Warning { code, text });
    if is_smoke {
        say(WarningCode::Smoke, "smoke run: run once as a test, not measured".to_string());
        return said;
    }
    if figure.interval.is_none() {
        let passes: BTreeSet<u32> = rounds.iter().map(|round| round.pass).collect();
        let text = format!(
            "{} passes; a 95 % interval needs at least {}",
            passes.len(),
            stats::PASSES_MIN
        );
        say(WarningCode::Few, text);
    }
    disturbance_warning(rounds, figure.median, undisturbed, &mut say);
    if let Some((of, Modes { fast, slow })) = modes {
        let text = format!(
            "two modes: {:.0} % of the {of} near {}, {:.0} % near {}",
            fast.0 * 100.0,
            handover_base::units::format_ns(fast.1),
            slow.0 * 100.0,
            handover_base::units::format_ns(slow.1)
        );
        say(WarningCode::Bimodal, text);
    }
    if let Some(half_width) = figure.half_width().filter(|it| *it > HALF_WIDTH_MAX) {
        let text = match half_width.is_finite() {
            true => {
                let percent = half_width * 100.0;
                format!("interval still ±{percent:.0} % at the end of the time budget")
            }
            false => {
                "figure is 0, but its interval is not, at the end of the time budget".to_string()
            }
        };
        say(WarningCode::Wide, text);
    }
    if let Some(by) = relative_drift(rounds) {
        let text = format!(
            "figure changed by {:+.0} % from the first to the last third of the rounds",
            by * 100.0
        );
        say(WarningCode::Drift, text);
    }
    if is_time && figure.median < RESOLUTION_NS {
        let text =
            format!("below {RESOLUTION_NS} ns, the smallest time that this method can measure");
        say(WarningCode::Resolution, text);
    }
    said
}

/// Warns about disturbed rounds and samples. There is a warning if the figure without them differs,
/// or if many are disturbed and it cannot be computed.
fn disturbance_warning(
    rounds: &[Round],
    figure: f64,
    undisturbed: Option<f64>,
    say: &mut impl FnMut(WarningCode, String),
) {
    let mean = |of: &dyn Fn(&Round) -> f64| {
        rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64
    };
    let marked = mean(&|round| f64::from(u8::from(round.is_disturbed)));
    let (slowed, steal) = (mean(&|round| round.slowed), mean(&|round| round.steal));
    let without = match undisturbed {
        Some(without) if (without / figure - 1.0).abs() <= DISTURBANCE_EFFECT_MAX => return,
        Some(without) => {
            let percent = (without / figure - 1.0) * 100.0;
            format!("the figure without the disturbed samples differs by {percent:+.0} %")
        }
        None if marked.max(slowed) > DISTURBED_MAX => {
            "the others are too few for a figure".to_string()
        }
        None => return,
    };
    let code = match () {
        () if steal > STEAL_MAX => WarningCode::Steal,
        () if slowed > marked => WarningCode::Slowed,
        () => WarningCode::Switches,
    };
    let stolen = match code {
        WarningCode::Steal => {
            format!("; the hypervisor took {percent:.0} % of the CPU time", percent = steal * 100.0)
        }
        _ => String::new(),
    };
    let text = format!(
        "{:.0} % of the rounds disturbed, {:.0} % of the samples beside a slow core; {without}{stolen}",
        marked * 100.0,
        slowed * 100.0
    );
    say(code, text);
}

/// Returns the relative change from the first to the last third of the rounds. Returns `None` if it
/// is small or the intervals overlap.
fn relative_drift(rounds: &[Round]) -> Option<f64> {
    let third = rounds.len() / 3;
    let of = |some: &[Round]| {
        stats::median_of_independent(&some.iter().map(|it| it.median).collect::<Vec<_>>())
    };
    let (first, last) = (of(&rounds[..third]), of(&rounds[rounds.len() - third..]));
    let ((first_low, first_high), (last_low, last_high)) = first.interval.zip(last.interval)?;
    let apart = first_high < last_low || last_high < first_low;
    let by = last.median / first.median - 1.0;
    (apart && first.median > 0.0 && by.abs() > DRIFT_MAX).then_some(by)
}

/// Returns a warning if the rate of operations contradicts the time per operation. It takes into
/// account that `concurrent_operations` operations overlap. Further operations that overlap raise a
/// rate by wall-clock time; the work between operations lowers it. Operations that took much longer
/// or much less time than most change any rate more than the figure, a median.
pub(crate) fn rate_warning(
    rate_per_s: f64,
    figure_ns: f64,
    concurrent_operations: f64,
    is_by_wall_clock: bool,
) -> Option<Warning> {
    let product = rate_per_s * figure_ns / 1e9 / concurrent_operations.max(1.0);
    let is_far = product > 0.0 && !(1.0 / RATE_RATIO_MAX..=RATE_RATIO_MAX).contains(&product);
    let why = match (product > 1.0, is_by_wall_clock) {
        (true, true) => "operations overlapped, or many took much less time than the figure",
        (true, false) => "many operations took much less time than the figure",
        (false, true) => {
            "the rate is by wall-clock time, which includes the work between operations"
        }
        (false, false) => "some operations took much longer than most",
    };
    is_far.then(|| Warning {
        code: WarningCode::Rate,
        text: format!("rate × figure is {product:.2}: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two rounds per pass with these medians.
    fn rounds(medians: impl Iterator<Item = f64>) -> Vec<Round> {
        let round =
            |(place, median): (u32, f64)| Round { pass: place / 2, median, ..Round::default() };
        (0..).zip(medians).map(round).collect()
    }

    fn warnings_of(rounds: &[Round], undisturbed: Option<f64>) -> Vec<Warning> {
        let passes: Vec<f64> = rounds.chunks(2).map(|pass| pass[0].median).collect();
        let figure = stats::median_over_passes(&passes);
        let (modes, is_time, is_smoke) = (None, true, false);
        noise_warnings(&FigureFacts { rounds, figure, undisturbed, modes, is_time, is_smoke })
    }

    fn codes(rounds: &[Round], undisturbed: Option<f64>) -> Vec<WarningCode> {
        warnings_of(rounds, undisturbed).into_iter().map(|it| it.code).collect()
    }

    #[test]
    fn quiet_rounds_raise_no_warning() {
        assert_eq!(codes(&rounds((0..30).map(|it| 100.0 + f64::from(it % 3))), None), []);
    }

    #[test]
    fn each_kind_of_noise_is_named() {
        assert_eq!(codes(&rounds((0..10).map(|_| 100.0)), None), [WarningCode::Few]);
        let drifting = rounds((0..30).map(|it| 100.0 + f64::from(it)));
        assert!(codes(&drifting, None).contains(&WarningCode::Drift));
        let wide = rounds((0..16).map(|it| 100.0 * (1.0 + f64::from(it / 2 % 4) * 0.3)));
        assert!(codes(&wide, None).contains(&WarningCode::Wide));
        assert_eq!(codes(&rounds((0..30).map(|_| 0.1)), None), [WarningCode::Resolution]);
    }

    #[test]
    fn disturbed_rounds_are_reported_where_the_figure_without_them_differs() {
        let mut disturbed = rounds((0..30).map(|_| 100.0));
        disturbed.iter_mut().step_by(2).for_each(|round| round.is_disturbed = true);
        assert_eq!(codes(&disturbed, Some(101.0)), [], "warned although both figures agree");
        let text = &warnings_of(&disturbed, Some(90.0))[0].text;
        assert!(text.contains("50 % of the rounds disturbed") && text.contains("-10 %"), "{text}");
        assert_eq!(
            codes(&disturbed, None),
            [WarningCode::Switches],
            "too few undisturbed rounds, but no warning"
        );
        disturbed.iter_mut().for_each(|round| round.slowed = 0.6);
        assert_eq!(codes(&disturbed, Some(90.0)), [WarningCode::Slowed]);
        disturbed.iter_mut().for_each(|round| round.steal = 0.1);
        assert_eq!(codes(&disturbed, Some(90.0)), [WarningCode::Steal]);
    }

    #[test]
    fn rate_that_contradicts_the_figure_is_reported() {
        assert_eq!(rate_warning(1e9 / 100.0, 100.0, 1.0, true), None);
        let of_two = rate_warning(2e9 / 100.0, 100.0, 2.0, true);
        assert_eq!(of_two, None, "warned although two ran at a time");
        let cases = [
            (0.4, true, "is 0.40: the rate is by wall-clock time"),
            (0.4, false, "is 0.40: some operations took much longer"),
            (2.5, true, "is 2.50: operations overlapped, or many took much less time"),
            (2.5, false, "is 2.50: many operations took much less time"),
        ];
        for (product, is_by_wall_clock, text) in cases {
            let warning = rate_warning(product * 1e9 / 100.0, 100.0, 1.0, is_by_wall_clock);
            let warning = warning.expect("far from 1");
            assert_eq!(warning.code, WarningCode::Rate);
            assert!(warning.text.contains(text), "{warning:?}");
        }
    }
}
