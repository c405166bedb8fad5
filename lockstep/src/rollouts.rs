//! Batches of rollouts: columns, borrowed or owned.

#[cfg(feature = "safetensors")]
mod file;

use crate::columns::{Column, Columns, Shape};
use crate::{Batch, Counts, Error, for_each_column};
use lockstep_core::Error as Argument;
use lockstep_core::ragged::{In, Offsets};
use lockstep_core::require;
use std::ffi::c_void;

macro_rules! rollouts {
    ($($name:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
        /// The columns of a batch, borrowed. docs/columns.md describes each;
        /// [`Recipe::needs`](crate::Recipe::needs) lists those that a recipe reads.
        ///
        /// ```
        /// use lockstep::Rollouts;
        /// let rollouts = Rollouts { rewards: Some(&[1.0, 0.0]), ..Rollouts::new(&[0, 2, 4], &[0, 2]) };
        /// assert_eq!((rollouts.batch()?.tokens(), rollouts.batch()?.sequences()), (4, 2));
        /// # Ok::<(), lockstep::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Rollouts<'a> {
            $(#[doc = $meaning] pub $name: Option<&'a [$own]>,)*
        }

        /// The columns of a batch, owned; see [`Rollouts`].
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct RolloutsBuf {
            $(#[doc = $meaning] pub $name: Option<Vec<$own>>,)*
        }

        /// The columns of a batch as views of host or device memory; see [`Rollouts`] and
        /// [`Plan`](crate::plan::Plan).
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Views<'a> {
            $(#[doc = $meaning] pub $name: Option<In<'a, $own>>,)*
        }

        impl<'a> Views<'a> {
            /// The set of columns that are present.
            pub fn columns(&self) -> Columns {
                // Without a branch: every call of a recipe asks.
                Columns::NONE$(.with(Column::$name, self.$name.is_some()))*
            }

            /// Length of a column, if it is present.
            pub fn length(&self, column: Column) -> Option<usize> {
                match column { $(Column::$name => self.$name.map(In::len)),* }
            }

            /// Makes views of the columns for which `place` returns an address and a number of elements.
            ///
            /// # Safety
            /// While the views are used, each address points to that many aligned elements of the column's
            /// type, in memory of the device that reads them, and nothing writes them.
            #[allow(unsafe_code)]
            pub unsafe fn from_raw(place: impl Fn(Column) -> Option<(*const c_void, usize)>) -> Views<'a> {
                Views {
                    // SAFETY: upheld by the caller.
                    $($name: place(Column::$name).map(|(at, len)| unsafe { In::from_raw(at.cast(), len) })),*
                }
            }

            /// Makes views of `columns` with `place`, which gets the host's bytes and returns their device
            /// address.
            #[allow(unsafe_code)]
            pub(crate) fn placed(
                rollouts: &Rollouts<'_>,
                columns: Columns,
                mut place: impl FnMut(&[u8]) -> *const u8,
            ) -> Views<'a> {
                Views {
                    $($name: rollouts.$name.filter(|_| columns.contains(Column::$name)).map(|values| {
                        let at = place(bytemuck::cast_slice(values)).cast::<$own>();
                        // SAFETY: `place` returns the address of that many elements.
                        unsafe { In::from_raw(at, values.len()) }
                    })),*
                }
            }

            /// Turns views that hold offsets into a block at `base` into views of addresses.
            #[allow(unsafe_code)]
            pub(crate) fn moved(&self, base: *const u8) -> Views<'a> {
                Views {
                    // SAFETY: upheld by the code that made the offsets.
                    $($name: self.$name.map(|view| unsafe {
                        In::from_raw(base.wrapping_add(view.as_ptr().addr()).cast(), view.len())
                    })),*
                }
            }

            /// Copies `columns` to the host with `fetch`, which fills bytes from an address.
            pub(crate) fn fetched(
                &self,
                columns: Columns,
                mut fetch: impl FnMut(*const u8, &mut [u8]) -> Result<(), Error>,
            ) -> Result<RolloutsBuf, Error> {
                let mut buf = RolloutsBuf::default();
                $(if let Some(view) = self.$name.filter(|_| columns.contains(Column::$name)) {
                    let mut values = vec![<$own>::default(); view.len()];
                    fetch(view.as_ptr().cast(), bytemuck::cast_slice_mut(&mut values))?;
                    buf.$name = Some(values);
                })*
                Ok(buf)
            }
        }

        impl Rollouts<'_> {
            /// The set of columns that are present.
            pub fn columns(&self) -> Columns {
                // Without a branch: every call of a recipe asks.
                Columns::NONE$(.with(Column::$name, self.$name.is_some()))*
            }

            /// Length of a column, if it is present.
            pub fn length(&self, column: Column) -> Option<usize> {
                match column { $(Column::$name => self.$name.map(<[$own]>::len)),* }
            }

            /// Copies the columns.
            pub fn to_buf(&self) -> RolloutsBuf {
                RolloutsBuf { $($name: self.$name.map(<[$own]>::to_vec)),* }
            }

            /// Gathers from every column the elements at `places` of its shape; columns for which it returns
            /// `None` are omitted.
            fn gather(&self, places: impl Fn(Shape) -> Option<Vec<usize>>) -> RolloutsBuf {
                RolloutsBuf {
                    $($name: self.$name.and_then(|values| {
                        Some(places(Shape::$shape)?.into_iter().map(|i| values[i]).collect())
                    })),*
                }
            }
        }

        impl RolloutsBuf {
            /// Shortens or extends every column to the `length` of its shape: offsets with their last value,
            /// others with 0.
            pub(crate) fn resize(&mut self, length: impl Fn(Shape) -> Option<usize>) {
                $(if let (Some(values), Some(length)) = (&mut self.$name, length(Shape::$shape)) {
                    let last = values.last().copied().filter(|_| Shape::$shape.is_offsets());
                    values.resize(length, last.unwrap_or_default());
                })*
            }

            /// Borrows the columns.
            pub fn view(&self) -> Rollouts<'_> {
                Rollouts { $($name: self.$name.as_deref()),* }
            }
        }
    };
}
for_each_column!(rollouts);

