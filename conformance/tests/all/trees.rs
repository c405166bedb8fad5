//! Prefix trees: the chain of ops against an explicit trie in binary64, the worked tree of
//! docs/maths/vectors.md, TEMPO against GRPO bit for bit. The file exceeds 400 lines because every test
//! builds its groups with the same few helpers and is checked by the same trie.

use crate::prelude::*;
use lockstep::core::advantage::Singleton;
use lockstep::core::tree::NONE;
use lockstep::ops::tree::{
    ExplicitTree, Outcomes, Segments, StepBaseline, StepParams, Tempo, TempoParams, prefix_tree, spread,
    step_values, tempo,
};
use lockstep_conformance::cases::responses::{PAD, responses};
use lockstep_conformance::oracle::baseline::{self, Baseline, Member, Scale};
use lockstep_conformance::oracle::{tree_advantage, tree_sort};

/// A batch given by its responses.
struct Group {
    cu_seqlens: Vec<u32>,
    cu_groups: Vec<u32>,
    tokens: Vec<u32>,
}

impl Group {
    fn new(sizes: &[usize], responses: &[Vec<u32>]) -> Self {
        let cu_seqlens = offsets_of(responses.iter().map(|response| response.len() as u32));
        let cu_groups = offsets_of(sizes.iter().map(|size| *size as u32));
        Group { cu_seqlens, cu_groups, tokens: responses.concat() }
    }

    fn words(words: &[&str]) -> Self {
        let responses: Vec<Vec<u32>> =
            words.iter().map(|word| word.chars().map(u32::from).collect()).collect();
        Group::new(&[words.len()], &responses)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::with_empty_rows(&self.cu_seqlens, &self.cu_groups, None).unwrap()
    }

    fn tempo(&self, rewards: &[f32], params: &TempoParams) -> Tempo {
        tempo(&Device::cpu(), &self.batch(), self.tokens[..].into(), &Outcomes::new(rewards), params).unwrap()
    }

    fn of<'a>(&self, sequence: usize, values: &'a [f32]) -> &'a [f32] {
        &values[self.cu_seqlens[sequence] as usize..self.cu_seqlens[sequence + 1] as usize]
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

const TEMPO: TempoParams = TempoParams::DEFAULT;

#[test]
fn worked_8_5_tempo() {
    let group = Group::words(&["abc", "abd", "aef", "ghi"]);
    let out = group.tempo(&[1.0, 0.0, 0.0, 1.0], &TEMPO);
    let table = [
        [0.577349, 1.154699, 1.732048],
        [-1.154699, -0.577349, -1.732048],
        [-1.154699, -1.443373, -0.866024],
        [1.732048, 0.866024, 0.866024],
    ];
    for (got, want) in out.advantage.iter().zip(table.as_flattened()) {
        assert!((f64::from(*got) - want).abs() <= WORKED, "{got} {want}");
    }
    assert!((out.group.std[0] - 0.577350).abs() < 1e-6);
    // V(root), V(ab), V(a) by position; the branch before ghi is the root again.
    let tree = &out.tree;
    assert_eq!((&tree.order[..], &tree.lcp[..]), (&[0, 1, 2, 3][..], &[0, 2, 1, 0][..]));
    assert_eq!(tree.value, [0.5, 0.5, 1.0 / 3.0, 0.5]);
    assert_eq!(tree.roots(&group.batch()), [0.5]);
    // Without the division: only the brackets.
    let plain = group.tempo(&[1.0, 0.0, 0.0, 1.0], &TempoParams { norm_by_std: false, ..TEMPO });
    assert_eq!(plain.advantage[..2], [(0.5 + 1.0f64 / 3.0 - 0.5) as f32, (0.5 + 0.5 - 1.0f64 / 3.0) as f32]);
    assert_eq!(plain.advantage[9..], [1.0, 0.5, 0.5]);
}

