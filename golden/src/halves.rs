//! The part of a recipe that a case tests: the choices that one of its two calls reads.

use crate::outcome::Calls;
use lockstep::Recipe;
use lockstep::recipe::{CorrectionChoice, GroupStatistics};
use serde_json::{Value, json};

/// Those choices regardless of their numbers, without what is only measured.
pub(crate) fn half(recipe: &Recipe, calls: Calls) -> String {
    let Recipe { reward, advantage, ratio, gate, mask, kl, correction, aggregation, entropy, value, .. } =
        recipe;
    // The rewards that count in a group are no part of the loss.
    let same = |choice: &CorrectionChoice| {
        let group_statistics = GroupStatistics::default();
        CorrectionChoice { group_statistics, ..choice.clone() }
    };
    let correction = correction.as_ref().map(same);
    let mut choices = match calls {
        Calls::Advantages => json!([reward, advantage]),
        Calls::Loss => json!([ratio, gate, mask, kl, correction, aggregation, entropy, value]),
    };
    forget_numbers(&mut choices);
    choices.to_string()
}

fn forget_numbers(value: &mut Value) {
    match value {
        Value::Number(_) => *value = Value::from(0),
        Value::Array(values) => values.iter_mut().for_each(forget_numbers),
        Value::Object(values) => values.values_mut().for_each(forget_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
