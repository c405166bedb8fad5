//! Memory, streams, events and checks; what a launch does and does not do.

use lockstep_core::Error as Argument;
use lockstep_core::aggregate::{Aggregate, RowScan};
use lockstep_core::check::{Domain, rows};
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::team::Direction;
use lockstep_gpu::{Buffer, Error, Gpu, Parameters, Platform, Stream};
use lockstep_gpu_testing::{HostDriver, Live, Settings};

fn open(platform: &Platform<HostDriver>) -> (Gpu<HostDriver>, Stream<HostDriver>) {
    let gpu = platform.open(0).unwrap();
    let stream = gpu.stream().unwrap();
    (gpu, stream)
}

fn read<T: lockstep_gpu::Plain + Default>(
    buffer: &Buffer<T, HostDriver>,
    stream: &Stream<HostDriver>,
) -> Vec<T> {
    let mut values = vec![T::default(); buffer.len()];
    buffer.read(stream, &mut values).unwrap();
    values
}

#[test]
fn what_goes_up_comes_down() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let (gpu, stream) = open(&platform);
    let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let mut buffer = gpu.upload(&stream, &values).unwrap();
    assert_eq!(read(&buffer, &stream), values);
    buffer.fill(&stream, 0).unwrap();
    assert_eq!(read(&buffer, &stream), vec![0.0; 1000]);
    let other = gpu.upload(&stream, &values).unwrap();
    buffer.write_from(&stream, &other).unwrap();
    assert_eq!(read(&buffer, &stream), values);
    let empty = gpu.upload::<u64>(&stream, &[]).unwrap();
    assert!(empty.is_empty() && read(&empty, &stream).is_empty());
    assert_eq!(&gpu.pinned::<u32>(3).unwrap()[..], [0; 3]);
    assert!(gpu.pinned::<u32>(0).unwrap().is_empty());
    drop((buffer, other, empty, gpu, stream));
    assert_eq!(platform.driver().live(), Live::default());
}

/// The zero-copy promise: after a launch nothing has been allocated, copied or waited for, and nothing has
/// run yet.
#[test]
fn a_launch_only_queues() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let (gpu, stream) = open(&platform);
    let gpu = gpu.with_pointer_checks(false);
    let offsets = gpu.upload(&stream, &[0u32, 2, 3]).unwrap();
    let values = gpu.upload(&stream, &[1.0f32, 2.0, 4.0]).unwrap();
    let mut scanned = gpu.upload(&stream, &[9.0f32; 3]).unwrap();
    // SAFETY: `stream` outlives it.
    let callers = unsafe { gpu.stream_from_raw(stream.raw()) }.unwrap();

    let others = ["alloc", "alloc_pinned", "free", "copy", "fill", "synchronize", "create_stream", "owner"];
    let calls = || others.map(|method| platform.driver().calls(method));
    let before = calls();
    // SAFETY: buffers of this device, long enough, ours until the stream is waited for.
    unsafe {
        let kernel = RowScan {
            cu_seqlens: Offsets::unchecked(offsets.view()),
            loss_mask: Mask::all(),
            values: values.view(),
            direction: Direction::Suffix,
            scanned: scanned.view_mut(),
        };
        gpu.launch(&callers, &kernel).unwrap();
    }
    assert_eq!(calls(), before);
    // SAFETY: the host driver's memory is the host's.
    let now = unsafe { std::slice::from_raw_parts(scanned.as_ptr(), 3) }.to_vec();
    assert_eq!(now, [9.0; 3], "it ran before anybody waited");
    callers.synchronize().unwrap();
    assert_eq!(read(&scanned, &stream), [3.0, 2.0, 4.0]);
    drop(callers);
    stream.synchronize().unwrap(); // The caller's stream is still there.
}

