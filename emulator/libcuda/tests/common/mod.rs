//! Requirements for both backends on their emulated libraries: every failure is an error value, nothing
//! leaks, nothing panics.

pub(crate) mod session;
mod sweep;

use lockstep_emulated_abi::testing::{Controls, Live};
use lockstep_gpu::{Driver, Error, Gpu, Owner, Report, Version};
use session::{OFFSETS, VALUES, everything, run, scan};
pub(crate) use sweep::{every_call_may_fail, every_function_may_fail_for_good};

use lockstep_core::ragged::{In, Offsets, Out};

/// A backend, with its API's names.
pub(crate) struct Backend<D: Driver> {
    /// The backend's `open`.
    pub(crate) open: fn(usize) -> Result<Gpu<D>, Error>,
    /// The backend's `devices`.
    pub(crate) devices: fn() -> Report,
    /// Its table of functions, as source.
    pub(crate) symbols: &'static str,
    /// Functions that a session without failures does not need.
    pub(crate) unused: &'static [&'static str],
    /// Functions that release: what they fail to release stays with the driver.
    pub(crate) givers: &'static [&'static str],
    /// Name of the API and of device 0.
    pub(crate) names: (&'static str, &'static str),
    /// Prefix of its functions and of the names of codes.
    pub(crate) prefixes: (&'static str, &'static str),
    /// Its function that launches a kernel.
    pub(crate) launch: &'static str,
    /// Its function that allocates device memory.
    pub(crate) alloc: &'static str,
    /// Code and name of the error if there is no device.
    pub(crate) no_device: (i32, &'static str),
    /// A version that is too old, and the one that is needed.
    pub(crate) too_old: (Version, Version),
    /// An architecture that the kernels are not for.
    pub(crate) other_arch: &'static str,
    /// Code and name of the error for kernels that are refused, and its log; empty if the API has no log.
    pub(crate) refused: (i32, &'static str, &'static str),
    /// What stands for the name of a code that has none.
    pub(crate) nameless: &'static str,
}

/// Defines the tests that both backends pass, each in its own process and with these settings.
macro_rules! of_both {
    ($library:ident, $backend:ident) => {
        $crate::common::of_both! { $library, $backend;
            a_clean_session("");
            every_call_may_fail("");
            every_function_may_fail_for_good("");
            no_device("devices=0");
            no_such_device("devices=2");
            a_driver_that_is_too_old(&format!("version={}", $backend.too_old.0));
            a_device_that_the_kernels_are_not_for(&format!("arch={}", $backend.other_arch));
            kernels_that_the_driver_refuses("refuse=ptxas fatal: line 12: as you asked");
            an_entry_point_that_is_missing("lacks=check_offsets");
            memory_that_runs_out("memory=4M");
            a_launch_that_fails("");
            a_kernel_that_takes_the_device("");
            pointers_of_others("devices=2");
            streams_of_others("devices=2");
            arguments_that_only_the_device_can_see("");
            a_code_without_a_name("");
            several_threads_at_once("");
        }
    };
    ($library:ident, $backend:ident; $($test:ident($settings:expr);)*) => {$(
        #[test]
        fn $test() {
            $library.run(stringify!($test), $settings, |controls| $crate::common::$test(&$backend, controls));
        }
    )*};
}
pub(crate) use of_both;

impl<D: Driver> Backend<D> {
    fn open(&self, ordinal: usize) -> Result<Gpu<D>, Error> {
        (self.open)(ordinal)
    }

    /// Returns the error of opening device 0, which the report must also contain, and which leaves nothing
    /// behind.
    fn refused(&self, controls: &Controls) -> Error {
        let error = self.open(0).expect_err("it was to be refused");
        assert!(error.usable(), "{error}");
        nothing_left(controls, "refused");
        error
    }
}

