//! The index and the pages that compute, and what every page has around its content.

use super::facts::Facts;
use maud::{DOCTYPE, Markup, html};
use std::collections::BTreeSet;

/// What every page needs to know of the site.
pub(super) struct Site<'a> {
    pub(super) facts: &'a [Facts],
    /// Scripts that the module is in.
    pub(super) module: String,
    /// Scripts that the launches of the corpus are in.
    pub(super) launches: String,
}

/// Where a page may read from: scripts and styles beside it. There is no address that it may send to.
const POLICY: &str = "default-src 'none'; script-src 'self' file: 'wasm-unsafe-eval'; style-src 'self' file: \
                      'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

const PAGES: [(&str, &str); 5] = [
    ("index.html", "Recipes"),
    ("compare.html", "Compare"),
    ("explore.html", "Explore"),
    ("rollouts.html", "Your rollouts"),
    ("machine.html", "This machine"),
];

impl Site<'_> {
    /// The pages besides those of the recipes.
    pub(super) fn pages(&self) -> [(&'static str, Markup); 5] {
        let contents = [index(self.facts), compare(), explore(), rollouts(self.facts), machine(self.facts)];
        let mut contents = contents.into_iter();
        PAGES.map(|(file, title)| (file, self.page(title, file, "", contents.next().unwrap_or_default())))
    }

    /// A page: `root` leads from it to the site's folder.
    pub(super) fn page(&self, title: &str, file: &str, root: &str, content: Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-root=(root) data-module=(self.module) data-launches=(self.launches) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (title) " · Lockstep" }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href={ (root) "style.css" };
                    @for script in ["lockstep.js", "plots.js", "recipe.js", "pages.js"] {
                        script defer src={ (root) (script) } {}
                    }
                }
                body {
                    a.skip href="#main" { "Skip to content" }
                    header {
                        strong { "Lockstep" }
                        nav aria-label="Pages" {
                            @for (to, name) in PAGES {
                                @let here = (to == file).then_some("page");
                                a href={ (root) (to) } aria-current=[here] { (name) }
                            }
                        }
                    }
                    main #main { (content) }
                    footer { "Computed in this page by the code that trains. The page sends nothing." }
                }
            }
        }
    }
}

/// A list to choose from, whose first entry chooses nothing.
fn choice<'a>(id: &str, label: &str, values: impl Iterator<Item = &'a str>) -> Markup {
    let values: BTreeSet<&str> = values.collect();
    html! {
        label { (label) " "
            select id=(id) {
                option value="" { "any" }
                @for value in values { option { (value) } }
            }
        }
    }
}

fn index(facts: &[Facts]) -> Markup {
    let tags = || facts.iter().map(|recipe| &recipe.tags);
    html! {
        h1 { (facts.len()) " recipes" }
        p { "A recipe names one choice for each stage between log-probabilities and the loss. Each has a page
            with its formulas, its plots and what to copy; tick up to four to compare them." }
        form #filters role="search" {
            label { "Search " input #search type="search" placeholder="name, paper" autocomplete="off"; }
            (choice("gate", "Gate", tags().map(|tags| &tags.gate[..])))
            (choice("level", "Ratio of", tags().map(|tags| &tags.level[..])))
            (choice("framework", "Preset of", tags().filter_map(|tags| tags.framework)))
            @for (id, label) in [
                ("off_policy", "off-policy"),
                ("moe", "for mixtures of experts"),
                ("critic", "critic"),
            ] {
                label { input id=(id) type="checkbox"; " " (label) }
            }
            button #compare type="button" disabled { "Compare" }
            output #found for="search" {}
        }
        ul #recipes {
            @for recipe in facts {
                @let tags = &recipe.tags;
                li data-name=(recipe.name) data-gate=(tags.gate) data-level=(tags.level)
                    data-framework=[tags.framework] data-off_policy[tags.off_policy] data-moe[tags.moe]
                    data-critic[tags.critic] {
                    label { input type="checkbox" aria-label={ "compare " (recipe.name) }; }
                    a href={ "recipe/" (recipe.name) ".html" } { (recipe.name) }
                    span.what { (prose(&recipe.what[0])) }
                    span.source { (recipe.source) }
                }
            }
        }
    }
}

fn compare() -> Markup {
    html! {
        h1 { "Compare" }
        p { "Up to four recipes side by side. Rows in which they differ are marked." }
        form #chosen aria-label="Recipes to compare" {}
        p.error #error role="alert" {}
        div #curves.plots {}
        div.wide tabindex="0" { table #table {} }
    }
}

fn explore() -> Markup {
    html! {
        h1 { "Explore" }
        section {
            h2 { "A prefix tree and its values" }
            p { "Responses to one prompt, a reward and a text on each line; every character is a token. A
                node's value is the mean reward of the responses that share it, and TEMPO credits a token with
                the change of value." }
            div.split {
                label { "Reward and response"
                    textarea #responses rows="6" spellcheck="false" { "1 2+2=4\n0 2+2=5\n0 2+3=5\n1 4=2+2\n" }
                }
                figure #tree {}
            }
            p.error #tree-error role="alert" {}
        }
        section {
            h2 { "Routing replay" }
            p { "Twelve tokens, eight experts. The trainer's scores differ from the engine's by noise; replay
                gives the trainer the engine's experts, with gates from its own scores. Outlined: an expert
                that the engine did not choose." }
            form #router-settings {
                label {
                    "Noise "
                    input #noise type="range" min="0" max="2" step="0.05" value="0.5";
                    output for="noise" {}
                }
                label {
                    "Experts of a token "
                    input #top_k type="range" min="1" max="4" step="1" value="2";
                    output for="top_k" {}
                }
            }
            p.error #router-error role="alert" {}
            div #router.plots {}
        }
    }
}

fn rollouts(facts: &[Facts]) -> Markup {
    html! {
        h1 { "Your rollouts" }
        p { "A safetensors file of columns, as "
            code { "lockstep rollouts --like dapo -o rollouts.safetensors" }
            " writes it. It is read in this page and goes nowhere else." }
        form #drop {
            label { "Recipe "
                select #recipe {
                    @for recipe in facts { option selected[recipe.name == "dapo"] { (recipe.name) } }
                }
            }
            label.file { "Choose a file, or drop one here " input #file type="file" accept=".safetensors"; }
        }
        p.error #error role="alert" {}
        div #scored {}
    }
}

fn machine(facts: &[Facts]) -> Markup {
    html! {
        h1 { "This machine" }
        p { "The same bits on every machine: also in this browser. The corpus runs every op and scalar
            function on fixed inputs; the recipes' digest covers both calls of all " (facts.len())
            " recipes on six or seven batches each." }
        button #compute type="button" { "Compute both digests" }
        table #digests {
            tr { th scope="col" { "digest" } th scope="col" { "computed here" } th scope="col" { "published" }
                th scope="col" { "result" } }
        }
        p.error #error role="alert" {}
        p { "Natively: " code { "lockstep verify" } " and " code { ".ci/run embedded" } "." }
    }
}

/// Text that a button copies.
pub(super) fn copied(id: &str, title: &str, text: &str) -> Markup {
    html! {
        section.copied {
            h3 { (title) }
            button type="button" data-copies=(id) aria-label={ "Copy " (title) } { "Copy" }
            pre id=(id) tabindex="0" { code { (text) } }
        }
    }
}

/// Text in which `code` is marked with backticks.
pub(super) fn prose(text: &str) -> Markup {
    html! {
        @for (i, part) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
