//! Every failure has its own error value, leaves the device usable or reports that it is not, and leaks
//! nothing.

use lockstep_core::aggregate::RowScan;
use lockstep_core::op::OPS;
use lockstep_core::ragged::{In, Mask, Offsets, Out};
use lockstep_core::team::Direction;
use lockstep_gpu::{Error, Fault, Gpu, Kind, Owner, Platform, Version};
use lockstep_gpu_testing::{HostDriver, Live, Settings};

type Host = Platform<HostDriver>;

fn host(settings: Settings) -> Host {
    Platform::new(HostDriver::new(settings))
}

const OFFSETS: [u32; 3] = [0, 2, 5];
const VALUES: [f32; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];
const SCANNED: [f32; 5] = [1.0, 3.0, 3.0, 7.0, 12.0];

fn scan<'a>(offsets: Offsets<'a>, values: In<'a, f32>, scanned: Out<'a, f32>) -> RowScan<'a> {
    RowScan { cu_seqlens: offsets, loss_mask: Mask::all(), values, direction: Direction::Prefix, scanned }
}

/// A staged run; errors if it fails, panics if its result is wrong.
fn run(gpu: &Gpu<HostDriver>) -> Result<(), Error> {
    let mut scanned = [0.0; 5];
    let offsets = Offsets::new("offsets", &OFFSETS, 5, "values").unwrap();
    gpu.run(&scan(offsets, In::new(&VALUES), Out::new(&mut scanned)))?;
    assert_eq!(scanned, SCANNED);
    Ok(())
}

/// Everything that a program does with a device; panics if a result is wrong.
fn everything(platform: &Host) -> Result<(), Error> {
    let gpu = platform.open(0)?.with_pointer_checks(true);
    run(&gpu)?;
    let stream = gpu.stream()?;
    // SAFETY: `stream` outlives it.
    let same = unsafe { gpu.stream_from_raw(stream.raw())? };
    let (before, after) = (gpu.event()?, gpu.event()?);
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
            stream.wait(&after)?;
            copy.write_from(&stream, &scanned)?;
            copy.read_async(&stream, &mut pinned)?;
        }
        after.synchronize()?;
        stream.synchronize()
    })();
    // Work queued before a fault may still use the pinned memory.
    result.inspect_err(|_| _ = stream.synchronize())?;
    assert_eq!(&pinned[..], SCANNED);
    after.since(&before)?;
    gpu.memory()?;
    gpu.trim()
}

#[test]
fn nothing_fails_without_a_fault() {
    let platform = host(Settings::warps(1));
    everything(&platform).unwrap();
    assert_eq!(platform.driver().live(), Live::default());
}

/// Methods of `Driver` that can fail.
const METHODS: [&str; 25] = [
    "version",
    "count",
    "info",
    "attach",
    "enter",
    "load",
    "function",
    "resident_blocks",
    "memory",
    "alloc",
    "free",
    "alloc_pinned",
    "free_pinned",
    "copy",
    "fill",
    "owner",
    "create_stream",
    "synchronize",
    "create_event",
    "record",
    "wait",
    "synchronize_event",
    "elapsed",
    "launch",
    "destroy_stream",
];

/// Every call of the driver fails once, in every way.
#[test]
fn every_call_may_fail() {
    let platform = host(Settings::warps(1));
    everything(&platform).unwrap();
    let calls = METHODS.map(|method| platform.driver().calls(method));
    let mut failed = 0;
    for (method, calls) in METHODS.into_iter().zip(calls) {
        assert!(calls > 0, "`{method}` is not called");
        for spared in 0..calls {
            for (code, kind) in [(1, Kind::Call), (2, Kind::OutOfMemory), (700, Kind::Sticky)] {
                let platform = host(Settings::warps(1));
                platform.driver().inject(method, spared, code, kind);
                let what = || format!("{method}, after {spared}, {kind:?}");
                let result = everything(&platform);
                assert_eq!(HostDriver::entered(), 0, "{}: contexts left entered", what());
                if let Err(error) = &result {
                    failed += 1;
                    let fault = error.fault().map(|fault| fault.code);
                    let told = error.to_string().contains(&format!("HOST_ERROR_{code} ({code})"));
                    assert!(told && fault.is_none_or(|found| found == code), "{}: {error}", what());
                    // A sticky fault before a context exists loses nothing.
                    assert!(error.usable() || kind == Kind::Sticky, "{}: {error:?}", what());
                }
                // What could not be freed, or was freed although the driver said otherwise, is the driver's.
                if !["free", "free_pinned", "enter", "destroy_stream"].contains(&method) {
                    assert_eq!(platform.driver().live(), Live::default(), "{}", what());
                }
                everything(&platform).unwrap_or_else(|error| panic!("{}: then {error}", what()));
            }
        }
    }
    assert!(failed > 200, "{failed}");
}

