//! The two calls over host memory, and their results.

use crate::columns::{ls_credit_views, ls_element, ls_rollouts};
use crate::device::ls_device;
use crate::error::{Refusal, enter, enter_or, ls_status};
use crate::recipe::ls_recipe;
use crate::text::{forever, given, given_mut, hand_out, host, list, take_back, text};
use lockstep::{ColumnElement, Credit, Loss, Metrics, Outputs};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

/// The loss, total and per sequence.
pub const LS_OUTPUT_LOSS: u32 = 1;
/// The metrics; implies the loss.
pub const LS_OUTPUT_METRICS: u32 = 2;
/// The loss of each token; implies the loss.
pub const LS_OUTPUT_TOKEN_LOSS: u32 = 4;
/// Everything. Gradients are always computed; 0 asks for gradients alone, the fast path.
pub const LS_OUTPUT_ALL: u32 = 7;

/// Returns the results that a sum of flags asks for.
pub(crate) fn outputs(flags: u32) -> Result<Outputs, Refusal> {
    if flags & !LS_OUTPUT_ALL != 0 {
        let says = format!(
            "is {flags}: expected a sum of LS_OUTPUT_LOSS, LS_OUTPUT_METRICS and LS_OUTPUT_TOKEN_LOSS"
        );
        return Err(Refusal::new(ls_status::Argument, "outputs", says));
    }
    let has = |flag: u32| flags & flag != 0;
    let (metrics, token_loss) = (has(LS_OUTPUT_METRICS), has(LS_OUTPUT_TOKEN_LOSS));
    Ok(Outputs { loss: has(LS_OUTPUT_LOSS) || metrics || token_loss, metrics, token_loss })
}

/// The advantages of a batch and everything else that its loss reads.
pub struct ls_credit {
    own: Credit,
}

/// The loss, gradients and metrics of a batch.
#[derive(Default)]
pub struct ls_output {
    pub(crate) own: Loss,
    loss: Vec<f64>,
    counts: [u64; 3],
    metrics: Vec<f64>,
    entropy: Vec<[f64; 2]>,
    value: Vec<[f64; 2]>,
}

/// An array of a result, valid until the result is freed or overwritten.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_array {
    /// The array's name, which is never freed.
    pub name: *const c_char,
    /// The first element.
    pub data: *const c_void,
    /// The number of elements.
    pub len: usize,
    /// The type of the elements.
    pub element: ls_element,
}

/// The arrays of a result. Empty arrays are left out: the recipe does not make them.
#[derive(Default)]
struct Arrays(Vec<ls_array>);

impl Arrays {
    fn add<T: ColumnElement>(&mut self, name: &'static CStr, values: &[T]) {
        if !values.is_empty() {
            let (data, len) = (values.as_ptr().cast(), values.len());
            self.0.push(ls_array { name: name.as_ptr(), data, len, element: T::ELEMENT.into() });
        }
    }

    /// # Safety
    /// `name` as for [`text`], `out` as for [`given_mut`].
    unsafe fn find(self, name: *const c_char, out: *mut ls_array) -> Result<(), Refusal> {
        // SAFETY: the caller upholds it.
        let (name, out) = unsafe { (text(name, "name")?, given_mut(out, "out")?) };
        // SAFETY: the names are literals.
        let known = |array: &ls_array| unsafe { CStr::from_ptr(array.name) };
        *out = self.0.iter().copied().find(|array| known(array).to_bytes() == name.as_bytes()).ok_or_else(
            || {
                let there: Vec<_> = self.0.iter().map(|array| known(array).to_string_lossy()).collect();
                let says = format!("is `{name}`: the result has {}", there.join(", "));
                Refusal::new(ls_status::Absent, "name", says)
            },
        )?;
        Ok(())
    }
}

impl ls_credit {
    fn arrays(&self) -> Arrays {
        let (mut arrays, own) = (Arrays::default(), &self.own);
        arrays.add(c"advantage", &own.advantage);
        arrays.add(c"returns", &own.returns);
        arrays.add(c"loss_mask", own.loss_mask.as_deref().unwrap_or_default());
        arrays.add(c"keep", &own.keep);
        arrays.add(c"weights", own.weights.as_deref().unwrap_or_default());
        arrays.add(c"mean", &own.groups.mean);
        arrays.add(c"std", &own.groups.std);
        arrays.add(c"counted", &own.groups.counted);
        arrays.add(c"status", &own.groups.status);
        arrays.add(c"pivot", &own.groups.pivot);
        arrays.add(c"role_values", &own.state.role_values);
        arrays
    }
}

impl ls_output {
    /// Copies the scalars to memory that arrays can point to.
    fn settle(&mut self) {
        let own = &self.own;
        self.loss = own.loss.into_iter().collect();
        self.counts = [own.counts.tokens, own.counts.nonempty, own.counts.sequences];
        self.metrics = own.metrics.iter().flat_map(numbers).collect();
        self.entropy = own.entropy.iter().map(|term| [term.loss, term.entropy]).collect();
        self.value = own.value.iter().map(|value| [value.loss, value.clip_fraction]).collect();
    }

