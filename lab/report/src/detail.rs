//! Data for the page's script: the distribution of each contender of every figure, small enough to
//! embed in the page.

use crate::counts::named_counts;
use crate::format;
use crate::histogram::decode_histogram;
use crate::model::{FigureRows, Model};
use crate::text::is_control;
use handover_record::{Document, Ratio, Record};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Quantiles at which the percentile curve has points.
const QUANTILES: [f64; 19] = [
    0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99995,
    0.99999, 0.999_995, 0.999_999, 1.0,
];
/// Number of bars of a histogram, of equal width on a logarithmic axis.
const BARS_COUNT: usize = 60;
/// Maximum share of the samples, the slowest ones, that a histogram's bars leave out. A single
/// outlier must not compress all others into one bar.
const BEYOND_SHARE: f64 = 0.001;
/// Number of histogram units in one unit of the figure. Histograms store thousandths.
const HISTOGRAM_UNITS: f64 = 1000.0;

/// Data of all figures, for the script of the page.
#[derive(Serialize)]
pub(crate) struct Details<'a> {
    /// Quantiles of the percentile curves.
    quantiles: &'static [f64],
    pub figures: Vec<Detail<'a>>,
}

/// Data of one figure with its contenders.
#[derive(Serialize)]
pub(crate) struct Detail<'a> {
    /// Id of the figure.
    pub id: &'a str,
    /// Description of the timed operation.
    what: &'a str,
    unit: String,
    /// Ends of the histogram's axis: smallest value of the first bar, and largest of the last.
    span: [f64; 2],
    /// Contenders of the figure.
    pub rows: Vec<Contender<'a>>,
}

/// Data of one contender of a figure.
#[derive(Serialize)]
pub(crate) struct Contender<'a> {
    #[serde(skip)]
    record: &'a Record,
    name: &'a str,
    kind: String,
    args: String,
    /// Kind of the figure: a median or a mean.
    statistic: &'a str,
    /// Value of the figure, in the figure's unit.
    median: f64,
    /// Modes of the figure, which are shown in place of its value; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    modes: String,
    /// Lower bound of the figure's 95 % interval.
    low: Option<f64>,
    /// Upper bound of the figure's 95 % interval.
    high: Option<f64>,
    /// 99 % quantile of the operations' times; `None` if no operation was timed alone.
    p99: Option<f64>,
    /// Operations or, if an operation moves bytes, bytes per second.
    rate: f64,
    cpus: f64,
    /// Resource usage by role, as text.
    used: String,
    samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<RatioView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<RatioView<'a>>,
    /// Values at [`QUANTILES`]; empty without samples of single operations.
    quantiles: Vec<f64>,
    /// Share of the samples that the fullest bar contains; `bars` are in thousandths of it.
    peak: f64,
    /// Samples in each bar of the histogram, in thousandths of the fullest bar.
    bars: Vec<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a str>,
    /// Counts per operation of the workload's counters, the allocator and the hardware counters, by
    /// name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    counters: BTreeMap<&'a str, f64>,
}

/// Ratio to a floor or a peer, with its 95 % interval.
#[derive(Serialize)]
struct RatioView<'a> {
    name: &'a str,
    ratio: f64,
    low: Option<f64>,
    high: Option<f64>,
}

impl<'a> Details<'a> {
    pub(crate) fn new(document: &'a Document) -> Self {
        let model = Model::new(document, true);
        let figures = model.groups.into_iter().flat_map(|group| group.figures);
        Self { quantiles: &QUANTILES, figures: figures.filter_map(|it| detail(&it)).collect() }
    }

    /// Returns the indices of a record's figure and contender in the data. Returns `None` if they
    /// are not listed.
    pub(crate) fn indices_of(&self, record: &Record) -> Option<(usize, usize)> {
        let figure = self.figures.iter().position(|it| it.id == record.id)?;
        let is_it = |row: &Contender<'_>| std::ptr::eq(row.record, record);
        Some((figure, self.figures[figure].rows.iter().position(is_it)?))
    }

    /// Returns the data as JSON that can be embedded in a page. No text in it can close the
    /// enclosing element.
    pub(crate) fn to_json(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut safe = String::with_capacity(json.len());
        for letter in json.chars() {
            match letter {
                '<' | '>' | '&' => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
                letter if is_control(letter) => safe.push('\u{fffd}'),
                letter => safe.push(letter),
            }
        }
        safe
    }
}

/// Returns the data of a figure for the script; `None` if it has no contender.
fn detail<'a>(figure: &FigureRows<'a>) -> Option<Detail<'a>> {
    let first = *figure.rows.first()?;
    // Decoded once for the axis and once for the bars, so that only one is in memory at a time: a
    // short text may be a large histogram.
    let decode = |it: &&'a Record| decode_histogram(&it.histogram);
    let scale = BarScale::over(figure.rows.iter().filter_map(decode));
    let contender = |record: &&'a Record| {
        let samples = decode(record);
        let beside =
            |it: &'a Ratio, name| RatioView { name, ratio: it.ratio, low: it.low, high: it.high };
        let summary = &record.summary;
        let (peak, bars) = samples.as_ref().map_or_else(Default::default, |it| scale.bars(it));
        Contender {
            record,
            name: &record.contender,
            kind: record.kind.to_string(),
            args: format::arguments(record, |_, _| true),
            statistic: format::statistic(record),
            median: summary.median,
            modes: format::modes_line(record),
            low: summary.low,
            high: summary.high,
            p99: summary.quantiles().map(|it| it.p99),
            rate: record.bytes_per_s.unwrap_or(record.rate_per_s),
            cpus: record.cpus_user + record.cpus_system,
            used: format::resources(record),
            samples: summary.timed_alone_count(),
            floor: record.floor.as_ref().map(|it| beside(it, format::floor_name(record, it))),
            peer: record.best_peer().map(|it| beside(it, &it.contender)),
            quantiles: match summary.quantiles() {
                Some(_) => samples.as_ref().map_or_else(Vec::new, quantiles),
                // A quantile of batch means is not one of operations.
                None => Vec::new(),
            },
            peak,
            bars,
            warnings: record.warnings.iter().map(|it| it.text.as_str()).collect(),
            counters: named_counts(record).collect(),
        }
    };
    Some(Detail {
        id: figure.id,
        what: &first.what,
        unit: first.unit.to_string(),
        span: [scale.from, scale.to],
        rows: figure.rows.iter().map(contender).collect(),
    })
}

