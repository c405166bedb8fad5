//! Which machine is played.

use super::failures::Failure;
use super::vendor::Vendor;

/// The machine, and what is to go wrong on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of devices, at most [`DEVICES`](crate::memory::DEVICES).
    pub devices: usize,
    /// Name of each device, before its architecture. It says that it is emulated.
    pub name: String,
    /// Architecture: `sm_90`, `gfx942`.
    pub arch: String,
    /// Bytes of memory of each device.
    pub memory: u64,
    /// Multiprocessors or compute units.
    pub units: u32,
    /// Threads that a unit holds at once. Few, so that small inputs go round the loop over rows.
    pub threads: u32,
    /// Version, as the API writes it.
    pub version: i32,
    /// The log with which every module is refused.
    pub refuse: Option<String>,
    /// Entry points that no module has.
    pub lacks: Vec<String>,
    /// Calls that fail.
    pub failures: Vec<Failure>,
    /// Whether faults of kernels are written to the standard error output too.
    pub quiet: bool,
    /// What a manual leaves open (the last bits of reciprocals and roots, NaN) is drawn from this seed;
    /// without one it is exact.
    pub approximate: Option<u64>,
    /// Which store of a device, from 1, has its lowest bit wrong: what a check must see.
    pub flip: Option<u64>,
}

impl Settings {
    /// Reads `key=value` pairs separated by `;` over a vendor's defaults: docs/emulator.md, "Fault
    /// injection".
    pub fn parse(vendor: &Vendor, text: &str) -> Result<Settings, String> {
        let mut settings = (vendor.settings)();
        for pair in text.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            settings.set(vendor, key.trim(), value.trim()).map_err(|error| format!("`{pair}`: {error}"))?;
        }
        Ok(settings)
    }

    fn set(&mut self, vendor: &Vendor, key: &str, value: &str) -> Result<(), String> {
        match key {
            "devices" => {
                self.devices = number(value)? as usize;
                if self.devices > crate::memory::DEVICES {
                    return Err(format!("at most {} devices", crate::memory::DEVICES));
                }
            }
            "name" => self.name = value.to_owned(),
            "arch" => self.arch = value.to_owned(),
            "memory" => self.memory = number(value)?,
            "units" => self.units = number(value)? as u32,
            "threads" => self.threads = number(value)? as u32,
            "version" => {
                let (major, minor) = value.split_once('.').ok_or("expected major.minor")?;
                self.version = (vendor.version)(number(major)? as u32, number(minor)? as u32);
            }
            "refuse" => self.refuse = Some(value.to_owned()),
            "lacks" => self.lacks.push(value.to_owned()),
            "fail" => self.failures.push(value.parse()?),
            "quiet" => self.quiet = true,
            "flip" => self.flip = Some(number(value)?),
            "approximate" => self.approximate = Some(number(value)?),
            _ => return Err("no such key".to_owned()),
        }
        Ok(())
    }
}

/// A number, with K, M or G of 1024 behind it.
fn number(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("{text} is no number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}
