//! `lockstep devices` and `lockstep verify --backend` on any machine: a missing device is reported, and is an
//! error only if it was requested.
#![cfg(feature = "model")]

use std::process::{Command, Output};

fn lockstep(arguments: &[&str], require: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(arguments).env("LOCKSTEP_REQUIRE", require).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn devices_lists_every_kind() {
    let output = lockstep(&["devices"], "");
    assert!(output.status.success());
    let text = text(&output);
    assert!(text.contains("cpu:plain") && text.contains(", the default"), "{text}");
    for kind in ["cuda", "rocm"] {
        let line = text.lines().find(|line| line.starts_with(kind)).unwrap_or_else(|| panic!("{text}"));
        // Either a device or a reason: the libraries tried, or the vendor's message and error code.
        let reason = ["could be loaded", "(", "version"].iter().any(|word| line.contains(word));
        assert!(line.contains(':') && reason, "{line}");
    }
}

#[test]
fn an_absent_backend_is_an_error_only_where_it_is_asked_for() {
    let quick = ["verify", "--random", "0", "--repeats", "1", "--streams", "1"];
    let all = lockstep(&quick, "");
    assert_eq!(all.status.code(), Some(0), "{}", text(&all));
    assert!(text(&all).contains("cuda"), "{}", text(&all));
    // Also a misspelt name.
    let required = lockstep(&quick, "cuda,cudda");
    assert_eq!(required.status.code(), Some(1), "{}", text(&required));
    assert!(text(&required).contains("MISSING cudda"), "{}", text(&required));
    if text(&all).contains("absent  cuda") {
        assert!(text(&required).contains("MISSING cuda "), "{}", text(&required));
        let named = lockstep(&["verify", "--backend", "cpu,cuda"], "");
        let message = String::from_utf8_lossy(&named.stderr).into_owned();
        assert_eq!(named.status.code(), Some(2), "{message}");
        assert!(message.contains("--backend cuda: ") && text(&named).is_empty(), "{message}");
    }
}
