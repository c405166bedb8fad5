//! Linear ramps: a number that moves from one value to another over training.
//!
//! **Formula**: from + (to − from)·min(step/steps, 1). LATR's share of rollouts decreases from 1 to 0.25
//! (docs/maths/schedules.md; that it does so linearly is our reading).
//!
//! **Special cases**: with `steps` = 0 the value is `to` at once; at and after the last step it is exactly
//! `to`.

/// Returns the value at `step`.
pub fn linear(from: f64, to: f64, step: u32, steps: u32) -> f64 {
    if step >= steps {
        return to;
    }
    from + (to - from) * (f64::from(step) / f64::from(steps))
}

/// Returns LATR's share of rollouts at `step`, from 1 to 0.25.
pub fn latr_share(step: u32, steps: u32) -> f64 {
    linear(1.0, 0.25, step, steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact_and_the_way_is_straight() {
        assert_eq!((latr_share(0, 100), latr_share(100, 100), latr_share(500, 100)), (1.0, 0.25, 0.25));
        assert_eq!((latr_share(50, 100), linear(3.0, 7.0, 0, 0)), (0.625, 7.0));
        assert!((0..99).all(|s| latr_share(s + 1, 100) < latr_share(s, 100)));
    }
}
