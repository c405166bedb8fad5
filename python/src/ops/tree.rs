//! Prefix trees.

use super::{Arrays, whole};
use crate::{PyDevice, refused};
use lockstep::ops::locate;
use lockstep::ops::tree::{Outcomes, Tokens, prefix_tree as tree_of};
use lockstep::{Batch, Error};
use pyo3::prelude::*;

/// Copies results into one of the caller's arrays.
fn put<T: Copy + 'static>(arrays: &Arrays, name: &'static str, from: &[T]) -> Result<(), Error> {
    let to = arrays.output(name, from.len())?;
    from.iter().enumerate().for_each(|(i, value)| to.put(i, *value));
    Ok(())
}

/// Builds the prefix trees of a batch in host memory, into `order`, `lcp`, `value`, `counted`, `node`,
/// `parent` and `leaf`. Writes each token's correction to `token_advantage`; it is divided by the group's
/// `std` plus `eps` and added to the sequence's `advantage`, if those are given. Returns the numbers of
/// branches, of shared tokens and of tree tokens, and the branches by depth.
#[pyfunction]
#[pyo3(signature = (device, pad, eps, arrays))]
pub(crate) fn prefix_tree(
    py: Python<'_>,
    device: &PyDevice,
    pad: Option<u32>,
    eps: f64,
    arrays: Arrays,
) -> PyResult<(usize, u64, u64, Vec<usize>)> {
    let build = || {
        let (device, offsets) = (&device.0, |name| Ok::<_, Error>(whole(arrays.input::<u32>(name)?)));
        let mask = arrays.given("loss_mask")?.map(whole);
        let batch = Batch::with_empty_rows(offsets("cu_seqlens")?, offsets("cu_groups")?, mask)?;
        let outcomes = Outcomes {
            rewards: whole(arrays.input("rewards")?),
            valid: arrays.given("valid")?.map(whole),
            weights: arrays.given("weights")?.map(whole),
        };
        let tree = tree_of(device, &batch, Tokens::U32(offsets("tokens")?), &outcomes, pad)?;
        let std: Option<&[f32]> = arrays.given("std")?.map(whole);
        let advantage: Option<&[f32]> = arrays.given("advantage")?.map(whole);
        let not_negative = |_, x: f32| x >= 0.0 && x.is_finite();
        locate::each("std", std.unwrap_or_default(), "a finite number of at least 0", not_negative)?;
        locate::each_finite("advantage", advantage.unwrap_or_default())?;
        let std = std.map(|std| (std, eps));
        let own = tree.advantages(device, &batch, &outcomes, advantage, std)?;
        let hint = "the rewards are too large for f32, or `std` is too small";
        locate::finite("token_advantage", &own, hint)?;
        put(&arrays, "token_advantage", &own)?;
        put(&arrays, "value", &tree.value)?;
        for (name, of) in [
            ("order", &tree.order),
            ("lcp", &tree.lcp),
            ("counted", &tree.counted),
            ("node", &tree.node),
            ("parent", &tree.parent),
            ("leaf", &tree.leaf),
        ] {
            put(&arrays, name, of)?;
        }
        let found = tree.statistics(&batch);
        Ok((found.branches, found.shared_tokens, found.tree_tokens, found.depths))
    };
    py.detach(build).map_err(refused)
}
