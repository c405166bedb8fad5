//! What a driver library is made of, without a vendor's names: devices with memory, modules, streams, events,
//! pinned host memory, the state of being lost, and failures that tests ask for.
//!
//! ```text
//! vendor      codes, defaults and the interpreter of one API
//! settings    which machine is played: LOCKSTEP_EMULATOR
//! failures    calls that are to fail
//! host        memory of the process, through who may touch it
//! device      one device: what it holds, what waits in its streams, what it found
//! streams     queues: work happens when somebody waits for it
//! machine     all of it, behind locks; the calls of an API are its methods: contexts, modules, memory
//! queues      more of them: copies, streams, events, launches
//! ```
//!
//! Every result is a vendor's code. What was queued runs as late as the API allows, when it is waited for:
//! whoever reads too early finds nothing there.

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
