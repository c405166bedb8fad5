//! Checks the function table and the constants against cudarc's bindings, which are generated from cuda.h.
//!
//! docs/decisions/0006-driver-loading.md explains why the bindings are not called directly.

use crate::driver::*;
use crate::symbols::Symbols;
use cudarc::driver::sys::*;

/// Sizes of arguments and result.
type Sizes = Vec<usize>;

/// A pointer to a function.
trait Signature {
    fn sizes() -> Sizes;
}

macro_rules! signatures {
    ($($name:ident: $($arg:ident)*;)*) => {$(
        impl<$($arg,)* R> Signature for unsafe extern "C" fn($($arg),*) -> R {
            fn sizes() -> Sizes {
                vec![$(size_of::<$arg>(),)* size_of::<R>()]
            }
        }
        /// The sizes of a cudarc function with this many arguments.
        fn $name<$($arg,)* R>(_function: unsafe fn($($arg),*) -> R) -> Sizes {
            vec![$(size_of::<$arg>(),)* size_of::<R>()]
        }
    )*};
}
signatures! {
    a1: A;
    a2: A B;
    a3: A B C;
    a4: A B C D;
    a5: A B C D E;
    a11: A B C D E F G H I J K;
}

/// The sizes of a field of the table.
fn field<F: Signature>(_field: fn(&Symbols) -> &F) -> Sizes {
    F::sizes()
}

#[test]
fn every_function_has_the_arguments_of_the_header() {
    let mut compared = 0;
    macro_rules! same {
        ($($name:ident $count:ident,)*) => {$(
            assert_eq!(field(|table| &table.$name), $count($name), stringify!($name));
            compared += 1;
        )*};
    }
    same! {
        cuInit a1,
        cuDriverGetVersion a1,
        cuGetErrorName a2,
        cuDeviceGetCount a1,
        cuDeviceGet a2,
        cuDeviceGetName a3,
        cuDeviceGetAttribute a3,
        cuDeviceTotalMem_v2 a2,
        cuDevicePrimaryCtxRetain a2,
        cuDevicePrimaryCtxRelease_v2 a1,
        cuCtxPushCurrent_v2 a1,
        cuCtxPopCurrent_v2 a1,
        cuModuleLoadDataEx a5,
        cuModuleUnload a1,
        cuModuleGetFunction a3,
        cuOccupancyMaxActiveBlocksPerMultiprocessor a4,
        cuLaunchKernel a11,
        cuMemGetInfo_v2 a2,
        cuMemAlloc_v2 a2,
        cuMemFree_v2 a1,
        cuMemHostAlloc a3,
        cuMemFreeHost a1,
        cuMemcpyHtoDAsync_v2 a4,
        cuMemcpyDtoHAsync_v2 a4,
        cuMemcpyDtoDAsync_v2 a4,
        cuMemsetD8Async a4,
        cuPointerGetAttribute a3,
        cuStreamCreate a2,
        cuStreamDestroy_v2 a1,
        cuStreamGetCtx a2,
        cuStreamSynchronize a1,
        cuStreamWaitEvent a3,
        cuEventCreate a2,
        cuEventDestroy_v2 a1,
        cuEventRecord a2,
        cuEventSynchronize a1,
        cuEventElapsedTime a3,
    }
    assert_eq!(size_of::<Symbols>(), compared * size_of::<fn()>(), "a function is not compared");
}

#[test]
fn every_number_is_the_headers() {
    use CUdevice_attribute_enum::*;
    use CUjit_option_enum::*;
    use CUpointer_attribute_enum::*;
    assert_eq!(MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as i32);
    assert_eq!(CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as i32);
    assert_eq!(CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as i32);
    assert_eq!(POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT as i32);
    assert_eq!(POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE as i32);
    assert_eq!(POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED as i32);
    assert_eq!(POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as i32);
    assert_eq!(MEMORY_HOST, CUmemorytype_enum::CU_MEMORYTYPE_HOST as u32);
    assert_eq!(JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER as i32);
    assert_eq!(JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as i32);
    assert_eq!(STREAM_NON_BLOCKING, CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32);
    assert_eq!(HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
}

#[test]
fn sticky_codes_have_their_names() {
    use cudaError_enum::*;
    let named = [
        CUDA_ERROR_DEINITIALIZED,
        CUDA_ERROR_ECC_UNCORRECTABLE,
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED,
    ];
    // CUDA_ERROR_CONTAINED (226) is newer than these bindings.
    let known: Vec<i32> = crate::error::STICKY.into_iter().filter(|code| *code != 226).collect();
    assert_eq!(known, named.map(|code| code as i32));
}
