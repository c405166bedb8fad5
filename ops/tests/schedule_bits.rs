//! Fixed seed, fixed bits: the hash of what every schedule gives, recorded once. A changed constant is a changed decision: a breaking change, which the
//! section Bits of CHANGELOG.md names.

use lockstep_ops::schedule::arrol::Arrol;
use lockstep_ops::schedule::dars::{Dars, Deviation, Treatment};
use lockstep_ops::schedule::gdro_prompt::{Bound, PromptGdro, Weight};
use lockstep_ops::schedule::gdro_rollout::{Nearest, RolloutGdro, UtilitySign};
use lockstep_ops::schedule::random::{Purpose, Stream, gamma, sample};
use lockstep_ops::schedule::rounding::Bounds;
use lockstep_ops::schedule::staleness::Areal;
use lockstep_ops::schedule::*;

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

#[track_caller]
fn same(name: &str, hash: u64, recorded: u64) {
    assert_eq!(hash, recorded, "{name}: {hash:#018x}");
}

#[test]
fn bits_of_random() {
    let mut s = Stream::new(SEED, Purpose(2002), 0, 0);
    same("uniform", Hash::floats((0..1000).map(|_| s.uniform())), 0xc151_3fb8_82f9_10e7);
    same("uniform32", Hash::integers((0..1000).map(|_| s.uniform32().to_bits())), 0xc384_1fa2_608a_c652);
    same("open", Hash::floats((0..1000).map(|_| s.open())), 0x551d_9cc4_c700_5197);
    same("normal", Hash::floats((0..1000).map(|_| s.normal())), 0x1dac_a553_b49d_9f74);
    same("below", Hash::of((1..1000).map(|n| s.below(n))), 0x4289_1fde_5b06_9e94);
    let shapes = (1..200).map(|i| f64::from(i) * 0.05);
    same("gamma", Hash::floats(shapes.map(|a| gamma::gamma(&mut s, a).unwrap())), 0x3704_faf7_651e_2a84);
    let shapes = (1..200).map(|i| (f64::from(i) * 0.1, 20.0 - f64::from(i) * 0.1));
    same(
        "beta",
        Hash::floats(shapes.map(|(a, b)| gamma::beta(&mut s, a, b).unwrap())),
        0x2fff_ac72_b1ad_36b7,
    );
    let mut drawn = [0; 100];
    sample::distinct(&mut s, 1000, &mut drawn).unwrap();
    same("distinct", Hash::integers(drawn), 0x8a73_f1f9_ec56_29fa);
}

#[test]
fn bits_of_vade() {
    for (utility, scores, prompts) in [
        (Utility::Harder, 0x8af4_14cb_3a48_9265, 0x32a0_07bf_4aea_447a),
        (Utility::Variance, 0x9912_f960_c583_a1b7, 0x31c8_5994_d849_36d6),
    ] {
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
        same("posteriors", Hash::floats(bits), scores);
        same("prompts", Hash::integers(all), prompts);
    }
}

#[test]
fn bits_of_gdro() {
    let scores: Vec<Option<f64>> =
        uniform(1, 10).into_iter().map(|u| (u > 0.2).then_some(20.0 * u - 8.0)).collect();
    let count = below(2, 10, 8);
    for (bound, weight, recorded) in [
        (Bound::Clip(5.0), Weight::UnnormalisedOmega, 0xf50e_727a_7b87_a1e1),
        (Bound::Clip(5.0), Weight::NormalisedQ, 0xb41c_db83_80b4_c888),
        (Bound::Standardise, Weight::UnnormalisedOmega, 0x2b15_a64c_a056_9bc4),
        (Bound::Standardise, Weight::NormalisedQ, 0xc1cb_9a74_f875_2085),
    ] {
        let gdro = PromptGdro { bound, weight, ..PromptGdro::default() };
        same("prompt_gdro", Hash::floats(prompt_gdro_weights(&gdro, &scores, &count).unwrap()), recorded);
    }
    for (utility_sign, recorded) in
        [(UtilitySign::Paper, 0xf99a_7110_2ba3_4b19), (UtilitySign::Code, 0x4724_5dcf_6990_9849)]
    {
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
        same("rollout_gdro", Hash::floats(all), recorded);
    }
}

#[test]
fn bits_of_allocation() {
    let (n, price) = square_root_law(&uniform(20, 12), &uniform(21, 12), 4.0).unwrap();
    let bounds = Bounds { least: 1, most: 12, budget: 200 };
    let (rounded, _) = largest_remainder(&n, &below(22, 12, 9), bounds).unwrap();
    same("square_root_law", Hash::floats(n.into_iter().chain([price])), 0x72ad_5661_b689_5d91);
    same("largest_remainder", Hash::integers(rounded), 0xc075_8044_e663_a080);
    let mut dars = Vec::new();
    for deviation in [Deviation::Without, Deviation::With] {
        for treatment in [Treatment::Equal, Treatment::HardnessWeighted] {
            let d = Dars { rollouts: 16, most: 128, deviation, treatment };
            dars.extend(uniform(23, 100).into_iter().map(|p| d.extra(p).unwrap()));
        }
    }
    same("dars", Hash::integers(dars), 0xf510_d069_2904_0175);
    let rewards = uniform(24, 300);
    let known: Vec<Known> = (0..60)
        .map(|q| rewards[q * 5..][..q % 6].iter().fold(Known::default(), |k, r| k.observe(*r)))
        .collect();
    same("xrpo", Hash::integers(xrpo(&known, 200, 0.05).unwrap()), 0x4961_a6cf_acca_b483);
}

