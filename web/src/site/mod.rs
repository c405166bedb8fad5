//! The site: a page for every recipe, an index, and pages that compute. Everything that a page shows of a
//! recipe comes from the recipe and its entry.

mod facts;
mod pages;
mod recipe;

use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// No file is larger; a page that is opened from a disk reads bytes from scripts.
const LARGEST: usize = 2_000_000;
/// Characters of bytes in one script.
const PART: usize = 1_500_000;

/// Files that are the same for every page.
const STATIC: [(&str, &str); 5] = [
    ("style.css", include_str!("../../static/style.css")),
    ("lockstep.js", include_str!("../../static/lockstep.js")),
    ("plots.js", include_str!("../../static/plots.js")),
    ("recipe.js", include_str!("../../static/recipe.js")),
    ("pages.js", include_str!("../../static/pages.js")),
];

/// Bytes that a page reads: compressed, as text, in scripts.
struct Packed {
    bytes: usize,
    scripts: Vec<(String, String)>,
}

impl Packed {
    fn of(name: &str, bytes: &[u8]) -> Result<Packed, Error> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(bytes)?;
        let gzip = gzip.finish()?;
        let text = STANDARD.encode(&gzip);
        let parts = text.as_bytes().chunks(PART).map(String::from_utf8_lossy);
        let script =
            |(part, text)| (format!("{name}{part}.js"), format!("LOCKSTEP.{name}.push({text:?});\n"));
        Ok(Packed { bytes: gzip.len(), scripts: parts.enumerate().map(script).collect() })
    }

    fn names(&self) -> String {
        self.scripts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    }
}

/// Writes the site into `folder`, which it empties first: `launches` are those of the corpus. Returns what
/// was written, in one line.
pub fn write(module: &[u8], launches: &[u8], folder: &Path) -> Result<String, Error> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder.join("recipe"))?;
    let [packed, launches] = [Packed::of("module", module)?, Packed::of("launches", launches)?];
    let mut files: Vec<(String, String)> =
        STATIC.map(|(name, content)| (name.to_owned(), content.to_owned())).into();
    let facts = facts::all()?;
    files.push(("recipes.js".into(), format!("LOCKSTEP.recipes = {};\n", serde_json::to_string(&facts)?)));
    let site = pages::Site { facts: &facts, module: packed.names(), launches: launches.names() };
    for (name, page) in site.pages() {
        files.push((name.into(), page.into_string()));
    }
    for recipe in &facts {
        files.push((format!("recipe/{}.html", recipe.name), recipe::page(&site, recipe).into_string()));
    }
    let compressed = packed.bytes;
    files.extend(packed.scripts.into_iter().chain(launches.scripts));
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
        compressed
    ))
}
