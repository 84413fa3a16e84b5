#!/bin/bash
# Puts an older release, which benchmarks/run batch is compared with, into the bundle of scripts/gpu-tests.
# usage: benchmarks/ase/pack_old.sh CHECKOUT [BUNDLE]     CHECKOUT: of that release, with its build in CHECKOUT/build
# Where PYTHON (default: .venv/bin/python) finds mace-torch in CLEBSCH_MACE_PATH (default: .deps/mace), the release
# also writes mace-M.pt, the model of today's mace-M.pt in a file that it can read: seed and weights are the same.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
checkout=${1:?usage: pack_old.sh CHECKOUT [BUNDLE]} old=${2:-$root/.gpu}/old
mkdir -p "$old/lib" "$old/python"
strip -s -o "$old/lib/libclebsch.so" "$checkout/build/lib/libclebsch.so"
rm -rf "$old/python/clebsch"
cp -rL "$checkout/src/python/clebsch" "$old/python/clebsch"
[ -e "$old/python/clebsch/ops.schema" ] || cp "$checkout/src/torch/ops.schema" "$old/python/clebsch/"
python=${PYTHON:-$root/.venv/bin/python} mace=${CLEBSCH_MACE_PATH:-$root/.deps/mace}
rm -f "$old/mace-M.pt"
PYTHONPATH="$old/python:$mace" CLEBSCH_LIBRARY="$old/lib/libclebsch.so" "$python" -W ignore \
  "$root/benchmarks/ase/old_model.py" "$old/mace-M.pt" || echo "no $old/mace-M.pt: the release gets today's file" >&2
find "$old/python" -name __pycache__ -prune -exec rm -rf {} +
git -C "$checkout" rev-parse --short HEAD > "$old/commit"
du -sh "$old"
