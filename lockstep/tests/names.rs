//! Errors about a bad value name the column of the rollouts that holds it.

use lockstep::{Column, Device, Element, Error, Recipe, RolloutsBuf, for_each_column, recipe, synthetic};

/// Writes a bad value to an element, if its type has one.
trait Spoilt {
    fn spoil(&mut self, value: f64);
}

macro_rules! spoilt {
    ($($own:ty: |$to:ident, $value:ident| $write:expr;)*) => {
        $(impl Spoilt for $own {
            fn spoil(&mut self, value: f64) {
                let ($to, $value) = (self, value);
                $write
            }
        })*
    };
}
spoilt! {
    u8: |_to, _value| {};
    u32: |_to, _value| {};
    u64: |_to, _value| {};
    f32: |to, value| *to = value as f32;
    f64: |to, value| *to = value;
}

macro_rules! spoil {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        fn spoil(rollouts: &mut RolloutsBuf, column: Column, index: usize, value: f64) {
            match column { $(Column::$name => rollouts.$name.as_mut().unwrap()[index].spoil(value)),* }
        }
    };
}
for_each_column!(spoil);

/// The recipe's rollouts with `column`, instead of the one that it replaces.
fn rollouts(recipe: &Recipe, column: Column) -> RolloutsBuf {
    let needs = recipe.needs();
    let replaced = needs.iter().find(|need| need.or == Some(column)).map(|need| need.column);
    let required = needs.iter().filter(|need| need.required).map(|need| need.column);
    let columns = required.filter(|other| Some(*other) != replaced).chain([column]);
    let mut rollouts = synthetic::columns(columns, 8, 64, 1).unwrap();
    if column == Column::bootstrap {
        // It is read only where a response was cut off.
        (rollouts.terminated, rollouts.truncated) = (Some(vec![0; 8]), Some(vec![1; 8]));
    }
    rollouts
}

/// Whether the value may be accepted, or refused by another name.
fn excused(name: &str, column: Column, value: f64) -> bool {
    match column {
        // NaN is no score; pass@k needs k of them in a group, and counts every reward above its threshold.
        Column::rewards | Column::reward_components if value.is_nan() || name == "pass_at_k" => true,
        // The sequence is left out: it is right, or its ratio to the sampler is out of bounds.
        Column::logp | Column::logp_old if name == "nsr" => true,
        Column::logp => ["geo_rs", "verl_geo_rs"].contains(&name),
        // The ratio is then 1.
        Column::logp_rollout => value.is_nan() && ["trl_vllm", "trl_vespo"].contains(&name),
        // The last entry compares a response with itself.
        Column::similarity => true,
        _ => false,
    }
}

#[test]
fn errors_name_the_column() {
    let mut wrong = Vec::new();
    for name in recipe::names() {
        let recipe = Recipe::named(name).unwrap();
        let float = |column: &Column| matches!(column.element(), Element::F32 | Element::F64);
        for column in recipe.reads().iter().filter(float) {
            let good = rollouts(&recipe, column);
            let last = good.view().length(column).unwrap() - 1;
            for (value, index) in [f64::NAN, f64::INFINITY].into_iter().flat_map(|x| [(x, 1), (x, last)]) {
                let mut bad = good.clone();
                spoil(&mut bad, column, index, value);
                let said = match recipe.step(&Device::cpu(), &bad.view()) {
                    Err(Error::Argument(error))
                        if (error.argument(), error.index()) == (column.name(), Some(index)) =>
                    {
                        continue;
                    }
                    Err(error) => error.to_string(),
                    Ok(_) => "accepted".into(),
                };
                if !excused(name, column, value) {
                    wrong.push(format!("{name}: {value} in {}[{index}]: {said}", column.name()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_role_above_the_limit_is_refused() {
    let recipe = Recipe::named("spiral").unwrap();
    let mut rollouts = rollouts(&recipe, Column::roles);
    for role in [1 << 16, u32::MAX] {
        rollouts.roles.as_mut().unwrap()[2] = role;
        let error = recipe.advantages(&Device::cpu(), &rollouts.view()).unwrap_err().to_string();
        assert_eq!(error, format!("`roles`[2] is {role}: expected a role below 65536"));
    }
    rollouts.roles.as_mut().unwrap()[2] = (1 << 16) - 1;
    let credit = recipe.advantages(&Device::cpu(), &rollouts.view()).unwrap();
    assert_eq!(credit.state.role_values.len(), 1 << 16);
}
