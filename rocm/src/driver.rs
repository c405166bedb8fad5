//! AMD's HIP runtime, one call per method.

use crate::error::CODES;
use crate::module;
use crate::symbols::{PointerAttributes, Symbols};
use lockstep_gpu::library::{self, Loaded};
use lockstep_gpu::{DeviceInfo, Direction, Error, Fault, Handle, Owner, Refusal, Shape, Version};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

/// Names of the runtime library, the usual one first. Systems without development files have only the
/// numbered one.
const NAMES: &[&str] = if cfg!(windows) {
    &["amdhip64.dll", "amdhip64_7.dll", "amdhip64_6.dll"]
} else {
    &[
        "libamdhip64.so",
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so",
    ]
};

// Values of hipDeviceAttribute_t, hipMemcpyKind, hipMemoryType and of flags.
const MULTIPROCESSORS: c_int = 63;
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;
const DEVICE_TO_DEVICE: c_int = 3;
const STREAM_NON_BLOCKING: u32 = 1;
const HOST_MALLOC_PORTABLE: u32 = 1;

/// The loaded driver.
#[derive(Debug)]
pub struct Driver(Loaded<Symbols>);

/// Calls a function of the table: `call!(self.name(arguments))`.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: results go to locals of the right type that outlive the call; handles and other memory
        // satisfy the contract of `Driver`'s method, or were just returned by this runtime.
        $self.check(stringify!($name), unsafe { ($self.0.symbols.$name)($($arg),*) })
    };
}

impl Driver {
    /// Loads the runtime. Errors list the names that were tried.
    pub(crate) fn load() -> Result<Driver, Error> {
        // SAFETY: the table has the argument types of hip_runtime_api.h.
        unsafe { Loaded::open("HIP", NAMES, Symbols::load) }.map(Driver)
    }

    fn check(&self, function: &'static str, code: i32) -> Result<(), Fault> {
        if code == 0 {
            return Ok(());
        }
        // HIP remembers the last error for the next query. This one was ours, and the caller's program must
        // not find it. SAFETY: no arguments.
        unsafe { (self.0.symbols.hipGetLastError)() };
        // SAFETY: any number is accepted.
        let name = unsafe { (self.0.symbols.hipGetErrorName)(code) };
        // SAFETY: a constant of the runtime, NUL-terminated.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        Err(CODES.fault(function, code, name))
    }

    fn attribute(&self, attribute: c_int, device: c_int) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.hipDeviceGetAttribute(&mut value, attribute, device))?;
        Ok(value.max(0).cast_unsigned())
    }

    fn device(&self, ordinal: usize) -> c_int {
        c_int::try_from(ordinal).unwrap_or(c_int::MAX)
    }

    /// Returns the device's architecture, such as `gfx942`.
    fn arch(&self, device: c_int) -> Result<String, Fault> {
        let mut properties = Properties([0; _]);
        let (into, name) = ((&raw mut properties).cast(), "hipGetDeviceProperties");
        let (new, old) = (self.0.symbols.hipGetDevicePropertiesR0600, self.0.symbols.hipGetDeviceProperties);
        let Some(get) = new.or(old) else { return Ok("unknown".to_owned()) };
        // SAFETY: the buffer is larger than any version's structure, and suitably aligned.
        self.check(name, unsafe { get(into, device) })?;
        Ok(module::arch(&properties.0))
    }
}

/// Space for a `hipDeviceProp_t`: 792 bytes in ROCm 5, 1472 in ROCm 6.
#[repr(C, align(16))]
struct Properties([u8; 16 * 1024]);

