//! Passes the machine's memory map to the linker, and says how to make the launches.

use std::env;
use std::path::Path;

fn main() {
    let script = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("arm") => "cortex_m.ld",
        Ok("riscv32") => "riscv.ld",
        other => panic!("lockstep-bare is for arm and riscv32 without an operating system, not {other:?}"),
    };
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-link-arg=-T{folder}/{script}");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rerun-if-changed=launches.bin");
    if !Path::new("launches.bin").exists() {
        let how = "cargo run --release -p lockstep-conformance --example embedded embedded/bare/launches.bin";
        panic!("no embedded/bare/launches.bin: run `{how}` in the repository's root");
    }
}
