//! Recipe numbers that binary32 cannot hold.
#![cfg(feature = "model")]

use std::collections::BTreeSet;

use lockstep::Recipe;
use lockstep::recipe::names;
use toml::Value;

/// Settings with numbers that no named recipe uses.
const OTHERS: [&str; 12] = [
    "advantage.limit = 2.0\nadvantage.least_std = 0.5",
    "extends = \"mc_grpo\"\nadvantage.mad_floor = 0.5",
    "extends = \"gae\"\nadvantage.over_time = { kind = \"gae\", gamma = 0.5, lambda = 0.5, \
     lambda_critic = 0.5, length_alpha = 0.5 }",
    "extends = \"vtrace\"\nadvantage.over_time = { kind = \"ui_s1\", gamma = 0.5, omega = 0.5 }",
    "correction = { level = \"token\", rule = \"truncate\", low = 0.5, high = 2.0, m2_threshold = 0.5, \
     bound = 5.0 }",
    "correction = { level = \"one\", rule = \"plain\", reject = [{ statistic = \"seq_mean_k1\", low = 0.5, \
     high = 2.0 }] }",
    "[kl]\nestimator = \"k3\"\nplace = \"loss\"\ncoef = 0.5\nclamp_in = 2.0\nclamp_out = 3.0",
    "reward = { clip = [-2.0, 2.0], weights = { length = [1.5, 0.5], difficulty = [0.5, 2.0] } }",
    "ratio = { level = \"sequence\", log_max = 2.0, guard_bound = 5.0 }",
    "gate = { kind = \"two_sided\", clip_ratio_low = 0.25, clip_ratio_high = 0.25, delta = 2.0 }",
    "mask = { opsm_delta = 0.5, top_entropy = 0.5 }",
    "extends = \"ppo_critic\"\nvalue.cliprange_value = 0.5\nvalue.huber_delta = 2.0",
];

/// The path of every float below `value`, as keys and indices.
fn floats(value: &Value, path: &[String], out: &mut Vec<Vec<String>>) {
    let mut below = |key: String, inner: &Value| floats(inner, &[path, &[key]].concat(), out);
    match value {
        Value::Float(_) => out.push(path.to_vec()),
        Value::Table(table) => table.iter().for_each(|(key, inner)| below(key.clone(), inner)),
        Value::Array(items) => items.iter().enumerate().for_each(|(k, inner)| below(k.to_string(), inner)),
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(value, |value, key| match value {
        Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
        other => &mut other[key.as_str()],
    })
}

/// Every float of every recipe: 1e40 would become infinity, and 1e-40 would lose bits. Either the error names
/// the key, or the setting is a binary64 one that keeps the number as written.
#[test]
fn every_number_is_held_or_refused() {
    let named = names().iter().map(|name| Recipe::named(name).unwrap());
    let recipes = named
        .chain(OTHERS.iter().map(|text| Recipe::from_toml(text).unwrap_or_else(|e| panic!("{text}: {e}"))));
    let (mut refused, mut held) = (BTreeSet::new(), BTreeSet::new());
    for recipe in recipes {
        let whole: Value = toml::from_str(&recipe.to_toml().unwrap()).unwrap();
        let mut places = Vec::new();
        floats(&whole, &[], &mut places);
        for (place, number) in places.iter().flat_map(|place| [1e40, 1e-40, -1e40].map(|x| (place, x))) {
            let key = place.iter().filter(|key| key.parse::<usize>().is_err());
            let key = key.cloned().collect::<Vec<_>>().join(".");
            let mut changed = whole.clone();
            *at(&mut changed, place) = Value::Float(number);
            match Recipe::from_toml(&toml::to_string(&changed).unwrap()) {
                Ok(read) => {
                    let mut read = Value::try_from(read).unwrap();
                    assert_eq!(at(&mut read, place).as_float(), Some(number), "{key}");
                    held.insert(key);
                }
                Err(error) => {
                    let error = error.to_string();
                    let last = key.rsplit('.').next().unwrap();
                    assert!(error.contains(last), "{key} = {number:e}: {error}");
                    refused.insert(key);
                }
            }
        }
    }
    // Numbers that are converted to binary32 later are refused as well.
    for key in ["advantage.limit", "advantage.over_time.omega", "gate.tau_pos", "kl.coef", "correction.high"]
    {
        assert!(refused.contains(key) && !held.contains(key), "{key}");
    }
    assert!(refused.len() >= 60, "{refused:?}");
}
