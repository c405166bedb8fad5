//! `cargo run --release -p lockstep-conformance --example embedded [-- WORD…]`: prints the digest of the
//! plain reference for machines without an operating system, in the format of the bare-metal program.
//!
//! * `FILE`: writes the launches to this file, from which the bare-metal program is built;
//! * `--trace`: prints every output instead, to compare with the bare-metal program's under `--features
//!   trace`;
//! * `--write`: writes the files `embedded/DIGEST` and `embedded/LAUNCHES`, the SHA-256 of what `FILE`
//!   contains. A changed digest is a breaking change unless only the launches changed: the section "Bits" of
//!   CHANGELOG says which, with the old and the new digest.

use lockstep_conformance::embedded;
use lockstep_cpu::plain::Plain;
use lockstep_embedded::{PUBLISHED, Trace, corpus, digest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recorded = embedded::launches()?;
    let launches = recorded.launches();
    let digest = digest(&Plain, launches).to_string();
    match std::env::args().nth(1).as_deref() {
        None => println!("{digest}"),
        Some("--trace") => {
            let mut text = String::new();
            corpus(&Plain, launches, &mut Trace::new(&mut text));
            println!("{text}");
        }
        Some("--write") => {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../embedded");
            std::fs::write(format!("{folder}/LAUNCHES"), format!("{}\n", launches.sha256()))?;
            std::fs::write(format!("{folder}/DIGEST"), format!("{digest}\n"))?;
            println!("{digest}\n{folder}/DIGEST: was {}", PUBLISHED.trim());
        }
        Some(word) if word.starts_with('-') => return Err(format!("unknown argument `{word}`").into()),
        Some(path) => {
            let bytes: Vec<u8> = recorded.words().iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(path, bytes)?;
            println!("{digest}");
        }
    }
    Ok(())
}
