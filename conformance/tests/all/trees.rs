//! Prefix trees: the chain of ops against an explicit trie in binary64, the worked tree of
//! docs/maths/vectors.md, TEMPO against GRPO bit for bit. The file exceeds 400 lines because every test
//! builds its groups with the same few helpers and is checked by the same trie.

use lockstep::core::advantage::Singleton;
use lockstep::core::tree::NONE;
use lockstep::ops::advantage::GroupParams;
use lockstep::ops::tree::{
    ExplicitTree, Outcomes, PrefixTree, Segments, StepBaseline, StepParams, Tempo, TempoParams, prefix_tree,
    spread, step_values, tempo,
};
use lockstep::ops::{self};
use lockstep::recipe::{AdvantageChoice, AdvantageEstimator};
use lockstep::{Batch, Device, Recipe, Rollouts, SimdLevel};
use lockstep_conformance::cases::hash::Source;
use lockstep_conformance::cases::responses::{PAD, responses};
use lockstep_conformance::oracle::baseline::{self, Baseline, Member, Scale};
use lockstep_conformance::oracle::{tree_advantage, tree_sort};
use lockstep_conformance::precision::{WORKED, assert_worked};

/// A batch given by its responses.
struct Group {
    cu_seqlens: Vec<u32>,
    cu_groups: Vec<u32>,
    tokens: Vec<u32>,
}

impl Group {
    fn new(sizes: &[usize], responses: &[Vec<u32>]) -> Self {
        let (mut cu_seqlens, mut cu_groups) = (vec![0], vec![0]);
        responses.iter().for_each(|r| cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + r.len() as u32));
        sizes.iter().for_each(|n| cu_groups.push(cu_groups[cu_groups.len() - 1] + *n as u32));
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
                assert!(
                    (f64::from(advantage[t]) - want).abs() <= allowed,
                    "{sequence} {t}: {} {want}",
                    advantage[t]
                );
                if correction.abs() < 1e-12 {
                    assert_eq!(advantage[t].to_bits(), out.group.advantage[sequence].to_bits());
                }
            }
        }
    }
}

