//! Ranges of an argument for a sweep.

use crate::args::{ArgNotation, Param};
use std::fmt;
use std::str::FromStr;

/// Maximum number of values in a range. More values would take hours to measure.
const VALUES_MAX: usize = 256;
/// Approximate number of values of a range without a step.
const VALUES_WITHOUT_STEP: u64 = 12;

/// Range of an argument's values: `ARG=a..b`, `ARG=a..b:step` or `ARG=a..b:log`. Both ends are
/// included; with `:log` each value is twice the previous one.
///
/// ```
/// use handover_record::{ArgNotation, ArgRange, Param};
/// let slots = Param {
///     name: "slots_count", help: "", kind: ArgNotation::Count, default: 8, smoke: 2, min: 1, max: 4096,
/// };
/// let over: ArgRange = "slots_count=1..40:log".parse()?;
/// assert_eq!(over.values(&slots)?, [1, 2, 4, 8, 16, 32, 40]);
/// let over: ArgRange = "slots_count=10..40:10".parse()?;
/// assert_eq!(over.values(&slots)?, [10, 20, 30, 40]);
/// assert_eq!(over.to_string(), "slots_count=10..40:10");
/// # Ok::<(), handover_record::ArgRangeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgRange {
    /// Name of the argument to vary.
    pub name: String,
    /// First value, as the user wrote it.
    from: String,
    /// Last value, as the user wrote it.
    to: String,
    step: Step,
}

/// Method by which the values of a range are computed: equal steps, or doubling.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Equal steps, such that there are about [`VALUES_WITHOUT_STEP`] values.
    Even,
    /// Equal steps of this size, in the notation of the argument.
    By(String),
    /// Doubling: each value is twice the previous one.
    Log,
}

/// Error for an invalid range. The message names the range and the remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgRangeError {
    /// The text does not have the form of a range.
    #[error(
        "the range must have the form ARG=a..b, ARG=a..b:step or ARG=a..b:log, as in slots_count=1..4096:log"
    )]
    Form,
    /// A bound or the step of the range is not in the argument's notation.
    #[error("--over {name}: {text}: {why}")]
    Text {
        /// Name of the argument.
        name: String,
        /// Text that did not parse.
        text: String,
        /// Reason of the parser.
        why: String,
    },
    /// A bound of the range lies outside the argument's bounds.
    #[error("--over {name}={text}: must lie in {min}..={max}")]
    Bounds {
        /// Name of the argument.
        name: String,
        /// Bound as the user wrote it.
        text: String,
        /// Minimum value of the argument.
        min: String,
        /// Maximum value of the argument.
        max: String,
    },
    /// The first value is not below the last.
    #[error("--over {name}={from}..{to}: the first value must be below the last")]
    Backwards {
        /// Name of the argument.
        name: String,
        /// First value of the range.
        from: String,
        /// Last value of the range.
        to: String,
    },
    /// The step is zero, or a logarithmic range starts at zero.
    #[error("--over {name}: {what}")]
    InvalidStep {
        /// Name of the argument.
        name: String,
        /// Violated rule of the step or the first value.
        what: &'static str,
    },
    /// The range has too many values.
    #[error(
        "--over {name}: {count} values exceed the limit of {VALUES_MAX}; use a larger step, or :log"
    )]
    TooMany {
        /// Name of the argument.
        name: String,
        /// Number of values of the range.
        count: u64,
    },
}

impl FromStr for ArgRange {
    type Err = ArgRangeError;

    fn from_str(text: &str) -> Result<ArgRange, ArgRangeError> {
        let (name, range) = text.split_once('=').ok_or(ArgRangeError::Form)?;
        let (range, step) = match range.split_once(':') {
            None => (range, Step::Even),
            Some((range, "log")) => (range, Step::Log),
            Some((range, step)) => (range, Step::By(step.to_string())),
        };
        let (from, to) = range.split_once("..").ok_or(ArgRangeError::Form)?;
        let to = to.strip_prefix('=').unwrap_or(to);
        let is_bare = matches!(&step, Step::By(step) if step.is_empty());
        if [name, from, to].contains(&"") || is_bare {
            return Err(ArgRangeError::Form);
        }
        Ok(ArgRange { name: name.to_string(), from: from.to_string(), to: to.to_string(), step })
    }
}

impl fmt::Display for ArgRange {
    /// Formats the range as it is parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArgRange { name, from, to, step } = self;
        write!(f, "{name}={from}..{to}")?;
        match step {
            Step::Even => Ok(()),
            Step::By(step) => write!(f, ":{step}"),
            Step::Log => f.write_str(":log"),
        }
    }
}

