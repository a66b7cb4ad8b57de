//! Arguments of a benchmark: typed for the workload, bounded and parsed for the user.

use handover_base::units;
use std::collections::BTreeMap;

/// Declaration of one argument of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Name of the argument, with its unit last: `slots_count`.
    pub name: &'static str,
    /// Help text of one line.
    pub help: &'static str,
    /// Notation of the argument's value.
    pub kind: ArgNotation,
    /// Value of the argument unless the user sets it.
    pub default: u64,
    /// Value in a smoke run, which runs each operation once as a test.
    pub smoke: u64,
    /// Smallest allowed value of the argument.
    pub min: u64,
    /// Largest allowed value of the argument.
    pub max: u64,
}

/// Notation of an argument's value: a plain number, a number of bytes, or a time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgNotation {
    /// A plain number: `64` or `1.5k`.
    Count,
    /// A number of bytes: `1500` or `64KiB`.
    Bytes,
    /// A time span: `30us`.
    Nanos,
}

impl ArgNotation {
    /// Formats a value as a user would write it.
    pub fn format_value(self, value: u64) -> String {
        match self {
            ArgNotation::Count => value.to_string(),
            ArgNotation::Bytes => units::ByteSize(value).to_string(),
            ArgNotation::Nanos if value == 0 => "0".to_string(),
            ArgNotation::Nanos => units::TimeSpan(value).to_string(),
        }
    }

    /// Parses a value in this notation. The error says which form the text must have.
    pub(crate) fn parse_value(self, text: &str) -> Result<u64, String> {
        let parsed = match self {
            ArgNotation::Count => text.parse::<units::Count>().map(|it| it.0),
            ArgNotation::Bytes => text.parse::<units::ByteSize>().map(|it| it.0),
            ArgNotation::Nanos => text.parse::<units::TimeSpan>().map(|it| it.0),
        };
        parsed.map_err(|refused| refused.to_string())
    }
}

/// Type that an argument of a benchmark can have, such as `u32` or [`Bytes`].
pub trait ArgType: Copy {
    /// Notation of the type's values.
    const NOTATION: ArgNotation;
    /// Converts a value within the argument's bounds to this type. The bounds are checked against
    /// the type at compile time.
    fn from_u64(value: u64) -> Self;
}

impl ArgType for u32 {
    const NOTATION: ArgNotation = ArgNotation::Count;
    fn from_u64(value: u64) -> Self {
        u32::try_from(value).unwrap_or(u32::MAX)
    }
}
impl ArgType for u64 {
    const NOTATION: ArgNotation = ArgNotation::Count;
    fn from_u64(value: u64) -> Self {
        value
    }
}
impl ArgType for usize {
    const NOTATION: ArgNotation = ArgNotation::Count;
    fn from_u64(value: u64) -> Self {
        usize::try_from(value).unwrap_or(usize::MAX)
    }
}

/// A number of bytes; written `64KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);
impl ArgType for Bytes {
    const NOTATION: ArgNotation = ArgNotation::Bytes;
    fn from_u64(value: u64) -> Self {
        Bytes(value)
    }
}

/// A time span in nanoseconds; written `30us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nanos(pub u64);
impl ArgType for Nanos {
    const NOTATION: ArgNotation = ArgNotation::Nanos;
    fn from_u64(value: u64) -> Self {
        Nanos(value)
    }
}

/// Typed arguments of a workload, which [`args!`](crate::args) declares.
pub trait Args: Sized {
    /// Declarations of the arguments, in order.
    const PARAMS: &'static [Param];

    /// Converts checked values of the arguments to the typed form. [`ArgValues::parse_and_set`] has
    /// checked them.
    fn from_values(values: &ArgValues) -> Self;

    /// Returns the default values of all arguments.
    fn defaults() -> ArgValues {
        ArgValues::defaults(Self::PARAMS)
    }
}

/// Empty list of arguments, for a benchmark without arguments.
impl Args for () {
    const PARAMS: &'static [Param] = &[];
    fn from_values(_: &ArgValues) -> Self {}
}

/// Declares a workload's arguments: names, help, defaults, smoke values and bounds, checked at
/// compile time. See the crate's page for an example.
#[macro_export]
macro_rules! args {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $(
        $(#[doc = $help:literal])+
        $field:ident : $kind:ty = $default:literal (smoke $smoke:literal, range $min:literal ..= $max:literal)
    ),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name { $( $(#[doc = $help])+ pub $field: $kind, )* }
        impl $crate::Args for $name {
            const PARAMS: &'static [$crate::Param] = &[ $( $crate::Param {
                name: stringify!($field), help: concat!($($help),+),
                kind: <$kind as $crate::ArgType>::NOTATION,
                default: $default, smoke: $smoke, min: $min, max: $max,
            } ),* ];
            fn from_values(values: &$crate::ArgValues) -> Self {
                let _ = values; // unused without arguments
                Self { $( $field: <$kind as $crate::ArgType>::from_u64(values.get(stringify!($field))) ),* }
            }
        }
        const _: () = { $( assert!(
            $min <= $smoke && $smoke <= $max && $min <= $default && $default <= $max,
            concat!("default or smoke value out of bounds: ", stringify!($field)),
        ); )* };
    };
}

