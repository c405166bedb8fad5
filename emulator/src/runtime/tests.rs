//! The machine, on a host made of vectors and with a program that doubles bytes.

use super::*;
use crate::counts::Counts;
use crate::fault::{Fault, Instruction, Place};
use crate::launch::{Grid, Parameter, Program};
use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Host memory that is not the process's.
#[derive(Default)]
struct Vectors(Arc<Mutex<BTreeMap<u64, Vec<u8>>>>);

impl Host for Vectors {
    fn read(&self, from: u64, to: &mut [u8]) {
        to.copy_from_slice(&self.0.lock().unwrap()[&from][..to.len()]);
    }
    fn write(&self, to: u64, from: &[u8]) {
        self.0.lock().unwrap().get_mut(&to).unwrap()[..from.len()].copy_from_slice(from);
    }
    fn alloc(&self, bytes: u64) -> Option<u64> {
        let mut all = self.0.lock().unwrap();
        let address = 4096 * (1 + all.len() as u64);
        all.insert(address, vec![0; bytes as usize]);
        Some(address)
    }
    fn free(&self, _address: u64, _bytes: u64) {}
}

/// `double(address)`: doubles the byte there.
struct Double;

impl Program for Double {
    fn entries(&self) -> Vec<String> {
        vec!["double".into()]
    }
    fn parameters(&self, entry: &str) -> Option<Vec<Parameter>> {
        (entry == "double").then(|| vec![Parameter { offset: 0, size: 8 }])
    }
    fn launch(
        &self,
        entry: &str,
        _grid: Grid,
        params: &[u8],
        memory: &mut Memory,
    ) -> Result<Counts, Box<Fault>> {
        memory.launch(1);
        let address = u64::from_le_bytes(params.try_into().unwrap());
        let mut double = || {
            let [byte] = memory.team(0).load::<1>(address)?;
            memory.team(0).store(address, [byte * 2])
        };
        double().map_err(|kind| Box::new(kind.at(entry, Place::default(), Instruction::default())))?;
        Ok(Counts { instructions: 2, ..Counts::default() })
    }
}

static VENDOR: Vendor = Vendor {
    api: "TEST",
    codes: Codes { image: 218, misaligned: 716, instruction: 715, ..Codes::COMMON },
    settings: || Settings { devices: 2, memory: 1 << 20, quiet: true, ..Settings::new("test", "test_1", 1) },
    version: |major, minor| (major * 10 + minor) as i32,
    load: |image, _| if image == b"double" { Ok(Arc::new(Double)) } else { Err("line 1: no".into()) },
};

type Memories = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

fn machine(settings: &str) -> (Machine, Memories) {
    let host = Vectors::default();
    let memories = host.0.clone();
    (Machine::new(&VENDOR, Settings::parse(&VENDOR, settings).unwrap(), Box::new(host)), memories)
}

fn double(machine: &Machine, device: usize, stream: u64, address: u64) -> Result<(), i32> {
    let module = machine.load(device, b"double").unwrap();
    let function = machine.function(module, "double").unwrap();
    let grid = Grid { blocks: [1; 3], threads: [32, 1, 1] };
    let params = address.to_le_bytes().to_vec();
    machine.launch(device, Launch { function, grid, params }, stream)
}

#[test]
fn work_waits_until_it_is_waited_for() {
    let (machine, host) = machine("");
    let stream = machine.create_stream(0, false).unwrap();
    let memory = machine.alloc(0, 4).unwrap();
    let pinned = machine.alloc_pinned(0, 1).unwrap();
    host.lock().unwrap().insert(pinned, vec![21]);
    machine.copy((0, stream), Way::Upload, memory, pinned, 1).unwrap();
    double(&machine, 0, stream, memory).unwrap();
    machine.copy((0, stream), Way::Download, pinned, memory, 1).unwrap();
    assert_eq!(host.lock().unwrap()[&pinned], [21], "nobody waited");
    machine.synchronize(0, stream).unwrap();
    assert_eq!(host.lock().unwrap()[&pinned], [42]);
    assert_eq!(machine.counts()["double"].0, 1);
}

#[test]
fn pageable_memory_is_read_and_written_at_once() {
    let (machine, host) = machine("");
    let stream = machine.create_stream(0, false).unwrap();
    let memory = machine.alloc(0, 4).unwrap();
    host.lock().unwrap().insert(7, vec![3]);
    machine.copy((0, stream), Way::Upload, memory, 7, 1).unwrap();
    host.lock().unwrap().insert(7, vec![4]);
    double(&machine, 0, stream, memory).unwrap();
    machine.copy((0, stream), Way::Download, 7, memory, 1).unwrap();
    assert_eq!(host.lock().unwrap()[&7], [6]);
}

