//! What a host driver keeps account of.

use super::entries::{Arguments, Entry};
use crate::{Fault, Handle};
use std::alloc::Layout;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Number of things that somebody has not given back.
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
pub(super) struct Block {
    pub(super) layout: Layout,
    /// The context that made it.
    pub(super) context: usize,
    pub(super) pinned: bool,
}

/// What waits in a stream.
pub(super) enum Task {
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
    /// Everything that is on another stream first.
    After(usize),
}

pub(super) struct Stream {
    pub(super) context: usize,
    /// Held by who runs its tasks, for they run one after the other.
    pub(super) running: Arc<Mutex<()>>,
    pub(super) tasks: VecDeque<Task>,
}

pub(super) struct Event {
    pub(super) context: usize,
    pub(super) on: Option<usize>,
    pub(super) at: Option<Instant>,
}

pub(super) struct Injected {
    pub(super) function: &'static str,
    /// Calls that still succeed.
    pub(super) spared: usize,
    pub(super) fault: Fault,
}

#[derive(Default)]
pub(super) struct State {
    /// By address.
    pub(super) blocks: BTreeMap<usize, Block>,
    pub(super) streams: HashMap<usize, Stream>,
    pub(super) events: HashMap<usize, Event>,
    /// Loaded modules and their contexts.
    pub(super) modules: HashMap<usize, usize>,
    /// Attachments of each context.
    pub(super) contexts: HashMap<usize, usize>,
    /// Names of entry points that were asked for, by handle less 1.
    pub(super) functions: Vec<(&'static str, Entry)>,
    pub(super) lost: HashMap<usize, Fault>,
    pub(super) injected: Vec<Injected>,
    pub(super) launched: HashSet<&'static str>,
    pub(super) calls: BTreeMap<&'static str, usize>,
    pub(super) next: usize,
}

impl Stream {
    pub(super) fn new(context: usize) -> Stream {
        Stream { context, running: Arc::default(), tasks: VecDeque::new() }
    }
}

impl State {
    /// A handle that was never given out.
    pub(super) fn new_handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    pub(super) fn live(&self) -> Live {
        Live {
            memory: self.blocks.values().filter(|block| !block.pinned).count(),
            pinned: self.blocks.values().filter(|block| block.pinned).count(),
            streams: self.streams.len(),
            events: self.events.len(),
            modules: self.modules.len(),
            contexts: self.contexts.values().sum(),
        }
    }

    /// The block that holds an address.
    pub(super) fn block(&self, address: usize) -> Option<(usize, &Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address < start + block.layout.size()).then_some((*start, block))
    }

    /// Whether `bytes` bytes at `address` lie in one block of device memory of this context.
    pub(super) fn holds(&self, context: usize, address: usize, bytes: usize) -> bool {
        self.block(address).is_some_and(|(start, block)| {
            !block.pinned && block.context == context && address + bytes <= start + block.layout.size()
        })
    }
}
