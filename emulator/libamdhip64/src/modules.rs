//! Modules, occupancy, launches.

use crate::vendor::VENDOR;
use crate::{api, current};
use lockstep_emulated_abi::pointers::{elf, handle, object, pack, put, text};
use lockstep_emulator::launch::Grid;
use lockstep_emulator::runtime::Launch;
use std::ffi::{c_char, c_int, c_uint, c_void};

const NULL: i32 = VENDOR.codes.value;

api! {
    fn hipModuleLoadData(module: *mut *mut c_void, image: *const c_void) |machine| {
        if module.is_null() || image.is_null() {
            return Err(NULL);
        }
        // SAFETY: the caller's.
        let image = unsafe { elf(image) }.ok_or(VENDOR.codes.image)?;
        let loaded = machine.load(current::device(), image).map_err(|(code, why)| {
            if !why.is_empty() && !machine.settings().quiet {
                eprintln!("lockstep emulator: hipModuleLoadData: {why}");
            }
            code
        })?;
        // SAFETY: the caller's.
        unsafe { put(module, object(loaded), NULL) }
    }

    fn hipModuleUnload(module: *mut c_void) |machine| {
        machine.unload(handle(module))
    }

    fn hipModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) |machine| {
        // SAFETY: the caller's.
        let name = unsafe { text(name, NULL) }?.to_str().map_err(|_| VENDOR.codes.not_found)?;
        let found = machine.function(handle(module), name)?;
        // SAFETY: the caller's.
        unsafe { put(function, object(found), NULL) }
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: *mut c_void,
        threads: c_int,
        _shared: usize,
    ) |machine| {
        let held = machine.resident(handle(function), threads)?;
        // SAFETY: the caller's.
        unsafe { put(blocks, held, NULL) }
    }

    fn hipModuleLaunchKernel(
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
        // No kernel here uses shared memory or prepacked parameters.
        if shared != 0 || !extra.is_null() {
            return Err(VENDOR.codes.value);
        }
        let function = handle(function);
        let grid = Grid { blocks: [grid_x, grid_y, grid_z], threads: [block_x, block_y, block_z] };
        // SAFETY: the caller's.
        let params = unsafe { pack(&machine.parameters(function)?, params, NULL) }?;
        machine.launch(current::device(), Launch { function, grid, params }, handle(stream))
    }
}
