//! The stages of a recipe as launches. The file exceeds 400 lines because the stages of both calls hand each
//! other their arrays.

use super::exec::{Array, Exec, mask, offsets};
use super::{Bad, Calls, Capacity, CreditViews as Credit, Plan};
use crate::columns::{Column, Columns};
use crate::ops::correction::CorrectionParams;
use crate::ops::whiten::WhitenParams;
use crate::recipe::{
    AdvantageEstimator, Against, AggregationMode, CountedSequences, Denominator, EmptySequence, FilterChoice,
    GateChoice, KlPlace, NanReward, RatioAdvantage, RatioGradient, RatioLevel, Recipe, Reduction,
    ShapingChoice, SingletonChoice, TimeChoice,
};
use crate::rollouts::Views;
use crate::stage::with_gate;
use crate::{Call, Compiled, Counts, Error};
use lockstep_core::advantage::grpo::status;
use lockstep_core::advantage::{
    Baseline, DiscountedReturn, Gae, GroupAdvantage, PassAtK, Singleton, VTrace, Whiten,
};
use lockstep_core::aggregate::moments::MOMENTS;
use lockstep_core::aggregate::totals::{COUNTS, MetricTotals};
use lockstep_core::aggregate::weight::PARTS;
use lockstep_core::aggregate::{
    Aggregate, BatchCounts, FoldMoments, LossTotals, PerRow, RowMoments, Weight, WeightFrom,
};
use lockstep_core::correction::RolloutCorrection;
use lockstep_core::correction::weights::sum as correction_sum;
use lockstep_core::gate::{Divergence, Gate};
use lockstep_core::policy_loss::{
    KlTerm, LossOut, MetricsOut, PolicyLoss, PolicyLossGmpo, SequenceWeight, sum,
};
use lockstep_core::ragged::{In, Mask, Offsets};
use lockstep_core::ratio::{LogRatioScan, ScanKind};
use lockstep_core::reward::{FilterGroups, MaskSequences, ShapeRewards};
use lockstep_core::value_loss::ValueLoss;