#[test]
fn row_10_13_tempo_finished_siblings() {
    // "ab" ended; "abP" continued with the token that the other is padded with.
    let p = char::from_u32(PAD).unwrap();
    let group = Group::words(&["ab", &format!("ab{p}"), "cd"]);
    let rewards = [1.0, 0.0, 0.0];
    let ours = group.tempo(&rewards, &TEMPO);
    assert_eq!(ours.tree.lcp, [0, 2, 0]);
    // Its end is an edge of its own: V(abP) = 0 after V(ab) = 1/2.
    let want = (0.0 - 1.0 / 3.0 + 0.0 - 0.5) / (0.577_350_269_189_625_8 + 1e-6);
    assert!((f64::from(ours.advantage[4]) - want).abs() < WORKED);
    // The released code compares padding: there is no branch, so plain GRPO.
    let official = group.tempo(&rewards, &TempoParams { pad: Some(PAD), ..TEMPO });
    assert_eq!(official.tree.lcp, [0, u32::MAX, 0]);
    assert_eq!(official.advantage[4].to_bits(), official.group.advantage[1].to_bits());
    assert_eq!(bits(&ours.advantage[..4]), bits(&official.advantage[..4]));
}

/// Checks every token against (R − mean + V(s_{t+1}) − V(s_t)) / (std + eps) with a trie; non-branch tokens
/// against GRPO's bits.
fn check(sizes: &[usize], source: Source, params: &TempoParams, reward: impl Fn(usize) -> f32) {
    let count: usize = sizes.iter().sum();
    let all = responses(count, source);
    let group = Group::new(sizes, &all);
    let rewards: Vec<f32> = (0..count).map(reward).collect();
    let out = group.tempo(&rewards, params);
    // `valid` says the same as NaN.
    let valid: Vec<u8> = rewards.iter().map(|r| u8::from(!r.is_nan())).collect();
    let numbers: Vec<f32> = rewards.iter().map(|r| if r.is_nan() { 9.0 } else { *r }).collect();
    let outcomes = Outcomes { valid: Some(&valid), ..Outcomes::new(&numbers) };
    let same = tempo(&Device::cpu(), &group.batch(), group.tokens[..].into(), &outcomes, params).unwrap();
    assert_eq!(bits(&same.advantage), bits(&out.advantage));
    let ddof = f64::from(params.ddof);
    let scale = match params.norm_by_std {
        true => Scale::Std { ddof, eps: params.eps },
        false => Scale::None { ddof },
    };
    for pair in group.cu_groups.windows(2) {
        let span = pair[0] as usize..pair[1] as usize;
        let own = &all[span.clone()];
        for (k, (index, shared)) in tree_sort::sorted(own, params.pad).into_iter().enumerate() {
            let at = span.start + k;
            let found = (out.tree.order[at] as usize, out.tree.lcp[at]);
            assert_eq!(found, (span.start + index, shared), "position {at}");
        }
        let r: Vec<f64> = span.clone().map(|i| rewards[i].into()).collect();
        let member = |r: &f64| (!r.is_nan()).then_some(Member { reward: *r, weight: 1.0 });
        let members: Vec<Option<Member>> = r.iter().map(member).collect();
        let grpo = baseline::group(Baseline::Mean, scale, [f64::INFINITY, 0.0], &members, 0.0, false);
        let corrections = tree_advantage::corrections(own, &r, &vec![1.0; r.len()], params.pad);
        let divisor = if params.norm_by_std && grpo.spread > 0.0 { grpo.spread + params.eps } else { 1.0 };
        for (k, sequence) in span.enumerate() {
            let advantage = group.of(sequence, &out.advantage);
            for (t, (correction, magnitude)) in corrections[k].iter().enumerate() {
                let want = grpo.advantage[k] + if r[k].is_nan() { 0.0 } else { correction / divisor };
                // Three roundings to binary32: of A, of std, of the result.
                let allowed = 3.0 * 6e-8 * (want.abs() + grpo.advantage[k].abs() + magnitude / divisor);
                let got = f64::from(advantage[t]);
                assert!((got - want).abs() <= allowed, "{sequence} {t}: {got} {want}");
                if correction.abs() < 1e-12 {
                    assert_eq!(advantage[t].to_bits(), out.group.advantage[sequence].to_bits());
                }
            }
        }
    }
}

