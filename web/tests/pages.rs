//! The site's files: a page for every recipe, and what it gives to copy.

use lockstep::{Column, Recipe, recipe};
use lockstep_web::{site, snippet};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

type Tested = Result<(), Box<dyn std::error::Error>>;

#[test]
fn every_recipe_has_its_page() -> Tested {
    let folder = tempfile::tempdir()?;
    site::write(b"module", b"launches", folder.path())?;
    let index = fs::read_to_string(folder.path().join("index.html"))?;
    assert!(recipe::names().len() > 100);
    for name in recipe::names() {
        let page = fs::read_to_string(folder.path().join(format!("recipe/{name}.html")))?;
        let recipe = Recipe::named(name)?;
        assert!(index.contains(&format!("href=\"recipe/{name}.html\"")), "{name} is not in the index");
        for need in recipe.needs() {
            assert!(page.contains(need.column.name()), "{name}: {} is missing", need.column.name());
        }
        for duty in recipe.duties() {
            assert!(page.contains(duty.name()), "{name}: {} is missing", duty.name());
        }
    }
    Ok(())
}

/// A doctest of `snippet.rs` compiles and runs the text of one page; the others differ in name and
/// columns alone.
#[test]
fn the_rust_text_that_runs_is_the_page() -> Tested {
    let text = include_str!("../src/ppo_critic.txt");
    assert_eq!(
        snippet::rust(&Recipe::named("ppo_critic")?, false),
        text,
        "src/ppo_critic.txt is out of date"
    );
    Ok(())
}

#[test]
fn every_field_of_the_rust_text_is_a_column() -> Tested {
    for name in recipe::names() {
        let text = snippet::rust(&Recipe::named(name)?, false);
        let fields = text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": Some(&"));
        let columns: Vec<_> = fields.map(|(field, _)| Column::named(field)).collect();
        assert!(!columns.is_empty() && columns.iter().all(Option::is_some), "{text}");
    }
    Ok(())
}

/// Python compiles every recipe's text.
#[test]
fn python_compiles() -> Tested {
    let mut texts = Vec::new();
    for name in recipe::names() {
        let recipe = Recipe::named(name)?;
        texts.extend([false, true].map(|changed| snippet::python(&recipe, changed)));
    }
    let program = "import json, sys\nfor text in json.load(sys.stdin): compile(text, 'page', 'exec')";
    let mut running = Command::new("python3").args(["-c", program]).stdin(Stdio::piped()).spawn()?;
    let json = serde_json::to_vec(&texts)?;
    running.stdin.take().ok_or("no stdin")?.write_all(&json)?;
    assert!(running.wait()?.success());
    Ok(())
}
