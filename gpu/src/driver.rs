//! What a vendor's API must do. Everything above it is written once.

use crate::{Error, Fault, Kind, Refusal, Version};
use std::ffi::{CStr, c_void};
use std::fmt;

/// A vendor's handle: context, stream, event, module or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub *mut c_void);

impl Handle {
    /// No object; as a stream, the default one.
    pub const NULL: Handle = Handle(std::ptr::null_mut());
}

// SAFETY: a handle is a token. Both vendors allow any thread to use any handle, and nobody here looks behind
// it.
#[allow(unsafe_code)]
unsafe impl Send for Handle {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Handle {}

/// How a vendor's device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads of a team: 32 (a warp) or 64 (a wave).
    pub lanes: u32,
    /// Teams of a block, unless somebody asks otherwise.
    pub teams_per_block: u32,
    /// The most teams of a block that the entry points can count.
    pub max_teams_per_block: u32,
}

/// A device, before it is opened.
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

/// Whose memory an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Memory of a device; of one context, if the driver says so.
    Device {
        /// Number of the device.
        ordinal: usize,
        /// The context that allocated it, if it belongs to one.
        context: Option<Handle>,
    },
    /// Memory that every device can reach: pinned or managed.
    Shared,
    /// Not memory that the driver knows.
    Unknown(Fault),
}

impl Owner {
    /// Of an address about which asking failed: that a call was refused says that the driver does not know
    /// it.
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
            Owner::Shared => f.write_str("memory that every device reaches"),
            Owner::Unknown(fault) => write!(f, "memory that the driver does not know: {fault}"),
        }
    }
}

/// Between which memories a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to device.
    Upload,
    /// Device to host.
    Download,
    /// Within the device.
    Device,
}

