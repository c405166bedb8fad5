#!/usr/bin/env bash
# The heavy tests of the C and C++ interface: sanitizers, both emulated GPUs, pkg-config, CMake. Needs gcc, g++, pkg-config and cmake; builds
# with the features of the workspace, as `cargo test --workspace` has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
say() { printf -- '--- %s\n' "$*"; }

tests=$(cargo test --workspace --release --quiet --no-run --test c_abi --message-format json |
    sed -n 's/.*"name":"c_abi".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$tests" ] || { echo "the tests of capi were not built" >&2; exit 1; }

# A command, of whose words only those that match PATTERN are shown if it succeeds: shown PATTERN COMMAND…
shown() {
    local pattern=$1
    shift
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
    grep -oE "$pattern" "$scratch/log"
}

export CC=gcc CXX=g++ LOCKSTEP_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
say "gcc and g++, AddressSanitizer and UndefinedBehaviorSanitizer in the programs"
shown "cpu: .*|[0-9]+ wrong calls.*|^test result.*" "$tests" --nocapture --test-threads 1
for backend in cuda rocm; do
    say "the emulated $backend"
    shown "$backend:0: .*|^test result.*" cargo xtask emulate "$backend" -- "$tests" --nocapture every_recipe examples
done
unset LOCKSTEP_CFLAGS

say "installed: pkg-config, CMake"
prefix=$scratch/prefix
capi/install.sh "$prefix" "$(dirname "$tests")"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
cc -std=c11 capi/examples/step.c -o "$scratch/shared" $(pkg-config --cflags --libs lockstep) -Wl,-rpath,"$prefix/lib"
mkdir "$scratch/only"
cp "$prefix/lib/liblockstep.a" "$scratch/only"
cc -std=c11 capi/examples/step.c -o "$scratch/static" $(pkg-config --cflags lockstep) -L"$scratch/only" $(pkg-config --static --libs-only-l lockstep)
cmake -S capi/tests/consumer -B "$scratch/build" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/cmake.log" && cmake --build "$scratch/build" >>"$scratch/cmake.log" ||
    { cat "$scratch/cmake.log"; exit 1; }
! cmake -S capi/tests/consumer -B "$scratch/other" -DCMAKE_PREFIX_PATH=/nowhere >/dev/null 2>&1 || { echo "CMake finds what is not there" >&2; exit 1; }
"$scratch/shared" >"$scratch/bits"
[ "$(wc -l <"$scratch/bits")" -eq 4 ]
for program in "$scratch/static" "$scratch"/build/step_{c,cpp,static}; do
    "$program" 2>/dev/null | cmp - "$scratch/bits"
    echo "$(basename "$program"): the same bits"
done
! ldd "$scratch/static" | grep -q liblockstep || { echo "static is not" >&2; exit 1; }
needed=$(ldd "$prefix/lib/liblockstep.so" | awk '{print $1}' | grep -vE '^(linux-vdso|/lib64/ld-linux|lib(c|m|dl|pthread|gcc_s|rt)\.so)' || true)
[ -z "$needed" ] || { echo "the library needs $needed" >&2; exit 1; }
echo "liblockstep.so needs the C library alone"