/// Nothing is live, nothing was left in a context, and nothing worked only by luck.
pub(crate) fn nothing_left(controls: &Controls, what: &str) {
    assert_eq!(controls.live(), Live::default(), "{what}: live");
    assert_eq!(controls.leaked(), Live::default(), "{what}: left in a context");
    assert_eq!(controls.complaints(), "", "{what}");
}

/// A session without failures, and what the library counted during it.
pub(crate) fn a_clean_session<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    everything((backend.open)(0)).unwrap();
    nothing_left(controls, "clean");
    let counts = controls.counts();
    let scans = counts.iter().find(|ran| ran.entry == "row_scan").expect("it ran");
    assert_eq!(scans.counts[0], 2, "a staged run and a launch");
    assert!(scans.counts[1] > 0, "no instruction was counted");
    // One warp takes part in one of the launches.
    assert!((1..scans.counts[1]).contains(&scans.longest), "{scans:?}");
    assert_eq!(controls.fault(), "");
    let report = (backend.devices)();
    assert!(report.usable());
    assert!(report.to_string().contains("emulator"), "{report}");
}

pub(crate) fn no_device<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let (code, name) = backend.no_device;
    let error = backend.refused(controls);
    let Error::NoDevice { api, fault } = &error else { panic!("{error}") };
    assert_eq!((*api, fault.code, &fault.name[..]), (backend.names.0, code, name));
    let report = (backend.devices)();
    assert_eq!(report.missing.as_ref(), Some(&error));
    assert!(report.library.is_some() && !report.usable());
}

pub(crate) fn no_such_device<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    assert!(backend.open(1).is_ok());
    let error = backend.open(2).unwrap_err();
    assert_eq!(error, Error::NoSuchDevice { api: backend.names.0, ordinal: 2, count: 2 });
    let far = backend.open(usize::MAX).unwrap_err();
    assert!(far.usable() && matches!(far, Error::NoSuchDevice { count: 2, .. }), "{far}");
    nothing_left(controls, "no such device");
}

pub(crate) fn a_driver_that_is_too_old<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let (found, needed) = backend.too_old;
    let error = backend.refused(controls);
    assert_eq!(error, Error::DriverTooOld { api: backend.names.0, found, needed });
    assert_eq!((backend.devices)().devices[0].unusable.as_ref(), Some(&error));
}

pub(crate) fn a_device_that_the_kernels_are_not_for<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    unsupported(backend, controls, backend.other_arch);
}

pub(crate) fn unsupported<D: Driver>(backend: &Backend<D>, controls: &Controls, arch: &str) {
    let error = backend.refused(controls);
    let Error::Unsupported { ordinal: 0, device, found, .. } = &error else { panic!("{error}") };
    assert_eq!((&device[..], &found[..]), (backend.names.1, arch));
    assert!(error.to_string().contains(&format!("is {arch}: the kernels need")), "{error}");
}

pub(crate) fn kernels_that_the_driver_refuses<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let (code, name, log) = backend.refused;
    let error = backend.refused(controls);
    let Error::Module { fault, log: said } = &error else { panic!("{error}") };
    assert_eq!((fault.code, &fault.name[..], &said[..]), (code, name, log));
    assert!(error.to_string().starts_with("the driver refused the kernels: "), "{error}");
    assert!(error.to_string().ends_with(log), "{error}");
}

pub(crate) fn an_entry_point_that_is_missing<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let error = backend.refused(controls);
    let Error::MissingEntry { entry: missing, because } = &error else { panic!("{error}") };
    assert_eq!(missing, "check_offsets");
    assert!(because.contains("(500)"), "{because}");
}

