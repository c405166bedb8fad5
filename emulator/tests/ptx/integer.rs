//! Integers: wrapping, halves of products, shifts beyond the width, bit fields.

use super::lanes::{random, result, run, table, warp};
use lockstep_emulator::fault::FaultKind;

const M32: u64 = 0xffff_ffff;

/// Returns how a 32-bit register holds a negative number.
fn s32(x: i32) -> u64 {
    u64::from(x as u32)
}

#[test]
fn sums_and_products_wrap() {
    table("add.s32 %r3, %r0, %r1", &[([M32, 1, 0], 0), ([0x7fff_ffff, 1, 0], 0x8000_0000)]);
    table("sub.s32 %r3, %r0, %r1", &[([0, 1, 0], M32)]);
    table("add.s64 %d3, %d0, -1", &[([0, 0, 0], u64::MAX), ([1 << 63, 0, 0], (1 << 63) - 1)]);
    table("add.s16 %h3, %h0, %h1", &[([0xffff, 2, 0], 1)]);
    table("mul.lo.s32 %r3, %r0, %r1", &[([0x1_0001, 0x1_0001, 0], 0x2_0001)]);
    table("mul.lo.s64 %d3, %d0, %d1", &[([u64::MAX, 3, 0], (-3_i64) as u64)]);
    table("mad.lo.s32 %r3, %r0, %r1, %r2", &[([M32, 2, 5], 3)]);
    table("mad.lo.s64 %d3, %d0, %d1, %d2", &[([1 << 63, 2, 7], 7)]);
    table("neg.s32 %r3, %r0", &[([0x8000_0000, 0, 0], 0x8000_0000), ([1, 0, 0], M32)]);
    table("neg.s64 %d3, %d0", &[([5, 0, 0], (-5_i64) as u64)]);
    table("abs.s32 %r3, %r0", &[([s32(-7), 0, 0], 7), ([0x8000_0000, 0, 0], 0x8000_0000)]);
}

#[test]
fn upper_halves_are_exact() {
    table("mul.hi.u32 %r3, %r0, %r1", &[([M32, M32, 0], 0xffff_fffe)]);
    table("mul.hi.s32 %r3, %r0, %r1", &[([M32, M32, 0], 0), ([s32(i32::MIN), 2, 0], M32)]);
    table("mul.hi.u64 %d3, %d0, %d1", &[([u64::MAX, u64::MAX, 0], u64::MAX - 1)]);
    table("mul.hi.s64 %d3, %d0, %d1", &[([u64::MAX, 2, 0], u64::MAX)]);
    table("mul.wide.u32 %d3, %r0, %r1", &[([M32, M32, 0], 0xffff_fffe_0000_0001)]);
    table("mul.wide.s32 %d3, %r0, %r1", &[([M32, M32, 0], 1), ([M32, 2, 0], (-2_i64) as u64)]);
    table("mul.wide.u16 %r3, %h0, %h1", &[([0xffff, 0xffff, 0], 0xfffe_0001)]);
    table("mul.wide.s16 %r3, %h0, %h1", &[([0xffff, 3, 0], s32(-3))]);
    table("mad.wide.u32 %d3, %r0, %r1, %d2", &[([M32, M32, 0xffff_ffff], 0xffff_ffff_0000_0000)]);
    table("mad.hi.u32 %r3, %r0, %r1, %r2", &[([M32, M32, 3], 1)]);
    let words: Vec<[u64; 3]> = random(1).take(64).zip(random(2)).map(|(a, b)| [a, b, 0]).collect();
    let high = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64;
    let want: Vec<u64> = words.iter().map(|[a, b, _]| high(*a, *b)).collect();
    assert_eq!(run("mul.hi.u64 %d3, %d0, %d1", &words), want);
}

