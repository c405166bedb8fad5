//! Files that are not this program's own, concurrent processes, and full disks.
#![cfg(all(feature = "model", unix))]

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TINY: &str = "--task addition:1 --seed 3 --prompts 4 --group 4 --minibatches 2 --warm-updates 3 \
                    --warm-target 0.9 --measure 8 --layers 1 --width 4 --experts 1 --top-k 1 --threads 1";

fn lockstep(at: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockstep"));
    command.args(arguments.split_whitespace()).current_dir(at).stdout(Stdio::null());
    command
}

fn fine(at: &Path, arguments: &str) {
    let output = lockstep(at, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", said(&output));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that the program refused, and returns its message.
fn refused(what: &str, output: &Output) -> String {
    let message = said(output);
    assert_eq!(output.status.code(), Some(2), "{what}: {message}");
    assert!(!message.contains("panicked"), "{what}: {message}");
    message
}

fn lines(at: &Path) -> usize {
    fs::read(at.join("metrics.jsonl")).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count()
}

/// Waits until a run has written more than `least` lines.
fn wait_for_lines(run: &mut Child, at: &Path, least: usize) {
    let start = Instant::now();
    while lines(at) <= least {
        assert!(start.elapsed() < Duration::from_secs(120) && run.try_wait().unwrap().is_none(), "no step");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill(mut run: Child) {
    run.kill().unwrap();
    run.wait().unwrap();
}

fn names(at: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_run_folder_has_one_process() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    let folder = at.join("run");
    let mut first = lockstep(at, &format!("train {TINY} --steps 100000 --out run")).spawn().unwrap();
    wait_for_lines(&mut first, &folder, 0);
    let message = refused("resume", &lockstep(at, "train --resume run").output().unwrap());
    assert!(message.contains(&format!("run is in use by another process (id {})", first.id())), "{message}");
    // A run without a checkpoint yet is in use all the same.
    fs::create_dir(at.join("new")).unwrap();
    let held = fs::File::create(at.join("new/.lock")).unwrap();
    held.lock().unwrap();
    fs::write(at.join("new/.lock"), "4711\n").unwrap();
    for command in [format!("train {TINY} --out new"), "study R3 --out new".to_owned()] {
        let message = refused(&command, &lockstep(at, &command).output().unwrap());
        assert!(message.contains("new is in use by another process (id 4711)"), "{message}");
    }
    assert_eq!(names(&at.join("new")), [".lock"]);

    kill(first);
    let done = lines(&folder);
    let mut second = lockstep(at, "train --resume run").spawn().unwrap();
    wait_for_lines(&mut second, &folder, done);
    kill(second);
}

#[test]
fn only_regular_files_are_replaced() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fine(at, &format!("train {TINY} --steps 1 --warm-steps 1 --out run --dump-rollouts dump"));
    let rollouts = "dump/rollouts-000001.safetensors";
    let run = ["checkpoint.safetensors", "metrics.jsonl", "timings.jsonl", "report.html", ".lock"];
    type Make = fn(&Path);
    let kinds: [(&str, Make); 5] = [
        ("a folder", |path| fs::create_dir(path).unwrap()),
        ("a named pipe", |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
        ("a socket", |path| drop(UnixListener::bind(path).unwrap())),
        ("a symbolic link", |path| symlink("/dev/null", path).unwrap()),
        ("a symbolic link", |path| symlink("kept", path).unwrap()),
    ];
    let refuse = |command: &str, path: &Path, kind: &str| {
        let before = fs::symlink_metadata(path).unwrap().file_type();
        let message = refused(command, &lockstep(at, command).output().unwrap());
        assert!(message.contains(kind), "{command}: {message}");
        assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{command}: {message}");
        assert_eq!(fs::symlink_metadata(path).unwrap().file_type(), before, "{command}");
    };
    let outputs = |output: &str| {
        [
            format!("score {rollouts} --recipe grpo -o {output}"),
            format!("rollouts --like grpo -o {output}"),
            format!("tree {rollouts} -o {output}"),
        ]
    };
    for command in outputs("/dev/null") {
        refuse(&command, Path::new("/dev/null"), "it is a device");
    }
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    for (number, (kind, make)) in kinds.into_iter().enumerate() {
        let place = at.join(format!("place-{number}"));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("kept"), "kept").unwrap();
        make(&place.join("out"));
        let kind_is = &format!("it is {kind}");
        for command in outputs(&format!("place-{number}/out")) {
            refuse(&command, &place.join("out"), kind_is);
        }
        // A dump over existing files, and over files of the run itself: a new run and a resumed one.
        make(&place.join("rollouts-000001.safetensors"));
        let command = format!(
            "train {TINY} --steps 1 --warm-steps 1 --out dumps-{number} --dump-rollouts place-{number}"
        );
        refuse(&command, &place.join("rollouts-000001.safetensors"), kind_is);
        for name in run {
            let folder = format!("{name}-{number}");
            fs::create_dir(at.join(&folder)).unwrap();
            make(&at.join(&folder).join(name));
            let expected = if name != ".lock" { "exists" } else { kind_is };
            refuse(&format!("train {TINY} --out {folder}"), &at.join(&folder).join(name), expected);
            assert_eq!(names(&at.join(&folder)), [name]);
            for other in run.iter().filter(|other| **other != name) {
                fs::copy(at.join("run").join(other), at.join(&folder).join(other)).unwrap();
            }
            let expected = if name == run[0] { "cannot resume" } else { kind_is };
            refuse(&format!("train --resume {folder}"), &at.join(&folder).join(name), expected);
        }
        fs::create_dir(at.join(format!("study-{number}"))).unwrap();
        let lines = at.join(format!("study-{number}/study.json"));
        make(&lines);
        refuse(&format!("study R3 --out study-{number}"), &lines, kind_is);
        assert_eq!(fs::read(place.join("kept")).unwrap(), b"kept");
    }
}

#[test]
fn a_new_run_cuts_nothing() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fs::create_dir(at.join("mine")).unwrap();
    for name in ["metrics.jsonl", "timings.jsonl", "report.html"] {
        fs::write(at.join("mine").join(name), "mine\n").unwrap();
        let message = refused(name, &lockstep(at, &format!("train {TINY} --out mine")).output().unwrap());
        assert!(message.contains(&format!("mine/{name}")) && message.contains("--out"), "{message}");
        assert_eq!(fs::read(at.join("mine").join(name)).unwrap(), b"mine\n");
        assert_eq!(names(&at.join("mine")), [name]);
        fs::remove_file(at.join("mine").join(name)).unwrap();
    }
    // A resumed run does not overwrite it either: what it cannot continue stays as it is, and nothing is
    // created.
    fine(at, &format!("train {TINY} --steps 1 --warm-steps 1 --out run"));
    fs::remove_file(at.join("run/timings.jsonl")).unwrap();
    fs::write(at.join("run/metrics.jsonl"), "mine\n").unwrap();
    let before = names(&at.join("run"));
    assert!(refused("run", &lockstep(at, "train --resume run").output().unwrap()).contains("metrics.jsonl"));
    assert_eq!((names(&at.join("run")), lines(&at.join("run"))), (before, 1));
    fs::remove_file(at.join("run/metrics.jsonl")).unwrap();
    assert!(refused("run", &lockstep(at, "train --resume run").output().unwrap()).contains("0 lines"));
    assert!(!at.join("run/metrics.jsonl").exists());
}

#[test]
fn a_metric_that_is_no_number_takes_no_report_away() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fine(at, &format!("train {TINY} --steps 2 --warm-steps 1 --out run"));
    // What is written for an infinite ratio.
    let path = at.join("run/metrics.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let (before, after) = text.split_once("\"ratio_max\":").unwrap();
    let rest = after.split_once(',').unwrap().1;
    fs::write(&path, format!("{before}\"ratio_max\":null,{rest}")).unwrap();
    fs::remove_file(at.join("run/report.html")).unwrap();
    fine(at, "train --resume run");
    let page = fs::read_to_string(at.join("run/report.html")).unwrap();
    assert!(page.ends_with("</html>\n") && !page.contains("NaN"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_under_stdout_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fine(at, &format!("train {TINY} --steps 1 --warm-steps 1 --out run --dump-rollouts dump"));
    for command in [
        "--help",
        "--version",
        "score --help",
        "score dump/rollouts-000001.safetensors --recipe grpo -o out",
        "rollouts --like grpo -o out",
        "tree dump/rollouts-000001.safetensors",
        "explain dapo",
        "explain dapo --toml",
        "list --names",
        "list",
        "devices",
        "study list",
        "train --resume run",
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let message = refused(command, &lockstep(at, command).stdout(full).output().unwrap());
        assert!(message.contains("cannot write to stdout: No space left"), "{command}: {message}");
        // A reader that is gone.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = lockstep(at, command).stdout(writer).output().unwrap();
        assert!(output.status.success(), "{command}: {}", said(&output));
    }
}

#[test]
fn an_input_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fine(at, "rollouts --like tempo -o rollouts");
    fs::write(at.join("mine.toml"), "extends = \"grpo\"\n").unwrap();
    fs::create_dir(at.join("folder")).unwrap();
    symlink("rollouts", at.join("link")).unwrap();
    symlink("..", at.join("folder/up")).unwrap();
    let files = ["rollouts", "mine.toml"].map(|name| (name, fs::read(at.join(name)).unwrap()));
    for command in [
        "score rollouts --recipe grpo -o rollouts",
        "score link --recipe grpo -o rollouts",
        "score rollouts --recipe grpo -o folder/up/rollouts",
        "score rollouts --recipe mine.toml -o ./mine.toml",
        "tree rollouts -o ./rollouts",
        "rollouts --like mine.toml -o mine.toml",
    ] {
        let message = refused(command, &lockstep(at, command).output().unwrap());
        assert!(message.contains("it is also the input: expected another file"), "{command}: {message}");
        for (name, bytes) in &files {
            assert_eq!(&fs::read(at.join(name)).unwrap(), bytes, "{command}");
        }
    }
}

#[test]
fn a_folder_for_rollouts_that_cannot_be_used_leaves_no_run() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    fs::write(at.join("file"), "").unwrap();
    let train = format!("train {TINY} --steps 1 --warm-steps 1 --out run --dump-rollouts");
    for dump in ["file", "file/dump", "/proc"] {
        let message = refused(dump, &lockstep(at, &format!("{train} {dump}")).output().unwrap());
        assert!(message.contains(dump), "{message}");
        assert_eq!(names(at), ["file"], "{dump}");
    }
    fine(at, &format!("{train} dump"));
}

#[test]
fn a_live_report_refreshes_itself_until_the_run_ends() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    let page = |folder: &str| fs::read_to_string(at.join(folder).join("report.html")).unwrap();
    let refresh = "<meta http-equiv=\"refresh\"";
    let train = format!("train {TINY} --dump-rollouts dump --device cpu --report-live --out");
    // A first run, then its continuation: each writes a page after its first step, and one when stopped.
    for (command, progress) in [
        (format!("{train} run --warm-steps 1 --steps 100000"), " · running: "),
        (
            "train --resume run --dump-rollouts dump --report-live --threads 1 --device cpu".to_owned(),
            " of 100000<",
        ),
    ] {
        let before = lines(&at.join("run"));
        let mut run = lockstep(at, &command).stdout(Stdio::piped()).spawn().unwrap();
        wait_for_lines(&mut run, &at.join("run"), before + 1);
        let first = page("run");
        assert!(first.contains(refresh) && first.contains(progress) && first.ends_with("</html>\n"));
        assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(!page("run").contains(refresh));
        // How to continue, with every option that a checkpoint does not hold.
        let again = "--resume run --dump-rollouts dump --report-live --threads 1 --device cpu\n";
        assert!(String::from_utf8_lossy(&output.stdout).ends_with(again), "{output:?}");
    }
    // Nothing of it stays: without the flag the same steps give the same page.
    fine(at, &format!("train {TINY} --report-live --out done --warm-steps 1 --steps 2"));
    let live = page("done");
    assert!(!live.contains(refresh) && !live.contains("running"));
    fine(at, "train --resume done");
    assert_eq!(page("done"), live);
}

