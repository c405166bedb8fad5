//! `cargo xtask links`: what a text of the repository points to is in the repository.
//!
//! In Markdown: every relative link, with its `#anchor` where it points to Markdown. In sources and scripts:
//! every name of a Markdown file and every path below `docs/`.

use crate::toolchain::output;
use crate::{Fault, none};
use anyhow::{Context, Result};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Extensions of sources whose mentions are looked up.
const SOURCES: [&str; 7] = ["rs", "py", "toml", "sh", "h", "js", "mjs"];

/// Folders whose scripts have no extension.
const SCRIPTS: [&str; 2] = [".ci/", "scripts/"];

/// This file, whose tests name files that are nowhere.
const OWN: &str = "xtask/src/links.rs";

/// The command.
pub fn run(root: &Path) -> Result<()> {
    let git = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = output(Command::new("git").current_dir(root).args(git))?;
    let files = listed.split('\0').filter(|file| root.join(file).is_file());
    let mut texts = BTreeMap::new();
    for file in files {
        let text = if file.ends_with(".md") || is_source(file) {
            std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?
        } else {
            String::new()
        };
        texts.insert(file.to_owned(), text);
    }
    let (checked, faults) = check(&texts);
    let list: Vec<String> =
        faults.iter().map(|fault| format!("{}:{}: {}", fault.entry, fault.line, fault.what)).collect();
    none(format!("{} dangling", list.len()), &list)?;
    println!("links: {checked} links and mentions of {} files", texts.len());
    Ok(())
}

fn is_source(file: &str) -> bool {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    let script = extension.is_none() && SCRIPTS.iter().any(|folder| file.starts_with(folder));
    file != OWN && (script || extension.is_some_and(|extension| SOURCES.contains(&extension)))
}

/// How many links and mentions there are, and those that dangle. `texts` has every file; those that are
/// neither Markdown nor sources may be empty.
fn check(texts: &BTreeMap<String, String>) -> (usize, Vec<Fault>) {
    let pages: BTreeMap<&str, Page> = texts
        .iter()
        .filter(|(file, _)| file.ends_with(".md"))
        .map(|(file, text)| (file.as_str(), page(text)))
        .collect();
    let (mut checked, mut faults) = (0, Vec::new());
    for (file, page) in &pages {
        checked += page.links.len();
        for (line, link) in &page.links {
            if let Some(what) = dangles(file, link, texts, &pages) {
                faults.push(Fault::new(file, *line, what));
            }
        }
    }
    for (file, text) in texts {
        for (number, line) in text.lines().enumerate().filter(|_| is_source(file)) {
            for path in mentions(line) {
                checked += 1;
                if !exists(texts, path) && !is_end(texts, path) {
                    faults.push(Fault::new(file, number + 1, format!("there is no {path}")));
                }
            }
        }
    }
    (checked, faults)
}

/// Links of a Markdown text by line, and the anchors of its headings.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = 1 + text[..range.start].matches('\n').count();
                page.links.push((line, dest_url.into_string()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let again = (1..).map(|n| format!("{slug}-{n}"));
                let free =
                    std::iter::once(slug.clone()).chain(again).find(|slug| !page.anchors.contains(slug));
                page.anchors.extend(free);
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            _ => {}
        }
    }
    page
}

/// The anchor that GitHub gives a heading: letters, digits, `-` and `_` in lower case, `-` for each space.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What is wrong with a link of `file`, if anything is.
fn dangles(
    file: &str,
    link: &str,
    texts: &BTreeMap<String, String>,
    pages: &BTreeMap<&str, Page>,
) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let target = if path.is_empty() { Some(file.to_owned()) } else { join(folder, path) };
    let Some(target) = target.filter(|target| target.is_empty() || exists(texts, target)) else {
        return Some(format!("there is no {path}"));
    };
    let (page, anchor) = (pages.get(target.as_str())?, anchor?);
    (!page.anchors.contains(anchor)).then(|| format!("{target} has no heading #{anchor}"))
}

