//! Fuzzes golden files: they are read strictly and never silently; a report passes only if something was
//! compared.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::Device;
use lockstep_golden::{GoldenError, verify_dir};
use std::path::PathBuf;
use std::sync::OnceLock;

/// One device for all inputs: a pool's threads end some time after its device is dropped, and a process that
/// ends in between looks as if it leaked them.
fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(Device::cpu)
}

/// This process's directory in memory, with one file that is rewritten for every input.
fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = root.join(format!("lockstep-golden-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for golden files");
        path
    })
}

fuzz_target!(|bytes: &[u8]| {
    let directory = directory();
    std::fs::write(directory.join("case.json"), bytes).expect("a golden file");
    match verify_dir(device(), directory) {
        Ok(report) => {
            assert_eq!(report.files.len(), 1, "the file is listed");
            assert!(report.to_string().contains("case.json"));
            for file in &report.files {
                assert!(file.cases > 0);
                assert!(file.agreed == 0 || !file.arrays.is_empty(), "agreed without comparing anything");
                assert!(!file.passed() || file.arrays.iter().all(|a| a.error.is_finite()), "{file:?}");
            }
        }
        Err(error) => {
            let place = match &error {
                GoldenError::Format { file, reason } => {
                    assert!(!reason.is_empty());
                    file.clone()
                }
                // The bytes are not UTF-8.
                GoldenError::Io { path, .. } => path.display().to_string(),
                other => panic!("{other}"),
            };
            assert!(place.ends_with("case.json") && error.to_string().contains("case.json"), "{error}");
        }
    }
});
