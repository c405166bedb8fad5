//! `entropy_bonus`.

use super::prelude::*;
use crate::oracle::entropy_bonus as oracle;
use lockstep_core::advantage::EntropyBonus as Kernel;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EntropyBonus {
    pub per_token: bool,
    /// Whether the full distribution's entropy is used.
    pub full: bool,
    pub alpha: f32,
    pub kappa: f32,
}

const REASON: &str = "exp within 1 ULP (two units), two products or one quotient, one sum";

impl OpTest for EntropyBonus {
    const OPS: &'static [&'static str] = &["entropy_bonus"];
    const ALLOWED: &'static [Allowance] = &[allow("entropy_bonus", &["shaped"], 4.0, REASON)];
    const CATCHES: &'static str =
        "a bonus that turns the sign of an advantage; -0·log 0; a sequence's advantage on another's tokens";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        backend.run(&Kernel {
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
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        vec![Want::live("shaped", data, |r, i| {
            let a = f64::from(if self.per_token { data.element[0][i] } else { data.row[0][r] });
            let source = f64::from(data.element[1][i]);
            let entropy = if self.full { source } else { oracle::sampled(source) };
            let bonus = oracle::bonus(a, entropy, self.alpha.into(), self.kappa.into());
            (a + bonus, a.abs() + bonus.abs())
        })]
    }

    fn corpus(source: Source) -> Vec<Case> {
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        numbered(pairs(small(), flags), source, |k, (shape, (full, per_token)), source| {
            let (alpha, kappa) = ([0.4, 2.0, 0.0][k % 3], [2.0, 0.5][k % 2]);
            case(EntropyBonus { per_token, full, alpha, kappa }, &shape, Mask::ALL[k % 6], source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let (alpha, kappa) = (2.0 * draw.unit(), 0.1 + 4.0 * draw.unit());
        let params = EntropyBonus { per_token: draw.yes(), full: draw.yes(), alpha, kappa };
        case(params, &draw.shape(), draw.pick(&Mask::ALL), draw.source())
    }

    fn fault_slots(&self) -> Vec<Fault> {
        let source = (1, if self.full { NO_WEIGHT } else { NO_LOGP });
        if self.per_token { vec![(0, NOT_FINITE), source] } else { vec![source] }
    }
}

fn case(params: EntropyBonus, shape: &Shape, mask: Mask, source: Source) -> Case {
    let mut data = Data::new(shape, mask, source.fork(0));
    let base = |i: usize| Range::Realistic.base(source.fork(1), i);
    let entropy = |i: usize| if params.full { -base(i) } else { base(i) };
    data.element = vec![data.array(|i| values::advantage(source.fork(2), i)), data.array_with(3, entropy)];
    data.row = vec![data.per_row(|r| values::advantage(source.fork(3), r))];
    Case::of(params, format!("{params:?} {} {mask:?}", shape.name), data)
}
