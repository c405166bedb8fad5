//! The driver's calls. Handles are numbers, except that memory handles are real addresses.

use crate::entries::{self, Arguments};
use crate::machine::{CURRENT, HostDriver, handle, number};
use crate::state::{Event, Stream, Task};
use lockstep_gpu::{
    DeviceInfo, Direction, Driver, Error, Fault, Handle, Kind, Owner, Refusal, Shape, Version,
};
use std::ffi::{CStr, c_void};

/// Threads that a multiprocessor holds at once.
const RESIDENT_THREADS: u32 = 512;

// SAFETY: pinned memory is an allocation of the host; copies happen when their stream is drained.
#[allow(unsafe_code)]
unsafe impl Driver for HostDriver {
    fn api(&self) -> &'static str {
        "HOST"
    }
    fn library(&self) -> &str {
        "this process"
    }
    fn shape(&self) -> Shape {
        self.settings.shape
    }
    fn version(&self) -> Result<Version, Fault> {
        self.call("version").map(|()| self.settings.version)
    }
    fn needed(&self) -> Result<Version, Error> {
        Ok(self.settings.needed)
    }
    fn count(&self) -> Result<usize, Fault> {
        self.call("count").map(|()| self.settings.devices.len())
    }
    fn info(&self, ordinal: usize) -> Result<DeviceInfo, Fault> {
        self.call("info")?;
        self.settings.devices.get(ordinal).cloned().ok_or_else(|| HostDriver::fault("info", 101, Kind::Call))
    }
    fn supports(&self, arch: &str) -> Result<(), &'static str> {
        if arch == self.settings.supported { Ok(()) } else { Err(self.settings.supported) }
    }

    fn attach(&self, ordinal: usize) -> Result<Handle, Fault> {
        self.call("attach")?;
        *self.state().contexts.entry(ordinal + 1).or_default() += 1;
        Ok(handle(ordinal + 1))
    }

    unsafe fn detach(&self, _ordinal: usize, context: Handle) {
        let (mut state, context) = (self.state(), number(context));
        let left = state.contexts.get_mut(&context).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            // Resources of a lost context are gone with it.
            if state.lost.remove(&context).is_some() {
                state.streams.retain(|_, stream| stream.context != context);
                state.events.retain(|_, event| event.context != context);
                state.modules.retain(|_, of| *of != context);
                state.blocks.retain(|address, block| {
                    if block.context == context {
                        let memory = std::ptr::with_exposed_provenance_mut::<u8>(*address);
                        // SAFETY: allocated with this layout in `get`; its owner is lost.
                        unsafe { std::alloc::dealloc(memory, block.layout) };
                    }
                    block.context != context
                });
            }
            state.streams.remove(&(usize::MAX - context));
            state.contexts.remove(&context);
        }
    }

    unsafe fn enter(&self, _ordinal: usize, context: Handle) -> Result<Handle, Fault> {
        self.call("enter").inspect_err(|fault| {
            // No context is current yet: this one is lost.
            if fault.kind == Kind::Sticky {
                self.state().lost.insert(number(context), fault.clone());
            }
        })?;
        CURRENT.with_borrow_mut(|stack| stack.push(number(context)));
        Ok(Handle::NULL)
    }

    unsafe fn leave(&self, _previous: Handle) {
        CURRENT.with_borrow_mut(Vec::pop);
    }

    const ONE_MODULE: bool = false;

    fn load(&self, _entry: &str) -> Result<Handle, Refusal> {
        let refuse = |fault| Refusal { fault, log: "line 1: as you asked".to_owned() };
        let context = self.call_within("load").map_err(refuse)?;
        let mut state = self.state();
        let module = state.new_handle();
        state.modules.insert(module, context);
        Ok(handle(module))
    }

    unsafe fn unload(&self, module: Handle) {
        self.state().modules.remove(&number(module));
    }

    unsafe fn function(&self, module: Handle, name: &CStr) -> Result<Handle, Fault> {
        self.call_within("function")?;
        let mut state = self.state();
        let entry = name.to_str().ok().and_then(entries::named);
        let entry = entry.filter(|_| state.modules.contains_key(&number(module)));
        state.functions.push(entry.ok_or_else(|| HostDriver::fault("function", 500, Kind::Call))?);
        Ok(handle(state.functions.len()))
    }

    unsafe fn resident_blocks(&self, _function: Handle, threads: u32) -> Result<u32, Fault> {
        self.call_within("resident_blocks")?;
        Ok(RESIDENT_THREADS / threads)
    }

    fn memory(&self) -> Result<(usize, usize), Fault> {
        self.call_within("memory")?;
        let used: usize = self.state().blocks.values().map(|block| block.layout.size()).sum();
        Ok((self.settings.memory - used, self.settings.memory))
    }

    fn alloc(&self, bytes: usize) -> Result<Handle, Fault> {
        let context = self.call_within("alloc")?;
        self.get(bytes, context, false)
    }

    unsafe fn free(&self, memory: Handle) -> Result<(), Fault> {
        let context = self.call_within("free")?;
        let streams: Vec<usize> = self.state().streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.drain(stream))?;
        // SAFETY: the caller's.
        unsafe { self.give(memory, context, false) }
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Handle, Fault> {
        let context = self.call_within("alloc_pinned")?;
        self.get(bytes, context, true)
    }

    unsafe fn free_pinned(&self, memory: Handle) -> Result<(), Fault> {
        let context = self.call_within("free_pinned")?;
        // SAFETY: the caller's.
        unsafe { self.give(memory, context, true) }
    }

    unsafe fn copy(
        &self,
        to: Handle,
        from: Handle,
        bytes: usize,
        direction: Direction,
        stream: Handle,
    ) -> Result<(), Fault> {
        let context = self.call_within("copy")?;
        let on_device = |memory| self.state().holds(context, number(memory), bytes);
        let good = match direction {
            Direction::Upload => on_device(to),
            Direction::Download => on_device(from),
            Direction::Device => on_device(to) && on_device(from),
        };
        if !good {
            return Err(HostDriver::fault("copy", 1, Kind::Call));
        }
        self.queue(stream, Task::Copy { to, from, bytes })
    }

    unsafe fn fill(&self, to: Handle, byte: u8, bytes: usize, stream: Handle) -> Result<(), Fault> {
        let context = self.call_within("fill")?;
        if !self.state().holds(context, number(to), bytes) {
            return Err(HostDriver::fault("fill", 1, Kind::Call));
        }
        self.queue(stream, Task::Fill { to, byte, bytes })
    }

    fn owner(&self, address: Handle) -> Owner {
        if let Err(fault) = self.call_within("owner") {
            return Owner::Unknown(fault);
        }
        match self.state().block(number(address)) {
            Some((_, block)) if block.pinned => Owner::Shared,
            Some((_, block)) => Owner::Device {
                ordinal: HostDriver::ordinal(block.context),
                context: Some(handle(block.context)),
            },
            None => Owner::Unknown(HostDriver::fault("owner", 1, Kind::ForeignPointer)),
        }
    }

    fn create_stream(&self) -> Result<Handle, Fault> {
        let context = self.call_within("create_stream")?;
        let mut state = self.state();
        let number = state.new_handle();
        state.streams.insert(number, Stream::new(context));
        Ok(handle(number))
    }

    unsafe fn destroy_stream(&self, stream: Handle) {
        if self.call("destroy_stream").is_ok() {
            _ = self.drain(number(stream));
            self.state().streams.remove(&number(stream));
        }
    }

    unsafe fn owns_stream(&self, stream: Handle, _ordinal: usize, context: Handle) -> Option<bool> {
        self.call_within("owns_stream").ok()?;
        Some(self.state().streams.get(&number(stream)).is_some_and(|s| s.context == number(context)))
    }

    unsafe fn synchronize(&self, stream: Handle) -> Result<(), Fault> {
        self.call_within("synchronize")?;
        self.drain(HostDriver::key(stream))
    }

    fn create_event(&self) -> Result<Handle, Fault> {
        let context = self.call_within("create_event")?;
        let mut state = self.state();
        let number = state.new_handle();
        state.events.insert(number, Event { context, on: None, at: None });
        Ok(handle(number))
    }

    unsafe fn destroy_event(&self, event: Handle) {
        if self.call("destroy_event").is_ok() {
            self.state().events.remove(&number(event));
        }
    }

    unsafe fn record(&self, event: Handle, stream: Handle) -> Result<(), Fault> {
        self.call_within("record")?;
        if let Some(event) = self.state().events.get_mut(&number(event)) {
            (event.on, event.at) = (Some(HostDriver::key(stream)), None);
        }
        self.queue(stream, Task::Record(number(event)))
    }

    unsafe fn wait(&self, stream: Handle, event: Handle) -> Result<(), Fault> {
        self.call_within("wait")?;
        let on = self.state().events.get(&number(event)).and_then(|event| event.on);
        // A stream follows itself anyway.
        let on = on.filter(|on| *on != HostDriver::key(stream));
        on.map_or(Ok(()), |on| self.queue(stream, Task::After(on)))
    }

    unsafe fn synchronize_event(&self, event: Handle) -> Result<(), Fault> {
        self.call_within("synchronize_event")?;
        let on = self.state().events.get(&number(event)).and_then(|event| event.on);
        on.map_or(Ok(()), |on| self.drain(on))
    }

    unsafe fn elapsed(&self, from: Handle, to: Handle) -> Result<f32, Fault> {
        self.call_within("elapsed")?;
        let state = self.state();
        let at = |event: Handle| state.events.get(&number(event)).and_then(|event| event.at);
        let (Some(from), Some(to)) = (at(from), at(to)) else {
            return Err(HostDriver::fault("elapsed", 600, Kind::Call));
        };
        Ok(to.saturating_duration_since(from).as_secs_f32() * 1e3)
    }

    unsafe fn launch(
        &self,
        function: Handle,
        blocks: u32,
        (threads, teams): (u32, u32),
        stream: Handle,
        params: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        self.call_within("launch")?;
        let refuse = |code| Err(HostDriver::fault("launch", code, Kind::Call));
        let shape = self.settings.shape;
        if threads != shape.lanes || !(1..=shape.max_teams_per_block).contains(&teams) || blocks == 0 {
            return refuse(9);
        }
        // As for a kernel with many registers.
        if threads * teams > RESIDENT_THREADS {
            return refuse(701);
        }
        let Some(entry) = self.state().functions.get(number(function) - 1).copied() else {
            return refuse(400);
        };
        // Parameters are copied out now, as a driver does; the arrays they point to are read when the stream
        // runs. SAFETY: the caller's: a u32, 24 pointers, 64 words.
        let arguments = unsafe {
            Arguments {
                teams: params[0].cast::<u32>().read(),
                waves: teams,
                pointers: std::array::from_fn(|i| params[1 + i].cast::<*mut u8>().read()),
                words: std::array::from_fn(|i| {
                    params[1 + lockstep_core::op::MAX_POINTERS + i].cast::<u64>().read()
                }),
            }
        };
        if arguments.teams != if entry.block { blocks } else { blocks * teams } {
            return refuse(9);
        }
        self.state().launched.insert(entry.name);
        self.queue(stream, Task::Launch { entry, arguments: Box::new(arguments) })
    }
}
