//! Axes: positions of values, and ticks with their labels.

use handover_record::Unit;

/// Quantity of an axis, which determines the format of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Nanoseconds: `10 ns`, `1 µs`.
    Nanos,
    /// Events per second: `10 k/s`.
    PerSecond,
    /// Bytes: `64 KiB`.
    Bytes,
    /// Plain number: `10 k`.
    Count,
    /// Share of one: `25 %`.
    Share,
}

impl From<Unit> for Quantity {
    fn from(unit: Unit) -> Quantity {
        match unit {
            Unit::Ns => Quantity::Nanos,
            Unit::Bytes => Quantity::Bytes,
            Unit::Count => Quantity::Count,
        }
    }
}

/// Entry of an axis of names, which labels one row or column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisName {
    /// Label at the start of the row.
    pub label: String,
    /// Text at the end of the row, such as the figure; may be empty.
    pub note: String,
    /// `true` if the entry starts a group, separated from the previous one by a gap.
    pub opens_group: bool,
}

/// Axis of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub(super) title: String,
    pub(super) quantity: Quantity,
    pub(super) kind: AxisKind,
    /// Value that the axis must include, besides the data; `None` if there is none.
    from: Option<f64>,
    /// Values and labels of the ticks; empty for ticks at round numbers.
    labels: Vec<(f64, String)>,
}

/// Kind of an axis: linear, logarithmic, or of names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AxisKind {
    Linear,
    Log,
    Names(Vec<AxisName>),
}

impl Axis {
    /// Creates a linear axis, whose ends are round numbers.
    pub fn linear(title: impl Into<String>, quantity: Quantity) -> Axis {
        Axis::new(title.into(), quantity, AxisKind::Linear)
    }

    /// Creates a logarithmic axis. It ends at 1, 2 or 5 times a power of ten, or with bytes at a
    /// power of two. Values not above zero are placed at its lower edge.
    pub fn log(title: impl Into<String>, quantity: Quantity) -> Axis {
        Axis::new(title.into(), quantity, AxisKind::Log)
    }

    /// Creates an axis of names in this order. On the vertical axis, the first is at the top.
    pub fn with_names(names: Vec<AxisName>) -> Axis {
        Axis::new(String::new(), Quantity::Count, AxisKind::Names(names))
    }

    fn new(title: String, quantity: Quantity, kind: AxisKind) -> Axis {
        Axis { title, quantity, kind, from: None, labels: Vec::new() }
    }

    /// Sets the values and the labels of a linear axis's ticks. They replace the ticks at round
    /// numbers.
    #[must_use]
    pub fn with_tick_labels(mut self, labels: Vec<(f64, String)>) -> Axis {
        self.labels = labels;
        self
    }

    /// Extends the axis to include `value`.
    #[must_use]
    pub fn with_included_value(mut self, value: f64) -> Axis {
        self.from = Some(value);
        self
    }
}

/// Range of the data on an axis.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataRange {
    /// Smallest and greatest value; `None` without data.
    ends: Option<(f64, f64)>,
    /// Smallest value above zero; `None` if there is none.
    positive: Option<f64>,
}

impl DataRange {
    /// Extends the range to include `value`, if it is finite.
    pub fn extend(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.ends = Some(match self.ends {
            Some((low, high)) => (low.min(value), high.max(value)),
            None => (value, value),
        });
        if value > 0.0 {
            self.positive = Some(self.positive.map_or(value, |least| least.min(value)));
        }
    }
}

/// Mapping from values on an axis to pixels.
pub(super) struct Scale {
    kind: AxisKind,
    quantity: Quantity,
    /// Value at the start of the axis; on a logarithmic axis, its common logarithm.
    low: f64,
    /// Value at the end of the axis; on a logarithmic axis, its common logarithm.
    high: f64,
    from_px: f64,
    to_px: f64,
    labels: Vec<(f64, String)>,
}

