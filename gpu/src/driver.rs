//! The interface that a vendor's API must provide. Everything above it is written once.

use crate::{Error, Fault, Kind, Refusal, Version};
use std::ffi::{CStr, c_void};
use std::fmt;

/// A vendor's handle: context, stream, event, module or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub *mut c_void);

impl Handle {
    /// No object; as a stream, the default stream.
    pub const NULL: Handle = Handle(std::ptr::null_mut());
}

// SAFETY: a handle is a token. Both vendors allow any thread to use any handle, and it is never dereferenced
// here.
#[allow(unsafe_code)]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Handle {}

/// How a vendor's device groups its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads per team: 32 (a warp) or 64 (a wave).
    pub lanes: u32,
    /// Default number of teams per block.
    pub teams_per_block: u32,
    /// Maximum number of teams per block that the entry points support. If it is above 1, there are entry
    /// points in which the teams of a block [share a row](lockstep_core::op::OpInfo::blocks).
    pub max_teams_per_block: u32,
}

/// Description of a device, available before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its architecture: `sm_90`, `gfx942`.
    pub arch: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Multiprocessors or compute units.
    pub units: u32,
}

/// Who owns the memory at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Memory of a device, and of one context if the driver says so.
    Device {
        /// Number of the device.
        ordinal: usize,
        /// The context that allocated it, if it belongs to one.
        context: Option<Handle>,
    },
    /// Memory that every device can reach: pinned or managed.
    Shared,
    /// Memory that the driver does not know.
    Unknown(Fault),
}

impl Owner {
    /// Returns the owner for an address whose query failed. A refused query means that the driver does not
    /// know the address.
    pub fn unknown(fault: Fault) -> Owner {
        Owner::Unknown(match fault.kind {
            Kind::Call => Fault { kind: Kind::ForeignPointer, ..fault },
            _ => fault,
        })
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Device { ordinal, context: None } => write!(f, "memory of device {ordinal}"),
            Owner::Device { ordinal, context: Some(context) } => {
                write!(f, "memory of device {ordinal}, context {:#x}", context.0.addr())
            }
            Owner::Shared => f.write_str("memory that every device can access"),
            Owner::Unknown(fault) => write!(f, "memory unknown to the driver: {fault}"),
        }
    }
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to device.
    Upload,
    /// Device to host.
    Download,
    /// Within the device.
    Device,
}

