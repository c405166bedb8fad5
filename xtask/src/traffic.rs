//! Bytes that an entry point moves per element of its batch, in the usual call. This is the only place that
//! states them. A kernel of short rows may be left out.
//!
//! Each array counts once, as in `benches`: a mask that is read twice comes from cache the second time.
//! Per-row data (offsets, sums, maxima) do not count. In the usual call there is a mask; advantages are per
//! sequence; losses are wanted as sums rather than per token; the variant `any` is chosen because of
//! per-token weights; `kl` and `token_ratio` write both of their arrays.

/// An array: its name and the bytes per element.
pub type Array = (&'static str, usize);

/// The traffic of an entry point.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// What an element is.
    pub element: &'static str,
    /// Arrays read.
    pub reads: &'static [Array],
    /// Arrays written.
    pub writes: &'static [Array],
}

impl Traffic {
    /// Bytes read and written per element.
    pub fn bytes(&self) -> usize {
        self.reads.iter().chain(self.writes).map(|(_, bytes)| bytes).sum()
    }
}

const MASK: Array = ("loss_mask", 1);
const LOGP: Array = ("logp", 4);
const OLD: Array = ("logp_old", 4);
const REF: Array = ("logp_ref", 4);
const ROLLOUT: Array = ("logp_rollout", 4);
const WEIGHTS: Array = ("weights", 4);
const VALUES: Array = ("values", 4);
const LOGITS: Array = ("logits", 4);
const HALF_LOGITS: Array = ("logits", 2);
const KEYS: Array = ("keys", 4);
const COEF: Array = ("coef", 4);

