//! The site: a page for every recipe, an index, and pages that compute. Everything that a page shows of a
//! recipe comes from the recipe and its entry.

mod facts;
mod pages;
mod recipe;
mod snippet;

use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;
use std::path::Path;

pub use snippet::{python, rust};

/// No file is larger; a page that is opened from a disk reads its module from scripts.
const LARGEST: usize = 2_000_000;
/// Characters of the module in one script.
const PART: usize = 1_500_000;

/// Files that are the same for every page.
const STATIC: [(&str, &str); 5] = [
    ("style.css", include_str!("../../static/style.css")),
    ("lockstep.js", include_str!("../../static/lockstep.js")),
    ("plots.js", include_str!("../../static/plots.js")),
    ("recipe.js", include_str!("../../static/recipe.js")),
    ("pages.js", include_str!("../../static/pages.js")),
];

/// Writes the site into `folder`, which it empties first. Returns what was written, in one line.
pub fn write(module: &[u8], folder: &Path) -> Result<String, Error> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("recipe"))?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(module)?;
    let gzip = gzip.finish()?;
    let text = STANDARD.encode(&gzip);
    let parts = text.len().div_ceil(PART);

    let mut files: Vec<(String, String)> =
        STATIC.map(|(name, content)| (name.to_owned(), content.to_owned())).into();
    for part in 0..parts {
        let of_part = &text[part * PART..text.len().min((part + 1) * PART)];
        files.push((format!("module{part}.js"), format!("LOCKSTEP.module.push({of_part:?});\n")));
    }
    let facts = facts::all()?;
    files.push(("recipes.js".into(), format!("LOCKSTEP.recipes = {};\n", serde_json::to_string(&facts)?)));
    let site = pages::Site { facts: &facts, parts };
    for (name, page) in site.pages() {
        files.push((name.into(), page.into_string()));
    }
    for recipe in &facts {
        files.push((format!("recipe/{}.html", recipe.name), recipe::page(&site, recipe).into_string()));
    }
    for (name, content) in &files {
        if content.len() > LARGEST {
            return Err(format!("{name} has {} bytes: at most {LARGEST}", content.len()).into());
        }
        fs::write(folder.join(name), content)?;
    }
    let (pages, total) = (facts.len(), files.iter().map(|(_, content)| content.len()).sum::<usize>());
    Ok(format!(
        "{pages} recipes, {} files of {total} bytes in {}; the module: {} bytes, {} compressed",
        files.len(),
        folder.display(),
        module.len(),
        gzip.len()
    ))
}