impl Scale {
    pub fn new(axis: &Axis, mut ends: DataRange, (from_px, to_px): (f64, f64)) -> Scale {
        if let Some(from) = axis.from {
            ends.extend(from);
        }
        let (low, high) = match &axis.kind {
            AxisKind::Linear => linear_ends(ends, axis.quantity),
            AxisKind::Log => log_ends(ends, axis.quantity),
            AxisKind::Names(names) => (-0.5, names.len().max(1) as f64 - 0.5),
        };
        let (kind, labels) = (axis.kind.clone(), axis.labels.clone());
        Scale { kind, quantity: axis.quantity, low, high, from_px, to_px, labels }
    }

    pub fn has_names(&self) -> bool {
        matches!(self.kind, AxisKind::Names(_))
    }

    pub fn names_count(&self) -> usize {
        match &self.kind {
            AxisKind::Names(names) => names.len(),
            _ => 0,
        }
    }

    /// Returns the position of a value in pixels, clamped to the edges.
    pub fn position_px(&self, value: f64) -> f64 {
        let value = match self.kind {
            AxisKind::Log if value > 0.0 => value.log10(),
            AxisKind::Log => self.low,
            _ => value,
        };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from_px + share * (self.to_px - self.from_px)
    }

    /// Returns the value and the label of each tick. Ticks that are computed are about `count_max`
    /// at most.
    pub fn ticks(&self, count_max: usize) -> Vec<(f64, String)> {
        let count_max = count_max.max(2);
        match &self.kind {
            AxisKind::Names(names) => {
                let label = |(place, name): (usize, &AxisName)| (place as f64, name.label.clone());
                names.iter().enumerate().map(label).collect()
            }
            AxisKind::Log => self.log_ticks(count_max),
            AxisKind::Linear if !self.labels.is_empty() => self.labels.clone(),
            AxisKind::Linear => {
                let step = self.quantity.nice_step((self.high - self.low) / count_max as f64);
                let first = (self.low / step).ceil();
                let count = ((self.high / step).floor() - first).max(0.0) as usize;
                (0..=count.min(2 * count_max + 2))
                    .map(|place| (first + place as f64) * step)
                    .map(|value| (value, self.quantity.tick_label(value)))
                    .collect()
            }
        }
    }

    /// Returns the ticks of a logarithmic axis: powers of ten or, for bytes, of two. A range of two
    /// decades or less also has ticks at 2 and 5 times the powers of ten.
    fn log_ticks(&self, count_max: usize) -> Vec<(f64, String)> {
        let unit = self.quantity.log_unit();
        let (first, last) =
            ((self.low / unit - 1e-9).ceil() as i64, (self.high / unit + 1e-9).floor() as i64);
        // Larger steps if there are too many powers.
        let fits = |step: &i64| (last - first) / step <= count_max as i64;
        let step = [1, 2, 5, 10, 20, 50, 100, 200, 500].into_iter().find(fits).unwrap_or(1000);
        let begin = first.div_euclid(step) * step;
        let powers = (begin..=last).step_by(step as usize).map(|power| power as f64 * unit);
        let between: &[f64] = match self.quantity {
            Quantity::Bytes => &[0.0],
            _ if self.high - self.low > SUBDIVIDED_DECADES_MAX => &[0.0],
            _ => &LOG_STEPS[..3],
        };
        // A power below the range has multiples in it.
        let below = (between.len() > 1).then_some(begin as f64 * unit - 1.0);
        below
            .into_iter()
            .chain(powers)
            .flat_map(|power| between.iter().map(move |part| power + part))
            .filter(|it| (self.low - 1e-9..=self.high + 1e-9).contains(it))
            .map(|exponent| 10_f64.powf(exponent))
            .map(|value| (value, self.quantity.tick_label(value)))
            .collect()
    }
}

/// Common logarithms of 1, 2, 5 and 10, the multiples of a power of ten at which a logarithmic axis
/// may end.
const LOG_STEPS: [f64; 4] = [0.0, std::f64::consts::LOG10_2, 1.0 - std::f64::consts::LOG10_2, 1.0];
/// Maximum length, in decades, of an axis with ticks between the powers of ten.
const SUBDIVIDED_DECADES_MAX: f64 = 2.0 + 1e-9;