/// On a device of 4 MiB.
pub(crate) fn memory_that_runs_out<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let gpu = backend.open(0).unwrap();
    let stream = gpu.stream().unwrap();
    let half = gpu.alloc::<u8>(2 << 20).unwrap();
    let error = gpu.alloc::<u8>(3 << 20).unwrap_err();
    let Error::OutOfMemory { bytes, free, total, fault } = &error else { panic!("{error}") };
    assert_eq!((*bytes, *free, *total, fault.code), (3 << 20, 2 << 20, 4 << 20, 2));
    assert!(error.usable());
    assert!(matches!(gpu.alloc::<u64>(usize::MAX), Err(Error::OutOfMemory { .. })));
    assert!(matches!(gpu.pinned::<u8>(1 << 40), Err(Error::OutOfMemory { .. })));
    let rest = gpu.alloc::<u8>(2 << 20).unwrap();
    assert!(matches!(run(&gpu), Err(Error::OutOfMemory { .. })), "an arena does not fit either");
    drop(rest);
    run(&gpu).unwrap();
    assert_eq!(gpu.memory().unwrap().1, 4 << 20);
    drop((half, stream, gpu));
    nothing_left(controls, "out of memory");
}

pub(crate) fn a_launch_that_fails<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let function = backend.launch;
    let gpu = backend.open(0).unwrap();
    controls.inject(&format!("{function}@1:701"));
    let error = run(&gpu).unwrap_err();
    let Error::Launch { entry: "row_scan", fault } = &error else { panic!("{error}") };
    assert_eq!((fault.function, fault.code), (function, 701));
    assert!(error.to_string().starts_with("`row_scan` was not launched: "), "{error}");
    assert!(error.usable() && gpu.lost().is_none());
    run(&gpu).unwrap();
    drop(gpu);
    nothing_left(controls, "a launch that fails");
}

/// Wild offsets: the kernel faults, and the device is lost to the process.
pub(crate) fn a_kernel_that_takes_the_device<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let gpu = backend.open(0).unwrap().with_pointer_checks(true);
    let stream = gpu.stream().unwrap();
    let kept = gpu.upload(&stream, &VALUES).unwrap();
    let wild = gpu.upload(&stream, &[0, 2, 400_000_000]).unwrap();
    let mut scanned = gpu.alloc::<f32>(5).unwrap();
    // SAFETY: none, and that is the point: the emulator checks what a device does not.
    unsafe {
        let offsets = Offsets::unchecked(wild.view());
        gpu.launch(&stream, &scan(offsets, kept.view(), scanned.view_mut())).unwrap();
    }
    let error = stream.synchronize().unwrap_err();
    let Error::Sticky { fault } = &error else { panic!("{error}") };
    assert_eq!(fault.code, 700);
    assert!(!error.usable());
    assert!(error.to_string().starts_with("the context is lost"), "{error}");
    let found = controls.fault();
    assert!(found.contains("in `row_scan`") && found.contains("allocation of 20 bytes"), "{found}");

    assert_eq!(gpu.lost().as_ref(), Some(&error));
    assert_eq!(run(&gpu).as_ref(), Err(&error));
    assert_eq!(gpu.alloc::<f32>(1).err().as_ref(), Some(&error));
    assert_eq!(stream.synchronize().as_ref(), Err(&error));
    drop((kept, wild, scanned, stream, gpu));
    // Another attempt to open it also reports the loss, as its own error.
    let again = everything((backend.open)(0)).unwrap_err();
    assert!(matches!(again, Error::Sticky { .. }), "{again}");
    assert_eq!(controls.live(), Live::default());
    // A new process would find everything intact.
    controls.reset("");
    everything((backend.open)(0)).unwrap();
    nothing_left(controls, "after a loss");
}

