//! A single list: every op of core's table has an oracle, a property, a digest entry, and a tolerance.
//! Benches are checked in their own crate.

use crate::prelude::*;
use lockstep_conformance::backend::Entries;
use lockstep_conformance::cases::corpus;
use lockstep_conformance::digest;
use lockstep_conformance::expect::expect;
use lockstep_conformance::ops::kl::KlDivergence;
use lockstep_conformance::ops::policy_loss::Policy;
use lockstep_conformance::precision::allowed;
use lockstep_core::op::OpInfo;
use std::collections::BTreeSet;
use std::path::Path;

/// The ops for which `has` does not hold.
fn lacking(has: impl Fn(&str) -> bool) -> Vec<&'static str> {
    OPS.iter().map(|op| op.name).filter(|name| !has(name)).collect()
}

#[test]
fn every_op_has_cases_and_a_digest_entry() {
    for (what, cases) in [("corpus", corpus(1)), ("digest", digest::cases())] {
        let ops: BTreeSet<&str> = cases.iter().map(|case| case.op()).collect();
        assert_eq!(lacking(|op| ops.contains(op)), Vec::<&str>::new(), "no case in the {what}");
        let known: BTreeSet<&str> = OPS.iter().map(|op| op.name).collect();
        assert_eq!(ops.difference(&known).count(), 0, "cases of ops that are not in the table");
        let labels: BTreeSet<(&str, &str)> = cases.iter().map(|case| (case.op(), &case.label[..])).collect();
        assert_eq!(labels.len(), cases.len(), "labels are unique");
    }
}

#[test]
fn every_output_of_every_op_has_an_oracle() {
    let reference = lockstep_conformance::levels::reference();
    for case in digest::cases() {
        let wants: BTreeSet<&str> = expect(&case).iter().map(|want| want.name).collect();
        for output in launch::run(&reference, &case).unwrap() {
            assert!(output.name == "alarm" || wants.contains(output.name), "{} `{}`", case.op(), output.name);
        }
    }
    assert_eq!(lacking(|op| allowed().any(|a| a.op == op)), Vec::<&str>::new(), "no tolerance");
}

#[test]
fn every_op_has_an_oracle_file_and_a_property() {
    // The oracle has the stem of core's file, except where a file holds several formulas.
    let stem = |name: &str| match name {
        "policy_loss_ppo" => "ppo_clip".to_owned(),
        "aggregate" => name.to_owned(),
        "group_advantage" => "baseline".to_owned(),
        "policy_loss_dppo_tv" | "policy_loss_dppo_kl" => "dppo".to_owned(),
        _ if name.starts_with("policy_loss_") => name["policy_loss_".len()..].to_owned(),
        _ => {
            let file = Path::new(OpInfo::named(name).unwrap().file);
            file.file_stem().unwrap().to_string_lossy().into_owned()
        }
    };
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/oracle");
    assert_eq!(lacking(|op| oracle.join(stem(op)).with_extension("rs").is_file()), Vec::<&str>::new());
    assert!(include_str!("properties.rs").contains("any_op: prop::sample::select(OPS"));
}

#[test]
fn documents_state_the_published_digests() {
    let embedded = include_str!("../../../embedded/DIGEST").split(' ').nth(1).unwrap();
    let digests = [digest::PUBLISHED, digest::PUBLISHED_RECIPES, embedded].map(str::trim);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let (readme, changelog) = (read("README.md"), read("CHANGELOG.md"));
    assert!(readme.contains(digests[0]), "README.md has another digest than {}", digests[0]);
    for digest in digests {
        assert!(changelog.contains(digest), "CHANGELOG.md lacks {digest}");
    }
}

#[test]
fn the_digest_covers_every_variant() {
    let cases = digest::cases();
    for op in OPS.iter().filter(|op| op.file == "policy_loss/mod.rs") {
        let of_gate = cases.iter().filter_map(|case| match &case.params {
            AnyOp::Policy(policy) if policy.gate.op() == op.name => Some(policy),
            _ => None,
        });
        let of_gate: Vec<&Policy> = of_gate.collect();
        let seen =
            |f: &dyn Fn(&Policy) -> String| of_gate.iter().map(|p| f(p)).collect::<BTreeSet<_>>().len();
        assert_eq!(seen(&|p| format!("{:?}", p.guard)), 5, "guards");
        assert_eq!(seen(&|p| format!("{:?}", p.weight)), 6, "aggregation weights");
        let optional = |p: &Policy| format!("{} {} {}", p.per_token, p.weights, p.metrics);
        assert_eq!(seen(&optional), 8, "per-token advantages, weights, metrics");
        assert_eq!(seen(&|p| format!("{} {} {}", p.loss, p.token_loss, p.metrics)), 8, "optional outputs");
        let estimators =
            |p: &Policy| format!("{:?}", p.kl.map(|(kl, _)| (kl.estimator, kl.straight_through)));
        assert_eq!(seen(&estimators), 9, "no KL, and four estimators with both gradients");
    }
    for estimator in [KlFormula::K1, KlFormula::Abs, KlFormula::K2, KlFormula::K3] {
        let alone = cases.iter().filter(
            |case| matches!(case.params, AnyOp::Kl(KlDivergence { kl, .. }) if kl.estimator == estimator),
        );
        assert!(alone.count() >= 4, "{estimator:?}");
    }
}

#[test]
fn the_digest_and_random_cases_launch_every_entry_point() {
    let all: BTreeSet<&str> = OPS.iter().flat_map(|op| op.entries.iter().copied()).collect();
    let (fixed, drawn) = (Entries::default(), Entries::default());
    for case in digest::cases() {
        launch::run(&fixed, &case).unwrap();
    }
    for op in OPS {
        (0..200).for_each(|seed| drop(launch::run(&drawn, &random(op.name, seed).unwrap()).unwrap()));
    }
    for entries in [fixed, drawn] {
        assert_eq!(all.difference(&entries.0.into_inner()).collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}
