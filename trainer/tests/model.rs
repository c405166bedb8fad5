//! The model: cached sampling agrees with the full forward pass, gradients with finite differences, and the
//! router learns too.
#![cfg(feature = "model")]

mod small;

use lockstep_trainer::model::{Model, Shape, Weights, round_to_bf16};
use lockstep_trainer::policy::{Further, Pass, Sequence, log_probs, sample};
use lockstep_trainer::random::{Phase, Stream};

fn shape() -> Shape {
    Shape { critic: true, ..small::shape() }
}

fn sequences() -> Vec<Sequence> {
    small::sequences()[..3].to_vec()
}

/// Log-probabilities of tokens sampled through the cache equal those of the full forward pass up to rounding,
/// with prompts of different lengths in one batch.
#[test]
fn the_cache_agrees_with_the_full_forward() {
    let weights = shape().init(1);
    let model = Model::frozen(&shape(), &weights).unwrap();
    let prompts: Vec<_> = sequences().into_iter().map(|s| s.prompt).collect();
    let sampled = sample(&model, &prompts, 10, |row| Stream::new(1, Phase::Rollout, 0, row)).unwrap();
    let responses: Vec<Sequence> = prompts
        .iter()
        .zip(&sampled)
        .map(|(p, s)| Sequence { prompt: p.clone(), response: s.response.clone() })
        .collect();
    let full = log_probs(&shape(), &weights, &responses).unwrap();
    let cached: Vec<f32> = sampled.iter().flat_map(|s| s.logp.clone()).collect();
    assert_eq!(full.len(), cached.len());
    for (full, cached) in full.iter().zip(&cached) {
        assert!((full - cached).abs() < 1e-4, "{full} {cached}");
    }
}

/// A sequence's log-probabilities do not depend on its neighbours or on padding.
#[test]
fn sequences_do_not_see_each_other() {
    let weights = shape().init(2);
    let together = log_probs(&shape(), &weights, &sequences()).unwrap();
    let alone: Vec<f32> = sequences()
        .iter()
        .flat_map(|s| log_probs(&shape(), &weights, std::slice::from_ref(s)).unwrap())
        .collect();
    for (a, b) in together.iter().zip(&alone) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    assert!(together.iter().all(|&lp| lp <= 0.0));
}

fn weighted_sum(weights: &Weights, of_logp: &[f32], of_values: &[f32]) -> f64 {
    let model = Model::frozen(&shape(), weights).unwrap();
    let pass = Pass::new(&model, &sequences()).unwrap();
    let pairs = pass.logp.iter().zip(of_logp).chain(pass.values.iter().zip(of_values));
    pairs.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// The gradient of sum(logp * coefficients) + sum(values * coefficients) agrees with central differences in
/// every tensor, including the routers and the value head.
#[test]
fn gradients_agree_with_differences() {
    let mut weights = shape().init(3);
    let head = &mut weights.last_mut().unwrap().values;
    assert!(head.iter().all(|x| *x == 0.0), "the critic starts without an opinion");
    head.iter_mut().enumerate().for_each(|(i, x)| *x = [0.3, -0.2, 0.1][i % 3]);
    let coefficients: Vec<f32> = (0..9).map(|i| [0.5, -1.0, 0.25][i % 3]).collect();
    let of_values: Vec<f32> = (0..9).map(|i| [0.5, 0.1, -0.75, 1.0][i % 4]).collect();
    let model = Model::trainable(&shape(), &weights).unwrap();
    let further = Further { values: Some(&of_values), ..Further::default() };
    let grads = Pass::new(&model, &sequences()).unwrap().gradients_with(&coefficients, &further).unwrap().sum;
    small::gradients_agree(&weights, &grads, |weights| weighted_sum(weights, &coefficients, &of_values));
}

/// Sequences that are alike have no variance; unlike ones that of their own gradients, with n − 1.
#[test]
fn the_variance_is_that_of_the_sequences_gradients() {
    let model = Model::trainable(&shape(), &shape().init(3)).unwrap();
    let of = |sequences: &[Sequence], c: &[f32]| {
        Pass::new(&model, sequences).unwrap().gradients_with(c, &Further::default()).unwrap()
    };
    let one = |response: u32| Sequence { prompt: vec![1, 2], response: vec![response] };
    let alike = of(&[one(3), one(3), one(3)], &[0.5; 3]);
    let size: f64 = alike.sum.iter().flatten().map(|x| f64::from(*x).powi(2)).sum();
    assert!(size > 1e-3 && alike.variance.unwrap() < 1e-9 * size, "{:?} of {size}", alike.variance);
    // Two of them: the variance of the sum is twice that of one, Σ (a − b)²/2 in each weight.
    let [a, b] = [3, 4].map(|token| of(&[one(token)], &[0.5]));
    assert_eq!(a.variance, None, "one shard");
    let pairs = a.sum.iter().flatten().zip(b.sum.iter().flatten());
    let expected: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let found = of(&[one(3), one(4)], &[0.5; 2]).variance.unwrap();
    assert!((found - expected).abs() < 1e-5 * expected && expected > 1e-3, "{found} {expected}");
}

/// Rounding to bf16 is to nearest, ties to even, and has an effect: some weight changes, none by more than a
/// relative 2^-8.
#[test]
fn bf16_rounding() {
    let mut weights = shape().init(4);
    weights[0].values[..4].copy_from_slice(&[1.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, 1.005]);
    let rounded = round_to_bf16(&weights);
    assert_eq!(rounded[0].values[..4], [1.0, 1.0, 1.015_625, 1.007_812_5]);
    assert!(rounded != weights);
    for (r, w) in rounded.iter().zip(&weights) {
        assert!(r.values.iter().zip(&w.values).all(|(r, w)| (r - w).abs() <= w.abs() / 256.0));
    }
}

/// Sampling follows the probabilities: checks the first token's frequencies over many rows.
#[test]
fn samples_follow_the_probabilities() {
    let weights = shape().init(5);
    let model = Model::frozen(&shape(), &weights).unwrap();
    let n = 4000;
    let sampled =
        sample(&model, &vec![vec![1, 2]; n], 1, |row| Stream::new(9, Phase::Measure, 0, row)).unwrap();
    for token in 0..7 {
        let one = [Sequence { prompt: vec![1, 2], response: vec![token] }];
        let p = f64::from(log_probs(&shape(), &weights, &one).unwrap()[0].exp());
        let seen = sampled.iter().filter(|s| s.response == [token]).count() as f64 / n as f64;
        assert!((seen - p).abs() < 4.5 * (p * (1.0 - p) / n as f64).sqrt(), "token {token}: {seen} of {p}");
    }
}
