//! `lockstep explain`: describes what a recipe does.

use anyhow::Result;

use crate::rl::recipe;

/// Arguments of `lockstep explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// The recipe: a name (grpo, dapo, sapo, verl, trl, ...) or a TOML file
    #[arg(value_name = "NAME|FILE")]
    pub recipe: String,
    /// Print the recipe as TOML with every choice written out, as a starting point for a custom recipe
    #[arg(long)]
    pub toml: bool,
}

/// Returns what `lockstep explain` prints.
pub fn explain(args: &ExplainArgs) -> Result<String> {
    let recipe = recipe(&args.recipe)?;
    if args.toml { Ok(recipe.to_toml()?) } else { lockstep_catalogue::explain(&recipe) }
}