    fn arrays(&self) -> Arrays {
        let (mut arrays, own) = (Arrays::default(), &self.own);
        arrays.add(c"coef", &own.coef);
        arrays.add(c"loss", &self.loss);
        arrays.add(c"row_loss", &own.row_loss);
        arrays.add(c"token_loss", &own.token_loss);
        arrays.add(c"counts", &self.counts);
        arrays.add(c"metrics", &self.metrics);
        for ([loss, entropy], term) in self.entropy.iter().zip(&own.entropy) {
            arrays.add(c"entropy_coef", &term.coef);
            arrays.add(c"entropy_loss", std::slice::from_ref(loss));
            arrays.add(c"entropy", std::slice::from_ref(entropy));
        }
        for ([loss, clip_fraction], value) in self.value.iter().zip(&own.value) {
            arrays.add(c"value_gradient", &value.gradient);
            arrays.add(c"value_loss", std::slice::from_ref(loss));
            arrays.add(c"value_row_loss", &value.row_loss);
            arrays.add(c"value_token_loss", &value.token_loss);
            arrays.add(c"value_clip_fraction", std::slice::from_ref(clip_fraction));
        }
        arrays
    }
}

/// Returns the metrics in the order of `ls_metric_name_at`.
pub(crate) fn numbers(metrics: &Metrics) -> impl Iterator<Item = f64> + use<> {
    metrics.named().map(|(_, value)| value)
}

/// The name of entry `number` of the array `metrics`, counted from 0; null past the last. The string is never
/// freed.
#[unsafe(no_mangle)]
pub extern "C" fn ls_metric_name_at(number: usize) -> *const c_char {
    let name = Metrics::default().named().nth(number).map(|(name, _)| name);
    enter_or(null(), || Ok(name.map_or(null(), forever)))
}

/// Computes metrics from a plan's results `sums` and `maxima`, copied to the host, and the number of live
/// tokens (the first of `counts`). `ls_metric_name_at` gives the names of the entries of `out`.
///
/// # Safety
/// The arrays are null or as long as stated; `maxima` has two entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_metrics(
    tokens: u64,
    sums: *const f64,
    sums_len: usize,
    maxima: *const f32,
    out: *mut f64,
    capacity: usize,
) -> ls_status {
    enter(|| {
        // SAFETY: the caller upholds it.
        let (sums, maxima) =
            unsafe { (host(sums, sums_len, "sums")?, given(maxima.cast::<[f32; 2]>(), "maxima")?) };
        let wanted = lockstep::core::policy_loss::sum::SUMS;
        if sums_len != wanted {
            let says = format!("has {sums_len} entries: expected {wanted}, the length of result `sums`");
            return Err(Refusal::new(ls_status::Argument, "sums", says));
        }
        // SAFETY: the caller upholds it.
        unsafe { fill(&Metrics::new(tokens, sums, *maxima), out, capacity) }
    })
}

/// Writes metrics to an array; fails if they do not all fit.
///
/// # Safety
/// `out` is null or has room for `capacity` numbers.
pub(crate) unsafe fn fill(metrics: &Metrics, out: *mut f64, capacity: usize) -> Result<(), Refusal> {
    // SAFETY: the caller upholds it.
    let count = unsafe { list(numbers(metrics).collect(), out, capacity, "out")? };
    if capacity < count {
        let says = format!("has room for {capacity} numbers: expected {count}");
        return Err(Refusal::new(ls_status::Argument, "out", says));
    }
    Ok(())
}

/// Computes the advantages of a batch in host memory, and everything else that its loss reads. Call it once
/// per batch.
///
/// # Safety
/// Handles are null or open; every column is as long as stated; `out` is null or points to a pointer, which
/// is null after a failure. Free the credit with `ls_credit_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_advantages(
    device: *const ls_device,
    recipe: *const ls_recipe,
    rollouts: *const ls_rollouts,
    out: *mut *mut ls_credit,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let (device, recipe) = (given(device, "device")?, given(recipe, "recipe")?);
            Ok(ls_credit { own: recipe.own.advantages(&device.own, &ls_rollouts::read(rollouts)?)? })
        })
    })
}

/// Computes the gradients, and what `outputs` asks for (a sum of `LS_OUTPUT_…`), of a batch or minibatch in
/// host memory with its credit. Call it for each update, with new `logp`. `coef` is dL/dlogp.
///
/// # Safety
/// As for `ls_advantages`. Free the result with `ls_output_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_loss(
    device: *const ls_device,
    recipe: *const ls_recipe,
    rollouts: *const ls_rollouts,
    credit: *const ls_credit,
    outputs: u32,
    out: *mut *mut ls_output,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let mut made = ls_output::default();
            into(device, recipe, rollouts, credit, outputs, &mut made)?;
            Ok(made)
        })
    })
}

/// Like `ls_loss`, but overwrites the result of an earlier call and reuses its memory. Arrays read from it
/// before become invalid. After a failure its contents are unspecified; it can be used again.
///
/// # Safety
/// As for `ls_loss`; `out` is null, or an open loss that nobody else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_loss_into(
    device: *const ls_device,
    recipe: *const ls_recipe,
    rollouts: *const ls_rollouts,
    credit: *const ls_credit,
    outputs: u32,
    out: *mut ls_output,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { into(device, recipe, rollouts, credit, outputs, given_mut(out, "out")?) })
}

