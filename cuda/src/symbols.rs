//! The driver API functions in use, all available since CUDA 11.0.
//!
//! `src/bindings.rs` checks this table against cudarc's generated bindings.

use std::ffi::{c_char, c_int, c_uint, c_void};

type Object = *mut c_void;
/// `CUdeviceptr`.
type Address = u64;

lockstep_gpu::symbols! {
    /// The table.
    struct Symbols {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuGetErrorName(code: c_int, name: *mut *const c_char);

        cuDeviceGetCount(count: *mut c_int);
        cuDeviceGet(device: *mut c_int, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);

        cuDevicePrimaryCtxRetain(context: *mut Object, device: c_int);
        cuDevicePrimaryCtxRelease_v2(device: c_int);
        cuCtxPushCurrent_v2(context: Object);
        cuCtxPopCurrent_v2(context: *mut Object);

        cuModuleLoadDataEx(
            module: *mut Object,
            image: *const c_void,
            options: c_uint,
            option: *mut c_int,
            value: *mut *mut c_void,
        );
        cuModuleUnload(module: Object);
        cuModuleGetFunction(function: *mut Object, module: Object, name: *const c_char);
        cuOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int,
            function: Object,
            threads: c_int,
            shared: usize,
        );
        cuLaunchKernel(
            function: Object,
            grid_x: c_uint,
            grid_y: c_uint,
            grid_z: c_uint,
            block_x: c_uint,
            block_y: c_uint,
            block_z: c_uint,
            shared: c_uint,
            stream: Object,
            params: *mut *mut c_void,
            extra: *mut *mut c_void,
        );

        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(address: *mut Address, bytes: usize);
        cuMemFree_v2(address: Address);
        cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        cuMemFreeHost(address: *mut c_void);
        cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: Object);
        cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: Object);
        cuMemcpyDtoDAsync_v2(to: Address, from: Address, bytes: usize, stream: Object);
        cuMemsetD8Async(to: Address, byte: u8, bytes: usize, stream: Object);
        cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: Address);

        cuStreamCreate(stream: *mut Object, flags: c_uint);
        cuStreamDestroy_v2(stream: Object);
        cuStreamGetCtx(stream: Object, context: *mut Object);
        cuStreamSynchronize(stream: Object);
        cuStreamWaitEvent(stream: Object, event: Object, flags: c_uint);
        cuEventCreate(event: *mut Object, flags: c_uint);
        cuEventDestroy_v2(event: Object);
        cuEventRecord(event: Object, stream: Object);
        cuEventSynchronize(event: Object);
        cuEventElapsedTime(milliseconds: *mut f32, from: Object, to: Object);
    }
    optional {}
}
