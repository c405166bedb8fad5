//! Modules, occupancy, launches.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{handle, object, pack, put, put_text, text};
use lockstep_emulator::launch::Grid;
use lockstep_emulator::runtime::Launch;
use std::ffi::{c_char, c_int, c_uint, c_void};

const NULL: i32 = VENDOR.codes.value;

// CUjit_option.
const ERROR_LOG: c_int = 5;
const ERROR_LOG_BYTES: c_int = 6;

/// Writes the compiler's log to the buffer named in the options, if there is one.
///
/// # Safety
/// There are `count` options and values, and the buffer is as long as its option says.
unsafe fn put_log(log: &str, count: c_uint, option: *mut c_int, value: *mut *mut c_void) {
    if option.is_null() || value.is_null() {
        return;
    }
    // SAFETY: the caller's.
    let options = (0..count as usize).map(|i| unsafe { (option.add(i).read(), value.add(i).read()) });
    let find = |which: c_int| options.clone().find(|(option, _)| *option == which).map(|(_, value)| value);
    if let (Some(buffer), Some(bytes)) = (find(ERROR_LOG), find(ERROR_LOG_BYTES)) {
        // SAFETY: the caller's.
        _ = unsafe { put_text(buffer.cast(), bytes.addr(), log, NULL) };
    }
}

api! {
    fn cuModuleLoadDataEx(
        module: *mut *mut c_void,
        image: *const c_void,
        options: c_uint,
        option: *mut c_int,
        value: *mut *mut c_void,
    ) |machine| {
        let device = current::device(machine)?;
        if module.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's: PTX is NUL-terminated.
        let image = unsafe { text(image.cast::<c_char>(), NULL) }?;
        let loaded = machine.load(device, image.to_bytes()).map_err(|(code, log)| {
            // SAFETY: the caller's.
            unsafe { put_log(&log, options, option, value) };
            code
        })?;
        // SAFETY: the caller's.
        unsafe { put(module, object(loaded), NULL) }
    }

    fn cuModuleUnload(module: *mut c_void) |machine| {
        current::device(machine)?;
        machine.unload(handle(module))
    }

    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) |machine| {
        current::device(machine)?;
        // SAFETY: the caller's.
        let name = unsafe { text(name, NULL) }?.to_str().map_err(|_| VENDOR.codes.not_found)?;
        let found = machine.function(handle(module), name)?;
        // SAFETY: the caller's.
        unsafe { put(function, object(found), NULL) }
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: *mut c_void,
        threads: c_int,
        _shared: usize,
    ) |machine| {
        current::device(machine)?;
        let held = machine.resident(handle(function), threads)?;
        // SAFETY: the caller's.
        unsafe { put(blocks, held, NULL) }
    }

    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: *mut c_void,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |machine| {
        let device = current::device(machine)?;
        // No kernel here has shared memory beyond what it declares, or prepacked parameters.
        if shared != 0 || !extra.is_null() {
            return Err(VENDOR.codes.value);
        }
        let function = handle(function);
        let grid = Grid { blocks: [grid_x, grid_y, grid_z], threads: [block_x, block_y, block_z] };
        // SAFETY: the caller's.
        let params = unsafe { pack(&machine.parameters(function)?, params, NULL) }?;
        machine.launch(device, Launch { function, grid, params }, handle(stream))
    }
}
