//! One table per source: which of our presets or ops each of its ops is, and which key each of its settings
//! is.

mod areal;
mod areal_advantages;
mod areal_more;
mod dots;
mod evolrl;
mod fapo;
mod gdro;
mod latr;
mod mars;
mod masa;
mod mssr;
mod nemo_advantages;
mod nemo_metrics;
mod nemo_rl;
mod openrlhf;
mod otb;
mod over_tokens;
mod papers;
mod roll;
mod roll_sampler;
mod routers;
mod slime;
mod spiral;
mod tempo;
mod trl;
mod uis1;
mod vcpo;
mod verl;
mod verl_forks;

use crate::inputs::Inputs;
use crate::numbers::Got;
use crate::outcome::{Exception, Setup};
use crate::settings::Config;
use lockstep::Device;
use serde_json::{Map, Value};

/// How a case is computed.
pub(crate) enum Plan {
    /// By the two calls.
    Recipe(Box<Setup>),
    /// By an op, a router or a schedule; its name in the catalogue comes first.
    Numbers(&'static str, Vec<(&'static str, Got)>),
    /// The same, in a case that is known to differ.
    Except(&'static str, Vec<(&'static str, Got)>, Exception),
    /// By the file's own order of unordered results; receives what the file expects.
    Ordered(Ordered),
    /// Not yet possible: what Lockstep has no choice for.
    Missing(&'static str),
}

impl Plan {
    pub(crate) fn recipe(setup: Setup) -> Plan {
        Plan::Recipe(Box::new(setup))
    }

    /// Numbers, in a case that may be known to differ.
    pub(crate) fn numbers(
        ours: &'static str,
        got: Vec<(&'static str, Got)>,
        exception: Option<Exception>,
    ) -> Plan {
        match exception {
            Some(exception) => Plan::Except(ours, got, exception),
            None => Plan::Numbers(ours, got),
        }
    }
}

/// What [`Plan::Ordered`] does.
pub(crate) type Ordered = Box<dyn Fn(&Map<String, Value>, &Device) -> Result<Plan, String>>;

/// Reads a case of an op.
pub(crate) type Read = fn(&str, &mut Config<'_>, &Inputs<'_>, &Device) -> Result<Plan, String>;

/// The table of a source.
pub(crate) struct Source {
    /// The folder.
    pub(crate) name: &'static str,
    /// Prefixes of the field `source` of its files.
    pub(crate) says: &'static [&'static str],
    /// The ops that it covers.
    pub(crate) ops: fn() -> Vec<&'static str>,
    pub(crate) read: Read,
}

/// All tables.
#[rustfmt::skip]
pub(crate) const ALL: &[Source] = &[
    Source { name: "dots", says: &["github ASTRAL-Group/data-efficient-llm-rl "], ops: dots::ops,
        read: dots::read },
    Source { name: "dars", says: &["github yangzhch6/DARS "], ops: verl_forks::dars, read: verl_forks::read },
    Source { name: "dppo", says: &["github sail-sg/Stable-RL "], ops: verl_forks::dppo,
        read: verl_forks::read },
    Source { name: "entropy_mechanism", says: &["github PRIME-RL/Entropy-Mechanism-of-RL "],
        ops: verl_forks::entropy, read: verl_forks::read },
    Source { name: "areal", says: &["AReaL "], ops: areal::ops, read: areal::read },
    Source { name: "areal", says: &["AReaL ", "github inclusionAI/AReaL "], ops: areal_more::ops,
        read: areal_more::read },
    Source { name: "gdpo", says: &["github NVlabs/GDPO "], ops: papers::gdpo, read: papers::read },
    Source { name: "gmpo", says: &["github callsys/GMPO "], ops: papers::gmpo, read: papers::read },
    Source { name: "mcgrpo", says: &["github lotusroot-kim/MC-GRPO "], ops: papers::mcgrpo,
        read: papers::read },
    Source { name: "psr_nsr", says: &["github TianHongZXY/RLVR-Decomposed "], ops: papers::psr_nsr,
        read: papers::read },
    Source { name: "evolrl", says: &["github YujunZhou/EVOL-RL "], ops: evolrl::ops, read: evolrl::read },
    Source { name: "fapo", says: &["github verl-project/verl-recipe "], ops: fapo::ops, read: fapo::read },
    Source { name: "gdro", says: &["github kishanpb/verl-gdro "], ops: gdro::ops, read: gdro::read },
    Source { name: "latr", says: &["github starreeze/latr "], ops: latr::ops, read: latr::read },
    Source { name: "masa", says: &["github akatigre/MASA-RL "], ops: masa::ops, read: masa::read },
    Source { name: "nemo_rl", says: &["NeMo-RL "], ops: nemo_rl::ops, read: nemo_rl::read },
    Source { name: "routers", says: &["transformers "], ops: routers::ops, read: routers::read },
    Source { name: "roll", says: &["ROLL "], ops: roll::ops, read: roll::read },
    Source { name: "mars", says: &["github thu-nics/MARSHAL "], ops: mars::ops, read: mars::read },
    Source { name: "vespo", says: &["github FloyedShen/VESPO "], ops: verl_forks::vespo,
        read: verl_forks::read },
    Source { name: "openrlhf", says: &["OpenRLHF "], ops: openrlhf::ops, read: openrlhf::read },
    Source { name: "slime", says: &["slime ", "github THUDM/slime "], ops: slime::ops, read: slime::read },
    Source { name: "mssr", says: &["github ruiiu/MSSR "], ops: mssr::ops, read: mssr::read },
    Source { name: "otb", says: &["verl "], ops: otb::ops, read: otb::read },
    Source { name: "spiral", says: &["github spiral-rl/spiral "], ops: spiral::ops, read: spiral::read },
    Source { name: "tempo", says: &["github fatebreaker/tempo "], ops: tempo::ops, read: tempo::read },
    Source { name: "trl", says: &["trl "], ops: trl::ops, read: trl::read },
    Source { name: "uis1", says: &["github X-PLUG/MobileAgent "], ops: uis1::ops, read: uis1::read },
    Source { name: "vcpo", says: &["github mit-han-lab/vcpo "], ops: vcpo::ops, read: vcpo::read },
    Source { name: "verl", says: &["verl "], ops: verl::ops, read: verl::read },
];

/// The table that covers this op of this source.
pub(crate) fn of(source: &str, op: &str) -> Option<&'static Source> {
    ALL.iter()
        .find(|known| known.says.iter().any(|says| source.starts_with(says)) && (known.ops)().contains(&op))
}
