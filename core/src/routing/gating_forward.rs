//! The forward pass of a router: which experts run, and with which gates.
//!
//! **Formula**: see [`routing`](super). A row is replayed if there is a [`Trace`], the mask includes its
//! token, and the trace has a record for it; otherwise it selects by its own scores.
//!
//! **Shapes**: a row is one token's router in one layer: `scores` `[rows, E]`, `chosen` and `gates`
//! `[rows, K]`; with a trace of several layers, the layers of a token are adjacent rows. `bias` `[E]`,
//! `group_scores` `[rows, groups]`, the mask `[tokens]`.
//!
//! **Special cases**: a score or bias that is not finite, an expert outside 0..E or listed twice in a record
//! raise the row's [alarm](crate::ragged::flag). An exponential below e⁻⁸⁷ times the largest is 0, as in
//! [`logits`](crate::logits).
//!
//! **Accuracy**: numerators in binary32, their sum and the quotient in binary64, rounded once.

use super::block::ROWS;
use super::key::{
    Activation, Biased, Exponential, InGroups, Plain, Probability, Score, Sigmoid, SqrtSoftplus,
};
use super::{Router, RouterKind, SIGMOID_EPS, Trace, quotient};
use crate::Error;
use crate::logits::weight;
use crate::num::{self, Arith};
use crate::op::Kernel;
use crate::ragged::{Cells, In, Mask, Out, Span, Stream, flag, sink};
use crate::require;
use crate::team::{Element, Key, Lane, Team};
use core::ops::Range;

/// The trace to replay, and the tokens that replay it.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// Recorded experts, `[tokens, layers, K]`.
    pub trace: Trace<'a>,
    /// Tokens that replay, `[tokens]`, for instance response tokens only; the others select.
    pub mask: Mask<'a>,
}

crate::launch_args!(Replay<'_> { trace, mask });

/// The output for the chosen experts, `[rows, K]`, as bytes or 16-bit numbers.
#[derive(Debug)]
pub struct ChosenOut<'a> {
    narrow: Option<Out<'a, u8>>,
    wide: Option<Out<'a, u16>>,
}

crate::launch_args!(ChosenOut<'_> { narrow, wide });

impl<'a> ChosenOut<'a> {
    /// An output of bytes, for at most 256 experts.
    pub fn narrow(ids: Out<'a, u8>) -> Self {
        ChosenOut { narrow: Some(ids), wide: None }
    }

    /// An output of 16-bit numbers.
    pub fn wide(ids: Out<'a, u16>) -> Self {
        ChosenOut { narrow: None, wide: Some(ids) }
    }

    #[inline(always)]
    fn put(&self, i: usize, expert: usize) {
        if let Some(ids) = &self.narrow {
            ids.put(i, expert as u8);
        }
        if let Some(ids) = &self.wide {
            ids.put(i, expert as u16);
        }
    }

    #[inline(always)]
    fn get(&self, i: usize) -> usize {
        let narrow = match &self.narrow {
            Some(ids) => usize::from(ids.get(i)),
            None => 0,
        };
        narrow
            | match &self.wide {
                Some(ids) => usize::from(ids.get(i)),
                None => 0,
            }
    }
}

crate::kernel! {
    /// The op `gating_forward`: chosen experts and gates of each row.
    pub struct GatingForward<'a> {
        /// The router's rule and shape.
        pub router: Router,
        /// Number of rows.
        pub rows: usize,
        /// Router scores, `[rows, E]`.
        pub scores: In<'a, f32>,
        /// Selection bias b, `[E]`; absent means 0. It is added to σ, √softplus or the softmax over all
        /// experts, and does not enter the gates.
        pub bias: Option<In<'a, f32>> [experts],
        /// The trace to replay, if any.
        pub replay: Option<Replay<'a>>,
        /// Chosen experts, `[rows, K]`.
        pub chosen: ChosenOut<'a>,
        /// Gates, `[rows, K]`, in the order of `chosen`.
        pub gates: Out<'a, f32> [slots],
        /// Scores by which groups are compared, `[rows, groups]`; 0 for replayed rows. Needed only with more
        /// than one group.
        pub group_scores: Option<Out<'a, f32>> [groups],
        /// 1 if the row was replayed, else 0, `[rows]`.
        pub row_replayed: Out<'a, u32> [rows],
        /// Above [`flag::LIMIT`] if an input of the row is bad, `[rows]`.
        pub row_alarm: Out<'a, u32> [rows],
    }
    unsafe "gating_forward", rows |k| k.rows, work |k, _| k.router.experts,
        require |k| k.check_sizes(),
        let rows = |k| k.rows,
        let experts = |k| k.router.experts,
        let slots = |k| rows.saturating_mul(k.router.top_k),
        let groups = |k| rows.saturating_mul(k.router.groups),
        check |k| k.check_parts();
}