#[test]
fn no_device() {
    let platform = host(Settings::warps(0));
    let Err(Error::NoDevice { api, fault }) = platform.open(0) else { panic!("there is none") };
    assert_eq!((api, fault.kind), ("HOST", Kind::NoDevice));
    assert!(!platform.report().usable());
    assert_eq!(platform.report().missing.as_ref(), platform.open(0).err().as_ref());

    let platform = host(Settings::warps(1));
    platform.driver().inject("count", 0, 100, Kind::NoDevice);
    let error = platform.open(0).unwrap_err();
    let said = "the HOST driver reports no device: count returned HOST_ERROR_100 (100)";
    assert_eq!(error.to_string(), said);
    assert!(error.usable());
}

#[test]
fn no_such_device() {
    let platform = host(Settings::warps(2));
    assert!(platform.open(1).is_ok());
    let error = platform.open(2).unwrap_err();
    assert_eq!(error, Error::NoSuchDevice { api: "HOST", ordinal: 2, count: 2 });
}

#[test]
fn a_driver_that_is_too_old() {
    let settings = Settings { version: Version::new(1, 1), ..Settings::warps(1) };
    let platform = host(settings);
    let (found, needed) = (Version::new(1, 1), Version::new(1, 2));
    let old = Error::DriverTooOld { api: "HOST", found, needed };
    assert_eq!(platform.open(0).unwrap_err(), old);
    assert_eq!(platform.report().devices[0].unusable, Some(old));
    assert_eq!(platform.driver().live(), Live::default());
}

#[test]
fn a_device_that_the_kernels_are_not_for() {
    let mut settings = Settings::warps(2);
    settings.devices[1].arch = "host_0".to_owned();
    let platform = host(settings);
    let error = platform.open(1).unwrap_err();
    assert_eq!(error.to_string(), "device 1 (host 1) is host_0: the kernels need host_1");
    let report = platform.report();
    assert_eq!(report.devices[1].unusable, Some(error));
    assert!(report.usable(), "device 0 is");
    let text = report.to_string();
    assert_eq!(
        text,
        "HOST: this process, version 1.2\n  0: host 0, host_1, 1.0 GiB, 3 units\n  1: host 1, host_0, 1.0 \
         GiB, 3 units: not usable: device 1 (host 1) is host_0: the kernels need host_1"
    );
}

#[test]
fn kernels_that_the_driver_refuses() {
    let platform = host(Settings::warps(1));
    platform.driver().inject("load", 0, 218, Kind::Call);
    let Err(Error::Module { fault, log }) = platform.open(0) else { panic!("it was refused") };
    assert_eq!((fault.code, &log[..]), (218, "line 1: as you asked"));
    platform.driver().inject("function", 0, 500, Kind::Call);
    let Err(Error::MissingEntry { entry, because }) = platform.open(0) else { panic!("it lacks one") };
    assert_eq!((&entry[..], &because[..]), ("check_offsets", "function returned HOST_ERROR_500 (500)"));
    assert_eq!(platform.driver().live(), Live::default());
}

/// The first launch of an op loads its kernels and no others; a failure is the call's and leaves the device.
#[test]
fn kernels_are_loaded_when_they_are_first_used() {
    let platform = host(Settings::warps(1));
    let gpu = platform.open(0).unwrap();
    let loaded = || platform.driver().calls("load");
    assert_eq!(loaded(), 1, "to find out whether the driver reads them");
    platform.driver().inject("load", 0, 218, Kind::Call);
    assert!(matches!(run(&gpu), Err(Error::Module { .. })));
    platform.driver().inject("function", 0, 500, Kind::Call);
    let error = run(&gpu).unwrap_err();
    assert!(matches!(&error, Error::MissingEntry { entry, .. } if entry == "row_scan"), "{error}");
    assert!(gpu.lost().is_none());
    let before = loaded();
    run(&gpu).unwrap();
    run(&gpu).unwrap();
    assert_eq!(loaded(), before + 1);
    // One entry point for single warps and one for blocks of each.
    gpu.load(&["row_scan", "gae", "gae"]).unwrap();
    assert_eq!(loaded(), before + 4);
    let unknown = gpu.load(&["gae", "no_such_op"]).unwrap_err().to_string();
    assert!(unknown.contains("no_such_op"), "{unknown}");
    gpu.load(&OPS.iter().map(|op| op.name).collect::<Vec<_>>()).unwrap();
    let functions = OPS.iter().map(|op| op.entries.len() + op.blocks.len()).sum::<usize>();
    assert!(platform.driver().calls("function") > functions);
    drop(gpu);
    assert_eq!(platform.driver().live(), Live::default());
}

#[test]
fn out_of_memory() {
    let platform = host(Settings { memory: 1 << 20, ..Settings::warps(1) });
    let gpu = platform.open(0).unwrap();
    let first = gpu.alloc::<u8>(1 << 19).unwrap();
    let Err(error) = gpu.alloc::<u32>(1 << 18) else { panic!("there is no room") };
    let Error::OutOfMemory { bytes, free, total, .. } = error else { panic!("{error}") };
    assert_eq!((bytes, free, total), (1 << 20, 1 << 19, 1 << 20));
    assert!(matches!(gpu.alloc::<u64>(usize::MAX), Err(Error::OutOfMemory { .. })));
    assert!(matches!(run(&gpu), Err(Error::OutOfMemory { .. })), "an arena does not fit either");
    drop(first);
    gpu.alloc::<u8>(1 << 20).unwrap();
    drop(gpu);
    assert_eq!(platform.driver().live(), Live::default());
}

