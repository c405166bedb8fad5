#!/bin/sh
# Installs the C and C++ interface: install.sh PREFIX [FOLDER]; FOLDER has what `cargo build --release -p lockstep-capi` made.
set -eu
prefix=${1:?usage: install.sh PREFIX [FOLDER]}
here=$(cd "$(dirname "$0")" && pwd)
built=${2:-${CARGO_TARGET_DIR:-$here/../target}/release}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml")

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/lockstep"
prefix=$(cd "$prefix" && pwd)
cp "$here/include/lockstep.h" "$here/include/lockstep.hpp" "$prefix/include/"
# Not over a file that a program has mapped.
cp "$built/liblockstep_c.so" "$prefix/lib/liblockstep.so.$version.new"
cp "$built/liblockstep_c.a" "$prefix/lib/liblockstep.a"
# More than half of the bytes are for debuggers.
strip -g "$prefix/lib/liblockstep.so.$version.new" "$prefix/lib/liblockstep.a"
mv "$prefix/lib/liblockstep.so.$version.new" "$prefix/lib/liblockstep.so.$version"
ln -sf "liblockstep.so.$version" "$prefix/lib/liblockstep.so.0"
ln -sf liblockstep.so.0 "$prefix/lib/liblockstep.so"
fill() { sed "s|@version@|$version|; s|@prefix@|$prefix|" "$here/$1" >"$prefix/lib/$2"; }
fill lockstep.pc.in pkgconfig/lockstep.pc
fill cmake/lockstep-config.cmake.in cmake/lockstep/lockstep-config.cmake
fill cmake/lockstep-config-version.cmake.in cmake/lockstep/lockstep-config-version.cmake
