//! The table of choices that cannot be combined, with the reasons. `check` applies it, and
//! docs/combinations.md shows it.

use super::{
    AdvantageEstimator, Against, AggregationMode, CountedSequences, CountsOf, Denominator, EmptySequence,
    EntropyTokens, FilterChoice, GateChoice, KlPlace, KlRatio, KlWeighting, RatioGradient, RatioLevel,
    Recipe, ShapingChoice, SingletonChoice, TimeChoice, WeightLevel, WeightRule, WhitenChoice,
};
use crate::Error;

/// Two choices that cannot be combined.
struct Rule {
    /// The TOML key of one choice, with its value if that matters.
    left: &'static str,
    /// The TOML key of the other choice.
    right: &'static str,
    why: &'static str,
    holds: fn(&Recipe) -> bool,
}

/// Lists the pairs of choices that [`Recipe::check`] rejects: key, key, reason. All other pairs are
/// supported.
pub fn refused() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    RULES.iter().map(|rule| (rule.left, rule.right, rule.why))
}

const PER_TOKEN: &str =
    "it weights a sequence by the sign of its advantage, but here each token has its own advantage";
const NO_STAGE: &str = "its advantages are computed in a separate call, which has no such stage";
const OWN_KL: &str =
    "the gate itself uses the KL term: omit [kl], and add a KL term with ops::policy_loss::add_kl";
const NO_DEVIATION: &str =
    "the factor counts groups with a nonzero standard deviation, which this estimator does not compute";
const NO_REWARDS: &str = "it does not read sequence rewards";
const RIGHT: &str = "it tells right from wrong by the reward without a penalty";
const UNUSED: &str = "the estimator does not use it";

/// Makes the table, and one function with the same tests. Every call of a recipe runs them, and a call
/// through a pointer for each rule would take longer than a small batch.
macro_rules! rules {
    ($(rule($left:expr, $right:expr, $why:expr, |$r:ident| $holds:expr)),* $(,)?) => {
        const RULES: &[Rule] = &[$(Rule { left: $left, right: $right, why: $why, holds: |$r| $holds }),*];

        fn one_holds(recipe: &Recipe) -> bool {
            $((|$r: &Recipe| $holds)(recipe))||*
        }
    };
}