#[test]
fn a_launch_that_fails() {
    let platform = host(Settings::warps(1));
    let gpu = platform.open(0).unwrap();
    platform.driver().inject("launch", 0, 701, Kind::Call);
    let error = run(&gpu).unwrap_err();
    assert_eq!(error.to_string(), "`row_scan` was not launched: launch returned HOST_ERROR_701 (701)");
    assert!(error.usable() && gpu.lost().is_none());
    run(&gpu).unwrap();
}

/// Wild offsets lose the context, as on a GPU, and the next call fails without asking the driver.
#[test]
fn a_kernel_that_takes_the_context() {
    let platform = host(Settings::warps(1));
    let gpu = platform.open(0).unwrap();
    let (stream, wild) = (gpu.stream().unwrap(), [0, 500, 5]);
    let mut scanned = [7.0; 5];
    // SAFETY: none, and that is the point; the host driver checks what a device does not.
    let offsets = unsafe { Offsets::unchecked(In::new(&wild)) };
    let error = gpu.run(&scan(offsets, In::new(&VALUES), Out::new(&mut scanned))).unwrap_err();
    assert!(matches!(&error, Error::Sticky { fault: Fault { code: 700, .. } }), "{error}");
    assert!(!error.usable());
    assert_eq!(scanned, [7.0; 5], "nothing came back");

    let calls = platform.driver().calls("enter");
    assert_eq!(gpu.lost().as_ref(), Some(&error));
    assert_eq!(run(&gpu).as_ref(), Err(&error));
    assert_eq!(gpu.alloc::<f32>(1).err().as_ref(), Some(&error));
    assert_eq!(stream.synchronize().as_ref(), Err(&error));
    assert_eq!(platform.driver().calls("enter"), calls, "the driver was asked again");

    // A device whose context is lost is not handed out again, and leaves nothing behind.
    drop((gpu, stream));
    assert_eq!(platform.driver().live(), Live::default());
    run(&platform.open(0).unwrap()).unwrap();
}

#[test]
fn pointers_of_others() {
    let platform = host(Settings::warps(2));
    let [gpu, other] = [0, 1].map(|ordinal| platform.open(ordinal).unwrap().with_pointer_checks(true));
    let (stream, there) = (gpu.stream().unwrap(), other.stream().unwrap());
    let offsets = gpu.upload(&stream, &OFFSETS).unwrap();
    let (values, foreign) = (gpu.upload(&stream, &VALUES).unwrap(), other.upload(&there, &VALUES).unwrap());
    let mut scanned = gpu.alloc::<f32>(5).unwrap();
    let launch = |values: In<'_, f32>, scanned: Out<'_, f32>| {
        // SAFETY: refused before anything is launched.
        unsafe { gpu.launch(&stream, &scan(Offsets::unchecked(offsets.view()), values, scanned)) }
    };

    // Arrays in the order of the fields: offsets, mask, values, scanned.
    // SAFETY: for a launch on the device.
    let error = unsafe { launch(foreign.view(), scanned.view_mut()) }.unwrap_err();
    let Error::ForeignPointer { op, argument, address, owner } = &error else { panic!("{error}") };
    assert_eq!((*op, *argument, *address), ("row_scan", 2, foreign.as_ptr().addr()));
    assert!(matches!(owner, Owner::Device { ordinal: 1, .. }));

    let mut on_host = [0.0; 5];
    // SAFETY: for a launch on the device.
    let error = launch(unsafe { values.view() }, Out::new(&mut on_host)).unwrap_err();
    let Error::ForeignPointer { argument: 3, owner: Owner::Unknown(fault), .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(fault.to_string(), "owner returned HOST_ERROR_1 (1)");
    assert_eq!(platform.driver().calls("launch"), 0, "something was launched");
    assert!(error.usable());
    // SAFETY: for a launch on the device.
    unsafe { launch(values.view(), scanned.view_mut()) }.unwrap();

    // Every device can use pinned memory.
    let mut pinned = other.pinned::<f32>(5).unwrap();
    pinned.copy_from_slice(&VALUES);
    // SAFETY: for a launch on the device.
    launch(In::new(&pinned), unsafe { scanned.view_mut() }).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn streams_of_others() {
    let platform = host(Settings::warps(2));
    let [gpu, other] = [0, 1].map(|ordinal| platform.open(ordinal).unwrap());
    let (stream, there) = (gpu.stream().unwrap(), other.stream().unwrap());
    // SAFETY: both exist.
    let (ours, theirs) = unsafe { (gpu.stream_from_raw(stream.raw()), gpu.stream_from_raw(there.raw())) };
    assert!(ours.is_ok());
    assert_eq!(theirs.unwrap_err(), Error::ForeignStream { stream: there.raw().addr() });
    assert!(matches!(gpu.upload(&there, &VALUES), Err(Error::ForeignStream { .. })));
    assert!(matches!(there.record(&gpu.event().unwrap()), Err(Error::ForeignStream { .. })));
}
