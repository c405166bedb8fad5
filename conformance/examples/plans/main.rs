//! Runs every recipe as a plan: advantages and loss of every named recipe on a device, every byte compared
//! with the two calls on this machine's CPU. Then every plan that consists of launches only is run in one
//! block of device memory for two batches in succession, as a captured graph is replayed; on an emulated
//! driver, the driver's log shows what `enqueue` called.
//!
//! ```sh
//! cargo run --release -p lockstep-conformance --example plans
//! cargo xtask emulate cuda -- target/release/examples/plans cuda
//! ```

mod captured;

use lockstep_conformance::{exit, plans};
use std::process::ExitCode;

fn main() -> ExitCode {
    let device = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let run = || -> Result<bool, Box<dyn std::error::Error>> {
        // Done first, while the driver's log has room.
        let replayed = captured::all(&device)?;
        let found = plans::all(&device, |line| println!("{line}"))?;
        println!("{device}: {found}");
        println!("{device}: {replayed}");
        Ok(found.passed() && replayed.passed())
    };
    exit(run())
}