#[rustfmt::skip]
rules![
    rule("gate.kind gmpo", "ratio.level other than token", "GMPO clips token ratios and averages them itself",
        |r| gmpo(r) && r.ratio.level != RatioLevel::Token),
    rule("gate.kind gmpo", "mask.opsm_delta",
        "GMPO takes the geometric mean of weights, and the weight 0 of a masked token makes it 0",
        |r| gmpo(r) && r.mask.opsm_delta.is_some()),
    rule("gate.kind gmpo", "correction.rule mask at correction.level token",
        "GMPO takes the geometric mean of weights, and one weight of 0 makes it 0: mask whole sequences",
        |r| gmpo(r)
            && r.correction.as_ref()
                .is_some_and(|c| c.rule == WeightRule::Mask && c.level == WeightLevel::Token)),
    rule("gate.kind gmpo", "correction.reject of tokens with correction.denominator before",
        "rejected tokens get weight 0, which makes the geometric mean 0: use after",
        |r| gmpo(r) && rejects_tokens_by_weight(r)),
    rule("gate.kind gmpo", "aggregation.mode other than seq-mean-token-mean, without [kl] and [entropy]",
        "GMPO always averages over all sequences: the mode would apply only to the other terms",
        |r| gmpo(r) && r.aggregation.mode != AggregationMode::SeqMeanTokenMean && r.kl_term().is_none()
            && r.entropy.is_none()),
    rule("gate.kind remix", "ratio.level other than token", "ReMix clips around each token's own ratio",
        |r| matches!(r.gate, GateChoice::Remix { .. }) && r.ratio.level != RatioLevel::Token),
    rule("gate.kind clip_cov", "ratio.level other than token",
        "Clip-Cov drops tokens whose own ratio is not clipped",
        |r| matches!(r.gate, GateChoice::ClipCov { .. }) && r.ratio.level != RatioLevel::Token),
    rule("gate.kind dppo_tv, dppo_kl or trust_region", "ratio.level given, min_prefix, product or segment",
        "these gates read logp_old, which such a ratio replaces",
        |r| matches!(r.gate,
                GateChoice::DppoTv { .. } | GateChoice::DppoKl { .. } | GateChoice::TrustRegion { .. })
            && (given(r) || matches!(r.ratio.level, RatioLevel::Product | RatioLevel::Segment))),
    rule("ratio.on_policy", "ratio.level given", "given log-ratios are not relative to logp_old",
        |r| r.ratio.on_policy && r.ratio.level == RatioLevel::Given),
    rule("ratio.gradient mean", "ratio.level given or min_prefix",
        "how such a ratio depends on the tokens of its sequence is unknown",
        |r| r.ratio.gradient == RatioGradient::Mean && given(r)),
    rule("gate.kind kl_cov", "ratio.level product, or sequence or segment with ratio.gradient mean",
        "its KL term is per token, but here the coefficients of a sequence are combined",
        |r| matches!(r.gate, GateChoice::KlCov { .. }) && together(r)),
    rule("aggregation.empty one", "a ratio per token",
        "an empty sequence has a ratio only with ratio.level product or gate.kind gmpo",
        |r| empty(r) && !gmpo(r) && r.ratio.level != RatioLevel::Product),
    rule("aggregation.empty one", "gate.kind other than ppo_clip, two_sided or gmpo",
        "only with these gates is the loss -A at ratio 1",
        |r| empty(r)
            && !matches!(r.gate,
                GateChoice::PpoClip { .. } | GateChoice::TwoSided { .. } | GateChoice::Gmpo { .. })),
    rule("aggregation.empty one", "aggregation.mode other than seq-mean-token-mean",
        "it adds one sequence to a mean over sequences",
        |r| empty(r) && !gmpo(r) && r.aggregation.mode != AggregationMode::SeqMeanTokenMean),
    rule("aggregation.empty one", "aggregation.sequences nonempty",
        "a sequence that adds to the loss must count in its denominator",
        |r| empty(r) && !gmpo(r) && r.aggregation.sequences != CountedSequences::All),
    rule("kl.importance_weighted", "ratio.level given or min_prefix",
        "the term is weighted by logp - logp_old, which such a ratio replaces",
        |r| r.kl.is_some_and(|kl| kl.importance_weighted != KlWeighting::None) && given(r)),
    rule("kl.ratio policy", "kl.importance_weighted none or score",
        "the KL term then has no ratio, or a ratio of 1",
        |r| of_policy(r)
            && r.kl.is_some_and(|kl|
                matches!(kl.importance_weighted, KlWeighting::None | KlWeighting::Score))),
    rule("kl.ratio policy", "ratio.level segment", "a KL term is weighted per token or per sequence",
        |r| of_policy(r) && r.ratio.level == RatioLevel::Segment),
    rule("kl.ratio policy", "gate.kind gmpo", "GMPO's ratio is computed from clipped tokens",
        |r| of_policy(r) && gmpo(r)),
    rule("entropy.of kept", "no mask.top_entropy", "mask.top_entropy selects the kept tokens",
        |r| kept(r) && r.mask.top_entropy.is_none()),
    rule("entropy.of kept", "entropy.over batch",
        "the kept tokens of the whole batch are not counted: use call",
        |r| kept(r) && r.entropy.is_some_and(|entropy| entropy.over == CountsOf::Batch)),
    rule("reward.components or reward.clip", "advantage.over_time other than ui_s1 or signed_return",
        NO_REWARDS,
        |r| own_rewards(r)
            && !matches!(r.advantage.over_time,
                None | Some(TimeChoice::UiS1 { .. } | TimeChoice::SignedReturn { .. }))),
    rule("reward.components or reward.clip", "advantage.estimator reinforce_plus_plus", NO_REWARDS,
        |r| own_rewards(r) && r.advantage.estimator == AdvantageEstimator::ReinforcePlusPlus),
    rule("reward.components or reward.clip", "advantage.estimator gdpo",
        "it normalises each component separately",
        |r| own_rewards(r) && gdpo(r)),
    rule("reward.shaping or reward.overlong", "advantage.estimator reinforce_plus_plus", NO_REWARDS,
        |r| shaped(r) && r.advantage.estimator == AdvantageEstimator::ReinforcePlusPlus),
    rule("reward.shaping or reward.overlong", "advantage.estimator gdpo",
        "it normalises each component separately",
        |r| shaped(r) && gdpo(r)),
    rule("reward.filtration or reward.filter balanced", "advantage.estimator gdpo",
        "they read the rewards that the estimator sees, which are components here",
        |r| gdpo(r)
            && (r.reward.filtration.is_some()
                || matches!(r.reward.filter, Some(FilterChoice::Balanced { .. })))),
    rule("reward.components or reward.clip", "reward.shaping evol_rl", "it computes its own rewards",
        |r| own_rewards(r) && matches!(r.reward.shaping, Some(ShapingChoice::EvolRl { .. }))),
    rule("advantage.singleton leave_out", "advantage.estimator gdpo",
        "its batch step counts a group of one as 0: use zero",
        |r| r.advantage.singleton == SingletonChoice::LeaveOut && gdpo(r)),
    rule("kl.place reward", "kl.importance_weighted",
        "no gradient flows through a reward, and its samples are on-policy",
        |r| in_reward(r) && r.kl.is_some_and(|kl| kl.importance_weighted != KlWeighting::None)),
    rule("kl.place reward", "advantage.over_time mars or ui_s1",
        "its rewards are those of turns and steps, without a penalty of tokens",
        |r| in_reward(r)
            && matches!(r.advantage.over_time, Some(TimeChoice::Mars { .. } | TimeChoice::UiS1 { .. }))),
    rule("kl.place reward", "advantage.estimator gdpo", "it normalises each component separately",
        |r| in_reward(r) && gdpo(r)),
    rule("kl.place reward", "reward.shaping evol_rl", "it computes its own rewards",
        |r| in_reward(r) && matches!(r.reward.shaping, Some(ShapingChoice::EvolRl { .. }))),
    rule("kl.place reward", "reward.shaping signs, fapo, conciser or brpo", RIGHT,
        |r| in_reward(r)
            && !matches!(r.reward.shaping,
                None | Some(ShapingChoice::EvolRl { .. } | ShapingChoice::Grpovi { .. }))),
    rule("kl.place reward", "advantage.estimator pass_at_k", RIGHT,
        |r| in_reward(r) && r.advantage.estimator == AdvantageEstimator::PassAtK),
    rule("kl.place convex", "kl.importance_weighted", "the two KL terms are added without a weight",
        |r| r.kl.is_some_and(|kl| kl.place == KlPlace::Convex
            && kl.importance_weighted != KlWeighting::None)),
    rule("kl.place reward", "kl.straight_through", "no gradient flows through a reward",
        |r| in_reward(r) && r.kl.is_some_and(|kl| kl.straight_through)),
    rule("gate.kind kl_cov", "[kl]", OWN_KL,
        |r| matches!(r.gate, GateChoice::KlCov { .. }) && r.kl_term().is_some()),
    rule("gate.kind dro", "[kl]", OWN_KL,
        |r| matches!(r.gate, GateChoice::Dro { .. }) && r.kl_term().is_some()),
    rule("gate.kind vespo or topr", "advantage.over_time", PER_TOKEN,
        |r| r.gate.weighs_sequences() && r.advantage.over_time.is_some()),
    rule("gate.kind vespo or topr", "advantage.estimator reinforce_plus_plus or tempo", PER_TOKEN,
        |r| r.gate.weighs_sequences() && token_estimator(r)),
    rule("gate.kind vespo or topr", "reward.entropy", PER_TOKEN,
        |r| r.gate.weighs_sequences() && r.reward.entropy.is_some()),
    rule("mask.opsm_delta", "advantage.over_time", PER_TOKEN,
        |r| r.mask.opsm_delta.is_some() && r.advantage.over_time.is_some()),
    rule("mask.opsm_delta", "advantage.estimator reinforce_plus_plus or tempo", PER_TOKEN,
        |r| r.mask.opsm_delta.is_some() && token_estimator(r)),
    rule("mask.opsm_delta", "reward.entropy", PER_TOKEN,
        |r| r.mask.opsm_delta.is_some() && r.reward.entropy.is_some()),
    rule("mask.opsm_against rollout", "no mask.opsm_delta",
        "it says what mask.opsm_delta is measured against",
        |r| r.mask.opsm_against == Against::Rollout && r.mask.opsm_delta.is_none()),
    rule("advantage.over_time signed_return", "reward.shaping",
        "it tells right from wrong by the unshaped reward",
        |r| signed(r) && r.reward.shaping.is_some()),
    rule("advantage.over_time", "reward.shaping or reward.overlong", NO_STAGE,
        |r| own_call(r, true) && shaped(r)),
    rule("advantage.over_time signed_return", "kl.place reward", "the whole reward is at the last token",
        |r| signed(r) && in_reward(r)),
    rule("advantage.over_time", "reward.filter, except a filter of rewards with signed_return", NO_STAGE,
        |r| own_call(r, true) && r.reward.filter.is_some_and(|filter| !(signed(r) && filter.of_rewards()))),
    rule("advantage.over_time", "reward.sharpen", NO_STAGE,
        |r| own_call(r, true) && r.reward.sharpen.is_some()),
    rule("advantage.over_time", "reward.filtration", NO_STAGE,
        |r| own_call(r, true) && r.reward.filtration.is_some()),
    rule("advantage.over_time", "reward.group_factor_cap", NO_STAGE,
        |r| own_call(r, true) && r.reward.group_factor_cap.is_some()),
    rule("advantage.over_time", "reward.entropy", NO_STAGE,
        |r| own_call(r, true) && r.reward.entropy.is_some()),
    rule("advantage.estimator reinforce_plus_plus or tempo", "reward.filter", NO_STAGE,
        |r| own_call(r, false) && r.reward.filter.is_some()),
    rule("advantage.estimator reinforce_plus_plus or tempo", "reward.sharpen", NO_STAGE,
        |r| own_call(r, false) && r.reward.sharpen.is_some()),
    rule("advantage.estimator reinforce_plus_plus or tempo", "reward.filtration", NO_STAGE,
        |r| own_call(r, false) && r.reward.filtration.is_some()),
    rule("advantage.estimator reinforce_plus_plus or tempo", "reward.group_factor_cap", NO_STAGE,
        |r| own_call(r, false) && r.reward.group_factor_cap.is_some()),
    rule("advantage.estimator reinforce_plus_plus or tempo", "reward.entropy", NO_STAGE,
        |r| own_call(r, false) && r.reward.entropy.is_some()),
    rule("advantage.estimator pass_at_k, gdpo or role_baseline", "reward.group_factor_cap", NO_DEVIATION,
        |r| (apart(r) || gdpo(r)) && r.reward.group_factor_cap.is_some()),
    rule("advantage.estimator pass_at_k or role_baseline", "advantage.whiten", UNUSED,
        |r| apart(r) && r.advantage.whitening().is_some()),
    rule("advantage.estimator gdpo", "advantage.whiten none", "the estimator is whitened by definition",
        |r| gdpo(r) && r.advantage.whiten == Some(WhitenChoice::None)),
    rule("advantage.estimator pass_at_k or role_baseline", "advantage.limit", UNUSED,
        |r| apart(r) && r.advantage.limit.is_some()),
];

