//! `lockstep verify`: every configuration of this machine against the plain reference, bit for bit.
//!
//! Each configuration runs the corpus and its digest, then random cases of every op, then the corpus again,
//! several times and from several host threads at once (on a GPU, each with its own stream).

use crate::cases::Case;
use crate::cases::random::random;
use crate::configurations::{Configuration, configurations};
use crate::digest::{self, Hasher, PUBLISHED};
use crate::launch;
use crate::levels::{self, Absent};
use crate::output::{Output, first_difference};
use crate::suite::{SMALL, size};
use lockstep::{Backend, Device};
use lockstep_core::op::OPS;
use std::fmt;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The backends to run on.
    pub backends: Vec<Backend>,
    /// Random cases per op.
    pub random: u64,
    /// Seed of the first random case; each following one has the next seed.
    pub seed: u64,
    /// How many times the small cases of the corpus are repeated.
    pub repeats: usize,
    /// Number of host threads that repeat them concurrently.
    pub streams: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { backends: Backend::ALL.to_vec(), random: 20, seed: 1, repeats: 2, streams: 4 }
    }
}

/// The outcome of one configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran with the reference's bits; its digest, and the number of values compared.
    Digest(String, usize),
    /// It ran, and a bit differs from the reference or a launch failed: op, case, output, index, both bit
    /// patterns.
    Differs(String),
    /// It is unavailable on this machine.
    Absent(Absent),
}

/// The outcome of all configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Name and outcome of each configuration.
    pub configurations: Vec<(String, Outcome)>,
    /// The reference's digest.
    pub digest: String,
    /// The digest in the file `DIGEST`.
    pub published: String,
    /// Names in `LOCKSTEP_REQUIRE` that match nothing.
    pub unknown: Vec<String>,
    /// Number of cases and values in the corpus.
    pub corpus: (usize, usize),
    /// What was run.
    pub plan: Plan,
}

/// A case with the reference's outputs.
struct Expected {
    case: Case,
    outputs: Vec<Output>,
}

/// Runs `plan`.
pub fn verify(plan: &Plan) -> Report {
    let reference = levels::reference();
    let expect = |case: Case| match launch::run(&reference, &case) {
        Ok(outputs) => Expected { case, outputs },
        Err(error) => panic!("the reference cannot fail: {error}"),
    };
    let corpus: Vec<Expected> = digest::cases().into_iter().map(expect).collect();
    let mut hasher = Hasher::new();
    corpus.iter().for_each(|expected| hasher.case(&expected.case, &expected.outputs));
    let values = corpus.iter().map(|expected| size(&expected.outputs)).sum();

    let mut found: Vec<(Configuration, Result<usize, String>, String)> = Vec::new();
    for configuration in configurations(&plan.backends) {
        let (compared, digest) = match &configuration.device {
            Ok(device) => match of_corpus(device, &corpus, plan) {
                Ok((compared, digest)) => (Ok(compared), digest),
                Err(difference) => (Err(difference), String::new()),
            },
            Err(_) => (Ok(0), String::new()),
        };
        found.push((configuration, compared, digest));
    }
    // Case by case over all configurations, because the reference is slow and its outputs are not kept.
    for op in OPS {
        for seed in plan.seed..plan.seed.saturating_add(plan.random) {
            let Some(case) = random(op.name, seed) else {
                panic!("{} has no random cases", op.name);
            };
            let expected = expect(case);
            for (configuration, compared, _) in &mut found {
                let (Ok(device), Ok(count)) = (&configuration.device, &*compared) else { continue };
                *compared = same(device, &expected).map(|values| count + values);
            }
        }
    }
    let outcome = |(configuration, compared, digest): (Configuration, Result<usize, String>, String)| {
        let outcome = match (configuration.device, compared) {
            (Err(absent), _) => Outcome::Absent(absent),
            (Ok(_), Ok(compared)) => Outcome::Digest(digest, compared),
            (Ok(_), Err(difference)) => Outcome::Differs(difference),
        };
        (configuration.name, outcome)
    };
    Report {
        configurations: found.into_iter().map(outcome).collect(),
        digest: hasher.hex(),
        published: PUBLISHED.trim().into(),
        unknown: levels::unknown(),
        corpus: (corpus.len(), values),
        plan: plan.clone(),
    }
}

