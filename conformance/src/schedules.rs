//! Fixed seeds, fixed decisions: the decisions of every schedule, hashed by name. A changed constant changes
//! decisions, which is a breaking change that the section Bits of CHANGELOG.md must name.

use lockstep::schedule::arrol::Arrol;
use lockstep::schedule::dars::{Dars, Deviation, Treatment};
use lockstep::schedule::gdro_prompt::{Bound, PromptGdro, Weight};
use lockstep::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep::schedule::random::{Purpose, Stream, gamma, sample};
use lockstep::schedule::rounding::Bounds;
use lockstep::schedule::staleness::Areal;
use lockstep::schedule::*;

use sha2::{Digest, Sha256};
use std::fmt;

/// The published hashes, one line each; `update_digest` (an example of this package) writes them.
pub const PUBLISHED: &str = include_str!("../SCHEDULES");

/// Name and hash of each decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found(Vec<(String, u64)>);

impl Found {
    fn add(&mut self, name: impl Into<String>, hash: u64) {
        self.0.push((name.into(), hash));
    }

    /// One line each, as in the file `SCHEDULES`.
    pub fn lines(&self) -> String {
        self.0.iter().map(|(name, hash)| format!("{hash:016x} {name}\n")).collect()
    }

    /// Whether they equal the published ones.
    pub fn passed(&self) -> bool {
        self.lines() == PUBLISHED
    }
}

/// The digest of all lines, followed by those that are not published.
impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lines, published) = (self.lines(), PUBLISHED.lines().collect::<Vec<_>>());
        let digest: String = Sha256::digest(&lines).iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(f, "schedules {digest} ({} decisions)", self.0.len())?;
        for line in lines.lines().filter(|line| !published.contains(line)) {
            writeln!(f, "DIFFERS {line}: see CHANGELOG section Bits")?;
        }
        write!(f, "{}", if self.passed() { "pass" } else { "FAIL" })
    }
}

/// The decisions of every schedule on fixed seeds.
pub fn schedules() -> Found {
    let mut found = Found::default();
    for decide in [random, vade, gdro, allocation, dots, pruning, bookkeeping] {
        decide(&mut found);
    }
    found
}

/// FNV-1a over 64-bit words.
struct Hash(u64);

impl Hash {
    fn of(words: impl IntoIterator<Item = u64>) -> u64 {
        let mut hash = Hash(0xcbf2_9ce4_8422_2325);
        words.into_iter().for_each(|w| hash.word(w));
        hash.0
    }

