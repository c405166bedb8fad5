//! `include/lockstep.h` equals what cbindgen generates from the sources; `LOCKSTEP_WRITE=1` rewrites it.

use lockstep::Column;
use std::fmt::Write as _;
use std::path::Path;

/// Writes the struct of columns out in full: `columns.rs` defines it by a macro, which cbindgen does not
/// expand.
fn columns() -> String {
    let mut out = String::from(
        "/// The columns of a batch. Leave out a column that the recipe does not read: a null `data`. A \
         struct\n\
         /// that is all zero except `size` has no columns.\n\
         #[repr(C)]\npub struct ls_rollouts {\n    /// `sizeof(ls_rollouts)`.\n    pub size: u32,\n\
         \x20   /// 0.\n    pub reserved: u32,\n",
    );
    for column in Column::ALL {
        let (name, element, shape) = (column.name(), column.element().name(), column.shape().name());
        _ = writeln!(out, "    /// `{shape}` {}\n    pub {name}: ls_span<{element}>,", column.meaning());
    }
    out + "}\n"
}

fn header() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = tempfile::tempdir().unwrap();
    let rollouts = made.path().join("rollouts.rs");
    std::fs::write(&rollouts, columns()).unwrap();
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config).with_src(folder.join("src/lib.rs"));
    let mut text = Vec::new();
    builder.with_src(rollouts).generate().unwrap().write(&mut text);
    String::from_utf8(text).unwrap().replace("// # Safety\n", "// Required:\n")
}

#[test]
fn the_wrapper_has_every_call() {
    let wrapper = include_str!("../include/lockstep.hpp");
    let header = header();
    let calls = header.split("ls_").skip(1).filter_map(|text| {
        let name: String = text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        text[name.len()..].starts_with('(').then(|| format!("ls_{name}"))
    });
    let calls: Vec<String> = calls.collect();
    assert!(calls.len() > 50, "{calls:?}");
    let missing: Vec<&String> = calls.iter().filter(|call| !wrapper.contains(call.as_str())).collect();
    assert!(missing.is_empty(), "not in lockstep.hpp: {missing:?}");
}

#[test]
fn the_header_is_what_cbindgen_writes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/lockstep.h");
    let made = header();
    if std::env::var_os("LOCKSTEP_WRITE").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = committed.lines().zip(made.lines()).position(|(committed, made)| committed != made);
    assert!(
        committed == made,
        "include/lockstep.h differs from line {}: \
         LOCKSTEP_WRITE=1 cargo test -p lockstep-capi --test header writes it",
        differs.map_or(committed.lines().count().min(made.lines().count()), |line| line) + 1
    );
}
