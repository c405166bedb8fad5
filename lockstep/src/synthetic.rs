//! Small random rollouts with the columns that a recipe needs, for trying out recipes and for tests.

use crate::columns::Column;
use crate::ops::reward::majority;
use crate::recipe::Recipe;
use crate::{Error, RolloutsBuf};
use lockstep_core::num::exp64;
use lockstep_core::require;
use lockstep_schedule::random::{Purpose, Stream};

/// Purposes of callers start at 256: these first, then one for each column.
const LENGTHS: Purpose = Purpose(256);
const TURNS: Purpose = Purpose(257);
const STEPS: Purpose = Purpose(258);
const COLUMNS: u32 = 259;

/// Responses per prompt, if the number of sequences allows.
const GROUP: usize = 4;
/// Number of roles, and weights of the rewards of a response.
const ROLES: u32 = 2;
const KINDS: [f32; 2] = [1.0, 0.5];

/// Makes random rollouts with the given total numbers of sequences and tokens, as a function of the arguments
/// only. They have exactly the columns that the recipe [needs](Recipe::needs); of two alternatives, the
/// first. Groups have about four responses, some right and some wrong, and the log-probabilities of different
/// policies are close to each other.
///
/// Errors: no sequences; fewer tokens than sequences; more than 2²⁸ tokens.
///
/// ```
/// use lockstep::{Device, Recipe, synthetic};
/// let recipe = Recipe::named("dapo")?;
/// let rollouts = synthetic::rollouts(&recipe, 8, 100, 1)?;
/// let (_, loss) = recipe.step(&Device::cpu(), &rollouts.view())?;
/// assert!(loss.loss.is_some_and(f64::is_finite) && loss.coef.len() == 100);
/// # Ok::<(), lockstep::Error>(())
/// ```
pub fn rollouts(recipe: &Recipe, sequences: usize, tokens: usize, seed: u64) -> Result<RolloutsBuf, Error> {
    let needs = recipe.needs();
    columns(needs.iter().filter(|need| need.required).map(|need| need.column), sequences, tokens, seed)
}

/// Makes random rollouts with these columns, the sequences' and the groups' offsets; otherwise like
/// [`rollouts`].
pub fn columns(
    columns: impl IntoIterator<Item = Column>,
    sequences: usize,
    tokens: usize,
    seed: u64,
) -> Result<RolloutsBuf, Error> {
    let refuse =
        |argument, expected, got: usize| Err(require::value(argument, None, expected, got as f64).into());
    if sequences == 0 {
        return refuse("sequences", "at least 1", sequences);
    }
    if tokens < sequences || tokens > 1 << 28 {
        return refuse("tokens", "at least one per sequence, at most 2^28", tokens);
    }
    let maker = Maker::new(sequences, tokens, seed);
    let mut rollouts = RolloutsBuf {
        cu_seqlens: Some(maker.cu_seqlens.clone()),
        cu_groups: Some(maker.cu_groups.clone()),
        ..RolloutsBuf::default()
    };
    columns.into_iter().try_for_each(|column| maker.fill(&mut rollouts, column))?;
    Ok(rollouts)
}

/// The data that all columns share.
struct Maker {
    seed: u64,
    cu_seqlens: Vec<u32>,
    cu_groups: Vec<u32>,
    rewards: Vec<f32>,
    cu_turns: Vec<u32>,
    cu_steps: Vec<u32>,
    cu_step_tokens: Vec<u32>,
}

impl Maker {
    fn new(sequences: usize, tokens: usize, seed: u64) -> Maker {
        let groups = (sequences / GROUP).max((sequences / 2).min(2)).max(1);
        let cu_groups: Vec<u32> = (0..=groups).map(|g| (g * sequences / groups) as u32).collect();
        let mut lengths = vec![1u32; sequences];
        // The remaining tokens are distributed by random shares between 1 and 4, each time from the rest, so
        // that none are left over.
        let mut stream = Stream::new(seed, LENGTHS, 0, 0);
        let mut shares: Vec<f64> = (0..sequences).map(|_| 1.0 + 3.0 * stream.uniform()).collect();
        let mut left = tokens - sequences;
        let mut of = shares.iter().sum::<f64>();
        for (length, share) in lengths.iter_mut().zip(&mut shares) {
            let own = if of > *share { (left as f64 * (*share / of)) as usize } else { left };
            *length += own as u32;
            left -= own;
            of -= *share;
        }
        // Rounding may leave a few.
        lengths[sequences - 1] += left as u32;
        let mut cu_seqlens = vec![0];
        for length in lengths {
            cu_seqlens.push(cu_seqlens[cu_seqlens.len() - 1] + length);
        }
        let mut rewards = Vec::with_capacity(sequences);
        for (g, pair) in cu_groups.windows(2).enumerate() {
            rewards.extend((pair[0]..pair[1]).map(|i| ((i - pair[0] + g as u32 + 1) % 2) as f32));
        }
        let cut = |purpose| parts(seed, purpose, &cu_seqlens);
        let (_, cu_turns) = cut(TURNS);
        let (cu_steps, cu_step_tokens) = cut(STEPS);
        Maker { seed, cu_groups, rewards, cu_turns, cu_steps, cu_step_tokens, cu_seqlens }
    }

