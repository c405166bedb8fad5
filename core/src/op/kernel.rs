//! One description of an op: its launch arguments, their lengths, its name and its rows.

use crate::Error;
use crate::op::Arg;

/// The launch arguments of an op, which [`kernel!`](crate::kernel) describes.
pub trait Launch: Arg {
    /// The op's name in the table.
    const NAME: &'static str;

    /// Number of rows to run.
    fn rows(&self) -> usize;

    /// Checks that scalars are in their domain, and that arguments can be combined. It reads no array.
    ///
    /// Errors: the first fault.
    ///
    /// Whatever runs a kernel calls this once, before the rows.
    fn check(&self) -> Result<(), Error>;

    /// Checks that every array is long enough for the rows, and that every index names an element of its
    /// array.
    ///
    /// Errors: the first fault.
    ///
    /// Whatever runs a kernel over host memory calls this once, before the rows; a launch over device memory
    /// cannot, and is `unsafe`.
    fn check_bounds(&self) -> Result<(), Error>;

    /// Approximate number of elements of a row, used to balance rows over threads. It affects only speed.
    /// Host memory only.
    fn work(&self, row: usize) -> usize;
}

/// An argument that divides elements into rows.
pub trait Partition {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// Number of elements of row `row`.
    fn len(&self, row: usize) -> usize;

    /// Number of elements and number of rows.
    ///
    /// Errors: those of an argument that was not checked when it was made.
    fn sizes(&self) -> Result<(usize, usize), Error>;
}

