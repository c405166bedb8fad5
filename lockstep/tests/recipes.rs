//! Named recipes, and recipes that extend them.

use lockstep::Recipe;
use lockstep::recipe::{Duty, WhitenChoice, entries, names};
use toml::{Table, Value};

/// Changes since version 0.1: names, key, old value, new value, reason. An empty value means that the key is
/// absent.
type Change = (&'static [&'static str], &'static str, &'static str, &'static str, &'static str);
const CHANGED: &[Change] = &[
    (VESPO, "aggregation.mode", "seq-mean-token-mean", "token-mean", BATCH_TOKENS),
    (VESPO, "aggregation.length", "at-least-one", "add-eps", "a token-mean has no length to guard"),
    (&["vespo"], "gate.against", "", "rollout", "a choice names the column that it reads"),
    (DR_GRPO, "aggregation.mode", "seq-mean-token-sum-norm-padded", "seq-mean-token-sum-norm", PADDED),
    (DR_GRPO, "aggregation.horizon", "", "longest", PADDED),
    (&["minpro"], "ratio.level", "given", "min_prefix", "it computes the log-ratios of the prefix itself"),
    (TRL, "ratio.gradient", "", "mean", SEQUENCES),
    (TRL, "mask.quantile", "", "torch", TOP),
    (&["vespo"], "gate.lambda_floor", "", "1e-4", "VESPO's own code raises a smaller lambda to it"),
    (&["trl_vespo"], "gate.lambda_floor", "", "1e-4", "TRL raises a smaller lambda to it"),
    (&["trl_vespo", "trl_vllm"], "correction.nan_rollout", "", "one", NO_SAMPLER),
    (&["openrlhf_gspo"], "ratio.guard", "clamp", "none", GSPO),
    (&["slime_gspo"], "ratio.advantage", "sequence_mean", "own", GSPO),
    (GSPOS, "ratio.gradient", "", "mean", GSPO),
];

const VESPO: &[&str] = &["vespo", "trl_vespo"];
const DR_GRPO: &[&str] = &["verl_dr_grpo"];
const TRL: &[&str] = &[
    "trl",
    "trl_grpo",
    "trl_dr_grpo",
    "trl_sapo",
    "trl_cispo",
    "trl_gdpo",
    "trl_vllm",
    "vespo",
    "trl_vespo",
];
const GSPOS: &[&str] = &["openrlhf_gspo", "nemo_gspo", "areal_gspo", "slime_gspo"];

/// Names that are now another recipe, or were removed, with the reason.
const REPLACED: &[(&str, &str)] = &[
    ("areal_decoupled", "AReaL without rejection has no weight; the paper's is `decoupled_ppo`"),
    ("mlperf_v6_1", "a ratio forced to 1 is a ratio of PPO: `ratio.on_policy`"),
    ("trl_two_sided", "of the loss types that were held against TRL with a `delta`, grpo"),
    ("ms_swift", "no released code was held against it: `trl_grpo` with a `kl`"),
];

const BATCH_TOKENS: &str = "TRL divides VESPO by the tokens of the whole batch, as DAPO and CISPO";
const SEQUENCES: &str = "what TRL differentiates, once the ratio is of sequences; of tokens it is the same";
const TOP: &str = "what TRL keeps, once there is a top_entropy";
const NO_SAMPLER: &str = "TRL takes a missing log-probability of the sampler for the trainer's own";
const GSPO: &str =
    "they differentiate through the mean, under advantages of tokens too; OpenRLHF has no guard";
const PADDED: &str = "the same constant, said by the horizon";

fn recorded() -> Table {
    include_str!("recipes_0_1.toml").parse().unwrap()
}

fn table(recipe: &Recipe) -> Table {
    Table::try_from(recipe).unwrap()
}

/// Replaces a value of the record, which must be the old value in the list of changes.
fn change(recipe: &mut Table, name: &str, (_, path, then, now, why): &Change) {
    let (stage, key) = path.split_once('.').unwrap();
    let stage = recipe.entry(stage).or_insert_with(|| Table::new().into()).as_table_mut().unwrap();
    assert_eq!(stage.get(key).and_then(Value::as_str).unwrap_or_default(), *then, "{name}: {path}, {why}");
    stage.insert(key.into(), now.parse().map_or_else(|_| Value::from(*now), Value::Float));
}