// SAFETY: hipHostMalloc returns page-aligned writable memory; a stream runs copies in order.
unsafe impl lockstep_gpu::Driver for Driver {
    fn api(&self) -> &'static str {
        "HIP"
    }

    fn library(&self) -> &str {
        self.0.file()
    }

    /// A team is a wave, and also a workgroup: the entry points take their row from the workgroup number
    /// alone, a scalar.
    fn shape(&self) -> Shape {
        Shape { lanes: 64, teams_per_block: 1, max_teams_per_block: 1 }
    }

    fn version(&self) -> Result<Version, Fault> {
        let mut version = 0;
        call!(self.hipDriverGetVersion(&mut version))?;
        let version = version.max(0).cast_unsigned();
        Ok(Version::new(version / 10_000_000, version % 10_000_000 / 100_000))
    }

    fn needed(&self) -> Result<Version, Error> {
        module::needed()
    }

    /// Does not call `hipInit`, which in some versions fails with `hipErrorInvalidDevice` if there is no
    /// device: every call initialises the runtime.
    fn count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        call!(self.hipGetDeviceCount(&mut count))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn info(&self, ordinal: usize) -> Result<DeviceInfo, Fault> {
        let device = self.device(ordinal);
        let (mut name, mut memory) = ([0; 256], 0);
        call!(self.hipDeviceGetName(name.as_mut_ptr().cast(), 255, device))?;
        call!(self.hipDeviceTotalMem(&mut memory, device))?;
        let units = self.attribute(MULTIPROCESSORS, device)?;
        let arch = self.arch(device)?;
        Ok(DeviceInfo { ordinal, name: library::text(&name), arch, memory, units })
    }

    fn supports(&self, arch: &str) -> Result<(), &'static str> {
        module::supports(arch)
    }

    /// HIP has one context per device, the primary one. The handle is the device's number plus 1, since a
    /// handle is not null.
    fn attach(&self, ordinal: usize) -> Result<Handle, Fault> {
        Ok(Handle(std::ptr::without_provenance_mut(ordinal + 1)))
    }

    unsafe fn detach(&self, _ordinal: usize, _context: Handle) {}

    /// The token is the number of the previously current device, plus 1; null if it is this device.
    unsafe fn enter(&self, ordinal: usize, _context: Handle) -> Result<Handle, Fault> {
        let (device, mut previous) = (self.device(ordinal), 0);
        call!(self.hipGetDevice(&mut previous))?;
        if previous == device {
            return Ok(Handle::NULL);
        }
        call!(self.hipSetDevice(device))?;
        Ok(Handle(std::ptr::without_provenance_mut(usize::try_from(previous).unwrap_or(0) + 1)))
    }

    unsafe fn leave(&self, previous: Handle) {
        if previous != Handle::NULL {
            _ = call!(self.hipSetDevice(self.device(previous.0.addr() - 1)));
        }
    }

    // Machine code, which takes no time to load.
    const ONE_MODULE: bool = true;

    fn load(&self, _entry: &str) -> Result<Handle, Refusal> {
        let mut module = null_mut();
        call!(self.hipModuleLoadData(&mut module, module::image().as_ptr().cast()))
            .map_err(|fault| Refusal { fault, log: String::new() })?;
        Ok(Handle(module))
    }

    unsafe fn function(&self, module: Handle, name: &CStr) -> Result<Handle, Fault> {
        let mut function = null_mut();
        call!(self.hipModuleGetFunction(&mut function, module.0, name.as_ptr()))?;
        Ok(Handle(function))
    }

    unsafe fn resident_blocks(&self, function: Handle, threads: u32) -> Result<u32, Fault> {
        let (mut blocks, threads) = (0, threads.cast_signed());
        call!(self.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.0, threads, 0))?;
        Ok(blocks.max(0).cast_unsigned())
    }

    fn memory(&self) -> Result<(usize, usize), Fault> {
        let (mut free, mut total) = (0, 0);
        call!(self.hipMemGetInfo(&mut free, &mut total))?;
        Ok((free, total))
    }

    unsafe fn copy(
        &self,
        to: Handle,
        from: Handle,
        bytes: usize,
        direction: Direction,
        stream: Handle,
    ) -> Result<(), Fault> {
        let kind = match direction {
            Direction::Upload => HOST_TO_DEVICE,
            Direction::Download => DEVICE_TO_HOST,
            Direction::Device => DEVICE_TO_DEVICE,
        };
        call!(self.hipMemcpyAsync(to.0, from.0, bytes, kind, stream.0))
    }

    unsafe fn fill(&self, to: Handle, byte: u8, bytes: usize, stream: Handle) -> Result<(), Fault> {
        call!(self.hipMemsetAsync(to.0, byte.into(), bytes, stream.0))
    }

    fn owner(&self, address: Handle) -> Owner {
        let ask = || -> Result<Owner, Fault> {
            let version = self.version()?;
            let mut found = PointerAttributes {
                kind: 0,
                device: 0,
                device_pointer: null_mut(),
                host_pointer: null_mut(),
                managed: 0,
                flags: 0,
                room: [0; 8],
            };
            call!(self.hipPointerGetAttributes(&mut found, address.0))?;
            let ordinal = usize::try_from(found.device).unwrap_or(usize::MAX);
            match memory_type(version, found.kind) {
                _ if found.managed != 0 => Ok(Owner::Shared),
                Memory::Device => Ok(Owner::Device { ordinal, context: None }),
                Memory::Shared => Ok(Owner::Shared),
                Memory::Unregistered => {
                    let name = Some("hipMemoryTypeUnregistered".to_owned());
                    Err(CODES.fault("hipPointerGetAttributes", 0, name))
                }
            }
        };
        ask().unwrap_or_else(Owner::unknown)
    }

    unsafe fn owns_stream(&self, stream: Handle, ordinal: usize, _context: Handle) -> Option<bool> {
        let get = self.0.symbols.hipStreamGetDevice?;
        let mut device = 0;
        // SAFETY: the result goes to a local; the stream is the caller's.
        self.check("hipStreamGetDevice", unsafe { get(stream.0, &mut device) }).ok()?;
        Some(device == self.device(ordinal))
    }

    lockstep_gpu::calls! {
        make alloc(bytes: usize) = hipMalloc(bytes);
        make alloc_pinned(bytes: usize) = hipHostMalloc(bytes, HOST_MALLOC_PORTABLE);
        make create_stream() = hipStreamCreateWithFlags(STREAM_NON_BLOCKING);
        make create_event() = hipEventCreateWithFlags(0);
        end unload = hipModuleUnload;
        end destroy_stream = hipStreamDestroy;
        end destroy_event = hipEventDestroy;
        on free(memory) = hipFree();
        on free_pinned(memory) = hipHostFree();
        on synchronize(stream) = hipStreamSynchronize();
        on record(event, stream) = hipEventRecord();
        on wait(stream, event) = hipStreamWaitEvent(0);
        on synchronize_event(event) = hipEventSynchronize();
    }

    unsafe fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Fault> {
        let mut milliseconds = 0.0;
        call!(self.hipEventElapsedTime(&mut milliseconds, from.0, to.0))?;
        Ok(milliseconds)
    }

    fn max_layers(&self) -> u32 {
        // The runtime's limit for a grid in y.
        65535
    }

    unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        block: (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        // SAFETY: the caller's.
        unsafe { self.launch_layers(function, (blocks, 1), block, stream, params) }
    }

    unsafe fn launch_layers(
        &self,
        function: Handle,
        (x, y): (u32, u32),
        (threads, teams): (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        let (f, params) = (function.0, params.as_mut_ptr());
        call!(self.hipModuleLaunchKernel(f, x, y, 1, threads, teams, 1, 0, stream.0, params, null_mut()))
    }
}

/// The runtime's classification of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Unregistered,
    Device,
    Shared,
}

/// Decodes a `hipMemoryType`, whose numbers changed with 6.0.
fn memory_type(version: Version, kind: c_int) -> Memory {
    match (version >= Version::new(6, 0), kind) {
        (true, 0) => Memory::Unregistered,
        (false, 1 | 2) | (true, 2 | 10) => Memory::Device,
        _ => Memory::Shared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_types_are_read_as_the_version_writes_them() {
        let (five, six) = (Version::new(5, 7), Version::new(6, 0));
        assert_eq!(
            [0, 1, 4].map(|kind| memory_type(five, kind)),
            [Memory::Shared, Memory::Device, Memory::Shared]
        );
        let of_six = [0, 1, 2, 3].map(|kind| memory_type(six, kind));
        assert_eq!(of_six, [Memory::Unregistered, Memory::Shared, Memory::Device, Memory::Shared]);
    }
}