impl ArgRange {
    /// Returns the values of the range in ascending order.
    ///
    /// # Errors
    /// Fails for a bound that does not parse or lies outside the argument's bounds, an empty range,
    /// or too many values.
    pub fn values(&self, param: &Param) -> Result<Vec<u64>, ArgRangeError> {
        let (from, to) = (self.parse_bound(param, &self.from)?, self.parse_bound(param, &self.to)?);
        let name = self.name.clone();
        if from >= to {
            let (from, to) = (self.from.clone(), self.to.clone());
            return Err(ArgRangeError::Backwards { name, from, to });
        }
        let step = match &self.step {
            Step::Log => return self.doubling_values(from, to),
            Step::Even => ((to - from) / VALUES_WITHOUT_STEP).max(1),
            Step::By(text) => self.parse_value(param.kind, text)?,
        };
        if step == 0 {
            return Err(ArgRangeError::InvalidStep { name, what: "the step must be above 0" });
        }
        let steps_count = (to - from) / step;
        let is_between = !(to - from).is_multiple_of(step);
        let count = steps_count.saturating_add(1 + u64::from(is_between));
        if count > VALUES_MAX as u64 {
            return Err(ArgRangeError::TooMany { name, count });
        }
        let mut values: Vec<u64> = (0..=steps_count).map(|place| from + place * step).collect();
        if values.last() != Some(&to) {
            values.push(to);
        }
        Ok(values)
    }

    /// Returns `from`, its doubles below `to`, and `to`. Fails if `from` is 0.
    fn doubling_values(&self, from: u64, to: u64) -> Result<Vec<u64>, ArgRangeError> {
        if from == 0 {
            let what = "the first value must be above 0 with :log";
            return Err(ArgRangeError::InvalidStep { name: self.name.clone(), what });
        }
        let mut values = vec![from];
        let mut value = from;
        while let Some(next) = value.checked_mul(2).filter(|next| *next < to) {
            values.push(next);
            value = next;
        }
        values.push(to);
        Ok(values)
    }

    /// Parses a bound of the range. Fails if it lies outside the argument's bounds.
    fn parse_bound(&self, param: &Param, text: &str) -> Result<u64, ArgRangeError> {
        let value = self.parse_value(param.kind, text)?;
        if (param.min..=param.max).contains(&value) {
            return Ok(value);
        }
        Err(ArgRangeError::Bounds {
            name: self.name.clone(),
            text: text.to_string(),
            min: param.kind.format_value(param.min),
            max: param.kind.format_value(param.max),
        })
    }

    /// Parses a bound or the step of the range.
    fn parse_value(&self, kind: ArgNotation, text: &str) -> Result<u64, ArgRangeError> {
        kind.parse_value(text).map_err(|why| ArgRangeError::Text {
            name: self.name.clone(),
            text: text.to_string(),
            why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Param = Param {
        name: "size",
        help: "",
        kind: ArgNotation::Bytes,
        default: 1,
        smoke: 1,
        min: 0,
        max: 1 << 20,
    };

    fn values(text: &str) -> Result<Vec<u64>, ArgRangeError> {
        text.parse::<ArgRange>()?.values(&BYTES)
    }

    #[test]
    fn range_includes_both_bounds() {
        assert_eq!(values("size=1..4:2"), Ok(vec![1, 3, 4]));
        assert_eq!(values("size=1..=5:2"), Ok(vec![1, 3, 5]));
        assert_eq!(values("size=1KiB..8KiB:log"), Ok(vec![1024, 2048, 4096, 8192]));
        assert_eq!(values("size=3..4"), Ok(vec![3, 4]));
        assert_eq!(values("size=0..1200").map(|it| (it.len(), it[1])), Ok((13, 100)));
        assert_eq!(
            values("size=1..256:1").map(|it| it.len()),
            Ok(256),
            "a sweep of the maximum number of values was refused"
        );
        let many = |count| ArgRangeError::TooMany { name: "size".to_string(), count };
        assert_eq!(values("size=1..257:1"), Err(many(257)));
        assert_eq!(values("size=0..1019:4"), Ok((0..255).map(|at| at * 4).chain([1019]).collect()));
        assert_eq!(values("size=0..1021:4"), Err(many(257)));
        let wide = Param { kind: ArgNotation::Count, max: u64::MAX, ..BYTES };
        let all = format!("size=0..{}:1", u64::MAX).parse::<ArgRange>();
        assert_eq!(all.and_then(|it| it.values(&wide)), Err(many(u64::MAX)));
    }

    #[test]
    fn invalid_range_is_rejected_with_a_remedy() {
        for (text, why) in [
            ("size", "the range must have the form ARG=a..b"),
            ("size=3", "the range must have the form ARG=a..b"),
            ("=1..2", "the range must have the form ARG=a..b"),
            ("size=..2", "the range must have the form ARG=a..b"),
            ("size=1..", "the range must have the form ARG=a..b"),
            ("size=1..2:", "the range must have the form ARG=a..b"),
            ("size=2..1", "--over size=2..1: the first value must be below the last"),
            ("size=2..2", "--over size=2..2: the first value must be below the last"),
            ("size=1..2MiB", "--over size=2MiB: must lie in 0B..=1MiB"),
            ("size=1..many", "--over size: many: "),
            ("size=1..9:0", "--over size: the step must be above 0"),
            ("size=0..9:log", "--over size: the first value must be above 0"),
            ("size=1..1MiB:1", "--over size: 1048576 values"),
        ] {
            let refused = values(text).expect_err(text).to_string();
            assert!(refused.starts_with(why), "{text}: {refused}");
        }
    }
}
