//! `entropy_bonus`.

use super::prelude::*;
use crate::cases::values::Range;
use crate::oracle::entropy_bonus as oracle;
use lockstep_core::advantage::EntropyBonus as Kernel;

/// Arguments of `entropy_bonus`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntropyBonus {
    /// Whether there is one advantage per token.
    pub per_token: bool,
    /// Whether the full distribution's entropy is used.
    pub full: bool,
    /// α.
    pub alpha: f32,
    /// κ.
    pub kappa: f32,
}

impl OpTest for EntropyBonus {
    const OPS: &'static [&'static str] = &["entropy_bonus"];
    const ALLOWED: &'static [Allowance] = &[Allowance {
        op: "entropy_bonus",
        output: "shaped",
        units: 4.0,
        reason: "exp within 1 ULP (two units), two products or one quotient, one sum",
    }];

    fn op(&self) -> &'static str {
        "entropy_bonus"
    }

    fn run<B: Backend>(&self, backend: &B, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let kernel = Kernel {
            cu_seqlens: data.packed()?,
            loss_mask: data.masked(),
            advantage: In::new(if self.per_token { &data.element[0] } else { &data.row[0] }),
            per_token: self.per_token,
            source: In::new(&data.element[1]),
            full: self.full,
            alpha: self.alpha,
            kappa: self.kappa,
            shaped: out.element("shaped"),
            row_alarm: out.alarm(),
        };
        kernel.check().map_err(|e| e.to_string())?;
        backend.run(&kernel)
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let mut want = Want::new("shaped");
        for r in 0..data.rows() {
            for i in data.span(r) {
                if !data.live(i) {
                    want.push(0.0, 0.0);
                    continue;
                }
                let a = f64::from(if self.per_token { data.element[0][i] } else { data.row[0][r] });
                let source = f64::from(data.element[1][i]);
                let entropy = if self.full { source } else { oracle::sampled(source) };
                let bonus = oracle::bonus(a, entropy, self.alpha.into(), self.kappa.into());
                want.push(a + bonus, a.abs() + bonus.abs());
            }
        }
        vec![want]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let mut cases = Vec::new();
        for shape in small() {
            for full in [false, true] {
                for per_token in [false, true] {
                    let k = cases.len();
                    let alpha = [0.4, 2.0, 0.0][k % 3];
                    let params = EntropyBonus { per_token, full, alpha, kappa: [2.0, 0.5][k % 2] };
                    cases.push(case(params, &shape, Mask::ALL[k % 6], source.fork(k as u64)));
                }
            }
        }
        cases
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (alpha, kappa) = (2.0 * draw.unit(), 0.1 + 4.0 * draw.unit());
        let params = EntropyBonus { per_token: draw.yes(), full: draw.yes(), alpha, kappa };
        let shape = Shape { name: "random", catches: "whatever nobody thought of", lengths: draw.lengths() };
        case(params, &shape, draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<(usize, &'static [f32])> {
        let source: &[f32] =
            if self.full { &[f32::NAN, f32::INFINITY, -1.0] } else { &[f32::NAN, f32::NEG_INFINITY, 0.5] };
        let advantage: &[f32] = &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        if self.per_token { vec![(0, advantage), (1, source)] } else { vec![(1, source)] }
    }
}

fn case(params: EntropyBonus, shape: &Shape, mask: Mask, source: Source) -> Case {
    let offsets = shape.offsets();
    let bytes = mask.bytes(&offsets, source.fork(0));
    let n = offsets[offsets.len() - 1] as usize;
    let live = |i: usize| bytes.as_ref().is_none_or(|bytes| bytes[i] != 0);
    let base = |i: usize| Range::Realistic.base(source.fork(1), i);
    let entropy = |i: usize| if params.full { -base(i) } else { base(i) };
    let element = vec![
        (0..n).map(|i| if live(i) { values::advantage(source.fork(2), i) } else { garbage(i) }).collect(),
        (0..n).map(|i| if live(i) { entropy(i) } else { garbage(i + 3) }).collect(),
    ];
    let row = vec![(0..shape.lengths.len()).map(|r| values::advantage(source.fork(3), r)).collect()];
    Case {
        label: format!("{params:?} {} {mask:?}", shape.name),
        catches: "a bonus that turns the sign of an advantage; -0·log 0; a sequence's advantage on another's \
                  tokens",
        params: params.into(),
        data: Data { offsets, mask: bytes, element, row, ..Data::default() },
    }
}
