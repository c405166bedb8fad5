//! `Recipe::advantages` and `Recipe::loss` of every named recipe: what they need, what they refuse,
//! minibatches, and the state carried between batches.

use crate::refused::refused;
use crate::wanted::selects;
use lockstep::columns::Shape;
use lockstep::recipe::{AdvantageEstimator, Call, Need, names};
use lockstep::{Column, Credit, Device, Error, Loss, Recipe, Rollouts, RolloutsBuf, State, synthetic};
use std::collections::BTreeSet;

macro_rules! per_column {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        fn without(mut rollouts: RolloutsBuf, column: Column) -> RolloutsBuf {
            match column { $(Column::$name => rollouts.$name = None,)* }
            rollouts
        }

        /// The column with one extra entry.
        fn longer(mut rollouts: RolloutsBuf, column: Column) -> RolloutsBuf {
            match column {
                $(Column::$name => rollouts.$name.iter_mut().for_each(|x| x.push(Default::default())),)*
            }
            rollouts
        }

        /// The column with a single entry, which suits no batch.
        fn short(rollouts: &mut RolloutsBuf, column: Column) {
            match column { $(Column::$name => rollouts.$name = Some(vec![Default::default()]),)* }
        }
    };
}
lockstep::for_each_column!(per_column);

/// Every name with usable rollouts of eight sequences.
fn all() -> impl Iterator<Item = (&'static str, Recipe, RolloutsBuf)> {
    names().iter().map(|name| {
        let recipe = Recipe::named(name).unwrap();
        let rollouts = synthetic::rollouts(&recipe, 8, 200, 7).unwrap();
        (*name, recipe, rollouts)
    })
}

fn advantages(recipe: &Recipe, rollouts: &RolloutsBuf) -> Result<Credit, Error> {
    recipe.advantages(&Device::cpu(), &rollouts.view())
}

fn loss(recipe: &Recipe, rollouts: &RolloutsBuf, credit: &Credit) -> Result<Loss, Error> {
    recipe.loss(&Device::cpu(), &rollouts.view(), credit)
}

/// The error message of the call that reads this column.
fn refusal(recipe: &Recipe, need: &Need, rollouts: &RolloutsBuf, credit: &Credit) -> Option<String> {
    let result = match need.call {
        Call::Advantages => advantages(recipe, rollouts).map(drop),
        Call::Loss => loss(recipe, rollouts, credit).map(drop),
    };
    result.err().map(|error| error.to_string())
}

/// A column as an error names it: "logp (for ratio)" or "score_norm or sum_p_squared (for
/// advantage.over_time)".
fn said(need: &Need) -> String {
    let or = need.or.map_or(String::new(), |or| format!(" or {}", or.name()));
    format!("{}{or} (for {})", need.column.name(), need.stage)
}

#[test]
fn every_missing_column_is_named_with_its_stage_all_at_once() {
    for (name, recipe, whole) in all() {
        let credit = advantages(&recipe, &whole).unwrap_or_else(|error| panic!("{name}: {error}"));
        let needs: Vec<Need> = recipe.needs().into_iter().filter(|need| need.required).collect();
        let missing = |need: &Need, rollouts: &RolloutsBuf| -> Vec<String> {
            let error = refusal(&recipe, need, rollouts, &credit);
            let error = error.unwrap_or_else(|| panic!("{name} does without {}", need.column.name()));
            let list = error.strip_prefix(&format!("recipe `{name}`: missing columns: "));
            list.unwrap_or_else(|| panic!("{error}")).split(", ").map(str::to_owned).collect()
        };
        for call in [Call::Advantages, Call::Loss] {
            let own: Vec<&Need> = needs.iter().filter(|need| need.call == call).collect();
            let list = missing(own[0], &RolloutsBuf::default());
            assert!(own.iter().all(|need| list.contains(&said(need))), "{name}: {list:?}");
            // And none that is not needed.
            let named: BTreeSet<&str> = list.iter().filter_map(|part| part.split(' ').next()).collect();
            let wanted: BTreeSet<&str> = own.iter().map(|need| need.column.name()).collect();
            assert_eq!(named, wanted, "{name}");
        }
        // Each by itself.
        for need in &needs {
            let rollouts = [Some(need.column), need.or].into_iter().flatten().fold(whole.clone(), without);
            let list = missing(need, &rollouts);
            assert!(list.contains(&said(need)), "{name}: {list:?}");
            assert!(list.iter().all(|part| part.starts_with(need.column.name())), "{name}: {list:?}");
        }
    }
}

