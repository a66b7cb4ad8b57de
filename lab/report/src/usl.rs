//! Scaling of throughput with the number of workers: a fitted law and its predictions.

use handover_base::random::SplitMix64;

/// Universal Scalability Law: `X(N) = γN / (1 + σ(N - 1) + κN(N - 1))`.
///
/// γ is the throughput of one worker; σ, contention, is the serial share of the work; κ, coherency,
/// is the cost that each worker adds to every other. With κ above zero there is a peak, beyond
/// which more workers do less.
///
/// ```
/// use handover_report::usl::Usl;
///
/// let law = Usl { gamma: 1000.0, sigma: 0.05, kappa: 0.0002 };
/// let points: Vec<_> = [1.0, 2.0, 8.0, 32.0, 100.0].map(|n| (n, law.throughput(n))).into();
/// let fitted = Usl::fit(&points).expect("five points are enough");
/// assert!((fitted.sigma - 0.05).abs() < 1e-9);
/// let (n, _) = fitted.peak().expect("coherency gives a peak");
/// assert_eq!(n.round(), 69.0);
/// ```
///
/// # Source
/// N. J. Gunther, "A Simple Capacity Model of Massively Parallel Transaction Systems", CMG 1993;
/// "Guerrilla Capacity Planning", Springer 2007, chapters 4 to 6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// γ: throughput of one worker.
    pub gamma: f64,
    /// σ: contention, the serial share of the work, from 0 to 1 in a fitted law.
    pub sigma: f64,
    /// κ: coherency, the cost that each worker adds to every other; never below 0.
    pub kappa: f64,
}

/// Throughput that a fitted law predicts, with its 95 % interval. A measured throughput lies in the
/// interval in 95 % of the cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Predicted throughput.
    pub throughput: f64,
    /// Lower bound of the throughput's 95 % interval.
    pub low: f64,
    /// Upper bound of the throughput's 95 % interval.
    pub high: f64,
    /// Check with a law that was fitted without the points with the most workers.
    pub held_out: HeldOut,
}

/// Check of a law by the points with the highest numbers of workers, to which it was not fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldOut {
    /// Smallest number of workers of the held-out points.
    pub from: f64,
    /// Relative error (root mean square) of the predictions for the held-out points.
    pub error: f64,
}

/// Minimum number of points to fit three coefficients.
const POINTS_MIN: usize = 4;
/// Divisor of the number of points, which gives the number of held-out points.
const HELD_OUT_DIVISOR: usize = 4;
/// Number of bootstrap resamples from which a prediction's interval is computed.
const RESAMPLES: usize = 1000;

