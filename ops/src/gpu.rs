//! The GPU backends of this build. Everything that depends on the features `cuda` and `rocm` is in this file:
//! a backend whose feature is off is replaced by a module with the same functions, which opens no device.

#[cfg(feature = "cuda")]
pub(crate) use lockstep_cuda as cuda;
#[cfg(feature = "rocm")]
pub(crate) use lockstep_rocm as rocm;

/// Stands in for `lockstep-cuda`.
#[cfg(not(feature = "cuda"))]
pub(crate) mod cuda {
    super::absent::backend!("CUDA", "cuda");
}

/// Stands in for `lockstep-rocm`.
#[cfg(not(feature = "rocm"))]
pub(crate) mod rocm {
    super::absent::backend!("HIP", "rocm");
}

#[cfg(not(all(feature = "cuda", feature = "rocm")))]
mod absent {
    use crate::Compiled;
    use lockstep_gpu::{DeviceInfo, Error, Geometry, Stopwatch};
    use std::ffi::c_void;
    use std::sync::Arc;

    /// The functions and types that this crate uses of a backend.
    macro_rules! backend {
        ($api:literal, $feature:literal) => {
            pub(crate) use super::absent::{Buffer, Nothing as Gpu, Nothing as Stream};
            use lockstep_gpu::{Error, Report};

            fn error() -> Error {
                Error::NotBuilt { api: $api, feature: $feature }
            }

            pub(crate) fn open(_ordinal: usize) -> Result<Gpu, Error> {
                Err(error())
            }

            pub(crate) fn devices() -> Report {
                Report::absent($api, error())
            }
        };
    }
    pub(crate) use backend;

    /// A device, stream or buffer of a backend that is not in this build: there is no value of this type. The
    /// field is private, so that callers compile without warnings of unreachable code.
    #[derive(Clone, Debug)]
    pub(crate) struct Nothing(Never);

    #[derive(Clone, Debug)]
    enum Never {}

    pub(crate) type Buffer<T> = <T as Of>::Buffer;

    /// Gives [`Buffer`] the parameter that the backends' own type has.
    pub(crate) trait Of {
        type Buffer;
    }

    impl<T> Of for T {
        type Buffer = Nothing;
    }

    // Functions are `unsafe` where the backends' are, so that callers are the same in every build.
    #[allow(unsafe_code)]
    impl Nothing {
        pub(crate) fn info(&self) -> &DeviceInfo {
            match self.0 {}
        }

        pub(crate) fn geometry(&self) -> Geometry {
            match self.0 {}
        }

        pub(crate) fn with_geometry(&self, _: Geometry) -> Nothing {
            match self.0 {}
        }

        pub(crate) fn with_stopwatch(&self, _: &Arc<Stopwatch>) -> Nothing {
            match self.0 {}
        }

        pub(crate) fn run<K: Compiled>(&self, _: &K) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) fn load(&self, _: &[&str]) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) fn stream(&self) -> Result<Nothing, Error> {
            match self.0 {}
        }

        pub(crate) unsafe fn stream_from_raw(&self, _: *mut c_void) -> Result<Nothing, Error> {
            match self.0 {}
        }

        pub(crate) fn synchronize(&self) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) fn alloc(&self, _: usize) -> Result<Nothing, Error> {
            match self.0 {}
        }

        pub(crate) fn upload(&self, _: &Nothing, _: &[u8]) -> Result<Nothing, Error> {
            match self.0 {}
        }

        pub(crate) unsafe fn download<T>(&self, _: &Nothing, _: *const T, _: &mut [T]) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) unsafe fn write_to<T>(&self, _: &Nothing, _: &[T], _: *mut T) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) unsafe fn launch<K: Compiled>(&self, _: &Nothing, _: &K) -> Result<(), Error> {
            match self.0 {}
        }

        pub(crate) fn as_ptr(&self) -> *mut u8 {
            match self.0 {}
        }

        pub(crate) fn len(&self) -> usize {
            match self.0 {}
        }
    }
}
