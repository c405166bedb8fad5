//! GDRO's difficulty bins: online pass rate over a window, uniform or listed edges, hysteresis at the
//! boundaries.
//!
//! **Formula** (2601.19280; docs/maths/schedules.md): accuracy p is the fraction of passes among the last H
//! observations, or of all (0 without observations); the bin is ⌊p·B⌋, with p = 1 in the last bin. A prompt
//! stays in bin b while b/B − δ <= p <= (b + 1)/B + δ, and otherwise moves to ⌊p·B⌋. Listed edges e₁ < … <
//! e_{B−1} replace i/B; a bin includes its lower edge.
//!
//! An observation is one pass@k outcome: whether one of the k rollouts was right.
//!
//! **Special cases**: H is from 1 to 128 (the window is one word), or 0 for all observations. With δ = 0 a
//! prompt whose accuracy is on its bin's upper edge stays.
//!
//! **Variants**: the released code measures at another edge ([`Hysteresis::Code`]); with uniform edges its
//! prompts never move down.

use lockstep_core::Error;
use lockstep_core::require;

/// The observations of one prompt: the last 128, and how many there were in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    last: u128,
    passes: u32,
    seen: u32,
}

impl Window {
    /// Returns the window with one more observation.
    pub fn observe(self, passed: bool) -> Self {
        Window {
            last: self.last << 1 | u128::from(passed),
            passes: self.passes.saturating_add(passed.into()),
            seen: self.seen.saturating_add(1),
        }
    }

    /// Fraction of passes among the last `horizon` observations, or among all if it is 0; 0 without
    /// observations. Errors: a horizon above 128.
    pub fn accuracy(self, horizon: u32) -> Result<f64, Error> {
        require::scalar("horizon", horizon <= u128::BITS, "at most 128", horizon)?;
        let (passes, seen) = match (horizon, self.seen.min(horizon)) {
            (0, _) => (self.passes, self.seen),
            (_, 0) => (0, 0),
            (_, seen) => ((self.last << (u128::BITS - seen)).count_ones(), seen),
        };
        Ok(f64::from(passes) / f64::from(seen.max(1)))
    }
}

/// The edge at which the margin is measured when a prompt would change its bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hysteresis {
    /// At the edges of the prompt's current bin.
    #[default]
    OwnEdges,
    /// As in the released code, where the boundary itself moves. Uniform edges: the lower edge of the other
    /// bin, both upwards and downwards, so that nothing moves down (a bug). Listed edges: the upper edge of
    /// the lower of the two bins.
    Code,
}

/// Parameters of the bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bins<'a> {
    /// Number of bins B, at least 1.
    pub count: u32,
    /// Edges e₁ to e_{B−1}, strictly between 0 and 1 and ascending; empty for i/B.
    pub edges: &'a [f64],
    /// Margin δ, at least 0.
    pub margin: f64,
    /// The edge at which δ is measured.
    pub hysteresis: Hysteresis,
}

/// Ten bins; δ = 0, since the paper's value is not known to us.
impl Default for Bins<'_> {
    fn default() -> Self {
        Bins { count: 10, edges: &[], margin: 0.0, hysteresis: Hysteresis::OwnEdges }
    }
}

