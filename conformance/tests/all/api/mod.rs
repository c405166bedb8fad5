//! The public API on slices returns what the kernels return, and its metrics are what their names say.

mod advantage;
mod launch;
mod logits;
mod policy;
mod ratios;

use self::advantage::{check_gae, check_group, check_vtrace, check_whiten};
use self::launch::Launch;
use self::logits::{check_logits, check_logits_kl, check_sampling, check_vocab_parallel};
use self::policy::{check_gmpo, check_kl, check_policy, check_ratios};
use crate::prelude::*;
use lockstep::ops::kl_importance::ThreePolicies;
use lockstep::ops::reward::{Bands, ShapeParams, VarianceParams};
use lockstep::ops::{sharpen::EntropyOf, step_return::Steps, value_loss::ValueInput};
use lockstep_conformance::cases::corpus;
use lockstep_conformance::cases::params::BAND;
use lockstep_conformance::ops::{
    check::Check, combine::Combine, discounted_return::DiscountedReturn, exact_sum::ExactSum, filter::Filter,
    kl::KlDivergence, kl_importance::KlImportance, moments::Moments, novelty::Novelty, pass_at_k::PassAtK,
    sequence_weight::SequenceWeight, shape::Shape, step_return, sums::Sums, token_ratio::TokenRatio,
};
use lockstep_conformance::with_gate;
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::ragged::check_offsets;
use lockstep_core::reward::Shaping;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn slices_in_kernels_out() {
    let device = Device::cpu();
    let (mut checked, mut without) = (BTreeMap::<&str, usize>::new(), BTreeSet::new());
    for case in corpus(31) {
        let (data, expected) = (&case.data, Launch::new(&device, &case));
        let (batch, valid) = (|| expected.batch(), data.mask.as_deref());
        let at = |k: usize| &data.element[k][..];
        match case.params {
            AnyOp::TokenRatio(TokenRatio { guard, outputs }) => {
                let (logp, old) = (at(slot::LOGP), at(slot::LOGP_OLD));
                let out = ops::token_ratio(&device, &batch(), logp, old, guard, BAND).unwrap();
                if outputs {
                    expected.same("ratio", &out.ratio);
                    expected.same("log_ratio", &out.log_ratio);
                }
                check_ratios(&expected, &out.stats, expected.counts());
            }
            AnyOp::Policy(policy) => {
                with_gate!(policy.gate, gate => check_policy(&expected, &policy, gate));
            }
            AnyOp::Kl(KlDivergence { kl, .. }) => check_kl(&expected, &kl),
            AnyOp::Sums(Sums::Aggregate { values: true }) => {
                let weight = Weight { per_row: PerRow::One, denominator: 1.0, scale: 1.0 };
                let out = ops::aggregate(&device, &batch(), at(0), &weight).unwrap();
                expected.same("row_sum", &out.row_sum);
            }
            AnyOp::Sums(Sums::Aggregate { values: false }) => {
                assert_eq!(batch().counts(&device).unwrap(), expected.counts());
            }
            AnyOp::Sums(Sums::RowScan { direction }) => {
                expected.same("scanned", &ops::row_scan(&device, &batch(), at(0), direction).unwrap());
            }
            AnyOp::Sums(Sums::FoldRows) => {
                let rows = data.elements() / data.rows();
                expected.same("totals", &ops::fold_rows(&device, &data.element64, rows).unwrap());
            }
            // These ops are for arrays that the host cannot read; on slices the constructors and alarms
            // check.
            AnyOp::Check(Check::Offsets { elements }) => {
                let found = check_offsets("offsets", &data.index, elements, "elements");
                let clean = expected.outputs["first_fault"].iter().all(|fault| *fault == f64::from(u32::MAX));
                // Offsets with no row at all are a separate error.
                assert_eq!(found.is_ok(), clean && data.index.len() > 1, "{}", case.label);
            }
            AnyOp::Check(Check::Values { domain }) => {
                let mut values = data.element[0].iter().enumerate();
                let fault = values.position(|(i, x)| data.live(i) && !domain.holds(*x));
                let first = expected.outputs["first_fault"].iter().copied().fold(f64::INFINITY, f64::min);
                assert_eq!(fault.map_or(f64::from(u32::MAX), |i| i as f64), first, "{}", case.label);
            }
            AnyOp::Group(group) => check_group(&expected, &group),
            AnyOp::DiscountedReturn(DiscountedReturn { gamma }) => {
                let out = ops::discounted_return(&device, &batch(), at(0), gamma);
                expected.same("returns", &out.unwrap());
            }
            AnyOp::Moments(Moments::Rows { per_row: false, nan_is_missing: false }) => {
                let out = ops::token_moments(&device, &batch(), at(0)).unwrap();
                assert_eq!(out.count, expected.sum("count"), "{}", case.label);
                assert_eq!(out.high, expected.max("high"), "{}", case.label);
            }
            AnyOp::Moments(Moments::Rows { .. }) => {}
            AnyOp::Moments(Moments::Fold) => {
                let rows = data.elements() / MOMENTS;
                assert_eq!(expected.sum("count"), data.element64[..rows].iter().sum::<f64>());
            }
            AnyOp::PassAtK(PassAtK { k, threshold, eps }) => {
                let out =
                    expected.of_groups(|b| Ok(ops::pass_at_k(&device, b, at(0), valid, k, threshold, eps)));
                // Some groups have fewer than k members: an error that names the first.
                let few = expected.outputs["too_few"].iter().position(|few| *few != 0.0).unwrap();
                refused(out, &format!("`cu_groups`[{few}]…"));
            }
            // A batch has at least one sequence.
            AnyOp::Combine(_) if data.elements() == 0 => {}
            AnyOp::Combine(Combine { kinds, weights }) => {
                let components = data.element[..kinds].concat();
                let weights = &weights[..kinds];
                let out = expected.of_groups(|b| ops::combine(&device, b, &components, weights));
                expected.scored("combined", &out);
            }
            AnyOp::ExactSum(ExactSum::Double) => {
                // The op of the API takes no mask.
                let live = (0..data.element64.len()).filter(|i| data.live(*i)).map(|i| data.element64[i]);
                let live: Vec<f64> = live.collect();
                let want = (live.iter().copied().collect(), live.len() as u64);
                assert_eq!(ops::exact_sum(&device, &live).unwrap(), want, "{}", case.label);
            }
            AnyOp::ExactSum(ExactSum::Single { square }) => {
                let one_sequence = [0, data.element[0].len() as u32];
                let batch = Batch::new(&one_sequence, &[0, 1], valid).unwrap();
                let live = (0..data.element[0].len()).filter(|i| data.live(*i));
                let term = |x: f64| if square { x * x } else { x };
                let live: Vec<f64> = live.map(|i| term(data.element[0][i].into())).collect();
                let want = (live.iter().copied().collect(), live.len() as u64);
                let counted = ops::exact_token_sum(&device, &batch, at(0), square).unwrap();
                assert_eq!(counted, want, "{}", case.label);
            }
            AnyOp::Gmpo(params) => check_gmpo(&expected, &params),
            AnyOp::SequenceWeight(SequenceWeight { rule, weights }) => {
                let logps = [slot::LOGP, slot::LOGP_OLD].map(at);
                let weights = weights.then_some(at(slot::WEIGHTS));
                let out = ops::sequence_weight(&device, &batch(), logps, &data.row[0], weights, &rule);
                expected.same("weight", &out.unwrap());
            }
            // The API chains these ops; tests/all/selections.rs checks the chain against a sort.
            AnyOp::Selection(_) => {}
            AnyOp::Gae(params) => check_gae(&expected, &params),
            AnyOp::VTrace(params) => check_vtrace(&expected, &params),
            AnyOp::StepReturn(params) => {
                let matches = step_return::matches(data);
                let steps = Steps { cu_steps: &data.offsets, rewards: at(0), matches: &matches };
                let (gamma, first) = (params.gamma, params.include_first_mismatch);
                expected.same("returns", &ops::step_return(&device, &steps, gamma, first).unwrap());
            }
            // Records and loads there are the oracle's own; tests/all/routing.rs covers the API.
            AnyOp::Gating(_) | AnyOp::Balance(_) => {}
            // The API computes the weights itself: tests/all/over_time.rs.
            AnyOp::OptimalTokenBaseline(_) => {}
            AnyOp::ValueLoss(params) => {
                let [values, old, returns] = [0, 1, 2].map(at);
                let (values_old, huber_delta) = (params.old.then_some(old), Some(params.delta));
                let input = ValueInput { values, values_old, returns, huber_delta };
                let out = ops::value_loss(&device, &batch(), &input, params.range, &params.weight);
                let out = out.unwrap();
                expected.same("gradient", &out.gradient);
                expected.same("row_loss", &out.row_loss);
            }
            AnyOp::KlImportance(params) => {
                let [logp, logp_old, logp_ref] = [slot::LOGP, slot::LOGP_OLD, slot::LOGP_REF].map(at);
                let policies = ThreePolicies { logp, logp_old, logp_ref };
                let KlImportance { kl, guard, through, .. } = params;
                let out = ops::kl_importance(&device, &batch(), &policies, &kl, guard, through);
                expected.same("row_sum", &out.unwrap().row_sum);
            }
            AnyOp::Logits(params) => check_logits(&expected, &params),
            AnyOp::VocabParallel(params) => check_vocab_parallel(&expected, &params),
            AnyOp::LogitsKl(params) => check_logits_kl(&expected, &params),
            AnyOp::Sampling(params) => check_sampling(&expected, &params),
            // A batch has at least one sequence.
            _ if data.elements() == 0 => {}
            AnyOp::Shape(Shape { shaping, threshold }) => {
                // The API refuses references outside their group.
                if shaping != Shaping::Preferred {
                    let flags: Vec<u8> = data.element[1].iter().map(|x| u8::from(*x > 0.0)).collect();
                    let (lengths, flags) = (Some(&data.index[..]), Some(&flags[..]));
                    let params = ShapeParams { shaping, threshold, lengths, flags, reference: None };
                    let out = expected.of_groups(|b| ops::shape_rewards(&device, b, at(0), valid, &params));
                    expected.scored("shaped", &out);
                }
            }
            AnyOp::Filter(Filter { criterion }) => {
                let out = expected.of_groups(|b| ops::filter_groups(&device, b, at(0), valid, criterion));
                expected.same("statistic", &out.statistic);
                assert_eq!(expected.sum("kept"), f64::from(out.kept.iter().sum::<u32>()), "{}", case.label);
                assert_eq!(out.keep.len() - out.dropped_sequences(), expected.sum("keep") as usize);
            }
            AnyOp::MaskSequences(_) => {
                let keep: Vec<u8> = data.row[0].iter().map(|x| u8::from(*x > 0.0)).collect();
                let out = ops::mask_sequences(&device, &batch(), &keep).unwrap();
                expected.same("masked", &out);
            }
            AnyOp::Novelty(Novelty { mean_weight, bands }) => {
                let [majority, minority, width, invalid] = bands;
                let bands = Bands { mean_weight, majority, minority, width, invalid };
                let one = |i: usize, j: usize| at(0)[i] * at(0)[j] + at(1)[i] * at(1)[j];
                let group = |g| data.span(g).flat_map(move |i| data.span(g).map(move |j| one(i, j)));
                let similarity: Vec<f32> = (0..data.rows()).flat_map(group).collect();
                let out = expected
                    .of_groups(|b| ops::novelty_bands(&device, b, &data.index, &similarity, valid, &bands));
                expected.scored("shaped", &out.rewards);
                expected.same("novelty", &out.novelty);
            }
            AnyOp::VarianceIncrease(p) => {
                let logp = p.weighted.then_some(&data.element64[..]);
                let (low, high) = (p.bounds[0], p.bounds[1]);
                let params = VarianceParams { logp, low, high, margin: p.margin, merge_ties: p.merge_ties };
                let out = expected.of_groups(|b| ops::variance_increase(&device, b, at(0), valid, &params));
                expected.scored("shaped", &out);
            }
            // The API sums log-probabilities itself, and sorts by role: conformance/tests/all/outcome/mod.rs.
            AnyOp::Sharpen(_) | AnyOp::RoleBaseline(_) => {}
            AnyOp::EntropyBonus(p) => {
                let advantage = match p.per_token {
                    true => Advantage::PerToken(at(0)),
                    false => Advantage::PerSequence(&data.row[0]),
                };
                let source = if p.full { EntropyOf::Distribution(at(1)) } else { EntropyOf::Sampled(at(1)) };
                let out = ops::entropy_bonus(&device, &batch(), advantage, source, p.alpha, p.kappa);
                expected.same("shaped", &out.unwrap());
            }
            AnyOp::Ratios(p) => ratios::check(&expected, &p),
            // Its statistics are sums over a batch whose rows are these outputs: tests/all/correction.rs.
            AnyOp::Correction(_) => {}
            // The parts are those of a batch that the host counts.
            AnyOp::Counts(_) => {
                let groups = [0, data.index.len() as u32 - 1];
                let batch = Batch::with_empty_rows(&data.index, &groups, valid).unwrap();
                let found = batch.counts(&device).unwrap();
                assert_eq!(found.tokens as f64, expected.sum("tokens"), "{}", case.label);
                assert_eq!(found.nonempty as f64, expected.sum("nonempty"), "{}", case.label);
                assert_eq!(batch.longest() as f64, expected.max("longest"), "{}", case.label);
            }
            // For results that stay on a device; the API folds on the host: tests/all/on_device.rs.
            AnyOp::Totals(_) => {}
            // The API chains the three: `tests/all/trees.rs`.
            AnyOp::Tree(_) => {}
            AnyOp::Whiten(params) => {
                // The kernel uses the moments of another batch, the API those of its own.
                if !params.nan_is_missing {
                    check_whiten(&expected);
                }
            }
            // No op so far, and only one without a function on slices.
            #[allow(unreachable_patterns)]
            _ => {
                without.insert(case.op());
            }
        }
        *checked.entry(case.op()).or_default() += 1;
    }
    println!("{checked:?}");
    // Its modules and functions by name.
    let functions = include_str!("../../../../ops/src/ops/mod.rs");
    without.retain(|op| functions.contains(op));
    assert!(functions.contains("token_ratio") && without.is_empty(), "not compared: {without:?}");
    assert!(checked.len() == lockstep_core::op::OPS.len() && checked.values().all(|n| *n >= 4));
}

#[test]
fn mismatch_is_the_ratio_of_old_to_rollout() {
    let device = Device::cpu();
    let batch = Batch::new(&[0, 2], &[0, 1], None).unwrap();
    let (rollout, old) = ([-1.0, -0.5], [-0.5, -0.5]);
    let stats = ops::ratio::mismatch(&device, &batch, &rollout, &old).unwrap();
    assert_eq!(stats.kl_k1, -0.25, "mean(logp_rollout - logp_old)");
    assert!((stats.ratio_max - 0.5f64.exp()).abs() <= WORKED && stats.ratio_min == 1.0);
    let other = ops::token_ratio(&device, &batch, &old, &rollout, Guard::clamp(20.0), [0.5, 2.0]);
    assert_eq!(other.unwrap().stats, stats);
}