#[test]
fn streams_wait_for_events_and_no_longer() {
    let (machine, host) = machine("");
    let [first, second] = [0, 0].map(|device| machine.create_stream(device, false).unwrap());
    let (memory, event, start) =
        (machine.alloc(0, 1).unwrap(), machine.create_event(0).unwrap(), machine.create_event(0).unwrap());
    let pinned = machine.alloc_pinned(0, 1).unwrap();
    assert_eq!(machine.elapsed(start, event), Err(400), "never recorded");
    machine.record(0, start, first).unwrap();
    machine.fill((0, first), memory, 5, 1).unwrap();
    machine.record(0, event, first).unwrap();
    double(&machine, 0, first, memory).unwrap();
    assert_eq!(machine.elapsed(start, event), Err(600), "not yet");
    machine.wait(0, second, event).unwrap();
    machine.copy((0, second), Way::Download, pinned, memory, 1).unwrap();
    machine.synchronize(0, second).unwrap();
    assert_eq!(host.lock().unwrap()[&pinned], [5], "what came after the event was waited for too");
    machine.synchronize_event(event).unwrap();
    machine.elapsed(start, event).unwrap();
    machine.destroy_stream(first).unwrap();
    machine.wait(0, second, event).unwrap();
    machine.synchronize(0, second).unwrap();
    assert_eq!(machine.synchronize(0, first), Err(400));
}

#[test]
fn a_fault_takes_its_device_and_no_other() {
    let (machine, _host) = machine("");
    let [memory, other] = [0, 1].map(|device| machine.alloc(device, 1).unwrap());
    assert_eq!([memory, other].map(|a| machine.owner(a)), [Some(Owner::Device(0)), Some(Owner::Device(1))]);
    machine.fill((0, 0), memory, 1, 1).unwrap();
    machine.fill((1, 0), other, 1, 1).unwrap();
    // The other device's memory is out of reach.
    double(&machine, 0, 0, other).unwrap();
    assert_eq!(machine.synchronize(0, 0), Err(700));
    assert_eq!(machine.alloc(0, 1), Err(700));
    assert_eq!(machine.live(), Live { memory: 1, modules: 0, ..Live::default() }, "that of device 1");
    double(&machine, 1, 0, other).unwrap();
    machine.synchronize(1, 0).unwrap();
    let fault = machine.fault().unwrap();
    assert_eq!(fault.entry, "double");
    assert!(fault.to_string().contains("in no allocation"), "{fault}");
}

#[test]
fn what_a_context_still_held_is_known() {
    let (machine, _host) = machine("devices=1");
    let context = machine.retain(0).unwrap();
    assert_eq!(machine.retain(0), Ok(context));
    let stream = machine.create_stream(0, false).unwrap();
    machine.alloc(0, 8).unwrap();
    machine.release(0).unwrap();
    assert_eq!((machine.live().memory, machine.leaked()), (1, Live::default()));
    machine.release(0).unwrap();
    let leaked = Live { memory: 1, streams: 1, ..Live::default() };
    assert_eq!((machine.live(), machine.leaked()), (Live::default(), leaked));
    assert_eq!(machine.synchronize(0, stream), Err(400));
    assert_eq!(machine.context(context), Err(201));
    assert_eq!(machine.release(0), Err(201));
}

#[test]
fn what_is_wrong_is_refused() {
    let (machine, _host) = machine("memory=1K; lacks=absent");
    let memory = machine.alloc(0, 16).unwrap();
    assert_eq!(machine.alloc(0, 0), Err(1));
    assert_eq!(machine.alloc(0, 1009), Err(2));
    assert_eq!(machine.memory(0), Ok((1008, 1024)));
    assert_eq!(machine.free(0, memory + 1), Err(1));
    assert_eq!(machine.fill((0, 0), memory + 8, 0, 9), Err(1));
    assert_eq!(machine.fill((0, 0x700), memory, 0, 1), Err(400));
    assert_eq!(machine.free_pinned(0, 5), Err(1));
    assert_eq!(machine.alloc(2, 1), Err(101));
    assert_eq!(machine.load(0, b"?"), Err((218, "line 1: no".into())));
    let module = machine.load(0, b"double").unwrap();
    assert_eq!(machine.function(module, "absent"), Err(500));
    let function = machine.function(module, "double").unwrap();
    assert_eq!(machine.resident(function, 64), Ok(4));
    assert_eq!(machine.resident(function, 0), Err(1));
    for (blocks, threads) in
        [([0, 1, 1], [32, 1, 1]), ([1, 65_536, 1], [32, 1, 1]), ([1; 3], [32, 33, 1]), ([1; 3], [32, 0, 1])]
    {
        let launch = Launch { function, grid: Grid { blocks, threads }, params: vec![0; 8] };
        assert_eq!(machine.launch(0, launch, 0), Err(1));
    }
    machine.unload(module).unwrap();
    assert_eq!(machine.resident(function, 64), Err(400));
    machine.free(0, memory).unwrap();
    assert_eq!(machine.free(0, memory), Err(1));
}