impl GatingForward<'_> {
    fn check_parts(&self) -> Result<(), Error> {
        let (router, rows) = (&self.router, self.rows);
        router.check_scores(self.scores, rows)?;
        if let Some(replay) = &self.replay {
            router.check_trace(&replay.trace, rows)?;
            crate::lengths!(replay; replay.trace.tokens() => mask);
        }
        crate::lengths!(self.chosen; rows * router.top_k => narrow, wide);
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Error> {
        let router = &self.router;
        router.check_scores(self.scores, self.rows)?;
        if let Some(bias) = self.bias {
            Router::length("bias", bias.len(), 1, router.experts)?;
        }
        match &self.group_scores {
            Some(out) => Router::length("group_scores", out.len(), self.rows, router.groups)?,
            None if router.groups > 1 => {
                let expected = "needed if the router has more than one group";
                return Err(Error::Combination { argument: "group_scores", expected });
            }
            None => {}
        }
        let Some(replay) = self.replay else { return Ok(()) };
        let (k, expected) = (replay.trace.top_k(), "as many entries per record as the router's top_k");
        require::scalar("trace", k == router.top_k, expected, k as f64)?;
        require::length("trace", self.rows, "rows of scores", replay.trace.rows())
    }
}

/// The largest of a row of scores, and the alarm of all of them. Computed as a pick, because on a CPU the
/// maximum of a sweep costs as much as the exponentials of such a short row.
#[inline(always)]
pub(super) fn largest_of<T: Team>(team: &T, span: Span, scores: In<'_, f32>) -> (f32, u32) {
    let picked = team.largest(span, scores, None, 1, &Score, move |_, _| {});
    (picked.sum, picked.alarm)
}

/// Whether all scores are finite.
struct Finite;

impl Element<1, 0, 0, 0> for Finite {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 0, 0> {
        Lane { out: [], sum: [], max: [], alarm: flag::finite(input(0)) }
    }
}

/// Z of the softmax over all experts.
pub(super) struct Total {
    pub(super) largest: f32,
}

impl Element<1, 0, 1, 0> for Total {
    #[inline(always)]
    fn element<A: Arith>(&self, _staged: [f32; 2], input: impl Fn(usize) -> f32) -> Lane<0, 1, 0> {
        Lane { out: [], sum: [weight::<A>(input(0) - self.largest)], max: [], alarm: 0 }
    }
}

/// The group scores that this row wrote.
struct Stored<'a> {
    sums: Cells<'a, f32>,
    first: usize,
}

impl Key for Stored<'_> {
    #[inline(always)]
    fn key<A: Arith>(&self, _value: f32, _bias: f32, element: usize) -> f32 {
        self.sums.get(self.first + element)
    }
}

impl<'a> GatingForward<'a> {
    /// Whether experts are compared by a function of their scores. Without bias and groups, the score itself
    /// has the same order, and it still tells experts apart whose sigmoids round to 1.
    #[inline(always)]
    fn by_activation(&self) -> bool {
        self.bias.is_some() | self.group_scores.is_some()
    }

