#!/bin/sh
# Kernels compiled ahead against those a run asks for, and the first step's time, in one call of less than four minutes.
#
#   tests/gpu/run_compile.sh RESULTS_FOLDER [MODEL ...]
#
# Needs CLEBSCH_LIBRARY; random models in CLEBSCH_GPU_MODELS (tests/gpu/make_models.py). PYTHON: python3 by default.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
timeout 240 "${PYTHON:-python3}" -W ignore "$root/tests/gpu/test_compile.py" "$out/compile.json" "$@" > "$out/compile.txt" 2>&1
rc=$?
echo "== compile: status $rc"
cut -c1-1500 "$out/compile.txt"
exit $rc