#[test]
fn tempo_is_the_walk_over_an_explicit_trie() {
    for seed in 0..60 {
        let source = Source::new(seed);
        let size = |k| source.fork(7).below(k, 20);
        let params = TempoParams {
            norm_by_std: seed % 3 != 2,
            ddof: u32::from(seed % 4 != 3),
            eps: [1e-6, 1e-4][seed as usize % 2],
            pad: [None, Some(PAD), None][seed as usize % 3],
            ..TEMPO
        };
        check(&[size(0), size(1), 1, size(2)], source, &params, |i| match seed % 4 {
            0 => source.fork(8).below(i, 2) as f32,
            1 => source.fork(8).signed(i),
            2 if source.fork(9).below(i, 3) == 0 => f32::NAN,
            // Rewards that are nearly equal.
            3 => [1.0, 1.000_000_1][source.fork(8).below(i, 2)],
            _ => (source.fork(8).below(i, 3) as f32) / 2.0,
        });
    }
    check(&[200], Source::new(99), &TEMPO, |i| (i % 2) as f32);
}

#[test]
fn tempo_without_shared_prefixes_is_grpo_bit_for_bit() {
    let source = Source::new(5);
    for size in [1usize, 2, 3, 8, 33, 512] {
        let own = |i: usize| {
            let mut response = vec![i as u32];
            response.extend((0..source.below(i, 20)).map(|t| source.fork(i as u64).below(t, 5) as u32));
            response
        };
        let all: Vec<Vec<u32>> = (0..size).map(own).collect();
        let group = Group::new(&[size], &all);
        let rewards: Vec<f32> = (0..size).map(|i| source.fork(2).signed(i)).collect();
        for params in [TEMPO, TempoParams { norm_by_std: false, ..TEMPO }] {
            let out = group.tempo(&rewards, &params);
            let choice = GroupParams::grpo(params.norm_by_std, 1, 1e-6).singleton(Singleton::Zero);
            let grpo = ops::group_advantage(&Device::cpu(), &group.batch(), &rewards, None, &choice).unwrap();
            for i in 0..size {
                let (own, advantage) = (group.of(i, &out.advantage), grpo.advantage[i]);
                // The first token distinguishes the responses; after it the path is unique.
                assert!(own[1..].iter().all(|a| a.to_bits() == advantage.to_bits()), "{size} {i}");
            }
        }
    }
    // Responses that diverge before their first token of the tree: groups of one each.
    let group = Group::new(&[1, 1], &[vec![1, 2], vec![1, 3]]);
    assert_eq!(group.tempo(&[1.0, 0.0], &TEMPO).advantage, [0.0; 4]);
    // Responses that are all equal, and that are all empty.
    let same = Group::words(&["abc", "abc", "abc"]).tempo(&[1.0, 0.0, 0.0], &TEMPO);
    let grpo: Vec<f32> = same.group.advantage.iter().flat_map(|a| [*a; 3]).collect();
    assert_eq!(bits(&same.advantage), bits(&grpo));
    assert_eq!(Group::words(&["", ""]).tempo(&[1.0, 0.0], &TEMPO).advantage, [0.0f32; 0]);
}

#[test]
fn a_shared_token_has_one_correction() {
    for seed in 0..20 {
        let (device, source) = (Device::cpu(), Source::new(1000 + seed));
        let all = responses(24, source);
        let group = Group::new(&[24], &all);
        let rewards: Vec<f32> = (0..24).map(|i| source.fork(3).signed(i)).collect();
        let (batch, outcomes) = (group.batch(), Outcomes::new(&rewards));
        let tree = prefix_tree(&device, &batch, group.tokens[..].into(), &outcomes, None).unwrap();
        let correction = tree.advantages(&device, &batch, &outcomes, None, None).unwrap();
        for a in 0..24 {
            let (own, mut sum) = (group.of(a, &correction), 0.0);
            for b in 0..24 {
                let shared = tree_sort::common(&all[a], &all[b], None) as usize;
                assert_eq!(bits(&own[..shared]), bits(&group.of(b, &correction)[..shared]), "{seed} {a} {b}");
            }
            // Telescoping: their sum is V(leaf) − V(root).
            sum += own.iter().map(|x| f64::from(*x)).sum::<f64>();
            let below: Vec<usize> = (0..24).filter(|b| all[*b].starts_with(&all[a])).collect();
            let leaf = below.iter().map(|b| f64::from(rewards[*b])).sum::<f64>() / below.len() as f64;
            assert!((sum - (leaf - tree.roots(&batch)[0])).abs() < 1e-5, "{seed} {a}");
        }
    }
}

