//! The functions that the page calls: it asks for room, writes a request there, and reads the answer.

use std::cell::RefCell;

thread_local! {
    /// The request, and then its answer.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes room for a request of `bytes` bytes and returns its address. The request is the length of its JSON
/// as a little-endian u32, the JSON, and the attached file.
// SAFETY: the name is no other function's.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn room(bytes: usize) -> *mut u8 {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.resize(bytes, 0);
        buffer.as_mut_ptr()
    })
}

/// Answers the request and returns the address of the answer.
// SAFETY: the name is no other function's.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn answer() -> *const u8 {
    BUFFER.with_borrow_mut(|buffer| {
        let (json, attached) = match buffer.split_first_chunk() {
            Some((length, rest)) => rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len())),
            None => Default::default(),
        };
        *buffer = crate::answer(json, attached).into_bytes();
        buffer.as_ptr()
    })
}

/// The number of bytes of the answer.
// SAFETY: the name is no other function's.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn answered() -> usize {
    BUFFER.with_borrow(Vec::len)
}
