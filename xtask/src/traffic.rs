//! Bytes that an entry point moves for each element of its batch, in the usual call. The one place that says so.
//!
//! Each array counts once, as in `benches`: a mask that is read twice comes from cache the second time. What a row has one
//! of (offsets, sums, maxima) does not count. Usual: there is a mask; advantages are per sequence; losses are wanted as sums and not
//! per token; the variant `any` is chosen because of weights per token; `kl` and `token_ratio` write both of their arrays.

/// An array: its name and the bytes of an element.
pub type Array = (&'static str, usize);

/// What an entry point moves.
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
    /// Bytes per element, read and written.
    pub fn bytes(&self) -> usize {
        self.reads.iter().chain(self.writes).map(|(_, bytes)| bytes).sum()
    }
}

const MASK: Array = ("loss_mask", 1);
const LOGP: Array = ("logp", 4);
const OLD: Array = ("logp_old", 4);
const REF: Array = ("logp_ref", 4);
const WEIGHTS: Array = ("weights", 4);
const VALUES: Array = ("values", 4);
const COEF: Array = ("coef", 4);

/// The traffic of an entry point of an op.
pub fn of(op: &str, entry: &str) -> Option<Traffic> {
    let token = |reads, writes| Some(Traffic { element: "token", reads, writes });
    if op.starts_with("policy_loss_") {
        // The variants of every gate.
        return match entry.strip_prefix(op)? {
            "" | "_loss" | "_metrics" => token(&[MASK, LOGP, OLD], &[COEF]),
            "_any" => token(&[MASK, LOGP, OLD, WEIGHTS], &[COEF]),
            "_kl" | "_kl_loss" | "_kl_metrics" => token(&[MASK, LOGP, OLD, REF], &[COEF]),
            _ => None,
        };
    }
    match entry {
        "group_advantage" | "group_advantage_median" | "group_advantage_others" => Some(Traffic {
            element: "sequence",
            reads: &[("rewards", 4), ("valid", 1)],
            writes: &[("advantage", 4)],
        }),
        "token_ratio" => token(&[MASK, LOGP, OLD], &[("ratio", 4), ("log_ratio", 4)]),
        "kl_k1" | "kl_abs" | "kl_k2" | "kl_k3" => token(&[MASK, LOGP, REF], &[("value", 4), ("gradient", 4)]),
        "row_moments" => token(&[MASK, VALUES], &[]),
        "whiten" => token(&[MASK, VALUES], &[("whitened", 4)]),
        "discounted_return" => token(&[MASK, ("rewards", 4)], &[("returns", 4)]),
        "fold_moments" => Some(Traffic { element: "row", reads: &[("row_moments", 48)], writes: &[] }),
        "pass_at_k" => Some(Traffic {
            element: "sequence",
            reads: &[("rewards", 4), ("valid", 1)],
            writes: &[("advantage", 4)],
        }),
        // Two rewards a sequence.
        "combine" => {
            Some(Traffic { element: "sequence", reads: &[("components", 8)], writes: &[("combined", 4)] })
        }
        // --- outcome rewards and advantages of sequences
        // --- advantages over time
        // --- importance ratios and rollout correction
        // --- policy losses
        // --- entropy, values
        // --- exact sums
        // --- prefix trees: at most one pass over both responses of each comparison
        "tree_sort" => token(&[("tokens", 8)], &[]),
        "tree_nodes" => Some(Traffic {
            element: "sequence",
            reads: &[("order, lcp", 8), ("rewards", 4), ("valid", 1)],
            writes: &[("value", 8), ("counted, node, parent, leaf", 16)],
        }),
        "tree_advantage" => token(&[MASK], &[("token_advantage", 4)]),
        // --- aggregation
        "aggregate" => token(&[MASK, VALUES], &[]),
        "row_scan" => token(&[MASK, VALUES], &[("scanned", 4)]),
        "fold_rows" => Some(Traffic { element: "partial sum", reads: &[("partials", 8)], writes: &[] }),
        "check_offsets" => Some(Traffic { element: "offset", reads: &[("offsets", 4)], writes: &[] }),
        "check_values" => Some(Traffic { element: "value", reads: &[VALUES, ("mask", 1)], writes: &[] }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_point_has_its_traffic() {
        for (op, entry) in crate::entries() {
            assert!(of(op, entry).is_some(), "{op}: what does `{entry}` move?");
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