    fn tokens(&self) -> usize {
        self.cu_seqlens.last().map_or(0, |end| *end as usize)
    }

    fn stream(&self, column: Column) -> Stream {
        Stream::new(self.seed, Purpose(COLUMNS + column as u32), 0, 0)
    }

    /// `n` random numbers between two bounds.
    fn between(&self, column: Column, n: usize, [low, high]: [f32; 2]) -> Vec<f32> {
        let mut stream = self.stream(column);
        (0..n).map(|_| low + (high - low) * stream.uniform32()).collect()
    }

    fn below(&self, column: Column, n: usize, end: u32) -> Vec<u32> {
        let mut stream = self.stream(column);
        (0..n).map(|_| stream.below(end.into()) as u32).collect()
    }

    /// Log-probabilities that differ by at most `spread` from those of the engine that sampled.
    fn logp(&self, column: Column, spread: f32) -> Vec<f32> {
        let base = self.between(Column::logp_rollout, self.tokens(), [-3.0, -0.05]);
        let moved = self.between(column, self.tokens(), [-spread, spread]);
        base.iter().zip(moved).map(|(base, moved)| (base + moved).min(0.0)).collect()
    }

    /// The reward of a sequence at its last token.
    fn at_the_end(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.tokens()];
        for (end, reward) in self.cu_seqlens[1..].iter().zip(&self.rewards) {
            out[*end as usize - 1] = *reward;
        }
        out
    }

    fn fill(&self, to: &mut RolloutsBuf, column: Column) -> Result<(), Error> {
        let (n, s, g) = (self.tokens(), self.rewards.len(), self.cu_groups.len() - 1);
        let unit = |n| self.between(column, n, [0.0, 1.0]);
        let turns = self.cu_turns.len() - 1;
        let right = |i: usize| self.rewards[i] == 1.0;
        match column {
            Column::cu_seqlens | Column::cu_groups => {}
            Column::loss_mask => to.loss_mask = Some(vec![1; n]),
            Column::tokens => to.tokens = Some(self.below(column, n, 3)),
            Column::logp_rollout => to.logp_rollout = Some(self.logp(column, 0.0)),
            Column::logp_old => to.logp_old = Some(self.logp(column, 0.02)),
            Column::divergence => to.divergence = Some(unit(n)),
            Column::logp_latest => to.logp_latest = Some(self.logp(column, 0.05)),
            Column::logp_previous => to.logp_previous = Some(self.logp(column, 0.05)),
            Column::logp => to.logp = Some(self.logp(column, 0.2)),
            Column::logp_ref => to.logp_ref = Some(self.logp(column, 0.3)),
            Column::log_ratio => to.log_ratio = Some(self.between(column, n, [-0.2, 0.2])),
            Column::entropy => to.entropy = Some(self.between(column, n, [0.05, 2.0])),
            Column::sum_p_squared => {
                // Between p², from the sampled token alone, and p² + (1 − p)², with one other token.
                let sum = |(logp, share): (&f32, &f32)| {
                    let p = exp64((*logp).into());
                    (p * p + f64::from(*share) * (1.0 - p) * (1.0 - p)) as f32
                };
                let old = self.logp(Column::logp_old, 0.02);
                to.sum_p_squared = Some(old.iter().zip(&unit(n)).map(sum).collect());
            }
            Column::score_norm => to.score_norm = Some(self.between(column, n, [0.01, 1.5])),
            Column::rewards => to.rewards = Some(self.rewards.clone()),
            Column::token_rewards => to.token_rewards = Some(self.at_the_end()),
            Column::reward_components => {
                let second = self.between(column, s, [0.0, 1.0]);
                to.reward_components = Some([&self.rewards[..], &second].concat());
            }
            Column::reward_weights => to.reward_weights = Some(KINDS.to_vec()),
            Column::valid => to.valid = Some(vec![1; s]),
            Column::baseline => to.baseline = Some(self.between(column, g, [0.25, 0.75])),
            Column::baseline_weights => to.baseline_weights = Some(self.between(column, s, [0.5, 1.5])),
            Column::outcome_weights => to.outcome_weights = Some(self.between(column, s, [0.5, 1.5])),
            Column::difficulty => to.difficulty = Some(unit(s)),
            Column::flawed => {
                let coin = self.below(column, s, 2);
                to.flawed = Some((0..s).map(|i| u8::from(right(i) && coin[i] == 1)).collect());
            }
            Column::reference => {
                let mut stream = self.stream(column);
                let draw = |pair: &[u32]| stream.below((pair[1] - pair[0]).into()) as u32;
                to.reference = Some(self.cu_groups.windows(2).map(draw).collect());
            }
            Column::answer_class => {
                let others = self.below(column, s, 3);
                let answers: Vec<Option<u32>> =
                    (0..s).map(|i| Some(if right(i) { 0 } else { 1 + others[i] })).collect();
                to.answer_class = Some(majority(&to.batch()?, &answers)?);
            }
            Column::similarity => {
                let mut stream = self.stream(column);
                let mut pairs = Vec::new();
                for pair in self.cu_groups.windows(2) {
                    let (n, first) = ((pair[1] - pair[0]) as usize, pairs.len());
                    for (i, j) in (0..n * n).map(|k| (k / n, k % n)) {
                        pairs.push(match i.cmp(&j) {
                            std::cmp::Ordering::Less => stream.uniform32(),
                            std::cmp::Ordering::Equal => 1.0,
                            std::cmp::Ordering::Greater => pairs[first + j * n + i],
                        });
                    }
                }
                to.similarity = Some(pairs);
            }
            Column::roles => to.roles = Some(self.below(column, s, ROLES)),
            Column::role_values => to.role_values = Some(vec![0.0; ROLES as usize]),
            Column::values => to.values = Some(unit(n)),
            Column::values_old => to.values_old = Some(unit(n)),
            Column::terminated => to.terminated = Some(vec![1; s]),
            Column::truncated => to.truncated = Some(vec![0; s]),
            Column::bootstrap => to.bootstrap = Some(vec![0.0; s]),
            Column::cu_turns => to.cu_turns = Some(self.cu_turns.clone()),
            Column::turn_rewards => to.turn_rewards = Some(unit(turns)),
            Column::turn_roles => to.turn_roles = Some(self.below(column, turns, ROLES)),
            Column::cu_steps => to.cu_steps = Some(self.cu_steps.clone()),
            Column::cu_step_tokens => to.cu_step_tokens = Some(self.cu_step_tokens.clone()),
            Column::step_rewards => to.step_rewards = Some(unit(self.cu_step_tokens.len() - 1)),
            Column::step_matches => {
                let coin = self.below(column, self.cu_step_tokens.len() - 1, 3);
                to.step_matches = Some(coin.into_iter().map(|k| u8::from(k > 0)).collect());
            }
            Column::counts => to.counts = Some(vec![n as u64, s as u64, s as u64]),
            Column::seed => to.seed = Some(vec![self.seed]),
            Column::step => to.step = Some(vec![0]),
        }
        Ok(())
    }
}

/// Cuts every sequence into one to three parts; returns the offsets of each sequence's parts, and of each
/// part's tokens.
fn parts(seed: u64, purpose: Purpose, cu_seqlens: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut of_sequences, mut starts) = (vec![0], vec![0]);
    for (s, pair) in cu_seqlens.windows(2).enumerate() {
        let length = pair[1] - pair[0];
        let mut stream = Stream::new(seed, purpose, 0, s as u32);
        let count = (1 + stream.below(3) as u32).min(length);
        starts.extend(
            (1..=count).map(|k| pair[0] + (u64::from(length) * u64::from(k) / u64::from(count)) as u32),
        );
        of_sequences.push(starts.len() as u32 - 1);
    }
    (of_sequences, starts)
}