#[test]
fn shifts_clamp_at_the_width() {
    table(
        "shl.b32 %r3, %r0, %r1",
        &[([1, 31, 0], 1 << 31), ([1, 32, 0], 0), ([1, M32, 0], 0), ([3, 0, 0], 3)],
    );
    table("shl.b64 %d3, %d0, %r1", &[([1, 63, 0], 1 << 63), ([1, 64, 0], 0), ([1, 65, 0], 0)]);
    table("shl.b16 %h3, %h0, %r1", &[([3, 15, 0], 0x8000), ([3, 16, 0], 0)]);
    table("shr.u32 %r3, %r0, %r1", &[([M32, 31, 0], 1), ([M32, 32, 0], 0), ([M32, 33, 0], 0)]);
    table("shr.s32 %r3, %r0, %r1", &[([1 << 31, 31, 0], M32), ([1 << 31, 40, 0], M32), ([5, 99, 0], 0)]);
    table("shr.u64 %d3, %d0, %r1", &[([u64::MAX, 63, 0], 1), ([u64::MAX, 64, 0], 0)]);
    table("shr.s64 %d3, %d0, %r1", &[([1 << 63, 64, 0], u64::MAX), ([1 << 62, 64, 0], 0)]);
    table("shr.u16 %h3, %h0, %r1", &[([0x8000, 15, 0], 1), ([0x8000, 16, 0], 0)]);
    table("shr.s16 %h3, %h0, %r1", &[([0x8000, 200, 0], 0xffff)]);
    table("shr.b32 %r3, %r0, %r1", &[([1 << 31, 31, 0], 1)]);
    table("shf.l.wrap.b32 %r3, %r0, %r1, %r2", &[([0x8000_0000, 1, 1], 3), ([7, 9, 32], 9)]);
    table("shf.l.clamp.b32 %r3, %r0, %r1, %r2", &[([7, 9, 32], 7), ([7, 9, 99], 7)]);
    table("shf.r.wrap.b32 %r3, %r0, %r1, %r2", &[([2, 1, 1], 0x8000_0001), ([7, 9, 32], 7)]);
    table("shf.r.clamp.b32 %r3, %r0, %r1, %r2", &[([7, 9, 40], 9)]);
}

#[test]
fn order_has_a_sign_or_none() {
    table("min.u32 %r3, %r0, %r1", &[([M32, 1, 0], 1)]);
    table("min.s32 %r3, %r0, %r1", &[([M32, 1, 0], M32)]);
    table("max.u32 %r3, %r0, %r1", &[([M32, 1, 0], M32)]);
    table("max.s32 %r3, %r0, %r1", &[([M32, 1, 0], 1)]);
    table("max.u64 %d3, %d0, 1", &[([0, 0, 0], 1), ([u64::MAX, 0, 0], u64::MAX)]);
    table("min.s64 %d3, %d0, %d1", &[([u64::MAX, 0, 0], u64::MAX)]);
    table("max.s16 %h3, %h0, %h1", &[([0x8000, 1, 0], 1)]);
    table("sad.u32 %r3, %r0, %r1, %r2", &[([1, M32, 1], M32)]);
}

#[test]
fn division_truncates() {
    table("div.s32 %r3, %r0, %r1", &[([s32(-7), 2, 0], s32(-3)), ([s32(i32::MIN), M32, 0], s32(i32::MIN))]);
    let body = format!("\trem.s32 %r3, %r0, %r1;\n{}", result("%r3"));
    let mut words = vec![[s32(-7), 2, 0]; 32];
    assert_eq!(warp(&body, &words).map(|found| found[0]), Ok(s32(-1)));
    words[9][1] = 0;
    let fault = warp(&body, &words).unwrap_err();
    assert!(matches!(&fault.kind, FaultKind::Unimplemented(what) if what.contains("division by 0")));
    assert_eq!(fault.place.lane, Some(9));
}

#[test]
fn bits_are_moved_and_counted() {
    table("and.b32 %r3, %r0, %r1", &[([0xff00, 0x0ff0, 0], 0x0f00)]);
    table("or.b64 %d3, %d0, %d1", &[([1 << 63, 1, 0], 1 << 63 | 1)]);
    table("xor.b32 %r3, %r0, -1", &[([0xf0f0_f0f0, 0, 0], 0x0f0f_0f0f)]);
    table("not.b64 %d3, %d0", &[([0, 0, 0], u64::MAX)]);
    table("not.b16 %h3, %h0", &[([0xff, 0, 0], 0xff00)]);
    table("cnot.b32 %r3, %r0", &[([0, 0, 0], 1), ([9, 0, 0], 0)]);
    table("brev.b32 %r3, %r0", &[([1, 0, 0], 1 << 31)]);
    table("brev.b64 %d3, %d0", &[([2, 0, 0], 1 << 62)]);
    table("clz.b32 %r3, %r0", &[([0, 0, 0], 32), ([1, 0, 0], 31), ([1 << 31, 0, 0], 0)]);
    table("clz.b64 %r3, %d0", &[([0, 0, 0], 64)]);
    table("popc.b64 %r3, %d0", &[([u64::MAX, 0, 0], 64)]);
    table("lop3.b32 %r3, %r0, %r1, %r2, 0x96", &[([0xf0, 0xcc, 0xaa], 0xf0 ^ 0xcc ^ 0xaa)]);
    table("lop3.b32 %r3, %r0, %r1, %r2, 0xe8", &[([0xf0, 0xcc, 0xaa], 0xe8)]);
    table("prmt.b32 %r3, %r0, %r1, %r2", &[([0x3322_1180, 0x7766_5544, 0x7048], 0x7780_44ff)]);
    table("selp.b32 %r3, %r0, %r1, %p2", &[([1, 2, 0], 2), ([1, 2, 9], 1)]);
    table("selp.b16 %h3, %h0, 7, %p2", &[([1, 2, 0], 7), ([1, 2, 9], 1)]);
    table("mov.b64 %d3, {%r0, %r1}", &[([0x1111_1111, 0x2222_2222, 0], 0x2222_2222_1111_1111)]);
    table("mov.b32 %r3, {%h0, %h1}", &[([0x1111, 0x2222, 0], 0x2222_1111)]);
    table("mov.b64 {%r4, %r3}, %d0", &[([0x2222_2222_1111_1111, 0, 0], 0x2222_2222)]);
    table("{ .reg .b32 tmp; mov.b64 {tmp, %r3}, %d0; }", &[([0x2222_2222_1111_1111, 0, 0], 0x2222_2222)]);
    table("mov.b64 {%r3, _}, %d0", &[([0x2222_2222_1111_1111, 0, 0], 0x1111_1111)]);
}