/// The command with file sizes limited to `blocks` blocks, which from inside looks like a full disk: a
/// partial write, then an error.
fn limited(at: &Path, blocks: usize, program: &str, arguments: &str) -> Output {
    let limit = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(limit).arg(program).args(arguments.split_whitespace()).current_dir(at);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap()
}

/// The block size in bytes, which varies between shells.
fn block(at: &Path) -> usize {
    let zeros = limited(at, 1, "dd", "if=/dev/zero of=block bs=4096 count=1");
    assert!(!zeros.status.success());
    fs::metadata(at.join("block")).unwrap().len() as usize
}

fn unfinished(at: &Path) -> Vec<String> {
    names(at).into_iter().filter(|name| name.starts_with(".unfinished")).collect()
}

#[test]
fn a_full_disk_takes_nothing_away() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path();
    let files = |folder: &str| {
        ["checkpoint.safetensors", "metrics.jsonl"].map(|name| fs::read(at.join(folder).join(name)).unwrap())
    };
    let train = format!("train {TINY} --warm-steps 2 --steps 90");
    let block = block(at);
    let limited =
        |bytes: usize, arguments: &str| limited(at, bytes / block, env!("CARGO_BIN_EXE_lockstep"), arguments);
    fine(at, &format!("{train} --out whole --dump-rollouts dump"));
    let expected = files("whole");
    let report = fs::read(at.join("whole/report.html")).unwrap().len();
    let [checkpoint, metrics] = [expected[0].len(), expected[1].len()];
    // The checkpoint grows when the warm start ends, then the metrics outgrow it, then the report outgrows
    // both.
    assert!(checkpoint < metrics * 3 / 4 && metrics < report, "{checkpoint}, {metrics}, {report}");

    for (folder, room, file) in [
        ("checkpoint", checkpoint * 9 / 10, "checkpoint.safetensors"),
        ("metrics", checkpoint + (metrics - checkpoint) / 2, "metrics.jsonl"),
        ("report", metrics + (report - metrics) / 2, "report.html"),
    ] {
        let message = refused(folder, &limited(room, &format!("{train} --out {folder}")));
        assert!(message.contains(&format!("{folder}/{file}: File too large")), "{message}");
        let [checkpoint, metrics] = files(folder);
        assert_eq!((unfinished(&at.join(folder)), metrics.last()), (vec![], Some(&b'\n')), "{folder}");
        assert!(expected[1].starts_with(&metrics));
        // A second failing attempt changes no byte.
        let message = refused(folder, &limited(room, &format!("train --resume {folder}")));
        assert!(message.contains(file), "{message}");
        assert_eq!(files(folder), [checkpoint, metrics], "{folder}");
        fine(at, &format!("train --resume {folder}"));
        assert_eq!(files(folder), expected, "{folder}");
        assert!(at.join(folder).join("report.html").exists());
    }
    assert!(refused("dump", &limited(block, &format!("{train} --out few"))).contains("few/checkpoint"));

    for command in [
        "score dump/rollouts-000001.safetensors --recipe grpo -o out",
        "rollouts --like grpo -o out",
        "tree dump/rollouts-000001.safetensors -o out",
    ] {
        fs::write(at.join("out"), "before").unwrap();
        let message = refused(command, &limited(block, command));
        assert!(message.contains("cannot write out: File too large"), "{command}: {message}");
        assert_eq!(fs::read(at.join("out")).unwrap(), b"before");
        assert!(unfinished(at).is_empty());
        fine(at, command);
    }
}
