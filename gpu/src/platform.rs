//! A loaded driver and the devices opened with it.

use crate::gpu::Context;
use crate::{DeviceReport, Driver, Error, Fault, Gpu, Kind, Report};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A loaded driver. A device's kernels are loaded once, however often it is opened.
#[derive(Debug)]
pub struct Platform<D: Driver> {
    driver: Arc<D>,
    opened: Mutex<Vec<Weak<Context<D>>>>,
}

impl<D: Driver> Platform<D> {
    /// Creates a platform for a driver.
    pub fn new(driver: D) -> Self {
        Platform { driver: Arc::new(driver), opened: Mutex::new(Vec::new()) }
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Arc<D> {
        &self.driver
    }

    /// Returns the number of devices, at least 1. Errors with [`Error::NoDevice`] if there is none.
    pub fn count(&self) -> Result<usize, Error> {
        let api = self.driver.api();
        match self.driver.count() {
            Ok(0) => {
                let name = "0 devices".to_owned();
                let fault = Fault { function: "the device count", code: 0, name, kind: Kind::NoDevice };
                Err(Error::NoDevice { api, fault })
            }
            Ok(count) => Ok(count),
            Err(fault) if fault.kind == Kind::NoDevice => Err(Error::NoDevice { api, fault }),
            Err(fault) => Err(Error::Call { fault }),
        }
    }

    /// Opens device `ordinal`, or clones it if it is already open. A device whose context is lost is opened
    /// anew.
    pub fn open(&self, ordinal: usize) -> Result<Gpu<D>, Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|context| context.upgrade().is_some_and(|context| context.lost().is_none()));
        let found = opened.iter().find_map(|c| c.upgrade().filter(|c| c.info.ordinal == ordinal));
        if let Some(context) = found {
            return Ok(Gpu::new(context));
        }
        let api = self.driver.api();
        let count = self.count()?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice { api, ordinal, count });
        }
        self.fits(ordinal)?;
        let info = self.driver.info(ordinal).map_err(|fault| Error::Call { fault })?;
        let context = Arc::new(Context::open(self.driver.clone(), info)?);
        opened.push(Arc::downgrade(&context));
        Ok(Gpu::new(context))
    }

    /// Returns an error if the kernels cannot run on the device.
    fn fits(&self, ordinal: usize) -> Result<(), Error> {
        let driver = &self.driver;
        let call = |fault| Error::Call { fault };
        let info = driver.info(ordinal).map_err(call)?;
        driver.supports(&info.arch).map_err(|needed| Error::Unsupported {
            ordinal,
            device: info.name.clone(),
            found: info.arch.clone(),
            needed,
        })?;
        let (found, needed) = (driver.version().map_err(call)?, driver.needed()?);
        if found < needed {
            return Err(Error::DriverTooOld { api: driver.api(), found, needed });
        }
        Ok(())
    }

    /// Reports what is installed, what is missing and why.
    pub fn report(&self) -> Report {
        let mut report = Report {
            api: self.driver.api(),
            library: Some(self.driver.library().to_owned()),
            version: self.driver.version().ok(),
            devices: Vec::new(),
            missing: None,
        };
        match self.count() {
            Ok(count) => {
                report.devices = (0..count)
                    .map(|ordinal| DeviceReport {
                        ordinal,
                        info: self.driver.info(ordinal).ok(),
                        unusable: self.fits(ordinal).err(),
                    })
                    .collect();
            }
            Err(error) => report.missing = Some(error),
        }
        report
    }
}
