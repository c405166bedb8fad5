//! The functions of AMD's HIP runtime that `lockstep-rocm` uses (rocm/src/symbols.rs), on emulated devices.
//! AMD's manual says what each does; docs/emulator.md lists the differences.
//!
//! ```text
//! vendor      codes, names, the machine that is simulated unless LOCKSTEP_EMULATOR says otherwise
//! load        code objects, read by the interpreter
//! current     the device and the last error of a thread
//! devices     devices, names of codes
//! modules     modules, occupancy, launches
//! memory      device memory, pinned memory, copies, owners of addresses
//! streams     streams and events
//! ```
#![allow(non_snake_case)]

mod current;
pub mod devices;
mod load;
pub mod memory;
pub mod modules;
pub mod streams;
mod vendor;

use lockstep_emulated_abi::Library;

/// This library.
static LIBRARY: Library = Library::new(&vendor::VENDOR, current::maybe);

/// Defines functions of the API. Each call is counted, failed if requested, and its failure remembered; no
/// panic escapes.
macro_rules! api {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$machine:ident| $body:block)*) => {$(
        /// See AMD's manual.
        ///
        /// # Safety
        /// Pointers are null or what the manual asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            $crate::current::remember($crate::LIBRARY.call(stringify!($name), |$machine| $body))
        }
    )*};
}
use api;

lockstep_emulated_abi::exports!(LIBRARY);