impl<'a> Rollouts<'a> {
    /// A batch with the offsets and no other column.
    pub fn new(cu_seqlens: &'a [u32], cu_groups: &'a [u32]) -> Self {
        Rollouts { cu_seqlens: Some(cu_seqlens), cu_groups: Some(cu_groups), ..Rollouts::default() }
    }

    /// The batch that the offsets and the mask describe. Rows without members are allowed here (a shard may
    /// have them), but not in files.
    ///
    /// Errors: offsets that are missing or invalid; a mask of the wrong length.
    pub fn batch(&self) -> Result<Batch<'a>, Error> {
        let missing = |argument| Argument::Combination { argument, expected: "needed in every batch" };
        let cu_seqlens = self.cu_seqlens.ok_or_else(|| missing("cu_seqlens"))?;
        let cu_groups = self.cu_groups.ok_or_else(|| missing("cu_groups"))?;
        Batch::with_empty_rows(cu_seqlens, cu_groups, self.loss_mask)
    }

    /// The counts of column `counts`, if it is present.
    ///
    /// Errors: a number of entries other than three.
    pub fn whole_counts(&self) -> Result<Option<Counts>, Error> {
        match self.counts {
            None => Ok(None),
            Some(&[tokens, nonempty, sequences]) => Ok(Some(Counts { tokens, nonempty, sequences })),
            Some(other) => {
                let (argument, because) = ("counts", "live tokens, non-empty sequences, sequences");
                Err(Argument::Length { argument, expected: 3, because, got: other.len() }.into())
            }
        }
    }

    /// Checks that every column has the length of its shape.
    ///
    /// Errors: the first column that does not.
    pub fn check(&self) -> Result<(), Error> {
        self.check_of(&self.batch()?, self.columns())
    }

    /// Like [`Rollouts::check`], for some columns.
    pub(crate) fn check_of(&self, batch: &Batch<'_>, columns: Columns) -> Result<(), Error> {
        // `Rollouts::batch` has checked these.
        const OF_THE_BATCH: Columns =
            Columns::of(&[Column::cu_seqlens, Column::cu_groups, Column::loss_mask]);
        for column in columns.without(OF_THE_BATCH).iter() {
            let Some(got) = self.length(column) else { continue };
            let Some((expected, because)) = self.expected(batch, column.shape()) else { continue };
            require::length(column.name(), expected, because, got)?;
        }
        Ok(())
    }

    /// Checks the offsets of turns and steps.
    pub(crate) fn check_parts(&self, batch: &Batch<'_>) -> Result<(), Error> {
        let of_tokens = [("cu_turns", self.cu_turns), ("cu_step_tokens", self.cu_step_tokens)];
        for (name, offsets) in of_tokens {
            offsets.map_or(Ok(()), |own| Offsets::new(name, own, batch.tokens(), "tokens").map(drop))?;
        }
        let Some(cu_steps) = self.cu_steps else { return Ok(()) };
        let steps = match (self.cu_step_tokens, self.step_rewards, self.step_matches) {
            (Some(own), ..) => own.len() - 1,
            (_, Some(own), _) => own.len(),
            (.., own) => own.map_or(0, <[_]>::len),
        };
        Offsets::new("cu_steps", cu_steps, steps, "steps")?;
        Ok(())
    }

    /// Length of a shape in this batch, with the reason; `None` if the column itself defines its length.
    fn expected(&self, batch: &Batch<'_>, shape: Shape) -> Option<(usize, &'static str)> {
        let rows = |offsets: Option<&[u32]>| offsets.map(|offsets| offsets.len().saturating_sub(1));
        Some(match shape {
            Shape::Tokens => (batch.tokens(), "one per token of `cu_seqlens`"),
            Shape::Sequences => (batch.sequences(), "one per sequence of `cu_seqlens`"),
            Shape::Groups => (batch.groups(), "one per group of `cu_groups`"),
            Shape::Components => (
                self.reward_weights?.len() * batch.sequences(),
                "one per weight of `reward_weights` and sequence",
            ),
            Shape::Pairs => {
                let pairs = |group: usize| batch.cu_groups().span(group).len().pow(2);
                ((0..batch.groups()).map(pairs).sum(), "n² per group of n responses")
            }
            Shape::Turns => (rows(self.cu_turns)?, "one per turn of `cu_turns`"),
            Shape::Steps => (rows(self.cu_step_tokens)?, "one per step of `cu_step_tokens`"),
            Shape::StepsOfSequences => (batch.sequences() + 1, "one per sequence of `cu_seqlens`, plus one"),
            Shape::One => (1, "a single number"),
            Shape::Three => (3, "live tokens, non-empty sequences, sequences"),
            Shape::SequenceOffsets
            | Shape::GroupOffsets
            | Shape::Kinds
            | Shape::Roles
            | Shape::TurnOffsets
            | Shape::StepOffsets => return None,
        })
    }

    /// Selects whole groups as a batch of their own, in the given order. Returns the batch, and the old
    /// position of each of its tokens. Columns of turns and steps are selected too; `counts` is not, because
    /// it is that of the whole batch.
    ///
    /// Errors: those of [`Rollouts::check`]; a group that does not exist (index).
    ///
    /// ```
    /// use lockstep::Rollouts;
    /// let batch = Rollouts::new(&[0, 2, 4, 5], &[0, 2, 3]);
    /// let rollouts = Rollouts { rewards: Some(&[1.0, 0.0, 0.5]), ..batch };
    /// let (part, places) = rollouts.select(&[1])?;
    /// assert_eq!((part.rewards, part.cu_seqlens, places), (Some(vec![0.5]), Some(vec![0, 1]), vec![4]));
    /// # Ok::<(), lockstep::Error>(())
    /// ```
    pub fn select(&self, groups: &[usize]) -> Result<(RolloutsBuf, Vec<usize>), Error> {
        let batch = self.batch()?;
        self.check_of(&batch, self.columns())?;
        self.check_parts(&batch)?;
        let sequences = members(&batch, groups)?;
        let spans = |offsets: &[u32], rows: &[usize]| -> Vec<usize> {
            rows.iter().flat_map(|row| offsets[*row] as usize..offsets[row + 1] as usize).collect()
        };
        // Offsets of the selected rows, concatenated.
        let offsets = |old: &[u32], rows: &[usize]| -> Vec<u32> {
            let mut end = 0;
            let ends = rows.iter().map(|row| {
                end += old[row + 1] - old[*row];
                end
            });
            std::iter::once(0).chain(ends).collect()
        };
        let (cu_seqlens, cu_groups) =
            (self.cu_seqlens.unwrap_or_default(), self.cu_groups.unwrap_or_default());
        let places = spans(cu_seqlens, &sequences);
        let turns: Vec<usize> = self.cu_turns.map_or_else(Vec::new, |turns| {
            let first = |token: u32| turns.partition_point(|start| *start < token);
            sequences.iter().flat_map(|s| first(cu_seqlens[*s])..first(cu_seqlens[s + 1])).collect()
        });
        let steps: Vec<usize> = self.cu_steps.map_or_else(Vec::new, |cu_steps| spans(cu_steps, &sequences));
        let pairs: Vec<usize> = std::iter::once(0)
            .chain(cu_groups.windows(2).scan(0, |end, pair| {
                *end += ((pair[1] - pair[0]) as usize).pow(2);
                Some(*end)
            }))
            .collect();
        let kinds = self.reward_weights.map_or(0, <[f32]>::len);
        let mut part = self.gather(|shape| {
            Some(match shape {
                Shape::Tokens => places.clone(),
                Shape::Sequences => sequences.clone(),
                Shape::Groups => groups.to_vec(),
                Shape::Components => (0..kinds)
                    .flat_map(|k| sequences.iter().map(move |s| k * batch.sequences() + s))
                    .collect(),
                Shape::Pairs => groups.iter().flat_map(|group| pairs[*group]..pairs[group + 1]).collect(),
                Shape::Turns => turns.clone(),
                Shape::Steps => steps.clone(),
                Shape::Kinds => (0..kinds).collect(),
                Shape::Roles => (0..self.role_values.map_or(0, <[f64]>::len)).collect(),
                Shape::One => vec![0],
                Shape::Three
                | Shape::SequenceOffsets
                | Shape::GroupOffsets
                | Shape::TurnOffsets
                | Shape::StepOffsets
                | Shape::StepsOfSequences => return None,
            })
        });
        part.cu_seqlens = Some(offsets(cu_seqlens, &sequences));
        part.cu_groups = Some(offsets(cu_groups, groups));
        part.cu_turns = self.cu_turns.map(|old| offsets(old, &turns));
        part.cu_steps = self.cu_steps.map(|old| offsets(old, &sequences));
        part.cu_step_tokens = self.cu_step_tokens.map(|old| offsets(old, &steps));
        Ok((part, places))
    }
}

/// The sequences of these groups, in order.
pub(crate) fn members(batch: &Batch<'_>, groups: &[usize]) -> Result<Vec<usize>, Error> {
    let mut sequences = Vec::new();
    for (index, &group) in groups.iter().enumerate() {
        if group >= batch.groups() {
            return Err(require::value("groups", Some(index), "a group of `cu_groups`", group as f64).into());
        }
        let span = batch.cu_groups().span(group);
        sequences.extend(span.start..span.end);
    }
    Ok(sequences)
}

impl RolloutsBuf {
    /// See [`Rollouts::batch`].
    pub fn batch(&self) -> Result<Batch<'_>, Error> {
        self.view().batch()
    }
}
