//! Runs a test in a process in which the backends find an emulated library, and queries the library.

use libloading::Library;
pub use lockstep_emulator::runtime::Live;
use std::ffi::{CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells a child process which test it is for.
const INNER: &str = "LOCKSTEP_EMULATED_TEST";
#[cfg(windows)]
const PATH: &str = "PATH";
#[cfg(not(windows))]
const PATH: &str = "LD_LIBRARY_PATH";

/// A library of this workspace, and the name under which a backend looks for it.
#[derive(Clone, Copy, Debug)]
pub struct Emulated {
    /// `liblockstep_emulated_cuda.so`, which is built beside the tests.
    pub built: &'static str,
    /// `libcuda.so.1`.
    pub name: &'static str,
}

impl Emulated {
    /// Runs `body` in its own process, whose loader finds the library, with these settings. `test` is the
    /// test's name.
    pub fn run(&self, test: &str, settings: &str, body: impl FnOnce(&Controls)) {
        self.run_without(test, settings, &[], body);
    }

    /// Like `run`, with a library that lacks the functions `lacks`.
    pub fn run_without(&self, test: &str, settings: &str, lacks: &[&str], body: impl FnOnce(&Controls)) {
        if std::env::var(INNER).is_ok_and(|inner| inner == test) {
            return body(&Controls::open(self.name));
        }
        let exe = std::env::current_exe().expect("this program");
        let folder = self.lay(&exe, test, lacks);
        let output = Command::new(&exe)
            .args([test, "--exact", "--nocapture"])
            .env(INNER, test)
            .env(PATH, &folder)
            .env(crate::library::SETTINGS, settings)
            .output()
            .expect("this program runs");
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        _ = fs::remove_dir_all(&folder);
        assert!(output.status.success(), "{test}, in its own process: {}\n{said}", output.status);
        assert!(said.contains("1 passed"), "no test is called {test}:\n{said}");
    }

    /// Returns a folder that holds the library under the backend's name.
    fn lay(&self, exe: &Path, test: &str, lacks: &[&str]) -> PathBuf {
        let beside = exe.parent().expect("a folder");
        let built = [beside.join(self.built), beside.join("..").join(self.built)];
        let built = built.iter().find(|file| file.is_file());
        let built = built.unwrap_or_else(|| panic!("{} is not beside {}", self.built, exe.display()));
        let folder = beside.join("emulated").join(format!("{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder beside the tests");
        let mut bytes = fs::read(built).expect("the library");
        for symbol in lacks {
            rename(&mut bytes, symbol);
        }
        fs::write(folder.join(self.name), bytes).expect("the library's copy");
        folder
    }
}

/// Renames a symbol of a library to another name of the same length, so that it is not found.
fn rename(library: &mut [u8], symbol: &str) {
    let whole = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let at: Vec<usize> =
        library.windows(whole.len()).enumerate().filter(|(_, w)| *w == whole).map(|(at, _)| at).collect();
    assert!(!at.is_empty(), "the library has no {symbol}");
    for at in at {
        library[at + whole.len() - 2] = b'~';
    }
}

/// What all launches of an entry point did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Entry point.
    pub entry: String,
    /// Launches, instructions, lane-instructions, requests, bytes requested, bytes moved in sectors of 32, 64
    /// and 128.
    pub counts: [u64; 8],
    /// The most instructions of one team (warp, wave) in one launch.
    pub longest: u64,
}

/// The library's functions for tests.
#[derive(Debug)]
pub struct Controls(Library);

impl Controls {
    /// Opens the library that the loader finds under this name, the one that a backend also loads.
    pub fn open(name: &str) -> Controls {
        Controls::try_open(name).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Like `open`; errors if the library is missing or is not an emulated one.
    pub fn try_open(name: &str) -> Result<Controls, String> {
        // SAFETY: a driver library may be loaded by any program.
        let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
        // SAFETY: it is only looked up, not called.
        unsafe { library.get::<unsafe extern "C" fn()>("lockstep_emulator_live") }
            .map_err(|error| error.to_string())?;
        Ok(Controls(library))
    }

    fn with_text<R>(&self, function: &str, text: &str) -> R {
        let text = CString::new(text).expect("no NUL");
        // SAFETY: the three functions called through here take one string (src/exports.rs).
        unsafe {
            let call = self.0.get::<unsafe extern "C" fn(*const c_char) -> R>(function).expect(function);
            call(text.as_ptr())
        }
    }

    /// Replaces the machine by a fresh one, as in a new process.
    pub fn reset(&self, settings: &str) {
        let code: i32 = self.with_text("lockstep_emulator_reset", settings);
        assert_eq!(code, 0, "{settings}");
    }

    /// Makes a later call fail: `function@nth:code`.
    pub fn inject(&self, failure: &str) {
        let code: i32 = self.with_text("lockstep_emulator_inject", failure);
        assert_eq!(code, 0, "{failure}");
    }

    /// Returns how often a function was called since the last reset.
    pub fn calls(&self, function: &str) -> u64 {
        self.with_text("lockstep_emulator_calls", function)
    }

    fn six(&self, function: &str) -> Live {
        let mut six = [0; 6];
        // SAFETY: both functions called through here write six numbers (src/exports.rs).
        unsafe {
            let call = self.0.get::<unsafe extern "C" fn(*mut u64)>(function).expect(function);
            call(six.as_mut_ptr());
        }
        let [memory, pinned, streams, events, modules, contexts] = six;
        Live { memory, pinned, streams, events, modules, contexts }
    }

    /// Counts what was not released, except on lost devices.
    pub fn live(&self) -> Live {
        self.six("lockstep_emulator_live")
    }

    /// Counts what contexts still held when their last reference was released.
    pub fn leaked(&self) -> Live {
        self.six("lockstep_emulator_leaked")
    }

    fn words(&self, function: &str) -> String {
        // SAFETY: the functions called through here take a buffer (src/exports.rs).
        unsafe {
            let call =
                self.0.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>(function).expect(function);
            let mut buffer = vec![0u8; call(std::ptr::null_mut(), 0) + 1];
            let length = call(buffer.as_mut_ptr().cast(), buffer.len());
            buffer.truncate(length);
            String::from_utf8_lossy(&buffer).into_owned()
        }
    }

    /// Returns the last fault of a kernel; empty if there was none.
    pub fn fault(&self) -> String {
        self.words("lockstep_emulator_fault")
    }

    /// Returns the program's calls that happen to work but are not guaranteed to.
    pub fn complaints(&self) -> String {
        self.words("lockstep_emulator_complaints")
    }

    /// Returns the library's last calls, in order; for a launch with entry point, grid and a hash of its
    /// parameters.
    pub fn log(&self) -> Vec<String> {
        self.words("lockstep_emulator_log").lines().map(str::to_owned).collect()
    }

    /// Returns what each entry point did.
    pub fn counts(&self) -> Vec<Ran> {
        let text = self.words("lockstep_emulator_counts");
        let line = |line: &str| {
            let mut words = line.split(' ');
            let entry = words.next().unwrap_or_default().to_owned();
            let mut counts = [0; 8];
            for (count, word) in counts.iter_mut().zip(&mut words) {
                *count = word.parse().unwrap_or(0);
            }
            let longest = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            Ran { entry, counts, longest }
        };
        text.lines().map(line).collect()
    }
}
