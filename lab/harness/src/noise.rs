//! What makes a figure doubtful, told with it rather than averaged away.

use crate::stats::{self, Interval, Modes};
use handover_record::{Round, Warning, WarningCode};

/// Steal above this share of a round marks it.
const ROUND_STEAL_MAX: f64 = 0.02;
/// Steal above this share of all rounds is named as what disturbed them.
const STEAL_MAX: f64 = 0.02;
/// Cores slowed for more than this share of the time are named as what disturbed the rounds.
const SLOWED_MAX: f64 = 0.5;
/// Involuntary switches above this number mark a round: one or two are the kernel's own business.
const ROUND_SWITCHES_MAX: u64 = 3;
/// More marked rounds than this share are warned about, where the others are too few.
const MARKED_MAX: f64 = 0.25;
/// An interval wider than this on either side, when the budget is spent, is warned about.
const HALF_WIDTH_MAX: f64 = 0.04;
/// The last third of the rounds differs from the first by more than this share, and their intervals do
/// not meet: a drift. The median of all lies between, and the rounds are spread over the whole run: a
/// smaller drift moves it by less than two runs differ anyway.
const DRIFT_MAX: f64 = 0.15;
/// Nothing below this is claimed.
const RESOLUTION_NS: f64 = 0.2;
/// An interval of fewer rounds is not worth its name.
pub(crate) const ROUNDS_MIN: usize = 15;

/// Whether a round was disturbed from outside.
pub(crate) fn is_marked(steal: f64, switches_involuntary: u64, crowded: bool) -> bool {
    steal > ROUND_STEAL_MAX || (!crowded && switches_involuntary > ROUND_SWITCHES_MAX)
}

/// Everything to be said about one figure.
pub(crate) fn warnings(
    rounds: &[Round],
    figure: Interval,
    modes: Option<Modes>,
    is_time: bool,
    smoke: bool,
) -> Vec<Warning> {
    let mut said = Vec::new();
    let mut say = |code, text: String| said.push(Warning { code, text });
    if smoke {
        say(WarningCode::Smoke, "smoke run: shown to work, not measured".to_string());
        return said;
    }
    if rounds.len() < ROUNDS_MIN {
        let text = format!("{} rounds; an interval wants {ROUNDS_MIN}", rounds.len());
        say(WarningCode::Few, text);
    }
    // Disturbed rounds are left out as long as there are enough others; where there are not, the figure
    // is one of disturbed rounds, and says by what.
    let quiet = rounds.iter().filter(|round| !round.marked).count();
    let marked = 1.0 - quiet as f64 / rounds.len().max(1) as f64;
    if quiet < ROUNDS_MIN && marked > MARKED_MAX {
        let mean = |of: &dyn Fn(&Round) -> f64| {
            rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64
        };
        let steal = mean(&|round| round.steal);
        let slowed = mean(&|round| round.slowed);
        if steal > STEAL_MAX {
            let text = format!("the hypervisor took {:.0} % of the CPU time", steal * 100.0);
            say(WarningCode::Steal, text);
        } else if slowed > SLOWED_MAX {
            let text = format!("the cores ran slowed for {:.0} % of the time", slowed * 100.0);
            say(WarningCode::Slowed, text);
        } else {
            let text =
                format!("{:.0} % of the rounds were disturbed by other work", marked * 100.0);
            say(WarningCode::Switches, text);
        }
    }
    if let Some(Modes { fast, slow }) = modes {
        let text = format!(
            "two modes: {:.0} % near {}, {:.0} % near {}",
            fast.0 * 100.0,
            handover_base::units::show_ns(fast.1),
            slow.0 * 100.0,
            handover_base::units::show_ns(slow.1)
        );
        say(WarningCode::Bimodal, text);
    }
    if figure.half_width() > HALF_WIDTH_MAX {
        let text =
            format!("interval ±{:.0} % when the budget was spent", figure.half_width() * 100.0);
        say(WarningCode::Wide, text);
    }
    let taken: Vec<&Round> = match quiet >= ROUNDS_MIN {
        true => rounds.iter().filter(|round| !round.marked).collect(),
        false => rounds.iter().collect(),
    };
    let third = taken.len() / 3;
    if third >= 5 {
        let of =
            |some: &[&Round]| stats::interval(&some.iter().map(|it| it.median).collect::<Vec<_>>());
        let (first, last) = (of(&taken[..third]), of(&taken[taken.len() - third..]));
        let apart = first.high < last.low || last.high < first.low;
        if apart && first.median > 0.0 && (last.median / first.median - 1.0).abs() > DRIFT_MAX {
            let by = (last.median / first.median - 1.0) * 100.0;
            say(WarningCode::Drift, format!("drifted by {by:+.0} % from first to last"));
        }
    }
    if is_time && figure.median < RESOLUTION_NS {
        let text = format!("below {RESOLUTION_NS} ns: less than this method can tell");
        say(WarningCode::Resolution, text);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(medians: impl Iterator<Item = f64>) -> Vec<Round> {
        medians.map(|median| Round { median, ..Round::default() }).collect()
    }

    fn codes(rounds: &[Round]) -> Vec<WarningCode> {
        let medians: Vec<f64> = rounds.iter().map(|round| round.median).collect();
        let figure = stats::interval(&medians);
        warnings(rounds, figure, None, true, false).into_iter().map(|it| it.code).collect()
    }

    #[test]
    fn quiet_rounds_raise_no_doubt() {
        assert_eq!(codes(&rounds((0..30).map(|it| 100.0 + f64::from(it % 3)))), []);
    }

    #[test]
    fn each_kind_of_noise_is_named() {
        assert_eq!(codes(&rounds((0..3).map(|_| 100.0))), [WarningCode::Few]);
        let drifting = rounds((0..30).map(|it| 100.0 + f64::from(it)));
        assert!(codes(&drifting).contains(&WarningCode::Drift));
        let wide = rounds((0..16).map(|it| 100.0 * (1.0 + f64::from(it % 4) * 0.3)));
        assert!(codes(&wide).contains(&WarningCode::Wide));
        assert_eq!(codes(&rounds((0..30).map(|_| 0.1))), [WarningCode::Resolution]);
        let mut stolen = rounds((0..30).map(|_| 100.0));
        stolen.iter_mut().for_each(|round| (round.steal, round.marked) = (0.1, true));
        assert_eq!(codes(&stolen), [WarningCode::Steal]);
        let mut disturbed = rounds((0..30).map(|_| 100.0));
        disturbed.iter_mut().step_by(2).for_each(|round| round.marked = true);
        assert_eq!(codes(&disturbed), [], "the other fifteen are enough");
        disturbed[1].marked = true;
        assert_eq!(codes(&disturbed), [WarningCode::Switches]);
        disturbed.iter_mut().for_each(|round| round.slowed = 0.6);
        assert_eq!(codes(&disturbed), [WarningCode::Slowed]);
    }
}
