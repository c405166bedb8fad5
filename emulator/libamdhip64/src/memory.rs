//! Device memory, pinned memory, copies, owners of addresses.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, host_address, object, put};
use lockstep_emulator::runtime::{Owner, Way};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

const NULL: i32 = VENDOR.codes.value;
const BAD_DIRECTION: i32 = 21;

/// `hipPointerAttribute_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: *mut c_void,
    host_pointer: *mut c_void,
    managed: c_int,
    flags: c_uint,
}

/// `hipMemoryType` of unregistered, host and device memory, from 6.0 on and before. Before 6.0 there is no
/// type for unregistered memory.
const SIX: (Option<c_int>, c_int, c_int) = (Some(0), 1, 2);
const FIVE: (Option<c_int>, c_int, c_int) = (None, 0, 1);
const VERSION_SIX: i32 = 60_000_000;

api! {
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) |machine| {
        let (left, all) = machine.memory(current::device())?;
        // SAFETY: the caller's.
        unsafe {
            put(free, left as usize, NULL)?;
            put(total, all as usize, NULL)
        }
    }

    fn hipMalloc(address: *mut *mut c_void, bytes: usize) |machine| {
        if address.is_null() {
            return Err(NULL);
        }
        let memory = if bytes == 0 { 0 } else { machine.alloc(current::device(), bytes as u64)? };
        // SAFETY: the caller's.
        unsafe { put(address, object(memory), NULL) }
    }

    fn hipFree(address: *mut c_void) |machine| {
        if address.is_null() {
            return Ok(());
        }
        machine.free(current::device(), handle(address))
    }

    fn hipHostMalloc(address: *mut *mut c_void, bytes: usize, _flags: c_uint) |machine| {
        if address.is_null() {
            return Err(NULL);
        }
        let memory = machine.alloc_pinned(current::device(), bytes as u64)?;
        // SAFETY: the caller's.
        unsafe { put(address, with_exposed_provenance_mut(memory as usize), NULL) }
    }

    fn hipHostFree(address: *mut c_void) |machine| {
        if address.is_null() {
            return Ok(());
        }
        machine.free_pinned(current::device(), host_address(address))
    }

    fn hipMemcpyAsync(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_int,
        stream: *mut c_void,
    ) |machine| {
        let (way, to, from) = match kind {
            1 => (Way::Upload, handle(to), host_address(from)),
            2 => (Way::Download, host_address(to), handle(from.cast_mut())),
            3 => (Way::Device, handle(to), handle(from.cast_mut())),
            _ => return Err(BAD_DIRECTION),
        };
        if bytes > 0 && (to == 0 || from == 0) {
            return Err(NULL);
        }
        machine.copy((current::device(), handle(stream)), way, to, from, bytes as u64)
    }

    fn hipMemsetAsync(to: *mut c_void, byte: c_int, bytes: usize, stream: *mut c_void) |machine| {
        machine.fill((current::device(), handle(stream)), handle(to), byte as u8, bytes as u64)
    }

    fn hipPointerGetAttributes(attributes: *mut PointerAttributes, address: *const c_void) |machine| {
        // For a lost device, the answer is the loss.
        machine.memory(current::device())?;
        let new = machine.settings().version >= VERSION_SIX;
        let (unregistered, host, device) = if new { SIX } else { FIVE };
        let owner = machine.owner(handle(address.cast_mut()));
        let (kind, ordinal, on_device, on_host) = match owner {
            Some(Owner::Device(ordinal)) => (device, ordinal, address.cast_mut(), null_mut()),
            Some(Owner::Pinned(ordinal)) => (host, ordinal, address.cast_mut(), address.cast_mut()),
            None => (unregistered.ok_or(VENDOR.codes.value)?, 0, null_mut(), null_mut()),
        };
        let device = if owner.is_some() { ordinal as c_int } else { -2 };
        let found = PointerAttributes {
            kind,
            device,
            device_pointer: on_device,
            host_pointer: on_host,
            managed: 0,
            flags: 0,
        };
        // SAFETY: the caller's.
        unsafe { put(attributes, found, NULL) }
    }
}