#[test]
fn every_name_of_the_first_version_is_the_same_recipe() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 104);
    for (name, old) in recorded {
        if REPLACED.iter().any(|entry| entry.0 == name) {
            continue;
        }
        let mut old = old.as_table().unwrap().clone();
        let changes = CHANGED.iter().filter(|entry| entry.0.contains(&&name[..]));
        changes.for_each(|entry| change(&mut old, &name, entry));
        // Rejected sequences counted in no recipe's statistics: docs/decisions/0038-rejected-sequences.md.
        if let Some(correction) = old.get_mut("correction").and_then(Value::as_table_mut) {
            correction.insert("group_statistics".into(), "all".into());
        }
        let mut old: Recipe = old.try_into().unwrap();
        let new = Recipe::named(&name).unwrap();
        old.duties = new.duties.clone();
        assert_eq!(new, old, "{name}");
    }
}

#[test]
fn every_entry_has_a_name_of_its_own() {
    assert_eq!(names()[0], "grpo");
    let own: std::collections::BTreeSet<_> = names().iter().collect();
    assert_eq!((own.len(), names().len()), (entries().len(), entries().len()));
}

#[test]
fn every_entry_is_a_recipe_that_survives_toml_and_says_what_it_is() {
    for entry in entries() {
        let name = &entry.name;
        let recipe = Recipe::named(name).unwrap();
        assert_eq!((&recipe.name, recipe.check().is_ok()), (name, true));
        assert_eq!(Recipe::from_toml(&recipe.to_toml().unwrap()).unwrap(), recipe, "{name}");
        assert!(!entry.what.is_empty() && !entry.source.is_empty(), "{name}");
        assert_eq!(entry.extends.is_none(), name == "grpo", "{name}");
    }
    assert_eq!(Recipe::named("grpo").unwrap(), Recipe::default());
}

#[test]
fn no_entry_repeats_what_it_extends() {
    for entry in entries().iter().filter(|entry| entry.extends.is_some()) {
        let parent = Recipe::named(entry.extends.as_deref().unwrap()).unwrap();
        let own = Recipe::named(&entry.name).unwrap();
        let same = Recipe { name: own.name.clone(), ..parent };
        assert_ne!(own, same, "{} changes nothing", entry.name);
    }
}

#[test]
fn one_recipe_extends_another() {
    let mine = Recipe::from_toml("name = \"mine\"\nextends = \"dapo\"\ngate.clip_ratio_low = 0.1\n").unwrap();
    let builder = Recipe::named("dapo").unwrap().rebuild("mine").ppo_clip(0.1, 0.28, Some(3.0));
    assert_eq!(mine, builder.build().unwrap());
    // The empty text is grpo.
    assert_eq!(Recipe::from_toml("").unwrap(), Recipe::default());
    // Another kind replaces the whole table.
    let sapo = Recipe::from_toml("extends = \"dapo\"\n[gate]\nkind = \"sapo\"\n").unwrap();
    assert_eq!(sapo.gate, Recipe::named("sapo").unwrap().gate);
}

#[test]
fn tables_are_not_read_by_position() {
    for (text, key) in [
        ("mask = [0.5]", "mask"),
        ("entropy = [1.0]", "entropy"),
        ("reward.overlong = [8, 6]", "reward.overlong"),
        ("value = [2.0, 1.0]", "value"),
    ] {
        let error = Recipe::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(&format!("{key} is an array: expected a table")), "{error}");
    }
    Recipe::from_toml("metrics.band = [0.5, 1.5]").unwrap();
}

