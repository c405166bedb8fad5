//! An open device.

use crate::staged::Arena;
use crate::{DeviceInfo, Driver, Error, Fault, Geometry, Handle, Kind, Refusal, Shape, Stopwatch};
use lockstep_core::check::CheckOffsets;
use lockstep_core::op::{Launch, MAX_WARPS, OPS, OpInfo};
use std::ffi::CString;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// An open device. Clones are cheap and share everything except the settings.
pub struct Gpu<D: Driver> {
    pub(crate) context: Arc<Context<D>>,
    pub(crate) geometry: Geometry,
    pub(crate) verify: bool,
    pub(crate) stopwatch: Option<Arc<Stopwatch>>,
}

impl<D: Driver> Clone for Gpu<D> {
    fn clone(&self) -> Self {
        Gpu { context: self.context.clone(), stopwatch: self.stopwatch.clone(), ..*self }
    }
}

impl<D: Driver> fmt::Debug for Gpu<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu").field("info", &self.context.info).field("geometry", &self.geometry).finish()
    }
}

impl<D: Driver> Gpu<D> {
    pub(crate) fn new(context: Arc<Context<D>>) -> Self {
        Gpu { context, geometry: Geometry::default(), verify: cfg!(debug_assertions), stopwatch: None }
    }

    /// Returns the description of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// Returns the launch geometry in use.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the same device with another launch geometry. Results do not depend on it.
    pub fn with_geometry(&self, geometry: Geometry) -> Self {
        Gpu { geometry, ..self.clone() }
    }

    /// Returns the same device with pointer checks on or off. With checks, every launch first asks the driver
    /// who owns each array's memory, at about a microsecond per array. On by default in builds with debug
    /// assertions.
    ///
    /// Another device's memory is refused even where peer access would make it usable: switch the checks off
    /// then.
    pub fn with_pointer_checks(&self, verify: bool) -> Self {
        Gpu { verify, ..self.clone() }
    }

    /// Returns the bytes of device memory: free, total.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        self.context.call(D::memory)
    }

    /// Loads the kernels of these ops, by name, as the first launch of each would. A stream that is being
    /// captured must find them loaded: the driver refuses to load a module then.
    ///
    /// Errors: [`Error::MissingEntry`] if no op has that name; [`Error::Module`] if the driver refuses the
    /// kernels.
    pub fn load(&self, ops: &[&str]) -> Result<(), Error> {
        let current = self.context.enter()?;
        for name in ops {
            let op = position(name)?;
            let entries = self.entry_points(&OPS[op]).count();
            (0..entries).try_for_each(|entry| self.context.find(&current, op, entry).map(drop))?;
        }
        Ok(())
    }

    /// Returns the names of an op's entry points for this device: one for each variant, then those in which
    /// several warps share a row, if the op has any.
    pub fn entry_points(&self, op: &OpInfo) -> impl Iterator<Item = &'static str> + use<D> {
        let shared = if self.context.shape.max_teams_per_block > 1 { op.blocks.len() } else { 0 };
        op.all_entries().take(op.entries.len() + shared)
    }

    /// Returns the error that lost the context, if one did. The device is unusable from then on.
    pub fn lost(&self) -> Option<Error> {
        self.context.lost().cloned()
    }

    /// Returns the vendor's handle of the context in use, for programs that manage contexts themselves.
    pub fn raw_context(&self) -> *mut std::ffi::c_void {
        self.context.handle.0
    }
}

/// An entry point that was found in the loaded kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) function: Handle,
    /// Blocks of the default size that the device holds at once.
    pub(crate) resident: u32,
    /// Teams of such a block.
    pub(crate) teams: u32,
    /// Whether they share a row.
    pub(crate) block: bool,
}

/// What the clones of a [`Gpu`] and its buffers and streams share.
pub(crate) struct Context<D: Driver> {
    driver: Arc<D>,
    pub(crate) info: DeviceInfo,
    pub(crate) shape: Shape,
    pub(crate) handle: Handle,
    modules: Mutex<Vec<Handle>>,
    /// By op in table order, then by variant, once it is loaded; those for a block behind the others.
    entries: Vec<Vec<OnceLock<Entry>>>,
    pub(crate) arenas: Mutex<Vec<Arena>>,
    lost: OnceLock<Error>,
}

impl<D: Driver> fmt::Debug for Context<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("info", &self.info).finish_non_exhaustive()
    }
}

#[allow(unsafe_code)]
impl<D: Driver> Context<D> {
    /// Attaches to the device and loads one kernel, so that a driver that cannot read them is found here.
    pub(crate) fn open(driver: Arc<D>, info: DeviceInfo) -> Result<Self, Error> {
        let handle = driver.attach(info.ordinal).map_err(error)?;
        // From here on, dropping the context releases everything.
        let context = Context {
            shape: driver.shape(),
            driver,
            info,
            handle,
            modules: Mutex::default(),
            entries: OPS.iter().map(|op| op.all_entries().map(|_| OnceLock::new()).collect()).collect(),
            arenas: Mutex::new(Vec::new()),
            lost: OnceLock::new(),
        };
        let current = context.enter()?;
        context.find(&current, position(CheckOffsets::NAME)?, 0)?;
        drop(current);
        Ok(context)
    }

