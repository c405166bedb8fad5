//! NVIDIA's driver API, one call per method.

use crate::error::CODES;
use crate::module;
use crate::symbols::Symbols;
use lockstep_gpu::library::{self, Loaded};
use lockstep_gpu::{DeviceInfo, Direction, Error, Fault, Handle, Owner, Refusal, Shape, Version};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

/// Names of the driver library, the usual one first.
const NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

// Values of CUdevice_attribute, CUpointer_attribute, CUmemorytype, CUjit_option and of flags.
pub(crate) const MULTIPROCESSORS: c_int = 16;
pub(crate) const CAPABILITY_MAJOR: c_int = 75;
pub(crate) const CAPABILITY_MINOR: c_int = 76;
pub(crate) const POINTER_CONTEXT: c_int = 1;
pub(crate) const POINTER_MEMORY_TYPE: c_int = 2;
pub(crate) const POINTER_IS_MANAGED: c_int = 8;
pub(crate) const POINTER_DEVICE: c_int = 9;
pub(crate) const MEMORY_HOST: u32 = 1;
pub(crate) const JIT_ERROR_LOG: c_int = 5;
pub(crate) const JIT_ERROR_LOG_BYTES: c_int = 6;
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
pub(crate) const HOST_ALLOC_PORTABLE: u32 = 1;

/// The loaded driver.
#[derive(Debug)]
pub struct Driver(Loaded<Symbols>);

/// Calls a function of the table: `call!(self.name(arguments))`.
macro_rules! call {
    ($self:ident.$name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: results go to locals of the right type that outlive the call; handles and other memory
        // satisfy the contract of `Driver`'s method, or were just returned by this driver.
        $self.check(stringify!($name), unsafe { ($self.0.symbols.$name)($($arg),*) })
    };
}

impl Driver {
    /// Loads the driver. Errors list the names that were tried.
    pub(crate) fn load() -> Result<Driver, Error> {
        // SAFETY: the table has the argument types of cuda.h (src/bindings.rs).
        unsafe { Loaded::open("CUDA", NAMES, Symbols::load) }.map(Driver)
    }

    fn check(&self, function: &'static str, code: i32) -> Result<(), Fault> {
        if code == 0 {
            return Ok(());
        }
        let mut name = std::ptr::null();
        // SAFETY: the name is written to a local.
        let known = unsafe { (self.0.symbols.cuGetErrorName)(code, &mut name) } == 0 && !name.is_null();
        // SAFETY: a constant of the driver, NUL-terminated.
        let name = known.then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned());
        Err(CODES.fault(function, code, name))
    }

    fn attribute(&self, attribute: c_int, device: c_int) -> Result<u32, Fault> {
        let mut value = 0;
        call!(self.cuDeviceGetAttribute(&mut value, attribute, device))?;
        Ok(value.max(0).cast_unsigned())
    }

    fn device(&self, ordinal: usize) -> Result<c_int, Fault> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        call!(self.cuDeviceGet(&mut device, ordinal))?;
        Ok(device)
    }

    /// Queries an attribute of a pointer, which the driver writes as a `T`.
    fn pointer<T: Copy>(&self, attribute: c_int, address: Handle, unset: T) -> Result<T, Fault> {
        let mut value = unset;
        call!(self.cuPointerGetAttribute((&raw mut value).cast(), attribute, device_address(address)))?;
        Ok(value)
    }
}

/// A `CUdeviceptr`.
fn device_address(handle: Handle) -> u64 {
    handle.0.addr() as u64
}

