//! The interface as C and C++ programs use it: installed by install.sh, compiled by the system's compiler.
//! `LOCKSTEP_CFLAGS` adds compiler flags (a sanitizer); `LOCKSTEP_REQUIRE` names a GPU backend on which the
//! batches run besides the CPU. capi/test.sh sets both.

use lockstep::columns::Column;
use lockstep::core::ragged::Out;
use lockstep::ops::exact::Limbs;
use lockstep::plan::{Calls, Capacity, CreditViews, DeviceRollouts};
use lockstep::{
    ColumnElement, Counts, Credit, Device, Element, Loss, Metrics, Outputs, Recipe, Rollouts, RolloutsBuf,
    for_each_column, recipe, synthetic,
};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs, thread};

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// The folder that everything is installed to.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capi-{}", devices()[0].replace(':', "-")));
        let tests = env::current_exe().unwrap();
        let mut command = Command::new("sh");
        command.arg(format!("{FOLDER}/install.sh")).arg(&prefix).arg(tests.parent().unwrap());
        succeeded(&mut command);
        prefix
    })
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Builds a source file of this folder as C or C++.
fn built(source: &str) -> PathBuf {
    let (prefix, source) = (prefix(), Path::new(source));
    let is_c = source.extension().is_some_and(|ending| ending == "c");
    let (compiler, or, standard) = if is_c { ("CC", "cc", "-std=c11") } else { ("CXX", "c++", "-std=c++17") };
    let program = prefix.join(source.file_name().unwrap()).with_extension("built");
    let lib = prefix.join("lib");
    let mut command = Command::new(env::var(compiler).unwrap_or_else(|_| or.into()));
    let strict = ["-Wall", "-Wextra", "-Wredundant-decls", "-Werror", "-pedantic"];
    command.current_dir(FOLDER).arg(standard).args(strict).args(["-O1", "-g"]);
    command
        .args(env::var("LOCKSTEP_CFLAGS").unwrap_or_default().split_whitespace())
        .arg("-I")
        .arg(prefix.join("include"));
    command.arg(source).arg("-o").arg(&program).arg("-L").arg(&lib).args(["-llockstep", "-ldl"]);
    succeeded(command.arg(format!("-Wl,-rpath,{}", lib.display())));
    program
}

