//! The driver of an API on this machine, loaded when first needed.

use crate::{Driver, Error, Gpu, Platform, Report};
use std::sync::{Arc, Mutex, PoisonError};

/// A vendor's only driver in this process: a `static` of the vendor's crate.
pub struct Installed<D: Driver> {
    api: &'static str,
    load: fn() -> Result<D, Error>,
    platform: Mutex<Option<Arc<Platform<D>>>>,
}

impl<D: Driver> Installed<D> {
    /// Creates an unloaded driver of `api`; `load` loads it.
    pub const fn new(api: &'static str, load: fn() -> Result<D, Error>) -> Self {
        Installed { api, load, platform: Mutex::new(None) }
    }

    /// Returns the driver, loading it on the first call. After a failure, the next call tries again.
    fn platform(&self) -> Result<Arc<Platform<D>>, Error> {
        let mut platform = self.platform.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(platform) = &*platform {
            return Ok(platform.clone());
        }
        Ok(platform.insert(Arc::new(Platform::new((self.load)()?))).clone())
    }

    /// Opens device `ordinal`; see [`Platform::open`].
    pub fn open(&self, ordinal: usize) -> Result<Gpu<D>, Error> {
        self.platform()?.open(ordinal)
    }

    /// Reports what is installed, what is missing and why.
    pub fn report(&self) -> Report {
        match self.platform() {
            Ok(platform) => platform.report(),
            Err(error) => Report::absent(self.api, error),
        }
    }
}
