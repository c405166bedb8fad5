//! The functions of NVIDIA's driver API that `lockstep-cuda` uses (cuda/src/symbols.rs), and those that
//! cudarc also calls, on emulated devices. NVIDIA's manual says what each does; docs/emulator.md lists the
//! differences.
//!
//! ```text
//! vendor      codes, names, the machine that is simulated unless LOCKSTEP_EMULATOR says otherwise
//! load        PTX, read by the interpreter
//! current     the context that is current on a thread
//! devices     initialisation, devices, contexts, names of codes
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

/// Defines functions of the API. Each call is counted and failed if requested; no panic escapes.
macro_rules! api {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$machine:ident| $body:block)*) => {$(
        /// See NVIDIA's manual.
        ///
        /// # Safety
        /// Pointers are null or what the manual asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            $crate::LIBRARY.call(stringify!($name), |$machine| $body)
        }
    )*};
}
use api;

lockstep_emulated_abi::exports!(LIBRARY);
