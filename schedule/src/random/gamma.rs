//! Gamma and Beta draws.
//!
//! **Formula** (Marsaglia & Tsang, "A simple method for generating gamma variables", 2000): for shape a >= 1,
//! d = a − 1/3 and c = 1/√(9d); draw x normal, v = (1 + c x)³ and u uniform until v > 0 and
//! `ln u < x²/2 + d − d v + d ln v`; the draw is d v. For a < 1 it is the draw of a + 1 times u^(1/a).
//! Beta(a, b) = X/(X + Y) with X ~ Gamma(a) and Y ~ Gamma(b) from the same stream, X first.
//!
//! **Special cases**: shapes outside [0.01, 1e12] are an error: below, u^(1/a) underflows (0/0 in a Beta);
//! above, d v loses its fraction.

use super::Stream;
use lockstep_core::Error;
use lockstep_core::num::{self, Arith, Soft};
use lockstep_core::require;

fn check(argument: &'static str, shape: f64) -> Result<(), Error> {
    require::scalar(argument, (0.01..=1e12).contains(&shape), "a shape from 0.01 to 1e12", shape)
}

/// A Gamma draw with scale 1, for a checked shape.
fn draw(stream: &mut Stream, shape: f64) -> f64 {
    let small = shape < 1.0;
    let d = if small { shape + 1.0 } else { shape } - 1.0 / 3.0;
    let c = 1.0 / Soft::sqrt64(9.0 * d);
    let value = loop {
        let x = stream.normal();
        let root = 1.0 + c * x;
        let v = root * root * root;
        let u = stream.open();
        if v > 0.0 && num::ln64(u) < 0.5 * x * x + d - d * v + d * num::ln64(v) {
            break d * v;
        }
    };
    if small { value * num::exp64(num::ln64(stream.open()) / shape) } else { value }
}

/// Draws from Gamma(`shape`) with scale 1. Errors: `shape` outside [0.01, 1e12].
pub fn gamma(stream: &mut Stream, shape: f64) -> Result<f64, Error> {
    check("shape", shape)?;
    Ok(draw(stream, shape))
}

/// Draws from Beta(`a`, `b`). Errors: `a` or `b` outside [0.01, 1e12].
pub fn beta(stream: &mut Stream, a: f64, b: f64) -> Result<f64, Error> {
    check("a", a)?;
    check("b", b)?;
    let x = draw(stream, a);
    let y = draw(stream, b);
    // Both can underflow to 0 only for shapes near 0.01; the mean is then as good as any draw.
    Ok(if x + y > 0.0 { x / (x + y) } else { a / (a + b) })
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::*;

    #[test]
    fn draws_have_their_mean_and_variance() {
        let n = 20_000_u32;
        for (i, shape) in [0.5, 1.0, 2.5, 40.0].into_iter().enumerate() {
            let mut s = Stream::new(5, Purpose(256), 0, i as u32);
            let draws: [f64; 2] = core::array::from_fn(|power| {
                (0..n)
                    .map(|_| gamma(&mut s, shape).unwrap())
                    .map(|x| if power == 0 { x } else { x * x })
                    .sum()
            });
            let n = f64::from(n);
            let (mean, square) = (draws[0] / n, draws[1] / n);
            // Five standard errors; the variance of x² is E x⁴ − (E x²)² of the distribution.
            let moment = |k: u32| (0..k).map(|i| shape + f64::from(i)).product::<f64>();
            let root = |x: f64| Soft::sqrt64(x / n);
            assert!((mean - shape).abs() < 5.0 * root(shape), "{shape}: {mean}");
            let spread = root(moment(4) - moment(2) * moment(2));
            assert!((square - moment(2)).abs() < 5.0 * spread, "{shape}: {square} for {}", moment(2));
        }
    }

    #[test]
    fn beta_has_its_mean_and_stays_inside() {
        for (i, (a, b)) in [(1.0, 1.0), (0.5, 0.5), (3.0, 9.0), (500.0, 2.0)].into_iter().enumerate() {
            let mut s = Stream::new(6, Purpose(256), 0, i as u32);
            let n = 10_000;
            let mut sum = 0.0;
            for _ in 0..n {
                let p = beta(&mut s, a, b).unwrap();
                assert!((0.0..=1.0).contains(&p));
                sum += p;
            }
            let variance = a * b / ((a + b) * (a + b) * (a + b + 1.0));
            let error = (sum / f64::from(n) - a / (a + b)).abs();
            assert!(error < 5.0 * Soft::sqrt64(variance / f64::from(n)), "{a} {b}: {error}");
        }
    }

    #[test]
    fn shapes_out_of_range_are_refused_by_name() {
        let mut s = Stream::new(0, Purpose(256), 0, 0);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(gamma(&mut s, bad), Err(Error::Value { argument: "shape", .. })));
            assert!(matches!(beta(&mut s, 1.0, bad), Err(Error::Value { argument: "b", .. })));
        }
    }
}
