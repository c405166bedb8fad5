//! The machine: its devices, and the calls of an API as methods. Results are the vendor's codes.

use super::device::Device;
use super::failures::{Failure, Failures};
use super::host::Host;
use super::live::Live;
use super::settings::Settings;
use super::vendor::Vendor;
use crate::counts::Counts;
use crate::fault::Fault;
use crate::launch::{Parameter, Program};
use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Handles are never reused, not even on another machine of this process: a stale one is invalid.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Loaded modules, cached as a driver caches compiled ones.
static CACHE: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());
const CACHED: usize = 4;

/// A module's bytes, and the program read from them.
struct Compiled {
    image: Vec<u8>,
    approximate: Option<u64>,
    program: Arc<dyn Program>,
}

/// The simulated machine.
pub struct Machine {
    pub(super) vendor: &'static Vendor,
    settings: Settings,
    pub(super) host: Box<dyn Host>,
    devices: Vec<Mutex<Device>>,
    failures: Mutex<Failures>,
    /// Pinned memory by address: size, and the device that was current.
    pinned: Mutex<BTreeMap<u64, (u64, usize)>>,
}

/// Who owns the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Memory of this device, in the allocation that begins here.
    Device(usize),
    /// Pinned memory, allocated while this device was current.
    Pinned(usize),
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn new_handle(device: usize) -> u64 {
    SERIAL.fetch_add(1, Ordering::Relaxed) << 8 | (device as u64) << 4
}

pub(super) fn device_of(handle: u64) -> usize {
    (handle >> 4 & 15) as usize
}

impl Machine {
    /// Creates a machine with these settings.
    pub fn new(vendor: &'static Vendor, settings: Settings, host: Box<dyn Host>) -> Machine {
        let device = |number| {
            let memory = Memory::of_device(number, settings.memory).with_flipped(settings.flip);
            Mutex::new(Device::new(vendor.codes, memory, settings.quiet))
        };
        let mut failures = Failures::default();
        settings.failures.iter().cloned().for_each(|failure| failures.add(failure));
        Machine {
            vendor,
            devices: (0..settings.devices).map(device).collect(),
            failures: Mutex::new(failures),
            pinned: Mutex::default(),
            settings,
            host,
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Begins a call: counts it, and fails it if requested. A sticky code loses the current device.
    pub fn call(&self, function: &'static str, current: Option<usize>) -> Result<(), i32> {
        let Some(code) = lock(&self.failures).call(function) else { return Ok(()) };
        if let Some(device) = current.and_then(|device| self.devices.get(device))
            && self.vendor.codes.sticky.contains(&code)
        {
            lock(device).lose(code);
        }
        Err(code)
    }

    /// Makes a later call fail.
    pub fn inject(&self, failure: Failure) {
        lock(&self.failures).add(failure);
    }

    /// Returns an error if there is no such device.
    pub fn has(&self, device: usize) -> Result<(), i32> {
        if device < self.devices.len() { Ok(()) } else { Err(self.vendor.codes.no_such_device) }
    }

    /// Locks a device that is not lost.
    pub(super) fn device(&self, device: usize) -> Result<MutexGuard<'_, Device>, i32> {
        self.has(device)?;
        let device = lock(&self.devices[device]);
        device.lost.map_or(Ok(()), Err)?;
        Ok(device)
    }

    /// Locks the device of a handle.
    pub(super) fn of(&self, handle: u64) -> Result<MutexGuard<'_, Device>, i32> {
        self.device(device_of(handle)).map_err(|code| match code {
            code if code == self.vendor.codes.no_such_device => self.vendor.codes.handle,
            code => code,
        })
    }

    pub(super) fn no_handle<T>(&self, found: Option<T>) -> Result<T, i32> {
        found.ok_or(self.vendor.codes.handle)
    }

    // --- contexts

    /// Adds a reference to a device's context.
    pub fn retain(&self, device: usize) -> Result<u64, i32> {
        let mut found = self.device(device)?;
        let (handle, references) = found.context.get_or_insert_with(|| (new_handle(device), 0));
        *references += 1;
        Ok(*handle)
    }