// SAFETY: cuMemHostAlloc returns page-aligned writable memory; a stream runs copies in order.
unsafe impl lockstep_gpu::Driver for Driver {
    fn api(&self) -> &'static str {
        "CUDA"
    }

    fn library(&self) -> &str {
        self.0.file()
    }

    /// A team is a warp. 8 × 32 threads with 255 registers each fill a multiprocessor's 65,536 registers, so
    /// this always fits.
    fn shape(&self) -> Shape {
        Shape { lanes: 32, teams_per_block: 8, max_teams_per_block: 32 }
    }

    fn version(&self) -> Result<Version, Fault> {
        let mut version = 0;
        call!(self.cuDriverGetVersion(&mut version))?;
        let version = version.max(0).cast_unsigned();
        Ok(Version::new(version / 1000, version % 1000 / 10))
    }

    fn needed(&self) -> Result<Version, Error> {
        module::needed()
    }

    fn count(&self) -> Result<usize, Fault> {
        let mut count = 0;
        call!(self.cuInit(0))?;
        call!(self.cuDeviceGetCount(&mut count))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    fn info(&self, ordinal: usize) -> Result<DeviceInfo, Fault> {
        call!(self.cuInit(0))?;
        let device = self.device(ordinal)?;
        let (mut name, mut memory) = ([0; 256], 0);
        call!(self.cuDeviceGetName(name.as_mut_ptr().cast(), 255, device))?;
        call!(self.cuDeviceTotalMem_v2(&mut memory, device))?;
        let major = self.attribute(CAPABILITY_MAJOR, device)?;
        let minor = self.attribute(CAPABILITY_MINOR, device)?;
        let units = self.attribute(MULTIPROCESSORS, device)?;
        let arch = format!("sm_{major}{minor}");
        Ok(DeviceInfo { ordinal, name: library::text(&name), arch, memory, units })
    }

    fn supports(&self, arch: &str) -> Result<(), &'static str> {
        module::supports(arch)
    }

    /// Retains the primary context, which the runtime API, PyTorch, candle, cudarc and `cust` also use.
    fn attach(&self, ordinal: usize) -> Result<Handle, Fault> {
        let (device, mut context) = (self.device(ordinal)?, null_mut());
        call!(self.cuDevicePrimaryCtxRetain(&mut context, device))?;
        Ok(Handle(context))
    }

    unsafe fn detach(&self, ordinal: usize, _context: Handle) {
        if let Ok(device) = self.device(ordinal) {
            _ = call!(self.cuDevicePrimaryCtxRelease_v2(device));
        }
    }

    /// Pushes the context: the previous one lies below it, so there is nothing to remember.
    unsafe fn enter(&self, _ordinal: usize, context: Handle) -> Result<Handle, Fault> {
        call!(self.cuCtxPushCurrent_v2(context.0))?;
        Ok(Handle::NULL)
    }

    unsafe fn leave(&self, _previous: Handle) {
        let mut context = null_mut();
        _ = call!(self.cuCtxPopCurrent_v2(&mut context));
    }

    const ONE_MODULE: bool = false;

    fn load(&self, entry: &str) -> Result<Handle, Refusal> {
        let (image, mut log, mut module) = (module::image(entry), vec![0u8; 16 * 1024], null_mut());
        let mut options = [JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES];
        let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len() - 1)];
        call!(self.cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        ))
        .map_err(|fault| Refusal { fault, log: library::text(&log) })?;
        Ok(Handle(module))
    }

    unsafe fn function(&self, module: Handle, name: &CStr) -> Result<Handle, Fault> {
        let mut function = null_mut();
        call!(self.cuModuleGetFunction(&mut function, module.0, name.as_ptr()))?;
        Ok(Handle(function))
    }

    unsafe fn resident_blocks(&self, function: Handle, threads: u32) -> Result<u32, Fault> {
        let (mut blocks, threads) = (0, threads.cast_signed());
        call!(self.cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.0, threads, 0))?;
        Ok(blocks.max(0).cast_unsigned())
    }

    fn memory(&self) -> Result<(usize, usize), Fault> {
        let (mut free, mut total) = (0, 0);
        call!(self.cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free, total))
    }

    fn alloc(&self, bytes: usize) -> Result<Handle, Fault> {
        let mut address = 0;
        call!(self.cuMemAlloc_v2(&mut address, bytes))?;
        Ok(Handle(std::ptr::without_provenance_mut(address as usize)))
    }

    unsafe fn free(&self, memory: Handle) -> Result<(), Fault> {
        call!(self.cuMemFree_v2(device_address(memory)))
    }

    unsafe fn copy(
        &self,
        to: Handle,
        from: Handle,
        bytes: usize,
        direction: Direction,
        stream: Handle,
    ) -> Result<(), Fault> {
        let (to_device, from_device) = (device_address(to), device_address(from));
        match direction {
            Direction::Upload => call!(self.cuMemcpyHtoDAsync_v2(to_device, from.0, bytes, stream.0)),
            Direction::Download => call!(self.cuMemcpyDtoHAsync_v2(to.0, from_device, bytes, stream.0)),
            Direction::Device => call!(self.cuMemcpyDtoDAsync_v2(to_device, from_device, bytes, stream.0)),
        }
    }

    unsafe fn fill(&self, to: Handle, byte: u8, bytes: usize, stream: Handle) -> Result<(), Fault> {
        call!(self.cuMemsetD8Async(device_address(to), byte, bytes, stream.0))
    }

    fn owner(&self, address: Handle) -> Owner {
        let ask = || -> Result<Owner, Fault> {
            let kind = self.pointer(POINTER_MEMORY_TYPE, address, 0u32)?;
            let managed = self.pointer(POINTER_IS_MANAGED, address, 0u32)?;
            if kind == MEMORY_HOST || managed != 0 {
                return Ok(Owner::Shared);
            }
            let ordinal = self.pointer(POINTER_DEVICE, address, 0i32)?;
            // Memory of a pool or of the virtual memory API belongs to no context.
            let context = self.pointer(POINTER_CONTEXT, address, null_mut::<c_void>()).unwrap_or(null_mut());
            let context = (!context.is_null()).then_some(Handle(context));
            Ok(Owner::Device { ordinal: usize::try_from(ordinal).unwrap_or(usize::MAX), context })
        };
        ask().unwrap_or_else(Owner::unknown)
    }

    unsafe fn owns_stream(&self, stream: Handle, _ordinal: usize, context: Handle) -> Option<bool> {
        let mut of = null_mut();
        call!(self.cuStreamGetCtx(stream.0, &mut of)).ok()?;
        Some(of == context.0)
    }

    lockstep_gpu::calls! {
        make alloc_pinned(bytes: usize) = cuMemHostAlloc(bytes, HOST_ALLOC_PORTABLE);
        make create_stream() = cuStreamCreate(STREAM_NON_BLOCKING);
        make create_event() = cuEventCreate(0);
        end unload = cuModuleUnload;
        end destroy_stream = cuStreamDestroy_v2;
        end destroy_event = cuEventDestroy_v2;
        on free_pinned(memory) = cuMemFreeHost();
        on synchronize(stream) = cuStreamSynchronize();
        on record(event, stream) = cuEventRecord();
        on wait(stream, event) = cuStreamWaitEvent(0);
        on synchronize_event(event) = cuEventSynchronize();
    }

    unsafe fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Fault> {
        let mut milliseconds = 0.0;
        call!(self.cuEventElapsedTime(&mut milliseconds, from.0, to.0))?;
        Ok(milliseconds)
    }

    unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        (threads, teams): (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        let params = params.as_mut_ptr();
        call!(self.cuLaunchKernel(
            function.0,
            blocks,
            1,
            1,
            threads,
            teams,
            1,
            0,
            stream.0,
            params,
            null_mut()
        ))
    }
}
