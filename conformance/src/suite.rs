//! The suite, generic over a backend. Each property returns how much it compared (a property that compared nothing has
//! failed) or the first violation: op, case, output, index, both bit patterns.

use crate::backend::{Backend, OneRow};
use crate::cases::hash::Source;
use crate::cases::masks::garbage;
use crate::cases::params::Policy;
use crate::cases::select::select;
use crate::cases::{Case, Params, slot};
use crate::launch;
use crate::output::{Output, first_difference};
use lockstep_cpu::Cpu;

/// Number of values compared, or the first violation.
pub type Checked = Result<usize, String>;

/// Cases above this many elements are left to [`same_bits`].
const SMALL: usize = 20_000;

fn small(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| case.data.elements() <= SMALL)
}

fn size(outputs: &[Output]) -> usize {
    outputs.iter().map(Output::len).sum()
}

fn violation<B: Backend>(what: &str, backend: &B, case: &Case, found: (&str, usize, u64, u64)) -> String {
    let (output, index, want, got) = found;
    format!(
        "{what}: {} {} [{}] `{output}`[{index}]: {got:#x}, expected {want:#x} ({})",
        backend.name(),
        case.op(),
        case.label,
        case.catches
    )
}

/// Every output of every case has the bits of `reference`.
pub fn same_bits<B: Backend, R: Backend>(backend: &B, reference: &R, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in cases {
        let (want, got) = (launch::run(reference, case), launch::run(backend, case));
        if let Some(found) = first_difference(&want, &got) {
            return Err(violation("same_bits", backend, case, found));
        }
        if let Some((output, index)) = poisoned(&got) {
            return Err(violation(
                "never written",
                backend,
                case,
                (output, index, 0, got_bits(&got, output, index)),
            ));
        }
        compared += size(&got);
    }
    Ok(compared)
}

fn poisoned(outputs: &[Output]) -> Option<(&'static str, usize)> {
    outputs.iter().find_map(|o| (0..o.len()).find(|i| o.is_poison(*i)).map(|i| (o.name, i)))
}

fn got_bits(outputs: &[Output], name: &str, index: usize) -> u64 {
    outputs.iter().find(|o| o.name == name).map_or(0, |o| o.bits(index))
}

/// Row `row` of one launch against row `other_row` of another.
fn compare_row(
    (case, outputs, row): (&Case, &[Output], usize),
    (other, other_outputs, other_row): (&Case, &[Output], usize),
) -> Result<usize, (&'static str, usize, u64, u64)> {
    let mut compared = 0;
    for (a, b) in outputs.iter().zip(other_outputs) {
        let (from, to) = (a.range(&case.data.offsets, row), b.range(&other.data.offsets, other_row));
        for (i, j) in from.zip(to) {
            if a.bits(i) != b.bits(j) {
                return Err((a.name, i, a.bits(i), b.bits(j)));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

/// The rows `rows` in a batch of their own, behind `lead` elements, against the same rows in the whole batch.
fn same_rows<B: Backend>(
    what: &str,
    backend: &B,
    (case, whole): (&Case, &[Output]),
    rows: &[usize],
    lead: usize,
) -> Checked {
    let part = select(case, rows, lead);
    let outputs = launch::run(backend, &part);
    let first = usize::from(lead > 0);
    let mut compared = 0;
    for (position, &row) in rows.iter().enumerate() {
        compared += compare_row((case, whole, row), (&part, &outputs, position + first))
            .map_err(|found| violation(what, backend, case, found))?;
    }
    Ok(compared)
}

/// A lead row for this case and number; `fold_rows` has rows of one length and takes none.
fn lead(case: &Case, k: usize) -> usize {
    if matches!(case.params, Params::FoldRows) { 0 } else { k % 33 }
}

/// A row alone has the bits that it has in its batch, at every start offset 0..=32 by turns.
pub fn row_alone<B: Backend>(backend: &B, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases) {
        let whole = launch::run(backend, case);
        for row in 0..case.data.rows() {
            for lead in [0, lead(case, row + 1)] {
                compared += same_rows("row_alone", backend, (case, &whole), &[row], lead)?;
            }
        }
    }
    Ok(compared)
}

/// Rows reordered, and in sub-batches (shards and micro-batches with the same global denominators) of every kind.
pub fn repacked<B: Backend>(backend: &B, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for (k, case) in cases.iter().enumerate() {
        let whole = launch::run(backend, case);
        let rows: Vec<usize> = (0..case.data.rows()).collect();
        let mut shuffled = rows.clone();
        shuffled.sort_by_key(|row| Source::new(k as u64).bits(*row));
        let reversed: Vec<usize> = rows.iter().rev().copied().collect();
        let (even, odd): (Vec<usize>, Vec<usize>) = rows.iter().partition(|row| **row % 2 == 0);
        let (head, tail) = rows.split_at(rows.len() / 3);
        let twice: Vec<usize> = tail.iter().chain(tail).copied().collect();
        for (j, part) in [&shuffled, &reversed, &even, &odd, head, tail, &twice].into_iter().enumerate() {
            if !part.is_empty() {
                compared += same_rows("repacked", backend, (case, &whole), part, lead(case, 7 * k + j))?;
            }
        }
    }
    Ok(compared)
}

/// Other garbage (NaN, infinities, numbers) at masked elements changes no bit.
pub fn masked_garbage<B: Backend>(backend: &B, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases) {
        let Some(mask) = &case.data.mask else { continue };
        let masked = mask.iter().filter(|byte| **byte == 0).count();
        let whole = launch::run(backend, case);
        for shift in 1..7 {
            let mut other = case.clone();
            for values in &mut other.data.element {
                let masked = mask.iter().zip(values).enumerate().filter(|(_, (byte, _))| **byte == 0);
                masked.for_each(|(i, (_, value))| *value = garbage(i + shift));
            }
            if let Some(found) = first_difference(&whole, &launch::run(backend, &other)) {
                return Err(violation("masked_garbage", backend, case, found));
            }
        }
        compared += masked;
    }
    Ok(compared)
}

/// Whether loss per token and metrics are asked for changes no bit of the rest.
pub fn optional_outputs<B: Backend>(backend: &B, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in cases {
        let Params::Policy(policy) = case.params else { continue };
        let whole = launch::run(backend, case);
        for bits in 0..8 {
            let [loss, token_loss, metrics] = [1, 2, 4].map(|bit| bits & bit != 0);
            let params = Params::Policy(Policy { loss, token_loss, metrics, ..policy });
            for other in launch::run(backend, &Case { params, ..case.clone() }) {
                let Some(output) = whole.iter().find(|o| o.name == other.name) else { continue };
                if let Some(found) =
                    first_difference(std::slice::from_ref(output), std::slice::from_ref(&other))
                {
                    return Err(violation("optional_outputs", backend, case, found));
                }
                compared += other.len();
            }
        }
    }
    Ok(compared)
}

/// Every element of every output is written by exactly one row, its own, with the bits of the whole launch.
///
/// This is what `DisjointRows` promises and what running rows in parallel relies on.
pub fn rows_are_disjoint(cpu: &Cpu, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for case in small(cases) {
        let rows = case.data.rows();
        let every: Vec<Vec<Output>> =
            (0..rows).map(|row| launch::run(&OneRow { cpu: cpu.clone(), row }, case)).collect();
        let whole = launch::run(&AllRows(cpu), case);
        for (k, output) in whole.iter().enumerate() {
            for (row, alone) in every.iter().map(|outputs| &outputs[k]).enumerate() {
                let own = output.range(&case.data.offsets, row);
                for i in 0..output.len() {
                    let wrote = !alone.is_poison(i);
                    let right = wrote && alone.bits(i) == output.bits(i);
                    if if own.contains(&i) { !right } else { wrote } {
                        let found = (output.name, i, output.bits(i), alone.bits(i));
                        let backend = OneRow { cpu: cpu.clone(), row };
                        return Err(violation("rows_are_disjoint", &backend, case, found));
                    }
                    compared += 1;
                }
            }
        }
    }
    Ok(compared)
}

/// All rows on the calling thread.
struct AllRows<'a>(&'a Cpu);

impl Backend for AllRows<'_> {
    fn name(&self) -> String {
        self.0.level().to_string()
    }
    fn run<K: lockstep_core::op::DisjointRows>(&self, kernel: &K) {
        self.0.rows(kernel, 0..kernel.rows());
    }
}