    /// Removes a reference. After the last, the context's objects are gone. A lost context stays lost.
    pub fn release(&self, device: usize) -> Result<(), i32> {
        self.has(device)?;
        let mut found = lock(&self.devices[device]);
        match &mut found.context {
            None => return Err(self.vendor.codes.no_context),
            Some((_, references)) if *references > 1 => *references -= 1,
            Some(_) => {
                let drained = found.finish_all(&*self.host);
                let held = lock(&self.pinned).values().filter(|(_, of)| *of == device).count() as u64;
                if found.lost.is_none() {
                    found.leaked.pinned += held;
                }
                found.destroy_context();
                drained?;
            }
        }
        found.lost.map_or(Ok(()), Err)
    }

    /// Returns the device whose context has this handle.
    pub fn context(&self, handle: u64) -> Result<usize, i32> {
        let device = device_of(handle);
        let found = self.devices.get(device).and_then(|device| lock(device).context);
        if found.is_some_and(|(of, _)| of == handle) { Ok(device) } else { Err(self.vendor.codes.no_context) }
    }

    /// Returns the context of a device, if anybody holds it.
    pub fn context_of(&self, device: usize) -> Option<u64> {
        self.devices.get(device).and_then(|device| lock(device).context).map(|(handle, _)| handle)
    }

    // --- modules

    /// Loads a module. The error carries the compiler's log.
    pub fn load(&self, device: usize, image: &[u8]) -> Result<u64, (i32, String)> {
        let mut found = self.device(device).map_err(|code| (code, String::new()))?;
        if let Some(log) = &self.settings.refuse {
            return Err((self.vendor.codes.image, log.clone()));
        }
        let approximate = self.settings.approximate;
        let mut cache = lock(&CACHE);
        let known = cache
            .iter()
            .find(|known| known.image == image && known.approximate == approximate)
            .map(|known| known.program.clone());
        let program = match known {
            Some(program) => program,
            None => {
                let program = (self.vendor.load)(image, &self.settings)
                    .map_err(|log| (self.vendor.codes.image, log))?;
                if cache.len() == CACHED {
                    cache.remove(0);
                }
                cache.push(Compiled { image: image.to_vec(), approximate, program: program.clone() });
                program
            }
        };
        let handle = new_handle(device);
        found.modules.insert(handle, program);
        Ok(handle)
    }

    /// Unloads a module. Its queued launches run first.
    pub fn unload(&self, module: u64) -> Result<(), i32> {
        let mut device = self.of(module)?;
        device.finish_all(&*self.host)?;
        self.no_handle(device.modules.remove(&module))?;
        device.functions.retain(|_, (of, _)| *of != module);
        Ok(())
    }

    /// Looks up an entry point of a module.
    pub fn function(&self, module: u64, name: &str) -> Result<u64, i32> {
        let mut device = self.of(module)?;
        let program = self.no_handle(device.modules.get(&module))?;
        if self.settings.lacks.iter().any(|lacking| lacking == name) || program.parameters(name).is_none() {
            return Err(self.vendor.codes.not_found);
        }
        let handle = new_handle(device_of(module));
        device.functions.insert(handle, (module, name.into()));
        Ok(handle)
    }

    pub(super) fn entry(&self, device: &Device, function: u64) -> Result<(Arc<dyn Program>, Arc<str>), i32> {
        let (module, entry) = self.no_handle(device.functions.get(&function))?;
        Ok((self.no_handle(device.modules.get(module))?.clone(), entry.clone()))
    }

    /// Returns the parameters of an entry point.
    pub fn parameters(&self, function: u64) -> Result<Vec<Parameter>, i32> {
        let device = self.of(function)?;
        let (program, entry) = self.entry(&device, function)?;
        self.no_handle(program.parameters(&entry))
    }

    /// Returns how many blocks of `threads` threads a multiprocessor holds.
    pub fn resident(&self, function: u64, threads: i32) -> Result<i32, i32> {
        let device = self.of(function)?;
        self.entry(&device, function)?;
        match u32::try_from(threads) {
            Ok(threads @ 1..) => Ok((self.settings.threads / threads).cast_signed()),
            _ => Err(self.vendor.codes.value),
        }
    }

    // --- memory

    /// Returns the bytes of device memory: free, total.
    pub fn memory(&self, device: usize) -> Result<(u64, u64), i32> {
        let device = self.device(device)?;
        Ok((device.memory.limit() - device.memory.used(), device.memory.limit()))
    }

    /// Allocates device memory, which is unreadable until written.
    pub fn alloc(&self, device: usize, bytes: u64) -> Result<u64, i32> {
        let mut device = self.device(device)?;
        if bytes == 0 {
            return Err(self.vendor.codes.value);
        }
        device.memory.alloc(bytes).ok_or(self.vendor.codes.out_of_memory)
    }

