//! `role_baseline`.

use super::prelude::*;
use crate::oracle::role_baseline as oracle;
use lockstep_core::advantage::{Order, RoleBaseline as Kernel};

/// Arguments of `role_baseline`; the array per row is the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoleBaseline {
    pub decay: f64,
    pub order: Order,
}

const ORDERS: [Order; 2] = [Order::SubtractThenUpdate, Order::UpdateThenSubtract];

const OTHER_ORDER: &str =
    "binary64 maps joined in another order: a few roundings of 2^-53, 2^-29 of a unit each";

impl OpTest for RoleBaseline {
    const OPS: &'static [&'static str] = &["role_baseline"];
    const ALLOWED: &'static [Allowance] = &[
        allow("role_baseline", &["advantage"], 1.0, ROUNDED),
        allow("role_baseline", &["state_out"], 1e-7, OTHER_ORDER),
    ];
    const CATCHES: &'static str = "a reward in its own baseline; a state that an empty role loses; a game \
                                   without a score that decays it";

    fn run(&self, backend: &dyn Backend, data: &Data, out: &mut Outputs<'_>) -> Result<(), String> {
        let state: Vec<f64> = data.row[0].iter().map(|x| f64::from(*x)).collect();
        backend.run(&Kernel {
            cu_roles: data.packed()?,
            rewards: In::new(&data.element[0]),
            valid: data.masked(),
            decay: self.decay,
            order: self.order,
            state: In::new(&state),
            advantage: out.element("advantage"),
            state_out: out.row("state_out"),
        })
    }

    fn expect(&self, data: &Data) -> Vec<Want> {
        let (mut advantage, mut state) = (Vec::new(), Want::new("state_out"));
        for r in 0..data.rows() {
            let reward = |i: usize| data.scored(i).then_some(f64::from(data.element[0][i]));
            let games: Vec<Option<f64>> = data.span(r).map(reward).collect();
            let first = self.order == Order::SubtractThenUpdate;
            let (values, last) = oracle::role(&games, self.decay, data.row[0][r].into(), first);
            advantage.extend(values);
            state.push(last.0, last.1);
        }
        vec![Want::rounded("advantage", advantage), state]
    }

    fn corpus(source: Source) -> Vec<Case> {
        numbered(pairs(ORDERS, [0.95, 0.5, 1.0, 0.0]), source, |_, (order, decay), source| {
            case(RoleBaseline { decay, order }, &rewards::sizes(), decay != 0.5, source)
        })
    }

    fn random(_op: &str, draw: &mut Draw) -> Case {
        let decay = if draw.yes() { 0.95 } else { f64::from(draw.unit()) };
        let params = RoleBaseline { decay, order: draw.pick(&ORDERS) };
        case(params, &draw.lengths(), draw.yes(), draw.source())
    }
}

fn case(params: RoleBaseline, sizes: &[u32], valid: bool, source: Source) -> Case {
    let mut data = rewards::groups(sizes, valid, source.fork(1));
    data.row = vec![data.per_row(|r| source.fork(2).signed(r))];
    Case::of(params, format!("{params:?}, {} roles, valid {valid}", sizes.len()), data)
}
