//! Properties of every op with random shapes, masks, values and scalar arguments, against the oracle and
//! across backends.
//!
//! Seeds are fixed, so that runs are repeatable; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` explore further.
//! Past failures are kept in `proptest-regressions/properties.txt`.

use crate::prelude::*;
use lockstep_conformance::accuracy::Measured;
use lockstep_conformance::cases::corpus::tokens;
use lockstep_conformance::cases::masks::Mask;
use lockstep_conformance::cases::shapes::Shape;
use lockstep_conformance::cases::values::Range;
use lockstep_conformance::ops::kl::KlDivergence;
use lockstep_conformance::ops::policy_loss::{AnyGate, Policy, Taus};
use lockstep_conformance::ops::token_ratio::TokenRatio;
use lockstep_conformance::{output::first_difference, suite};
use lockstep_core::gate::PpoClip;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use std::fmt::Debug;
use std::sync::LazyLock;

static BEST: LazyLock<Device> = LazyLock::new(Device::cpu);
static REFERENCE: LazyLock<Device> = LazyLock::new(levels::reference);

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(192),
        rng_seed: match std::env::var("PROPTEST_RNG_SEED").ok().and_then(|n| n.parse().ok()) {
            Some(seed) => RngSeed::Fixed(seed),
            None => RngSeed::Fixed(251_120_347),
        },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/properties.txt",
        ))),
        ..ProptestConfig::default()
    }
}

/// Row lengths: mostly short, with empty rows, some over a column cycle or two.
fn lengths() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![2 => 0..3u32, 4 => 0..70u32, 2 => 120..300u32], 1..9)
}

fn guard() -> impl Strategy<Value = Guard> {
    let bound = 0.01f32..25.0;
    prop_oneof![
        Just(Guard::NONE),
        bound.clone().prop_map(Guard::clamp),
        bound.prop_map(Guard::straight_through)
    ]
}

fn kl() -> impl Strategy<Value = Kl> {
    let estimator = prop::sample::select(vec![KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3]);
    let clamp = || prop_oneof![Just(f32::INFINITY), 0.01f32..25.0];
    (estimator, clamp(), clamp(), any::<bool>()).prop_map(
        |(estimator, clamp_in, clamp_out, straight_through)| Kl {
            estimator,
            clamp_in,
            clamp_out,
            straight_through,
        },
    )
}

fn weight() -> impl Strategy<Value = Weight> {
    let per_row = prop_oneof![
        Just(PerRow::One),
        Just(PerRow::Length { eps: 1e-8 }),
        Just(PerRow::AtLeastOne),
        (1.0f64..4096.0).prop_map(PerRow::Constant)
    ];
    (per_row, prop_oneof![Just(0.0), 1.0f64..1e5], prop_oneof![Just(1.0), 0.5f64..64.0])
        .prop_map(|(per_row, denominator, scale)| Weight { per_row, denominator, scale })
}

/// Whole counts, since memory holds counts.
fn whole(weight: Weight) -> Weight {
    let per_row = match weight.per_row {
        PerRow::Constant(c) => PerRow::Constant(c.round()),
        other => other,
    };
    Weight { per_row, denominator: weight.denominator.round(), ..weight }
}

fn ppo() -> impl Strategy<Value = AnyGate> {
    let dual = prop_oneof![Just(f32::INFINITY), 1.01f32..20.0];
    (0.0f32..=1.0, 0.0f32..3.0, dual).prop_map(|(clip_ratio_low, clip_ratio_high, clip_ratio_c)| {
        AnyGate::Ppo(PpoClip { clip_ratio_low, clip_ratio_high, clip_ratio_c })
    })
}

fn sapo() -> impl Strategy<Value = AnyGate> {
    (0.05f32..8.0, 0.05f32..8.0).prop_map(|(tau_pos, tau_neg)| AnyGate::Sapo(Taus { tau_pos, tau_neg }))
}

fn policy(gate: impl Strategy<Value = AnyGate>) -> impl Strategy<Value = Policy> {
    let kl = prop::option::of((kl().prop_map(Kl::measured), 0.0f32..2.0));
    (gate, guard(), kl, weight(), any::<[bool; 5]>()).prop_map(
        |(gate, guard, kl, weight, [per_token, weights, loss, token_loss, metrics])| {
            let level =
                if loss { RatioGranularity::Token } else { RatioGranularity::Sequence { log_max: 0.5 } };
            let weight = if per_token { whole(weight) } else { weight };
            let counted = per_token.then_some(3);
            Policy { gate, level, guard, kl, weight, counted, per_token, weights, loss, token_loss, metrics }
        },
    )
}

/// A case of an op on per-token data.
fn token_case<P: Debug + Into<AnyOp>>(params: impl Strategy<Value = P>) -> impl Strategy<Value = Case> {
    let (mask, range) = (prop::sample::select(Mask::ALL.to_vec()), prop::sample::select(Range::ALL.to_vec()));
    (params, lengths(), mask, range, any::<u64>()).prop_map(|(params, lengths, mask, range, seed)| {
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths };
        Case {
            label: format!("{params:?} {mask:?} {range:?} seed {seed}"),
            catches: shape.catches,
            params: params.into(),
            data: tokens(&shape, mask, range, Source::new(seed)),
        }
    })
}

/// A random case of an op, from the generator that `lockstep verify` uses.
fn random_case(op: &'static str) -> impl Strategy<Value = Case> {
    any::<u64>().prop_map(move |seed| random(op, seed).expect("an op of the table"))
}

/// Compares the reference with the oracle and the fastest level with the reference; also rows alone, other
/// garbage, and faults.
fn check(case: Case) -> Result<(), TestCaseError> {
    let reference = launch::run(&*REFERENCE, &case).map_err(TestCaseError::fail)?;
    Measured::default().add(&case, &reference).map_err(TestCaseError::fail)?;
    let best = launch::run(&*BEST, &case).map_err(TestCaseError::fail)?;
    prop_assert_eq!(first_difference(&reference, &best), None);
    let cases = [case];
    suite::row_alone(&*BEST, &cases).map_err(TestCaseError::fail)?;
    suite::repacked(&*BEST, &cases).map_err(TestCaseError::fail)?;
    suite::masked_garbage(&*BEST, &cases).map_err(TestCaseError::fail)?;
    suite::faults_are_local(&*BEST, &cases).map_err(TestCaseError::fail)?;
    Ok(())
}

/// A test of each name, on its cases.
macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident: $cases:expr;)*) => {
        proptest! {
            #![proptest_config(config())]
            $(
                $(#[$doc])*
                #[test]
                fn $name(case in $cases) {
                    check(case)?;
                }
            )*
        }
    };
}

properties! {
    group_advantage: random_case("group_advantage");
    token_ratio:
        token_case((guard(), any::<bool>()).prop_map(|(guard, outputs)| TokenRatio { guard, outputs }));
    policy_loss_ppo: token_case(policy(ppo()));
    policy_loss_sapo: token_case(policy(sapo()));
    kl_divergence: token_case((kl(), any::<bool>()).prop_map(|(kl, outputs)| KlDivergence { kl, outputs }));
    sums: prop::sample::select(vec!["aggregate", "row_scan", "fold_rows"]).prop_flat_map(random_case);
    /// Every op of the table; the tests above know more about theirs.
    any_op: prop::sample::select(OPS.to_vec()).prop_flat_map(|op| random_case(op.name));
}

/// The label's logit lies far below the largest, and rounding it is most of the error of every slope.
#[test]
fn one_token_rollout_of_an_unlikely_label() {
    check(random("otr_exact", 5_279_270_704_542_352_119).unwrap()).unwrap();
}
