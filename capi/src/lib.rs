//! Lockstep for C and C++: `include/lockstep.h` is generated from these files, and `include/lockstep.hpp`
//! wraps it.
//!
//! Every entry point checks its pointers, sizes and text, catches panics and returns a status; the thread's
//! last error holds the message. Memory behind a pointer that is neither null nor misaligned is trusted.
#![allow(non_camel_case_types)]

mod columns;
mod device;
mod error;
mod plan;
mod recipe;
mod results;
mod text;
mod totals;

pub use columns::{ls_column, ls_column_at, ls_credit_views, ls_element, ls_rollouts, ls_span};
pub use device::{ls_device, ls_device_describe, ls_device_free, ls_device_open};
pub use error::{ls_last_error, ls_last_error_argument, ls_last_error_index, ls_status};
pub use plan::{
    LS_CALL_ADVANTAGES, LS_CALL_LOSS, ls_host_stage, ls_plan, ls_plan_alarms, ls_plan_enqueue, ls_plan_free,
    ls_plan_host_stages, ls_plan_launches, ls_plan_new, ls_plan_options, ls_plan_run, ls_plan_slot,
    ls_plan_slots, ls_plan_workspace_bytes, ls_slot,
};
pub use recipe::{
    ls_duty, ls_need, ls_recipe, ls_recipe_duties, ls_recipe_explain, ls_recipe_free, ls_recipe_name,
    ls_recipe_name_at, ls_recipe_needs, ls_recipe_open, ls_recipe_per_token, ls_recipe_toml,
};
pub use results::{
    LS_OUTPUT_ALL, LS_OUTPUT_LOSS, LS_OUTPUT_METRICS, LS_OUTPUT_TOKEN_LOSS, ls_advantages, ls_array,
    ls_credit, ls_credit_array, ls_credit_arrays, ls_credit_free, ls_credit_new, ls_loss, ls_loss_into,
    ls_metric_name_at, ls_metrics, ls_output, ls_output_array, ls_output_arrays, ls_output_free, ls_step,
};
pub use totals::{
    LS_TOTALS_BYTES, LS_TOTALS_LIMBS, ls_totals, ls_totals_counts, ls_totals_free, ls_totals_from_bytes,
    ls_totals_from_limbs, ls_totals_loss, ls_totals_merge, ls_totals_metrics, ls_totals_new, ls_totals_of,
    ls_totals_to_bytes, ls_totals_to_limbs,
};

use std::ffi::c_char;

/// Handles may move between threads, and several threads may read one at once.
const fn shared<T: Send + Sync>() {}
const _: () = {
    shared::<ls_device>();
    shared::<ls_recipe>();
    shared::<ls_plan>();
    shared::<ls_credit>();
    shared::<ls_output>();
    shared::<ls_totals>();
};

/// The version of this interface. Every change that breaks a compiled program raises it. New columns,
/// statuses and functions do not: columns are appended, and structs that you fill in state their size.
pub const LS_ABI_VERSION: u32 = 1;

/// The library's `LS_ABI_VERSION`, to compare with the header's.
#[unsafe(no_mangle)]
pub extern "C" fn ls_abi_version() -> u32 {
    LS_ABI_VERSION
}

/// The version of Lockstep, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn ls_version() -> *const c_char {
    text::forever(env!("CARGO_PKG_VERSION"))
}
