//! `optimal_token_baseline`: a row is a group of sequences; an odd index marks a token that starts a
//! sequence.

use super::prelude::*;
use crate::oracle::optimal_token_baseline::{self as oracle, Token};
use lockstep_core::advantage::OptimalTokenBaseline as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimalTokenBaseline {
    pub eps: f64,
    /// Whether a tail that only one sequence reaches has no baseline.
    pub lone_tail_is_raw: bool,
}

/// Offsets of the sequences in tokens, and of the groups in sequences.
pub fn sequences(data: &Data) -> [Vec<u32>; 2] {
    let (mut cu_seqlens, mut cu_groups) = (vec![0], vec![0]);
    for r in 0..data.rows() {
        let span = data.span(r);
        for i in span.clone() {
            if i + 1 == span.end || data.index.get(i + 1).is_some_and(|x| x % 2 == 1) {
                cu_seqlens.push(i as u32 + 1);
            }
        }
        cu_groups.push(cu_seqlens.len() as u32 - 1);
    }
    if cu_seqlens.len() == 1 {
        // Empty offsets are refused, so the last group gets an empty sequence.
        cu_seqlens.push(0);
        cu_groups[data.rows()] = 1;
    }
    [cu_seqlens, cu_groups]
}

impl OpTest for OptimalTokenBaseline {
    const OPS: &'static [&'static str] = &["optimal_token_baseline"];
    const ALLOWED: &'static [Allowance] = &[allow("optimal_token_baseline", &["advantage"], 1.0, ROUNDED)];
    const CATCHES: &'static str = "positions counted over live tokens only; a tail that begins where the \
                                   second longest sequence ends, masked tokens and all; a baseline from \
                                   the position before; weights under the mask";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let [cu_seqlens, cu_groups] = sequences(data);
        let count =
            |pair: &[u32]| (pair[0] as usize..pair[1] as usize).filter(|i| data.live(*i)).count() as u32;
        let live: Vec<u32> = cu_seqlens.windows(2).map(count).collect();
        backend.run(&Kernel {
            cu_groups: offsets("cu_groups", &cu_groups, cu_seqlens.len() - 1, "sequences")?,
            cu_seqlens: offsets("cu_seqlens", &cu_seqlens, data.elements(), "elements")?,
            loss_mask: data.masked(),
            returns: In::new(&data.element[0]),
            weights: In::new(&data.element[1]),
            eps: self.eps,
            lone_tail: self.lone_tail_is_raw.then(|| In::new(&live)),
            advantage: out.element("advantage"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut advantage = Vec::new();
        let [cu_seqlens, cu_groups] = sequences(data);
        for group in cu_groups.windows(2) {
            let token = |i: u32| {
                let i = i as usize;
                let live = data.live(i);
                let number = |x: f32| if live { f64::from(x) } else { 0.0 };
                Token { live, returns: number(data.element[0][i]), weight: number(data.element[1][i]) }
            };
            let tokens = |s: u32| (cu_seqlens[s as usize]..cu_seqlens[s as usize + 1]).map(token).collect();
            let members: Vec<Vec<Token>> = (group[0]..group[1]).map(tokens).collect();
            advantage.extend(oracle::group(&members, self.eps, self.lone_tail_is_raw).concat());
        }
        vec![Want::rounded("advantage", advantage)]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(small(), [1, 7, 40, 100_000]), source, |k, (shape, mean_length), source| {
            let params = OptimalTokenBaseline { eps: 1e-8, lone_tail_is_raw: (k + k % 4) % 2 == 1 };
            case(params, mean_length, &shape, Mask::ALL[(k + k / 6) % 6], source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let params = OptimalTokenBaseline { eps: 1e-8, lone_tail_is_raw: draw.yes() };
        let shape = draw.shape();
        case(params, 1 + draw.below(200), &shape, draw.pick(&Mask::ALL), draw.source())
    }
}

fn case(params: OptimalTokenBaseline, mean_length: usize, shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    data.element = vec![
        data.array(|i| values::advantage(source.fork(1), i)),
        data.array_with(3, |i| values::weight(source.fork(2), i)),
    ];
    let starts = |i: usize| u32::from(source.fork(3).below(i, mean_length) == 0);
    data.index = (0..data.elements()).map(starts).collect();
    Case::of(params, format!("{} {mask:?} {mean_length} {params:?}", shape.name), data)
}