fn bytes<T: ColumnElement>(values: &[T]) -> Vec<u8> {
    // SAFETY: numbers have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}

/// Name, element type and bytes of the returned arrays, in order.
type Arrays = Vec<(String, Element, Vec<u8>)>;

/// Adds an array, unless it is empty.
fn say<T: ColumnElement>(to: &mut Arrays, call: &str, name: &str, values: &[T]) {
    if !values.is_empty() {
        to.push((format!("{call}.{name}"), T::ELEMENT, bytes(values)));
    }
}

fn say_credit(to: &mut Arrays, call: &str, credit: &Credit) {
    say(to, call, "advantage", &credit.advantage);
    say(to, call, "returns", &credit.returns);
    say(to, call, "loss_mask", credit.loss_mask.as_deref().unwrap_or_default());
    say(to, call, "keep", &credit.keep);
    say(to, call, "weights", credit.weights.as_deref().unwrap_or_default());
    say(to, call, "mean", &credit.groups.mean);
    say(to, call, "std", &credit.groups.std);
    say(to, call, "counted", &credit.groups.counted);
    say(to, call, "status", &credit.groups.status);
    say(to, call, "pivot", &credit.groups.pivot);
    say(to, call, "role_values", &credit.state.role_values);
}

fn of_counts(counts: Counts) -> [u64; 3] {
    [counts.tokens, counts.nonempty, counts.sequences]
}

fn of_metrics(metrics: &Metrics) -> Vec<f64> {
    metrics.named().map(|(_, value)| value).collect()
}

fn say_loss(to: &mut Arrays, call: &str, loss: &Loss) {
    say(to, call, "coef", &loss.coef);
    say(to, call, "loss", &[loss.loss.unwrap()]);
    say(to, call, "row_loss", &loss.row_loss);
    say(to, call, "token_loss", &loss.token_loss);
    say(to, call, "counts", &of_counts(loss.counts));
    say(to, call, "metrics", &of_metrics(&loss.metrics.unwrap()));
    if let Some(entropy) = &loss.entropy {
        say(to, call, "entropy_coef", &entropy.coef);
        say(to, call, "entropy_loss", &[entropy.loss]);
        say(to, call, "entropy", &[entropy.entropy]);
    }
    if let Some(value) = &loss.value {
        say(to, call, "value_gradient", &value.gradient);
        say(to, call, "value_loss", &[value.loss]);
        say(to, call, "value_row_loss", &value.row_loss);
        say(to, call, "value_token_loss", &value.token_loss);
        say(to, call, "value_clip_fraction", &[value.clip_fraction]);
    }
}

/// The results that a plan leaves in its workspace, computed in Rust on the CPU.
fn say_plan(to: &mut Arrays, call: &str, recipe: &Recipe, rollouts: &Rollouts<'_>, credit: Option<&Credit>) {
    let (queue, batch) = (Device::cpu().queue().unwrap(), rollouts.batch().unwrap());
    let size = Capacity { tokens: batch.tokens(), sequences: batch.sequences(), groups: batch.groups() };
    let calls = if credit.is_some() { Calls::Loss } else { Calls::Both };
    let plan = recipe.plan_exactly(size, calls, Outputs::ALL).unwrap();
    let columns = DeviceRollouts::upload(&queue, rollouts, recipe.reads()).unwrap();
    let workspace = queue.upload(&vec![0; plan.workspace_bytes()]).unwrap();
    fn view<T: Copy>(values: &[T]) -> lockstep::core::ragged::In<'_, T> {
        lockstep::core::ragged::In::new(values)
    }
    let credit = credit.map(|credit| CreditViews {
        advantage: view(&credit.advantage),
        per_token: credit.per_token,
        loss_mask: credit.loss_mask.as_deref().map(view),
        weights: credit.weights.as_deref().map(view),
        returns: (!credit.returns.is_empty()).then(|| view(&credit.returns)),
    });
    // SAFETY: all memory outlives the run, and nobody else uses the workspace.
    unsafe {
        let into = Out::from_raw(workspace.as_ptr(), workspace.len());
        plan.enqueue_checked(&queue, &columns.views(), credit.as_ref(), (into, None)).unwrap();
    }
    let memory = queue.read(&workspace).unwrap();
    let result = |name: &str| {
        let slot = plan.slot(name)?;
        Some(memory[slot.offset..slot.offset + slot.len * slot.element.bytes()].to_vec())
    };
    for slot in plan.slots().iter().filter(|slot| slot.name != "alarm") {
        let own = memory[slot.offset..slot.offset + slot.len * slot.element.bytes()].to_vec();
        to.push((format!("{call}.{}", slot.name), slot.element, own));
    }
    if let (Some(sums), Some(maxima), Some(counts)) = (result("sums"), result("maxima"), result("counts")) {
        let sums: Vec<f64> = sums.as_chunks().0.iter().map(|x| f64::from_ne_bytes(*x)).collect();
        let maxima = [0, 4].map(|at| f32::from_ne_bytes(std::array::from_fn(|i| maxima[at + i])));
        let tokens = u64::from_ne_bytes(std::array::from_fn(|i| counts[i]));
        say(to, call, "metrics_of_sums", &of_metrics(&Metrics::new(tokens, &sums, maxima)));
    }
}

