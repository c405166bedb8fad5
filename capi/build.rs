//! The name under which a loader looks for the shared library, which install.sh gives to the file.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let on = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if on == "linux" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblockstep.so.0");
    }
}