/// Defines the struct of an op, and implements [`Launch`] for it.
///
/// A field is followed by its domain, a function of [`require`](crate::require) or `valid` for its own
/// `check`, and by the length that it must have, in brackets. Behind the struct stand the op's name and what
/// its rows are:
///
/// ```
/// use lockstep_core::op::Kernel;
/// use lockstep_core::ragged::{In, Mask, Offsets, Out};
/// use lockstep_core::team::Team;
///
/// lockstep_core::kernel! {
///     /// Rewards without those of masked tokens.
///     pub struct Masked<'a> {
///         /// Offsets of sequences, `[S+1]`.
///         pub cu_seqlens: Offsets<'a>,
///         /// Which tokens take part, `[N]`.
///         pub loss_mask: Mask<'a> [tokens],
///         /// Rewards, `[N]` or `[S]`.
///         pub rewards: In<'a, f32> [rewards],
///         /// Whether `rewards` has one entry per token.
///         pub per_token: bool,
///         /// Factor, 0 to 1.
///         pub factor: f32 where unit,
///         /// Factor times the rewards of the tokens that take part, 0 elsewhere, `[N]`.
///         pub masked: Out<'a, f32> [tokens],
///     }
///     unsafe "masked", over cu_seqlens (tokens, sequences),
///         let rewards = |k| if k.per_token { tokens } else { sequences };
/// }
///
/// impl Kernel for Masked<'_> {
///     fn row<T: Team>(&self, team: &T, row: usize) {
///         let (mask, rewards, out) = (self.loss_mask, self.rewards, *self.masked);
///         let (per_token, factor) = (self.per_token, self.factor);
///         team.for_each(self.cu_seqlens.span(row), move |i| {
///             let reward = rewards.at(if per_token { i } else { row });
///             out.put(i, if mask.at(i) { factor * reward } else { 0.0 });
///         });
///     }
/// }
/// ```
///
/// * `unsafe` is the author's promise that the op's rows are [disjoint](crate::op::DisjointRows); without it
///   nothing compiles.
/// * `over FIELD (elements, rows)`: the op's rows are those of a [`Partition`], and both numbers have names
///   (`_` if unused). Otherwise, `rows |k| number of rows`.
/// * `work |k, row| elements of a row`, if that is not the row's length.
/// * `require |k| …`, what [`Launch::check`] checks besides the domains of single fields, as a
///   `Result<(), Error>`.
/// * `let length = |k| …`, a length that the struct k determines; any number of them.
/// * `check |k| …`, checks of what k's arrays contain, as a `Result<(), Error>`.
///
/// An array that is absent passes the check of its length.
///
/// Without `unsafe` this does not compile:
///
/// ```compile_fail
/// use lockstep_core::ragged::Out;
/// lockstep_core::kernel! {
///     /// Fills an array.
///     pub struct Filled<'a> {
///         /// The array.
///         pub out: Out<'a, f32>,
///     }
///     "filled", rows |k| k.out.len(), work |_, _| 1;
/// }
/// ```
///
/// Launch arguments alone do not make a kernel that a backend runs either:
///
/// ```compile_fail,E0277
/// use lockstep_core::op::DisjointRows;
/// use lockstep_core::{launch_args, ragged::Out};
/// struct Filled<'a> {
///     out: Out<'a, f32>,
/// }
/// launch_args!(Filled<'_> { out });
/// fn runs<K: DisjointRows>() {}
/// runs::<Filled<'_>>();
/// ```
#[macro_export]
macro_rules! kernel {
    (
        $(#[$about:meta])*
        pub struct $name:ident<$life:lifetime $(, $param:ident: $bound:ident $(= $default:ty)?)?> {
            $($(#[$doc:meta])* pub $field:ident: $type:ty $(where $domain:ident)? $([$length:expr])?),* $(,)?
        }
        unsafe $op:expr
        $(, over $of:ident ($elements:tt, $parts:tt))?
        $(, rows |$rows_of:tt| $rows:expr)?
        $(, work |$work_of:tt, $row:tt| $work:expr)?
        $(, require |$domain_of:tt| $required:expr)?
        $(, let $dim:ident = |$dim_of:tt| $size:expr)*
        $(, check |$check_of:tt| $check:expr)?;
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name<$life $(, $param $(= $default)?)?> {
            $($(#[$doc])* pub $field: $type,)*
        }

        $crate::launch_args!(impl[$($param: $bound)?] $name<'_ $(, $param)?> { $($field),* });

        // SAFETY: promised by whoever writes `unsafe` in the macro call. For the ops of the table: a row
        // writes its own span of a partition, which cannot overlap, and its own index of per-row outputs;
        // conformance tests this for every op (rows_are_disjoint).
        #[allow(unsafe_code)]
        unsafe impl<$($param: $bound)?> $crate::op::DisjointRows for $name<'_ $(, $param)?> {}

        impl<$($param: $bound)?> $crate::op::Launch for $name<'_ $(, $param)?> {
            const NAME: &'static str = $op;

            #[inline(always)]
            fn rows(&self) -> usize {
                $($crate::op::Partition::rows(&self.$of))?
                $({ let $rows_of = self; $rows })?
            }

            fn work(&self, row: usize) -> usize {
                $crate::kernel!(@work self, row, [$($of)?] $(|$work_of, $row| $work)?)
            }

            fn check(&self) -> Result<(), $crate::Error> {
                $($($crate::kernel!(@require self, $field, $domain);)?)*
                $({ let $domain_of = self; $required }?;)?
                Ok(())
            }

            fn check_bounds(&self) -> Result<(), $crate::Error> {
                $(let ($elements, $parts) = $crate::op::Partition::sizes(&self.$of)?;)?
                $(let $dim: usize = { let $dim_of = self; $size };)*
                $($(
                    $crate::op::check_length(stringify!($field), &self.$field, $length, stringify!($length))?;
                )?)*
                $({ let $check_of = self; $check }?;)?
                Ok(())
            }
        }
    };
    (@require $self:ident, $field:ident, valid) => { $self.$field.check()? };
    (@require $self:ident, $field:ident, $domain:ident) => {
        $crate::require::$domain(stringify!($field), $self.$field)?
    };
    (@work $self:ident, $index:ident, [$($of:ident)?] |$of_work:tt, $row:tt| $work:expr) => {{
        let ($of_work, $row) = ($self, $index);
        $work
    }};
    (@work $self:ident, $index:ident, [$of:ident]) => {
        $crate::op::Partition::len(&$self.$of, $index)
    };
}
