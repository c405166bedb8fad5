//! The machine that is simulated.

use super::failures::Failure;
use super::vendor::Vendor;

/// The machine, and the failures requested on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of devices, at most [`DEVICES`](crate::memory::DEVICES).
    pub devices: usize,
    /// Name of each device, followed by its architecture. It says that it is emulated.
    pub name: String,
    /// Architecture: `sm_90`, `gfx942`.
    pub arch: String,
    /// Bytes of memory of each device.
    pub memory: u64,
    /// Multiprocessors or compute units.
    pub units: u32,
    /// Threads that a multiprocessor holds at once. Few, so that small inputs iterate the loop over rows.
    pub threads: u32,
    /// Version, as the API encodes it.
    pub version: i32,
    /// A log with which every module is refused.
    pub refuse: Option<String>,
    /// Entry points that every module lacks.
    pub lacks: Vec<String>,
    /// Calls that fail.
    pub failures: Vec<Failure>,
    /// Suppresses writing faults of kernels to the standard error output.
    pub quiet: bool,
    /// Seed for what a manual leaves open (the last bits of reciprocals and roots, NaN); exact without one.
    pub approximate: Option<u64>,
    /// The store of a device, counted from 1, whose lowest bit is wrong: a check must notice it.
    pub flip: Option<u64>,
}

impl Settings {
    /// Creates one small device without failures.
    pub fn new(name: &str, arch: &str, version: i32) -> Settings {
        Settings {
            devices: 1,
            name: name.to_owned(),
            arch: arch.to_owned(),
            memory: 1 << 30,
            units: 2,
            threads: 256,
            version,
            refuse: None,
            lacks: Vec::new(),
            failures: Vec::new(),
            quiet: false,
            approximate: None,
            flip: None,
        }
    }

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

/// Parses a number with an optional K, M or G (powers of 1024).
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
