//! Rates, sizes, times and counts as people write them: `20M`, `64KiB`, `30us`, `1.5k`.
//!
//! Each type is an integer in its base unit (bit/s, bytes, ns, one). Parsing is exact: a fraction
//! is accepted if it is a whole number of base units (`1.5KiB` is 1536 bytes), otherwise it is an
//! error (`1.5ns`). [`Display`](fmt::Display) prints the shortest text that parses back to the same
//! value. The `format_*` functions are for tables: three significant digits, not exact.
//!
//! ```
//! use handover_base::units::{BitRate, ByteSize, TimeSpan, UnitError, format_ns};
//! assert_eq!("1.5G".parse::<BitRate>()?, BitRate(1_500_000_000));
//! assert_eq!("64KiB".parse::<ByteSize>()?, ByteSize(65_536));
//! assert_eq!("30us".parse::<TimeSpan>()?.to_string(), "30us");
//! assert_eq!(format_ns(1204.0), "1.20 µs");
//! let error = "20".parse::<TimeSpan>().unwrap_err().to_string();
//! assert_eq!(error, r#""20" has no unit: write 20ns, 20us, 20ms, 20s, 20min or 20h"#);
//! # Ok::<(), UnitError>(())
//! ```

mod read;
mod scale;
mod show;

pub use read::UnitError;
pub use show::{format_bytes_rate, format_count, format_ns, format_rate};

use scale::{DECIMAL_UNITS, UnitScale, unit};
use std::fmt;
use std::str::FromStr;

/// Rate in bit/s, at least 1. It is parsed from a plain integer or a decimal multiple such as `20M`
/// or `1.5G` (`k`, `M`, `G`, `T` for 10^3 to 10^12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// Size in bytes. It is parsed from a plain integer, a decimal multiple (`64kB` or `64k`: 64,000)
/// or a binary one (`64KiB`: 65,536), up to `TB` and `TiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Time span in ns. It is parsed from text such as `30us` (or `30µs`), `1.5ms` or `2min`; the units
/// are `ns`, `us`, `ms`, `s`, `min` and `h`. Only `0` needs no unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub u64);

/// Count, parsed from a plain integer or a decimal multiple such as `1.5k`, `20M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(pub u64);

/// Units in which a [`BitRate`] is parsed and printed.
static RATE: UnitScale =
    UnitScale { units: DECIMAL_UNITS, base: " bit/s", example: "20M", allows_zero: false };

/// Units in which a [`Count`] is parsed and printed.
static COUNT: UnitScale =
    UnitScale { units: DECIMAL_UNITS, base: "", example: "1.5k", allows_zero: true };

/// Units in which a [`ByteSize`] is parsed and printed.
static SIZE: UnitScale = UnitScale {
    units: &[
        unit(&["B", ""], 1),
        unit(&["kB", "k"], 1_000),
        unit(&["KiB"], 1 << 10),
        unit(&["MB", "M"], 1_000_000),
        unit(&["MiB"], 1 << 20),
        unit(&["GB", "G"], 1_000_000_000),
        unit(&["GiB"], 1 << 30),
        unit(&["TB", "T"], 1_000_000_000_000),
        unit(&["TiB"], 1 << 40),
    ],
    base: " B",
    example: "64KiB",
    allows_zero: true,
};

/// Units in which a [`TimeSpan`] is parsed and printed.
static SPAN: UnitScale = UnitScale {
    // U+00B5 is the micro sign, U+03BC the Greek letter: keyboards give either.
    units: &[
        unit(&["ns"], 1),
        unit(&["us", "\u{b5}s", "\u{3bc}s"], 1_000),
        unit(&["ms"], 1_000_000),
        unit(&["s"], 1_000_000_000),
        unit(&["min"], 60_000_000_000),
        unit(&["h"], 3_600_000_000_000),
    ],
    base: " ns",
    example: "30us",
    allows_zero: true,
};

macro_rules! quantity {
    ($type:ident, $scale:ident) => {
        impl FromStr for $type {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                read::parse_quantity(text, &$scale).map($type)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&show::format_shortest(self.0, &$scale))
            }
        }

        impl From<u64> for $type {
            fn from(value: u64) -> Self {
                $type(value)
            }
        }
    };
}

quantity!(BitRate, RATE);
quantity!(ByteSize, SIZE);
quantity!(TimeSpan, SPAN);
quantity!(Count, COUNT);

impl From<TimeSpan> for std::time::Duration {
    fn from(span: TimeSpan) -> Self {
        std::time::Duration::from_nanos(span.0)
    }
}