/// The layout that docs/gpu.md documents for programs not written in Rust.
#[test]
fn parameters_are_laid_out_as_documented() {
    let (offsets, mask, values) = ([0, 2, 5], [1u8; 5], [0.5f32; 5]);
    let (mut sums, mut tokens, mut alarm) = ([0.0f64; 2], [0u32; 2], [0u32; 2]);
    let (sum, token, raised) = (sums.as_ptr().addr(), tokens.as_ptr().addr(), alarm.as_ptr().addr());
    let mut kernel = Aggregate {
        cu_seqlens: Offsets::new("cu_seqlens", &offsets, 5, "tokens").unwrap(),
        loss_mask: Mask::new(Some(&mask)),
        values: Some(In::new(&values)),
        row_sum: Out::new(&mut sums),
        row_tokens: Out::new(&mut tokens),
        row_alarm: Out::new(&mut alarm),
    };
    let raw = |kernel: &Aggregate<'_>| {
        let (pointers, words) = Parameters::of(kernel).raw();
        (pointers.map(|p| p.addr())[..7].to_vec(), words[..9].to_vec())
    };
    let (offset, masked, value) = (offsets.as_ptr().addr(), mask.as_ptr().addr(), values.as_ptr().addr());
    let pointers = |masked, value| vec![offset, masked, value, sum, token, raised, 0];
    assert_eq!(raw(&kernel), (pointers(masked, value), vec![3, 1, 5, 1, 5, 2, 2, 2, 0]));
    (kernel.loss_mask, kernel.values) = (Mask::all(), None);
    assert_eq!(raw(&kernel), (pointers(0, 0), vec![3, 0, 0, 0, 0, 2, 2, 2, 0]));
}

#[test]
fn no_rows_no_launch() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let (gpu, stream) = open(&platform);
    let kernel = |scanned| RowScan {
        // SAFETY: no offsets, so there is nothing to divide.
        cu_seqlens: unsafe { Offsets::unchecked(In::new(&[])) },
        loss_mask: Mask::all(),
        values: In::new(&[]),
        direction: Direction::Prefix,
        scanned,
    };
    gpu.run(&kernel(Out::new(&mut []))).unwrap();
    // SAFETY: no row touches anything.
    unsafe { gpu.launch(&stream, &kernel(Out::new(&mut []))).unwrap() };
    assert_eq!(platform.driver().calls("launch"), 0);
}

#[test]
fn one_stream_waits_for_another_through_an_event() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let (gpu, first) = open(&platform);
    let second = gpu.stream().unwrap();
    let mut pinned = gpu.pinned::<u32>(4).unwrap();
    pinned.copy_from_slice(&[1, 2, 3, 4]);
    let mut buffer = gpu.upload(&first, &[0u32; 4]).unwrap();
    let (start, ready) = (gpu.event().unwrap(), gpu.event().unwrap());
    assert!(ready.since(&start).is_err(), "neither has happened");
    first.record(&start).unwrap();
    // SAFETY: both are left alone until the streams have been waited for.
    unsafe { buffer.write_async(&first, &pinned).unwrap() };
    first.record(&ready).unwrap();
    second.wait(&ready).unwrap();
    assert_eq!(read(&buffer, &second), [1, 2, 3, 4]);
    ready.synchronize().unwrap();
    assert!(ready.since(&start).unwrap().as_secs() < 60);
}

#[test]
fn a_device_is_opened_once() {
    let platform = Platform::new(HostDriver::new(Settings::warps(2)));
    let (a, b, other) = (platform.open(0).unwrap(), platform.open(0).unwrap(), platform.open(1).unwrap());
    assert_eq!(platform.driver().calls("load"), 2);
    assert_eq!(a.raw_context(), b.raw_context());
    assert_ne!(a.raw_context(), other.raw_context());
    drop((a, b));
    platform.open(0).unwrap();
    assert_eq!(platform.driver().calls("load"), 3, "nobody had it open");
}

