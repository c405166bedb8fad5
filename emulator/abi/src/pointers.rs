//! Conversions of what C passes.

use lockstep_emulator::launch::Parameter;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::without_provenance_mut;

/// Writes a result; returns the code `null` for a null pointer.
///
/// # Safety
/// `to` is null or writable.
pub unsafe fn put<T>(to: *mut T, value: T, null: i32) -> Result<(), i32> {
    if to.is_null() {
        return Err(null);
    }
    // SAFETY: the caller's; C promises no alignment for buffers that it casts.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes as much of a text as fits, NUL-terminated.
///
/// # Safety
/// `to` is null or writable for `len` bytes.
pub unsafe fn put_text(to: *mut c_char, len: usize, text: &str, null: i32) -> Result<(), i32> {
    if to.is_null() || len == 0 {
        return Err(null);
    }
    let bytes = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller's; there is space for one more byte than these.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        to.cast::<u8>().add(bytes.len()).write(0);
    }
    Ok(())
}

/// Returns a C string; returns the code `null` for a null pointer.
///
/// # Safety
/// `text` is null or ends with a NUL.
pub unsafe fn text<'a>(text: *const c_char, null: i32) -> Result<&'a CStr, i32> {
    if text.is_null() {
        return Err(null);
    }
    // SAFETY: the caller's.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Packs an entry point's parameters into a buffer.
///
/// # Safety
/// `params` is null, or points to one pointer per parameter, each to a value of the parameter's size.
pub unsafe fn pack(parameters: &[Parameter], params: *mut *mut c_void, null: i32) -> Result<Vec<u8>, i32> {
    let end = parameters.iter().map(|p| p.offset as usize + p.size as usize).max().unwrap_or(0);
    let mut buffer = vec![0u8; end];
    if params.is_null() && !parameters.is_empty() {
        return Err(null);
    }
    for (at, Parameter { offset, size }) in parameters.iter().enumerate() {
        // SAFETY: the caller's.
        let value = unsafe { params.add(at).read() };
        if value.is_null() {
            return Err(null);
        }
        let (offset, size) = (*offset as usize, *size as usize);
        // SAFETY: the caller's; the buffer was sized for it.
        unsafe { value.cast::<u8>().copy_to_nonoverlapping(buffer[offset..].as_mut_ptr(), size) };
    }
    Ok(buffer)
}

/// Returns the bytes of a 64-bit ELF file in memory, to the end of what its headers describe. `None` if it is
/// not one.
///
/// # Safety
/// `image` is null or such a file.
pub unsafe fn elf<'a>(image: *const c_void) -> Option<&'a [u8]> {
    const HEADER: usize = 64;
    let image = image.cast::<u8>();
    if image.is_null() {
        return None;
    }
    // SAFETY: the caller's: at least the magic number is readable. It is read byte by byte, because data that
    // is not an ELF file may be shorter.
    let magic = b"\x7fELF\x02".iter().enumerate().all(|(i, byte)| unsafe { image.add(i).read() } == *byte);
    if !magic {
        return None;
    }
    // SAFETY: an ELF file has its header.
    let header = unsafe { std::slice::from_raw_parts(image, HEADER) };
    let wide = |at: usize| Some(u64::from_le_bytes(header[at..at + 8].try_into().ok()?));
    let short = |at: usize| u64::from(header[at]) | u64::from(header[at + 1]) << 8;
    let (segments, sections) = (wide(32)?, wide(40)?);
    let (segment, segment_count, section, section_count) = (short(54), short(56), short(58), short(60));
    let mut end =
        (HEADER as u64).max(segments + segment * segment_count).max(sections + section * section_count);
    for i in 0..segment_count {
        let at = usize::try_from(segments + i * segment).ok()?;
        let field = |offset: usize| {
            let mut bytes = [0; 8];
            // SAFETY: the header says that a segment's entry is here.
            unsafe { image.add(at + offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), 8) };
            u64::from_le_bytes(bytes)
        };
        end = end.max(field(8).checked_add(field(32))?);
    }
    // SAFETY: the file reaches to the end of its tables and segments.
    Some(unsafe { std::slice::from_raw_parts(image, usize::try_from(end).ok()?) })
}

/// Converts a handle to a C pointer.
pub fn object(handle: u64) -> *mut c_void {
    without_provenance_mut(handle as usize)
}

/// Converts a C pointer to a handle.
pub fn handle(object: *mut c_void) -> u64 {
    object.addr() as u64
}

/// Returns the address of host memory that a copy will touch.
pub fn host_address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}
