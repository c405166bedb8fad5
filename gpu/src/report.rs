//! What is installed, what is missing and why.

use crate::{DeviceInfo, Error, Version};
use std::fmt;

/// The state of one vendor's API on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// `CUDA` or `HIP`.
    pub api: &'static str,
    /// The library, if it was found.
    pub library: Option<String>,
    /// Its version, if the driver reports it.
    pub version: Option<Version>,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
    /// Why no device is available.
    pub missing: Option<Error>,
}

/// One device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceReport {
    /// Its ordinal.
    pub ordinal: usize,
    /// Its description, if the driver reports it.
    pub info: Option<DeviceInfo>,
    /// Why Lockstep cannot run on it, if it cannot.
    pub unusable: Option<Error>,
}

impl Report {
    /// Returns the report for a driver that could not be loaded.
    pub fn absent(api: &'static str, error: Error) -> Report {
        Report { api, library: None, version: None, devices: Vec::new(), missing: Some(error) }
    }

    /// Returns whether ops can run on any device.
    pub fn usable(&self) -> bool {
        self.devices.iter().any(|device| device.unusable.is_none())
    }
}

/// Prints one line for the API and one per device.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.api)?;
        if let Some(library) = &self.library {
            f.write_str(library)?;
            match self.version {
                Some(version) => write!(f, ", version {version}")?,
                None => f.write_str(", version unknown")?,
            }
        }
        if let Some(missing) = &self.missing {
            write!(f, "{}{missing}", if self.library.is_some() { "; " } else { "" })?;
        }
        for device in &self.devices {
            write!(f, "\n  {device}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.ordinal)?;
        match &self.info {
            Some(info) => {
                let gib = info.memory as f64 / f64::from(1 << 30);
                write!(f, "{}, {}, {gib:.1} GiB, {} units", info.name, info.arch, info.units)?;
            }
            None => f.write_str("unknown")?,
        }
        match &self.unusable {
            Some(error) => write!(f, ": not usable: {error}"),
            None => Ok(()),
        }
    }
}
