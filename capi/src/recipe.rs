//! Recipes, the columns that they read, and what they ask of the training loop.

use crate::error::{c_string, enter, enter_or, ls_status};
use crate::text::{forever, given, hand_out, list, take_back, text};
use lockstep::{Call, Column, Need, Recipe, recipe};
use std::ffi::{CString, c_char};
use std::fmt::Write as _;
use std::ptr::null;

/// A recipe: one choice for each stage from rewards to gradients. Any number of threads may use it at once.
pub struct ls_recipe {
    pub(crate) own: Recipe,
    name: CString,
    toml: CString,
    explains: CString,
}

/// A column that a recipe reads. The strings are never freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_need {
    /// The column's name.
    pub column: *const c_char,
    /// The TOML key of the stage that reads it.
    pub stage: *const c_char,
    /// A column that can take its place, or null.
    pub other: *const c_char,
    /// `LS_CALL_ADVANTAGES` or `LS_CALL_LOSS`.
    pub call: u32,
    /// 1: the call fails without it.
    pub required: u32,
}

/// A duty that a recipe leaves to the training loop. The strings are never freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_duty {
    /// The duty's name.
    pub name: *const c_char,
    /// What the loop must do.
    pub meaning: *const c_char,
}

/// Returns a call's number in this interface.
pub(crate) fn number(call: Call) -> u32 {
    if call == Call::Advantages { crate::LS_CALL_ADVANTAGES } else { crate::LS_CALL_LOSS }
}

/// Describes what the recipe reads, what it asks of the training loop, and all its choices as TOML.
fn explain(recipe: &Recipe, toml: &str) -> String {
    let mut out = format!("recipe {}\n\nreads:\n", recipe.name);
    for Need { column, stage, call, required, or, .. } in recipe.needs() {
        let or = or.map_or(String::new(), |or| format!(" or {}", or.name()));
        let call = if call == Call::Advantages { "advantages" } else { "loss" };
        let if_there = if required { "" } else { ", if there" };
        let what = column.name().to_owned() + &or;
        // Writing to a string cannot fail.
        _ = writeln!(out, "  {what:<28} {call}, {stage}{if_there}: {}", column.meaning());
    }
    for (i, duty) in recipe.duties().iter().enumerate() {
        let head = if i == 0 { "\nasks of the training loop:\n" } else { "" };
        _ = writeln!(out, "{head}  {}: {}", duty.name(), duty.meaning());
    }
    out + "\n" + toml
}

/// Opens a recipe, by name (`grpo`, `dapo`, `verl`; `ls_recipe_name_at` lists them) or from TOML. Text with a
/// `=`, a `[` or a line break is read as TOML.
///
/// # Safety
/// `source` is null or a 0-terminated string; `out` is null or points to a pointer, which is null after a
/// failure. Free the recipe with `ls_recipe_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_open(source: *const c_char, out: *mut *mut ls_recipe) -> ls_status {
    // SAFETY: the caller upholds it.
    enter(|| unsafe {
        hand_out(out, || {
            let source = text(source, "source")?;
            let is_toml = source.contains(['=', '\n', '[']);
            let own = if is_toml { Recipe::from_toml(source)? } else { Recipe::named(source)? };
            let toml = own.to_toml()?;
            let explains = c_string(&explain(&own, &toml));
            Ok(ls_recipe { name: c_string(&own.name), toml: c_string(&toml), explains, own })
        })
    })
}

/// Frees a recipe; does nothing if it is null. Its plans stay valid.
///
/// # Safety
/// `recipe` is null, or an open recipe that is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_free(recipe: *mut ls_recipe) {
    // SAFETY: the caller upholds it.
    unsafe { take_back(recipe) }
}

/// Returns one of a recipe's strings.
unsafe fn said(recipe: *const ls_recipe, which: impl FnOnce(&ls_recipe) -> &CString) -> *const c_char {
    // SAFETY: the caller upholds it.
    enter_or(null(), || Ok(which(unsafe { given(recipe, "recipe")? }).as_ptr()))
}

/// The recipe's name, valid until the recipe is freed; null if `recipe` is null.
///
/// # Safety
/// `recipe` is null or an open recipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_name(recipe: *const ls_recipe) -> *const c_char {
    // SAFETY: the caller upholds it.
    unsafe { said(recipe, |own| &own.name) }
}

/// All its choices as TOML, valid until the recipe is freed; null if `recipe` is null.
///
/// # Safety
/// `recipe` is null or an open recipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_toml(recipe: *const ls_recipe) -> *const c_char {
    // SAFETY: the caller upholds it.
    unsafe { said(recipe, |own| &own.toml) }
}

/// What the recipe reads, what it asks of the training loop, and its choices as TOML; valid until the recipe
/// is freed; null if `recipe` is null.
///
/// # Safety
/// `recipe` is null or an open recipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_explain(recipe: *const ls_recipe) -> *const c_char {
    // SAFETY: the caller upholds it.
    unsafe { said(recipe, |own| &own.explains) }
}

/// Returns 1 if the recipe makes one advantage per token; 0 if one per sequence, or if `recipe` is null.
///
/// # Safety
/// `recipe` is null or an open recipe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_per_token(recipe: *const ls_recipe) -> u32 {
    // SAFETY: the caller upholds it.
    enter_or(0, || Ok(unsafe { given(recipe, "recipe")? }.own.per_token().into()))
}

/// Writes at most `capacity` of the columns that the recipe reads, and returns how many there are; 0 if
/// `recipe` is null.
///
/// # Safety
/// `recipe` is null or an open recipe; `out` has room for `capacity` entries, or `out` is null and `capacity`
/// 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_needs(
    recipe: *const ls_recipe,
    out: *mut ls_need,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe {
        let entry = |need: Need| ls_need {
            column: forever(need.column.name()),
            stage: forever(need.stage),
            other: need.or.map_or(null(), |or: Column| forever(or.name())),
            call: number(need.call),
            required: need.required.into(),
        };
        let needs = given(recipe, "recipe")?.own.needs();
        list(needs.into_iter().map(entry).collect(), out, capacity, "out")
    })
}

/// Writes at most `capacity` of the training loop's duties, and returns how many there are; 0 if `recipe` is
/// null.
///
/// # Safety
/// As for `ls_recipe_needs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_recipe_duties(
    recipe: *const ls_recipe,
    out: *mut ls_duty,
    capacity: usize,
) -> usize {
    // SAFETY: the caller upholds it.
    enter_or(0, || unsafe {
        let duties = given(recipe, "recipe")?.own.duties();
        let entry =
            |duty: recipe::Duty| ls_duty { name: forever(duty.name()), meaning: forever(duty.meaning()) };
        list(duties.into_iter().map(entry).collect(), out, capacity, "out")
    })
}

/// The name of recipe `number`, counted from 0; null past the last. The string is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn ls_recipe_name_at(number: usize) -> *const c_char {
    enter_or(null(), || Ok(recipe::names().get(number).map_or(null(), |name| forever(name))))
}
