//! `lockstep_emulator_*`: functions through which tests query a library.

use crate::Library;
use crate::pointers::{put_text, text};
use lockstep_emulator::runtime::{Live, Machine};
use std::ffi::c_char;
use std::fmt::Write;

/// Texts that a library reports about itself.
#[derive(Clone, Copy, Debug)]
pub enum Words {
    /// The last fault of a kernel, or nothing.
    Fault,
    /// Calls that happen to work but are not guaranteed to, one item per line.
    Complaints,
    /// One line for each entry point that ran: name, launches, instructions, lane-instructions, requests,
    /// bytes requested, bytes moved in sectors of 32, 64 and 128 bytes, and the most instructions of one
    /// team in one launch, separated by spaces.
    Counts,
    /// The last calls, one per line: the vendor's function, and for a launch also the entry point, the grid
    /// and a hash of its parameters.
    Log,
}

fn words(machine: &Machine, which: Words) -> String {
    match which {
        Words::Fault => machine.fault().map(|fault| fault.to_string()).unwrap_or_default(),
        Words::Log => machine.log().join("\n"),
        Words::Complaints => machine.complaints().join("\n"),
        Words::Counts => machine.counts().iter().fold(String::new(), |mut text, (entry, (launches, c))| {
            let [a, b, d] = c.bytes_moved;
            let (i, l, r, q) = (c.instructions, c.lane_instructions, c.requests, c.bytes_requested);
            _ = writeln!(text, "{entry} {launches} {i} {l} {r} {q} {a} {b} {d} {}", c.longest);
            text
        }),
    }
}

impl Library {
    /// Writes a text to a buffer, as much as fits, and returns its full length.
    ///
    /// # Safety
    /// `to` is null or writable for `len` bytes.
    pub unsafe fn say(&self, which: Words, to: *mut c_char, len: usize) -> usize {
        let words = self.machine().map(|machine| words(&machine, which)).unwrap_or_default();
        // SAFETY: the caller's. A null buffer asks only for the length.
        _ = unsafe { put_text(to, len, &words, 0) };
        words.len()
    }

    /// Writes what is live, or what contexts leaked, as six numbers.
    ///
    /// # Safety
    /// `to` is writable for six numbers.
    pub unsafe fn tell(&self, which: fn(&Machine) -> Live, to: *mut u64) {
        let live = self.machine().map(|machine| which(&machine)).unwrap_or_default().array();
        for (at, count) in live.into_iter().enumerate() {
            // SAFETY: the caller's.
            unsafe { to.add(at).write(count) };
        }
    }

    /// Calls [`reset`](Library::reset) with a C string.
    ///
    /// # Safety
    /// `settings` ends with a NUL.
    pub unsafe fn reset_to(&self, settings: *const c_char) -> i32 {
        // SAFETY: the caller's.
        match unsafe { text(settings, -1) }.map(|settings| settings.to_str()) {
            Ok(Ok(settings)) => self.reset(settings),
            _ => -1,
        }
    }

    /// Makes a later call fail: `function@nth:code`.
    ///
    /// # Safety
    /// `failure` ends with a NUL.
    pub unsafe fn inject(&self, failure: *const c_char) -> i32 {
        // SAFETY: the caller's.
        let failure =
            unsafe { text(failure, -1) }.ok().and_then(|failure| failure.to_str().ok()?.parse().ok());
        match (failure, self.machine()) {
            (Some(failure), Ok(machine)) => {
                machine.inject(failure);
                0
            }
            _ => -1,
        }
    }

    /// Returns how often a function was called.
    ///
    /// # Safety
    /// `function` ends with a NUL.
    pub unsafe fn calls(&self, function: *const c_char) -> u64 {
        // SAFETY: the caller's.
        let function = unsafe { text(function, -1) }.ok().and_then(|function| function.to_str().ok());
        function.zip(self.machine().ok()).map_or(0, |(function, machine)| machine.calls(function))
    }
}

/// Defines the functions for a `static` [`Library`](crate::Library).
#[macro_export]
macro_rules! exports {
    ($library:ident) => {
        $crate::exports! { $library:
            /// Replaces the machine by a fresh one with these settings, as in a new process.
            ///
            /// # Safety
            /// `settings` is null or ends with a NUL.
            fn lockstep_emulator_reset(settings: *const std::ffi::c_char) -> i32 = reset_to();

            /// Makes a later call fail: `function@nth:code`.
            ///
            /// # Safety
            /// `failure` is null or ends with a NUL.
            fn lockstep_emulator_inject(failure: *const std::ffi::c_char) -> i32 = inject();

            /// Returns how often a function was called.
            ///
            /// # Safety
            /// `function` is null or ends with a NUL.
            fn lockstep_emulator_calls(function: *const std::ffi::c_char) -> u64 = calls();

            /// Counts what was not released: memory, pinned memory, streams, events, modules, references to
            /// contexts.
            ///
            /// # Safety
            /// `to` is writable for six numbers.
            fn lockstep_emulator_live(to: *mut u64) = tell(lockstep_emulator::runtime::Machine::live);

            /// Counts what contexts still held when their last reference was released.
            ///
            /// # Safety
            /// `to` is writable for six numbers.
            fn lockstep_emulator_leaked(to: *mut u64) = tell(lockstep_emulator::runtime::Machine::leaked);

            /// Writes the last fault of a kernel; returns its length.
            ///
            /// # Safety
            /// `to` is null or writable for `len` bytes.
            fn lockstep_emulator_fault(to: *mut std::ffi::c_char, len: usize) -> usize
                = say($crate::exports::Words::Fault);

            /// Writes the calls that happen to work but are not guaranteed to; returns the length.
            ///
            /// # Safety
            /// `to` is null or writable for `len` bytes.
            fn lockstep_emulator_complaints(to: *mut std::ffi::c_char, len: usize) -> usize
                = say($crate::exports::Words::Complaints);

            /// Writes the last calls, one per line; returns their length.
            ///
            /// # Safety
            /// `to` is null or writable for `len` bytes.
            fn lockstep_emulator_log(to: *mut std::ffi::c_char, len: usize) -> usize
                = say($crate::exports::Words::Log);

            /// Writes what each entry point did; returns its length.
            ///
            /// # Safety
            /// `to` is null or writable for `len` bytes.
            fn lockstep_emulator_counts(to: *mut std::ffi::c_char, len: usize) -> usize
                = say($crate::exports::Words::Counts);
        }
    };
    ($library:ident: $(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? = $method:ident($($first:expr)?);
    )*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $out)? {
            // SAFETY: the caller's.
            unsafe { $library.$method($($first,)? $($arg),*) }
        }
    )*};
}
