//! Device memory, pinned memory, copies, owners of addresses.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, host_address, object, put};
use lockstep_emulator::runtime::{Owner, Way};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::with_exposed_provenance_mut;

const NULL: i32 = VENDOR.codes.value;

// CUpointer_attribute and CUmemorytype.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const ORDINAL: c_int = 9;
const HOST: u32 = 1;
const DEVICE: u32 = 2;

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |machine| {
        let (left, all) = machine.memory(current::device(machine)?)?;
        // SAFETY: the caller's.
        unsafe {
            put(free, left as usize, NULL)?;
            put(total, all as usize, NULL)
        }
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |machine| {
        let device = current::device(machine)?;
        if address.is_null() {
            return Err(NULL);
        }
        let memory = machine.alloc(device, bytes as u64)?;
        // SAFETY: the caller's.
        unsafe { put(address, memory, NULL) }
    }

    fn cuMemFree_v2(address: u64) |machine| {
        machine.free(current::device(machine)?, address)
    }

    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) |machine| {
        let device = current::device(machine)?;
        if address.is_null() || flags > 7 {
            return Err(NULL);
        }
        let memory = machine.alloc_pinned(device, bytes as u64)?;
        // SAFETY: the caller's.
        unsafe { put(address, with_exposed_provenance_mut(memory as usize), NULL) }
    }

    fn cuMemFreeHost(address: *mut c_void) |machine| {
        machine.free_pinned(current::device(machine)?, host_address(address))
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) |machine| {
        let on = (current::device(machine)?, handle(stream));
        if from.is_null() && bytes > 0 {
            return Err(NULL);
        }
        machine.copy(on, Way::Upload, to, host_address(from), bytes as u64)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) |machine| {
        let on = (current::device(machine)?, handle(stream));
        if to.is_null() && bytes > 0 {
            return Err(NULL);
        }
        machine.copy(on, Way::Download, host_address(to), from, bytes as u64)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) |machine| {
        let on = (current::device(machine)?, handle(stream));
        machine.copy(on, Way::Device, to, from, bytes as u64)
    }

    fn cuMemsetD8Async(to: u64, byte: u8, bytes: usize, stream: *mut c_void) |machine| {
        let on = (current::device(machine)?, handle(stream));
        machine.fill(on, to, byte, bytes as u64)
    }

    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64) |machine| {
        // For a lost context, the answer is the loss.
        machine.memory(current::device(machine)?)?;
        let owner = machine.owner(address).ok_or(VENDOR.codes.value)?;
        let (kind, device) = match owner {
            Owner::Device(device) => (DEVICE, device),
            Owner::Pinned(device) => (HOST, device),
        };
        // SAFETY: the caller's: the target is as large as the attribute.
        unsafe {
            match attribute {
                CONTEXT => {
                    put(value.cast(), object(machine.context_of(device).unwrap_or(0)), NULL)
                }
                MEMORY_TYPE => put(value.cast(), kind, NULL),
                IS_MANAGED => put(value.cast(), 0u32, NULL),
                ORDINAL => put(value.cast(), device as c_int, NULL),
                _ => Err(VENDOR.codes.value),
            }
        }
    }
}
