//! The HIP runtime functions in use. All but the optional ones have existed since ROCm 4.2.

use std::ffi::{c_char, c_int, c_uint, c_void};

type Object = *mut c_void;

/// `hipPointerAttribute_t`: the same layout in every version; the values of the first field changed with 6.0.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PointerAttributes {
    pub(crate) kind: c_int,
    pub(crate) device: c_int,
    pub(crate) device_pointer: *mut c_void,
    pub(crate) host_pointer: *mut c_void,
    pub(crate) managed: c_int,
    pub(crate) flags: c_uint,
    /// Space for fields that a later version may append.
    pub(crate) room: [u64; 8],
}

lockstep_gpu::symbols! {
    /// The table.
    struct Symbols {
        hipDriverGetVersion(version: *mut c_int);
        hipGetErrorName(code: c_int) -> *const c_char;
        hipGetLastError();

        hipGetDeviceCount(count: *mut c_int);
        hipDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
        hipDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        hipDeviceTotalMem(bytes: *mut usize, device: c_int);

        hipGetDevice(device: *mut c_int);
        hipSetDevice(device: c_int);

        hipModuleLoadData(module: *mut Object, image: *const c_void);
        hipModuleUnload(module: Object);
        hipModuleGetFunction(function: *mut Object, module: Object, name: *const c_char);
        hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
            blocks: *mut c_int,
            function: Object,
            threads: c_int,
            shared: usize,
        );
        hipModuleLaunchKernel(
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

        hipMemGetInfo(free: *mut usize, total: *mut usize);
        hipMalloc(address: *mut *mut c_void, bytes: usize);
        hipFree(address: *mut c_void);
        hipHostMalloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
        hipHostFree(address: *mut c_void);
        hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Object);
        hipMemsetAsync(to: *mut c_void, byte: c_int, bytes: usize, stream: Object);
        hipPointerGetAttributes(attributes: *mut PointerAttributes, address: *const c_void);

        hipStreamCreateWithFlags(stream: *mut Object, flags: c_uint);
        hipStreamDestroy(stream: Object);
        hipStreamSynchronize(stream: Object);
        hipStreamWaitEvent(stream: Object, event: Object, flags: c_uint);
        hipEventCreateWithFlags(event: *mut Object, flags: c_uint);
        hipEventDestroy(event: Object);
        hipEventRecord(event: Object, stream: Object);
        hipEventSynchronize(event: Object);
        hipEventElapsedTime(milliseconds: *mut f32, from: Object, to: Object);
    }
    optional {
        // Two layouts of the properties: this name fills the one of 6.0 and later, the next the older one.
        hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int);
        hipGetDeviceProperties(properties: *mut c_void, device: c_int);
        // Since 5.6.
        hipStreamGetDevice(stream: Object, device: *mut c_int);
    }
}