    fn word(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn floats(values: impl IntoIterator<Item = f64>) -> u64 {
        Hash::of(values.into_iter().map(f64::to_bits))
    }

    fn integers(values: impl IntoIterator<Item = u32>) -> u64 {
        Hash::of(values.into_iter().map(u64::from))
    }
}

const SEED: u64 = 0x5eed_0001_0002_0003;

fn uniform(case: u32, n: usize) -> Vec<f64> {
    let mut s = Stream::new(SEED, Purpose(2000), case, 0);
    (0..n).map(|_| s.uniform()).collect()
}

fn below(case: u32, n: usize, below: u64) -> Vec<u32> {
    let mut s = Stream::new(SEED, Purpose(2001), case, 0);
    (0..n).map(|_| s.below(below) as u32).collect()
}

fn bools(case: u32, n: usize) -> Vec<bool> {
    below(case, n, 2).into_iter().map(|x| x == 1).collect()
}

fn random(found: &mut Found) {
    let mut s = Stream::new(SEED, Purpose(2002), 0, 0);
    found.add("uniform", Hash::floats((0..1000).map(|_| s.uniform())));
    found.add("uniform32", Hash::integers((0..1000).map(|_| s.uniform32().to_bits())));
    found.add("open", Hash::floats((0..1000).map(|_| s.open())));
    found.add("normal", Hash::floats((0..1000).map(|_| s.normal())));
    found.add("below", Hash::of((1..1000).map(|n| s.below(n))));
    let shapes = (1..200).map(|i| f64::from(i) * 0.05);
    found.add("gamma", Hash::floats(shapes.map(|a| gamma::gamma(&mut s, a).unwrap())));
    let shapes = (1..200).map(|i| (f64::from(i) * 0.1, 20.0 - f64::from(i) * 0.1));
    found.add("beta", Hash::floats(shapes.map(|(a, b)| gamma::beta(&mut s, a, b).unwrap())));
    let mut drawn = [0; 100];
    sample::distinct(&mut s, 1000, &mut drawn).unwrap();
    found.add("distinct", Hash::integers(drawn));
}

fn vade(found: &mut Found) {
    for utility in [Utility::Harder, Utility::Variance] {
        let vade = Vade { utility, ..Vade::default() };
        let mut posteriors = vec![Posterior::default(); 200];
        let mut all = Vec::new();
        for step in 0..20 {
            let out = vade_select(&vade, &posteriors, 16, SEED, step).unwrap();
            let correct = below(step, 16, 9);
            vade.update(&mut posteriors, &out.prompts, &correct, &[8; 16]).unwrap();
            all.extend(out.prompts);
        }
        let bits = posteriors.iter().flat_map(|p| [p.a, p.b, p.mean()]);
        found.add(format!("vade posteriors, {utility:?}"), Hash::floats(bits));
        found.add(format!("vade prompts, {utility:?}"), Hash::integers(all));
    }
}

fn gdro(found: &mut Found) {
    let scores: Vec<Option<f64>> =
        uniform(1, 10).into_iter().map(|u| (u > 0.2).then_some(20.0 * u - 8.0)).collect();
    let count = below(2, 10, 8);
    for (bound, weight) in [
        (Bound::Clip(5.0), Weight::UnnormalisedOmega),
        (Bound::Clip(5.0), Weight::NormalisedQ),
        (Bound::Standardise, Weight::UnnormalisedOmega),
        (Bound::Standardise, Weight::NormalisedQ),
    ] {
        let gdro = PromptGdro { bound, weight, ..PromptGdro::default() };
        let weights = prompt_gdro_weights(&gdro, &scores, &count).unwrap();
        found.add(format!("prompt_gdro, {bound:?}, {weight:?}"), Hash::floats(weights));
    }
    for utility_sign in [UtilitySign::Paper, UtilitySign::Code] {
        let gdro = RolloutGdro {
            least: 2,
            most: 8,
            among: &[],
            rate: 0.3,
            exploration: 0.1,
            price_rate: 0.02,
            target: 4.0,
            utility_sign,
            nearest: Nearest::Smaller,
        };
        let (mut scores, mut price, mut all) = (uniform(3, 70), 0.05, Vec::new());
        for step in 0..10 {
            let total = 4 * count.iter().sum::<u32>();
            let out = rollout_gdro_choose(&gdro, &scores, &count, total.into()).unwrap();
            gdro.update(&mut scores, &count, &out.per_prompt, &uniform(10 + step, 10), price).unwrap();
            price = gdro.next_price(price, out.total, u64::from(total) / 4);
            all.extend(out.per_prompt.into_iter().map(f64::from));
        }
        all.push(price);
        all.extend(scores);
        found.add(format!("rollout_gdro, {utility_sign:?}"), Hash::floats(all));
    }
}

fn allocation(found: &mut Found) {
    let (n, price) = square_root_law(&uniform(20, 12), &uniform(21, 12), 4.0).unwrap();
    let bounds = Bounds { least: 1, most: 12, budget: 200 };
    let (rounded, _) = largest_remainder(&n, &below(22, 12, 9), bounds).unwrap();
    found.add("square_root_law", Hash::floats(n.into_iter().chain([price])));
    found.add("largest_remainder", Hash::integers(rounded));
    let mut dars = Vec::new();
    for deviation in [Deviation::Without, Deviation::With] {
        for treatment in [Treatment::Equal, Treatment::HardnessWeighted] {
            let d = Dars { rollouts: 16, most: 128, deviation, treatment };
            dars.extend(uniform(23, 100).into_iter().map(|p| d.extra(p).unwrap()));
        }
    }
    found.add("dars", Hash::integers(dars));
    let rewards = uniform(24, 300);
    let known: Vec<Known> = (0..60)
        .map(|q| rewards[q * 5..][..q % 6].iter().fold(Known::default(), |k, r| k.observe(*r)))
        .collect();
    found.add("xrpo", Hash::integers(xrpo(&known, 200, 0.05).unwrap()));
}

fn dots(found: &mut Found) {
    let d = dots_difficulty(&uniform(30, 16), &uniform(31, 16 * 50), &uniform(32, 50), 0.1).unwrap();
    let calibrated = uniform(33, 100).into_iter().map(|u| calibrate(d.base, 4.0 * u - 2.0, 2.0 - 4.0 * u));
    found.add("difficulty", Hash::floats(d.weights.iter().copied().chain(calibrated)));
    found.add("selection", Hash::integers(dots_select(&uniform(34, 500), 100, 0.5, 0.01, SEED, 1).unwrap()));
    let mut buffer = fifo::Fifo::new(100).unwrap();
    (0..250).for_each(|_| _ = buffer.push());
    found.add("replay", Hash::integers(replay_slots(&buffer, 40, SEED, 2).unwrap()));
}

fn pruning(found: &mut Found) {
    let rule = Arrol { keep: 12, ..Arrol::default() };
    let success = uniform(40, 32);
    let two = arrol_two_ended(&rule, &success).unwrap();
    found.add("arrol", Hash::floats(two.kept.iter().map(|k| f64::from(u8::from(*k))).chain([two.mean])));
    found.add("arrol sampled", Hash::floats(arrol_sampled(&rule, &success, SEED, 3, 1).unwrap().weight));
    let split = rorecomp_split(&below(41, 64, 20), &bools(42, 64), 0.6).unwrap();
    found.add("rorecomp", Hash::integers(split.into_iter().map(u32::from)));
    let (a, b) = (below(43, 60, 4), below(44, 60, 4));
    let latr = [suffix_match(&a, &b), rouge_l(&a, &b).unwrap(), edit_distance(&a, &b).unwrap().into()];
    let cut =
        uniform(45, 50).into_iter().map(|u| u8::from(falls_behind(-20.0 * u, -1.0, 7, 0.3).unwrap()).into());
    let shares = (0..20).map(|s| ramp::latr_share(s, 17));
    found.add("latr", Hash::floats(latr.into_iter().chain(cut).chain(shares)));
    found.add("latr fit", Hash::integers(latr_fit(&below(46, 40, 4), 45).unwrap()));
}

fn bookkeeping(found: &mut Found) {
    found.add("april", Hash::integers(april_order(&below(50, 100, 7)).unwrap()));
    let rewards: Vec<f32> = below(51, 160, 2).into_iter().map(|r| r as f32).collect();
    let cu: Vec<u32> = (0..=40).map(|g| 4 * g).collect();
    found.add("swarm", Hash::integers(swarm_groups(&cu, &rewards, 8, SEED, 4).unwrap()));
    found.add("swarm best", Hash::integers(swarm_best(&cu, &rewards, 8).unwrap()));
    let marsrl = marsrl_inputs(&rewards, None, 0.0, 50, (SEED, 4, 1)).unwrap();
    found.add("marsrl", Hash::integers(marsrl));
    let mix = remix::Mix::default();
    found.add("remix", Hash::integers((0..200).map(|m| mix.lag(SEED, 9, m).unwrap())));
    found.add("dynamic sampling", Hash::integers(dynamic_sampling(&cu, &rewards, 30).unwrap()));
    let areal = Areal { max_concurrent: 200, max_staleness: 2, batch: 32 };
    let capacity = (0..50).map(|v| areal.capacity(v, 100, 33 * v).cast_unsigned());
    let verl = (0..50).map(|v| staleness::verl_rollouts(0.37, 3, 2, 16, 3 * v).unwrap().cast_unsigned());
    found.add("staleness", Hash::of(capacity.chain(verl)));
    let update = brorl::Update { right: 1.0, wrong: -1.0, rate: 0.1, samples: 8 };
    let p: Vec<f64> = uniform(52, 30).into_iter().map(|u| u / 15.0).collect();
    let b = update.balance(&p, &bools(53, 30), &bools(54, 30)).unwrap();
    let masa = uniform(55, 30).into_iter().map(|u| masa::difficulty_score(3, u).unwrap());
    found.add("brorl, masa", Hash::floats([b.right, b.wrong, b.unsampled].into_iter().chain(masa)));
    for how in [Balance::KarmarkarKarp, Balance::Greedy, Balance::Better] {
        let ranks = [false, true].map(|equal| balance(&below(56, 96, 3000), 8, equal, how).unwrap().rank);
        found.add(format!("balance, {how:?}"), Hash::integers(ranks.into_iter().flatten()));
    }
}
