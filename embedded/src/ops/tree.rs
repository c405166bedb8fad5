//! `tree_sort` (all rounds of a group), `tree_nodes` and `tree_advantage`, chained as in a trainer.

use crate::hash::Source;
use crate::record::{Record, f32s, f64s, u32s};
use crate::{POISON, POISON64, Runner};
use lockstep_core::Error;
use lockstep_core::op::Kernel;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::tree::{self, TreeAdvantage, TreeNodes, TreeSort};

const SEQUENCES: usize = 20;
const GROUPS: [u32; 5] = [0, 1, 12, 12, 20];
/// Space for all tokens; the last responses are shorter where it runs out.
const TOKENS: usize = 4096;
const CASES: u32 = 8;

/// Generates responses that share prefixes, some of them empty, equal, or a prefix of another. Returns the
/// number of tokens.
fn responses(source: Source, tokens: &mut [u32; TOKENS], cu_seqlens: &mut [u32; SEQUENCES + 1]) -> usize {
    let mut n = 0;
    for s in 0..SEQUENCES {
        let own = source.fork(s as u32);
        let start = n;
        if s > 0 && own.below(0, 4) != 0 {
            let from = s - 1 - own.below(1, s.min(4) as u32);
            let (first, last) = (cu_seqlens[from] as usize, cu_seqlens[from + 1] as usize);
            let kept = own.below(2, (last - first) as u32 + 1).min(TOKENS - n);
            tokens.copy_within(first..first + kept, start);
            n += kept;
        }
        // The first and the fifth are longer than one step of the search.
        let limit = if s == 0 || s == 4 { 700 } else { 24 };
        let more = own.below(3, limit).min(TOKENS - n);
        for t in 0..more {
            tokens[n] = own.fork(5).below(t, 3) as u32;
            n += 1;
        }
        cu_seqlens[s + 1] = n as u32;
    }
    n
}

pub(super) fn run<R: Runner>(runner: &R, source: Source, record: &mut impl Record) -> Result<(), Error> {
    for case in 0..CASES {
        launch(runner, source.fork(case), case, record)?;
    }
    Ok(())
}

fn launch<R: Runner>(runner: &R, source: Source, case: u32, record: &mut impl Record) -> Result<(), Error> {
    let (mut tokens, mut cu_seqlens) = ([0; TOKENS], [0; SEQUENCES + 1]);
    let n = responses(source, &mut tokens, &mut cu_seqlens);
    let seqlens = Offsets::new("cu_seqlens", &cu_seqlens, n, "tokens")?;
    let groups = Offsets::new("cu_groups", &GROUPS, SEQUENCES, "sequences")?;

    let mut order: [u32; SEQUENCES] = core::array::from_fn(|s| s as u32);
    let mut lcp = [0; SEQUENCES];
    for round in 0..tree::rounds(11) {
        let (mut cu_merges, mut middle) = ([0; SEQUENCES + 1], [0; SEQUENCES]);
        let rows = tree::merges(groups, 1 << round, &mut cu_merges, &mut middle);
        let (mut sorted, mut sorted_lcp) = ([POISON; SEQUENCES], [POISON; SEQUENCES]);
        runner.run(&TreeSort {
            cu_merges: Offsets::new("cu_merges", &cu_merges[..=rows], SEQUENCES, "sequences")?,
            middle: In::new(&middle[..rows]),
            cu_seqlens: seqlens,
            tokens: In::new(&tokens[..n]),
            pad: (case % 2 == 1).then_some(0),
            order: In::new(&order),
            lcp: In::new(&lcp),
            sorted: Out::new(&mut sorted),
            sorted_lcp: Out::new(&mut sorted_lcp),
        });
        record.begin(TreeSort::NAME, 8 * case + round);
        u32s(record, &sorted);
        u32s(record, &sorted_lcp);
        (order, lcp) = (sorted, sorted_lcp);
    }

    let reward = |s: usize| if source.below(s, 6) == 0 { f32::NAN } else { source.fork(70).signed(s) };
    let rewards: [f32; SEQUENCES] = core::array::from_fn(reward);
    let valid: [u8; SEQUENCES] = core::array::from_fn(|s| source.fork(71).below(s, 5) as u8);
    let weights: [f32; SEQUENCES] = core::array::from_fn(|s| source.fork(72).below(s, 4) as f32 / 2.0);
    let valid = Mask::new((case % 4 == 2).then_some(&valid[..]));
    let mut value = [f64::from_bits(POISON64); SEQUENCES];
    let [mut counted, mut node, mut parent, mut leaf] = [[POISON; SEQUENCES]; 4];
    runner.run(&TreeNodes {
        cu_groups: groups,
        order: In::new(&order),
        lcp: In::new(&lcp),
        rewards: In::new(&rewards),
        valid,
        weights: (case % 3 == 1).then(|| In::new(&weights[..])),
        value: Out::new(&mut value),
        counted: Out::new(&mut counted),
        node: Out::new(&mut node),
        parent: Out::new(&mut parent),
        leaf: Out::new(&mut leaf),
    });
    record.begin(TreeNodes::NAME, case);
    f64s(record, &value);
    [counted, node, parent, leaf].iter().for_each(|out| u32s(record, out));

    let mask: [u8; TOKENS] = core::array::from_fn(|t| source.fork(73).below(t, 5) as u8);
    let advantage: [f32; SEQUENCES] = core::array::from_fn(|s| source.fork(74).signed(s));
    let std = [0.0, 0.5, 0.25, 1e-3];
    let mut out = [f32::from_bits(POISON); TOKENS];
    let kernel = TreeAdvantage {
        cu_seqlens: seqlens,
        cu_groups: groups,
        loss_mask: Mask::new((!case.is_multiple_of(3)).then_some(&mask[..n])),
        rewards: In::new(&rewards),
        valid,
        lcp: In::new(&lcp),
        value: In::new(&value),
        parent: In::new(&parent),
        leaf: In::new(&leaf),
        advantage: (case % 4 != 3).then(|| In::new(&advantage[..])),
        std: case.is_multiple_of(2).then(|| In::new(&std[..])),
        eps: 1e-6,
        token_advantage: Out::new(&mut out[..n]),
    };
    kernel.check()?;
    runner.run(&kernel);
    record.begin(TreeAdvantage::NAME, case);
    f32s(record, &out[..n]);
    Ok(())
}
