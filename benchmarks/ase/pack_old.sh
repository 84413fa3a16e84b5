#!/bin/bash
# Puts an older release, which benchmarks/run batch is compared with, into the bundle of scripts/gpu-tests.
# usage: benchmarks/ase/pack_old.sh CHECKOUT [BUNDLE]     CHECKOUT: of that release, with its build in CHECKOUT/build
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
checkout=${1:?usage: pack_old.sh CHECKOUT [BUNDLE]} old=${2:-$root/.gpu}/old
mkdir -p "$old/lib" "$old/python"
strip -s -o "$old/lib/libclebsch.so" "$checkout/build/lib/libclebsch.so"
rm -rf "$old/python/clebsch"
cp -rL "$checkout/src/python/clebsch" "$old/python/clebsch"
find "$old/python" -name __pycache__ -prune -exec rm -rf {} +
[ -e "$old/python/clebsch/ops.schema" ] || cp "$checkout/src/torch/ops.schema" "$old/python/clebsch/"
git -C "$checkout" rev-parse --short HEAD > "$old/commit"
du -sh "$old"