/// The traffic of an entry point of an op. `None`: nobody has stated it, and the kernel has no share of a
/// bandwidth in the tables.
pub fn of(op: &str, entry: &str) -> Option<Traffic> {
    let per = |element, reads, writes| Some(Traffic { element, reads, writes });
    let token = |reads, writes| per("token", reads, writes);
    let sequence = |reads, writes| per("sequence", reads, writes);
    let logit = |reads, writes| per("logit", reads, writes);
    let router_row = |reads, writes| per("router row", reads, writes);
    if op.starts_with("policy_loss_") {
        // The variants of every gate.
        return match entry.strip_prefix(op)? {
            "" | "_loss" | "_narrow_loss" | "_metrics" | "_narrow_metrics" => {
                token(&[MASK, LOGP, OLD], &[COEF])
            }
            "_any" => token(&[MASK, LOGP, OLD, WEIGHTS], &[COEF]),
            "_kl" | "_kl_loss" | "_kl_metrics" => token(&[MASK, LOGP, OLD, REF], &[COEF]),
            _ => None,
        };
    }
    match entry {
        "group_advantage" | "group_advantage_median" | "group_advantage_others" => {
            sequence(&[("rewards", 4), ("valid", 1)], &[("advantage", 4)])
        }
        "token_ratio" => token(&[MASK, LOGP, OLD], &[("ratio", 4), ("log_ratio", 4)]),
        "kl_k1" | "kl_abs" | "kl_k2" | "kl_k3" => token(&[MASK, LOGP, REF], &[("value", 4), ("gradient", 4)]),
        "row_moments" => token(&[MASK, VALUES], &[]),
        "whiten" => token(&[MASK, VALUES], &[("whitened", 4)]),
        "discounted_return" => token(&[MASK, ("rewards", 4)], &[("returns", 4)]),
        "fold_moments" => per("row", &[("row_moments", 48)], &[]),
        "pass_at_k" => sequence(&[("rewards", 4), ("valid", 1)], &[("advantage", 4)]),
        // Two rewards per sequence.
        "combine" => sequence(&[("components", 8)], &[("combined", 4)]),
        // --- outcome rewards and advantages of sequences
        "shape_rewards" => sequence(&[("rewards", 4), ("valid", 1), ("lengths", 4)], &[("shaped", 4)]),
        "filter_groups" => sequence(&[("metric", 4), ("valid", 1)], &[("keep", 1)]),
        "mask_sequences" => token(&[MASK], &[("masked", 1)]),
        // Groups of eight: a row of eight similarities per sequence.
        "novelty_bands" => {
            sequence(&[("similarity", 32), ("classes", 4), ("valid", 1)], &[("shaped", 4), ("novelty", 4)])
        }
        "variance_increase" => sequence(&[("rewards", 4), ("valid", 1), ("logp", 8)], &[("shaped", 4)]),
        "sharpen" => sequence(
            &[("advantage", 4), ("rewards", 4), ("valid", 1), ("logp", 8), ("tokens", 4)],
            &[("sharpened", 4)],
        ),
        "role_baseline" => sequence(&[("rewards", 4), ("valid", 1)], &[("advantage", 4)]),
        "entropy_bonus" => token(&[MASK, LOGP], &[("shaped", 4)]),
        "entropy_bonus_full" => token(&[MASK, ("entropy", 4)], &[("shaped", 4)]),
        // --- advantages over time
        "gae" => token(&[MASK, ("rewards", 4), VALUES], &[("advantage", 4), ("returns", 4)]),
        "vtrace" => token(&[MASK, LOGP, ROLLOUT, ("rewards", 4), VALUES], &[("vs", 4), ("advantage", 4)]),
        "step_return" => per("step", &[("rewards", 4), ("matches", 1)], &[("returns", 4)]),
        "optimal_token_baseline" => token(&[MASK, ("returns", 4), ("weights", 4)], &[("advantage", 4)]),
        // --- importance ratios and rollout correction
        "rollout_mismatch" => token(&[MASK, OLD, ROLLOUT], &[]),
        "rollout_correction" | "rollout_correction_differences" => {
            token(&[MASK, OLD, ROLLOUT], &[WEIGHTS, ("kept_mask", 1)])
        }
        "normalize_weights" => token(&[MASK, WEIGHTS], &[("normalized", 4)]),
        "log_ratio_scan" => token(&[MASK, LOGP, OLD], &[("log_ratio", 4)]),
        "proximal_logp" => token(&[MASK, ("versions", 4), LOGP, ("logp_behave", 4)], &[("logp_prox", 4)]),
        "staleness" => token(&[MASK, ("versions", 4)], &[("kept_mask", 1)]),
        "effective_sample_size" => token(&[MASK, WEIGHTS], &[]),
        // --- policy losses
        "sequence_weight" => token(&[MASK, LOGP, ("logp_behave", 4)], &[("out", 4)]),
        "covariance" => token(&[MASK, LOGP], &[("covariance", 4)]),
        "selection_key" => token(&[MASK, VALUES], &[KEYS]),
        "digit_counts" => token(&[KEYS], &[]),
        // Per row, its counts of the eight digits.
        "narrow_digits" => per("row", &[("counts", 32)], &[("ties_before", 4)]),
        "select_top" => token(&[MASK, KEYS], &[("out", 4)]),
        // --- entropy, values
        "kl_importance" => token(&[MASK, LOGP, OLD, REF], &[("value", 4), ("gradient", 4)]),
        "value_loss" => token(&[MASK, VALUES, ("values_old", 4), ("returns", 4)], &[("gradient", 4)]),
        // A row is read three times, the second and third from cache.
        "logits_statistics"
        | "logits_statistics_moments"
        | "draw_tokens"
        | "vocab_parallel_top"
        | "vocab_parallel_sums"
        | "vocab_parallel_sums_moments" => logit(&[LOGITS], &[]),
        "logits_statistics_bf16"
        | "logits_statistics_bf16_moments"
        | "logits_statistics_f16"
        | "logits_statistics_f16_moments"
        | "vocab_parallel_top_bf16"
        | "vocab_parallel_top_f16"
        | "vocab_parallel_sums_bf16"
        | "vocab_parallel_sums_bf16_moments"
        | "vocab_parallel_sums_f16"
        | "vocab_parallel_sums_f16_moments" => logit(&[HALF_LOGITS], &[]),
        "logits_gradient_bf16"
        | "logits_gradient_bf16_shard"
        | "logits_gradient_f16"
        | "logits_gradient_f16_shard" => logit(&[HALF_LOGITS], &[("gradient", 2)]),
        "logits_gradient" | "logits_gradient_shard" | "otr_exact" | "otr_sampled" => {
            logit(&[LOGITS], &[("gradient", 4)])
        }
        // With all moments.
        "vocab_parallel_statistics" => per(
            "row",
            &[("top", 8), ("sums", 64)],
            &[("logp, lse, top", 12), ("entropy, collision, score_norm", 12), ("state", 24)],
        ),
        "logits_kl" | "logits_kl_reverse" => logit(&[LOGITS, ("reference", 4)], &[("gradient", 4)]),
        // --- exact sums
        "exact_sum" => per("value", &[("values", 8), ("mask", 1)], &[]),
        "exact_sum_f32" => per("value", &[VALUES, ("mask", 1)], &[]),
        // --- prefix trees: at most one pass over both responses of each comparison
        "tree_sort" => token(&[("tokens", 8)], &[]),
        "tree_nodes" => sequence(
            &[("order, lcp", 8), ("rewards", 4), ("valid", 1)],
            &[("value", 8), ("counted, node, parent, leaf", 16)],
        ),
        "tree_advantage" => token(&[MASK], &[("token_advantage", 4)]),
        // --- aggregation
        "aggregate" => token(&[MASK, VALUES], &[]),
        "row_scan" => token(&[MASK, VALUES], &[("scanned", 4)]),
        "fold_rows" => per("partial sum", &[("partials", 8)], &[]),
        "batch_counts" => token(&[MASK], &[]),
        // With all sums and maxima of the metrics.
        "loss_totals" => sequence(
            &[("row_loss", 8), ("row_sums", 104), ("row_maxima", 8), ("row_tokens", 4), ("row_alarm", 4)],
            &[],
        ),
        "check_offsets" => per("offset", &[("offsets", 4)], &[]),
        "check_values" => per("value", &[VALUES, ("mask", 1)], &[]),
        // --- routing replay: rows of 128 experts, 8 of them chosen, replayed.
        "gating_forward"
        | "gating_forward_all"
        | "gating_forward_sigmoid"
        | "gating_forward_probability"
        | "gating_forward_sqrt_softplus" => {
            router_row(&[("scores", 512), ("trace", 8), ("mask", 1)], &[("chosen", 8), ("gates", 32)])
        }
        // The slope of the root reads the scores of the chosen experts.
        "gating_backward_sqrt_softplus" => {
            router_row(&[("scores", 32), ("chosen", 8), ("gates", 32), ("coef", 32)], &[("gradient", 512)])
        }
        "gating_backward" => router_row(&[("chosen", 8), ("gates", 32), ("coef", 32)], &[("gradient", 512)]),
        "balance_loss" => router_row(&[("scores", 512)], &[("gradient", 512)]),
        "gating_backward_all" => {
            router_row(&[("scores", 512), ("chosen", 8), ("gates", 32), ("coef", 32)], &[("gradient", 512)])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::op::OPS;

    #[test]
    fn every_entry_point_of_long_rows_has_its_traffic() {
        for op in OPS.iter().filter(|op| !op.blocks.is_empty()) {
            for entry in op.entries {
                assert!(of(op.name, entry).is_some(), "{}: what does `{entry}` move?", op.name);
            }
        }
        assert!(of("kl", "kl_k9").is_none() && of("policy_loss_ppo", "policy_loss_ppo_most").is_none());
    }

    #[test]
    fn bytes_of_the_usual_calls() {
        let bytes = |op, entry| of(op, entry).map(|traffic| traffic.bytes());
        assert_eq!(bytes("policy_loss_ppo", "policy_loss_ppo"), Some(13));
        assert_eq!(
            bytes("policy_loss_dppo_kl", "policy_loss_dppo_kl"),
            Some(13),
            "a gate with a variant's name"
        );
        assert_eq!(bytes("policy_loss_dppo_kl", "policy_loss_dppo_kl_kl"), Some(17));
        assert_eq!(bytes("token_ratio", "token_ratio"), Some(17));
    }
}
