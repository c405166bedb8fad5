//! The reward stage of the named recipes; the others have none.

use super::{
    EntropyBonusChoice, EntropyKind, FilterChoice, FiltrationChoice, OverlongChoice, RewardChoice,
    ShapingChoice, SharpenChoice,
};

pub(super) fn of(name: &str) -> RewardChoice {
    let none = RewardChoice::default();
    let signs = |correct, wrong| Some(ShapingChoice::Signs { correct, wrong });
    let equal = |value| Some(FilterChoice::Equal { value });
    match name {
        "dapo_full" => RewardChoice {
            overlong: Some(OverlongChoice { max_length: 20480, buffer: 4096, factor: 1.0, saturate: false }),
            filter: Some(FilterChoice::Varied {}),
            ..none
        },
        "psr" => RewardChoice { shaping: signs(1.0, 0.0), filter: equal(1.0), ..none },
        "nsr" => RewardChoice { shaping: signs(0.0, -1.0), filter: equal(0.0), ..none },
        "w_reinforce" => RewardChoice { shaping: signs(0.1, -1.0), ..none },
        "fapo" => RewardChoice { shaping: Some(ShapingChoice::Fapo { lambda: 1.0 }), ..none },
        "rapo_replay" => {
            RewardChoice { group_factor_cap: Some(f64::INFINITY), replay_successes: true, ..none }
        }
        "pf_ppo" => RewardChoice { filtration: Some(FiltrationChoice::Power { power: 2 }), ..none },
        "rapo" => RewardChoice { group_factor_cap: Some(f64::INFINITY), ..none },
        "conciser" => RewardChoice { shaping: Some(ShapingChoice::Conciser { limit: 4096 }), ..none },
        "evol_rl" => RewardChoice { shaping: Some(ShapingChoice::EvolRl { mean_weight: 0.5 }), ..none },
        "grpovi" => {
            let own = ShapingChoice::Grpovi { low: None, high: None, margin: 0.0, merge_ties: false };
            RewardChoice { shaping: Some(own), ..none }
        }
        "xrpo" => RewardChoice { sharpen: Some(SharpenChoice::Xrpo { lambda: 2.5, kappa: 0.5 }), ..none },
        "ace" => {
            let ace = SharpenChoice::Ace { alpha: 1.0, cap: 5.0, relu: false, per_token: false };
            RewardChoice { sharpen: Some(ace), ..none }
        }
        "brpo" => RewardChoice {
            shaping: Some(ShapingChoice::Brpo {}),
            filter: Some(FilterChoice::Balanced { tau: 0.6 }),
            ..none
        },
        "mssr" => RewardChoice {
            entropy: Some(EntropyBonusChoice { alpha: 0.4, kappa: 2.0, of: EntropyKind::Sampled }),
            ..none
        },
        "spiral" => RewardChoice { filter: Some(FilterChoice::NonzeroAdvantage {}), ..none },
        _ => none,
    }
}
