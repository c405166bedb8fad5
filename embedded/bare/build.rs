//! Passes the machine's memory map to the linker.

use std::env;

fn main() {
    let script = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("arm") => "cortex_m.ld",
        Ok("riscv32") => "riscv.ld",
        other => panic!("lockstep-bare is for arm and riscv32 without an operating system, not {other:?}"),
    };
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-link-arg=-T{folder}/{script}");
    println!("cargo:rerun-if-changed={script}");
}