    /// Returns an entry point of an op, loaded if it is not yet.
    fn find(&self, current: &Current<'_, D>, op: usize, entry: usize) -> Result<Entry, Error> {
        let missing = |entry: &str, because: String| Error::MissingEntry { entry: entry.to_owned(), because };
        let (Some(place), Some(name)) = (self.entries[op].get(entry), OPS[op].all_entries().nth(entry))
        else {
            let entry = format!("{} (variant {entry})", OPS[op].name);
            return Err(missing(&entry, "it is not in core's table of ops".to_owned()));
        };
        if let Some(entry) = place.get() {
            return Ok(*entry);
        }
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.first() {
            Some(module) if D::ONE_MODULE => *module,
            _ => {
                let refused = |Refusal { fault, log }| match fault.kind {
                    Kind::Sticky => self.fault(fault),
                    _ => Error::Module { fault, log },
                };
                let module = current.driver().load(name).map_err(refused)?;
                modules.push(module);
                module
            }
        };
        let symbol = CString::new(name).map_err(|nul| missing(name, nul.to_string()))?;
        // SAFETY: a loaded module.
        let function = unsafe { self.driver.function(module, &symbol) }
            .map_err(|fault| missing(name, fault.to_string()))?;
        let resident = |teams: u32| {
            // SAFETY: as above.
            unsafe { self.driver.resident_blocks(function, self.shape.lanes * teams) }
                .map_err(|fault| self.fault(fault))
        };
        let block = entry >= OPS[op].entries.len();
        let mut teams = if block { MAX_WARPS } else { self.shape.teams_per_block };
        let mut blocks = resident(teams)?;
        // The registers of many warps may be more than there are.
        while block && blocks == 0 && teams > 1 {
            teams /= 2;
            blocks = resident(teams)?;
        }
        let found = Entry { name, function, resident: blocks * self.info.units, teams, block };
        // Another thread may have been first: its module has the same function.
        Ok(*place.get_or_init(|| found))
    }

    /// Returns the entry point of a variant: the one for a `block` to a row, if asked for.
    pub(crate) fn entry(
        &self,
        current: &Current<'_, D>,
        op: &str,
        variant: usize,
        block: bool,
    ) -> Result<Entry, Error> {
        let op = position(op)?;
        self.find(current, op, variant + if block { OPS[op].entries.len() } else { 0 })
    }

    /// Makes the context current until the guard is dropped. Fails at once if the context is lost.
    pub(crate) fn enter(&self) -> Result<Current<'_, D>, Error> {
        if let Some(lost) = self.lost() {
            return Err(lost.clone());
        }
        self.force()
    }

    /// Calls the driver with the context current.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&D) -> Result<T, Fault>) -> Result<T, Error> {
        let current = self.enter()?;
        call(current.driver()).map_err(|fault| self.fault(fault))
    }

    /// Like `enter`, but also for a lost context: to release resources.
    pub(crate) fn force(&self) -> Result<Current<'_, D>, Error> {
        // SAFETY: attached in `open`, detached when dropped.
        let previous = unsafe { self.driver.enter(self.info.ordinal, self.handle) }
            .map_err(|fault| self.fault(fault))?;
        Ok(Current { driver: &self.driver, previous, this_thread: PhantomData })
    }

    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// Converts a fault to an error, and remembers it if it lost the context.
    pub(crate) fn fault(&self, fault: Fault) -> Error {
        let error = error(fault);
        if !error.usable() {
            return self.lost.get_or_init(|| error).clone();
        }
        error
    }

    /// Converts a failed allocation to an error.
    pub(crate) fn alloc_fault(&self, bytes: usize, fault: Fault) -> Error {
        if fault.kind != Kind::OutOfMemory {
            return self.fault(fault);
        }
        let (free, total) = self.driver.memory().unwrap_or_default();
        Error::OutOfMemory { bytes, free, total, fault }
    }
}

/// Returns the position of an op in the table.
fn position(name: &str) -> Result<usize, Error> {
    OPS.iter().position(|op| op.name == name).ok_or_else(|| Error::MissingEntry {
        entry: name.to_owned(),
        because: "it is not in core's table of ops".to_owned(),
    })
}

/// Converts a fault that has no more specific error.
fn error(fault: Fault) -> Error {
    match fault.kind {
        Kind::Sticky => Error::Sticky { fault },
        _ => Error::Call { fault },
    }
}

impl<D: Driver> Drop for Context<D> {
    fn drop(&mut self) {
        // What cannot be released to a lost context went with it.
        if let Ok(current) = self.force() {
            let arenas = std::mem::take(&mut *self.arenas.lock().unwrap_or_else(PoisonError::into_inner));
            arenas.into_iter().for_each(|arena| arena.free(&current));
            let modules = std::mem::take(&mut *self.modules.lock().unwrap_or_else(PoisonError::into_inner));
            for module in modules {
                // SAFETY: functions of the module are reached through this context only, which is being
                // dropped.
                #[allow(unsafe_code)]
                unsafe {
                    current.driver().unload(module)
                };
            }
        }
        // SAFETY: buffers, streams and events keep the context alive, so none of them is left.
        #[allow(unsafe_code)]
        unsafe {
            self.driver.detach(self.info.ordinal, self.handle)
        };
    }
}

/// Guard: the context is current on this thread while it lives.
pub(crate) struct Current<'a, D: Driver> {
    driver: &'a D,
    previous: Handle,
    this_thread: PhantomData<*const ()>,
}

impl<'a, D: Driver> Current<'a, D> {
    pub(crate) fn driver(&self) -> &'a D {
        self.driver
    }
}

impl<D: Driver> Drop for Current<'_, D> {
    fn drop(&mut self) {
        // SAFETY: guards are locals and not `Send`, so they are dropped in reverse order, on their own
        // thread.
        #[allow(unsafe_code)]
        unsafe {
            self.driver.leave(self.previous)
        };
    }
}