fn gmpo(r: &Recipe) -> bool {
    matches!(r.gate, GateChoice::Gmpo { .. })
}

/// Whether an empty sequence adds to the loss.
fn empty(r: &Recipe) -> bool {
    r.aggregation.empty == EmptySequence::One
}

/// Whether the coefficients of a sequence's tokens are combined.
fn together(r: &Recipe) -> bool {
    let means = matches!(r.ratio.level, RatioLevel::Sequence | RatioLevel::Segment);
    (means && r.ratio.gradient == RatioGradient::Mean) || r.ratio.level == RatioLevel::Product
}

fn of_policy(r: &Recipe) -> bool {
    r.kl.is_some_and(|kl| kl.ratio == KlRatio::Policy)
}

fn kept(r: &Recipe) -> bool {
    r.entropy.is_some_and(|entropy| entropy.of == EntropyTokens::Kept)
}

/// Whether the recipe replaces or clips the column `rewards`.
fn own_rewards(r: &Recipe) -> bool {
    r.reward.components.is_some() || r.reward.clip.is_some()
}

fn shaped(r: &Recipe) -> bool {
    r.reward.shaping.is_some() || r.reward.overlong.is_some()
}

fn in_reward(r: &Recipe) -> bool {
    r.kl.is_some_and(|kl| kl.place == KlPlace::Reward)
}

