//! How a test gets a process in which the backends find an emulated library, and what it asks the library.

use libloading::Library;
use std::ffi::{CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says in a child which test it is for.
const INNER: &str = "LOCKSTEP_EMULATED_TEST";
#[cfg(windows)]
const PATH: &str = "PATH";
#[cfg(not(windows))]
const PATH: &str = "LD_LIBRARY_PATH";

/// A library of this workspace and the name under which a backend looks for it.
#[derive(Clone, Copy, Debug)]
pub struct Emulated {
    /// `liblockstep_emulated_cuda.so`, which is built beside the tests.
    pub built: &'static str,
    /// `libcuda.so.1`.
    pub name: &'static str,
}

impl Emulated {
    /// Runs `body` in a process of its own, whose loader finds the library, under these settings. `test` is
    /// the test's name.
    pub fn run(&self, test: &str, settings: &str, body: impl FnOnce(&Controls)) {
        self.run_without(test, settings, &[], body);
    }

    /// The same with a library that lacks functions.
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

    /// A folder with the library under the backend's name.
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

/// Gives a symbol of a library another name of the same length, so that nobody finds it.
fn rename(library: &mut [u8], symbol: &str) {
    let whole = [b"\0", symbol.as_bytes(), b"\0"].concat();
    let at: Vec<usize> =
        library.windows(whole.len()).enumerate().filter(|(_, w)| *w == whole).map(|(at, _)| at).collect();
    assert!(!at.is_empty(), "the library has no {symbol}");
    for at in at {
        library[at + whole.len() - 2] = b'~';
    }
}

/// What a library was asked for and has not got back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Allocations of device memory.
    pub memory: u64,
    /// Of pinned memory.
    pub pinned: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Modules.
    pub modules: u64,
    /// References to contexts.
    pub contexts: u64,
}

/// What one launch after the other did, by entry point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Entry point.
    pub entry: String,
    /// Launches, instructions, lane-instructions, requests, bytes requested, bytes moved in sectors of 32, 64
    /// and 128.
    pub counts: [u64; 8],
}

/// The library's functions for tests.
#[derive(Debug)]
pub struct Controls(Library);

impl Controls {
    /// Of the library that the loader finds under this name: the one that a backend loads too.
    pub fn open(name: &str) -> Controls {
        Controls::try_open(name).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The same where there may be another one, or none.
    pub fn try_open(name: &str) -> Result<Controls, String> {
        // SAFETY: a driver library may be loaded by any program.
        let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
        // SAFETY: it is only looked for.
        unsafe { library.get::<unsafe extern "C" fn()>("lockstep_emulator_live") }
            .map_err(|error| error.to_string())?;
        Ok(Controls(library))
    }

    fn with_text<R>(&self, function: &str, text: &str) -> R {
        let text = CString::new(text).expect("no NUL");
        // SAFETY: the three functions that are called through here take one text (src/exports.rs).
        unsafe {
            let call = self.0.get::<unsafe extern "C" fn(*const c_char) -> R>(function).expect(function);
            call(text.as_ptr())
        }
    }

    /// Another machine, as a new process would find it.
    pub fn reset(&self, settings: &str) {
        let code: i32 = self.with_text("lockstep_emulator_reset", settings);
        assert_eq!(code, 0, "{settings}");
    }

    /// Makes a later call fail: `function@nth:code`.
    pub fn inject(&self, failure: &str) {
        let code: i32 = self.with_text("lockstep_emulator_inject", failure);
        assert_eq!(code, 0, "{failure}");
    }

    /// How often a function was called since the last reset.
    pub fn calls(&self, function: &str) -> u64 {
        self.with_text("lockstep_emulator_calls", function)
    }

    fn six(&self, function: &str) -> Held {
        let mut six = [0; 6];
        // SAFETY: both functions that are called through here write six numbers (src/exports.rs).
        unsafe {
            let call = self.0.get::<unsafe extern "C" fn(*mut u64)>(function).expect(function);
            call(six.as_mut_ptr());
        }
        let [memory, pinned, streams, events, modules, contexts] = six;
        Held { memory, pinned, streams, events, modules, contexts }
    }

    /// What was not given back, but to lost devices.
    pub fn live(&self) -> Held {
        self.six("lockstep_emulator_live")
    }

    /// What contexts still held when their last reference went.
    pub fn leaked(&self) -> Held {
        self.six("lockstep_emulator_leaked")
    }

    fn words(&self, function: &str) -> String {
        // SAFETY: the functions that are called through here take a buffer (src/exports.rs).
        unsafe {
            let call =
                self.0.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>(function).expect(function);
            let mut buffer = vec![0u8; call(std::ptr::null_mut(), 0) + 1];
            let length = call(buffer.as_mut_ptr().cast(), buffer.len());
            buffer.truncate(length);
            String::from_utf8_lossy(&buffer).into_owned()
        }
    }

    /// The last fault of a kernel, or nothing.
    pub fn fault(&self) -> String {
        self.words("lockstep_emulator_fault")
    }

    /// What a program did that works by luck.
    pub fn complaints(&self) -> String {
        self.words("lockstep_emulator_complaints")
    }

    /// The last calls of the library, in order; of a launch with entry point, grid and a hash of its
    /// parameters.
    pub fn log(&self) -> Vec<String> {
        self.words("lockstep_emulator_log").lines().map(str::to_owned).collect()
    }

    /// What each entry point did.
    pub fn counts(&self) -> Vec<Ran> {
        let text = self.words("lockstep_emulator_counts");
        let line = |line: &str| {
            let mut words = line.split(' ');
            let entry = words.next().unwrap_or_default().to_owned();
            let mut counts = [0; 8];
            for (count, word) in counts.iter_mut().zip(words) {
                *count = word.parse().unwrap_or(0);
            }
            Ran { entry, counts }
        };
        text.lines().map(line).collect()
    }
}