    /// Selects the row's experts by a function of scores and bias, within the best groups; returns the alarm.
    #[inline(always)]
    fn choose_by<T: Team, F: Activation>(&self, team: &T, row: usize, of: F) -> u32 {
        let (router, span) = (self.router, self.router.span(row));
        let first = row * router.top_k;
        let (chosen, scores, bias) = (&self.chosen, self.scores, self.bias);
        let put = move |j: usize, e: usize| chosen.put(first + j, e);
        let Some(sums) = sink(&self.group_scores) else {
            return team.largest(span, scores, bias, router.top_k, &Biased(of), put).alarm;
        };
        let (groups, size) = (router.groups, router.per_group());
        let base = row * groups;
        let mut g = 0;
        while g < groups {
            let group = Span::new(g * size, (g + 1) * size);
            let of_group = bias.map(|bias| bias.part(group));
            let part = Span::new(span.start + group.start, span.start + group.end);
            let members = if size > F::OF_GROUP { F::OF_GROUP } else { size };
            let sum = team.largest(part, scores, of_group, members, &Biased(of), move |_, _| {}).sum;
            let own = Span::new(base, base + groups);
            team.place(own, 1, move |_| g, move |_, i| sums.put(i, num::canonical(sum)));
            g += 1;
        }
        let stored = Stored { sums, first: base };
        let row_start = Span::new(span.start, span.start + groups);
        let bits = team.largest(row_start, scores, None, router.top_groups, &stored, move |_, _| {}).bits;
        let inverse = quotient(1 << 20, size) as u32 + 1;
        team.largest(span, scores, bias, router.top_k, &InGroups { of, bits, inverse }, put).alarm
    }

    /// Copies the record's experts, clamped to 0..E; returns the alarm.
    #[inline(always)]
    fn take_record<T: Team>(&self, team: &T, row: usize, trace: Trace<'a>) -> u32 {
        let (experts, k) = (self.router.experts, self.router.top_k);
        let (chosen, slots) = (&self.chosen, Span::new(0, k));
        let (first, position) = (row * k, trace.position(row));
        team.for_each(slots, move |j| {
            let expert = trace.at(position + j) as usize;
            chosen.put(first + j, if expert < experts { expert } else { experts - 1 });
        });
        if let Some(sums) = &self.group_scores {
            let groups = self.router.groups;
            team.for_each(Span::new(row * groups, (row + 1) * groups), move |i| sums.put(i, 0.0));
        }
        let bad = team.max(slots, move |j| if trace.holds(row, j, experts) { 0.0 } else { 1.0 });
        if bad > 0.0 { u32::MAX } else { 0 }
    }
}

