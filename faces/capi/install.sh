#!/bin/sh
# Installs the library from its archive: install.sh ARCHIVE PREFIX [CC]
#
# rustc links a cdylib with a version script of its own, beside which no linker accepts named versions. The shared
# library with versioned symbols is therefore linked here, from the same objects.
set -eu
archive=$1 prefix=$2 cc=${3:-cc}
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^#define HANDOVER_VERSION_[A-Z]* //p' "$here/include/handover.h" | paste -sd.)
major=${version%%.*}
mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/lib/cmake/handover"

cp "$here/include/handover.h" "$here/include/handover.hpp" "$here/include/handover_probe.h" "$prefix/include"
cp "$archive" "$prefix/lib/libhandover.a"
"$cc" -shared -o "$prefix/lib/libhandover.so.$version" -Wl,-soname,"libhandover.so.$major" \
    -Wl,--version-script="$here/handover.map" -Wl,--gc-sections -Wl,-z,relro,-z,now \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lm -lpthread -ldl -lc
ln -sf "libhandover.so.$version" "$prefix/lib/libhandover.so.$major"
ln -sf "libhandover.so.$major" "$prefix/lib/libhandover.so"

configure() {
    sed "s|@VERSION@|$version|g" "$here/templates/$1.in" >"$prefix/lib/$2/$1"
}
configure handover.pc pkgconfig
configure handover-config.cmake cmake/handover
configure handover-config-version.cmake cmake/handover
