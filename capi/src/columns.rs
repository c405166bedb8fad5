//! The C structs for columns of a batch and for the parts of a credit that a loss reads.

use crate::error::{Refusal, enter, ls_status};
use crate::text::{Sized32, aligned, forever, given_mut, host, sized, within};
use lockstep::columns::{Column, Element};
use lockstep::core::ragged::In;
use lockstep::plan::CreditViews;
use lockstep::{Credit, Rollouts, Views, for_each_column};
use std::ffi::c_char;

/// Type of an array's elements.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ls_element {
    /// `uint8_t`, a flag.
    U8 = 0,
    /// `uint32_t`, an index, offset or id.
    U32 = 1,
    /// `uint64_t`, a count.
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

/// An array of the caller's: a null `data` is none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_span<T> {
    /// The first element.
    pub data: *const T,
    /// How many.
    pub len: usize,
}

impl<T: Copy> ls_span<T> {
    /// Whether it is there.
    fn there(self, argument: &str) -> Result<bool, Refusal> {
        if self.data.is_null() && self.len > 0 {
            let says = format!("is null and has {} entries", self.len);
            return Err(Refusal::new(ls_status::Pointer, argument, says));
        }
        Ok(!self.data.is_null())
    }

    /// # Safety
    /// It has so many elements in the host's memory, which nobody writes for `'a`.
    unsafe fn slice<'a>(self, argument: &str) -> Result<Option<&'a [T]>, Refusal> {
        // SAFETY: the caller's.
        self.there(argument)?.then(|| unsafe { host(self.data, self.len, argument) }).transpose()
    }

    /// # Safety
    /// It has so many elements in memory of the device that reads them, which nobody writes for `'a`.
    unsafe fn view<'a>(self, argument: &str) -> Result<Option<In<'a, T>>, Refusal> {
        if !self.there(argument)? {
            return Ok(None);
        }
        within::<T>(self.len, argument)?;
        aligned(self.data, argument)?;
        // SAFETY: the caller's; the host does not look.
        Ok(Some(unsafe { In::from_raw(self.data, self.len) }))
    }
}

macro_rules! rollouts {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// Columns of a batch. `include/lockstep.h` says what each is.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs)]
        pub struct ls_rollouts {
            pub size: u32,
            pub reserved: u32,
            $(pub $name: ls_span<$own>,)*
        }

        impl ls_rollouts {
            /// The columns in the host's memory.
            ///
            /// # Safety
            /// As for [`sized`], and of each column as for [`ls_span::slice`].
            pub(crate) unsafe fn read<'a>(from: *const ls_rollouts) -> Result<Rollouts<'a>, Refusal> {
                // SAFETY: the caller's.
                unsafe {
                    let own = sized(from, "rollouts")?;
                    Ok(Rollouts { $($name: own.$name.slice(stringify!($name))?),* })
                }
            }

            /// The columns in any memory.
            ///
            /// # Safety
            /// As for [`sized`], and of each column as for [`ls_span::view`].
            pub(crate) unsafe fn views<'a>(from: *const ls_rollouts) -> Result<Views<'a>, Refusal> {
                // SAFETY: the caller's.
                unsafe {
                    let own = sized(from, "rollouts")?;
                    Ok(Views { $($name: own.$name.view(stringify!($name))?),* })
                }
            }
        }

        /// Where each column's place in [`ls_rollouts`] begins.
        const OFFSETS: [usize; Column::ALL.len()] = [$(std::mem::offset_of!(ls_rollouts, $name)),*];
    };
}
for_each_column!(rollouts);

// SAFETY: `repr(C)`, the size first, then numbers and addresses.
unsafe impl Sized32 for ls_rollouts {}

/// What a loss reads of a credit: in the host's memory for `ls_credit_new`, in the device's for a plan of the loss alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_credit_views {
    /// `sizeof(ls_credit_views)`.
    pub size: u32,
    /// Not 0: one advantage per token; 0: one per sequence.
    pub per_token: u32,
    /// `[S]`, or `[N]` per token.
    pub advantage: ls_span<f32>,
    /// `[N]`, what filter and rejection left of the loss mask; none: all of it.
    pub loss_mask: ls_span<u8>,
    /// `[N]`, weights of the rollout correction; none: 1.
    pub weights: ls_span<f32>,
    /// `[N]`, what a critic learns; none: the estimator has none.
    pub returns: ls_span<f32>,
}

// SAFETY: `repr(C)`, the size first, then numbers and addresses.
unsafe impl Sized32 for ls_credit_views {}

impl ls_credit_views {
    /// A copy of the host's arrays.
    ///
    /// # Safety
    /// As for [`ls_rollouts::read`].
    pub(crate) unsafe fn read(from: *const ls_credit_views) -> Result<Credit, Refusal> {
        // SAFETY: the caller's.
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

    /// The arrays in any memory; a null `from` is none.
    ///
    /// # Safety
    /// As for [`ls_rollouts::views`].
    pub(crate) unsafe fn views<'a>(from: *const ls_credit_views) -> Result<Option<CreditViews<'a>>, Refusal> {
        if from.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's.
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

/// A column of `ls_rollouts`, for bindings that make the struct from the list.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ls_column {
    /// Its name; as the other texts it stays for good.
    pub name: *const c_char,
    /// What it is, with its unit.
    pub meaning: *const c_char,
    /// Its length: `[N]` tokens, `[S]` sequences, `[G]` groups, `[S+1]` offsets…
    pub shape: *const c_char,
    /// Type of its elements.
    pub element: ls_element,
    /// First byte of its place in `ls_rollouts`.
    pub offset: u32,
}

/// Column number `number`, from 0 on. `LS_STATUS_ABSENT` behind the last.
///
/// # Safety
/// `out` is null or that of an `ls_column`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ls_column_at(number: usize, out: *mut ls_column) -> ls_status {
    enter(|| {
        // SAFETY: the caller's.
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