/// Values of a benchmark's arguments, each within its bounds.
#[derive(Clone, Debug)]
pub struct ArgValues {
    params: &'static [Param],
    /// Value of each argument, by the argument's name.
    values: BTreeMap<String, u64>,
}

impl PartialEq for ArgValues {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}
impl Eq for ArgValues {}

impl ArgValues {
    /// Returns the default values of all arguments.
    pub fn defaults(params: &'static [Param]) -> ArgValues {
        ArgValues::new(params, |param| param.default)
    }

    /// Returns the values of all arguments in a smoke run, the smallest that make sense.
    pub fn smoke_values(params: &'static [Param]) -> ArgValues {
        ArgValues::new(params, |param| param.smoke)
    }

    /// Creates the values of all arguments; `value` returns the value of one.
    fn new(params: &'static [Param], value: impl Fn(&Param) -> u64) -> ArgValues {
        let values = params.iter().map(|param| (param.name.to_string(), value(param))).collect();
        ArgValues { params, values }
    }

    /// Returns the value of the argument `name`.
    ///
    /// # Panics
    /// Panics if no argument of this name is declared; code generated by [`args!`](crate::args)
    /// only uses declared names.
    pub fn get(&self, name: &str) -> u64 {
        match self.values.get(name) {
            Some(value) => *value,
            None => panic!("ArgValues: no argument {name} is declared"),
        }
    }

    /// Parses `text`, and sets the argument `name` to the result.
    ///
    /// # Errors
    /// Fails for an unknown name (the error suggests the nearest one), a text that does not parse
    /// as the argument's kind, or a value out of bounds; no value is changed then.
    pub fn parse_and_set(&mut self, name: &str, text: &str) -> Result<(), ArgsError> {
        let param = self.param(name)?;
        let value = param.kind.parse_value(text).map_err(|why| ArgsError::Text {
            name: name.to_string(),
            text: text.to_string(),
            why,
        })?;
        self.set_within(param, value, text)
    }

    /// Sets the argument `name` to `value`, in base units.
    ///
    /// # Errors
    /// Fails like [`parse_and_set`](ArgValues::parse_and_set).
    pub fn set_value(&mut self, name: &str, value: u64) -> Result<(), ArgsError> {
        let param = self.param(name)?;
        self.set_within(param, value, &param.kind.format_value(value))
    }

    fn param(&self, name: &str) -> Result<&'static Param, ArgsError> {
        let found = self.params.iter().find(|param| param.name == name);
        found.ok_or_else(|| ArgsError::unknown(name, self.params))
    }

    /// Sets an argument to `value`, which the user wrote as `text`. Fails if the value is out of
    /// bounds.
    fn set_within(&mut self, param: &Param, value: u64, text: &str) -> Result<(), ArgsError> {
        if value < param.min || value > param.max {
            return Err(ArgsError::Bounds {
                name: param.name.to_string(),
                text: text.to_string(),
                min: param.kind.format_value(param.min),
                max: param.kind.format_value(param.max),
            });
        }
        self.values.insert(param.name.to_string(), value);
        Ok(())
    }

    /// Returns the values of all arguments by the arguments' names.
    pub fn by_name(&self) -> &BTreeMap<String, u64> {
        &self.values
    }
}

/// Error for an invalid argument of a benchmark. The message names the argument, the value and the
/// remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgsError {
    /// No argument has that name.
    #[error("--set {name}: no such argument{hint}")]
    Unknown {
        /// Name of the requested argument.
        name: String,
        /// The nearest existing name, or all existing names.
        hint: String,
    },
    /// The text is not in the argument's notation.
    #[error("--set {name}={text}: {why}")]
    Text {
        /// Name of the argument.
        name: String,
        /// Text that did not parse.
        text: String,
        /// Reason of the parser.
        why: String,
    },
    /// The value is out of bounds.
    #[error("--set {name}={text}: must lie in {min}..={max}")]
    Bounds {
        /// Name of the argument.
        name: String,
        /// Value as the user wrote it.
        text: String,
        /// Minimum value of the argument.
        min: String,
        /// Maximum value of the argument.
        max: String,
    },
}

impl ArgsError {
    /// Creates the error for an unknown argument. The error suggests a similar name, or lists all
    /// names.
    fn unknown(name: &str, params: &[Param]) -> ArgsError {
        let nearest = params
            .iter()
            .map(|param| (strsim::jaro_winkler(name, param.name), param.name))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let hint = match nearest {
            None => "; this benchmark has no arguments".to_string(),
            Some((likeness, near)) if likeness > 0.8 => format!("; did you mean {near}?"),
            Some(_) => {
                let names: Vec<_> = params.iter().map(|param| param.name).collect();
                format!("; its arguments are {names}", names = names.join(", "))
            }
        };
        ArgsError::Unknown { name: name.to_string(), hint }
    }
}
