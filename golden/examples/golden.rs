//! `cargo run --release -p lockstep-golden --example golden -- DIR`: golden files against Lockstep.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: golden DIR")?;
    let report = lockstep_golden::verify_dir(dir.as_ref())?;
    println!("{report}");
    if report.passed() { Ok(()) } else { Err("golden files disagree".into()) }
}
