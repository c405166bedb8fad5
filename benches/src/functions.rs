//! Functions that consist of several launches.

use crate::Inputs;
use crate::ops::{Bench, bits};
use lockstep::Batch;
use lockstep::core::kl::{Kl, KlFormula};
use lockstep::core::tree::NONE;
use lockstep::ops::advantage::GroupParams;
use lockstep::ops::optimal_token_baseline::Score;
use lockstep::ops::tree::{ExplicitTree, StepParams, step_values};
use lockstep::ops::turns::{NormSet, RoleNorm, Turns, normalize_roles, turn_return};
use lockstep::ops::vcpo::{SequenceScore, VcpoWeights, vcpo_weights};
use lockstep::ops::whiten::WhitenParams;
use lockstep::ops::{gdpo, kl_in_reward};

/// Turns per sequence, and steps per tree.
const TURNS: usize = 8;

/// Total number of turns, and of steps, over all sequences.
pub(crate) fn turns(inputs: &Inputs) -> usize {
    inputs.rewards.len() * TURNS
}

pub(crate) fn benches<'a>(inputs: &'a Inputs, batch: Batch<'a>) -> Vec<Bench<'a>> {
    let (turns, sequences) = (turns(inputs), inputs.rewards.len());
    let [per_turn, per_sequence] = [turns, sequences].map(|count| count as f64 / inputs.tokens() as f64);
    let begin = |k: usize| {
        let [first, last] = [0, 1].map(|next| inputs.cu_seqlens[(k / TURNS + next).min(sequences)] as usize);
        (first + (last - first) * (k % TURNS) / TURNS) as u32
    };
    let cu_turns: Vec<u32> = (0..=turns).map(begin).collect();
    let rewards: Vec<f32> = (0..turns).map(|k| inputs.rewards[k / TURNS] * (k % TURNS) as f32).collect();
    let roles: Vec<u32> = (0..turns as u32).map(|k| k % 3).collect();
    let (values, of_roles) = (rewards.clone(), roles.clone());
    let components = [&inputs.rewards[..], &inputs.advantage].concat();
    let norm: Vec<f32> = inputs.logp_old.iter().map(|x| -x).collect();
    // One tree per sequence, in which every node has two children.
    let parent: Vec<u32> = (0..turns)
        .map(|k| match k % TURNS {
            0 => NONE,
            node => (k - node + (node - 1) / 2) as u32,
        })
        .collect();
    let outcome: Vec<f32> =
        (0..turns).map(|k| if k % TURNS < TURNS / 2 { f32::NAN } else { (k % 3) as f32 }).collect();
    vec![
        Bench::new("gdpo", 12.0 * per_sequence, move |device| {
            let group = GroupParams::grpo(true, 1, 1e-4);
            Ok(bits(&gdpo(device, &batch, &components, &[1.0, 0.5], &group, &WhitenParams::TRL)?))
        }),
        Bench::new("vcpo_weights", 13.0, move |device| {
            let policies = [&inputs.logp[..], &inputs.logp_old];
            let score = SequenceScore::Tokens(Score::Norm(&norm));
            // Without a bound, a ratio over thousands of tokens overflows.
            let params = VcpoWeights { most: Some(8.0), ..VcpoWeights::default() };
            Ok(bits(&vcpo_weights(device, &batch, policies, score, &params)?))
        }),
        Bench::new("turn_return", 12.0 * per_turn, move |device| {
            let turns = Turns { cu_turns: &cu_turns, rewards: &rewards, roles: &roles };
            Ok(bits(&turn_return(device, &batch, &turns, 0.9)?))
        }),
        Bench::new("normalize_roles", 12.0 * per_turn, move |device| {
            let norm = RoleNorm { set: NormSet::Samples, by_std: true, eps: 1e-6 };
            Ok(bits(&normalize_roles(device, &values, &of_roles, &norm)?))
        }),
        Bench::new("kl_in_reward", 17.0, move |device| {
            let Inputs { logp, logp_old, logp_ref, .. } = inputs;
            let k1 = Kl::new(KlFormula::K1);
            Ok(bits(&kl_in_reward(device, &batch, logp, logp_old, logp_ref, &k1, 0.01)?))
        }),
        Bench::new("step_values", 24.0 * per_turn, move |device| {
            let tree = ExplicitTree { parent: &parent, outcome: &outcome, weights: None };
            Ok(bits(&step_values(device, &tree, &StepParams::default())?.advantage))
        }),
    ]
}
