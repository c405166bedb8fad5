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

/// Inputs of a KL term.
pub(crate) const KL: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_ref"];
/// Inputs of advantages from one reward per sequence.
pub(crate) const OUTCOME: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "rewards"];
/// Inputs of a policy loss, with the sampler.
#[rustfmt::skip]
pub(crate) const POLICY: &[&str] = &[
    "cu_seqlens", "cu_groups", "loss_mask", "logp_new", "logp_old", "logp_rollout", "seq_advantages",
    "token_advantages",
];
/// Inputs of a correction between trainer and sampler.
pub(crate) const ROLLOUT: &[&str] = &["cu_seqlens", "cu_groups", "loss_mask", "logp_old", "logp_rollout"];
/// Inputs of a value loss.
pub(crate) const VALUE: &[&str] =
    &["cu_seqlens", "cu_groups", "loss_mask", "value_new", "value_old", "returns"];

/// How a case is computed.
pub(crate) enum Plan {
    /// By the two calls.
    Recipe(Box<Setup>),
    /// By an op, a router or a schedule: its name in the catalogue, its numbers, and what is known to differ.
    Numbers(&'static str, Vec<(&'static str, Got)>, Option<Exception>),
    /// By the file's own order of unordered results; receives what the file expects.
    Ordered(Ordered),
    /// Not yet possible: what Lockstep has no choice for.
    Missing(&'static str),
}

impl Plan {
    pub(crate) fn recipe(setup: Setup) -> Plan {
        Plan::Recipe(Box::new(setup))
    }
}

/// What [`Plan::Ordered`] does.
pub(crate) type Ordered = Box<dyn Fn(&Map<String, Value>, &Device) -> Result<Plan, String>>;

/// A case of an op, to be read.
pub(crate) struct Request<'r, 'c> {
    pub(crate) op: &'r str,
    pub(crate) config: &'r mut Config<'c>,
    pub(crate) inputs: &'r Inputs<'c>,
    pub(crate) device: &'r Device,
}

/// Reads a case of an op.
pub(crate) type Read = fn(Request<'_, '_>) -> Result<Plan, String>;

/// The table of a source.
pub(crate) struct Source {
    /// The folder.
    pub(crate) name: &'static str,
    /// Prefixes of the field `source` of its files.
    pub(crate) says: &'static [&'static str],
    /// The ops that it covers.
    pub(crate) ops: &'static [&'static str],
    pub(crate) read: Read,
}

macro_rules! tables {
    ($($name:literal, $says:expr, $ops:expr, $read:expr;)*) => {
        &[$(Source { name: $name, says: &$says, ops: $ops, read: $read }),*]
    };
}

/// All tables, one a line, with the fields of [`Source`] in order.
pub(crate) const ALL: &[Source] = tables! {
    "dots", ["github ASTRAL-Group/data-efficient-llm-rl "], dots::OPS, dots::read;
    "dars", ["github yangzhch6/DARS "], verl_forks::DARS, verl_forks::read;
    "dppo", ["github sail-sg/Stable-RL "], verl_forks::DPPO, verl_forks::read;
    "entropy_mechanism", ["github PRIME-RL/Entropy-Mechanism-of-RL "], verl_forks::ENTROPY, verl_forks::read;
    "areal", ["AReaL "], areal::OPS, areal::read;
    "areal", ["AReaL ", "github inclusionAI/AReaL "], areal_more::OPS, areal_more::read;
    "gdpo", ["github NVlabs/GDPO "], papers::GDPO, papers::read;
    "gmpo", ["github callsys/GMPO "], papers::GMPO, papers::read;
    "mcgrpo", ["github lotusroot-kim/MC-GRPO "], papers::MCGRPO, papers::read;
    "psr_nsr", ["github TianHongZXY/RLVR-Decomposed "], papers::PSR_NSR, papers::read;
    "evolrl", ["github YujunZhou/EVOL-RL "], evolrl::OPS, evolrl::read;
    "fapo", ["github verl-project/verl-recipe "], fapo::OPS, fapo::read;
    "gdro", ["github kishanpb/verl-gdro "], gdro::OPS, gdro::read;
    "latr", ["github starreeze/latr "], latr::OPS, latr::read;
    "masa", ["github akatigre/MASA-RL "], masa::OPS, masa::read;
    "nemo_rl", ["NeMo-RL "], nemo_rl::OPS, nemo_rl::read;
    "routers", ["transformers "], routers::OPS, routers::read;
    "roll", ["ROLL "], roll::OPS, roll::read;
    "mars", ["github thu-nics/MARSHAL "], mars::OPS, mars::read;
    "vespo", ["github FloyedShen/VESPO "], verl_forks::VESPO, verl_forks::read;
    "openrlhf", ["OpenRLHF "], openrlhf::OPS, openrlhf::read;
    "slime", ["slime ", "github THUDM/slime "], slime::OPS, slime::read;
    "mssr", ["github ruiiu/MSSR "], mssr::OPS, mssr::read;
    "otb", ["verl "], otb::OPS, otb::read;
    "spiral", ["github spiral-rl/spiral "], spiral::OPS, spiral::read;
    "tempo", ["github fatebreaker/tempo "], tempo::OPS, tempo::read;
    "trl", ["trl "], trl::OPS, trl::read;
    "uis1", ["github X-PLUG/MobileAgent "], uis1::OPS, uis1::read;
    "vcpo", ["github mit-han-lab/vcpo "], vcpo::OPS, vcpo::read;
    "verl", ["verl "], &verl::NAMES, verl::read;
};

/// The table that covers this op of this source.
pub(crate) fn of(source: &str, op: &str) -> Option<&'static Source> {
    ALL.iter().find(|known| known.says.iter().any(|says| source.starts_with(says)) && known.ops.contains(&op))
}
