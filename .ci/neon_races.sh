# The stages neon, races and mutants. Read by .ci/run.

# The NEON level, executed: an AArch64 program in QEMU, with Debian's library for arm64. The corpus and every recipe have the published
# digests, a sample of each scalar function its bits and bounds.
stage_neon() {
    need_packages rustc-web cargo-web gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    local machine=aarch64-unknown-linux-gnu built said threads vectors
    built=$target/neon/$machine/release/digests
    arm64_library "$target/neon/library"
    (
        export RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=$target/neon
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=--sysroot=$target/neon/library/usr
        export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64 QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
        # Only the loops over rows must be as they ship.
        local cargo=(/usr/bin/cargo --quiet
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

# Debian's standard library for arm64, of the compiler that is installed: arm64_library FOLDER. Unpacked, for as a package it wants the
# whole compiler for arm64.
arm64_library() {
    local version apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o Dir::State::Lists="$scratch/lists" -o APT::Sandbox::User=root)
    version=$(dpkg-query -W -f '${Version}' libstd-rust-web-dev)
    [ "$(cat "$1/version" 2>/dev/null)" != "$version" ] || return 0
    mkdir -p "$scratch/lists/partial" "$scratch/arm64"
    fetching "${apt[@]}" update
    (cd "$scratch/arm64" && fetching "${apt[@]}" download "libstd-rust-web-dev=$version")
    rm -rf "$1"
    mkdir -p "$1"
    dpkg-deb -x "$scratch"/arm64/libstd-rust-web-dev_*.deb "$1"
    echo "$version" >"$1/version"
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
stage_mutants() { xtask mutants --sample "${1:-120}"; }