/// The output expected of tests/batches.c for a batch.
fn expected(recipe: &Recipe, rollouts: &Rollouts<'_>) -> Arrays {
    let (cpu, mut to) = (Device::cpu(), Arrays::new());
    let (credit, loss) = recipe.step(&cpu, rollouts).unwrap_or_else(|e| panic!("{}: {e}", recipe.name));
    say_credit(&mut to, "advantages", &credit);
    say_loss(&mut to, "loss", &loss);
    let totals = loss.totals();
    say(&mut to, "totals", "bytes", &totals.to_bytes());
    let limbs: Vec<u64> = totals.to_limbs().0.iter().map(|limb| limb.cast_unsigned()).collect();
    say(&mut to, "totals", "limbs", &limbs);
    say(&mut to, "totals", "loss", &[totals.loss().unwrap()]);
    say(&mut to, "totals", "counts", &of_counts(totals.counts()));
    say(&mut to, "totals", "metrics", &of_metrics(&totals.metrics().unwrap()));
    say_loss(&mut to, "loss_into", &loss);
    say_credit(&mut to, "step", &credit);
    say_loss(&mut to, "step", &loss);
    say_plan(&mut to, "plan", recipe, rollouts, None);
    say_plan(&mut to, "plan_of_loss", recipe, rollouts, Some(&credit));
    to
}

/// Encodes a batch as tests/batches.c reads it.
fn batch(name: &str, rollouts: &RolloutsBuf) -> Vec<u8> {
    let (mut columns, mut count) = (Vec::new(), 0_u32);
    macro_rules! each {
        ($($column:ident: $own:ty, $shape:ident, $meaning:literal, $from:literal;)*) => {
            $(if let Some(values) = &rollouts.$column {
                count += 1;
                columns.extend((Column::$column as u32).to_ne_bytes());
                columns.extend((values.len() as u64).to_ne_bytes());
                columns.extend(bytes(values));
            })*
        };
    }
    for_each_column!(each);
    [&(name.len() as u32).to_ne_bytes(), name.as_bytes(), &count.to_ne_bytes(), &columns].concat()
}

/// Parses the output of tests/batches.c.
fn written(mut bytes: &[u8]) -> Arrays {
    let mut arrays = Arrays::new();
    let mut take = |count: usize| {
        let (own, rest) = bytes.split_at_checked(count).unwrap_or((bytes, &[]));
        bytes = rest;
        own.to_vec()
    };
    let number = |bytes: Vec<u8>| bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
    const { assert!(cfg!(target_endian = "little")) };
    loop {
        let length = take(4);
        if length.is_empty() {
            return arrays;
        }
        let name = String::from_utf8(take(number(length))).unwrap();
        let element = [Element::U8, Element::U32, Element::U64, Element::F32, Element::F64][number(take(4))];
        let len = number(take(8));
        arrays.push((name, element, take(len * element.bytes())));
    }
}

/// Runs a program on its input.
fn fed(program: &Path, arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    feeder.join().unwrap().unwrap();
    output.stdout
}

/// The devices to run on.
fn devices() -> Vec<String> {
    match env::var("LOCKSTEP_REQUIRE") {
        Ok(backend) if backend != "cpu" => vec![format!("{backend}:0")],
        _ => vec!["cpu".into()],
    }
}

#[test]
fn every_recipe_gives_rusts_bytes() {
    let program = built("tests/batches.c");
    let sizes = [(8, 64), (13, 230)];
    for device in devices() {
        // Each batch runs on its own, so that a failure names it. A GPU gets few batches, because an emulator
        // is slow.
        let seeds = if device == "cpu" { 1..=2 } else { 1..=1 };
        let (mut input, mut want, mut of) = (Vec::new(), Arrays::new(), Vec::new());
        for (seed, name) in seeds.flat_map(|seed| recipe::names().iter().map(move |name| (seed, name))) {
            let recipe = Recipe::named(name).unwrap();
            let (sequences, tokens) = sizes[seed - 1];
            let rollouts = synthetic::rollouts(&recipe, sequences, tokens, seed as u64).unwrap();
            input.extend(batch(name, &rollouts));
            want.extend(expected(&recipe, &rollouts.view()));
            of.resize(want.len(), name);
        }
        let got = written(&fed(&program, &[&device], input));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(
                got == want,
                "{device}: {}: {} {:?}: {:?}\n{} {:?}: {:?}",
                of[i],
                got.0,
                got.1,
                got.2,
                want.0,
                want.1,
                want.2
            );
        }
        assert_eq!(got.len(), want.len(), "{device}: arrays");
        println!("{device}: {} arrays of {} recipes", got.len(), recipe::names().len());
    }
}