fn given(r: &Recipe) -> bool {
    matches!(r.ratio.level, RatioLevel::Given | RatioLevel::MinPrefix)
}

/// Whether the estimator has an advantage per token.
fn token_estimator(r: &Recipe) -> bool {
    matches!(r.advantage.estimator, AdvantageEstimator::ReinforcePlusPlus | AdvantageEstimator::Tempo)
}

/// Whether the advantages are those of [`over_time`](super::TimeChoice), or of an estimator per token.
fn own_call(r: &Recipe, over_time: bool) -> bool {
    if over_time { r.advantage.over_time.is_some() } else { token_estimator(r) }
}

fn signed(r: &Recipe) -> bool {
    matches!(r.advantage.over_time, Some(TimeChoice::SignedReturn { .. }))
}

/// Whether the estimator is not a call of the group op.
fn gdpo(r: &Recipe) -> bool {
    r.advantage.estimator == AdvantageEstimator::Gdpo
}

fn apart(r: &Recipe) -> bool {
    matches!(r.advantage.estimator, AdvantageEstimator::PassAtK | AdvantageEstimator::RoleBaseline)
}

fn rejects_tokens_by_weight(r: &Recipe) -> bool {
    let Some(correction) = &r.correction else { return false };
    let of_tokens = correction.reject.iter().any(|reject| reject.statistic.name().starts_with("token_"));
    of_tokens && correction.denominator == Denominator::Before
}

impl Recipe {
    /// Errors with the first pair of choices that cannot be combined, by its keys.
    pub(super) fn check_conflicts(&self) -> Result<(), Error> {
        if one_holds(self)
            && let Some(Rule { left, right, why, .. }) = RULES.iter().find(|rule| (rule.holds)(self))
        {
            return Err(Error::Recipe(format!("{left} cannot be combined with {right}: {why}")));
        }
        Ok(())
    }
}
