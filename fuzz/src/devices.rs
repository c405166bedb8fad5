//! Every SIMD level of this machine, plain first.

use lockstep::{Device, Error, SimdLevel};
use std::fmt::Debug;
use std::sync::OnceLock;

/// One device per level; plain, the reference, comes first.
pub fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let device = |level| Device::cpu_with(Some(level), Some(1)).expect("an available level");
        SimdLevel::available().into_iter().map(device).collect()
    })
}

/// Plain on one thread, then the fastest level on one thread and the next on three, so that rows are
/// distributed differently.
pub fn crews() -> &'static [Device] {
    static CREWS: OnceLock<Vec<Device>> = OnceLock::new();
    CREWS.get_or_init(|| {
        let levels = SimdLevel::available();
        let crew = |level, threads| Device::cpu_with(Some(level), Some(threads)).expect("an available level");
        let [best, next] = [1, 2].map(|k| levels[levels.len().saturating_sub(k)]);
        vec![crew(SimdLevel::Plain, 1), crew(best, 1), crew(next, 3)]
    })
}

/// Runs an op at every level and returns plain's result. `same(plain, other)` compares two results; errors
/// must have the same text.
pub fn on_every_level<T: Debug>(
    run: impl Fn(&Device) -> Result<T, Error>,
    same: impl Fn(&T, &T),
) -> Result<T, Error> {
    let [plain, faster @ ..] = devices() else { panic!("plain is always there") };
    let contract = run(plain);
    for device in faster {
        match (&contract, &run(device)) {
            (Ok(a), Ok(b)) => same(a, b),
            (Err(a), Err(b)) => {
                assert_eq!(a.to_string(), b.to_string(), "{} returns another error", device.describe());
            }
            (a, b) => panic!("plain returned {a:?}, {} returned {b:?}", device.describe()),
        }
    }
    contract
}