/// Returns the ends of a linear axis: round values that enclose the data and are never equal.
fn linear_ends(ends: DataRange, quantity: Quantity) -> (f64, f64) {
    // Sums and differences of values within these bounds are finite.
    const MOST: f64 = 1e300;
    let (low, high) = ends.ends.unwrap_or((0.0, 1.0));
    let (low, mut high) = (low.clamp(-MOST, MOST), high.clamp(-MOST, MOST));
    if high - low <= high.abs() * 1e-9 {
        high = low + if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
    }
    // An axis whose data come near zero begins at zero.
    let low = if low > 0.0 && low < high * 0.4 { 0.0 } else { low };
    let step = quantity.nice_step((high - low) / 5.0);
    ((low / step).floor() * step, (high / step).ceil() * step)
}

/// Returns the ends of a logarithmic axis, as exponents of ten. They are the nearest steps that
/// enclose the data. Steps are 1, 2 and 5 times a power of ten, or for bytes powers of two. Data of
/// one value lie within a step on either side.
fn log_ends(ends: DataRange, quantity: Quantity) -> (f64, f64) {
    let high = ends.ends.map(|it| it.1).filter(|high| *high > 0.0).unwrap_or(10.0);
    let low = ends.positive.unwrap_or(high).min(high);
    let unit = quantity.log_unit();
    let steps = if quantity == Quantity::Bytes { &[0.0, 1.0][..] } else { &LOG_STEPS };
    // The epsilon keeps a value on a step at the edge, in spite of the logarithm's rounding.
    const EPSILON: f64 = 1e-9;
    let step_below = |exponent: f64| {
        let power = (exponent / unit + EPSILON).floor() * unit;
        let below = |step: &&f64| power + **step * unit <= exponent + EPSILON;
        power + steps.iter().rev().find(below).unwrap_or(&0.0) * unit
    };
    let step_above = |exponent: f64| {
        let power = (exponent / unit + EPSILON).floor() * unit;
        let above = |step: &&f64| power + **step * unit >= exponent - EPSILON;
        power + steps.iter().find(above).unwrap_or(&1.0) * unit
    };
    let (from, to) = (step_below(low.log10()), step_above(high.log10()));
    match to - from > EPSILON {
        true => (from, to),
        false => (step_below(from - 2.0 * EPSILON), step_above(to + 2.0 * EPSILON)),
    }
}

/// Returns the smallest of 1, 2, 5 times a power of ten that is not below `at_least`.
fn nice_step(at_least: f64) -> f64 {
    if !at_least.is_finite() || at_least < 1e-300 {
        return 1e-300;
    }
    let power = 10_f64.powf(at_least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let fits = |step: &f64| step * power >= at_least * (1.0 - 1e-9);
    steps.into_iter().find(fits).unwrap_or(10.0) * power
}

impl Quantity {
    /// Returns the common logarithm of the factor between two ticks of a logarithmic axis.
    fn log_unit(self) -> f64 {
        if self == Quantity::Bytes { std::f64::consts::LOG10_2 } else { 1.0 }
    }

    /// Returns the smallest round step of a linear axis that is not below `at_least`. With bytes,
    /// it is a power of two.
    fn nice_step(self, at_least: f64) -> f64 {
        match self {
            Quantity::Bytes if at_least.is_normal() => (at_least.log2() - 1e-9).ceil().exp2(),
            _ => nice_step(at_least),
        }
    }

    /// Formats the label of a tick, with its unit.
    fn tick_label(self, value: f64) -> String {
        const BINARY: &[(&str, f64)] = &[
            ("B", 1.0),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
            ("TiB", 1_099_511_627_776.0),
        ];
        match self {
            Quantity::Nanos => scaled(value, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]),
            Quantity::PerSecond => {
                scaled(value, &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)])
            }
            Quantity::Bytes => scaled(value, BINARY),
            Quantity::Count => scaled(value, &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)]),
            Quantity::Share => format!("{} %", short(value * 100.0)),
        }
    }
}

