//! Streams and events.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, object, put};
use std::ffi::{c_uint, c_void};

const NULL: i32 = VENDOR.codes.value;
const NON_BLOCKING: c_uint = 1;

api! {
    fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) |machine| {
        let device = current::device(machine)?;
        if stream.is_null() || flags > NON_BLOCKING {
            return Err(NULL);
        }
        let created = machine.create_stream(device, flags != NON_BLOCKING)?;
        // SAFETY: the caller's.
        unsafe { put(stream, object(created), NULL) }
    }

    fn cuStreamDestroy_v2(stream: *mut c_void) |machine| {
        current::device(machine)?;
        machine.destroy_stream(handle(stream))
    }

    fn cuStreamGetCtx(stream: *mut c_void, context: *mut *mut c_void) |machine| {
        let device = machine.stream_device(current::device(machine)?, handle(stream))?;
        let of = machine.context_of(device).ok_or(VENDOR.codes.no_context)?;
        // SAFETY: the caller's.
        unsafe { put(context, object(of), NULL) }
    }

    fn cuStreamSynchronize(stream: *mut c_void) |machine| {
        machine.synchronize(current::device(machine)?, handle(stream))
    }

    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) |machine| {
        let device = current::device(machine)?;
        if flags != 0 {
            return Err(VENDOR.codes.value);
        }
        machine.wait(device, handle(stream), handle(event))
    }

    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) |machine| {
        let device = current::device(machine)?;
        if event.is_null() {
            return Err(NULL);
        }
        let created = machine.create_event(device)?;
        // SAFETY: the caller's.
        unsafe { put(event, object(created), NULL) }
    }

    fn cuEventDestroy_v2(event: *mut c_void) |machine| {
        current::device(machine)?;
        machine.destroy_event(handle(event))
    }

    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) |machine| {
        machine.record(current::device(machine)?, handle(event), handle(stream))
    }

    fn cuEventSynchronize(event: *mut c_void) |machine| {
        current::device(machine)?;
        machine.synchronize_event(handle(event))
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, from: *mut c_void, to: *mut c_void) |machine| {
        current::device(machine)?;
        let elapsed = machine.elapsed(handle(from), handle(to))?;
        // SAFETY: the caller's.
        unsafe { put(milliseconds, elapsed.as_secs_f32() * 1e3, NULL) }
    }
}
