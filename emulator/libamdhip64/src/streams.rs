//! Streams and events.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, object, put};
use std::ffi::{c_int, c_uint, c_void};

const NULL: i32 = VENDOR.codes.value;
const NON_BLOCKING: c_uint = 1;

api! {
    fn hipStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) |machine| {
        let device = current::device();
        if stream.is_null() || flags > NON_BLOCKING {
            return Err(NULL);
        }
        let created = machine.create_stream(device, flags != NON_BLOCKING)?;
        // SAFETY: the caller's.
        unsafe { put(stream, object(created), NULL) }
    }

    fn hipStreamDestroy(stream: *mut c_void) |machine| {
        machine.destroy_stream(handle(stream))
    }

    fn hipStreamGetDevice(stream: *mut c_void, device: *mut c_int) |machine| {
        let of = machine.stream_device(current::device(), handle(stream))?;
        // SAFETY: the caller's.
        unsafe { put(device, of as c_int, NULL) }
    }

    fn hipStreamSynchronize(stream: *mut c_void) |machine| {
        machine.synchronize(current::device(), handle(stream))
    }

    fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) |machine| {
        let device = current::device();
        if flags != 0 {
            return Err(VENDOR.codes.value);
        }
        machine.wait(device, handle(stream), handle(event))
    }

    fn hipEventCreateWithFlags(event: *mut *mut c_void, _flags: c_uint) |machine| {
        let device = current::device();
        if event.is_null() {
            return Err(NULL);
        }
        let created = machine.create_event(device)?;
        // SAFETY: the caller's.
        unsafe { put(event, object(created), NULL) }
    }

    fn hipEventDestroy(event: *mut c_void) |machine| {
        machine.destroy_event(handle(event))
    }

    fn hipEventRecord(event: *mut c_void, stream: *mut c_void) |machine| {
        machine.record(current::device(), handle(event), handle(stream))
    }

    fn hipEventSynchronize(event: *mut c_void) |machine| {
        machine.synchronize_event(handle(event))
    }

    fn hipEventElapsedTime(milliseconds: *mut f32, from: *mut c_void, to: *mut c_void) |machine| {
        let elapsed = machine.elapsed(handle(from), handle(to))?;
        // SAFETY: the caller's.
        unsafe { put(milliseconds, elapsed.as_secs_f32() * 1e3, NULL) }
    }
}
