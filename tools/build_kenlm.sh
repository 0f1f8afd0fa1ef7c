#!/bin/sh
# Usage: build_kenlm.sh VENV CONSTRAINTS
# Builds KenLM's lmplz, build_binary and query from the `kenlm` source distribution into VENV/bin. Boost comes from the
# system where it is installed, else from the wheel `cmeel-boost`; its libraries then go to VENV/lib/kenlm, found by a relative rpath.
set -eu
venv=$1
constraints=$2
work=$venv/build-kenlm
rm -rf "$work"
mkdir -p "$work/source" "$work/build"

"$venv/bin/python" -m pip download --quiet --no-deps --no-binary kenlm --no-build-isolation -c "$constraints" -d "$work" kenlm
tar -xzf "$work"/kenlm-*.tar.gz -C "$work/source" --strip-components=1
# Of Boost's parts these two are for KenLM's own tests and for Boost before 1.69 (where cmake adds it by itself).
sed -i.orig -e '/^  system$/d' -e '/^  unit_test_framework$/d' "$work/source/CMakeLists.txt"

configure() {
    cmake -S "$work/source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
        '-DCMAKE_INSTALL_RPATH=$ORIGIN/../lib/kenlm' "$@"
}
boost=
if ! configure; then
    echo "No Boost on this system: taking it from the wheel cmeel-boost."
    # --no-deps: the wheel's Python side asks for numpy 2, which nothing here uses.
    "$venv/bin/python" -m pip install --quiet --no-deps --only-binary :all: --target "$work/boost" -c "$constraints" cmeel-boost
    boost=$work/boost/cmeel.prefix
    rm -f "$work/build/CMakeCache.txt"
    configure "-DCMAKE_PREFIX_PATH=$boost"
fi
cmake --build "$work/build" --parallel 2 --target lmplz build_binary query

if [ -n "$boost" ]; then
    mkdir -p "$venv/lib/kenlm"
    LD_LIBRARY_PATH=$boost/lib ldd "$work/build/bin/lmplz" | awk -v boost="$boost" 'index($3, boost) {print $3}' | while read -r library; do
        cp "$library" "$venv/lib/kenlm/"
    done
fi
for program in build_binary query lmplz; do # lmplz last: the Makefile takes it as the sign that all are there
    mv -f "$work/build/bin/$program" "$venv/bin/$program" # not cp: one of them may be running
done
echo "a b" | "$venv/bin/lmplz" -o 2 --discount_fallback -S 64M >/dev/null
rm -rf "$work"