#[test]
fn bits_of_dots() {
    let d = dots_difficulty(&uniform(30, 16), &uniform(31, 16 * 50), &uniform(32, 50), 0.1).unwrap();
    let calibrated = uniform(33, 100).into_iter().map(|u| calibrate(d.base, 4.0 * u - 2.0, 2.0 - 4.0 * u));
    same("difficulty", Hash::floats(d.weights.iter().copied().chain(calibrated)), 0xb0d7_dbe7_42e4_ff80);
    same(
        "selection",
        Hash::integers(dots_select(&uniform(34, 500), 100, 0.5, 0.01, SEED, 1).unwrap()),
        0x17e3_54b0_dec0_2560,
    );
    let mut buffer = fifo::Fifo::new(100).unwrap();
    (0..250).for_each(|_| _ = buffer.push());
    same("replay", Hash::integers(replay_slots(&buffer, 40, SEED, 2).unwrap()), 0xe6e6_2772_da87_6e51);
}

#[test]
fn bits_of_pruning() {
    let rule = Arrol { keep: 12, ..Arrol::default() };
    let success = uniform(40, 32);
    let two = arrol_two_ended(&rule, &success).unwrap();
    same(
        "arrol",
        Hash::floats(two.kept.iter().map(|k| f64::from(u8::from(*k))).chain([two.mean])),
        0xab01_adc7_86cf_faa0,
    );
    same(
        "arrol sampled",
        Hash::floats(arrol_sampled(&rule, &success, SEED, 3, 1).unwrap().weight),
        0x1ea5_73ee_6ba6_aba7,
    );
    let split = rorecomp_split(&below(41, 64, 20), &bools(42, 64), 0.6).unwrap();
    same("rorecomp", Hash::integers(split.into_iter().map(u32::from)), 0x320a_af69_2471_9fa5);
    let (a, b) = (below(43, 60, 4), below(44, 60, 4));
    let latr = [suffix_match(&a, &b), rouge_l(&a, &b).unwrap(), edit_distance(&a, &b).unwrap().into()];
    let cut =
        uniform(45, 50).into_iter().map(|u| u8::from(falls_behind(-20.0 * u, -1.0, 7, 0.3).unwrap()).into());
    let shares = (0..20).map(|s| ramp::latr_share(s, 17));
    same("latr", Hash::floats(latr.into_iter().chain(cut).chain(shares)), 0x0388_6996_ca89_fffc);
    same("latr fit", Hash::integers(latr_fit(&below(46, 40, 4), 45).unwrap()), 0xc3f9_8b51_c81e_84c6);
}

#[test]
fn bits_of_bookkeeping() {
    same("april", Hash::integers(april_order(&below(50, 100, 7)).unwrap()), 0x3472_6b7f_b62d_42c5);
    let rewards: Vec<f32> = below(51, 160, 2).into_iter().map(|r| r as f32).collect();
    let cu: Vec<u32> = (0..=40).map(|g| 4 * g).collect();
    same("swarm", Hash::integers(swarm_groups(&cu, &rewards, 8, SEED, 4).unwrap()), 0x766b_4060_a21e_b3fc);
    same("swarm best", Hash::integers(swarm_best(&cu, &rewards, 8).unwrap()), 0x6456_8242_3e43_5f8b);
    let marsrl = marsrl_inputs(&rewards, None, 0.0, 50, (SEED, 4, 1)).unwrap();
    same("marsrl", Hash::integers(marsrl), 0x332f_a625_1666_7f68);
    let mix = remix::Mix::default();
    same("remix", Hash::integers((0..200).map(|m| mix.lag(SEED, 9, m).unwrap())), 0xbdc2_f01c_e418_9765);
    same(
        "dynamic sampling",
        Hash::integers(dynamic_sampling(&cu, &rewards, 30).unwrap()),
        0x8ecd_5efc_292c_d91a,
    );
    let areal = Areal { max_concurrent: 200, max_staleness: 2, batch: 32 };
    let capacity = (0..50).map(|v| areal.capacity(v, 100, 33 * v).cast_unsigned());
    let verl = (0..50).map(|v| staleness::verl_rollouts(0.37, 3, 2, 16, 3 * v).unwrap().cast_unsigned());
    same("staleness", Hash::of(capacity.chain(verl)), 0x417d_59f0_e733_8ee1);
    let update = brorl::Update { right: 1.0, wrong: -1.0, rate: 0.1, samples: 8 };
    let p: Vec<f64> = uniform(52, 30).into_iter().map(|u| u / 15.0).collect();
    let b = update.balance(&p, &bools(53, 30), &bools(54, 30)).unwrap();
    let masa = uniform(55, 30).into_iter().map(|u| masa::difficulty_score(3, u).unwrap());
    same(
        "brorl, masa",
        Hash::floats([b.right, b.wrong, b.unsampled].into_iter().chain(masa)),
        0xd913_9901_2755_f3da,
    );
    for (how, recorded) in [
        (Balance::KarmarkarKarp, 0x9973_a6ce_88ab_e6a3),
        (Balance::Greedy, 0xd3cf_1113_1586_0065),
        (Balance::Better, 0x9973_a6ce_88ab_e6a3),
    ] {
        let ranks = [false, true].map(|equal| balance(&below(56, 96, 3000), 8, equal, how).unwrap().rank);
        same("balance", Hash::integers(ranks.into_iter().flatten()), recorded);
    }
}
