//! The basis of a driver library, without a vendor's names: devices with memory, modules, streams, events,
//! pinned host memory, loss of a device, and failures that tests request.
//!
//! ```text
//! vendor      codes, defaults and the interpreter of one API
//! settings    the machine that is simulated: LOCKSTEP_EMULATOR
//! failures    requested failures
//! host        memory of the process, touched only by those who may
//! device      one device: its objects, the work queued in its streams, its findings
//! streams     queues: work happens when somebody waits for it
//! machine     all of it, behind locks; its methods are the calls of an API: contexts, modules, memory
//! queues      more of them: copies, streams, events, launches
//! ```
//!
//! Every result is a vendor's code. Queued work runs as late as the API allows, when somebody waits for it,
//! so whoever reads too early finds no result.

mod device;
mod failures;
mod host;
mod live;
mod machine;
mod queues;
mod settings;
mod streams;
mod vendor;

pub use failures::Failure;
pub use host::Host;
pub use live::Live;
pub use machine::{Machine, Owner};
pub use queues::{Launch, Way};
pub use settings::Settings;
pub use vendor::{Codes, Loader, Vendor};

#[cfg(test)]
mod tests;