/// A credit full of another recipe's results, and of a larger batch's.
#[test]
fn a_credit_used_again_is_as_a_new_one() {
    let mut used = Credit::default();
    let backwards: Vec<_> = all().collect();
    for (name, recipe, rollouts) in all().chain(backwards.into_iter().rev()) {
        let larger = synthetic::rollouts(&recipe, 16, 400, 3).unwrap();
        for rollouts in [larger, rollouts] {
            let new = advantages(&recipe, &rollouts).unwrap();
            recipe.advantages_into(&Device::cpu(), &rollouts.view(), &mut used).unwrap();
            assert_eq!(used, new, "{name}");
        }
    }
}

#[test]
fn columns_that_are_not_needed_are_not_read() {
    for (name, recipe, rollouts) in all() {
        let reads = recipe.reads();
        let credit = advantages(&recipe, &rollouts).unwrap();
        let want = loss(&recipe, &rollouts, &credit).unwrap();
        let mut more = rollouts.clone();
        let others = [
            Column::tokens,
            Column::logp_latest,
            Column::log_ratio,
            Column::similarity,
            Column::values,
            Column::roles,
        ];
        others.into_iter().filter(|column| !reads.contains(*column)).for_each(|c| short(&mut more, c));
        assert_eq!(advantages(&recipe, &more).unwrap(), credit, "{name}");
        assert_eq!(loss(&recipe, &more, &credit).unwrap(), want, "{name}");
    }
}

#[test]
fn a_column_of_another_length_names_itself() {
    let mut seen = BTreeSet::new();
    for (name, recipe, whole) in all() {
        let credit = advantages(&recipe, &whole).unwrap();
        for need in recipe.needs().iter().filter(|need| whole.view().length(need.column).is_some()) {
            let rollouts = longer(whole.clone(), need.column);
            let error = refusal(&recipe, need, &rollouts, &credit);
            let error = error.unwrap_or_else(|| panic!("{name}: {}", need.column.name()));
            use Shape::{GroupOffsets, Kinds, Roles, SequenceOffsets, StepOffsets, TurnOffsets};
            // Those that define the lengths of others are refused for what they define.
            let shape = need.column.shape();
            if !matches!(shape, SequenceOffsets | GroupOffsets | StepOffsets | TurnOffsets | Kinds | Roles) {
                let start = format!("`{}` has ", need.column.name());
                assert!(error.starts_with(&start), "{name}: {}: {error}", need.column.name());
                seen.insert(need.column);
            }
        }
    }
    assert!(seen.len() > 25, "{seen:?}");
}

#[test]
fn counts_are_three() {
    let recipe = Recipe::named("dapo").unwrap();
    for counts in [vec![], vec![1, 2], vec![1, 2, 3, 4]] {
        let says = format!("`counts` has {} entries: expected 3…", counts.len());
        let rollouts =
            RolloutsBuf { counts: Some(counts), ..synthetic::rollouts(&recipe, 4, 40, 1).unwrap() };
        let credit = advantages(&recipe, &rollouts).unwrap_or_else(|_| Credit::per_sequence(vec![1.0; 4]));
        refused(loss(&recipe, &rollouts, &credit), &says);
    }
}

#[test]
fn a_credit_of_another_batch_is_refused() {
    for (_, recipe, rollouts) in all() {
        let other = synthetic::rollouts(&recipe, 9, 230, 7).unwrap();
        let credit = advantages(&recipe, &other).unwrap();
        refused(loss(&recipe, &rollouts, &credit), "`credit.…");
        refused(credit.select(&rollouts.view(), &[0]), "`credit.…");
    }
    let recipe = Recipe::named("grpo").unwrap();
    let rollouts = synthetic::rollouts(&recipe, 8, 100, 1).unwrap();
    let good = advantages(&recipe, &rollouts).unwrap();
    for (part, credit) in [
        ("advantage", Credit::per_token(good.advantage.clone())),
        ("loss_mask", Credit { loss_mask: Some(vec![1; 99]), ..good.clone() }),
        ("weights", Credit { weights: Some(vec![1.0]), ..good.clone() }),
        ("returns", Credit { returns: vec![1.0], ..good.clone() }),
    ] {
        refused(loss(&recipe, &rollouts, &credit), &format!("`credit.{part}` has …"));
    }
    let says = "`groups`[1] is 2: expected a group of `cu_groups`…";
    refused(good.select(&rollouts.view(), &[0, 2]), says);
    refused(rollouts.view().select(&[0, 2]), says);
}

