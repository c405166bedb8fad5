//! The corpus's outputs, stored for inspection.

use lockstep_conformance::embedded;
use lockstep_embedded::launches::{self, Launches};
use lockstep_embedded::{Hasher, Kind, Record, Runner, corpus};
use std::sync::OnceLock;

/// The words of all launches, recorded once.
pub(crate) fn words() -> &'static [u64] {
    recording().words()
}

fn recording() -> &'static launches::Recorded {
    static LAUNCHES: OnceLock<launches::Recorded> = OnceLock::new();
    LAUNCHES.get_or_init(|| embedded::launches().expect("cases of every op"))
}

/// All launches.
pub(crate) fn launches() -> Launches<'static> {
    recording().launches()
}

/// One call of [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Op or function, and case.
    Begin(&'static str, u32),
    /// Kind and length.
    Array(Kind, u32),
    /// Bits, padded with zeros, and width.
    Value([u8; 8], usize),
}

/// All events, in order.
#[derive(Default)]
pub(crate) struct Recorded(pub(crate) Vec<Event>);

/// An op or a scalar function, with its values.
pub(crate) struct Name {
    pub(crate) name: &'static str,
    pub(crate) launches: u32,
    /// Indices of the events that are its values.
    pub(crate) values: Vec<usize>,
}

impl Record for Recorded {
    fn begin(&mut self, name: &'static str, case: u32) {
        self.0.push(Event::Begin(name, case));
    }
    fn array(&mut self, kind: Kind, len: u32) {
        self.0.push(Event::Array(kind, len));
    }
    fn value(&mut self, bits: &[u8]) {
        let mut padded = [0; 8];
        padded[..bits.len()].copy_from_slice(bits);
        self.0.push(Event::Value(padded, bits.len()));
    }
}

impl Recorded {
    /// Records what `runner` computes.
    pub(crate) fn of<R: Runner>(runner: &R) -> Self {
        let mut recorded = Recorded::default();
        corpus(runner, launches(), &mut recorded);
        recorded
    }

    /// Returns the digest of these events, in its printed form.
    pub(crate) fn digest(&self) -> String {
        let mut hasher = Hasher::new();
        for event in &self.0 {
            match event {
                Event::Begin(name, case) => hasher.begin(name, *case),
                Event::Array(kind, len) => hasher.array(*kind, *len),
                Event::Value(bits, width) => hasher.value(&bits[..*width]),
            }
        }
        hasher.finish().to_string()
    }

    /// Returns the op or function and the case of event `at`.
    pub(crate) fn launch(&self, at: usize) -> (&'static str, u32) {
        let begins = self.0[..=at].iter().rev();
        let mut names = begins.filter_map(|event| match event {
            Event::Begin(name, case) => Some((*name, *case)),
            _ => None,
        });
        names.next().expect("every event belongs to a launch")
    }

    /// Returns every op and function, in order.
    pub(crate) fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = Vec::new();
        let mut of = 0;
        for (at, event) in self.0.iter().enumerate() {
            match *event {
                Event::Begin(name, _) => {
                    of = names.iter().position(|known| known.name == name).unwrap_or(names.len());
                    if of == names.len() {
                        names.push(Name { name, launches: 0, values: Vec::new() });
                    }
                    names[of].launches += 1;
                }
                Event::Array(..) => {}
                Event::Value(..) => names[of].values.push(at),
            }
        }
        names
    }
}
