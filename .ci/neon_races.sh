# The stages neon, races and mutants. Read by .ci/run.

# The NEON level, executed: an AArch64 program in QEMU, with Debian's library sources. The corpus and every recipe have the published
# digests, a sample of each scalar function its bits and bounds.
stage_neon() {
    need_packages rustc-web cargo-web rust-web-src gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    local machine=aarch64-unknown-linux-gnu built said threads vectors
    built=$target/neon/$machine/release/digests
    (
        export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target/neon
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
        # The same libraries for both, so that they are built once. Only the loops over rows must be as they ship.
        local cargo=(/usr/bin/cargo --quiet -Zbuild-std=std,panic_unwind,test
            --config profile.release.opt-level=1 --config profile.release.package.lockstep-cpu.opt-level=2)
        "${cargo[@]}" build --release --target "$machine" -p lockstep-conformance --bin digests
        "${cargo[@]}" test --release --target "$machine" -p lockstep-core --features std --test num_sample
    )
    vectors=$(aarch64-linux-gnu-objdump -d --no-show-raw-insn "$built" | grep -cE '\bfml[as]\s+v[0-9]+\.(4s|2d)' || true)
    [ "$vectors" -gt 0 ] || die "no fused multiply-add on vectors in $built"
    echo "$vectors fused multiply-adds on vectors"
    said=$(qemu-aarch64 -L /usr/aarch64-linux-gnu "$built" neon) || die "$said"
    echo "$said"
    for threads in '1 thread' '2 threads'; do
        grep -qE "\(neon, $threads\): corpus $(cat conformance/DIGEST), published" <<<"$said" || die "no digest of NEON with $threads"
    done
    # A comparison that could not fail would prove nothing: with subnormals as zeros, as a library built with -ffast-math leaves
    # the processor.
    aarch64-linux-gnu-gcc -shared -o "$scratch/flush.so" -x c - \
        <<<'__attribute__((constructor)) static void flush(void) { __asm__("msr fpcr, %0" : : "r"(1ul << 24)); }'
    said=$(qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_PRELOAD="$scratch/flush.so" "$built" neon) &&
        die "subnormals as zeros were not noticed: $said"
    grep -q 'corpus .*NOT the published one' <<<"$said" || die "no other digest with subnormals as zeros: $said"
    echo "with subnormals as zeros: another digest, as it must be"
}

# A race detector over the CPU backend: every op's cases, neighbouring rows on different threads, without a report; a planted race is reported.
# One level, for the rows of an op are shared between threads alike at all of them; helgrind knows no AVX-512.
stage_races() {
    need_packages valgrind
    programs
    local level=${1:-avx2} watch=(valgrind --tool=helgrind --history-level=approx --error-exitcode=9 --suppressions=.ci/helgrind.supp)
    ! "${watch[@]}" "$target/release/races" "$level" planted >"$scratch/races.log" 2>&1 || die "the planted race was not reported"
    grep -q 'Possible data race during write' "$scratch/races.log" || { cat "$scratch/races.log"; die "the planted race: no report"; }
    echo "planted race: reported, as it must be"
    "${watch[@]}" "$target/release/races" "$level" >"$scratch/races.log" 2>&1 || { head -80 "$scratch/races.log"; die "a data race"; }
    grep -E '^[a-z0-9]+: |ERROR SUMMARY' "$scratch/races.log"
}

# Changes of core's formulas, each of which a check must catch: a fixed sample. All of them: `cargo xtask mutants`, docs/mutants.md.
stage_mutants() { cargo xtask mutants --sample "${1:-120}"; }
