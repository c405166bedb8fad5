//! The driver of an API on this machine, found when it is first needed.

use crate::{Driver, Error, Gpu, Platform, Report};
use std::sync::{Arc, Mutex, PoisonError};

/// A vendor's one driver in this process: a `static` of its crate.
pub struct Installed<D: Driver> {
    api: &'static str,
    load: fn() -> Result<D, Error>,
    platform: Mutex<Option<Arc<Platform<D>>>>,
}

impl<D: Driver> Installed<D> {
    /// The driver of `api`, which `load` loads.
    pub const fn new(api: &'static str, load: fn() -> Result<D, Error>) -> Self {
        Installed { api, load, platform: Mutex::new(None) }
    }

    /// The driver, loaded on the first call. A failure is tried again on the next.
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

    /// What is there, what is missing and why.
    pub fn report(&self) -> Report {
        match self.platform() {
            Ok(platform) => platform.report(),
            Err(error) => Report::absent(self.api, error),
        }
    }
}
