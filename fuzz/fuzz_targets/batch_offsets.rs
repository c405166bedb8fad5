//! Fuzzes offsets and mask of a batch: they are accepted exactly when a naive re-check accepts them, and an
//! error names the first fault.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep::core::Error as Argument;
use lockstep::{Batch, Error};
use lockstep_fuzz::Draw;

/// Position of the first fault: a second implementation of the rules of `Batch::new`.
fn fault(offsets: &[u32], elements: Option<usize>) -> Option<usize> {
    if offsets.is_empty() || offsets[0] != 0 || offsets.len() == 1 {
        return Some(0);
    }
    for i in 1..offsets.len() {
        if offsets[i] < offsets[i - 1] {
            return Some(i);
        }
    }
    let last = offsets.len() - 1;
    elements.is_some_and(|n| n as u64 != u64::from(offsets[last])).then_some(last)
}

fn empty_row(offsets: &[u32]) -> Option<usize> {
    (1..offsets.len()).find(|i| offsets[*i] == offsets[i - 1]).map(|i| i - 1)
}

fn expected(
    seqlens: &[u32],
    groups: &[u32],
    mask: Option<&[u8]>,
    empty_rows: bool,
) -> Option<(&'static str, usize)> {
    if let Some(i) = fault(seqlens, None) {
        return Some(("cu_seqlens", i));
    }
    if mask.is_some_and(|mask| mask.len() as u64 != u64::from(seqlens[seqlens.len() - 1])) {
        return Some(("loss_mask", 0));
    }
    if let Some(i) = fault(groups, Some(seqlens.len() - 1)) {
        return Some(("cu_groups", i));
    }
    if empty_rows {
        return None;
    }
    let row = |name, offsets| empty_row(offsets).map(|i| (name, i));
    row("cu_seqlens", seqlens).or_else(|| row("cu_groups", groups))
}

fuzz_target!(|bytes: &[u8]| {
    let draw = &mut Draw::new(bytes);
    let empty_rows = draw.flag();
    let cu_seqlens: Vec<u32> = if draw.flag() {
        (0..draw.below(6)).map(|_| draw.u32()).collect()
    } else {
        // A walk of small, mostly upward steps, so that valid offsets are found often.
        let mut offset = 0i64;
        let walk = (0..draw.below(16)).map(|_| {
            offset = (offset + i64::from(draw.byte()) - 8).max(0);
            offset as u32
        });
        std::iter::once(0).chain(walk).collect()
    };
    let cu_groups: Vec<u32> = (0..draw.below(10)).map(|_| draw.byte().into()).collect();
    let tokens = cu_seqlens.last().map_or(0, |last| *last as usize);
    let mask: Option<Vec<u8>> = match draw.below(3) {
        0 => None,
        1 if tokens < 1 << 16 => Some(vec![1; tokens]),
        _ => Some(vec![draw.byte(); draw.byte().into()]),
    };

    let make = if empty_rows { Batch::with_empty_rows } else { Batch::new };
    let made = make(&cu_seqlens, &cu_groups, mask.as_deref());
    let want = expected(&cu_seqlens, &cu_groups, mask.as_deref(), empty_rows);
    let error = match (made, want) {
        (Ok(batch), None) => {
            assert_eq!(batch.sequences(), cu_seqlens.len() - 1);
            assert_eq!(batch.groups(), cu_groups.len() - 1);
            assert_eq!(batch.tokens(), tokens);
            for s in 0..batch.sequences() {
                let span = batch.cu_seqlens().span(s);
                assert_eq!((span.start, span.end), (cu_seqlens[s] as usize, cu_seqlens[s + 1] as usize));
            }
            return;
        }
        (Err(Error::Argument(error)), Some(want)) => (error, want),
        (made, want) => panic!("{made:?} where a naive check expects a fault at {want:?}"),
    };
    let (error, (name, index)) = error;
    let named = match error {
        Argument::Empty { argument, .. } | Argument::FirstOffset { argument, .. } => (argument, 0),
        Argument::Decreasing { argument, index, .. } => (argument, index),
        Argument::LastOffset { argument, index, .. } => (argument, index),
        // A length has no position.
        Argument::Length { argument, expected, got, .. } => {
            assert_eq!((expected, Some(got)), (tokens, mask.as_ref().map(Vec::len)), "{error}");
            (argument, 0)
        }
        Argument::EmptyRow { argument, index, .. } => (argument, index),
        other => panic!("not an error of offsets: {other}"),
    };
    assert_eq!(named, (name, index), "{error}");
    let message = error.to_string();
    assert!(message.contains(&format!("`{name}`")), "{message}");
});
