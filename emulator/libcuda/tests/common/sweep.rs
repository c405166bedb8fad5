//! Every call of every function fails once, in every way.

use super::session::everything;
use super::{Backend, nothing_left};
use lockstep_emulated_abi::testing::{Controls, Live};
use lockstep_gpu::{Driver, Error};

/// An invalid value, out of memory, an illegal address.
const CODES: [i32; 3] = [1, 2, 700];
const STICKY: i32 = 700;

/// Returns the functions of a backend's table, from its source.
fn functions(symbols: &'static str, prefix: &str) -> Vec<&'static str> {
    let name = |line: &'static str| line.trim_start().split_once('(').map(|(name, _)| name);
    let is = |name: &&str| {
        name.starts_with(prefix) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    symbols.lines().filter_map(name).filter(is).collect()
}

/// Fails each call of a session in turn. Each failure is an error that names the code, or does not affect the
/// session; nothing is left behind; the device remains usable, or is lost and reports it.
pub(crate) fn every_call_may_fail<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let session = || everything((backend.open)(0));
    controls.reset("quiet");
    session().unwrap();
    let functions = functions(backend.symbols, backend.prefixes.0);
    assert!(functions.len() > 30, "{functions:?}");
    let calls: Vec<u64> = functions.iter().map(|function| controls.calls(function)).collect();
    let (mut tried, mut failed) = (0, 0);
    for (function, calls) in functions.iter().zip(calls) {
        assert_eq!(calls == 0, backend.unused.contains(function), "{function} is called {calls} times");
        for nth in 1..=calls {
            for code in CODES {
                let what = format!("{function}@{nth}:{code}");
                controls.reset("quiet");
                controls.inject(&what);
                tried += 1;
                let result = session();
                if let Err(error) = &result {
                    failed += 1;
                    assert!(error.to_string().contains(&format!("({code})")), "{what}: {error}");
                    assert!(error.usable() || code == STICKY, "{what}: {error:?}");
                }
                if backend.givers.contains(function) {
                    assert_eq!(controls.complaints(), "", "{what}");
                } else {
                    nothing_left(controls, &what);
                }
                let again = session();
                let lost = matches!(&again, Err(Error::Sticky { fault }) if fault.code == STICKY);
                assert!(again.is_ok() || code == STICKY && lost, "{what}: then {again:?}");
                if lost {
                    assert_eq!(controls.live(), Live::default(), "{what}: after the loss");
                }
            }
        }
    }
    println!("{tried} failures, {failed} of them errors");
    assert!(tried > 300 && failed > 200, "{tried} {failed}");
}

/// Makes a function fail permanently from each of its calls on: what cannot be released stays, but nothing
/// panics, and errors are reported.
pub(crate) fn every_function_may_fail_for_good<D: Driver>(backend: &Backend<D>, controls: &Controls) {
    let session = || everything((backend.open)(0));
    controls.reset("quiet");
    session().unwrap();
    let functions = functions(backend.symbols, backend.prefixes.0);
    let calls: Vec<u64> = functions.iter().map(|function| controls.calls(function)).collect();
    for (function, calls) in functions.iter().zip(calls) {
        // Only some of the many calls that look up entry points.
        for nth in (1..=calls).filter(|nth| *nth < 20 || nth % 10 == 0) {
            for code in CODES {
                let what = format!("{function}@{nth}+:{code}");
                controls.reset("quiet");
                controls.inject(&what);
                for result in [session(), session()] {
                    if let Err(error) = result {
                        assert!(error.to_string().contains(&format!("({code})")), "{what}: {error}");
                        assert!(error.usable() || code == STICKY, "{what}: {error:?}");
                    }
                }
                assert_eq!(controls.complaints(), "", "{what}");
            }
        }
    }
    controls.reset("quiet");
    session().unwrap();
    nothing_left(controls, "after everything");
}