/// The ISA's definition, bit by bit.
fn bfe(signed: bool, width: u64, a: u64, b: u64, c: u64) -> u64 {
    let (pos, len, msb) = (b & 0xff, c & 0xff, width - 1);
    let bit = |at: u64| a >> at & 1;
    let sign = if !signed || len == 0 { 0 } else { bit((pos + len - 1).min(msb)) };
    (0..=msb).fold(0, |d, i| d | (if i < len && pos + i <= msb { bit(pos + i) } else { sign }) << i)
}

#[test]
fn bit_fields_are_what_the_isa_says() {
    table("bfe.u32 %r3, %r0, 20, 5", &[([0x01f0_0000, 0, 0], 0x1f)]);
    let places = [0, 1, 5, 20, 31, 32, 33, 63, 64, 200, 255, 256 + 3];
    let mut words = Vec::new();
    for (a, b) in random(3).zip(places.iter().cycle()).take(12) {
        words.extend(places.map(|c| [a, *b, c]));
    }
    for (ty, signed, width) in [("u32", false, 32), ("s32", true, 32), ("u64", false, 64), ("s64", true, 64)]
    {
        let r = if width == 32 { "r" } else { "d" };
        let low = u64::MAX >> (64 - width);
        let got = run(&format!("bfe.{ty} %{r}3, %{r}0, %r1, %r2"), &words);
        for ([a, b, c], got) in words.iter().zip(got) {
            assert_eq!(got, bfe(signed, width, a & low, *b, *c), "bfe.{ty} {a:#x}, {b}, {c}");
        }
    }
    table("bfi.b32 %r3, %r0, %r1, 8, 4", &[([0xff, 0, 0], 0xf00), ([0, M32, 0], 0xffff_f0ff)]);
    table("bfi.b32 %r3, %r0, %r1, 30, 8", &[([0xff, 0, 0], 0xc000_0000)]);
    table("bfi.b64 %d3, %d0, %d1, 60, 0", &[([0xff, 5, 0], 5)]);
}

#[test]
fn predicates_are_logic() {
    let rows = |f: fn(bool, bool) -> bool| {
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| ([a, b, 0], u64::from(f(a == 1, b == 1))))
    };
    table("and.pred %p3, %p0, %p1", &rows(|a, b| a & b));
    table("or.pred %p3, %p0, %p1", &rows(|a, b| a | b));
    table("xor.pred %p3, %p0, %p1", &rows(|a, b| a ^ b));
    table("not.pred %p3, %p0", &rows(|a, _| !a));
    table("mov.pred %p3, %p1", &rows(|_, b| b));
    table("mov.pred %p3, -1", &rows(|_, _| true));
    table("mov.pred %p3, 0", &rows(|_, _| false));
}

#[test]
fn carries_join_words() {
    // %d1:%d0 + %d2:1, and the upper word minus a borrow.
    let sum = "add.cc.u64 %d3, %d0, 1;\n\taddc.u64 %d3, %d1, %d2";
    table(sum, &[([u64::MAX, 5, 7], 13), ([0, 5, 7], 12), ([u64::MAX, u64::MAX, 0], 0)]);
    let difference = "sub.cc.s32 %r3, %r0, 1;\n\tsubc.s32 %r3, %r1, %r2";
    table(difference, &[([0, 5, 2], 2), ([1, 5, 2], 3), ([0, 0, 0], M32)]);
    // Three words: the middle one uses and produces a carry.
    let chain = "add.cc.u32 %r3, %r0, %r0;\n\taddc.cc.u32 %r3, %r1, -1;\n\taddc.u32 %r3, %r2, 0";
    table(chain, &[([1 << 31, 0, 9], 10), ([0, 0, 9], 9), ([0, 1, 9], 10)]);
    let fault = warp("\taddc.u32 %r3, %r0, %r1;", &[[0; 3]; 32]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::UnwrittenRegister("CC.CF".into()));
}
