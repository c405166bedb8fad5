//! The page of a recipe.

use super::facts::{Facts, papers};
use super::pages::{Site, copied, prose};
use crate::snippet;
use maud::{Markup, html};

/// The page.
pub(super) fn page(site: &Site<'_>, recipe: &Facts) -> Markup {
    site.page(&recipe.name, "", "../", content(recipe))
}

fn content(recipe: &Facts) -> Markup {
    let Facts { name, what, stages, needs, duties, .. } = recipe;
    html! {
        article data-recipe=(name) {
            h1 { (name) }
            @for sentence in what { (prose(sentence)) " " }
            (origin(recipe))
            h2 { "How it behaves" }
            p.error #error role="alert" {}
            p.error #group-error role="alert" {}
            details #settings open {
                summary { "Numbers" }
                form #sliders aria-label="Numbers of the recipe" {}
            }
            div.plots {
                figure #loss {}
                figure #coef {}
                figure #group {}
                figure #drift {}
                figure #correction {}
            }
            h2 { "Stages" }
            div.wide tabindex="0" { table.stages {
                tr { th scope="col" { "stage" } th scope="col" { "choices" } th scope="col" { "formula" } }
                @for stage in stages {
                    tr {
                        th scope="row" { (stage.name) }
                        td { (stage.settings) }
                        td { @for formula in &stage.formulas { div.formula { (prose(formula)) } } }
                    }
                }
            } }
            h2 { "Needs" }
            div.wide tabindex="0" { table {
                tr { th scope="col" { "call" } th scope="col" { "column" } th scope="col" { "shape" }
                    th scope="col" { "for" } th scope="col" { "what it is" } }
                @for need in needs {
                    tr {
                        td { (need.call) }
                        td { code { (need.column) } @if !need.required { " (optional)" } }
                        td { (need.shape) }
                        td { (need.stage) }
                        td { (prose(need.meaning)) }
                    }
                }
            } }
            h2 { "Duties of the training loop" }
            @if duties.is_empty() { p { "None." } }
            dl { @for [duty, meaning] in duties { dt { code { (duty) } } dd { (prose(meaning)) } } }
            h2 { "To copy" }
            (copied("toml", "TOML", &recipe.recipe.to_toml().unwrap_or_default()))
            (copied("python", "Python", &snippet::python(&recipe.recipe, false)))
            (copied("rust", "Rust", &snippet::rust(&recipe.recipe, false)))
            h2 { "Bits" }
            p { "Both calls on the conformance batches, when this page was written:" }
            p { code.digest #published { (recipe.digest) } }
            p { button #compute type="button" { "Compute here" } " " output #computed for="compute" {} }
        }
    }
}

/// Where it comes from, and how far it can be trusted.
fn origin(recipe: &Facts) -> Markup {
    html! {
        dl.origin {
            dt { "Source" }
            dd { @for (i, (word, link)) in papers(&recipe.source).into_iter().enumerate() {
                @if i > 0 { ", " }
                @match link {
                    Some(link) => { a href=(link) rel="noreferrer" { "arXiv " (word) } }
                    None => { (word) }
                }
            } }
            dt { "Our confidence" }
            dd { (recipe.confidence) }
            dt { "Golden evidence" }
            dd { (recipe.evidence) }
            @if let Some(base) = &recipe.extends {
                dt { "Extends" }
                dd { a href={ (base) ".html" } { (base) } ", "
                    a href={ "../compare.html#" (base) "," (recipe.name) } { "compare" } }
            }
        }
    }
}