impl Recipe {
    /// The TOML key of a rule without a launch, because of which a plan leaves the whole call to the host.
    pub(super) fn host_rule(&self, call: Call) -> Option<&'static str> {
        match call {
            Call::Advantages => self.host_rule_of_advantages(),
            Call::Loss => self.host_rule_of_loss(),
        }
    }

    fn host_rule_of_advantages(&self) -> Option<&'static str> {
        let (advantage, reward) = (&self.advantage, &self.reward);
        let over_time = match advantage.over_time {
            Some(TimeChoice::Gae { .. } | TimeChoice::Vtrace { .. }) => advantage.limit.is_some(),
            Some(_) => true,
            None => false,
        };
        let estimator = match advantage.estimator {
            AdvantageEstimator::Gdpo
            | AdvantageEstimator::RoleBaseline
            | AdvantageEstimator::Tempo
            | AdvantageEstimator::Reward => true,
            // A launch of returns does not clear masked tokens.
            AdvantageEstimator::ReinforcePlusPlus => advantage.whitening().is_none(),
            // Its lengths are those after rejection; the lengths of shaping are not.
            AdvantageEstimator::Opo if self.correction.is_some() => true,
            _ => advantage.whitening().is_some() || advantage.robust.is_some(),
        };
        let shaping =
            matches!(reward.shaping, Some(ShapingChoice::Grpovi { .. } | ShapingChoice::EvolRl { .. }));
        let rules = [
            (over_time, "advantage.over_time"),
            (estimator, "advantage.estimator"),
            (shaping, "reward.shaping"),
            (reward.sharpen.is_some(), "reward.sharpen"),
            (reward.filtration.is_some(), "reward.filtration"),
            (reward.group_factor_cap.is_some(), "reward.group_factor_cap"),
            (reward.entropy.is_some(), "reward.entropy"),
            (reward.weights.is_some(), "reward.weights"),
            (matches!(reward.filter, Some(FilterChoice::AtMostTokens { .. })), "reward.filter"),
            (self.correction.as_ref().is_some_and(|c| c.normalize), "correction.normalize"),
            (self.correction.as_ref().is_some_and(|c| c.m2_threshold.is_some()), "correction.m2_threshold"),
            (self.kl.is_some_and(|kl| kl.place == KlPlace::Reward), "kl.place"),
            (advantage.nan_reward != NanReward::Exclude, "advantage.nan_reward"),
            (advantage.over_nonzero == Some(true), "advantage.over_nonzero"),
            (reward.components.is_some(), "reward.components"),
            (reward.clip.is_some(), "reward.clip"),
            (advantage.singleton == SingletonChoice::LeaveOut, "advantage.singleton"),
        ];
        rules.into_iter().find(|(holds, _)| *holds).map(|(_, key)| key)
    }

    fn host_rule_of_loss(&self) -> Option<&'static str> {
        let rules = [
            (matches!(self.gate, GateChoice::KlCov { .. } | GateChoice::ClipCov { .. }), "gate"),
            (self.mask.top_entropy.is_some(), "mask.top_entropy"),
            (matches!(self.ratio.level, RatioLevel::Product | RatioLevel::Segment), "ratio.level"),
            (
                self.ratio.level == RatioLevel::Sequence && self.ratio.gradient == RatioGradient::Mean,
                "ratio.gradient",
            ),
            (self.aggregation.empty == EmptySequence::One, "aggregation.empty"),
            (self.ratio.advantage == RatioAdvantage::SequenceMean && self.per_token(), "ratio.advantage"),
            (self.kl.is_some_and(|kl| kl.place == KlPlace::Convex), "kl.place"),
            (
                self.weighted_kl().is_some()
                    || (self.kl_term().is_some() && matches!(self.gate, GateChoice::Gmpo { .. })),
                "kl",
            ),
            (self.entropy.is_some(), "entropy"),
            (self.metrics.reduction == Reduction::Exact, "metrics.reduction"),
        ];
        rules.into_iter().find(|(holds, _)| *holds).map(|(_, key)| key)
    }

    /// Whether a filter or rejection changes the loss mask.
    pub(super) fn masks(&self) -> bool {
        let rejects = self.correction.as_ref().is_some_and(|c| c.denominator == Denominator::After);
        self.reward.filter.is_some() || rejects
    }

    /// Whether the estimator makes returns.
    pub(super) fn makes_returns(&self) -> bool {
        self.advantage.over_time.is_some()
            || self.advantage.estimator == AdvantageEstimator::ReinforcePlusPlus
    }

    /// Whether the advantages are per token.
    pub fn per_token(&self) -> bool {
        let estimator = matches!(
            self.advantage.estimator,
            AdvantageEstimator::ReinforcePlusPlus | AdvantageEstimator::Tempo
        );
        estimator || self.advantage.over_time.is_some() || self.reward.entropy.is_some()
    }

    /// Columns with the lengths of a capacity but no addresses, for counting.
    pub(super) fn dummy_views(&self, capacity: &Capacity) -> Views<'static> {
        let length = |column: Column| capacity.length(column.shape()).unwrap_or(1);
        // Without `counts`, a plan counts by itself, which needs more scratch memory.
        let columns = self.reads().without(Columns::of(&[Column::counts]));
        // SAFETY: nothing reads them.
        #[allow(unsafe_code)]
        unsafe {
            Views::from_raw(|column| columns.contains(column).then(|| (std::ptr::null(), length(column))))
        }
    }
}

/// A column that `check` has found to be present, or an error.
fn there<T>(column: Option<T>, name: &'static str) -> Result<T, Error> {
    column.ok_or_else(|| Error::Plan(format!("column {name} is missing")))
}

