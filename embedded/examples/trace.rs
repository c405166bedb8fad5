//! `cargo run --release -p lockstep-embedded --example trace`: prints every output of the corpus as text, to
//! compare with the bare-metal program's output under `--features trace`.

use lockstep_cpu::plain::Plain;
use lockstep_embedded::{Trace, corpus};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    corpus(&Plain, &mut Trace::new(&mut text))?;
    println!("{text}");
    Ok(())
}
