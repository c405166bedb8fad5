//! The driver's internals: counting calls and making them fail, stream queues, memory.

use crate::settings::Settings;
use crate::state::{Block, Injected, Live, State, Stream, Task};
use lockstep_gpu::{Fault, Handle, Kind};
use std::alloc::Layout;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::without_provenance_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

thread_local! {
    /// Contexts entered on this thread.
    pub(crate) static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The driver, on a machine described by [`Settings`].
pub struct HostDriver {
    pub(crate) settings: Settings,
    state: Mutex<State>,
}

impl std::fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostDriver").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns the handle for this number.
pub(crate) fn handle(number: usize) -> Handle {
    Handle(without_provenance_mut(number))
}

pub(crate) fn number(handle: Handle) -> usize {
    handle.0.addr()
}

impl HostDriver {
    /// Creates a driver for a machine.
    pub fn new(settings: Settings) -> HostDriver {
        HostDriver { settings, state: Mutex::default() }
    }

    /// Returns a fault to inject.
    pub fn fault(function: &'static str, code: i32, kind: Kind) -> Fault {
        Fault { function, code, name: format!("HOST_ERROR_{code}"), kind }
    }

    /// Makes the method `function` fail once, after `spared` more successful calls. A sticky fault loses the
    /// context.
    pub fn inject(&self, function: &'static str, spared: usize, code: i32, kind: Kind) {
        let fault = HostDriver::fault(function, code, kind);
        self.state().injected.push(Injected { function, spared, fault });
    }

    /// Counts what has not been released.
    pub fn live(&self) -> Live {
        self.state().live()
    }

    /// Returns whether an entry point was ever launched.
    pub fn launched(&self, entry: &str) -> bool {
        self.state().launched.contains(entry)
    }

    /// Returns how often a method was called.
    pub fn calls(&self, function: &str) -> usize {
        self.state().calls.get(function).copied().unwrap_or(0)
    }

    /// Returns how many contexts are entered on this thread.
    pub fn entered() -> usize {
        CURRENT.with_borrow(Vec::len)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and fails it if a fault was injected.
    pub(crate) fn call(&self, function: &'static str) -> Result<(), Fault> {
        let mut state = self.state();
        *state.calls.entry(function).or_default() += 1;
        let current = CURRENT.with_borrow(|stack| stack.last().copied());
        if let Some(fault) = current.and_then(|context| state.lost.get(&context)) {
            return Err(fault.clone());
        }
        let Some(at) = state.injected.iter().position(|injected| injected.function == function) else {
            return Ok(());
        };
        if state.injected[at].spared > 0 {
            state.injected[at].spared -= 1;
            return Ok(());
        }
        let fault = state.injected.remove(at).fault;
        if let (Kind::Sticky, Some(context)) = (fault.kind, current) {
            state.lost.insert(context, fault.clone());
        }
        Err(fault)
    }

    /// Like `call`, for a call that needs a context; returns the current one.
    pub(crate) fn call_within(&self, function: &'static str) -> Result<usize, Fault> {
        self.call(function)?;
        CURRENT
            .with_borrow(|stack| stack.last().copied())
            .ok_or_else(|| HostDriver::fault(function, 201, Kind::Call))
    }

    /// A context's number is its device's plus 1.
    pub(crate) fn ordinal(context: usize) -> usize {
        context - 1
    }

    pub(crate) fn queue(&self, stream: Handle, task: Task) -> Result<(), Fault> {
        let context = CURRENT.with_borrow(|stack| stack.last().copied()).unwrap_or(0);
        let mut state = self.state();
        // A context's default stream is created on first use; its number differs from any other stream's.
        let key = if stream == Handle::NULL { usize::MAX - context } else { number(stream) };
        if stream == Handle::NULL {
            state.streams.entry(key).or_insert_with(|| Stream::new(context));
        }
        match state.streams.get_mut(&key) {
            Some(stream) if stream.context == context => {
                stream.tasks.push_back(task);
                Ok(())
            }
            _ => Err(HostDriver::fault("stream", 400, Kind::Call)),
        }
    }

    pub(crate) fn key(stream: Handle) -> usize {
        let context = CURRENT.with_borrow(|stack| stack.last().copied()).unwrap_or(0);
        if stream == Handle::NULL { usize::MAX - context } else { number(stream) }
    }

    /// Runs the tasks queued in a stream.
    pub(crate) fn drain(&self, stream: usize) -> Result<(), Fault> {
        let running = self.state().streams.get(&stream).map(|stream| stream.running.clone());
        let Some(running) = running else { return Ok(()) };
        let _running = running.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (task, context) = {
                let mut state = self.state();
                let Some(stream) = state.streams.get_mut(&stream) else { return Ok(()) };
                let Some(task) = stream.tasks.pop_front() else { return Ok(()) };
                (task, stream.context)
            };
            if let Err(fault) = self.perform(task) {
                let mut state = self.state();
                state.lost.insert(context, fault.clone());
                return Err(fault);
            }
        }
    }

    #[allow(unsafe_code)]
    fn perform(&self, task: Task) -> Result<(), Fault> {
        let bad_address = || HostDriver::fault("stream", 700, Kind::Sticky);
        match task {
            Task::Copy { to, from, bytes } => {
                // SAFETY: whoever queued it vouched for both sides until the stream is waited for, and device
                // sides were checked.
                unsafe { to.0.cast::<u8>().copy_from(from.0.cast(), bytes) };
            }
            Task::Fill { to, byte, bytes } => {
                // SAFETY: as above.
                unsafe { to.0.cast::<u8>().write_bytes(byte, bytes) };
            }
            Task::Launch { entry, arguments } => {
                let (compute, lanes) = (self.settings.compute, self.settings.shape.lanes);
                // SAFETY: the launcher vouched for the arguments.
                let run = AssertUnwindSafe(|| unsafe { (entry.run)(&arguments, compute, lanes) });
                catch_unwind(run).map_err(|_| bad_address())?;
            }
            Task::Record(event) => {
                if let Some(event) = self.state().events.get_mut(&event) {
                    event.at = Some(Instant::now());
                }
            }
            Task::After(stream) => self.drain(stream)?,
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    pub(crate) fn get(&self, bytes: usize, context: usize, pinned: bool) -> Result<Handle, Fault> {
        let no_memory = || HostDriver::fault("alloc", 2, Kind::OutOfMemory);
        let mut state = self.state();
        let used: usize = state.blocks.values().map(|block| block.layout.size()).sum();
        if bytes == 0 {
            return Err(HostDriver::fault("alloc", 1, Kind::Call));
        }
        if used.saturating_add(bytes) > self.settings.memory {
            return Err(no_memory());
        }
        let layout = Layout::from_size_align(bytes, 256).map_err(|_| no_memory())?;
        // SAFETY: not of size zero.
        let memory = unsafe { std::alloc::alloc(layout) };
        if memory.is_null() {
            return Err(no_memory());
        }
        // Nobody may rely on zeros.
        // SAFETY: just allocated, of this size.
        unsafe { memory.write_bytes(0xA5, bytes) };
        memory.expose_provenance();
        state.blocks.insert(memory.addr(), Block { layout, context, pinned });
        Ok(Handle(memory.cast()))
    }

    /// # Safety
    /// The memory is not used afterwards.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn give(&self, memory: Handle, context: usize, pinned: bool) -> Result<(), Fault> {
        let mut state = self.state();
        match state.blocks.get(&number(memory)) {
            Some(block) if block.pinned == pinned && (pinned || block.context == context) => {}
            _ => return Err(HostDriver::fault("free", 1, Kind::Call)),
        }
        if let Some(block) = state.blocks.remove(&number(memory)) {
            // SAFETY: allocated with this layout in `get`.
            unsafe { std::alloc::dealloc(memory.0.cast(), block.layout) };
        }
        Ok(())
    }
}

impl Drop for HostDriver {
    /// Frees memory that could not be released earlier.
    fn drop(&mut self) {
        for (address, block) in std::mem::take(&mut self.state().blocks) {
            let memory = std::ptr::with_exposed_provenance_mut::<u8>(address);
            // SAFETY: allocated with this layout in `get`; nothing that uses it outlives its driver.
            #[allow(unsafe_code)]
            unsafe {
                std::alloc::dealloc(memory, block.layout)
            };
        }
    }
}
