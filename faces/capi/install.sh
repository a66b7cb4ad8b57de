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
prefix=$(cd "$prefix" && pwd)

cp "$here/include/handover.h" "$here/include/handover.hpp" "$prefix/include"
cp "$here/../../mechanisms/probe/include/handover_probe.h" "$prefix/include"
cp "$archive" "$prefix/lib/libhandover.a"
"$cc" -shared -o "$prefix/lib/libhandover.so.$version" -Wl,-soname,"libhandover.so.$major" \
    -Wl,--version-script="$here/handover.map" -Wl,--gc-sections -Wl,-z,relro,-z,now \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lm -lpthread -ldl -lc
ln -sf "libhandover.so.$version" "$prefix/lib/libhandover.so.$major"
ln -sf "libhandover.so.$major" "$prefix/lib/libhandover.so"

for template in handover.pc.in handover-config.cmake.in handover-config-version.cmake.in; do
    case $template in
        *.pc.in) folder=pkgconfig ;;
        *) folder=cmake/handover ;;
    esac
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "$here/templates/$template" \
        >"$prefix/lib/$folder/${template%.in}"
done
