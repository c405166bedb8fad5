//! LLVM's disassemblers, where installed. With `LOCKSTEP_REQUIRE_LLVM` in the environment, they must be.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Returns a tool's standard output and error when it reads `input`; `None` if it is not installed.
pub(crate) fn run(names: &[&str], arguments: &[&str], input: &[u8]) -> Option<(String, String)> {
    for name in names {
        let piped = Stdio::piped;
        let spawned =
            Command::new(name).args(arguments).stdin(piped()).stdout(piped()).stderr(piped()).spawn();
        let Ok(mut child) = spawned else { continue };
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (output, errors) = (text(output.stdout), text(output.stderr));
        // The `llvm` of Debian 12 is LLVM 14, which does not know the processor.
        if ["is not a recognized processor", "can't find target"].iter().any(|said| errors.contains(said)) {
            continue;
        }
        return Some((output, errors));
    }
    let absent = format!("none of {names:?} is installed and knows gfx942");
    assert!(std::env::var_os("LOCKSTEP_REQUIRE_LLVM").is_none(), "{absent}");
    eprintln!("skipped: {absent}");
    None
}

/// Separates two encodings, three times: what LLVM reads from the rest of an invalid encoding may swallow the
/// first.
const MARKER: &str = "s_sethalt 0x1234";
const MARKER_BYTES: &str = "0x34,0x12,0x8d,0xbf\n";
const MARKERS: usize = 3;

/// Returns LLVM's text of each encoding, or `None` if it is not one whole valid instruction.
pub(crate) fn disassemble(encodings: &[Vec<u32>]) -> Option<Vec<Option<String>>> {
    let mut input = String::new();
    for words in encodings {
        let bytes: Vec<String> =
            words.iter().flat_map(|w| w.to_le_bytes()).map(|b| format!("{b:#04x}")).collect();
        input += &format!("{}\n{}", bytes.join(","), MARKER_BYTES.repeat(MARKERS));
    }
    let arguments = ["--disassemble", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942"];
    let (output, errors) = run(&["llvm-mc-19", "llvm-mc"], &arguments, input.as_bytes())?;
    let lines: Vec<String> =
        output.lines().map(plain).filter(|line| !line.is_empty() && !line.starts_with('.')).collect();
    let mut texts = Vec::new();
    let mut rest = lines.as_slice();
    while !rest.is_empty() {
        let instructions = rest.iter().take_while(|line| *line != MARKER).count();
        let markers = rest[instructions..].iter().take_while(|line| *line == MARKER).count();
        texts.push(
            (instructions == 1 && markers.is_multiple_of(MARKERS) && !rest[0].contains("/*"))
                .then(|| rest[0].clone()),
        );
        // More markers mean that the next encodings print nothing.
        texts.resize(texts.len() + markers.div_ceil(MARKERS) - 1, None);
        rest = &rest[instructions + markers..];
    }
    assert_eq!(texts.len(), encodings.len());
    // LLVM continues after half of an invalid encoding: `<stdin>:5:1: warning: invalid instruction encoding`.
    for warning in errors.lines().filter(|line| line.contains("warning: ")) {
        let line: usize = warning.split(':').nth(1).unwrap().parse().unwrap();
        texts[(line - 1) / (1 + MARKERS)] = None;
    }
    Some(texts)
}

/// Reduces blanks to one and drops comments.
pub(crate) fn plain(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