#[test]
fn large_groups_and_chains() {
    // 4096 members that each share all but the last token with one other; then chains in which each contains
    // its predecessor.
    let pairs: Vec<Vec<u32>> = (0..4096u32).map(|i| vec![7, i / 2, 3, i]).collect();
    let group = Group::new(&[4096], &pairs);
    let rewards: Vec<f32> = (0..4096).map(|i| (i % 3) as f32).collect();
    let found = group.tempo(&rewards, &TEMPO).tree.statistics(&group.batch());
    assert_eq!((found.branches, found.tokens, found.tree_tokens), (2049, 16384, 1 + 2 * 2048 + 4096));
    assert_eq!((found.shared_tokens, found.depths), (3 * 4096, vec![0, 1, 2048]));
    // Each shares half with one other: a root with 2048 children.
    let pairs: Vec<Vec<u32>> = (0..4096u32).map(|i| vec![i / 2, i / 2, i, i]).collect();
    let rewards: Vec<f32> = (0..4096).map(|i| Source::new(7).signed(i)).collect();
    let tree = Group::new(&[4096], &pairs).tempo(&rewards, &TEMPO).tree;
    let all: f64 = rewards.iter().map(|r| f64::from(*r)).sum();
    assert!((0..4096).step_by(2).all(|at| tree.value[at].to_bits() == (all / 4096.0).to_bits()));
    assert!((1..4096).step_by(2).all(|at| tree.node[at] == at as u32 && tree.parent[at] == 2));
    let chain: Vec<Vec<u32>> = (0..300u32).map(|i| vec![1; i as usize]).collect();
    let out = Group::new(&[300], &chain).tempo(&rewards[..300], &TEMPO);
    assert_eq!(out.tree.lcp, (0..300u32).map(|i| i.saturating_sub(1)).collect::<Vec<_>>());
}

#[test]
fn the_recipe_tempo() {
    let group = Group::words(&["abc", "abd", "aef", "ghi"]);
    let (device, rewards) = (Device::cpu(), [1.0, 0.0, 0.0, 1.0]);
    // Weights and invalid responses reach the tree.
    let (weights, valid) = (Some(&[1.0, 3.0, 1.0, 1.0][..]), Some(&[1, 1, 0, 1][..]));
    let rollouts = Rollouts {
        tokens: Some(&group.tokens),
        rewards: Some(&rewards),
        outcome_weights: weights,
        valid,
        ..Rollouts::new(&group.cu_seqlens, &group.cu_groups)
    };
    let outcomes = Outcomes { weights, valid, rewards: &rewards };
    let by_op = tempo(&device, &group.batch(), group.tokens[..].into(), &outcomes, &TEMPO).unwrap();
    let out = Recipe::named("tempo").unwrap().advantages(&device, &rollouts).unwrap();
    assert!(out.per_token && bits(&out.advantage) == bits(&by_op.advantage));
    refused(Recipe::from_toml("[advantage]\npad_id = 0\n"), "…advantage.pad_id…tempo…");
}

/// V and the outcomes below each node, by walking every node's ancestors.
fn by_hand(tree: &ExplicitTree<'_>) -> Vec<(f64, usize)> {
    let below = |node: usize, mut at: usize| loop {
        if at == node {
            return true;
        }
        match tree.parent[at] {
            NONE => return false,
            up => at = up as usize,
        }
    };
    let value = |node: usize| {
        let counted = |at: &usize| {
            below(node, *at) && !tree.outcome[*at].is_nan() && tree.weights.is_none_or(|w| w[*at] != 0.0)
        };
        let weight = |at: usize| tree.weights.map_or(1.0, |w| f64::from(w[at]));
        let all: Vec<usize> = (0..tree.parent.len()).filter(counted).collect();
        let sum: f64 = all.iter().map(|at| weight(*at) * f64::from(tree.outcome[*at])).sum();
        (sum / all.iter().map(|at| weight(*at)).sum::<f64>(), all.len())
    };
    (0..tree.parent.len()).map(value).collect()
}

