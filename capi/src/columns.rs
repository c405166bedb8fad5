//! The C structs for columns of a batch and for the parts of a credit that a loss reads.

use crate::error::{Refusal, enter, ls_status};
use crate::text::{Sized32, aligned, forever, given_mut, host, sized, within};
use lockstep::columns::{Column, Element};
use lockstep::core::ragged::In;
use lockstep::plan::CreditViews;
use lockstep::{Credit, Rollouts, Views, for_each_column};
use std::ffi::c_char;

/// The type of an array's elements.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ls_element {
    /// `uint8_t`: a flag.
    U8 = 0,
    /// `uint32_t`: an index, offset or id.
    U32 = 1,
    /// `uint64_t`: a count.
    U64 = 2,
    /// `float`.
    F32 = 3,
    /// `double`.
    F64 = 4,
}

impl From<Element> for ls_element {
    fn from(element: Element) -> ls_element {
        match element {
            Element::U8 => ls_element::U8,
            Element::U32 => ls_element::U32,
            Element::U64 => ls_element::U64,
            Element::F32 => ls_element::F32,
            Element::F64 => ls_element::F64,
        }
    }
}

/// An array of the caller's; a null `data` means that it is absent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_span<T> {
    /// The first element.
    pub data: *const T,
    /// The number of elements.
    pub len: usize,
}

impl<T: Copy> ls_span<T> {
    /// Returns whether the array is present.
    fn there(self, argument: &str) -> Result<bool, Refusal> {
        if self.data.is_null() && self.len > 0 {
            let says = format!("is null and has {} entries", self.len);
            return Err(Refusal::new(ls_status::Pointer, argument, says));
        }
        Ok(!self.data.is_null())
    }

    /// # Safety
    /// `data` is null, or has `len` elements in host memory that nobody writes during `'a`.
    unsafe fn slice<'a>(self, argument: &str) -> Result<Option<&'a [T]>, Refusal> {
        // SAFETY: the caller upholds it.
        self.there(argument)?.then(|| unsafe { host(self.data, self.len, argument) }).transpose()
    }

    /// # Safety
    /// `data` is null, or has `len` elements in memory of the device that reads them; nobody writes them
    /// during `'a`.
    unsafe fn view<'a>(self, argument: &str) -> Result<Option<In<'a, T>>, Refusal> {
        if !self.there(argument)? {
            return Ok(None);
        }
        within::<T>(self.len, argument)?;
        aligned(self.data, argument)?;
        // SAFETY: the caller upholds it; the host does not read the memory.
        Ok(Some(unsafe { In::from_raw(self.data, self.len) }))
    }
}

macro_rules! rollouts {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// The columns of a batch. `include/lockstep.h` documents each.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub struct ls_rollouts {
            pub size: u32,
            pub reserved: u32,
            $(pub $name: ls_span<$own>,)*
        }

        /// # Safety
        /// As for [`sized`].
        unsafe fn columns(from: *const ls_rollouts) -> Result<ls_rollouts, Refusal> {
            // SAFETY: the caller upholds it.
            let own = unsafe { sized(from, "rollouts")? };
            if own.reserved == 0 {
                return Ok(own);
            }
            let says = format!("is {}: expected 0", own.reserved);
            Err(Refusal::new(ls_status::Argument, "rollouts.reserved", says))
        }

        impl ls_rollouts {
            /// Reads the columns from host memory.
            ///
            /// # Safety
            /// As for [`sized`]; each column as for [`ls_span::slice`].
            pub(crate) unsafe fn read<'a>(from: *const ls_rollouts) -> Result<Rollouts<'a>, Refusal> {
                // SAFETY: the caller upholds it.
                unsafe {
                    let own = columns(from)?;
                    Ok(Rollouts { $($name: own.$name.slice(stringify!($name))?),* })
                }
            }

            /// Returns views of the columns, in any memory.
            ///
            /// # Safety
            /// As for [`sized`]; each column as for [`ls_span::view`].
            pub(crate) unsafe fn views<'a>(from: *const ls_rollouts) -> Result<Views<'a>, Refusal> {
                // SAFETY: the caller upholds it.
                unsafe {
                    let own = columns(from)?;
                    Ok(Views { $($name: own.$name.view(stringify!($name))?),* })
                }
            }
        }

        /// Byte offset of each column in [`ls_rollouts`].
        const OFFSETS: [usize; Column::ALL.len()] = [$(std::mem::offset_of!(ls_rollouts, $name)),*];
    };
}
for_each_column!(rollouts);