/// Formats a value in the largest of the units that it reaches.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let fits = |unit: &&(&str, f64)| value.abs() >= unit.1 * (1.0 - 1e-9);
    let (name, factor) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    format!("{} {name}", short(value / factor)).trim_end().to_string()
}

/// Formats a number without rounding noise and trailing zeros.
fn short(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(axis: &Axis, values: &[f64]) -> Scale {
        let mut ends = DataRange::default();
        values.iter().for_each(|value| ends.extend(*value));
        Scale::new(axis, ends, (0.0, 100.0))
    }

    fn labels(scale: &Scale, count_max: usize) -> Vec<String> {
        scale.ticks(count_max).into_iter().map(|it| it.1).collect()
    }

    #[test]
    fn logarithmic_axis_encloses_the_data_in_round_numbers() {
        let nanos = Axis::log("", Quantity::Nanos);
        let values = [0.71, 400.0];
        assert_eq!(labels(&scale(&nanos, &values), 9), ["1 ns", "10 ns", "100 ns"]);
        assert_eq!(
            labels(&scale(&nanos, &[0.71, 40.0]), 9),
            ["0.5 ns", "1 ns", "2 ns", "5 ns", "10 ns", "20 ns", "50 ns"]
        );
        assert_eq!(labels(&scale(&nanos, &[1.0, 1000.0]), 9), ["1 ns", "10 ns", "100 ns", "1 µs"]);
        assert_eq!(labels(&scale(&nanos, &[6.0]), 9), ["5 ns", "10 ns"]);
        assert_eq!(labels(&scale(&nanos, &[5.0]), 9), ["2 ns", "5 ns", "10 ns"]);
        assert_eq!(labels(&scale(&nanos.clone().with_included_value(1.0), &[500.0]), 9)[0], "1 ns");
        assert_eq!(
            labels(&scale(&nanos, &[1.0, 1e9]), 5),
            ["1 ns", "100 ns", "10 µs", "1 ms", "100 ms"]
        );
    }

    #[test]
    fn axis_of_bytes_has_powers_of_two() {
        let log = Axis::log("", Quantity::Bytes);
        assert_eq!(
            labels(&scale(&log, &[64.0, 1024.0]), 9),
            ["64 B", "128 B", "256 B", "512 B", "1 KiB"]
        );
        assert_eq!(
            labels(&scale(&log, &[1.0, 1_048_576.0]), 5),
            ["1 B", "32 B", "1 KiB", "32 KiB", "1 MiB"]
        );
        let linear = Axis::linear("", Quantity::Bytes);
        assert_eq!(
            labels(&scale(&linear, &[0.0, 4000.0]), 5),
            ["0 B", "1 KiB", "2 KiB", "3 KiB", "4 KiB"]
        );
    }

    #[test]
    fn linear_axis_has_round_steps() {
        let count = Axis::linear("", Quantity::Count);
        assert_eq!(labels(&scale(&count, &[0.0, 9.7]), 6), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(
            labels(&scale(&count, &[0.0, 2600.0]), 6),
            ["0", "500", "1 k", "1.5 k", "2 k", "2.5 k", "3 k"]
        );
        let share = Axis::linear("", Quantity::Share);
        assert_eq!(
            labels(&scale(&share, &[0.0, 1.0]), 5),
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
    }

    #[test]
    fn every_value_lies_between_the_edges() {
        for axis in [Axis::linear("", Quantity::Nanos), Axis::log("", Quantity::Nanos)] {
            for values in [
                &[][..],
                &[0.0],
                &[-1.0, 0.0],
                &[1e-300, 1e300],
                &[f64::MAX, f64::MIN],
                &[f64::NAN, f64::INFINITY],
                &[7.0, 7.0],
            ] {
                let scale = scale(&axis, values);
                for value in values.iter().copied().chain([0.0, 1.0]) {
                    let place = scale.position_px(value);
                    assert!(value.is_nan() || (0.0..=100.0).contains(&place), "{axis:?} {value}");
                }
                assert!(scale.ticks(6).len() <= 20, "{axis:?} {values:?}");
            }
        }
    }
}