#[test]
fn explicit_trees_have_monte_carlo_values() {
    for seed in 0..100 {
        let source = Source::new(seed);
        let nodes = source.below(0, 40);
        let root = |v: usize| v == 0 || source.fork(1).below(v, 9) == 0;
        let up = |v: usize| if root(v) { NONE } else { source.fork(2).below(v, v) as u32 };
        let parent: Vec<u32> = (0..nodes).map(up).collect();
        // Outcomes at leaves, some missing, and at some inner nodes.
        let is_leaf = |v: usize| !parent.contains(&(v as u32));
        let has = |v: usize| is_leaf(v) == (source.fork(3).below(v, 6) != 0);
        let outcome = |v: usize| if has(v) { source.fork(4).signed(v) } else { f32::NAN };
        let outcome: Vec<f32> = (0..nodes).map(outcome).collect();
        let weights: Vec<f32> = (0..nodes).map(|v| source.fork(5).below(v, 4) as f32).collect();
        let weights = (seed % 2 == 1).then_some(&weights[..]);
        let tree = ExplicitTree { parent: &parent, outcome: &outcome, weights };
        let want = by_hand(&tree);
        let steps = step_values(&Device::cpu(), &tree, &StepParams::default()).unwrap();
        for v in 0..nodes {
            let (value, counted) = want[v];
            assert_eq!(steps.counted[v] as usize, counted, "{seed} {v}");
            let found = steps.value[v];
            assert!(found.is_nan() && value.is_nan() || (found - value).abs() < 1e-12, "{seed} {v}");
            let up = parent[v];
            let none = up == NONE || value.is_nan();
            let process = if none { 0.0 } else { value - want[up as usize].0 };
            assert!((f64::from(steps.advantage[v]) - process).abs() < 1e-6, "{seed} {v}");
        }
    }
}

#[test]
fn steps_against_their_siblings() {
    let nan = f32::NAN;
    // A root with three steps of values 1, 0, 0.5 (the last has two outcomes).
    let parent = [NONE, 0, 0, 0, 3, 3];
    let outcome = [nan, 1.0, 0.0, nan, 1.0, 0.0];
    let tree = ExplicitTree { parent: &parent, outcome: &outcome, weights: None };
    let run = |baseline, norm_by_std| {
        step_values(&Device::cpu(), &tree, &StepParams { baseline, norm_by_std }).unwrap().advantage
    };
    assert_eq!(run(StepBaseline::Parent, None), [0.0, 0.5, -0.5, 0.0, 0.5, -0.5]);
    assert_eq!(run(StepBaseline::Siblings, None), [0.0, 0.5, -0.5, 0.0, 0.5, -0.5]);
    assert_eq!(run(StepBaseline::OtherSiblings, None), [0.0, 0.75, -0.75, 0.0, 1.0, -1.0]);
    assert_eq!(run(StepBaseline::Parent, Some((1, 0.0)))[1], 1.0);
}

#[test]
fn a_small_difference_of_two_values_survives_binary32() {
    // V of the root is 1e6 + 1/3: binary32 holds neither it nor the difference of the rounded values.
    let (nan, high) = (f32::NAN, 1e6 + 1.0);
    let tree = ExplicitTree { parent: &[NONE, 0, 0, 0], outcome: &[nan, 1e6, 1e6, high], weights: None };
    for (baseline, want) in [
        (StepBaseline::Parent, [-1.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0]),
        (StepBaseline::Siblings, [-1.0 / 3.0, -1.0 / 3.0, 2.0 / 3.0]),
        (StepBaseline::OtherSiblings, [-0.5, -0.5, 1.0]),
    ] {
        let params = StepParams { baseline, norm_by_std: None };
        let found = step_values(&Device::cpu(), &tree, &params).unwrap().advantage;
        assert_worked(&found[1..], &want);
    }
}

