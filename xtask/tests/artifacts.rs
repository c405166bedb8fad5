//! The committed artifacts satisfy every rule, and faults planted into them are detected. The tests read text
//! and need neither toolchain nor GPU.

use std::collections::BTreeSet;
use std::path::Path;
use xtask::artifacts::{Artifacts, folder};
use xtask::{Fault, blocks, code_object, entries, gfx942, ptx, resources, speed};

fn committed() -> Artifacts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    Artifacts::read(&folder(&root)).expect("`cargo xtask artifacts` writes them")
}

/// The text with an extra line `what` before each line that `before` picks.
fn planted(text: &str, what: &str, before: impl Fn(&str) -> bool) -> String {
    let line = |line: &str| if before(line) { format!("{what}\n{line}\n") } else { format!("{line}\n") };
    text.lines().map(line).collect()
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

/// The entry points named by a list of faults.
fn named(faults: &[Fault]) -> BTreeSet<&str> {
    faults.iter().map(|fault| &fault.entry[..]).collect()
}

/// Whether the entry point is one of `ops`.
fn is_of(entry: &str, ops: &[&str]) -> bool {
    ops.iter().any(|op| entry.starts_with(op))
}

#[test]
fn they_keep_every_rule() {
    let faults = committed().faults().expect("artifacts that can be read");
    assert_eq!(faults, [], "{}", faults.iter().map(|fault| format!("\n{fault}")).collect::<String>());
}

#[test]
fn the_rules_have_something_to_look_at() {
    let artifacts = committed();
    assert!(entries().len() >= 120 && blocks().len() >= 100);
    assert!(count(&artifacts.ptx, "bar.sync") >= 200 && count(&artifacts.ptx, "st.shared") > 1000);
    assert!(count(&artifacts.ptx, "shfl.sync") > 500 && count(&artifacts.ptx, "fma.rn.f32") > 1000);
    assert!(count(&artifacts.listing, "v_div_fixup") > 20 && count(&artifacts.listing, "v_rsq_f64") >= 1);
    let rows = resources::from_csv(&artifacts.resources).expect("a table");
    assert!(rows.iter().filter(|row| row.ptx_fused[0] > 0).count() >= 16);
    // An NVIDIA lane has four columns and an AMD lane two, hence half the multiply-adds from the same source;
    // what is computed once per row occurs once in both. On NVIDIA a row of one array has a loop over four
    // chunks at once beside that: 4 · 4 + 4 and one for the end, where AMD has 2 and one.
    let one_array = ["logits_statistics", "logits_gradient", "vocab_parallel_sums", "otr_", "gating_"];
    // A scan takes four blocks at once, and beside that one.
    let scan = ["draw_tokens"];
    for row in rows {
        let of_scan = if is_of(&row.entry, &scan) { 5 } else { 2 };
        let most = if is_of(&row.entry, &one_array) { 7 } else { of_scan };
        let ([ptx, of_ptx], [gfx942, of_gfx942]) = (row.ptx_fused, row.gfx942_fused);
        assert!(gfx942 <= ptx && ptx <= most * gfx942, "{}: {ptx} and {gfx942}", row.entry);
        // A block has the loop over one chunk alone.
        let [block, of_block] = row.block_fused;
        let has = row.block[0].registers > 0;
        assert_eq!(has, blocks().contains(&&format!("{}_block", row.entry)[..]), "{}", row.entry);
        assert!(!has || (gfx942 <= block && block <= ptx), "{}: {ptx}, a block {block}", row.entry);
        assert_eq!(of_block, 0, "{}", row.entry);
        // Formulas have none in binary64; AMD has two for each quotient and root, whose result the remainder
        // settles.
        assert!(of_ptx == 0 && of_gfx942 % 2 == 0, "{}: {of_ptx} and {of_gfx942}", row.entry);
        assert!(row.ptx.iter().all(|used| used.registers > 0) && row.gfx942[0] > 0, "{}", row.entry);
    }
}

#[test]
fn a_kernel_too_few_or_too_many_is_seen() {
    let good = committed();
    for (entry, other) in [("kl_k3", "kl_k5"), ("aggregate", "agreggate")] {
        let mut artifacts = good.clone();
        artifacts.ptx = good.ptx.replace(&format!(".entry {entry}("), &format!(".entry {other}("));
        artifacts.listing = good.listing.replace(&format!("<{entry}>:"), &format!("<{other}>:"));
        artifacts.resources = good.resources.replace(&format!(",{entry},"), &format!(",{other},"));
        artifacts.speed = good.speed.replace(&format!(",{entry},"), &format!(",{other},"));
        let faults = artifacts.faults().expect("artifacts that can be read");
        for of in ["PTX", "listing", "resource table", "speed table"] {
            assert_eq!(faults.iter().filter(|fault| fault.what.ends_with(of)).count(), 2, "{of}: {faults:?}");
        }
    }
}

#[test]
fn a_shuffle_beside_any_store_is_seen() {
    // A store is where lanes have diverged: either one lane writes, or each writes its own element. All lanes
    // store together only in loops over whole chunks, where each stores its four columns, of one chunk
    // or of up to four at once.
    let at_once = ["gating_backward", "logits_gradient", "otr_", "sequence_weight", "whiten"];
    let text = committed().ptx;
    let shuffle = "	shfl.sync.bfly.b32 	%r1, %r1, 16, 31, -1;";
    let bad = planted(&text, shuffle, |line| line.contains("st.global"));
    let faults = ptx::check(&ptx::parse(&bad).expect("PTX"));
    let parted = faults.iter().filter(|fault| fault.what.contains("lanes have parted"));
    let parted: BTreeSet<usize> = parted.map(|fault| fault.line).collect();
    assert!(count(&text, "st.global") >= 200);
    let (mut entry, mut chunks, mut seen, mut together) = ("", false, 0, 0);
    for (i, line) in bad.lines().chain([".visible .entry end("]).enumerate() {
        if line.contains(".entry ") {
            assert_eq!(together % 4, 0, "{entry}: {together} stores by all lanes");
            let most = if is_of(entry.trim_start_matches(".visible .entry "), &at_once) { 20 } else { 4 };
            assert!(
                together == 0 || (chunks && most * seen >= together),
                "{entry}: {together} by all, {seen} seen"
            );
            (entry, chunks, seen, together) = (line, false, 0, 0);
        }
        chunks |= line.contains("bar.warp.sync");
        if line == shuffle {
            *(if parted.contains(&(i + 1)) { &mut seen } else { &mut together }) += 1;
        }
    }
    assert_eq!(named(&faults).len(), entries().len() + blocks().len());
}

#[test]
fn a_barrier_beside_any_store_is_seen() {
    // Whole chunks are stored by warps that have one left, all else by lanes or by the first warp.
    let barrier = "	bar.sync 	0;";
    let (mut text, mut block) = (String::new(), false);
    for line in committed().ptx.lines() {
        block = if line.contains(".entry ") { line.contains("_block(") } else { block };
        if block && line.contains("st.global") {
            text += barrier;
            text.push('\n');
        }
        text += line;
        text.push('\n');
    }
    let faults = ptx::check(&ptx::parse(&text).expect("PTX"));
    let seen: BTreeSet<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(seen.len(), count(&text, barrier) - count(&committed().ptx, barrier));
    assert!(faults.iter().all(|fault| fault.what.contains("have parted")), "{faults:?}");
    assert_eq!(named(&faults), blocks().into_iter().collect());
}

#[test]
fn arithmetic_of_another_kind_is_seen_in_every_kernel() {
    let artifacts = committed();
    let end = |line: &str| line.trim() == "ret;";
    for bad in ["	mul.f32 	%r1, %r2, %r3;", "	ex2.approx.ftz.f32 	%r1, %r2;", "	st.local.b32 	[%rd1], %r2;"] {
        let faults = ptx::check(&ptx::parse(&planted(&artifacts.ptx, bad, end)).expect("PTX"));
        assert_eq!(named(&faults).len(), entries().len() + blocks().len(), "{bad}");
    }
    let end = |line: &str| line.trim() == "s_endpgm";
    for bad in
        ["	v_exp_f32_e32 v1, v2", "	v_rcp_f32_e32 v1, v2", "	scratch_store_dword off, v1, s32", "	s_trap 2"]
    {
        let listed = gfx942::parse(&planted(&artifacts.listing, bad, end)).expect("a listing");
        assert_eq!(named(&gfx942::check(&listed)).len(), entries().len(), "{bad}");
    }
}

#[test]
fn a_contraction_is_seen_in_every_kernel() {
    let good = committed();
    let mut bad = good.clone();
    bad.ptx = planted(&good.ptx, "	fma.rn.f32 	%r1, %r2, %r3, %r1;", |line| line.trim() == "ret;");
    let mut faults = bad.faults().expect("artifacts that can be read");
    // It also writes a register on which some kernels branch.
    faults.retain(|fault| fault.what.contains("fused"));
    assert_eq!(named(&faults).len(), entries().len(), "{faults:?}");
    let mut bad = good.clone();
    bad.listing = planted(&good.listing, "	v_fmac_f32_e32 v1, v2, v3", |line| line.trim() == "s_endpgm");
    let faults = bad.faults().expect("artifacts that can be read");
    assert_eq!(named(&faults).len(), entries().len(), "{faults:?}");
}

#[test]
fn another_float_mode_or_another_object_is_seen() {
    let good = committed();
    let kernels = code_object::kernels(&good.object).expect("a code object");
    assert_eq!(kernels.len(), entries().len());
    // The float-mode word occurs in every descriptor: flush binary32's denormals in all of them.
    let mode = kernels.values().next().expect("a kernel").mode;
    assert_eq!(mode, code_object::Mode::WANTED);
    let mut flushed = good.object.clone();
    let mut changed = 0;
    for at in (0..flushed.len() - 64).step_by(64) {
        // Descriptors are aligned to 64 bytes; theirs is the only such word at offset 48.
        let word = u32::from_le_bytes(flushed[at + 48..at + 52].try_into().expect("four bytes"));
        if word >> 12 == 0xaf0 && flushed[at + 8..at + 12] == 712u32.to_le_bytes() {
            flushed[at + 50] &= 0xfc;
            changed += 1;
        }
    }
    assert_eq!(changed, entries().len());
    let kernels = code_object::kernels(&flushed).expect("a code object");
    assert_eq!(code_object::check(&kernels).len(), entries().len());
}

#[test]
fn a_table_of_other_artifacts_is_seen() {
    let good = committed();
    let mut bad = good.clone();
    // One more vector register for every kernel.
    let mut rows = resources::from_csv(&good.resources).expect("a table");
    rows.iter_mut().for_each(|row| row.gfx942[0] += 1);
    bad.resources = resources::csv(&rows);
    assert_eq!(named(&bad.faults().expect("artifacts that can be read")).len(), entries().len());
    // The Markdown table matches the CSV table.
    let rows = resources::from_csv(&good.resources).expect("a table");
    assert_eq!(resources::markdown(&rows), good.tables);
    assert_eq!(resources::csv(&rows), good.resources);
    let rows = speed::from_csv(&good.speed).expect("a table");
    assert_eq!(speed::markdown(&rows), good.costs);
    assert_eq!(speed::csv(&rows), good.speed);
}

#[test]
fn nothing_in_them_tells_where_they_were_built() {
    let Artifacts { ptx, object, listing, resources, tables, speed, costs, record, packed: _ } = committed();
    let object = String::from_utf8_lossy(&object).into_owned();
    for text in [ptx, object, listing, resources, tables, speed, costs, record] {
        for path in ["/work", "/home", "/root", "/tmp", "/usr", "/build", ".cargo", ".rs:"] {
            assert!(!text.contains(path), "{path}");
        }
    }
}

#[test]
fn the_cost_of_every_hot_kernel_is_known() {
    let rows = speed::from_csv(&committed().speed).expect("a table");
    let hot = ["policy_loss_", "kl_", "logits_", "gae", "vtrace", "whiten", "row_moments", "value_loss"];
    let mut seen = 0;
    for row in rows.iter().filter(|row| hot.iter().any(|name| row.entry.starts_with(name))) {
        assert!(row.cuda.elements > 0 && row.rocm.elements > 0, "{}: {row:?}", row.entry);
        seen += 1;
    }
    assert!(seen >= 79, "{seen} hot kernels");
}

#[test]
fn a_kernel_that_got_slower_is_seen() {
    let good = committed();
    // In every loop that stores, an instruction more, and one that waits.
    for (what, measure) in [
        ("	v_add_u32_e32 v1, v1, v1", "instructions an element"),
        ("	global_load_dword v255, v[0:1], off\n	v_add_u32_e32 v255, v255, v255", "unknown"),
    ] {
        let listing = planted(&good.listing, what, |line| line.contains("global_store"));
        let listed = gfx942::parse(&listing).expect("a listing");
        let codes = speed::codes(&listed).expect("code");
        let old = speed::from_csv(&good.speed).expect("a table");
        let resources = resources::from_csv(&good.resources).expect("a table");
        let faults = speed::agree(&old, &resources, &codes).expect("code");
        assert!(named(&faults).len() >= 79, "{faults:?}");
        let mut new = old.clone();
        for row in &mut new {
            let code = codes.iter().find(|code| code.name == row.entry).expect("its code");
            let side = speed::measure(code, &row.op, 64).expect("loops");
            row.rocm = speed::Side { registers: row.rocm.registers, warps: row.rocm.warps, ..side };
        }
        let faults = speed::worse(&old, &new);
        let slower =
            |entry: &str| faults.iter().any(|fault| fault.entry == entry && fault.what.contains(measure));
        assert!(slower("policy_loss_ppo") && slower("kl_k3") && slower("gae"), "{what}: {faults:?}");
        assert!(faults.iter().all(|fault| fault.what.contains("MI300X")));
    }
    assert_eq!(speed::worse(&speed::from_csv(&good.speed).expect("a table"), &[]), []);
}