/// Returns what `check_offsets` says about offsets of 9000 elements with one fault.
fn checked(offsets: &[u32], elements: usize) -> Result<(), Error> {
    let platform = Platform::new(HostDriver::new(Settings::waves(1)));
    let (gpu, stream) = open(&platform);
    let on_device = gpu.upload(&stream, offsets).unwrap();
    let mut scratch = gpu.alloc::<u32>(rows(offsets.len())).unwrap();
    let names = ("cu_seqlens", "tokens");
    // SAFETY: both are buffers of this device.
    unsafe { gpu.check_offsets(&stream, names, on_device.view(), elements, scratch.view_mut()) }
}

#[test]
fn checked_offsets_say_what_the_host_would_say() {
    let good: Vec<u32> = (0..9000).map(|i| i / 2 * 3).collect();
    let last = good[8999] as usize;
    let with = |i: usize, offset| {
        let mut offsets = good.clone();
        offsets[i] = offset;
        offsets
    };
    let cases = [
        (good.clone(), last),
        (good.clone(), last + 1),
        (with(0, 1), last),
        (with(4096, 0), last),
        (with(8999, 0), last),
        (with(8999, 4_000_000_000), last),
        (with(5000, 4_000_000_000), last),
        (vec![0, 7], 7),
        (vec![3, 2], 2),
        (vec![0], 0),
        (vec![], 0),
    ];
    for (offsets, elements) in cases {
        let want = lockstep_core::ragged::check_offsets("cu_seqlens", &offsets, elements, "tokens");
        let want = match want {
            // The host checks the last offset after all others; the device reports the first fault.
            Err(Argument::Empty { argument, .. }) => {
                Err(Argument::Empty { argument, expected: "at least one row: [0, n]" })
            }
            other => other,
        };
        assert_eq!(checked(&offsets, elements), want.map_err(Error::Argument));
    }
}

#[test]
fn checked_values_name_the_first_that_is_wrong() {
    let platform = Platform::new(HostDriver::new(Settings::warps(1)));
    let (gpu, stream) = open(&platform);
    let (mut values, mut mask) = (vec![-1.0f32; 9000], vec![1u8; 9000]);
    (values[5000], values[8000]) = (0.5, f32::NAN);
    (values[70], mask[70]) = (f32::NAN, 0);
    let on_device = gpu.upload(&stream, &values).unwrap();
    let mask = gpu.upload(&stream, &mask).unwrap();
    let mut scratch = gpu.alloc::<u32>(rows(9000)).unwrap();
    let mut check = |mask, domain| {
        // SAFETY: all are buffers of this device.
        unsafe { gpu.check_values(&stream, "logp", on_device.view(), mask, domain, scratch.view_mut()) }
    };
    let wrong = |index, expected, got| {
        Err(Error::Argument(Argument::Value { argument: "logp", index: Some(index), expected, got }))
    };
    // SAFETY: for a launch on this device.
    let masked = Mask::view(Some(unsafe { mask.view() }));
    let domain = Domain::LogProbability;
    assert_eq!(check(masked, domain), wrong(5000, domain.expected(), 0.5));
    assert_eq!(check(masked, Domain::Reward), Ok(()));
    let found = check(Mask::all(), Domain::Finite).unwrap_err().to_string();
    assert_eq!(found, "`logp`[70] is NaN: expected a finite number");
    let short = In::new(&[1u8; 3]);
    let length = check(Mask::view(Some(short)), domain).unwrap_err().to_string();
    assert_eq!(length, "`mask` has 3 entries: expected 9000 (logp)");

    let mut little = gpu.alloc::<u32>(rows(9000) - 1).unwrap();
    // SAFETY: refused before anything is launched.
    let error = unsafe {
        gpu.check_values(&stream, "logp", on_device.view(), Mask::all(), domain, little.view_mut())
    };
    assert!(matches!(
        error,
        Err(Error::Argument(Argument::Length { argument: "scratch", expected: 3, got: 2, .. }))
    ));
}