impl Usl {
    /// Fits the law to pairs of a number of workers and its throughput. Returns `None` for fewer
    /// than four distinct numbers, or invalid ones. Numbers must be at least 1, and throughputs
    /// above zero.
    ///
    /// The fit minimizes the squares of the relative error of `N / X`, which is linear in `1/γ`,
    /// `σ/γ` and `κ/γ`: the solution is unique and needs no starting point. The error is relative,
    /// as throughputs may be decades apart. A coefficient that would be negative is set to zero,
    /// and contention, being a share, is at most one.
    pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
        let is_fine = |(n, x): &(f64, f64)| *n >= 1.0 && *x > 0.0 && n.is_finite() && x.is_finite();
        if !points.iter().all(is_fine) {
            return None;
        }
        let mut numbers: Vec<f64> = points.iter().map(|it| it.0).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        if numbers.len() < POINTS_MIN {
            return None;
        }
        // Choices of non-zero coefficients: the best of those without a negative one is taken.
        let choices = [[true, true], [true, false], [false, true], [false, false]];
        let laws = choices.into_iter().filter_map(|choice| Usl::fit_with(points, choice));
        let serial = [true, false].into_iter().filter_map(|choice| Usl::fit_serial(points, choice));
        laws.chain(serial).min_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1)
    }

    /// Fits a law; `choice` selects if it has contention, and if it has coherency. Returns the
    /// residual sum of squares with the law, or `None` if a coefficient is outside its range.
    fn fit_with(points: &[(f64, f64)], choice: [bool; 2]) -> Option<(f64, Usl)> {
        // Columns of similar size keep the sums precise.
        let most = points.iter().map(|it| it.0).fold(1.0, f64::max);
        let columns = |n: f64| [1.0, (n - 1.0) / most, n * (n - 1.0) / (most * most)];
        let solved = least_squares(points, columns, [true, choice[0], choice[1]])?;
        let law = Usl {
            gamma: 1.0 / solved[0],
            sigma: solved[1] / solved[0] / most,
            kappa: solved[2] / solved[0] / (most * most),
        };
        (law.sigma <= 1.0).then(|| (law.sum_of_squares(points), law))
    }

    /// Fits a law with a contention of 1, in which all work is serial. Returns the residual sum of
    /// squares with it.
    fn fit_serial(points: &[(f64, f64)], has_coherency: bool) -> Option<(f64, Usl)> {
        let most = points.iter().map(|it| it.0).fold(1.0, f64::max);
        let columns = |n: f64| [n / most, 0.0, n * (n - 1.0) / (most * most)];
        let solved = least_squares(points, columns, [true, false, has_coherency])?;
        let gamma = most / solved[0];
        let law = Usl { gamma, sigma: 1.0, kappa: solved[2] / (most * most) * gamma };
        Some((law.sum_of_squares(points), law))
    }

    /// Returns the throughput of `n` workers.
    pub fn throughput(&self, n: f64) -> f64 {
        self.gamma * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Returns the number of workers with the highest throughput, and this throughput. `None` if
    /// the throughput never decreases.
    pub fn peak(&self) -> Option<(f64, f64)> {
        let n = ((1.0 - self.sigma) / self.kappa).sqrt();
        // With contention of one or more, a single worker has the highest throughput.
        let n = if self.sigma >= 1.0 { 1.0 } else { n };
        (self.kappa > 0.0 && n.is_finite()).then(|| (n.max(1.0), self.throughput(n.max(1.0))))
    }

    /// Returns the upper limit of the throughput; `None` without contention or with a peak.
    pub fn throughput_limit(&self) -> Option<f64> {
        (self.kappa == 0.0 && self.sigma > 0.0).then(|| self.gamma / self.sigma)
    }

    /// Fits a law without the quarter of the points with the most workers, and predicts this
    /// quarter. Returns `None` if no law can be fitted to the other points.
    pub fn check_held_out(points: &[(f64, f64)]) -> Option<HeldOut> {
        let mut points = points.to_vec();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let held_count = (points.len() / HELD_OUT_DIVISOR).max(1);
        let (fitted, held_out) = points.split_at(points.len().checked_sub(held_count)?);
        let error = Usl::fit(fitted)?.rms_error(held_out);
        Some(HeldOut { from: held_out.first()?.0, error })
    }

    /// Predicts the throughput of `n` workers by a law fitted to the points. `None` if no law can
    /// be fitted.
    ///
    /// The interval is that of a bootstrap of the relative residuals: laws are fitted to points
    /// that are scattered about the law like the measured ones, and each predicts with a residual
    /// of its own. It is valid as far as the law holds beyond the points, which
    /// [`check_held_out`](Self::check_held_out) tells; so it is at least as wide as the error
    /// there.
    ///
    /// # Source
    /// A. C. Davison, D. V. Hinkley, "Bootstrap Methods and their Application", 1997, chapters 6.2
    /// and 6.3.3.
    pub fn predict(points: &[(f64, f64)], n: f64) -> Option<Prediction> {
        let law = Usl::fit(points)?;
        let held_out = Usl::check_held_out(points)?;
        // Residuals of a fit of three coefficients are smaller than the scatter that they come
        // from.
        let free = points.len().saturating_sub(3).max(1) as f64;
        let scale = (points.len() as f64 / free).sqrt();
        let residual = |(n, x): &(f64, f64)| scale * (x / law.throughput(*n)).ln();
        let residuals: Vec<f64> = points.iter().map(residual).collect();
        let mut random = SplitMix64::new(0);
        let mut draw = || residuals[random.next_below(residuals.len())].exp();
        let mut predicted = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let scattered: Vec<_> =
                points.iter().map(|(n, _)| (*n, law.throughput(*n) * draw())).collect();
            predicted.extend(Usl::fit(&scattered).map(|law| law.throughput(n) * draw()));
        }
        predicted.sort_by(f64::total_cmp);
        let quantile =
            |share: f64| predicted.get((share * predicted.len() as f64) as usize).copied();
        let throughput = law.throughput(n);
        let wide = 1.0 + held_out.error;
        Some(Prediction {
            throughput,
            low: quantile(0.025)?.min(throughput / wide),
            high: quantile(0.975)?.max(throughput * wide),
            held_out,
        })
    }

    /// Returns the law's relative error at the points, as a root mean square.
    pub fn rms_error(&self, points: &[(f64, f64)]) -> f64 {
        (self.sum_of_squares(points) / points.len().max(1) as f64).sqrt()
    }

    /// Returns the sum of the squared relative errors of the law at the points.
    fn sum_of_squares(&self, points: &[(f64, f64)]) -> f64 {
        points.iter().map(|(n, x)| (x / self.throughput(*n) - 1.0).powi(2)).sum()
    }
}