impl Bins<'_> {
    /// Checks that the parameters are in their domain.
    pub fn check(&self) -> Result<(), Error> {
        require::scalar("count", self.count > 0, "at least 1", 0.0)?;
        require::scalar("margin", self.margin >= 0.0, "at least 0", self.margin)?;
        let edges = self.edges;
        if edges.is_empty() {
            return Ok(());
        }
        require::length("edges", self.count as usize - 1, "one per bin, minus one", edges.len())?;
        let holds = |i: usize| 0.0 < edges[i] && edges[i] < 1.0 && (i == 0 || edges[i - 1] < edges[i]);
        match (0..edges.len()).find(|i| !holds(*i)) {
            None => Ok(()),
            Some(i) => Err(require::value("edges", Some(i), "ascending, strictly between 0 and 1", edges[i])),
        }
    }

    /// Lower edge of a bin; 1 for bin B.
    fn edge(&self, bin: u32) -> f64 {
        match self.edges {
            [] => f64::from(bin) / f64::from(self.count),
            _ if bin == 0 => 0.0,
            edges => edges.get(bin as usize - 1).copied().unwrap_or(1.0),
        }
    }

    /// Returns the bin of a prompt that was in bin `before` (`None` for a new prompt).
    ///
    /// Errors: an accuracy outside 0..=1; parameters outside their domain; a `before` that is not a bin.
    pub fn of(&self, accuracy: f64, before: Option<u32>) -> Result<u32, Error> {
        require::unit("accuracy", accuracy)?;
        self.check()?;
        let now = match self.edges {
            [] => ((accuracy * f64::from(self.count)) as u32).min(self.count - 1),
            edges => edges.iter().filter(|edge| **edge <= accuracy).count() as u32,
        };
        let Some(b) = before else { return Ok(now) };
        require::scalar("before", b < self.count, "a bin", b)?;
        let stays = match self.hysteresis {
            Hysteresis::OwnEdges => {
                self.edge(b) - self.margin <= accuracy && accuracy <= self.edge(b + 1) + self.margin
            }
            Hysteresis::Code => {
                let boundary = self.edge(if self.edges.is_empty() { now } else { b.min(now) + 1 });
                if now > b { accuracy < boundary + self.margin } else { accuracy > boundary - self.margin }
            }
        };
        Ok(if stays { b } else { now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_forgets() {
        let mut w = Window::default();
        assert_eq!(w.accuracy(4), Ok(0.0), "unseen");
        for passed in [true, true, false, false, true] {
            w = w.observe(passed);
        }
        assert_eq!(
            (w.accuracy(5), w.accuracy(64), w.accuracy(3), w.accuracy(1)),
            (Ok(0.6), Ok(0.6), Ok(1.0 / 3.0), Ok(1.0))
        );
        assert_eq!(w.accuracy(0), Ok(0.6));
        for _ in 0..125 {
            w = w.observe(true);
        }
        assert_eq!(
            (w.accuracy(125), w.accuracy(127), w.accuracy(128)),
            (Ok(1.0), Ok(126.0 / 127.0), Ok(126.0 / 128.0))
        );
        assert_eq!(w.accuracy(0), Ok(128.0 / 130.0), "all");
        assert!(matches!(w.accuracy(129), Err(Error::Value { argument: "horizon", .. })));
    }

    #[test]
    fn edges_are_uniform_and_the_last_bin_has_one() {
        let bins = Bins::default();
        for (accuracy, bin) in [(0.0, 0), (0.05, 0), (0.1, 1), (0.55, 5), (0.999, 9), (1.0, 9)] {
            assert_eq!(bins.of(accuracy, None), Ok(bin), "{accuracy}");
        }
    }

    #[test]
    fn hysteresis_holds_within_the_margin_alone() {
        let bins = Bins { margin: 0.02, ..Bins::default() };
        assert_eq!(bins.of(0.515, Some(4)), Ok(4));
        assert_eq!(bins.of(0.525, Some(4)), Ok(5));
        assert_eq!(bins.of(0.385, Some(4)), Ok(4));
        assert_eq!(bins.of(0.375, Some(4)), Ok(3));
        assert_eq!(bins.of(0.95, Some(0)), Ok(9), "several bins at once");
        assert!(matches!(bins.of(0.5, Some(10)), Err(Error::Value { argument: "before", .. })));
        assert!(matches!(bins.of(f64::NAN, None), Err(Error::Value { argument: "accuracy", .. })));
    }

    #[test]
    fn listed_edges_have_bins_of_their_own_width() {
        let bins = Bins { count: 3, edges: &[0.25, 0.75], margin: 0.1, ..Bins::default() };
        for (accuracy, bin) in [(0.0, 0), (0.24, 0), (0.25, 1), (0.74, 1), (0.75, 2), (1.0, 2)] {
            assert_eq!(bins.of(accuracy, None), Ok(bin), "{accuracy}");
        }
        for (accuracy, before, bin) in [(0.34, 0, 0), (0.36, 0, 1), (0.16, 1, 1), (0.14, 1, 0), (0.2, 2, 0)] {
            assert_eq!(bins.of(accuracy, Some(before)), Ok(bin), "{accuracy}");
        }
        for edges in [&[0.25, 0.25][..], &[0.25, 1.0], &[0.25, f64::NAN]] {
            let e = Bins { edges, ..bins }.of(0.5, None).unwrap_err();
            assert!(matches!(e, Error::Value { argument: "edges", index: Some(1), .. }), "{edges:?}");
        }
        let e = Bins { count: 4, ..bins }.of(0.5, None).unwrap_err();
        assert!(matches!(e, Error::Length { argument: "edges", expected: 3, .. }));
    }

    #[test]
    fn the_released_hysteresis_measures_at_another_edge() {
        let uniform = Bins { margin: 0.05, hysteresis: Hysteresis::Code, ..Bins::default() };
        for (accuracy, before, bin) in [(0.0, 9, 9), (0.54, 4, 4), (0.55, 4, 5), (0.92, 0, 0), (0.96, 0, 9)] {
            assert_eq!(uniform.of(accuracy, Some(before)), Ok(bin), "{accuracy}");
        }
        let listed = Bins { count: 4, edges: &[0.25, 0.5, 0.75], ..uniform };
        // From bin 3 to bin 0 the boundary is 0.25, and from 0 to 3 too.
        for (accuracy, before, bin) in [(0.22, 3, 3), (0.19, 3, 0), (0.76, 0, 3), (0.29, 0, 0), (0.71, 3, 3)]
        {
            assert_eq!(listed.of(accuracy, Some(before)), Ok(bin), "{accuracy}");
        }
    }
}