/// The released code stops at the first observation; ours continues after it.
#[test]
fn tempo_behind_an_observation() {
    // Two turns of three responses; the middle token is an observation. The first two diverge after it, the
    // third at the start.
    let batch = Batch::new(&[0, 3, 6, 9], &[0, 3], Some(&[1, 0, 1, 1, 0, 1, 1, 0, 1])).unwrap();
    let tokens: &[u32] = &[7, 5, 1, 7, 5, 2, 8, 5, 1];
    let run = |stop_at_mask| {
        let params = TempoParams { stop_at_mask, ..TEMPO };
        tempo(&Device::cpu(), &batch, tokens.into(), &Outcomes::new(&[1.0, 0.0, 0.0]), &params).unwrap()
    };
    let (ours, released) = (run(false), run(true));
    let group = &ours.group.advantage;
    for (i, live) in [1, 0, 1, 1, 0, 1, 1, 0, 1].into_iter().enumerate() {
        let behind = i % 3 == 2;
        let want = if behind { group[i / 3] } else { ours.advantage[i] };
        assert_eq!(released.advantage[i], if live == 0 { 0.0 } else { want }, "{i}");
    }
    assert!(ours.advantage[2] > group[0] && ours.advantage[0] != group[0]);
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
fn equal_contained_and_empty_responses() {
    // Two equal, one that is a prefix of them, one empty, one unrelated.
    let group = Group::words(&["abc", "abc", "ab", "", "x"]);
    let out = group.tempo(&[1.0, 0.0, 0.0, 1.0, 1.0], &TempoParams { norm_by_std: false, ..TEMPO });
    assert_eq!((&out.tree.order[..], &out.tree.lcp[..]), (&[3, 2, 0, 1, 4][..], &[0, 0, 2, 3, 0][..]));
    let mean = 0.6f64;
    let want = |r: f64, delta: f64| (r - mean + delta) as f32;
    let close = |got: &[f32], want: &[f32]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    // V(a) = V(ab) = 1/3, V(abc) = 1/2: equal responses keep sharing their value.
    let first = group.of(0, &out.advantage);
    assert!(
        close(first, &[want(1.0, 1.0 / 3.0 - mean), want(1.0, 0.0), want(1.0, 0.5 - 1.0 / 3.0)]),
        "{first:?}"
    );
    assert!(close(group.of(2, &out.advantage), &[want(0.0, 1.0 / 3.0 - mean), want(0.0, 0.0)]));
    assert!(close(group.of(4, &out.advantage), &[want(1.0, 1.0 - mean)]));
    // All equal: no branch that affects a token.
    let same = Group::words(&["abc", "abc", "abc"]);
    let out = same.tempo(&[1.0, 0.0, 0.0], &TEMPO);
    assert!(
        (0..3).all(|i| same
            .of(i, &out.advantage)
            .iter()
            .all(|a| a.to_bits() == out.group.advantage[i].to_bits()))
    );
    // Only empty responses.
    assert_eq!(Group::words(&["", ""]).tempo(&[1.0, 0.0], &TEMPO).advantage, [0.0f32; 0]);
}

#[test]
fn a_response_without_outcome_is_as_if_it_were_not_there() {
    let source = Source::new(77);
    let all = responses(30, source);
    let missing = |i: usize| i % 4 == 1;
    let rewards: Vec<f32> = (0..30).map(|i| if missing(i) { f32::NAN } else { source.signed(i) }).collect();
    let group = Group::new(&[30], &all);
    let out = group.tempo(&rewards, &TEMPO);
    let kept: Vec<usize> = (0..30).filter(|i| !missing(*i)).collect();
    let less = Group::new(&[kept.len()], &kept.iter().map(|i| all[*i].clone()).collect::<Vec<_>>());
    let fewer = less.tempo(&kept.iter().map(|i| rewards[*i]).collect::<Vec<_>>(), &TEMPO);
    // Values have the same bits; mean and deviation are sums in another order.
    for (k, i) in kept.iter().enumerate() {
        let pairs = group.of(*i, &out.advantage).iter().zip(less.of(k, &fewer.advantage));
        pairs.for_each(|(a, b)| assert!((a - b).abs() <= 1e-6 * b.abs().max(1.0), "{i}"));
    }
    (0..30)
        .filter(|i| missing(*i))
        .for_each(|i| assert!(group.of(i, &out.advantage).iter().all(|a| *a == 0.0)));
    // `valid` says the same.
    let valid: Vec<u8> = (0..30).map(|i| u8::from(!missing(i))).collect();
    let numbers: Vec<f32> = (0..30).map(|i| if missing(i) { 9.0 } else { rewards[i] }).collect();
    let outcomes = Outcomes { valid: Some(&valid), ..Outcomes::new(&numbers) };
    let same = tempo(&Device::cpu(), &group.batch(), group.tokens[..].into(), &outcomes, &TEMPO).unwrap();
    assert_eq!(bits(&same.advantage), bits(&out.advantage));
}

#[test]
fn weights_move_values_and_nothing_else() {
    let (device, group) = (Device::cpu(), Group::words(&["ab", "ac", "ad"]));
    let (batch, rewards, weights) = (group.batch(), [1.0, 0.0, 0.5], [3.0, 1.0, 0.0]);
    let outcomes = Outcomes { weights: Some(&weights), ..Outcomes::new(&rewards) };
    let out = tempo(
        &device,
        &batch,
        group.tokens[..].into(),
        &outcomes,
        &TempoParams { norm_by_std: false, ..TEMPO },
    );
    let out = out.unwrap();
    assert_eq!(out.tree.value[1], 0.75);
    assert_eq!(out.advantage, [0.5, 0.5 + 0.25, -0.5, -0.5 - 0.75, 0.0, 0.0 + 0.5 - 0.75]);
}

#[test]
fn the_tree_goes_on_through_masked_tokens() {
    // Turn, observation, turn: responses diverge inside the observation and again after it.
    let group = Group::words(&["aOb", "aOc", "aPd", "aPd"]);
    let mask = [1u8, 0, 1].repeat(4);
    let batch = Batch::new(&group.cu_seqlens, &group.cu_groups, Some(&mask)).unwrap();
    let outcomes = Outcomes::new(&[1.0, 0.0, 0.0, 0.0]);
    let params = TempoParams { norm_by_std: false, ..TEMPO };
    let masked = tempo(&Device::cpu(), &batch, group.tokens[..].into(), &outcomes, &params).unwrap();
    let open = group.tempo(outcomes.rewards, &params);
    for (i, live) in mask.iter().enumerate() {
        let want = if *live == 0 { 0 } else { open.advantage[i].to_bits() };
        assert_eq!(masked.advantage[i].to_bits(), want);
    }
    // After the observation, values are those of its own branch: V(aO) = 1/2.
    assert_eq!(masked.advantage[2], 1.0 - 0.25 + 1.0 - 0.5);
}

/// The definition of `tree_nodes`, by position and over all pairs, for one group at a time and without a
/// stack.
fn nodes_by_definition(group: &Group, outcomes: &Outcomes<'_>, tree: &PrefixTree) {
    let around = |first: usize, end: usize, at: usize, depth: u32| {
        let start = (first..at).rev().find(|q| tree.lcp[q + 1] < depth).map_or(first, |q| q + 1);
        let stop = (at + 1..end).find(|q| tree.lcp[*q] < depth).unwrap_or(end);
        (start, stop, (start + 1..stop).find(|q| tree.lcp[*q] == depth))
    };
    for pair in group.cu_groups.windows(2) {
        let (first, end) = (pair[0] as usize, pair[1] as usize);
        let above = |start: usize, stop: usize| {
            let left = (start > first).then(|| tree.lcp[start]);
            let right = (stop < end).then(|| tree.lcp[stop]);
            left.max(right).map_or(NONE, |depth| around(first, end, start, depth).2.unwrap() as u32)
        };
        for at in first..end {
            let (start, stop, node) = match at == first {
                true => (first, end, None),
                false => around(first, end, at, tree.lcp[at]),
            };
            let (mut total, mut weight, mut kept) = (0.0f64, 0.0f64, Vec::new());
            for sequence in tree.order[start..stop].iter().map(|sequence| *sequence as usize) {
                let own = outcomes.weights.map_or(1.0, |weights| weights[sequence]);
                let reward = outcomes.rewards[sequence];
                if outcomes.valid.is_none_or(|valid| valid[sequence] != 0) && !reward.is_nan() && own != 0.0 {
                    total += f64::from(own) * f64::from(reward);
                    weight += f64::from(own);
                    kept.push(reward);
                }
            }
            let equal = kept.first().filter(|first| kept.iter().all(|reward| reward == *first));
            let value = equal.map_or(total / weight, |first| f64::from(*first));
            let value = if value.is_nan() { f64::NAN } else { value };
            assert_eq!(tree.value[at].to_bits(), value.to_bits(), "value at {at} of {first}..{end}");
            assert_eq!(tree.counted[at] as usize, kept.len(), "counted at {at}");
            assert_eq!(tree.node[at], node.map_or(NONE, |node| node as u32), "node of {at}");
            assert_eq!(
                tree.parent[at],
                if at == first { NONE } else { above(start, stop) },
                "parent of {at}"
            );
            assert_eq!(tree.leaf[tree.order[at] as usize], above(at, at + 1), "leaf at {at}");
        }
    }
}

#[test]
fn nodes_of_any_group_are_those_of_their_definition() {
    for seed in 0..60 {
        let source = Source::new(seed);
        let sizes: Vec<usize> = (0..4).map(|g| source.below(g, [1, 3, 12, 50][g])).chain([1]).collect();
        let count: usize = sizes.iter().sum();
        // Equal, contained, empty and unrelated responses: few ids, few lengths.
        let of = source.fork(1);
        let ids = [1, 2, 3, 1 << 30][seed as usize % 4];
        let all: Vec<Vec<u32>> = (0..count)
            .map(|i| (0..of.below(i, 9)).map(|t| source.fork(2).below(16 * i + t, ids) as u32).collect())
            .collect();
        let rewards: Vec<f32> = (0..count)
            .map(|i| match source.fork(3).below(i, 6) {
                0 => f32::NAN,
                1 => 1.0,
                2 => 1e30,
                _ => source.fork(4).signed(i),
            })
            .collect();
        let valid: Vec<u8> = (0..count).map(|i| u8::from(source.fork(5).below(i, 5) > 0)).collect();
        let weights: Vec<f32> = (0..count).map(|i| source.fork(6).below(i, 4) as f32 / 3.0).collect();
        let group = Group::new(&sizes, &all);
        let outcomes = match seed % 3 {
            0 => Outcomes::new(&rewards),
            _ => Outcomes { rewards: &rewards, valid: Some(&valid), weights: Some(&weights) },
        };
        let pad = (seed % 5 == 0).then_some(1);
        for level in [SimdLevel::Plain, SimdLevel::best()] {
            let device = Device::cpu_with(Some(level), Some(2)).unwrap();
            let tree = prefix_tree(&device, &group.batch(), group.tokens[..].into(), &outcomes, pad).unwrap();
            nodes_by_definition(&group, &outcomes, &tree);
        }
    }
    // 4096 responses, each sharing half with one other: a root with 2048 children.
    let pairs: Vec<Vec<u32>> = (0..4096u32).map(|i| vec![i / 2, i / 2, i, i]).collect();
    let rewards: Vec<f32> = (0..4096).map(|i| Source::new(7).signed(i)).collect();
    let (group, outcomes) = (Group::new(&[4096], &pairs), Outcomes::new(&rewards));
    let tree = prefix_tree(&Device::cpu(), &group.batch(), group.tokens[..].into(), &outcomes, None).unwrap();
    let (all, count): (f64, usize) = (rewards.iter().map(|r| f64::from(*r)).sum(), 4096);
    assert!((0..count).step_by(2).all(|at| tree.value[at].to_bits() == (all / 4096.0).to_bits()));
    assert!((1..count).step_by(2).all(|at| tree.node[at] == at as u32 && tree.parent[at] == 2));
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
    let chain: Vec<Vec<u32>> = (0..300u32).map(|i| vec![1; i as usize]).collect();
    let group = Group::new(&[300], &chain);
    let out = group.tempo(&rewards[..300], &TEMPO);
    assert_eq!(out.tree.lcp, (0..300u32).map(|i| i.saturating_sub(1)).collect::<Vec<_>>());
}

#[test]
fn the_recipe_tempo() {
    let group = Group::words(&["abc", "abd", "aef", "ghi"]);
    let (device, rewards) = (Device::cpu(), [1.0, 0.0, 0.0, 1.0]);
    let rollouts = Rollouts {
        tokens: Some(&group.tokens),
        rewards: Some(&rewards),
        ..Rollouts::new(&group.cu_seqlens, &group.cu_groups)
    };
    let recipe = Recipe::named("tempo").unwrap();
    let out = recipe.advantages(&device, &rollouts).unwrap();
    assert_eq!(bits(&out.advantage), bits(&group.tempo(&rewards, &TEMPO).advantage));
    let dr =
        Recipe { advantage: AdvantageChoice { norm_by_std: false, ..recipe.advantage }, ..recipe.clone() };
    let out = dr.advantages(&device, &rollouts).unwrap();
    assert!(out.per_token && out.advantage[9] == 1.0);
    // Weights and invalid responses reach the tree.
    let weighted =
        Rollouts { outcome_weights: Some(&[1.0, 3.0, 1.0, 1.0]), valid: Some(&[1, 1, 0, 1]), ..rollouts };
    let outcomes = Outcomes { weights: weighted.outcome_weights, valid: weighted.valid, rewards: &rewards };
    let by_op = tempo(&device, &group.batch(), group.tokens[..].into(), &outcomes, &TEMPO).unwrap();
    assert_eq!(bits(&recipe.advantages(&device, &weighted).unwrap().advantage), bits(&by_op.advantage));
    let error = recipe.advantages(&device, &Rollouts { tokens: None, ..rollouts }).unwrap_err().to_string();
    assert_eq!(error, "recipe `tempo`: missing columns: tokens (for advantage)");
    assert_eq!(recipe.advantage.estimator, AdvantageEstimator::Tempo);
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
        let parent: Vec<u32> = (0..nodes)
            .map(|v| {
                if v == 0 || source.fork(1).below(v, 9) == 0 {
                    NONE
                } else {
                    source.fork(2).below(v, v) as u32
                }
            })
            .collect();
        // Outcomes at leaves, some missing, and at some inner nodes.
        let is_leaf = |v: usize| !parent.contains(&(v as u32));
        let outcome: Vec<f32> = (0..nodes)
            .map(|v| {
                if is_leaf(v) == (source.fork(3).below(v, 6) != 0) {
                    source.fork(4).signed(v)
                } else {
                    f32::NAN
                }
            })
            .collect();
        let weights: Vec<f32> = (0..nodes).map(|v| source.fork(5).below(v, 4) as f32).collect();
        let tree = ExplicitTree {
            parent: &parent,
            outcome: &outcome,
            weights: (seed % 2 == 1).then_some(&weights[..]),
        };
        let want = by_hand(&tree);
        let steps = step_values(&Device::cpu(), &tree, &StepParams::default()).unwrap();
        for v in 0..nodes {
            let (value, counted) = want[v];
            assert_eq!(steps.counted[v] as usize, counted, "{seed} {v}");
            assert!(
                steps.value[v].is_nan() && value.is_nan() || (steps.value[v] - value).abs() < 1e-12,
                "{seed} {v}"
            );
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
    let message = |parent: &[u32], outcome: &[f32]| {
        let tree = ExplicitTree { parent, outcome, weights: None };
        step_values(&Device::cpu(), &tree, &StepParams::default()).unwrap_err().to_string()
    };
    let cycle = "expected a node that is not a descendant";
    for (parent, outcome, want) in [
        (&[NONE, 2, 0][..], &[0.0; 3][..], "`parent`[1] is 2: expected a node with a smaller index"),
        (&[NONE, 2, 1], &[0.0; 3], &format!("`parent`[1] is 2: {cycle}: this is a cycle")),
        (&[NONE, 1], &[0.0; 2], &format!("`parent`[1] is 1: {cycle}")),
        (&[NONE, 7], &[0.0; 2], "`parent`[1] is 7: expected a node, or NONE"),
        (&[NONE, 0], &[0.0, f32::INFINITY], "`outcome`[1]"),
        (&[NONE, 0], &[0.0], "`outcome` has 1 entries"),
    ] {
        let got = message(parent, outcome);
        assert!(got.starts_with(want), "{got}");
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
    let refused = |segments: &Segments<'_>, tokens: &[u32]| {
        spread(&batch, segments, Some(tokens.into()), &step, None).unwrap_err().to_string()
    };
    let other = refused(&good, &[1, 2, 3, 1, 9, 4, 5]);
    assert!(other.starts_with("`tokens`[4] is 9") && other.contains("shares this segment"), "{other}");
    let overlap = refused(&Segments { start: &[0, 1, 2], ..good }, tokens);
    assert!(overlap.starts_with("`start`[1] is 1") && overlap.contains("overlap"), "{overlap}");
    let gap = refused(&Segments { start: &[1, 2, 2], ..good }, tokens);
    assert!(gap.starts_with("`start`[0] is 1") && gap.contains("gap"), "{gap}");
    assert!(refused(&Segments { end: &[2, 1, 4], ..good }, tokens).starts_with("`end`[1] is 1"));
    assert!(refused(&Segments { leaf: &[1, 1], ..good }, tokens).starts_with("`leaf`[1] is 1"));
    assert!(refused(&Segments { leaf: &[1, 3], ..good }, tokens).starts_with("`leaf`[1] is 3"));
    assert!(refused(&Segments { parent: &[NONE, 2, 0], ..good }, tokens).starts_with("`parent`[1]"));
    assert!(refused(&good, &tokens[1..]).starts_with("`tokens` has 6 entries"));
}

#[test]
fn bad_input_of_a_prefix_tree_is_refused_with_the_place() {
    let group = Group::words(&["ab", "ac"]);
    let (device, batch) = (Device::cpu(), group.batch());
    let refused = |tokens: &[u32], outcomes: Outcomes<'_>| {
        prefix_tree(&device, &batch, tokens.into(), &outcomes, None).unwrap_err().to_string()
    };
    let good = Outcomes::new(&[1.0, 0.0]);
    for (tokens, outcomes, want) in [
        (&group.tokens[1..], good, "`tokens` has 3 entries: expected 4"),
        (&group.tokens, Outcomes::new(&[1.0]), "`rewards` has 1 entries"),
        (&group.tokens, Outcomes::new(&[1.0, f32::INFINITY]), "`rewards`[1] is inf"),
        (&group.tokens, Outcomes { weights: Some(&[1.0, -1.0]), ..good }, "`weights`[1] is -1"),
        (&group.tokens, Outcomes { valid: Some(&[1]), ..good }, "`valid` has 1 entries"),
    ] {
        let got = refused(tokens, outcomes);
        assert!(got.starts_with(want), "{got}");
    }
    let choice = TempoParams { singleton: None, ..TEMPO };
    let one = Group::new(&[1, 1], &[vec![1], vec![2]]);
    let error = tempo(&device, &one.batch(), one.tokens[..].into(), &good, &choice).unwrap_err().to_string();
    assert!(error.starts_with("`cu_groups`[0]"), "{error}");
}