/// Returns the values at [`QUANTILES`]. A quantile that needs more samples is the maximum.
fn quantiles(samples: &Histogram<u64>) -> Vec<f64> {
    let value =
        |&quantile: &f64| rounded(samples.value_at_quantile(quantile) as f64 / HISTOGRAM_UNITS);
    QUANTILES.iter().map(value).collect()
}

/// Rounds to four significant digits, which are more than a chart shows.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Logarithmic axis of a histogram's bars.
struct BarScale {
    /// Smallest value in the range of the first bar.
    from: f64,
    /// Largest value in the range of the last bar.
    to: f64,
}

impl BarScale {
    /// Returns the axis for these histograms. It covers all samples except the slowest.
    fn over(all: impl Iterator<Item = Histogram<u64>>) -> Self {
        let (mut from, mut to) = (f64::MAX, 0.0_f64);
        for samples in all {
            // No value is below one step: a logarithmic axis has no zero.
            from = from.min(samples.min().max(1) as f64 / HISTOGRAM_UNITS);
            to = to
                .max(samples.value_at_quantile(1.0 - BEYOND_SHARE).max(1) as f64 / HISTOGRAM_UNITS);
        }
        // A histogram stores values with three digits.
        match from * 1.01 < to {
            true => Self { from, to },
            // All values are equal: the axis extends around them.
            false if to > 0.0 => Self { from: to / 2.0, to: to * 2.0 },
            false => Self { from: 1.0, to: 2.0 },
        }
    }

    /// Returns the share of the samples in the fullest bar, and all bars in thousandths of the
    /// fullest. Samples beyond the last bar are omitted.
    fn bars(&self, samples: &Histogram<u64>) -> (f64, Vec<u16>) {
        let width = (self.to / self.from).ln() / BARS_COUNT as f64;
        let mut bars = vec![0_u64; BARS_COUNT];
        for step in samples.iter_recorded() {
            let value = (step.value_iterated_to().max(1) as f64 / HISTOGRAM_UNITS).max(self.from);
            let place = ((value / self.from).ln() / width) as usize;
            // The upper bound belongs to the last bar.
            let last = value <= self.to * 1.001;
            if let Some(bar) = bars.get_mut(if last { place.min(BARS_COUNT - 1) } else { place }) {
                *bar += step.count_since_last_iteration();
            }
        }
        let fullest = bars.iter().copied().max().unwrap_or(0).max(1) as f64;
        let height = |count: &u64| (*count as f64 * 1000.0 / fullest).round() as u16;
        (rounded(fullest / samples.len() as f64), bars.iter().map(height).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(u64, u64)]) -> Histogram<u64> {
        let mut samples = Histogram::new(3).unwrap();
        values.iter().for_each(|&(value, count)| samples.record_n(value, count).unwrap());
        samples
    }

    #[test]
    fn bars_hold_all_samples_but_the_slowest_thousandth() {
        let samples = of(&[(10_000, 500), (20_000, 499), (9_000_000, 1)]);
        let scale = BarScale::over([samples.clone()].into_iter());
        let (peak, bars) = scale.bars(&samples);
        assert_eq!(peak, 0.5);
        assert_eq!((bars[0], bars[BARS_COUNT - 1]), (1000, 998));
        assert_eq!(bars.iter().filter(|&&bar| bar > 0).count(), 2);
        let quantiles = quantiles(&samples);
        assert!(
            (quantiles[5] / 10.0 - 1.0).abs() < 0.002,
            "the median is {}, expected 10",
            quantiles[5]
        );
        assert!((quantiles[QUANTILES.len() - 1] / 9000.0 - 1.0).abs() < 0.002);
    }

    #[test]
    fn axis_of_equal_samples_surrounds_them() {
        let samples = of(&[(7_000, 3)]);
        let scale = BarScale::over([samples.clone()].into_iter());
        assert!(scale.from < 7.0 && scale.to > 7.0);
        let (peak, bars) = scale.bars(&samples);
        assert_eq!((peak, bars.iter().sum::<u16>()), (1.0, 1000));
        assert!(BarScale::over(std::iter::empty()).from > 0.0);
    }

    #[test]
    fn data_cannot_end_its_html_element() {
        let evil = "</script><!--\u{202e}]]>&amp;";
        let figure = Detail {
            id: evil,
            what: evil,
            unit: String::new(),
            span: [1.0, 2.0],
            rows: Vec::new(),
        };
        let json = Details { quantiles: &QUANTILES, figures: vec![figure] }.to_json();
        assert!(!json.contains(['<', '>', '&', '\u{202e}']));
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["figures"][0]["id"], evil.replace('\u{202e}', "\u{fffd}"));
    }
}
