//! The calls of a recipe in Rust and Python, to copy. Both are made from the columns that the recipe reads.

use lockstep::{Call, Column, Recipe};

/// The required columns of a call, without the offsets.
fn columns(recipe: &Recipe, call: Option<Call>) -> Vec<Column> {
    let mut columns = Vec::new();
    for need in recipe.needs() {
        let offsets = [Column::cu_seqlens, Column::cu_groups].contains(&need.column);
        let asked = need.required && !offsets && call.is_none_or(|call| need.call == call);
        if asked && !columns.contains(&need.column) {
            columns.push(need.column);
        }
    }
    columns
}

/// The calls in Rust, with the named recipe, or with a changed one's TOML from a file.
pub fn rust(recipe: &Recipe, changed: bool) -> String {
    let fields: String =
        columns(recipe, None).iter().map(|column| format!("    {0}: Some(&{0}),\n", column.name())).collect();
    let opened = match changed {
        false => format!("Recipe::named({:?})?", recipe.name),
        true => "Recipe::from_toml(include_str!(\"recipe.toml\"))?".to_owned(),
    };
    format!(
        "use lockstep::{{Device, Recipe, Rollouts}};\n\n\
         let rollouts = Rollouts {{\n{fields}    ..Rollouts::new(&cu_seqlens, &cu_groups)\n}};\n\
         let (device, recipe) = (Device::cpu(), {opened});\n\
         let credit = recipe.advantages(&device, &rollouts)?;      // once for each batch\n\
         let loss = recipe.loss(&device, &rollouts, &credit)?;     // for each update: its coef is dL/dlogp\n"
    )
}

/// The calls in Python, with the named recipe, or with a changed one's TOML from a file.
pub fn python(recipe: &Recipe, changed: bool) -> String {
    let arguments = |call| {
        let names = columns(recipe, Some(call)).into_iter().map(Column::name);
        ["cu_seqlens", "cu_groups"].into_iter().chain(names).map(|name| format!(", {name}={name}")).collect()
    };
    let (first, second): (String, String) = (arguments(Call::Advantages), arguments(Call::Loss));
    let (opened, recipe) = match changed {
        false => ("", format!("{:?}", recipe.name)),
        true => (
            "with open(\"recipe.toml\") as file:\n    recipe = lockstep.Recipe(file.read())\n\n",
            "recipe".to_owned(),
        ),
    };
    format!(
        "import lockstep\n\n{opened}\
         # once for each batch\n\
         credit = lockstep.advantages({recipe}{first})\n\
         # for each update: loss.coef is dL/dlogp\n\
         loss = lockstep.loss({recipe}, credit{second})\n"
    )
}

/// Runs the text of one page as a doctest; the others differ in name and columns alone.
#[cfg(doctest)]
#[doc = "```"]
#[doc = "# use lockstep::{Recipe as R, RolloutsBuf, synthetic};"]
#[doc = "# let RolloutsBuf {"]
#[doc = "#     cu_seqlens: Some(cu_seqlens), cu_groups: Some(cu_groups), token_rewards: Some(token_rewards),"]
#[doc = "#     logp: Some(logp), logp_old: Some(logp_old), entropy: Some(entropy), values: Some(values),"]
#[doc = "#     values_old: Some(values_old), .."]
#[doc = "# } = synthetic::rollouts(&R::named(\"ppo_critic\")?, 8, 64, 1)? else { panic!(\"columns\") };"]
#[doc = include_str!("ppo_critic.txt")]
#[doc = "# assert!(loss.coef.len() == 64 && credit.per_token);"]
#[doc = "# Ok::<(), lockstep::Error>(())"]
#[doc = "```"]
mod text {}