#[test]
fn failures_come_when_they_are_asked_for() {
    let (machine, _host) = machine("devices=1; fail=alloc@2:2; fail=free@1:700");
    assert_eq!(machine.call("alloc", Some(0)), Ok(()));
    assert_eq!(machine.call("alloc", Some(0)), Err(2));
    machine.alloc(0, 1).unwrap();
    assert_eq!(machine.call("free", Some(0)), Err(700));
    assert_eq!(machine.alloc(0, 1), Err(700), "lost");
    assert_eq!((machine.calls("alloc"), machine.calls("free")), (2, 1));
    for text in ["nonsense", "devices=x", "devices=99", "version=1", "fail=a@0:1", "memory=99999999999G"] {
        assert!(Settings::parse(&VENDOR, text).is_err(), "{text}");
    }
    let settings = Settings::parse(&VENDOR, " version=12.4 ;arch=a;refuse=x = y;").unwrap();
    assert_eq!((settings.version, &settings.arch[..], settings.refuse.as_deref()), (124, "a", Some("x = y")));
}

#[test]
fn the_default_stream_and_blocking_ones_wait_for_each_other() {
    let (machine, host) = machine("");
    let [blocking, free] = [true, false].map(|blocking| machine.create_stream(0, blocking).unwrap());
    let (memory, pinned) = (machine.alloc(0, 1).unwrap(), machine.alloc_pinned(0, 1).unwrap());
    let read = |stream| {
        machine.copy((0, stream), Way::Download, pinned, memory, 1).unwrap();
        machine.synchronize(0, stream).unwrap();
        host.lock().unwrap()[&pinned][0]
    };
    machine.fill((0, blocking), memory, 1, 1).unwrap();
    assert_eq!(read(0), 1);
    machine.fill((0, 0), memory, 2, 1).unwrap();
    assert_eq!(read(blocking), 2);
    machine.fill((0, 0), memory, 3, 1).unwrap();
    assert_eq!(read(free), 2, "this one waits for nobody");
}

#[test]
fn a_stream_may_wait_for_another_devices_event() {
    let (machine, _host) = machine("");
    let [here, there] = [0, 1].map(|device| machine.create_stream(device, false).unwrap());
    let (memory, event) = (machine.alloc(1, 1).unwrap(), machine.create_event(1).unwrap());
    machine.fill((1, there), memory, 4, 1).unwrap();
    machine.record(1, event, there).unwrap();
    assert_eq!(machine.record(0, event, here), Err(400), "an event is its device's");
    machine.wait(0, here, event).unwrap();
    machine.destroy_event(event).unwrap();
    assert_eq!(machine.wait(0, here, event), Err(400));
    assert_eq!(machine.stream_device(0, there), Ok(1));
}

/// Queued launches run with the module that they came from, even if it is unloaded first.
#[test]
fn unloading_waits_for_what_was_launched() {
    let (machine, _host) = machine("");
    let memory = machine.alloc(0, 1).unwrap();
    machine.fill((0, 0), memory, 4, 1).unwrap();
    let module = machine.load(0, b"double").unwrap();
    let function = machine.function(module, "double").unwrap();
    assert_eq!(machine.parameters(function), Ok(vec![Parameter { offset: 0, size: 8 }]));
    let grid = Grid { blocks: [1; 3], threads: [32, 1, 1] };
    machine.launch(0, Launch { function, grid, params: memory.to_le_bytes().to_vec() }, 0).unwrap();
    machine.unload(module).unwrap();
    assert_eq!(machine.counts()["double"].0, 1);
    assert_eq!(machine.parameters(function), Err(400));
}