/// A loaded driver. Its methods are one call of the vendor's API each, on the context that is current on the
/// thread ([`enter`](Driver::enter)), and return what the API returned.
///
/// # Safety
/// [`alloc_pinned`](Driver::alloc_pinned) returns host memory that is writable and aligned to 256 bytes until
/// it is freed, and a copy or fill that was waited for has happened.
#[allow(unsafe_code, clippy::missing_safety_doc)]
pub unsafe trait Driver: Send + Sync + 'static {
    /// `CUDA` or `HIP`.
    fn api(&self) -> &'static str;
    /// The file that was loaded.
    fn library(&self) -> &str;
    /// How its devices are divided.
    fn shape(&self) -> Shape;

    /// The driver's version.
    fn version(&self) -> Result<Version, Fault>;
    /// The version that the built kernels need. Errors when this build holds none.
    fn needed(&self) -> Result<Version, Error>;
    /// Number of devices.
    fn count(&self) -> Result<usize, Fault>;
    /// What device `ordinal` is.
    fn info(&self, ordinal: usize) -> Result<DeviceInfo, Fault>;
    /// Whether the kernels run on this architecture; otherwise what they need.
    fn supports(&self, arch: &str) -> Result<(), &'static str>;

    /// The context of a device that the rest of the process uses too.
    fn attach(&self, ordinal: usize) -> Result<Handle, Fault>;
    /// Gives back what [`attach`](Driver::attach) took.
    ///
    /// # Safety
    /// Nothing of it is used afterwards.
    unsafe fn detach(&self, ordinal: usize, context: Handle);
    /// Makes a context current on this thread and returns a token for the one that was.
    ///
    /// # Safety
    /// `context` came from [`attach`](Driver::attach) for this device.
    unsafe fn enter(&self, ordinal: usize, context: Handle) -> Result<Handle, Fault>;
    /// Makes the one that was current again.
    ///
    /// # Safety
    /// `previous` came from [`enter`](Driver::enter), on this thread, and nothing entered since is still in.
    unsafe fn leave(&self, previous: Handle);

    /// Loads the built kernels.
    fn load(&self) -> Result<Handle, Refusal>;
    /// # Safety
    /// Nothing of it is used afterwards.
    unsafe fn unload(&self, module: Handle);
    /// An entry point.
    ///
    /// # Safety
    /// `module` is loaded.
    unsafe fn function(&self, module: Handle, name: &CStr) -> Result<Handle, Fault>;
    /// How many blocks of `threads` threads a multiprocessor holds at once.
    ///
    /// # Safety
    /// `function` is of a loaded module.
    unsafe fn resident_blocks(&self, function: Handle, threads: u32) -> Result<u32, Fault>;

    /// Bytes free and bytes in all.
    fn memory(&self) -> Result<(usize, usize), Fault>;
    /// Device memory, aligned to 256 bytes.
    fn alloc(&self, bytes: usize) -> Result<Handle, Fault>;
    /// # Safety
    /// It came from `alloc` and is not used afterwards.
    unsafe fn free(&self, memory: Handle) -> Result<(), Fault>;
    /// Host memory that copies can run from and to.
    fn alloc_pinned(&self, bytes: usize) -> Result<Handle, Fault>;
    /// # Safety
    /// It came from `alloc_pinned` and is not used afterwards.
    unsafe fn free_pinned(&self, memory: Handle) -> Result<(), Fault>;
    /// Copies, in the order of the stream.
    ///
    /// # Safety
    /// Both sides hold `bytes` bytes until the stream has done it; nobody uses them otherwise meanwhile.
    unsafe fn copy(
        &self,
        to: Handle,
        from: Handle,
        bytes: usize,
        direction: Direction,
        stream: Handle,
    ) -> Result<(), Fault>;
    /// Sets bytes of device memory, in the order of the stream.
    ///
    /// # Safety
    /// As for [`copy`](Driver::copy).
    unsafe fn fill(&self, to: Handle, byte: u8, bytes: usize, stream: Handle) -> Result<(), Fault>;
    /// Whose memory an address is. Any address may be asked about.
    fn owner(&self, address: Handle) -> Owner;

    /// A stream that does not wait for the default one.
    fn create_stream(&self) -> Result<Handle, Fault>;
    /// # Safety
    /// It came from `create_stream` and is not used afterwards.
    unsafe fn destroy_stream(&self, stream: Handle);
    /// Whether the stream is one of this context; `None` when the driver cannot say.
    ///
    /// # Safety
    /// `stream` is a stream.
    unsafe fn owns_stream(&self, stream: Handle, ordinal: usize, context: Handle) -> Option<bool>;
    /// Waits for everything on the stream.
    ///
    /// # Safety
    /// `stream` is a stream.
    unsafe fn synchronize(&self, stream: Handle) -> Result<(), Fault>;

    /// An event that takes time.
    fn create_event(&self) -> Result<Handle, Fault>;
    /// # Safety
    /// It came from `create_event` and is not used afterwards.
    unsafe fn destroy_event(&self, event: Handle);
    /// # Safety
    /// Both exist.
    unsafe fn record(&self, event: Handle, stream: Handle) -> Result<(), Fault>;
    /// What comes on the stream from now on waits for the event.
    ///
    /// # Safety
    /// Both exist.
    unsafe fn wait(&self, stream: Handle, event: Handle) -> Result<(), Fault>;
    /// Waits for the event.
    ///
    /// # Safety
    /// It exists.
    unsafe fn synchronize_event(&self, event: Handle) -> Result<(), Fault>;
    /// Milliseconds between two events that have happened.
    ///
    /// # Safety
    /// Both exist.
    unsafe fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Fault>;

    /// The most layers of a grid, where a team takes one row only: the grid has a layer of teams for every
    /// further row. 1 where teams take row after row (kernels/src/entry.rs).
    fn max_layers(&self) -> u32 {
        1
    }

    /// [`launch`](Driver::launch) with several layers of blocks.
    ///
    /// # Safety
    /// As there; and no more than [`max_layers`](Driver::max_layers).
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
    /// `params` point to the values of the entry point's parameters, which are good for this device.
    unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        block: (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault>;
}