/// The examples' expected output.
fn printed() -> String {
    let logp_old = [-0.5_f32, -1.0, -0.25, -2.0, -0.375, -0.875, -1.125, -0.5, -0.625, -0.125];
    let (device, recipe) = (Device::cpu(), Recipe::named("dapo").unwrap());
    let mut out = String::new();
    for factor in [1.0, 0.75] {
        let logp = logp_old.map(|x| x * factor);
        let rollouts = Rollouts {
            rewards: Some(&[1.0, 0.0, 0.0, 1.0]),
            logp_old: Some(&logp_old),
            logp: Some(&logp),
            ..Rollouts::new(&[0, 3, 5, 7, 10], &[0, 2, 4])
        };
        let (_, loss) = recipe.step(&device, &rollouts).unwrap();
        let coef: Vec<String> = loss.coef.iter().map(|x| format!(" {:08x}", x.to_bits())).collect();
        out += &format!("loss {:016x}\ncoef{}\n", loss.loss.unwrap().to_bits(), coef.concat());
    }
    out
}

fn prints(program: &Path, arguments: &[&str]) -> String {
    let output = succeeded(Command::new(program).args(arguments));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_print_rusts_bits() {
    assert_eq!(prints(&built("examples/step.c"), &[]), printed());
    assert_eq!(prints(&built("examples/step.cpp"), &[]), printed());
    let device = built("examples/device.c");
    for name in devices().iter().map(String::as_str).chain(["cpu"]) {
        assert_eq!(prints(&device, &[name]), printed(), "{name}");
    }
}

/// Extracts the README's example from its code fences.
#[test]
fn the_readme_compiles_and_runs() {
    let readme = fs::read_to_string(format!("{FOLDER}/README.md")).unwrap();
    let source = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let file = prefix().join("readme.c");
    fs::write(&file, source).unwrap();
    let batch = Rollouts {
        rewards: Some(&[1.0, 0.0]),
        logp_old: Some(&[-0.5, -1.0, -0.25, -2.0]),
        logp: Some(&[-0.5, -1.0, -0.25, -2.0]),
        ..Rollouts::new(&[0, 2, 4], &[0, 2])
    };
    let (_, loss) = Recipe::named("grpo").unwrap().step(&Device::cpu(), &batch).unwrap();
    let said = prints(&built(file.to_str().unwrap()), &[]);
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Nine digits are enough for any `float`.
    assert_eq!((numbers[0], numbers[1] as f32), (loss.loss.unwrap(), loss.coef[0]), "{said}");
}

#[test]
fn wrong_calls_are_statuses() {
    let said = prints(&built("tests/wrong.c"), &[]);
    println!("{said}");
    assert!(said.ends_with(" wrong calls, each a status\n"), "{said}");
}

/// Every column lies at the offset that the library reports, and the C++ wrapper covers every entry point.
#[test]
fn columns_lie_where_the_library_says() {
    let columns: String = Column::ALL.iter().map(|column| format!("COLUMN({})\n", column.name())).collect();
    fs::write(prefix().join("include/columns.inc"), columns).unwrap();
    assert_eq!(prints(&built("tests/layout.c"), &[]), format!("{} columns\n", Column::ALL.len()));
    assert_eq!(prints(&built("tests/wrapper.cpp"), &[]), "the wrapper does what the calls do\n");
}
