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

/// Whether it is a variant of a policy loss that has a KL term. (The gate `dppo_kl` has the word in its own name.)
fn with_kl(entry: &str) -> bool {
    let variant = entry.strip_prefix("policy_loss_dppo_kl").or_else(|| entry.strip_prefix("policy_loss_"));
    variant.is_some_and(|variant| {
        ["_kl", "_kl_loss", "_kl_metrics"].iter().any(|suffix| variant.ends_with(suffix))
    })
}

/// The traffic of an entry point.
pub fn of(entry: &str) -> Option<Traffic> {
    let token = |reads, writes| Some(Traffic { element: "token", reads, writes });
    match entry {
        "group_advantage" => Some(Traffic {
            element: "sequence",
            reads: &[("rewards", 4), ("valid", 1)],
            writes: &[("advantage", 4)],
        }),
        "token_ratio" => token(&[MASK, LOGP, OLD], &[("ratio", 4), ("log_ratio", 4)]),
        // Whatever the gate is, the variant says what is read.
        _ if entry.starts_with("policy_loss_") && entry.ends_with("_any") => {
            token(&[MASK, LOGP, OLD, WEIGHTS], &[COEF])
        }
        _ if with_kl(entry) => token(&[MASK, LOGP, OLD, REF], &[COEF]),
        _ if entry.starts_with("policy_loss_") => token(&[MASK, LOGP, OLD], &[COEF]),
        "kl_k1" | "kl_abs" | "kl_k2" | "kl_k3" => token(&[MASK, LOGP, REF], &[("value", 4), ("gradient", 4)]),
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
            assert!(of(entry).is_some(), "{op}: what does `{entry}` move?");
        }
        assert!(of("no_such_entry").is_none());
    }

    #[test]
    fn the_hot_kernels_move_13_bytes() {
        assert_eq!(of("policy_loss_ppo").map(|traffic| traffic.bytes()), Some(13));
        assert_eq!(of("policy_loss_dppo_kl_metrics").map(|traffic| traffic.bytes()), Some(13));
        assert_eq!(of("policy_loss_dppo_kl_kl").map(|traffic| traffic.bytes()), Some(17));
        assert_eq!(of("policy_loss_cispo_kl_loss").map(|traffic| traffic.bytes()), Some(17));
        assert_eq!(of("token_ratio").map(|traffic| traffic.bytes()), Some(17));
    }
}