/// On two devices.
pub(crate) fn pointers_of_others<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let [gpu, other] = [0, 1].map(|ordinal| backend.open(ordinal).unwrap().with_pointer_checks(true));
    let (stream, there) = (gpu.stream().unwrap(), other.stream().unwrap());
    let offsets = gpu.upload(&stream, &OFFSETS).unwrap();
    let (values, foreign) = (gpu.upload(&stream, &VALUES).unwrap(), other.upload(&there, &VALUES).unwrap());
    let mut scanned = gpu.alloc::<f32>(5).unwrap();
    let queue = |values: In<'_, f32>, scanned: Out<'_, f32>| {
        // SAFETY: refused before anything is launched, or valid.
        unsafe { gpu.launch(&stream, &scan(Offsets::unchecked(offsets.view()), values, scanned)) }
    };
    let before = controls.calls(backend.launch);
    // SAFETY: for a launch on the device.
    let error = unsafe { queue(foreign.view(), scanned.view_mut()) }.unwrap_err();
    let Error::ForeignPointer { op: "row_scan", argument: 2, address, owner } = &error else {
        panic!("{error}")
    };
    assert_eq!(*address, foreign.as_ptr().addr());
    assert!(matches!(owner, Owner::Device { ordinal: 1, .. }), "{owner:?}");
    let mut on_host = [0.0; 5];
    // SAFETY: for a launch on the device.
    let error = queue(unsafe { values.view() }, Out::new(&mut on_host)).unwrap_err();
    assert!(matches!(error, Error::ForeignPointer { argument: 3, owner: Owner::Unknown(_), .. }), "{error}");
    assert!(error.usable());
    assert_eq!(controls.calls(backend.launch), before, "something was launched");
    // SAFETY: for a launch on the device.
    unsafe { queue(values.view(), scanned.view_mut()) }.unwrap();
    stream.synchronize().unwrap();
    drop((offsets, values, foreign, scanned, stream, there, gpu, other));
    nothing_left(controls, "pointers of others");
}

/// On two devices.
pub(crate) fn streams_of_others<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let [gpu, other] = [0, 1].map(|ordinal| backend.open(ordinal).unwrap());
    let (stream, there) = (gpu.stream().unwrap(), other.stream().unwrap());
    // SAFETY: both exist.
    let (ours, theirs) = unsafe { (gpu.stream_from_raw(stream.raw()), gpu.stream_from_raw(there.raw())) };
    assert!(ours.is_ok());
    assert_eq!(theirs.unwrap_err(), Error::ForeignStream { stream: there.raw().addr() });
    assert!(matches!(gpu.upload(&there, &VALUES), Err(Error::ForeignStream { .. })));
    assert!(matches!(there.record(&gpu.event().unwrap()), Err(Error::ForeignStream { .. })));
    drop((ours, stream, there, gpu, other));
    nothing_left(controls, "streams of others");
}

/// Checks of arguments on the device.
pub(crate) fn arguments_that_only_the_device_can_see<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let gpu = backend.open(0).unwrap();
    let stream = gpu.stream().unwrap();
    let mut scratch = gpu.alloc::<u32>(1).unwrap();
    for (offsets, said) in [(vec![0u32, 3, 2, 5], "[2]"), (vec![1, 3, 5], "[0]"), (vec![0, 3, 4], "[2]")] {
        let offsets = gpu.upload(&stream, &offsets).unwrap();
        let names = ("cu_seqlens", "tokens");
        // SAFETY: both are buffers of this device.
        let checked = unsafe { gpu.check_offsets(&stream, names, offsets.view(), 5, scratch.view_mut()) };
        let error = checked.expect_err(said);
        assert!(matches!(error, Error::Argument(_)) && error.usable(), "{error}");
        assert!(error.to_string().contains("cu_seqlens") && error.to_string().contains(said), "{error}");
    }
    drop((scratch, stream, gpu));
    nothing_left(controls, "arguments");
}

/// An unknown future code.
pub(crate) fn a_code_without_a_name<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let (function, name) = (backend.alloc, backend.nameless);
    let gpu = backend.open(0).unwrap();
    controls.inject(&format!("{function}@1:98765"));
    let error = gpu.alloc::<u8>(8).unwrap_err();
    assert!(matches!(error, Error::Call { .. }) && error.usable(), "{error}");
    assert_eq!(error.to_string(), format!("{function} returned {name} (98765)"));
    drop(gpu);
    nothing_left(controls, "a code without a name");
}

/// Several threads open the same device.
pub(crate) fn several_threads_at_once<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let open = backend.open;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || (0..3).for_each(|_| everything(open(0)).unwrap()));
        }
    });
    nothing_left(controls, "several threads");
}