// SAFETY: `repr(C)`; the size comes first, then numbers and addresses.
unsafe impl Sized32 for ls_rollouts {}

/// The parts of a credit that a loss reads: in host memory for `ls_credit_new`, in device memory for a plan
/// of the loss alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_credit_views {
    /// `sizeof(ls_credit_views)`.
    pub size: u32,
    /// Nonzero: one advantage per token; 0: one per sequence.
    pub per_token: u32,
    /// `[S]`, or `[N]` if per token.
    pub advantage: ls_span<f32>,
    /// `[N]`, the loss mask after filtering and rejection; absent: every token is live.
    pub loss_mask: ls_span<u8>,
    /// `[N]`, the weights of the rollout correction; absent: 1.
    pub weights: ls_span<f32>,
    /// `[N]`, the critic's targets; absent: the estimator has none.
    pub returns: ls_span<f32>,
}

// SAFETY: `repr(C)`; the size comes first, then numbers and addresses.
unsafe impl Sized32 for ls_credit_views {}

impl ls_credit_views {
    /// Copies the arrays from host memory.
    ///
    /// # Safety
    /// As for [`ls_rollouts::read`].
    pub(crate) unsafe fn read(from: *const ls_credit_views) -> Result<Credit, Refusal> {
        // SAFETY: the caller upholds it.
        unsafe {
            let own = sized(from, "views")?;
            let advantage =
                own.advantage.slice("advantage")?.ok_or_else(|| Refusal::null("advantage"))?.to_vec();
            Ok(Credit {
                advantage,
                per_token: own.per_token != 0,
                loss_mask: own.loss_mask.slice("loss_mask")?.map(<[u8]>::to_vec),
                weights: own.weights.slice("weights")?.map(<[f32]>::to_vec),
                returns: own.returns.slice("returns")?.unwrap_or_default().to_vec(),
                ..Credit::default()
            })
        }
    }

    /// Returns views of the arrays, in any memory; none if `from` is null.
    ///
    /// # Safety
    /// As for [`ls_rollouts::views`].
    pub(crate) unsafe fn views<'a>(from: *const ls_credit_views) -> Result<Option<CreditViews<'a>>, Refusal> {
        if from.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller upholds it.
        unsafe {
            let own = sized(from, "credit")?;
            Ok(Some(CreditViews {
                advantage: own.advantage.view("advantage")?.ok_or_else(|| Refusal::null("advantage"))?,
                per_token: own.per_token != 0,
                loss_mask: own.loss_mask.view("loss_mask")?,
                weights: own.weights.view("weights")?,
                returns: own.returns.view("returns")?,
            }))
        }
    }
}

/// A column of `ls_rollouts`, for bindings that build the struct from the list of columns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_column {
    /// The column's name. This and the other strings are never freed.
    pub name: *const c_char,
    /// What the column holds, with its unit.
    pub meaning: *const c_char,
    /// The column's length: `[N]` tokens, `[S]` sequences, `[G]` groups, `[S+1]` offsets…
    pub shape: *const c_char,
    /// The type of its elements.
    pub element: ls_element,
    /// Byte offset of its span in `ls_rollouts`.
    pub offset: u32,
}

/// Writes column `number`, counted from 0. `LS_STATUS_ABSENT` if `number` is past the last.
///
/// # Safety
/// `out` is null or points to an `ls_column`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_column_at(number: usize, out: *mut ls_column) -> ls_status {
    enter(|| {
        // SAFETY: the caller upholds it.
        let out = unsafe { given_mut(out, "out")? };
        let (Some(column), Some(offset)) = (Column::ALL.get(number), OFFSETS.get(number)) else {
            let says = format!("is {number}: there are {} columns", OFFSETS.len());
            return Err(Refusal::new(ls_status::Absent, "number", says));
        };
        *out = ls_column {
            name: forever(column.name()),
            meaning: forever(column.meaning()),
            shape: forever(column.shape().name()),
            element: column.element().into(),
            offset: *offset as u32,
        };
        Ok(())
    })
}
