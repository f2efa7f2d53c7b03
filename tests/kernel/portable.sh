#!/usr/bin/env bash
# portable.sh [CASES]: `make portable`. Build the kernel with every compiler and for every target whose tools are installed,
# and run the fuzz tests on CASES random cases where the result can run. Names what it skips. Exit code 1: something failed.
#   gcc, clang        Debian: g++, clang                          built and run
#   no OpenMP         any compiler                                built and run
#   aarch64 (NEON)    Debian: g++-aarch64-linux-gnu, qemu-user    built, and run by the emulator
#   macOS, Windows    PyPI: ziglang                               compiled, not linked, not run
# Windows is built with the GNU interface of MinGW. MSVC cannot compile the kernel: it has no vector types.
# PYTHON is the Python that has ziglang.
set -u
cases=${1:-500}
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}
failed=0
done_=()
skipped=()

has() { command -v "$1" > /dev/null; }

# fuzz NAME OPTION...: build and run the fuzz tests
fuzz() {
    local name=$1 build=$root/build/portable/$1
    shift
    if cmake -S "$root/tests/kernel" -B "$build" -DSANITIZE=OFF -DCASES="$cases" -DCMAKE_BUILD_TYPE=Release "$@" > "$build.log" 2>&1 &&
        cmake --build "$build" --parallel 2 >> "$build.log" 2>&1 && ctest --test-dir "$build" >> "$build.log" 2>&1; then
        done_+=("$name: built, $(grep -c 'Passed' "$build.log") fuzz tests passed, $(grep -c 'Skipped' "$build.log") not on this processor")
    else
        done_+=("$name: FAILED, see $build.log")
        failed=1
    fi
}

# zig TARGET ISA...: compile every source, with the flags that CMakeLists.txt has for each instruction set. Nothing is linked:
# zig would compile the whole standard library of the target first.
zig() {
    local target=$1 build=$root/build/portable/$1 csrc=$root/src/latchwork/csrc count=0 isa source
    shift
    : > "$build.log"
    for source in "$csrc"/*.cpp "$csrc"/baselines/*.cpp; do
        for isa in $(grep -Eq ', LATCHWORK_ISA\)|^ENTRY' "$source" && echo "$@" || echo once); do
            "$python" -m ziglang c++ -target "$target" -std=c++17 -O1 -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas \
                $([ "$isa" = once ] || echo "-DLATCHWORK_ISA=$isa") \
                $(sed -n "s/^ *set(FLAGS_$isa \(.*\))/\1/p" "$root/CMakeLists.txt") \
                -c "$source" -o "$build.o" >> "$build.log" 2>&1 || { done_+=("$target: $source FAILED, see $build.log"); failed=1; return; }
            count=$((count + 1))
        done
    done
    done_+=("$target: $count objects compiled, not linked, not run")
}

mkdir -p "$root/build/portable"
for each in "gcc g++" "clang clang++"; do
    read -r name compiler <<< "$each"
    if has "$compiler"; then fuzz "$name" "-DCMAKE_CXX_COMPILER=$compiler"; else skipped+=("$name: $compiler is not installed"); fi
done
fuzz no-openmp -DLATCHWORK_OPENMP=OFF
if has aarch64-linux-gnu-g++ && has qemu-aarch64; then
    fuzz aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
        "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"
else
    skipped+=("aarch64: g++-aarch64-linux-gnu or qemu-user is not installed")
fi
if "$python" -m ziglang version > /dev/null 2>&1; then
    zig x86_64-macos baseline avx2 avx512
    zig aarch64-macos baseline
    zig x86_64-windows-gnu baseline avx2 avx512
else
    skipped+=("macOS, Windows: ziglang is not installed")
fi
printf '%s\n' "${done_[@]}"
for each in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: $each"; done
exit $failed