/// A loaded driver. Each method is one call of the vendor's API, on the context that is current on the thread
/// ([`enter`](Driver::enter)), and returns what the API returned.
///
/// # Safety
/// [`alloc_pinned`](Driver::alloc_pinned) returns host memory that stays writable and is aligned to 256 bytes
/// until it is freed; a copy or fill that was waited for has happened.
#[allow(unsafe_code, clippy::missing_safety_doc)]
pub unsafe trait Driver: Send + Sync + 'static {
    /// `CUDA` or `HIP`.
    fn api(&self) -> &'static str;
    /// The library file that was loaded.
    fn library(&self) -> &str;
    /// How its devices group threads.
    fn shape(&self) -> Shape;

    /// The driver's version.
    fn version(&self) -> Result<Version, Fault>;
    /// The driver version that the built kernels need. Errors if this build holds no kernels.
    fn needed(&self) -> Result<Version, Error>;
    /// Number of devices.
    fn count(&self) -> Result<usize, Fault>;
    /// Describes device `ordinal`.
    fn info(&self, ordinal: usize) -> Result<DeviceInfo, Fault>;
    /// Returns whether the kernels run on this architecture; the error says what they need.
    fn supports(&self, arch: &str) -> Result<(), &'static str>;

    /// Attaches to the device's context that the rest of the process also uses.
    fn attach(&self, ordinal: usize) -> Result<Handle, Fault>;
    /// Releases what [`attach`](Driver::attach) took.
    ///
    /// # Safety
    /// Nothing that belongs to the context is used afterwards.
    unsafe fn detach(&self, ordinal: usize, context: Handle);
    /// Makes a context current on this thread and returns a token for the previous one.
    ///
    /// # Safety
    /// `context` came from [`attach`](Driver::attach) for this device.
    unsafe fn enter(&self, ordinal: usize, context: Handle) -> Result<Handle, Fault>;
    /// Makes the previous context current again.
    ///
    /// # Safety
    /// `previous` came from [`enter`](Driver::enter) on this thread, and every later `enter` has been left.
    unsafe fn leave(&self, previous: Handle);

    /// Whether one module holds every entry point. If not, each has its own: the driver compiles what it
    /// loads.
    const ONE_MODULE: bool;
    /// Loads a module with an entry point.
    fn load(&self, entry: &str) -> Result<Handle, Refusal>;
    /// # Safety
    /// Nothing that belongs to the module is used afterwards.
    unsafe fn unload(&self, module: Handle);
    /// Looks up an entry point.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn function(&self, module: Handle, name: &CStr) -> Result<Handle, Fault>;
    /// Returns how many blocks of `threads` threads one multiprocessor holds at once.
    ///
    /// # Safety
    /// `function` belongs to a loaded module.
    unsafe fn resident_blocks(&self, function: Handle, threads: u32) -> Result<u32, Fault>;

    /// Returns the bytes of device memory: free, total.
    fn memory(&self) -> Result<(usize, usize), Fault>;
    /// Allocates device memory, aligned to 256 bytes.
    fn alloc(&self, bytes: usize) -> Result<Handle, Fault>;
    /// # Safety
    /// `memory` came from `alloc` and is not used afterwards.
    unsafe fn free(&self, memory: Handle) -> Result<(), Fault>;
    /// Allocates host memory that copies can use directly.
    fn alloc_pinned(&self, bytes: usize) -> Result<Handle, Fault>;
    /// # Safety
    /// `memory` came from `alloc_pinned` and is not used afterwards.
    unsafe fn free_pinned(&self, memory: Handle) -> Result<(), Fault>;
    /// Copies in stream order.
    ///
    /// # Safety
    /// Both sides hold `bytes` bytes until the stream has done the copy, and are not otherwise used
    /// meanwhile.
    unsafe fn copy(
        &self,
        to: Handle,
        from: Handle,
        bytes: usize,
        direction: Direction,
        stream: Handle,
    ) -> Result<(), Fault>;
    /// Sets bytes of device memory in stream order.
    ///
    /// # Safety
    /// As for [`copy`](Driver::copy).
    unsafe fn fill(&self, to: Handle, byte: u8, bytes: usize, stream: Handle) -> Result<(), Fault>;
    /// Returns who owns the memory at an address. Accepts any address.
    fn owner(&self, address: Handle) -> Owner;

    /// Creates a stream that does not wait for the default stream.
    fn create_stream(&self) -> Result<Handle, Fault>;
    /// # Safety
    /// `stream` came from `create_stream` and is not used afterwards.
    unsafe fn destroy_stream(&self, stream: Handle);
    /// Returns whether the stream belongs to this context; `None` if the driver cannot say.
    ///
    /// # Safety
    /// `stream` is a valid stream.
    unsafe fn owns_stream(&self, stream: Handle, ordinal: usize, context: Handle) -> Option<bool>;
    /// Waits for all work on the stream.
    ///
    /// # Safety
    /// `stream` is a valid stream.
    unsafe fn synchronize(&self, stream: Handle) -> Result<(), Fault>;

    /// Creates an event that records the time.
    fn create_event(&self) -> Result<Handle, Fault>;
    /// # Safety
    /// `event` came from `create_event` and is not used afterwards.
    unsafe fn destroy_event(&self, event: Handle);
    /// # Safety
    /// Both exist.
    unsafe fn record(&self, event: Handle, stream: Handle) -> Result<(), Fault>;
    /// Makes later work on the stream wait for the event.
    ///
    /// # Safety
    /// Both exist.
    unsafe fn wait(&self, stream: Handle, event: Handle) -> Result<(), Fault>;
    /// Waits for the event.
    ///
    /// # Safety
    /// It exists.
    unsafe fn synchronize_event(&self, event: Handle) -> Result<(), Fault>;
    /// Returns the milliseconds between two events that have happened.
    ///
    /// # Safety
    /// Both exist.
    unsafe fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Fault>;

    /// Maximum number of layers in a grid if each team processes a single row; further rows then go to
    /// further layers. 1 if teams loop over rows (kernels/src/entry.rs).
    fn max_layers(&self) -> u32 {
        1
    }

    /// Like [`launch`](Driver::launch), with several layers of blocks.
    ///
    /// # Safety
    /// As for `launch`; at most [`max_layers`](Driver::max_layers) layers.
    #[allow(unsafe_code)]
    unsafe fn launch_layers(
        &self,
        function: Handle,
        (blocks, _layers): (u32, u32),
        block: (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        // SAFETY: the caller's; there is one layer.
        unsafe { self.launch(function, blocks, block, stream, params) }
    }

    /// Launches a kernel over a grid of `blocks` blocks of `threads` × `teams` threads.
    ///
    /// # Safety
    /// `params` point to the values of the entry point's parameters, which are valid for this device.
    unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        block: (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault>;
}
