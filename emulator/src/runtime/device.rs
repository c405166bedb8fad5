//! One device: its objects and its findings.

use super::live::Live;
use super::streams::{DEFAULT, Event, Stream};
use super::vendor::Codes;
use crate::counts::Counts;
use crate::fault::Fault;
use crate::launch::Program;
use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A device, or what CUDA calls its primary context.
pub(super) struct Device {
    pub(super) codes: Codes,
    pub(super) memory: Memory,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) events: BTreeMap<u64, Event>,
    pub(super) modules: BTreeMap<u64, Arc<dyn Program>>,
    /// Entry points that were looked up: module and name.
    pub(super) functions: BTreeMap<u64, (u64, Arc<str>)>,
    /// Handle of the context and its reference count.
    pub(super) context: Option<(u64, u64)>,
    /// The code that every call returns from now on.
    pub(super) lost: Option<i32>,
    /// What was still held when the last reference to the context was released.
    pub(super) leaked: Live,
    /// What a program did that works only here or by luck.
    pub(super) complaints: Vec<String>,
    pub(super) fault: Option<Fault>,
    /// Launches and counts of each entry point.
    pub(super) counts: BTreeMap<String, (u64, Counts)>,
    quiet: bool,
}

impl Device {
    pub(super) fn new(codes: Codes, memory: Memory, quiet: bool) -> Device {
        Device {
            codes,
            memory,
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            context: None,
            lost: None,
            leaked: Live::default(),
            complaints: Vec::new(),
            fault: None,
            counts: BTreeMap::new(),
            quiet,
        }
    }

    /// Makes every later call fail with this code. Queued work never happens.
    pub(super) fn lose(&mut self, code: i32) {
        self.lost.get_or_insert(code);
    }

    pub(super) fn found(&mut self, fault: Fault) {
        if !self.quiet {
            eprintln!("lockstep emulator: {fault}");
        }
        self.fault = Some(fault);
    }

    /// Counts what it holds, except pinned memory; nothing once it is lost, since everything went with it.
    pub(super) fn live(&self) -> Live {
        if self.lost.is_some() {
            return Live::default();
        }
        Live {
            memory: self.memory.live().len() as u64,
            pinned: 0,
            streams: self.streams.keys().filter(|key| **key != DEFAULT).count() as u64,
            events: self.events.len() as u64,
            modules: self.modules.len() as u64,
            contexts: self.context.map_or(0, |(_, references)| references),
        }
    }

    /// Releases what is left after the last reference to the context is gone, and remembers it.
    pub(super) fn destroy_context(&mut self) {
        self.context = None;
        self.leaked += self.live();
        for (address, _) in self.memory.live() {
            self.memory.release(address);
        }
        self.streams.clear();
        self.events.clear();
        self.modules.clear();
        self.functions.clear();
    }
}