#[test]
fn none_takes_away_what_is_optional() {
    let of = |text: &str| Recipe::from_toml(text);
    let dapo = of("extends = \"dapo\"\ngate.clip_ratio_c = \"none\"\n").unwrap();
    assert_eq!(table(&dapo)["gate"].get("clip_ratio_c"), None);
    assert_eq!(of("extends = \"icepop\"\ncorrection = \"none\"\n").unwrap().correction, None);
    assert_eq!(of("extends = \"areal\"\nadvantage.whiten = \"none\"\n").unwrap().advantage.whiten, None);
    assert_eq!(of("kl = \"none\"\n").unwrap().kl, None);
    // An estimator that whitens by itself does not.
    let returns = of("extends = \"reinforce_plus_plus\"\nadvantage.whiten = \"none\"\n").unwrap();
    assert_eq!(returns.advantage.whiten, Some(WhitenChoice::None));
    assert_eq!(of(&returns.to_toml().unwrap()).unwrap(), returns);
    // An error elsewhere is that error.
    let error = of("aggregation.horizon = \"none\"\nkl.estimator = \"x\"\n").unwrap_err().to_string();
    assert!(error.contains("estimator") && !error.contains("horizon"), "{error}");
    // `"none"` is a value of some keys, but not of others.
    assert_eq!(
        of("ratio.guard = \"none\"\n").unwrap().ratio.guard,
        Recipe::named("trl").unwrap().ratio.guard
    );
    for key in ["advantage.estimator", "gate.kind", "aggregation.mode", "gate", "metrics.band", "kl.place"] {
        let error = of(&format!("extends = \"nemo_kl\"\n{key} = \"none\"\n")).unwrap_err().to_string();
        assert!(error.contains("none"), "{key}: {error}");
    }
}

#[test]
fn a_wrong_text_is_told_where() {
    for (text, place, said) in [
        ("gat = 1\n", "line 1, column 1\n", "`gate`"),
        (
            "name = \"mine\"\n[gate]\nkind = \"ppo_clip\"\nclip = 0.2\n",
            "line 4, column 1\n",
            "clip_ratio_low",
        ),
        ("extends = \"dapo\"\n[aggregation]\nmode = \"tokens\"\n", "line 3, column 8\n", "token-mean"),
        ("extends = \"dapo\"\ngate.clip = 0.2\n", "line 2, column 6\n", "clip_ratio_low"),
        ("ratio = { level = 3 }\n", "line 1, column 19\n", "string"),
        ("advantage.kind = \"grp\"\n", "line 1, column 18\n", "`grpo`"),
        ("[correction.weight]\nrule = \"x\"\n", "line 1, column 13\n", "`rule`"),
        ("[metrics]\nband = [1.0, \"a\"]\n", "line 2, column 8\n", "f32"),
        (
            "[correction]\nlevel = \"token\"\nreject = [{ measure = \"q\" }]\n",
            "line 3, column 10\n",
            "`statistic`",
        ),
        ("extends = = 3\n", "line 1, column 11\n", ""),
        // About the text as a whole.
        ("extends = 3\n", "", "extends is 3"),
        ("[gate]\nkind = \"sapo\"\ntau_pos = \"a\"\n", "line 3, column 11\n", "invalid type"),
        ("extends = \"dapo\"\ngate.clip_ratio_low = [1]\n", "line 2, column 23\n", "invalid type"),
        ("[kl]\nestimator = \"k3\"\n", "line 1, column 1\n", "missing field `coef`"),
    ] {
        let error = Recipe::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(said), "{text}: {error}");
    }
}

#[test]
fn an_unknown_name_is_told_the_near_ones() {
    let told = |name: &str| Recipe::named(name).unwrap_err().to_string();
    for (name, near) in [
        ("dr-grpo", "dr_grpo"),
        ("GRPO", "grpo"),
        ("gsop", "gspo"),
        ("reinforce++", "reinforce_plus_plus"),
        ("trl_bnop", "trl_bnpo"),
    ] {
        let error = told(name);
        let list =
            error.split("similar names: ").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or("");
        assert!(list.split(", ").any(|known| known == near), "{error}");
    }
    let error = told("zzzzzzzzzz");
    assert!(!error.contains("near") && error.contains("lockstep list"), "{error}");
    assert!(Recipe::from_toml("extends = \"dpao\"\n").unwrap_err().to_string().contains("dapo"));
}

