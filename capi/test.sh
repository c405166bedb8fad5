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

say "AddressSanitizer and UndefinedBehaviorSanitizer in the programs, gcc and g++"
sanitized="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
CC=gcc CXX=g++ LOCKSTEP_CFLAGS=$sanitized "$tests" --nocapture --test-threads 1 | grep -E "^(cpu|[0-9]+ wrong|test result)"

for backend in cuda rocm; do
    say "the emulated $backend"
    cargo xtask emulate "$backend" -- env CC=gcc CXX=g++ "LOCKSTEP_CFLAGS=$sanitized" "$tests" --nocapture every_recipe examples |
        grep -E "^($backend|test result)"
done

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