    /// Frees device memory, after the queued work.
    pub fn free(&self, current: usize, address: u64) -> Result<(), i32> {
        drop(self.device(current)?);
        let Some(Owner::Device(device)) = self.owner(address) else { return Err(self.vendor.codes.value) };
        let mut device = self.device(device)?;
        device.finish_all(&*self.host)?;
        if device.memory.release(address) { Ok(()) } else { Err(self.vendor.codes.value) }
    }

    /// Allocates pinned host memory.
    pub fn alloc_pinned(&self, device: usize, bytes: u64) -> Result<u64, i32> {
        drop(self.device(device)?);
        if bytes == 0 {
            return Err(self.vendor.codes.value);
        }
        if bytes > self.settings.memory {
            return Err(self.vendor.codes.out_of_memory);
        }
        let address = self.host.alloc(bytes).ok_or(self.vendor.codes.out_of_memory)?;
        lock(&self.pinned).insert(address, (bytes, device));
        Ok(address)
    }

    /// Frees pinned memory, after the queued work.
    pub fn free_pinned(&self, current: usize, address: u64) -> Result<(), i32> {
        drop(self.device(current)?);
        let bytes = match lock(&self.pinned).get(&address) {
            Some((bytes, _)) => *bytes,
            None => return Err(self.vendor.codes.value),
        };
        for device in &self.devices {
            let mut device = lock(device);
            // A lost device no longer touches it.
            if device.lost.is_none() {
                device.finish_all(&*self.host)?;
            }
        }
        lock(&self.pinned).remove(&address);
        self.host.free(address, bytes);
        Ok(())
    }

    pub(super) fn is_pinned(&self, address: u64, bytes: u64) -> bool {
        let pinned = lock(&self.pinned);
        let below = pinned.range(..=address).next_back();
        below.is_some_and(|(start, (size, _))| address - start <= *size && bytes <= size - (address - start))
    }

    /// Returns who owns the memory at an address.
    pub fn owner(&self, address: u64) -> Option<Owner> {
        for (number, device) in self.devices.iter().enumerate() {
            if lock(device).memory.owner(address).is_some() {
                return Some(Owner::Device(number));
            }
        }
        let pinned = lock(&self.pinned);
        let (start, (size, of)) = pinned.range(..=address).next_back()?;
        (address - start < *size).then_some(Owner::Pinned(*of))
    }

    // --- what it found

    /// Counts what was not released, on devices that are not lost.
    pub fn live(&self) -> Live {
        let mut live = Live::default();
        let mut lost = Vec::new();
        for device in &self.devices {
            let device = lock(device);
            live += device.live();
            lost.push(device.lost.is_some());
        }
        live.pinned += lock(&self.pinned).values().filter(|(_, of)| !lost[*of]).count() as u64;
        live
    }

    /// Counts what contexts still held when their last reference was released.
    pub fn leaked(&self) -> Live {
        let mut leaked = Live::default();
        self.devices.iter().for_each(|device| leaked += lock(device).leaked);
        leaked
    }

    /// Returns the last fault of a kernel.
    pub fn fault(&self) -> Option<Fault> {
        self.devices.iter().find_map(|device| lock(device).fault.clone())
    }

    /// Returns the program's calls that happen to work but are not guaranteed to.
    pub fn complaints(&self) -> Vec<String> {
        self.devices.iter().flat_map(|device| lock(device).complaints.clone()).collect()
    }

    /// Returns launches and counts of each entry point, over all devices.
    pub fn counts(&self) -> BTreeMap<String, (u64, Counts)> {
        let mut all: BTreeMap<String, (u64, Counts)> = BTreeMap::new();
        for device in &self.devices {
            for (entry, (launches, counts)) in &lock(device).counts {
                let of = all.entry(entry.clone()).or_default();
                of.0 += launches;
                of.1 += *counts;
            }
        }
        all
    }

    /// Returns the last calls, in order: the vendor's function, and for a launch the entry point, the grid
    /// and a hash that tells whether its parameters are the same.
    pub fn log(&self) -> Vec<String> {
        lock(&self.failures).log()
    }

    pub(super) fn note(&self, what: &str) {
        lock(&self.failures).note(what);
    }

    /// Returns how often a function was called.
    pub fn calls(&self, function: &str) -> u64 {
        lock(&self.failures).calls(function)
    }
}
