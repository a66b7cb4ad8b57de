//! Robust location and scale, Student's t, and Holm's correction.

/// Ratio of a normal distribution's standard deviation to its median absolute deviation.
const DEVIATION_OF_NORMAL: f64 = 1.4826;
/// Factors that make the scaled median absolute deviation of 2 to 9 normal values unbiased. Source:
/// C. Croux and P. J. Rousseeuw, *Time-efficient algorithms for two highly robust estimators of
/// scale*, 1992.
const SMALL_SAMPLE_FACTORS: [f64; 8] = [1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107];
/// Efficiency of the median absolute deviation for normal values, relative to the standard
/// deviation.
const EFFICIENCY: f64 = 0.37;

/// Returns the median of the values, and sorts them; 0 for no values.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

/// Returns the median of the values, and their scaled median absolute deviation. The latter
/// estimates the standard deviation of normal values.
pub fn median_and_scale(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    let center = median(&mut values);
    values.iter_mut().for_each(|value| *value = (*value - center).abs());
    let count = values.len();
    let factor = match count {
        0 | 1 => 1.0,
        2..=9 => SMALL_SAMPLE_FACTORS[count - 2],
        _ => count as f64 / (count as f64 - 0.8),
    };
    (center, factor * DEVIATION_OF_NORMAL * median(&mut values))
}

/// Returns the two-sided p-value of the distance of one of `count` normal values from their median.
/// `distance` is in units of the scale of [`median_and_scale`]. The p-value is by Student's t, with
/// as many degrees of freedom as the scale is worth.
pub fn p_of_distance(distance: f64, count: usize) -> f64 {
    student_two_sided(distance, EFFICIENCY * count as f64)
}

/// Returns the two-sided p-value of `t` in Student's distribution, with `freedom` degrees of
/// freedom.
fn student_two_sided(t: f64, freedom: f64) -> f64 {
    let (a, b, square) = (freedom / 2.0, 0.5, t * t);
    let (x, rest) = (freedom / (freedom + square), square / (freedom + square));
    let beta = std::f64::consts::PI.sqrt() / gamma_ratio(a);
    let front = x.powf(a) * rest.sqrt() / beta;
    // The incomplete beta function: its continued fraction converges on one side of its mean.
    match x < (a + 1.0) / (a + b + 2.0) {
        true => front * beta_fraction(a, b, x) / a,
        false => 1.0 - front * beta_fraction(b, a, rest) / b,
    }
}

/// Returns Γ(`a` + 1/2) / Γ(`a`) for a positive `a`, where Γ is the gamma function.
fn gamma_ratio(mut a: f64) -> f64 {
    const SERIES_MIN: f64 = 20.0;
    let mut ratio = 1.0;
    while a < SERIES_MIN {
        ratio *= a / (a + 0.5);
        a += 1.0;
    }
    let r = 1.0 / a;
    ratio * a.sqrt() * (1.0 - r / 8.0 + r * r / 128.0 + 5.0 * r.powi(3) / 1024.0)
}

/// Returns the continued fraction of the incomplete beta function, by Lentz's method. Source: W. H.
/// Press et al., *Numerical Recipes*, 6.4.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TERMS_MAX: u32 = 10_000;
    let mut d = 1.0 / (1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut product) = (1.0, d);
    for m in (1..=TERMS_MAX).map(f64::from) {
        let even = m * (b - m) * x / ((a - 1.0 + 2.0 * m) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 1.0 + 2.0 * m));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / (1.0 + term * d);
            c = 1.0 + term / c;
            change = c * d;
            product *= change;
        }
        if (change - 1.0).abs() < 1e-12 {
            break;
        }
    }
    product
}

/// Corrects p-values for the number of tests, by Holm's method. The probability that chance alone
/// brings any of them below a limit is then at most the limit. Source: S. Holm, *A simple
/// sequentially rejective multiple test procedure*, 1979.
pub fn correct_by_holm(p_values: &mut [f64]) {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_unstable_by(|x, y| p_values[*x].total_cmp(&p_values[*y]));
    let mut least = 0.0f64;
    for (rank, place) in order.into_iter().enumerate() {
        least = least.max((p_values.len() - rank) as f64 * p_values[place]).min(1.0);
        p_values[place] = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover_base::random::SplitMix64;

    #[test]
    fn tails_of_students_t_equal_the_tables() {
        for (freedom, t, p) in [
            (1.0, 12.706, 0.05),
            (1.0, 636.62, 0.001),
            (2.0, 4.303, 0.05),
            (10.0, 3.169, 0.01),
            (30.0, 0.683, 0.5),
            (370.0, 4.636_84, 4.9e-6),
            (1e6, 1.959_964, 0.05),
        ] {
            let found = student_two_sided(t, freedom);
            assert!((found / p - 1.0).abs() < 0.01, "t {t}, {freedom} degrees: {found}, not {p}");
        }
        assert!((student_two_sided(0.0, 5.0) - 1.0).abs() < 1e-12);
        assert!(student_two_sided(1e9, 500.0) < 1e-100);
    }

    #[test]
    fn scale_estimates_the_standard_deviation_for_any_number_of_normal_values() {
        let mut random = SplitMix64::new(1);
        for count in [3, 4, 5, 8, 15, 100] {
            let scales = (0..2000).map(|_| {
                let values: Vec<f64> = (0..count).map(|_| random.next_normal()).collect();
                median_and_scale(&values).1
            });
            let mean = scales.sum::<f64>() / 2000.0;
            assert!((mean - 1.0).abs() < 0.05, "{count} values: {mean}");
        }
        let (center, scale) = median_and_scale(&[1.0, 2.0, 3.0, 4.0, 1000.0]);
        assert!(center == 3.0 && (scale - 1.206 * DEVIATION_OF_NORMAL).abs() < 1e-12);
    }

    #[test]
    fn holm_multiplies_each_p_value_by_the_number_of_tests_that_remain() {
        let mut p_values = [0.01, 0.04, 0.03, 0.005];
        correct_by_holm(&mut p_values);
        for (p, expected) in p_values.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((p - expected).abs() < 1e-12, "{p_values:?}");
        }
    }
}