/// Fits `n / x` by the used columns of `n`, minimizing the squares of the relative error. Returns
/// `None` if a coefficient is negative.
fn least_squares(
    points: &[(f64, f64)],
    columns: impl Fn(f64) -> [f64; 3],
    used: [bool; 3],
) -> Option<[f64; 3]> {
    let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
    for (n, x) in points {
        let (row, weight) = (columns(*n), x / n);
        for i in (0..3).filter(|i| used[*i]) {
            for j in (0..3).filter(|j| used[*j]) {
                matrix[i][j] += row[i] * row[j] * weight * weight;
            }
            right[i] += row[i] * weight;
        }
    }
    for i in (0..3).filter(|i| !used[*i]) {
        matrix[i][i] = 1.0;
    }
    let solved = solve(matrix, right)?;
    let is_fine = solved[0] > 0.0 && solved.iter().all(|it| *it >= 0.0 && it.is_finite());
    is_fine.then_some(solved)
}

/// Solves three linear equations; `None` if the solution is not unique.
fn solve(mut matrix: [[f64; 3]; 3], mut right: [f64; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-15 * matrix[0][0].abs().max(f64::MIN_POSITIVE) {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..3 {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column];
            for (place, value) in matrix[row].iter_mut().enumerate().skip(column) {
                *value -= factor * above[place];
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solved = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|place| matrix[row][place] * solved[place]).sum();
        solved[row] = (right[row] - known) / matrix[row][row];
    }
    Some(solved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(law: Usl, noise: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        let numbers = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let point = |(place, n): (usize, &f64)| (*n, law.throughput(*n) * (1.0 + noise(place)));
        numbers.iter().enumerate().map(point).collect()
    }

    fn near(a: f64, b: f64, relative: f64) -> bool {
        (a - b).abs() <= relative * b.abs()
    }

    #[test]
    fn fit_recovers_known_coefficients() {
        for (gamma, sigma, kappa) in [
            (1000.0, 0.05, 0.0003),
            (1e7, 0.4, 1e-5),
            (0.5, 0.001, 0.01),
            (42.0, 0.9, 0.05),
            (1e9, 1e-4, 1e-8),
        ] {
            let fitted =
                Usl::fit(&points(Usl { gamma, sigma, kappa }, |_| 0.0)).expect("no law was fitted");
            let is_near = near(fitted.gamma, gamma, 1e-6)
                && near(fitted.sigma, sigma, 1e-4)
                && near(fitted.kappa, kappa, 1e-4);
            assert!(is_near, "{fitted:?} for {gamma} {sigma} {kappa}");
        }
    }

    #[test]
    fn two_percent_noise_changes_the_peak_little() {
        let law = Usl { gamma: 1000.0, sigma: 0.03, kappa: 0.0004 };
        let noisy = points(law, |place| [0.02, -0.02, 0.01, -0.01, 0.02, -0.015, 0.0, 0.01][place]);
        let fitted = Usl::fit(&noisy).expect("no law was fitted");
        assert!(near(fitted.gamma, 1000.0, 0.03), "{fitted:?}");
        let (peak, best) = (fitted.peak().expect("a peak"), law.peak().expect("a peak"));
        assert!(near(peak.0, best.0, 0.15) && near(peak.1, best.1, 0.05), "{peak:?} {best:?}");
        assert!(fitted.rms_error(&noisy) < 0.02);
    }

    #[test]
    fn special_cases_of_the_law_are_fitted() {
        let linear = Usl::fit(&points(Usl { gamma: 7.0, sigma: 0.0, kappa: 0.0 }, |_| 0.0));
        let linear = linear.expect("no law was fitted");
        assert!(linear.sigma < 1e-9 && linear.kappa < 1e-9, "{linear:?}");
        let amdahl = Usl { gamma: 10.0, sigma: 0.1, kappa: 0.0 };
        assert_eq!((amdahl.peak(), amdahl.throughput_limit()), (None, Some(100.0)));
        // Faster than linear: coefficients are set to zero instead of negative.
        let faster: Vec<_> = [1.0, 2.0, 3.0, 4.0].map(|n: f64| (n, n.powf(1.2))).into();
        let held = Usl::fit(&faster).expect("no law was fitted");
        assert_eq!((held.sigma, held.kappa), (0.0, 0.0));
        // Slower from the second worker on: all work is serial, and contention is limited to one.
        let slower: Vec<_> = [1.0, 2.0, 3.0, 4.0, 8.0].map(|n: f64| (n, n.powf(-0.4))).into();
        let serial = Usl::fit(&slower).expect("no law was fitted");
        assert_eq!(serial.sigma, 1.0);
        assert!(serial.kappa > 0.0 && serial.peak().is_some_and(|it| it.0 == 1.0), "{serial:?}");
        // With so much contention a single worker has the highest throughput.
        let alone = Usl { gamma: 5.0, sigma: 1.5, kappa: 0.1 };
        assert_eq!(alone.peak(), Some((1.0, 5.0)));
    }

    #[test]
    fn prediction_interval_contains_the_measured_throughput() {
        let law = Usl { gamma: 1000.0, sigma: 0.04, kappa: 0.0002 };
        let mut random = SplitMix64::new(1);
        let mut measure = |n: f64| (n, law.throughput(n) * (0.03 * random.next_normal()).exp());
        let (mut inside_count, mut widths) = (0, 0.0);
        for _ in 0..100 {
            let points = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0].map(&mut measure);
            let predicted = Usl::predict(&points, 64.0).expect("a prediction");
            let (_, measured) = measure(64.0);
            inside_count += u32::from(predicted.low <= measured && measured <= predicted.high);
            widths += (predicted.high / predicted.low).ln();
        }
        assert!(inside_count >= 90, "{inside_count} of 100");
        assert!(widths / 100.0 < 1.5, "the intervals span a factor of {}", (widths / 100.0).exp());
    }

    #[test]
    fn held_out_points_show_that_a_law_does_not_hold_beyond_the_others() {
        let law = Usl { gamma: 10.0, sigma: 0.02, kappa: 0.001 };
        let mut points = points(law, |_| 0.0);
        let held_out = Usl::check_held_out(&points).expect("points are held out");
        assert_eq!(held_out.from, 64.0);
        assert!(held_out.error < 1e-6, "{held_out:?}");
        for point in &mut points[6..] {
            point.1 /= 3.0; // the machine has 32 CPUs
        }
        let held_out = Usl::check_held_out(&points).expect("points are held out");
        assert!(held_out.error > 0.5, "{held_out:?}");
        let predicted = Usl::predict(&points, 256.0).expect("a prediction");
        assert!(predicted.high / predicted.low > 2.0, "{predicted:?}");
        assert_eq!(Usl::check_held_out(&points[..4]), None);
        assert_eq!(Usl::predict(&points[..4], 256.0), None);
    }

    #[test]
    fn undetermined_points_have_no_fit() {
        let points = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)];
        assert_eq!(Usl::fit(&points), None);
        assert_eq!(Usl::fit(&[points, points].concat()), None, "fitted a law to three points");
        for bad in [(0.5, 1.0), (4.0, 0.0), (4.0, -1.0), (4.0, f64::NAN), (f64::INFINITY, 1.0)] {
            assert_eq!(Usl::fit(&[&points[..], &[(5.0, 4.0), bad]].concat()), None, "{bad:?}");
        }
    }
}
