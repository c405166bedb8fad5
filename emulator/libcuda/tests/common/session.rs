//! Everything that a program does with a device.

use lockstep_core::aggregate::RowScan;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::team::Direction;
use lockstep_gpu::{Driver, Error, Gpu};

pub(crate) const OFFSETS: [u32; 3] = [0, 2, 5];
pub(crate) const VALUES: [f32; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];
pub(crate) const SCANNED: [f32; 5] = [1.0, 3.0, 3.0, 7.0, 12.0];

pub(crate) fn scan<'a>(offsets: Offsets<'a>, values: In<'a, f32>, scanned: Out<'a, f32>) -> RowScan<'a> {
    RowScan { cu_seqlens: offsets, loss_mask: Mask::all(), values, direction: Direction::Prefix, scanned }
}

/// A staged run; panics if its result is wrong.
pub(crate) fn run<D: Driver>(gpu: &Gpu<D>) -> Result<(), Error> {
    let mut scanned = [0.0; 5];
    let offsets = Offsets::new("offsets", &OFFSETS, 5, "values").unwrap();
    gpu.run(&scan(offsets, In::new(&VALUES), Out::new(&mut scanned)))?;
    assert_eq!(scanned, SCANNED);
    Ok(())
}

/// A device's whole life; panics if a result is wrong.
pub(crate) fn everything<D: Driver>(opened: Result<Gpu<D>, Error>) -> Result<(), Error> {
    let gpu = opened?.with_pointer_checks(true);
    run(&gpu)?;
    let stream = gpu.stream()?;
    // SAFETY: `stream` outlives it.
    let same = unsafe { gpu.stream_from_raw(stream.raw())? };
    let (before, after) = (gpu.event()?, gpu.event()?);
    let second = gpu.stream()?;
    let offsets = gpu.upload(&stream, &OFFSETS)?;
    let (mut values, mut scanned) = (gpu.alloc::<f32>(5)?, gpu.alloc::<f32>(5)?);
    let (mut copy, mut scratch) = (gpu.alloc::<f32>(5)?, gpu.alloc::<u32>(1)?);
    let mut pinned = gpu.pinned::<f32>(5)?;
    pinned.copy_from_slice(&VALUES);
    let result = (|| {
        scanned.fill(&stream, 0)?;
        // SAFETY: buffers of this device with the lengths that the op needs, ours until the stream has been
        // waited for, here or below.
        unsafe {
            values.write_async(&stream, &pinned)?;
            gpu.check_offsets(&stream, ("offsets", "values"), offsets.view(), 5, scratch.view_mut())?;
            stream.record(&before)?;
            let kernel = scan(Offsets::unchecked(offsets.view()), values.view(), scanned.view_mut());
            gpu.launch(&same, &kernel)?;
            stream.record(&after)?;
            second.wait(&after)?;
            copy.write_from(&second, &scanned)?;
            copy.read_async(&second, &mut pinned)?;
        }
        after.synchronize()?;
        second.synchronize()
    })();
    // Work queued before a fault may still use the pinned memory.
    result.inspect_err(|_| {
        _ = stream.synchronize();
        _ = second.synchronize();
    })?;
    assert_eq!(&pinned[..], SCANNED);
    after.since(&before)?;
    gpu.memory()?;
    gpu.trim()
}
