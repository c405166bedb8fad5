//! Rollout files: what is accepted is a batch that survives being written and that ops take or refuse in order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::{Advantage, PolicyInput, Recipe};
use lockstep_fuzz::devices;
use lockstep_trainer::rollouts::Rollouts;

/// The tensors that a rollout file may have.
const TENSORS: [&str; 9] = [
    "cu_seqlens",
    "cu_groups",
    "loss_mask",
    "rewards",
    "logp",
    "logp_old",
    "logp_ref",
    "logp_rollout",
    "tokens",
];

fuzz_target!(|bytes: &[u8]| {
    let rollouts = match Rollouts::from_bytes(bytes) {
        Ok(rollouts) => rollouts,
        Err(error) => {
            let message = format!("{error:#}");
            assert!(
                message.contains("safetensors") || TENSORS.iter().any(|name| message.contains(name)),
                "{message}"
            );
            return;
        }
    };
    assert!(Rollouts::from_bytes(&bytes[..bytes.len() - 1]).is_err(), "a truncated file was accepted");
    let batch = rollouts.batch().expect("a batch, or reading should have failed");
    let (tokens, sequences) = (batch.tokens(), batch.sequences());
    assert!(tokens > 0 && sequences > 0);
    assert_eq!(
        (rollouts.logp.len(), rollouts.logp_old.len(), rollouts.rewards.len()),
        (tokens, tokens, sequences)
    );

    // Not `==`: a NaN is kept too.
    let written = rollouts.to_bytes().expect("what was read can be written");
    let again = Rollouts::from_bytes(&written).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(written, again.to_bytes().expect("twice"));

    let groups: Vec<usize> = (0..batch.groups()).rev().collect();
    let (part, places) = rollouts.select(&groups);
    assert_eq!(places.len(), tokens);
    part.batch().expect("whole groups are a batch");

    // What `lockstep score` does with it: a result or an error, no panic.
    let device = &devices()[devices().len() - 1];
    let recipe = Recipe::named("verl").expect("verl");
    let Ok(advantages) = recipe.advantages(device, &batch, &rollouts.rewards) else { return };
    let advantage = Advantage::PerSequence(&advantages.advantage);
    let input = PolicyInput::new(&rollouts.logp, &rollouts.logp_old, advantage);
    if let Ok(out) = recipe.policy_loss(device, &batch, &input) {
        assert!(out.loss.is_some_and(f64::is_finite) && out.coef.iter().all(|x| x.is_finite()));
    }
});
