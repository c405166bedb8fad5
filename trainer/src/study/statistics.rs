//! Intervals and tests: Student's t for paired differences, Holm's correction, Wilson's interval.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The familywise error, and that of intervals without correction.
pub(super) const ALPHA: f64 = 0.05;

/// A mean with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The lower end; none with fewer than two values.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// The number of values, their mean and its standard error.
struct Sample {
    n: f64,
    mean: f64,
    error: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square = |x: &f64| (x - mean) * (x - mean);
        let error = (values.iter().map(square).sum::<f64>() / (n - 1.0) / n).sqrt();
        Self { n, mean, error }
    }

    fn student(&self) -> Result<StudentsT> {
        Ok(StudentsT::new(0.0, 1.0, self.n - 1.0)?)
    }
}

/// The mean of the values with its two-sided t-interval at confidence 1 − `alpha`.
pub(super) fn interval(values: &[f64], alpha: f64) -> Result<Interval> {
    let sample = Sample::of(values);
    if values.len() < 2 {
        return Ok(Interval { mean: sample.mean, low: None, high: None });
    }
    let half = sample.student()?.inverse_cdf(1.0 - alpha / 2.0) * sample.error;
    Ok(Interval { mean: sample.mean, low: Some(sample.mean - half), high: Some(sample.mean + half) })
}

/// Whether a t-test of the mean against `null` means anything: values that are all alike, up to rounding, say
/// nothing of their spread and give p = 0, however few they are.
pub(super) fn testable(values: &[f64], null: f64) -> bool {
    let sample = Sample::of(values);
    let distance = (sample.mean - null).abs();
    distance == 0.0 || sample.error > 1e-9 * distance
}

/// The two-sided p-value of a t-test that the mean of at least two values is `null`.
pub(super) fn p_value(values: &[f64], null: f64) -> Result<f64> {
    let sample = Sample::of(values);
    let distance = (sample.mean - null).abs();
    if distance == 0.0 {
        return Ok(1.0);
    }
    Ok(2.0 * sample.student()?.sf(distance / sample.error))
}

/// A test after Holm's correction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Holm {
    /// The adjusted p-value: the hypothesis is rejected if it is at most the familywise error.
    pub p: f64,
    /// The level at which the test was made: the familywise error over the hypotheses that were left.
    pub alpha: f64,
}

/// Holm's correction of a family of p-values.
pub(super) fn holm(p: &[f64]) -> Vec<Holm> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut out = vec![Holm { p: 1.0, alpha: ALPHA }; p.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        let left = (p.len() - rank) as f64;
        largest = largest.max((left * p[index]).min(1.0));
        out[index] = Holm { p: largest, alpha: ALPHA / left };
    }
    out
}

/// Wilson's 95 % interval for the probability behind `count` of `of`.
pub(super) fn wilson(count: usize, of: usize) -> [f64; 2] {
    let (n, z) = (of as f64, Normal::standard().inverse_cdf(1.0 - ALPHA / 2.0));
    let share = count as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let half = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    [-1.0, 1.0].map(|sign| ((middle + sign * half) / (1.0 + z * z / n)).clamp(0.0, 1.0))
}

/// Pearson's correlation; none where one of the two does not vary.
pub(super) fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (mx, my) = (mean(x), mean(y));
    let dot = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum()
    };
    let (xy, xx, yy) = (dot(x, mx, y, my), dot(x, mx, x, mx), dot(y, my, y, my));
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} {b}");
    }

    /// t(0.975) from printed tables: 4.3027 for 2 degrees of freedom, 2.2622 for 9.
    #[test]
    fn intervals_have_the_tables_quantiles() {
        let three = interval(&[1.0, 2.0, 3.0], ALPHA).unwrap();
        near(three.high.unwrap() - 2.0, 4.3027 / 3.0_f64.sqrt(), 1e-4);
        near(2.0 - three.low.unwrap(), 4.3027 / 3.0_f64.sqrt(), 1e-4);
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        // The standard deviation of 1..10 is 3.02765.
        near(interval(&ten, ALPHA).unwrap().high.unwrap() - 5.5, 2.2622 * 3.02765 / 10.0_f64.sqrt(), 1e-4);
        // t(0.995) for 9 degrees of freedom: 3.2498.
        near(interval(&ten, 0.01).unwrap().high.unwrap() - 5.5, 3.2498 * 3.02765 / 10.0_f64.sqrt(), 1e-4);
        assert_eq!(interval(&[4.0], ALPHA).unwrap(), Interval { mean: 4.0, low: None, high: None });
    }

    /// With two degrees of freedom P(|T| > t) is 1 − t / √(t² + 2).
    #[test]
    fn p_values_are_those_of_the_closed_form() {
        let t = 2.0 * 3.0_f64.sqrt();
        near(p_value(&[1.0, 2.0, 3.0], 0.0).unwrap(), 1.0 - t / (t * t + 2.0).sqrt(), 1e-9);
        near(p_value(&[-1.0, -2.0, -3.0], 0.0).unwrap(), 1.0 - t / (t * t + 2.0).sqrt(), 1e-9);
        near(p_value(&[1.0, 2.0, 3.0], 2.0).unwrap(), 1.0, 0.0);
        // The interval at level p ends at the null.
        let p = p_value(&[1.0, 2.0, 4.0], 0.0).unwrap();
        near(interval(&[1.0, 2.0, 4.0], p).unwrap().low.unwrap(), 0.0, 1e-6);
    }

    /// One answer in 128 more with each of three seeds; 0.3 − 0.2 and 0.2 − 0.1 differ by rounding.
    #[test]
    fn without_a_spread_there_is_no_test() {
        assert!(!testable(&[1.0 / 128.0; 3], 0.0) && !testable(&[0.3 - 0.2, 0.2 - 0.1, 0.1], 0.0));
        assert!(!testable(&[0.0; 3], -0.02) && testable(&[0.0; 3], 0.0));
        assert!(testable(&[1.0, 1.0, 1.001], 0.0));
    }

    /// 0.01, 0.04, 0.03, 0.005: the smallest times 4, then times 3, 2, 1, never falling.
    #[test]
    fn holm_is_the_worked_example() {
        let found = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (one, (p, left)) in found.iter().zip([(0.03, 3.0), (0.06, 1.0), (0.06, 2.0), (0.02, 4.0)]) {
            near(one.p, p, 1e-12);
            near(one.alpha, 0.05 / left, 1e-12);
        }
        assert!(holm(&[]).is_empty());
        near(holm(&[0.9, 0.8])[0].p, 1.0, 0.0);
    }

    /// Newcombe (1998), table I.
    #[test]
    fn wilson_is_newcombes_table() {
        for (count, of, expected) in
            [(81, 263, [0.2553, 0.3662]), (15, 148, [0.0624, 0.1605]), (0, 20, [0.0, 0.1611])]
        {
            let found = wilson(count, of);
            near(found[0], expected[0], 5e-5);
            near(found[1], expected[1], 5e-5);
        }
    }

    #[test]
    fn a_line_correlates_with_itself() {
        near(correlation(&[1.0, 2.0, 4.0], &[5.0, 3.0, -1.0]).unwrap(), -1.0, 1e-12);
        // Corners of a square: no line.
        near(correlation(&[0.0, 0.0, 1.0, 1.0], &[0.0, 1.0, 0.0, 1.0]).unwrap(), 0.0, 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
    }
}