/// A path from a folder of the repository, from its root; none above it.
fn join(folder: &str, path: &str) -> Option<String> {
    let from = if path.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(path.split('/')).filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Whether a file or a folder is there.
fn exists(texts: &BTreeMap<String, String>, path: &str) -> bool {
    let folder = format!("{path}/");
    let below = texts.range(folder.clone()..).next().is_some_and(|(file, _)| file.starts_with(&folder));
    texts.contains_key(path) || below
}

/// Whether a file's path ends so: a name alone, or a path from another folder than the root.
fn is_end(texts: &BTreeMap<String, String>, path: &str) -> bool {
    texts.keys().any(|file| file.strip_suffix(path).is_some_and(|before| before.ends_with('/')))
}

/// Names of Markdown files and paths below `docs/` in a line, without `./`, `../` and `/` before them.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    let of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '_' | '-' | ':');
    let words = line.split(move |c| !of_path(c)).filter(|word| !word.contains("://"));
    let paths = words.map(|word| word.trim_start_matches(['.', '/']).trim_end_matches(['.', '/', ':', '-']));
    paths.filter(|path| path.starts_with("docs/") || path.ends_with(".md"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let texts = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        check(&texts).1.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn a_link_needs_its_file_and_its_heading() {
        let page =
            "# Top\n\n[a](sub/b.md) [a](sub/b.md#two-words) [a](sub) [a](#top) [a](https://x.org/none.md)\n";
        let b = ("sub/b.md", "## Two `words`\n\n[up](../a.md#top)\n");
        assert_eq!(faults(&[("a.md", page), b]), [""; 0]);
        let wrong = "# Top\n\n[a](sub/c.md)\n[a](sub/b.md#three-words)\n[a](#bottom)\n[a](../b.md)\n";
        assert_eq!(
            faults(&[("a.md", wrong), b]),
            [
                "a.md, line 3: there is no sub/c.md",
                "a.md, line 4: sub/b.md has no heading #three-words",
                "a.md, line 5: a.md has no heading #bottom",
                "a.md, line 6: there is no ../b.md",
            ]
        );
    }

    #[test]
    fn links_of_tables_and_references_count_and_those_of_code_do_not() {
        let table =
            "| a |\n|---|\n| [x](no.md) |\n\n`[x](no.md)`\n\n    [x](no.md)\n\n[x][y]\n\n[y]: none.md\n";
        let wrong = ["a.md, line 3: there is no no.md", "a.md, line 9: there is no none.md"];
        assert_eq!(faults(&[("a.md", table)]), wrong);
    }

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(slug("Routing replay: R2 and R3"), "routing-replay-r2-and-r3");
        assert_eq!(slug("8.7 Scheduling"), "87-scheduling");
        assert_eq!(slug("A + b_c / d-E"), "a--b_c--d-e");
        let twice = page("# Same\n\n# Same\n\n# Same\n").anchors;
        assert_eq!(Vec::from_iter(twice), ["same", "same-1", "same-2"]);
    }

    #[test]
    fn a_source_names_files_that_are_there() {
        let there = [("docs/x.md", ""), ("docs/fig/a.py", ""), ("sub/only.md", "")];
        let at = |name: &str| format!("// see docs/{name}.");
        let with = |text: &str| faults(&[&there[..], &[("core/a.rs", text)]].concat());
        for good in [
            &at("x.md"),
            &at("fig/a.py"),
            &at("fig"),
            "// only.md",
            "// https://a.org/no.md",
            "../sub/only.md",
        ] {
            assert_eq!(with(good), [""; 0], "{good}");
        }
        for bad in ["gone.md", "fig/b.py", "figs"] {
            assert_eq!(with(&at(bad)), [format!("core/a.rs, line 1: there is no docs/{bad}")]);
        }
        assert_eq!(with("\ny.md"), ["core/a.rs, line 2: there is no y.md"]);
        // The end of a name is no name, and other kinds of files are not read.
        assert_eq!(with("nly.md"), ["core/a.rs, line 1: there is no nly.md"]);
        assert_eq!(faults(&[("a.csv", &at("gone.md"))]), [""; 0]);
    }
}