/// Number of values compared, or the first difference.
fn same(device: &Device, Expected { case, outputs }: &Expected) -> Result<usize, String> {
    let at = || format!("{} [{}]", case.op(), case.label);
    let got = launch::run(device, case).map_err(|error| format!("{}: {error}", at()))?;
    match first_difference(outputs, &got) {
        None => Ok(size(&got)),
        Some((output, index, want, got)) => {
            Err(format!("{} `{output}`[{index}]: {got:#x}, plain has {want:#x}", at()))
        }
    }
}

/// Runs the corpus once for the digest, then its small cases repeatedly from several threads.
fn of_corpus(device: &Device, corpus: &[Expected], plan: &Plan) -> Result<(usize, String), String> {
    let mut compared = 0;
    let mut hasher = Hasher::new();
    for expected in corpus {
        compared += same(device, expected)?;
        // The bits equal the reference's, so hashing either gives the same digest.
        hasher.case(&expected.case, &expected.outputs);
    }
    let small: Vec<&Expected> =
        corpus.iter().filter(|expected| expected.case.data.elements() <= SMALL).collect();
    let rounds = |stream: usize| -> Result<usize, String> {
        let mut compared = 0;
        for round in 0..plan.repeats {
            // Each thread starts at a different case, so that different ops run side by side.
            let start = (stream * small.len() / plan.streams + round) % small.len();
            for expected in small[start..].iter().chain(&small[..start]) {
                compared += same(device, expected)?;
            }
        }
        Ok(compared)
    };
    let repeated: Vec<Result<usize, String>> = std::thread::scope(|scope| {
        let rounds = &rounds;
        let threads: Vec<_> = (0..plan.streams).map(|stream| scope.spawn(move || rounds(stream))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    for result in repeated {
        compared += result.map_err(|difference| format!("{} at once: {difference}", plan.streams))?;
    }
    Ok((compared, hasher.hex()))
}

impl Report {
    /// Whether every available configuration has the reference's bits, nothing required is absent, and the
    /// digest equals the published one.
    pub fn passed(&self) -> bool {
        self.configurations_agree() && self.digest == self.published
    }

    /// The same, ignoring the published digest.
    pub fn configurations_agree(&self) -> bool {
        let good = |(_, outcome): &(String, Outcome)| match outcome {
            Outcome::Digest(digest, _) => *digest == self.digest,
            Outcome::Differs(_) => false,
            Outcome::Absent(absent) => !absent.required,
        };
        self.unknown.is_empty() && self.configurations.iter().all(good)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.configurations {
            match outcome {
                Outcome::Digest(digest, compared) => {
                    let same = if *digest == self.digest { "same   " } else { "DIFFERS" };
                    writeln!(f, "{same} {name:<18} {digest}, {compared} values compared")?
                }
                Outcome::Differs(what) => writeln!(f, "DIFFERS {name:<18} {what}")?,
                Outcome::Absent(Absent { reason, required: true }) => {
                    writeln!(f, "MISSING {name:<18} {reason}")?
                }
                Outcome::Absent(Absent { reason, .. }) => writeln!(f, "absent  {name:<18} {reason}")?,
            }
        }
        for name in &self.unknown {
            writeln!(f, "MISSING {name:<18} {} asks for it, but nothing has that name", levels::REQUIRE)?;
        }
        let (cases, values) = self.corpus;
        let Plan { random, seed, repeats, streams, .. } = &self.plan;
        writeln!(f, "digest  {} ({cases} cases, {values} values)", self.digest)?;
        writeln!(
            f,
            "random  {random} cases of each of {} ops from seed {seed}; corpus repeated {repeats} times on \
             {streams} threads at once",
            OPS.len()
        )?;
        if self.digest != self.published {
            writeln!(f, "changed bits: see CHANGELOG section Bits; published is {}", self.published)?;
        }
        write!(f, "{}", if self.passed() { "pass" } else { "FAIL" })
    }
}
