//! Notation of a kind of quantity.

/// Unit of a quantity, with its spellings and its size.
pub(super) struct Unit {
    /// Spellings that are parsed; the first is used for printing.
    pub names: &'static [&'static str],
    /// Size of the unit in base units.
    pub factor: u64,
}

pub(super) const fn unit(names: &'static [&'static str], factor: u64) -> Unit {
    Unit { names, factor }
}

/// Units in which one kind of quantity is parsed and printed. The base unit's name and an example
/// are included.
pub(super) struct UnitScale {
    /// Units, ascending by factor; the first is the base unit.
    pub units: &'static [Unit],
    /// Name of the base unit, printed after a number in error messages.
    pub base: &'static str,
    /// Example of a valid text, for error messages.
    pub example: &'static str,
    /// `true` if zero is a valid value.
    pub allows_zero: bool,
}

/// Decimal multiples of a base unit that is not written: `k`, `M`, `G`, `T`.
pub(super) const DECIMAL_UNITS: &[Unit] = &[
    unit(&[""], 1),
    unit(&["k"], 1_000),
    unit(&["M"], 1_000_000),
    unit(&["G"], 1_000_000_000),
    unit(&["T"], 1_000_000_000_000),
];
