//! Fuzzes rollout files: an accepted file is a batch that survives a round trip, and the two calls accept it
//! or refuse it with an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::{Column, Recipe, RolloutsBuf};
use lockstep_fuzz::devices;

fuzz_target!(|bytes: &[u8]| {
    let (rollouts, unknown) = match RolloutsBuf::from_safetensors(bytes, true) {
        Ok(read) => read,
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.contains("safetensors")
                    || Column::ALL.iter().any(|column| message.contains(column.name())),
                "{message}"
            );
            return;
        }
    };
    assert_eq!(RolloutsBuf::from_safetensors(bytes, false).is_ok(), unknown.is_empty());
    let short = RolloutsBuf::from_safetensors(&bytes[..bytes.len() - 1], true);
    assert!(short.is_err(), "a truncated file was accepted");
    let batch = rollouts.batch().expect("a batch, or reading should have failed");
    let tokens = batch.tokens();
    assert!(tokens > 0 && batch.sequences() > 0);
    rollouts.view().check().expect("every column has its length");

    // Not `==`, because NaN must be preserved too.
    let written = rollouts.to_safetensors().expect("what was read can be written");
    let (again, _) = RolloutsBuf::from_safetensors(&written, false).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(written, again.to_safetensors().expect("twice"));

    let groups: Vec<usize> = (0..batch.groups()).rev().collect();
    let (part, places) = rollouts.view().select(&groups).expect("all groups are there");
    assert_eq!(places.len(), tokens);
    part.view().check().expect("whole groups are a batch");

    // As `lockstep score` uses it: a result or an error, but no panic.
    let device = &devices()[devices().len() - 1];
    for name in ["verl", "areal", "ui_s1", "mars", "gdpo", "evol_rl"] {
        let recipe = Recipe::named(name).expect("a known name");
        if let Ok((_, loss)) = recipe.step(device, &rollouts.view()) {
            assert!(
                loss.loss.is_some_and(f64::is_finite) && loss.coef.iter().all(|x| x.is_finite()),
                "{name}"
            );
        }
    }
});
