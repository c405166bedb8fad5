//! `cargo run --release -p lockstep-embedded --example digest`: prints the digest of the plain reference on
//! this machine, in the format of the bare-metal program.
//!
//! With `-- --write` it also writes the file `DIGEST`. A changed digest is a breaking change unless only the
//! corpus changed: the section "Bits" of CHANGELOG says which, with the old and the new digest.

use lockstep_cpu::plain::Plain;
use lockstep_embedded::{PUBLISHED, digest};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digest = digest(&Plain)?.to_string();
    println!("{digest}");
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("--write") => {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/DIGEST");
            std::fs::write(path, format!("{digest}\n"))?;
            println!("{path}: was {}", PUBLISHED.trim());
        }
        Some(word) => return Err(format!("unknown argument `{word}`: expected --write or none").into()),
    }
    Ok(())
}