#[test]
fn bad_trees_are_refused_with_the_place() {
    let cycle = "expected a node that is not a descendant";
    for (parent, outcome, says) in [
        (&[NONE, 2, 0][..], &[0.0; 3][..], "`parent`[1] is 2: expected a node with a smaller index…"),
        (&[NONE, 2, 1], &[0.0; 3], &format!("`parent`[1] is 2: {cycle}: this is a cycle…")),
        (&[NONE, 1], &[0.0; 2], &format!("`parent`[1] is 1: {cycle}…")),
        (&[NONE, 7], &[0.0; 2], "`parent`[1] is 7: expected a node, or NONE…"),
        (&[NONE, 0], &[0.0, f32::INFINITY], "`outcome`[1]…"),
        (&[NONE, 0], &[0.0], "`outcome` has 1 entries…"),
    ] {
        let tree = ExplicitTree { parent, outcome, weights: None };
        refused(step_values(&Device::cpu(), &tree, &StepParams::default()), says);
    }
}

#[test]
fn steps_spread_over_the_tokens_of_packed_responses() {
    // One root of two tokens, two answers of one and two.
    let (parent, start, end, leaf) = ([NONE, 0, 0], [0, 2, 2], [2, 3, 4], [1, 2]);
    let mask = [0, 1, 1, 1, 1, 1, 1];
    let batch = Batch::new(&[0, 3, 7], &[0, 2], Some(&mask)).unwrap();
    let good = Segments { parent: &parent, start: &start, end: &end, leaf: &leaf };
    let tokens: &[u32] = &[1, 2, 3, 1, 2, 4, 5];
    let step = [0.5, 1.0, -1.0];
    let out = spread(&batch, &good, Some(tokens.into()), &step, Some(&[10.0, 20.0])).unwrap();
    assert_eq!(out, [0.0, 10.5, 11.0, 20.5, 20.5, 19.0, 19.0]);
    for (segments, tokens, says) in [
        (good, &[1, 2, 3, 1, 9, 4, 5][..], "`tokens`[4] is 9…shares this segment…"),
        (Segments { start: &[0, 1, 2], ..good }, tokens, "`start`[1] is 1…overlap…"),
        (Segments { start: &[1, 2, 2], ..good }, tokens, "`start`[0] is 1…gap…"),
        (Segments { end: &[2, 1, 4], ..good }, tokens, "`end`[1] is 1…"),
        (Segments { leaf: &[1, 1], ..good }, tokens, "`leaf`[1] is 1…"),
        (Segments { leaf: &[1, 3], ..good }, tokens, "`leaf`[1] is 3…"),
        (Segments { parent: &[NONE, 2, 0], ..good }, tokens, "`parent`[1]…"),
        (good, &tokens[1..], "`tokens` has 6 entries…"),
    ] {
        refused(spread(&batch, &segments, Some(tokens.into()), &step, None), says);
    }
}

#[test]
fn bad_input_of_a_prefix_tree_is_refused_with_the_place() {
    let group = Group::words(&["ab", "ac"]);
    let (device, batch) = (Device::cpu(), group.batch());
    let good = Outcomes::new(&[1.0, 0.0]);
    for (tokens, outcomes, says) in [
        (&group.tokens[1..], good, "`tokens` has 3 entries: expected 4…"),
        (&group.tokens, Outcomes::new(&[1.0]), "`rewards` has 1 entries…"),
        (&group.tokens, Outcomes::new(&[1.0, f32::INFINITY]), "`rewards`[1] is inf…"),
        (&group.tokens, Outcomes { weights: Some(&[1.0, -1.0]), ..good }, "`weights`[1] is -1…"),
        (&group.tokens, Outcomes { valid: Some(&[1]), ..good }, "`valid` has 1 entries…"),
    ] {
        refused(prefix_tree(&device, &batch, tokens.into(), &outcomes, None), says);
    }
    let choice = TempoParams { singleton: None, ..TEMPO };
    let one = Group::new(&[1, 1], &[vec![1], vec![2]]);
    refused(tempo(&device, &one.batch(), one.tokens[..].into(), &good, &choice), "`cu_groups`[0]…");
}