/// With `counts` of the whole batch, minibatches are summands: every coefficient has its bits, and the losses
/// add up.
#[test]
fn minibatches_with_the_counts_of_the_whole_add_up_to_it() {
    let device = Device::cpu();
    let mut apart = Vec::new();
    for (name, recipe, rollouts) in all() {
        let whole = rollouts.view();
        let (credit, out) = recipe.step(&device, &whole).unwrap();
        let counts = [out.counts.tokens, out.counts.nonempty, out.counts.sequences];
        if selects(&recipe) {
            apart.push(name);
            continue;
        }
        // Two groups, in reverse order, and each of their tokens exactly once.
        let (mut total, mut tokens, mut rows) = (0.0, 0, Vec::new());
        for group in [1, 0] {
            let (part, places) = whole.select(&[group]).unwrap();
            part.view().check().unwrap();
            assert_eq!(part.view().columns(), whole.columns(), "{name}: nothing stays behind");
            let own = credit.select(&whole, &[group]).unwrap();
            let part = Rollouts { counts: Some(&counts), ..part.view() };
            let got = recipe.loss(&device, &part, &own).unwrap_or_else(|error| panic!("{name}: {error}"));
            let same = |got: &[f32], want: &[f32]| {
                got.len() == places.len()
                    && got.iter().zip(&places).all(|(x, i)| x.to_bits() == want[*i].to_bits())
            };
            assert!(same(&got.coef, &out.coef), "{name}");
            let entropy = [&got.entropy, &out.entropy].map(|term| term.as_ref().map(|term| &term.coef[..]));
            let value = [&got.value, &out.value].map(|value| value.as_ref().map(|value| &value.gradient[..]));
            for [got, want] in [entropy, value] {
                assert_eq!(got.is_some(), want.is_some(), "{name}");
                assert!(got.zip(want).is_none_or(|(got, want)| same(got, want)), "{name}");
            }
            total += got.loss.unwrap();
            tokens += got.counts.tokens;
            rows.insert(0, got.policy.row_loss);
        }
        assert_eq!(rows.concat(), out.row_loss, "{name}");
        assert_eq!(tokens, out.counts.tokens, "{name}");
        let scale: f64 = out.row_loss.iter().map(|x| x.abs()).sum();
        assert!((total - out.loss.unwrap()).abs() <= 1e-12 * scale, "{name}: {total} {:?}", out.loss);
    }
    // A selection depends on the tokens that are given, as does the longest sequence.
    assert_eq!(apart, ["kl_cov", "clip_cov", "top_entropy", "verl_dr_grpo"]);
}

/// Estimators that look at no other group give the minibatch's own advantages.
#[test]
fn credit_of_a_part_is_the_part_of_the_credit() {
    for name in ["grpo", "rloo", "tempo", "icepop", "dapo_full", "psr", "ui_s1", "brpo", "evol_rl", "vcpo"] {
        let recipe = Recipe::named(name).unwrap();
        let rollouts = synthetic::rollouts(&recipe, 12, 300, 3).unwrap();
        let (whole, groups) = (rollouts.view(), [2, 0]);
        let credit = advantages(&recipe, &rollouts).unwrap().select(&whole, &groups).unwrap();
        let own = advantages(&recipe, &whole.select(&groups).unwrap().0).unwrap();
        // The report of a correction covers the whole batch.
        assert_eq!(Credit { correction: own.correction, ..credit }, own, "{name}");
    }
}

