//! The shared standard for both frameworks: the bits of Rust's own calls.

use lockstep::{Call, Column, Credit, Device, Loss, Recipe, RolloutsBuf, recipe, synthetic};

/// A batch and the results of the two calls.
pub(crate) struct Case {
    pub(crate) recipe: Recipe,
    /// The columns that are not tensors.
    pub(crate) rollouts: RolloutsBuf,
    pub(crate) credit: Credit,
    /// `logp`, `entropy` and `values`, where the loss reads them.
    pub(crate) tensors: [Option<Vec<f32>>; 3],
    pub(crate) expected: Loss,
}

/// A framework's result: the loss, the critic's loss, and the gradients of their sum.
#[derive(Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) loss: f32,
    pub(crate) value_loss: Option<f32>,
    pub(crate) gradients: [Option<Vec<f32>>; 3],
}

impl Case {
    /// Creates a random packed batch.
    pub(crate) fn of(name: &str) -> Case {
        let recipe = Recipe::named(name).unwrap();
        let rollouts = synthetic::rollouts(&recipe, 8, 96, 11).unwrap();
        Case::new(recipe, rollouts)
    }

    /// Creates eight rows of twelve tokens; some are masked and hold arbitrary values.
    pub(crate) fn padded() -> Case {
        let recipe = Recipe::named("dapo").unwrap();
        let mut rollouts = synthetic::rollouts(&recipe, 8, 96, 5).unwrap();
        rollouts.cu_seqlens = Some(lockstep_interop::padded(8, 12).unwrap());
        let mut mask = vec![1; 96];
        for (at, garbage) in [(11, f32::NAN), (23, f32::NEG_INFINITY), (35, f32::INFINITY), (47, 7.0)] {
            mask[at] = 0;
            rollouts.logp.as_mut().unwrap()[at] = garbage;
        }
        rollouts.loss_mask = Some(mask);
        Case::new(recipe, rollouts)
    }

    fn new(recipe: Recipe, mut rollouts: RolloutsBuf) -> Case {
        let (credit, expected) = recipe.step(&Device::cpu(), &rollouts.view()).unwrap();
        let reads = recipe.reads_of(Call::Loss);
        let read = |column| reads.contains(column);
        let tokens = rollouts.batch().unwrap().tokens();
        let logp = rollouts.logp.take().unwrap_or_else(|| vec![-1.0; tokens]);
        let entropy = if read(Column::entropy) { rollouts.entropy.take() } else { None };
        let values = if read(Column::values) { rollouts.values.take() } else { None };
        Case { recipe, rollouts, credit, tensors: [Some(logp), entropy, values], expected }
    }

    /// Returns the expected result for the upstream gradient `scale`.
    pub(crate) fn expected(&self, scale: f32) -> Got {
        let Loss { entropy, value, .. } = &self.expected;
        let gradient = |of: &[f32]| Some(of.iter().map(|x| x * scale).collect());
        Got {
            loss: self.expected.loss.unwrap() as f32,
            value_loss: value.as_ref().map(|term| term.loss as f32),
            gradients: [
                gradient(&self.expected.coef),
                entropy.as_ref().and_then(|term| gradient(&term.coef)),
                value.as_ref().and_then(|term| gradient(&term.gradient)),
            ],
        }
    }
}

/// Asserts equality bit for bit. Frameworks add a gradient to a zero, which turns -0 into 0.
pub(crate) fn same(name: &str, got: &Got, expected: &Got) {
    let bits = |got: &Got| {
        let gradients = got
            .gradients
            .clone()
            .map(|of| of.map(|of| of.into_iter().map(|x| (x + 0.0).to_bits()).collect::<Vec<_>>()));
        ((got.loss + 0.0).to_bits(), got.value_loss.map(|x| (x + 0.0).to_bits()), gradients)
    };
    assert_eq!(bits(got), bits(expected), "{name}: {got:?}, expected {expected:?}");
}

/// Checks every named recipe; `framework` computes with an upstream gradient.
pub(crate) fn all(framework: impl Fn(&Case, f32) -> Got) {
    let (mut entropies, mut critics) = (0, 0);
    for name in recipe::names() {
        let case = Case::of(name);
        for scale in [1.0, 0.3] {
            same(name, &framework(&case, scale), &case.expected(scale));
        }
        entropies += usize::from(case.expected.entropy.is_some());
        critics += usize::from(case.expected.value.is_some());
    }
    assert!(entropies > 0 && critics > 0, "no recipe has an entropy term, or none a critic");
}