/// A bad value of a live element raises the alarm of its row, and changes nothing of any other row.
pub fn faults_are_local<B: Backend>(backend: &B, cases: &[Case]) -> Checked {
    let mut compared = 0;
    for (k, case) in small(cases).enumerate() {
        let fault = |k: usize, slot: usize| match slot {
            _ if matches!(case.params, Params::Aggregate { .. }) => [f32::NAN, f32::INFINITY][k % 2],
            slot::WEIGHTS => [f32::NAN, f32::INFINITY, -1.0][k % 3],
            slot::ADVANTAGE => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][k % 3],
            _ => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5, f32::MIN_POSITIVE][k % 5],
        };
        let whole = launch::run(backend, case);
        for (j, slot) in slots(case).into_iter().enumerate() {
            let elements = case.data.elements().max(1);
            let start = Source::new(k as u64).below(j, elements);
            // The first live element from there on.
            let Some(i) =
                (start..elements).chain(0..start).find(|i| *i < case.data.elements() && case.data.live(*i))
            else {
                continue;
            };
            let mut other = case.clone();
            other.data.element[slot][i] = fault(k, slot);
            let outputs = launch::run(backend, &other);
            for row in 0..case.data.rows() {
                if case.data.span(row).contains(&i) {
                    let alarm = got_bits(&outputs, "alarm", row);
                    if alarm != 1 {
                        return Err(violation("no alarm", backend, case, ("alarm", row, 1, alarm)));
                    }
                } else {
                    compared += compare_row((case, &whole, row), (&other, &outputs, row))
                        .map_err(|found| violation("faults_are_local", backend, case, found))?;
                }
            }
        }
    }
    Ok(compared)
}

/// The element arrays that an op with an alarm reads.
fn slots(case: &Case) -> Vec<usize> {
    match case.params {
        Params::TokenRatio { .. } | Params::Kl { .. } => vec![slot::LOGP, slot::LOGP_OLD],
        Params::Aggregate { values: true } => vec![slot::FIRST],
        Params::Policy(policy) => {
            let optional = [
                (policy.kl.is_some(), slot::LOGP_REF),
                (policy.weights, slot::WEIGHTS),
                (policy.per_token, slot::ADVANTAGE),
            ];
            let given = optional.into_iter().filter(|(given, _)| *given).map(|(_, slot)| slot);
            [slot::LOGP, slot::LOGP_OLD].into_iter().chain(given).collect()
        }
        _ => Vec::new(),
    }
}