#[test]
fn filters_reach_the_loss_mask() {
    // The first group has only right answers; all lengths are 2.
    let logp = Some(&[-1.0f32; 8][..]);
    let rollouts = Rollouts {
        rewards: Some(&[1.0, 1.0, 1.0, 0.0]),
        logp,
        logp_old: logp,
        ..Rollouts::new(&[0, 2, 4, 6, 8], &[0, 2, 4])
    };
    for (name, kept) in [("psr", [1, 1, 1, 0]), ("nsr", [0, 0, 0, 1]), ("dapo_full", [0, 0, 1, 1])] {
        let recipe = Recipe::named(name).unwrap();
        // Some of the tokens are already masked.
        for mask in [[1u8; 8], [0, 1, 1, 1, 1, 0, 1, 1]] {
            let rollouts = Rollouts { loss_mask: Some(&mask), ..rollouts };
            let (credit, out) = recipe.step(&Device::cpu(), &rollouts).unwrap();
            let want: Vec<u8> = (0..8).map(|i| mask[i] * kept[i / 2]).collect();
            assert_eq!((&credit.keep[..], credit.loss_mask.as_ref()), (&kept[..], Some(&want)), "{name}");
            assert_eq!(out.counts.tokens, want.iter().map(|m| u64::from(*m)).sum::<u64>(), "{name}");
            assert!((0..8).all(|i| (out.coef[i] == 0.0) == (want[i] == 0)), "{name}: {:?}", out.coef);
        }
    }
}

#[test]
fn rejection_and_valid_reach_every_estimator_of_groups() {
    // The last response of each group is rejected for its distance from the sampler, and counts in no
    // baseline.
    let toml = "[correction]\nlevel = \"one\"\nrule = \"plain\"\n[[correction.reject]]\n\
                statistic = \"seq_mean_k1\"\nhigh = 1.5\n";
    let correction = Recipe::from_toml(toml).unwrap().correction;
    for name in ["grpo", "rloo", "gdpo", "spiral", "pass_k", "max_rl", "v0_5", "vcpo", "mc_grpo"] {
        let recipe = Recipe { correction: correction.clone(), ..Recipe::named(name).unwrap() };
        let mut rollouts = synthetic::rollouts(&recipe, 8, 100, 5).unwrap();
        let last = |s: usize| s % 4 == 3;
        let cu_seqlens = rollouts.cu_seqlens.clone().unwrap();
        let rollout = rollouts.logp_rollout.as_mut().unwrap();
        for s in (0..8).filter(|s| last(*s)) {
            rollout[cu_seqlens[s] as usize..cu_seqlens[s + 1] as usize].iter_mut().for_each(|x| *x -= 2.0);
        }
        let rejected = advantages(&recipe, &rollouts).unwrap();
        let mask = rejected.loss_mask.clone().unwrap();
        // A filter may drop more.
        assert!((0..8).all(|s| mask[cu_seqlens[s] as usize] == 0 || !last(s)), "{name}");
        let plain = Recipe { correction: None, ..recipe.clone() };
        let valid = (0..8).map(|s| u8::from(!last(s))).collect();
        let left_out = RolloutsBuf { valid: Some(valid), ..rollouts };
        assert_eq!(advantages(&plain, &left_out).unwrap().advantage, rejected.advantage, "{name}");
        assert!((0..8).filter(|s| last(*s)).all(|s| rejected.advantage[s] == 0.0), "{name}");
    }
}

#[test]
fn state_goes_from_batch_to_batch_through_serde() {
    let recipe = Recipe::named("spiral").unwrap();
    assert_eq!(recipe.advantage.estimator, AdvantageEstimator::RoleBaseline);
    let rollouts = synthetic::rollouts(&recipe, 8, 100, 5).unwrap();
    let first = advantages(&recipe, &rollouts).unwrap();
    assert!(first.state.role_values.iter().any(|value| *value != 0.0));
    let text = serde_json::to_string(&first.state).unwrap();
    let state: State = serde_json::from_str(&text).unwrap();
    assert_eq!(state, first.state);
    let resumed = |state: State| {
        let rollouts = RolloutsBuf { role_values: Some(state.role_values), ..rollouts.clone() };
        advantages(&recipe, &rollouts).unwrap()
    };
    assert_eq!(resumed(state), resumed(first.state.clone()));
    assert_ne!(resumed(first.state).advantage, first.advantage);
    // A checkpoint from before there was any state, and one of unknown origin.
    assert_eq!(serde_json::from_str::<State>("{}").unwrap(), State::default());
    assert!(serde_json::from_str::<State>("{\"role\": []}").is_err());
}
