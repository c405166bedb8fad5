//! The functions of AMD's HIP runtime that `lockstep-rocm` uses (rocm/src/symbols.rs), on emulated devices.
//! What each does stands in AMD's manual; what differs, in docs/emulator.md.
//!
//! ```text
//! vendor      codes, names, the machine that is played unless LOCKSTEP_EMULATOR says otherwise
//! load        code objects, read by the interpreter
//! current     the device and the last error of a thread
//! devices     devices, names of codes
//! modules     modules, occupancy, launches
//! memory      device memory, pinned memory, copies, whose an address is
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

/// Functions of the API: counted, failed if they are to fail, remembered if they did, and no panic leaves
/// them.
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