/// # Safety
/// As for [`ls_loss`].
unsafe fn into(
    device: *const ls_device,
    recipe: *const ls_recipe,
    rollouts: *const ls_rollouts,
    credit: *const ls_credit,
    flags: u32,
    out: &mut ls_output,
) -> Result<(), Refusal> {
    // SAFETY: the caller upholds it.
    unsafe {
        let (device, recipe) = (given(device, "device")?, given(recipe, "recipe")?);
        let (rollouts, credit) = (ls_rollouts::read(rollouts)?, given(credit, "credit")?);
        let outputs = outputs(flags)?;
        let made = recipe.own.loss_into(&device.own, &rollouts, &credit.own, outputs, &mut out.own);
        if made.is_err() {
            *out = ls_output::default();
        }
        out.settle();
        Ok(made?)
    }
}

/// Runs both calls with all results, for one update per batch. On a GPU the columns are uploaded once and the
/// results downloaded once.
///
/// # Safety
/// As for `ls_advantages`, for both results.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_step(
    device: *const ls_device,
    recipe: *const ls_recipe,
    rollouts: *const ls_rollouts,
    credit: *mut *mut ls_credit,
    output: *mut *mut ls_output,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        let (to_credit, to_output) = (given_mut(credit, "credit")?, given_mut(output, "output")?);
        (*to_credit, *to_output) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (device, recipe) = (given(device, "device")?, given(recipe, "recipe")?);
        let (own, loss) = recipe.own.step(&device.own, &ls_rollouts::read(rollouts)?)?;
        let mut made = ls_output { own: loss, ..ls_output::default() };
        made.settle();
        *to_credit = Box::into_raw(Box::new(ls_credit { own }));
        *to_output = Box::into_raw(Box::new(made));
        Ok(())
    })
}

/// Makes a credit from the caller's advantages, or from a minibatch's part of another credit's arrays; copies
/// the arrays from host memory.
///
/// # Safety
/// `views` is null or as long as its first field states, its arrays as long as stated; `out` as for
/// `ls_advantages`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_credit_new(views: *const ls_credit_views, out: *mut *mut ls_credit) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { hand_out(out, || Ok(ls_credit { own: ls_credit_views::read(views)? })) })
}

/// Writes one array of a credit: `advantage` (`[S]`, or `[N]` if `ls_recipe_per_token`), `returns`,
/// `loss_mask` and `weights` (`[N]`), `keep` (`[S]`), `mean`, `std`, `counted`, `status` and `pivot` (`[G]`),
/// `role_values` (`[P]`). `LS_STATUS_ABSENT` if the recipe does not make it.
///
/// # Safety
/// `credit` is null or open; `name` is null or a 0-terminated string; `out` is null or points to an
/// `ls_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_credit_array(
    credit: *const ls_credit,
    name: *const c_char,
    out: *mut ls_array,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { given(credit, "credit")?.arrays().find(name, out) })
}

/// Writes at most `capacity` of a credit's arrays, and returns how many there are; 0 if `credit` is null.
///
/// # Safety
/// `credit` is null or open; `out` has room for `capacity` entries, or `out` is null and `capacity` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_credit_arrays(
    credit: *const ls_credit,
    out: *mut ls_array,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe { list(given(credit, "credit")?.arrays().0, out, capacity, "out") })
}

/// Frees a credit; does nothing if it is null.
///
/// # Safety
/// `credit` is null, or an open credit that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_credit_free(credit: *mut ls_credit) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(credit) }
}

/// Writes one array of a loss: `coef` (dL/dlogp, `[N]`), `loss` (`[1]`), `row_loss` (`[S]`), `token_loss`
/// (`[N]`), `counts` (live tokens, sequences with a live token, sequences), `metrics` (`ls_metric_name_at`),
/// `entropy_coef` (dL/dH, `[N]`), `entropy_loss` and `entropy` (`[1]`), `value_gradient` (dL/dV, `[N]`),
/// `value_loss` (`[1]`), `value_row_loss` (`[S]`), `value_token_loss` (`[N]`), `value_clip_fraction` (`[1]`).
/// `LS_STATUS_ABSENT` if the recipe does not make it or `outputs` did not ask for it.
///
/// # Safety
/// As for `ls_credit_array`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_output_array(
    output: *const ls_output,
    name: *const c_char,
    out: *mut ls_array,
) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe { given(output, "output")?.arrays().find(name, out) })
}

/// Writes at most `capacity` of a loss's arrays, and returns how many there are; 0 if `output` is null.
///
/// # Safety
/// As for `ls_credit_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_output_arrays(
    output: *const ls_output,
    out: *mut ls_array,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe { list(given(output, "output")?.arrays().0, out, capacity, "out") })
}

/// Frees a loss; does nothing if it is null.
///
/// # Safety
/// `output` is null, or an open loss that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_output_free(output: *mut ls_output) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(output) }
}