impl Kernel for GatingForward<'_> {
    #[inline(always)]
    fn row<T: Team>(&self, team: &T, row: usize) {
        match self.variant() {
            0 => team.row_as::<0, Self>(self, row),
            1 => team.row_as::<1, Self>(self, row),
            2 => team.row_as::<2, Self>(self, row),
            3 => team.row_as::<3, Self>(self, row),
            _ => team.row_as::<4, Self>(self, row),
        }
    }

    #[inline(always)]
    fn block<T: Team>(&self, team: &T, rows: Range<usize>) {
        let mut row = rows.start;
        let chosen = if self.replay.is_none() & self.chosen.wide.is_none() {
            self.chosen.narrow.as_deref().copied()
        } else {
            None
        };
        if let (8, Some(chosen)) = (self.router.top_k, chosen) {
            while row + ROWS <= rows.end {
                match (self.variant(), self.router.experts, self.router.groups) {
                    (0, 128, 1) => self.block_of::<0, 128, T>(team, row, chosen),
                    (1, 128, 1) => self.block_of::<1, 128, T>(team, row, chosen),
                    (2, 128, 1) if self.group_scores.is_none() => {
                        self.block_of::<2, 128, T>(team, row, chosen)
                    }
                    (2, 256, 8) if self.group_scores.is_some() => {
                        self.block_of::<2, 256, T>(team, row, chosen)
                    }
                    _ => break,
                }
                row += ROWS;
            }
        }
        for row in row..rows.end {
            self.row(team, row);
        }
    }

    #[inline(always)]
    fn variant(&self) -> usize {
        match self.router.kind {
            RouterKind::SoftmaxChosen | RouterKind::SoftmaxAll if self.by_activation() => 3,
            RouterKind::SoftmaxChosen => 0,
            RouterKind::SoftmaxAll => 1,
            RouterKind::SigmoidNormalized | RouterKind::Sigmoid => 2,
            RouterKind::SqrtSoftplus => 4,
        }
    }

    #[inline(always)]
    fn row_as<const V: usize, T: Team>(&self, team: &T, row: usize) {
        let (router, span) = (self.router, self.router.span(row));
        let (k, scores, chosen, gates) = (router.top_k, self.scores, &self.chosen, *self.gates);
        let (first, slots) = (row * k, Span::new(0, k));
        let ins = [Stream::Array(scores)];
        let mut alarm = 0;
        let mut replayed = false;
        if let Some(Replay { trace, mask }) = self.replay {
            replayed = mask.at(trace.token(row)) & !trace.is_absent(row);
            if replayed {
                alarm = self.take_record(team, row, trace);
            }
        }
        let (mut largest, mut total) = (0.0, 1.0);
        if V == 1 || V == 3 {
            let found = largest_of(team, span, scores);
            (largest, alarm) = (found.0, flag::worse(alarm, found.1));
        } else if replayed {
            alarm = flag::worse(alarm, team.sweep(span, Mask::all(), ins, [], &Finite).alarm);
        }
        if V == 3 {
            total = team.sweep(span, Mask::all(), ins, [], &Total { largest }).sums[0];
        }
        let over_chosen = matches!(router.kind, RouterKind::SoftmaxChosen);
        let score = move |j: usize| scores.at(span.start + chosen.get(first + j));
        // If the keys of the pick are the scores themselves, the team still holds them.
        let slots = if replayed {
            if V == 0 || (V == 3 && over_chosen) {
                largest = team.max(slots, score);
            }
            team.slots(k, score)
        } else if V < 2 || (V != 3 && !self.by_activation()) {
            let picked = team.largest(span, scores, None, k, &Score, move |j, e| chosen.put(first + j, e));
            alarm = flag::worse(alarm, picked.alarm);
            largest = picked.first;
            picked.keys
        } else if V == 2 {
            alarm = flag::worse(alarm, self.choose_by(team, row, Sigmoid));
            team.slots(k, score)
        } else if V == 4 {
            alarm = flag::worse(alarm, self.choose_by(team, row, SqrtSoftplus));
            team.slots(k, score)
        } else {
            let of = Probability { largest, inverse: num::div64(1.0, total) as f32 };
            alarm = flag::worse(alarm, self.choose_by(team, row, of));
            if over_chosen {
                largest = team.max(slots, score);
            }
            team.slots(k, score)
        };
        let scale = f64::from(router.scale);
        let shares = if V == 1 {
            let total = team.sweep(span, Mask::all(), ins, [], &Total { largest }).sums[0];
            team.shares::<false, _>(k, slots, Exponential { largest }, move |_| num::div64(scale, total))
        } else if V == 0 || V == 3 {
            let factor = move |sum: f64| num::div64(scale, if V == 0 || over_chosen { sum } else { total });
            team.shares::<true, _>(k, slots, Exponential { largest }, factor)
        } else if V == 4 {
            let factor = move |sum: f64| num::div64(scale, sum + f64::from(SIGMOID_EPS));
            team.shares::<true, _>(k, slots, Plain(SqrtSoftplus), factor)
        } else {
            let normalized = matches!(router.kind, RouterKind::SigmoidNormalized);
            let factor = move |sum: f64| {
                num::div64(scale, if normalized { sum + f64::from(SIGMOID_EPS) } else { 1.0 })
            };
            team.shares::<true, _>(k, slots, Plain(Sigmoid), factor)
        };
        team.put_slots(Span::new(first, first + k), gates, shares);
        if team.leads() {
            self.row_replayed.put(row, u32::from(replayed));
            self.row_alarm.put(row, alarm);
        }
    }
}