#[test]
fn numbers_that_a_setting_cannot_hold_are_refused() {
    let sapo = |tau: &str| Recipe::from_toml(&format!("[gate]\nkind = \"sapo\"\ntau_pos = {tau}\n"));
    for tau in ["1e-45", "1e-50", "1e-400", "1e40", "-1e40", "1e-39", "nan"] {
        let error = sapo(tau).unwrap_err().to_string();
        assert!(error.contains("gate.tau_pos") && error.contains(tau), "{error}");
    }
    assert!(sapo("1e-37").is_ok());
    let refused = |text: &str, key: &str, number: &str| {
        let error = Recipe::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains(number), "{error}");
    };
    refused("advantage.eps = 1e-310\n", "advantage.eps", "1e-310");
    refused("metrics.band = [1e-42, 1.0]\n", "metrics.band[0]", "1e-42");
    let reject = "[correction]\nlevel = \"one\"\nrule = \"plain\"\n[[correction.reject]]\n";
    refused(&format!("{reject}statistic = \"token_k2\"\nhigh = 1e39\n"), "correction.reject[0].high", "1e39");
    // binary64 holds what binary32 does not.
    assert_eq!(Recipe::from_toml("advantage.eps = 1e-45\n").unwrap().advantage.eps, 1e-45);
    assert_eq!(Recipe::from_toml("advantage.eps = 0.0\n").unwrap().advantage.eps, 0.0);
    // Written out, infinity is a number where it means "off".
    assert!(Recipe::from_toml("[reward]\ngroup_factor_cap = inf\n").is_ok());
    assert!(Recipe::from_toml("ratio.guard_bound = inf\n").is_err());
}

#[test]
fn the_constant_of_dr_grpo_is_a_number_or_the_longest_sequence() {
    let of = |horizon: &str| {
        Recipe::from_toml(&format!("extends = \"dr_grpo\"\naggregation.horizon = {horizon}\n"))
    };
    assert_eq!(of("64").unwrap().aggregation, of("64.0").unwrap().aggregation);
    assert_eq!(of("\"longest\"").unwrap().aggregation, Recipe::named("verl_dr_grpo").unwrap().aggregation);
    assert!(of("\"shortest\"").unwrap_err().to_string().contains("longest"));
    assert!(of("0.0").unwrap_err().to_string().contains("aggregation.horizon"));
}

#[test]
fn duties_are_those_of_the_choices_and_those_that_are_added() {
    let of = |name: &str| Recipe::named(name).unwrap().duties();
    let some: &[(&str, &[Duty])] = &[
        ("grpo", &[]),
        ("dapo", &[]),
        ("dapo_full", &[Duty::DynamicSampling]),
        ("rapo", &[Duty::PruneSolved]),
        ("rapo_replay", &[Duty::PruneSolved, Duty::ReplaySuccesses]),
        ("remax", &[Duty::GreedyResponse]),
        ("mc_grpo", &[Duty::PivotResponse]),
        ("mssr", &[Duty::TrackedValue]),
        ("v0_5", &[Duty::PriorValue]),
        ("vcpo_full", &[Duty::ScaleLearningRate]),
        ("spiral_paper", &[Duty::CarryRoleValues]),
        ("gae", &[Duty::TrainCritic]),
        ("ppo_critic", &[Duty::TrainCritic]),
        ("vapo", &[Duty::TrainCritic]),
        ("vtrace", &[Duty::TrainCritic]),
        ("remix", &[Duty::LatestPolicy]),
        ("remix_full", &[Duty::LatestPolicy, Duty::PreviousPolicy, Duty::ResetReference]),
        ("trl_bnpo", &[Duty::MicroBatchMean]),
    ];
    for (name, duties) in some {
        assert_eq!(of(name), *duties, "{name}");
    }
    let mine = Recipe::from_toml("extends = \"remax\"\nduties = [\"dynamic_sampling\"]\n").unwrap();
    assert_eq!(mine.duties(), [Duty::DynamicSampling, Duty::GreedyResponse]);
    let error = Recipe::from_toml("duties = [\"nothing\"]\n").unwrap_err().to_string();
    assert!(error.contains("dynamic_sampling"), "{error}");
    for duty in Duty::ALL {
        let text = format!("duties = [\"{}\"]\n", duty.name());
        assert!(Recipe::from_toml(&text).unwrap().duties().contains(duty), "{duty:?}");
        assert!(duty.meaning().ends_with('.'));
    }
}
