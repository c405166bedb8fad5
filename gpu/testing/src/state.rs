//! The state that a host driver tracks.

use crate::entries::{Arguments, Entry};
use lockstep_gpu::{Fault, Handle};
use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Numbers of objects that have not been released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Allocations of device memory.
    pub memory: usize,
    /// Allocations of pinned memory.
    pub pinned: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Attachments to contexts.
    pub contexts: usize,
}

/// An allocation.
pub(crate) struct Block {
    pub(crate) layout: Layout,
    /// The context that made it.
    pub(crate) context: usize,
    pub(crate) pinned: bool,
}

/// Work queued in a stream.
pub(crate) enum Task {
    Copy {
        to: Handle,
        from: Handle,
        bytes: usize,
    },
    Fill {
        to: Handle,
        byte: u8,
        bytes: usize,
    },
    Launch {
        entry: Entry,
        arguments: Box<Arguments>,
    },
    Record(usize),
    /// Runs everything on another stream first.
    After(usize),
}

pub(crate) struct Stream {
    pub(crate) context: usize,
    /// Held while its tasks run, because they run one after the other.
    pub(crate) running: Arc<Mutex<()>>,
    pub(crate) tasks: VecDeque<Task>,
}

pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) on: Option<usize>,
    pub(crate) at: Option<Instant>,
}

pub(crate) struct Injected {
    pub(crate) function: &'static str,
    /// Calls that still succeed.
    pub(crate) spared: usize,
    pub(crate) fault: Fault,
}

#[derive(Default)]
pub(crate) struct State {
    /// By address.
    pub(crate) blocks: BTreeMap<usize, Block>,
    pub(crate) streams: HashMap<usize, Stream>,
    pub(crate) events: HashMap<usize, Event>,
    /// Loaded modules and their contexts.
    pub(crate) modules: HashMap<usize, usize>,
    /// Attachments of each context.
    pub(crate) contexts: HashMap<usize, usize>,
    /// Entry points that were looked up, by handle minus 1.
    pub(crate) functions: Vec<Entry>,
    pub(crate) lost: HashMap<usize, Fault>,
    pub(crate) injected: Vec<Injected>,
    pub(crate) launched: HashSet<&'static str>,
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) next: usize,
}

impl Stream {
    pub(crate) fn new(context: usize) -> Stream {
        Stream { context, running: Arc::default(), tasks: VecDeque::new() }
    }
}

impl State {
    /// Returns a handle that was never used before.
    pub(crate) fn new_handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    pub(crate) fn live(&self) -> Live {
        Live {
            memory: self.blocks.values().filter(|block| !block.pinned).count(),
            pinned: self.blocks.values().filter(|block| block.pinned).count(),
            streams: self.streams.len(),
            events: self.events.len(),
            modules: self.modules.len(),
            contexts: self.contexts.values().sum(),
        }
    }

    /// Returns the block that contains an address.
    pub(crate) fn block(&self, address: usize) -> Option<(usize, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.layout.size()).then_some((*start, block))
    }

    /// Returns whether `bytes` bytes at `address` lie in one block of this context's device memory.
    pub(crate) fn holds(&self, context: usize, address: usize, bytes: usize) -> bool {
        self.block(address).is_some_and(|(start, block)| {
            !block.pinned && block.context == context && address + bytes <= start + block.layout.size()
        })
    }
}