impl Plan {
    /// Runs through all launches of the plan, in order, with the columns of either call.
    pub(super) fn pass(
        &self,
        exec: &mut Exec<'_>,
        [columns, of_loss]: [&Views<'_>; 2],
        credit: Option<&Credit<'_>>,
    ) -> Result<(), Error> {
        let host = |call| self.host.iter().any(|stage| stage.call == call);
        let credit = match (self.calls, credit) {
            (Calls::Loss, Some(credit)) => *credit,
            (Calls::Loss, None) => self.dummy_credit(exec),
            _ if host(Call::Advantages) => self.host_advantages(exec, columns)?,
            _ => self.advantages(exec, columns)?,
        };
        match self.calls {
            Calls::Advantages => Ok(()),
            _ if host(Call::Loss) => self.host_loss(exec, of_loss, &credit),
            _ => self.loss(exec, of_loss, &credit),
        }
    }

    /// A credit with the right lengths, for counting.
    fn dummy_credit<'a>(&self, exec: &mut Exec<'_>) -> Credit<'a> {
        let before = exec.ends;
        let Capacity { tokens, sequences, .. } = self.capacity;
        let own = if self.recipe.per_token() { tokens } else { sequences };
        let credit = Credit {
            advantage: exec.scratch::<f32>(own).view(),
            per_token: self.recipe.per_token(),
            loss_mask: None,
            weights: None,
            returns: self.recipe.value.map(|_| exec.scratch::<f32>(tokens).view()),
        };
        exec.ends = before;
        credit
    }

    fn advantages<'a>(&self, exec: &mut Exec<'_>, columns: &Views<'a>) -> Result<Credit<'a>, Error> {
        let recipe = &self.recipe;
        let Capacity { tokens, sequences, groups } = self.capacity;
        let cu_seqlens = offsets(there(columns.cu_seqlens, "cu_seqlens")?);
        let cu_groups = offsets(there(columns.cu_groups, "cu_groups")?);
        let mut loss_mask = columns.loss_mask;
        let (mut valid, mut weights) = (columns.valid, None);
        if let Some(choice) = &recipe.correction {
            let CorrectionParams { level, rule, low, high, bound, rejections, denominator, .. } =
                choice.params()?;
            let own = exec.result::<f32>("weights", tokens);
            let after = denominator == Denominator::After;
            let kept_mask = match after && recipe.reward.filter.is_none() {
                true => exec.result::<u8>("loss_mask", tokens),
                false => exec.scratch::<u8>(tokens),
            };
            let kept = exec.result::<u8>("kept", sequences);
            let kernel = RolloutCorrection {
                cu_seqlens,
                loss_mask: mask(loss_mask),
                logp_old: there(columns.logp_old, "logp_old")?,
                logp_rollout: there(columns.logp_rollout, "logp_rollout")?,
                level,
                rule,
                band: [low.unwrap_or(1.0 / high), high],
                bounded_below: low.is_some(),
                bound,
                rejections,
                weights: own.out(),
                kept_mask: kept_mask.out(),
                row_kept: kept.out(),
                row_sums: exec.result::<f64>("correction_sums", sequences * correction_sum::SUMS).out(),
                row_maxima: exec.result::<f32>("correction_maxima", sequences * 4).out(),
                row_alarm: exec.alarm("correction", sequences).out(),
            };
            exec.run(&kernel)?;
            weights = Some(own.view());
            if after {
                loss_mask = Some(kept_mask.view());
            }
            if recipe.counts_kept() {
                // `check` refuses the column beside it.
                valid = Some(kept.view());
            }
        }
        let rows = (cu_seqlens, mask(loss_mask));
        let own = match (recipe.advantage.over_time, recipe.advantage.estimator) {
            (Some(choice), _) => self.over_time(exec, columns, rows, choice)?,
            (None, AdvantageEstimator::ReinforcePlusPlus) => {
                let returns = exec.result::<f32>("returns", tokens);
                let kernel = DiscountedReturn {
                    cu_seqlens,
                    loss_mask: rows.1,
                    rewards: there(columns.token_rewards, "token_rewards")?,
                    gamma: recipe.advantage.gamma.unwrap_or(1.0),
                    returns: returns.out(),
                };
                exec.run(&kernel)?;
                let Some(params) = recipe.advantage.whitening() else {
                    return Err(Error::Plan("returns without whitening have no launch".into()));
                };
                let advantage = self.whitened(exec, rows, returns.view(), params)?;
                Own { advantage, per_token: true, returns: Some(returns.view()), keep: None }
            }
            _ => {
                let offsets = (cu_seqlens, cu_groups);
                self.of_groups(exec, columns, offsets, (columns.loss_mask, valid), (sequences, groups))?
            }
        };
        if let Some(keep) = own.keep {
            let masked = exec.result::<u8>("loss_mask", tokens);
            let kernel = MaskSequences { cu_seqlens, loss_mask: mask(loss_mask), keep, masked: masked.out() };
            exec.run(&kernel)?;
            loss_mask = Some(masked.view());
        }
        let Own { advantage, per_token, returns, .. } = own;
        Ok(Credit { advantage, per_token, loss_mask, weights, returns })
    }

    /// Estimators for outcome rewards, with the shaping before and the filter after them.
    fn of_groups(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'_>,
        (cu_seqlens, cu_groups): (Offsets<'_>, Offsets<'_>),
        (loss_mask, valid): (Option<In<'_, u8>>, Option<In<'_, u8>>),
        (sequences, groups): (usize, usize),
    ) -> Result<Own, Error> {
        let (recipe, choice) = (&self.recipe, &self.recipe.advantage);
        let mut known: Option<Array<u32>> = None;
        let mut lengths = |exec: &mut Exec<'_>| -> Result<In<'static, u32>, Error> {
            if known.is_none() {
                let (tokens, loss_mask) = (exec.scratch::<u32>(sequences), mask(loss_mask));
                let kernel = Aggregate {
                    cu_seqlens,
                    loss_mask,
                    values: None,
                    row_sum: exec.scratch::<f64>(sequences).out(),
                    row_tokens: tokens.out(),
                    row_alarm: exec.scratch::<u32>(sequences).out(),
                };
                exec.run(&kernel)?;
                known = Some(tokens);
            }
            there(known.map(Array::view), "cu_seqlens")
        };
        let raw = there(columns.rewards, "rewards")?;
        let mut rewards = raw;
        for shaping in recipe.reward.shapings() {
            let shaped = exec.scratch::<f32>(sequences);
            let kernel = ShapeRewards {
                cu_groups,
                rewards,
                valid: mask(valid),
                shaping,
                threshold: recipe.reward.threshold,
                lengths: if shaping.needs_lengths() { Some(lengths(exec)?) } else { None },
                flags: columns.flawed,
                reference: columns.reference,
                shaped: shaped.out(),
            };
            exec.run(&kernel)?;
            // The array is the plan's own; it outlives the pass.
            rewards = shaped.view();
        }
        let advantage = exec.result::<f32>("advantage", sequences);
        if choice.estimator == AdvantageEstimator::PassAtK {
            let k = choice.k.unwrap_or(crate::stage::PASS_AT_K);
            let kernel = PassAtK {
                cu_groups,
                rewards,
                valid: mask(valid),
                k,
                threshold: recipe.reward.threshold,
                eps: choice.eps,
                advantage: advantage.out(),
                pass_at_k: exec.result::<f32>("mean", groups).out(),
                counted: exec.result::<u32>("counted", groups).out(),
                too_few: exec.judged(["too_few", "advantage"], groups, Bad::Bits(1)).out(),
            };
            exec.run(&kernel)?;
        } else {
            let params = choice.group_params();
            let has_pivot = matches!(params.baseline, Baseline::Median | Baseline::Second);
            let moments = match params.scale.needs_moments() {
                true => Some(self.moments(exec, (cu_groups, mask(valid)), rewards, (false, true))?),
                false => None,
            };
            let lone = choice.singleton == SingletonChoice::Error && params.baseline.is_of_the_group();
            let bad = status::INFINITE | status::BAD_BASELINE | if lone { status::SINGLETON } else { 0 };
            let kernel = GroupAdvantage {
                cu_groups,
                rewards,
                valid: mask(valid),
                baseline: params.baseline,
                scale: params.scale,
                singleton: params.singleton.unwrap_or(Singleton::Zero),
                limit: params.limit,
                least_std: params.least_std,
                weights: columns.baseline_weights,
                lengths: if params.baseline == Baseline::Length { Some(lengths(exec)?) } else { None },
                given: columns.baseline,
                moments,
                advantage: advantage.out(),
                mean: exec.result::<f32>("mean", groups).out(),
                std: exec.result::<f32>("std", groups).out(),
                counted: exec.result::<u32>("counted", groups).out(),
                status: exec.judged(["status", "advantage"], groups, Bad::Bits(bad)).out(),
                pivot: has_pivot.then(|| exec.result::<u32>("pivot", groups).out()),
                residual: None,
            };
            exec.run(&kernel)?;
        }
        let mut keep = None;
        if let Some(filter) = recipe.reward.filter {
            let kept = exec.result::<u8>("keep", sequences);
            let kernel = FilterGroups {
                cu_groups,
                metric: match filter {
                    FilterChoice::Balanced { .. } => rewards,
                    FilterChoice::NonzeroAdvantage {} => advantage.view(),
                    _ => raw,
                },
                valid: mask(valid),
                criterion: filter.criterion(),
                keep: kept.out(),
                kept: exec.scratch::<u32>(groups).out(),
                statistic: exec.scratch::<f32>(groups).out(),
            };
            exec.run(&kernel)?;
            keep = Some(kept.view());
        }
        Ok(Own { advantage: advantage.view(), per_token: false, returns: None, keep })
    }

    fn over_time(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'_>,
        (cu_seqlens, loss_mask): (Offsets<'_>, Mask<'_>),
        choice: TimeChoice,
    ) -> Result<Own, Error> {
        let Capacity { tokens, sequences, .. } = self.capacity;
        let rewards = there(columns.token_rewards, "token_rewards")?;
        let values = there(columns.values_old, "values_old")?;
        let whitening = self.recipe.advantage.whitening();
        let raw = match whitening {
            Some(_) => exec.scratch::<f32>(tokens),
            None => exec.result::<f32>("advantage", tokens),
        };
        let returns = exec.result::<f32>("returns", tokens);
        // Without flags, every sequence terminated.
        let (truncated, bootstrap) = (mask(columns.truncated), columns.bootstrap);
        match choice {
            TimeChoice::Gae { gamma, lambda, lambda_critic, length_alpha } => {
                let both = [(lambda, length_alpha, true, lambda_critic.is_none())];
                let critic = lambda_critic.map(|lambda| (lambda, None, false, true));
                for (lambda, length_alpha, of_advantage, of_returns) in both.into_iter().chain(critic) {
                    let kernel = Gae {
                        cu_seqlens,
                        loss_mask,
                        rewards,
                        values,
                        bootstrap,
                        truncated,
                        gamma,
                        lambda: if length_alpha.is_some() { 0.0 } else { lambda },
                        length_alpha,
                        advantage: of_advantage.then(|| raw.out()),
                        returns: of_returns.then(|| returns.out()),
                        row_alarm: exec.alarm("advantage.over_time", sequences).out(),
                    };
                    exec.run(&kernel)?;
                }
            }
            TimeChoice::Vtrace { gamma, lambda, rho_bar, rho_pg, c_bar } => {
                let kernel = VTrace {
                    cu_seqlens,
                    loss_mask,
                    logp: there(columns.logp_old, "logp_old")?,
                    logp_rollout: there(columns.logp_rollout, "logp_rollout")?,
                    rewards,
                    values,
                    bootstrap,
                    truncated,
                    gamma,
                    lambda,
                    rho_bar,
                    rho_pg,
                    c_bar,
                    vs: returns.out(),
                    advantage: raw.out(),
                    row_alarm: exec.alarm("advantage.over_time", sequences).out(),
                };
                exec.run(&kernel)?;
            }
            _ => return Err(Error::Plan("this estimator has no launch".into())),
        }
        let advantage = match whitening {
            None => raw.view(),
            Some(params) => self.whitened(exec, (cu_seqlens, loss_mask), raw.view(), params)?,
        };
        Ok(Own { advantage, per_token: true, returns: Some(returns.view()), keep: None })
    }

    /// Moments of a batch.
    fn moments(
        &self,
        exec: &mut Exec<'_>,
        (offsets, mask): (Offsets<'_>, Mask<'_>),
        values: In<'_, f32>,
        (per_row, nan_is_missing): (bool, bool),
    ) -> Result<In<'static, f64>, Error> {
        let rows = offsets.rows();
        let (of_rows, moments) = (exec.scratch::<f64>(MOMENTS * rows), exec.scratch::<f64>(MOMENTS));
        let row_alarm = exec.alarm("advantage", rows).out();
        let row_moments = of_rows.out();
        let kernel = RowMoments { offsets, mask, values, per_row, nan_is_missing, row_moments, row_alarm };
        exec.run(&kernel)?;
        let kernel = FoldMoments { row_moments: of_rows.view(), rows, moments: moments.out() };
        exec.run(&kernel)?;
        Ok(moments.view())
    }

    /// Whitens advantages of tokens.
    fn whitened(
        &self,
        exec: &mut Exec<'_>,
        (cu_seqlens, loss_mask): (Offsets<'_>, Mask<'_>),
        values: In<'_, f32>,
        params: WhitenParams,
    ) -> Result<In<'static, f32>, Error> {
        let whitened = exec.result::<f32>("advantage", values.len());
        let moments = self.moments(exec, (cu_seqlens, loss_mask), values, (false, false))?;
        let kernel = Whiten {
            offsets: cu_seqlens,
            mask: loss_mask,
            values,
            nan_is_missing: false,
            moments,
            centre: params.centre,
            divisor: params.divisor,
            ddof: params.ddof,
            eps: params.eps,
            whitened: whitened.out(),
            row_alarm: exec.alarm("advantage.whiten", cu_seqlens.rows()).out(),
        };
        exec.run(&kernel)?;
        Ok(whitened.view())
    }

    fn loss(&self, exec: &mut Exec<'_>, columns: &Views<'_>, credit: &Credit<'_>) -> Result<(), Error> {
        let recipe = &self.recipe;
        let Capacity { tokens, sequences, .. } = self.capacity;
        let cu_seqlens = offsets(there(columns.cu_seqlens, "cu_seqlens")?);
        let loss_mask = mask(credit.loss_mask.or(columns.loss_mask));
        let logp = there(columns.logp, "logp")?;
        let logp_old = if recipe.ratio.on_policy { columns.logp } else { columns.logp_old };
        let columns = &Views { logp_old, ..*columns };
        let mut counted: Option<[In<'static, u64>; 3]> = None;
        let mut from = |exec: &mut Exec<'_>, aggregation: &crate::recipe::Aggregation| {
            self.weight_from(exec, columns, (cu_seqlens, loss_mask), aggregation, &mut counted)
        };
        let (weight, weight_from) = from(exec, &recipe.aggregation)?;
        let against = |which| match which {
            Against::Old => there(columns.logp_old, "logp_old"),
            Against::Rollout => there(columns.logp_rollout, "logp_rollout"),
        };
        let mut weights = credit.weights;
        for (rule, which) in recipe.sequence_rules().into_iter().flatten() {
            let out = exec.scratch::<f32>(tokens);
            let kernel = SequenceWeight {
                cu_seqlens,
                loss_mask,
                logp,
                logp_behave: against(which)?,
                advantage: credit.advantage,
                weights,
                rule,
                out: out.out(),
                row_alarm: exec.alarm("gate", sequences).out(),
            };
            exec.run(&kernel)?;
            weights = Some(out.view());
        }
        let ratio = match recipe.ratio.level {
            RatioLevel::Given => there(columns.log_ratio, "log_ratio")?,
            RatioLevel::MinPrefix => {
                let scanned = exec.scratch::<f32>(tokens);
                let kernel = LogRatioScan {
                    offsets: cu_seqlens,
                    loss_mask,
                    logp,
                    logp_old: there(columns.logp_old, "logp_old")?,
                    kind: ScanKind::MinBefore,
                    cap_at_one: true,
                    log_ratio: scanned.out(),
                    row_alarm: exec.alarm("ratio", sequences).out(),
                };
                exec.run(&kernel)?;
                scanned.view()
            }
            _ => there(columns.logp_old, "logp_old")?,
        };
        let out = Launched {
            coef: exec.result::<f32>("coef", tokens),
            token_loss: (self.outputs.token_loss && !matches!(recipe.gate, GateChoice::Gmpo { .. }))
                .then(|| exec.result::<f32>("token_loss", tokens)),
            row_loss: exec.result::<f64>("row_loss", sequences),
            row_tokens: exec.scratch::<u32>(sequences),
            row_alarm: exec.alarm("gate", sequences),
            metrics: self.outputs.metrics.then(|| self.row_metrics(exec)),
        };
        let inputs = Inputs { cu_seqlens, loss_mask, logp, ratio, weights, weight, weight_from };
        with_gate!(
            recipe.gate,
            gmpo => self.gmpo(exec, credit, &inputs, &out)?,
            |gate| self.gated(exec, columns, credit, &inputs, gate, &out)?
        );
        let kernel = LossTotals {
            row_loss: out.row_loss.view(),
            row_tokens: out.row_tokens.view(),
            row_alarm: out.row_alarm.view(),
            loss: exec.result::<f64>("loss", 1).out(),
            counts: exec.result::<u64>("counts", COUNTS).out(),
            alarm: exec.scratch::<u32>(1).out(),
            metrics: out.metrics.map(|(sums, maxima)| MetricTotals {
                row_sums: sums.view(),
                row_maxima: maxima.view(),
                sums: exec.result::<f64>("sums", sum::SUMS).out(),
                maxima: exec.result::<f32>("maxima", 2).out(),
            }),
        };
        exec.run(&kernel)?;
        let Some(value) = recipe.value else { return Ok(()) };
        let (own, weight_from) = from(exec, &value.aggregation)?;
        let row_loss = exec.result::<f64>("value_row_loss", sequences);
        let row_tokens = exec.scratch::<u32>(sequences);
        let row_alarm = exec.alarm("value", sequences);
        let kernel = ValueLoss {
            cu_seqlens,
            loss_mask,
            values: there(columns.values, "values")?,
            values_old: columns.values_old,
            returns: there(credit.returns, "credit.returns")?,
            cliprange_value: value.cliprange_value.unwrap_or(f32::INFINITY),
            huber_delta: value.huber_delta.unwrap_or(f32::INFINITY),
            weight: Weight { scale: value.coef, ..own },
            weight_from,
            gradient: exec.result::<f32>("value_gradient", tokens).out(),
            token_loss: self.outputs.token_loss.then(|| exec.result::<f32>("value_token_loss", tokens).out()),
            row_loss: row_loss.out(),
            row_clipped: exec.result::<u32>("value_row_clipped", sequences).out(),
            row_tokens: row_tokens.out(),
            row_alarm: row_alarm.out(),
        };
        exec.run(&kernel)?;
        let kernel = LossTotals {
            row_loss: row_loss.view(),
            row_tokens: row_tokens.view(),
            row_alarm: row_alarm.view(),
            loss: exec.result::<f64>("value_loss", 1).out(),
            counts: exec.scratch::<u64>(COUNTS).out(),
            alarm: exec.scratch::<u32>(1).out(),
            metrics: None,
        };
        exec.run(&kernel)
    }

    /// Sums `[SUMS][S]` and maxima `[2][S]` of the rows, from which exact totals are made.
    pub(super) fn row_metrics(&self, exec: &mut Exec<'_>) -> (Array<f64>, Array<f32>) {
        let rows = self.capacity.sequences;
        (exec.result("row_sums", rows * sum::SUMS), exec.result("row_maxima", rows * 2))
    }

    fn gated<G: Gate>(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'_>,
        credit: &Credit<'_>,
        inputs: &Inputs<'_>,
        gate: G,
        out: &Launched,
    ) -> Result<(), Error>
    where
        for<'a> PolicyLoss<'a, G>: Compiled,
    {
        let recipe = &self.recipe;
        let (kl, weighted) = recipe.composed_kl();
        let reference = match recipe.gate {
            GateChoice::Dro { .. } => columns.logp_old,
            _ => columns.logp_ref,
        };
        let kl = match kl {
            None => None,
            Some((kl, coef)) => Some(KlTerm { logp_ref: there(reference, "logp_ref")?, kl, coef, weighted }),
        };
        let kernel = PolicyLoss {
            cu_seqlens: inputs.cu_seqlens,
            loss_mask: inputs.loss_mask,
            logp: inputs.logp,
            logp_old: inputs.ratio,
            logp_second: match recipe.gate {
                GateChoice::TrustRegion { divergence: Divergence::Given, .. } => columns.divergence,
                GateChoice::Minirl { .. } | GateChoice::TrustRegion { .. } => columns.logp_rollout,
                GateChoice::Remix { .. } => columns.logp_latest,
                _ => None,
            },
            advantage: credit.advantage,
            advantage_per_token: credit.per_token,
            weights: inputs.weights,
            level: recipe.level(),
            guard: recipe.guard(),
            gate,
            kl,
            weight: inputs.weight,
            weight_from: inputs.weight_from,
            coef: out.coef.out(),
            loss: Some(LossOut { token_loss: out.token_loss.map(Array::out), row_loss: out.row_loss.out() }),
            row_tokens: out.row_tokens.out(),
            row_alarm: out.row_alarm.out(),
            metrics: out.metrics.map(|(sums, maxima)| MetricsOut {
                row_sums: sums.out(),
                row_maxima: maxima.out(),
                band: recipe.metrics.band,
            }),
        };
        exec.run(&kernel)
    }

    fn gmpo(
        &self,
        exec: &mut Exec<'_>,
        credit: &Credit<'_>,
        inputs: &Inputs<'_>,
        out: &Launched,
    ) -> Result<(), Error> {
        let recipe = &self.recipe;
        let [clip_log_low, clip_log_high] = recipe.gmpo_bounds();
        let kernel = PolicyLossGmpo {
            cu_seqlens: inputs.cu_seqlens,
            loss_mask: inputs.loss_mask,
            logp: inputs.logp,
            logp_old: inputs.ratio,
            advantage: credit.advantage,
            advantage_per_token: credit.per_token,
            weights: inputs.weights,
            guard: recipe.guard(),
            mean: recipe.gmpo_mean(),
            clip_log_low,
            clip_log_high,
            denominator: self.capacity.sequences as f64,
            denominator_from: inputs.weight_from.denominator,
            coef: out.coef.out(),
            row_loss: Some(out.row_loss.out()),
            row_tokens: out.row_tokens.out(),
            row_alarm: out.row_alarm.out(),
            metrics: out.metrics.map(|(sums, maxima)| MetricsOut {
                row_sums: sums.out(),
                row_maxima: maxima.out(),
                band: recipe.metrics.band,
            }),
        };
        exec.run(&kernel)
    }

    /// The weight of an aggregation, and its parts that are read from memory: from column `counts` if it is
    /// present, otherwise from the result of `batch_counts`.
    fn weight_from<'a>(
        &self,
        exec: &mut Exec<'_>,
        columns: &Views<'a>,
        (cu_seqlens, loss_mask): (Offsets<'_>, Mask<'_>),
        aggregation: &crate::recipe::Aggregation,
        counted: &mut Option<[In<'static, u64>; 3]>,
    ) -> Result<(Weight, WeightFrom<'a>), Error> {
        // These numbers are not read; any that `check` accepts will do.
        let sequences = self.capacity.sequences as u64;
        let counts = Counts { tokens: 1, nonempty: sequences, sequences };
        let weight = aggregation.over(1).weight(counts);
        let mut count = |exec: &mut Exec<'_>| -> Result<[In<'static, u64>; 3], Error> {
            if counted.is_none() {
                let arrays = [0; 3].map(|_| exec.scratch::<u64>(PARTS));
                let [tokens, nonempty, longest] = arrays.map(Array::out);
                let kernel = BatchCounts { cu_seqlens, loss_mask, parts: PARTS, tokens, nonempty, longest };
                exec.run(&kernel)?;
                *counted = Some(arrays.map(Array::view));
            }
            there(*counted, "counts")
        };
        let one = |which: usize| {
            columns.counts.map(|counts| counts.part(lockstep_core::ragged::Span::new(which, which + 1)))
        };
        let all = aggregation.sequences == CountedSequences::All
            || matches!(self.recipe.gate, GateChoice::Gmpo { .. });
        let denominator = match aggregation.mode {
            AggregationMode::TokenSum => None,
            AggregationMode::TokenMean => Some(match one(0) {
                Some(tokens) => tokens,
                None => count(exec)?[0],
            }),
            _ if all => match one(2) {
                Some(sequences) => Some(sequences),
                // Every batch of an exact plan has as many sequences as the capacity.
                None if self.exact || exec.queue().is_none() => None,
                None => {
                    let missing = "counts (for aggregation: all sequences count, and a plan cannot tell how \
                                   many of its capacity are present)";
                    let recipe = self.recipe.name.clone();
                    return Err(Error::Columns { recipe, missing: missing.into() });
                }
            },
            _ => Some(match one(1) {
                Some(nonempty) => nonempty,
                None => count(exec)?[1],
            }),
        };
        let longest = aggregation.is_longest();
        let horizon = if longest { Some(count(exec)?[2]) } else { None };
        debug_assert!(longest || !matches!(weight.per_row, PerRow::Constant(c) if c.is_nan()));
        Ok((weight, WeightFrom { denominator, horizon }))
    }
}

/// The result of an estimator.
struct Own {
    advantage: In<'static, f32>,
    per_token: bool,
    returns: Option<In<'static, f32>>,
    keep: Option<In<'static, u8>>,
}

/// The outputs of a gate's launch.
struct Launched {
    coef: Array<f32>,
    token_loss: Option<Array<f32>>,
    row_loss: Array<f64>,
    row_tokens: Array<u32>,
    row_alarm: Array<u32>,
    metrics: Option<(Array<f64>, Array<f32>)>,
}

/// The inputs of a gate's launch.
struct Inputs<'a> {
    cu_seqlens: Offsets<'a>,
    loss_mask: Mask<'a>,
    logp: In<'a, f32>,
    /// `logp_old`, or log-ratios.
    ratio: In<'a, f32>,
    weights: Option<In<'a, f32>>,
    weight: Weight,
    weight_from: WeightFrom<'a>,
}
