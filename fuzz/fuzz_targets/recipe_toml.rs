//! Fuzzes TOML recipes: an accepted recipe is in its domain and survives a round trip; a refusal says why.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::Recipe;

fuzz_target!(|text: &str| match Recipe::from_toml(text) {
    Ok(recipe) => {
        recipe.check().expect("what was read passes its own check");
        let written = recipe.to_toml().expect("what was read can be written");
        let again = Recipe::from_toml(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
        assert_eq!(recipe, again, "{written}");
        assert_eq!(written, again.to_toml().expect("twice"));
    }
    Err(error) => {
        let message = error.to_string();
        // Either `recipe: ` followed by something, or the argument of a gate.
        assert!(message.trim_end().len() > "recipe: ".len(), "{message:?}");
    }
});
