#!/bin/sh
# The symmetric contraction on one GPU: tests, then times beside mace-torch, cuEquivariance and OpenEquivariance, then the
# record symmetric_contraction_ratio of summary.json.
#
#   tests/gpu/run_sc.sh [results folder]
#
# Needs build/lib/libclebsch.so (or CLEBSCH_LIBRARY), and mace-torch with its e3nn in CLEBSCH_MACE_PATH (.deps/mace); the
# peers are used where that Python can import them. PYTHON: the interpreter, .venv/bin/python by default.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/tests/gpu/results}
python=${PYTHON:-$root/.venv/bin/python}
mace=${CLEBSCH_MACE_PATH:-$root/.deps/mace}
export CLEBSCH_LIBRARY="${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}"
export PYTHONPATH="$mace:$root/src/python${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$out"
cd "$root/tests/gpu"
"$python" -W ignore -m pytest -q -p no:cacheprovider test_sc.py > "$out/sc_tests.txt" 2>&1 || {
  cat "$out/sc_tests.txt"
  echo "the tests failed: nothing is timed" >&2
  exit 1
}
"$python" -W ignore peer_sc.py --device cuda --atoms 64 1000 8000 --repeats 30 --json "$out/sc_peer_fp32.json" |
  tee "$out/sc_peer.txt"
"$python" -W ignore peer_sc.py --device cuda --atoms 1000 8000 --elements 5 --case mace-M --repeats 30 \
  --json "$out/sc_peer_5_elements.json" | tee -a "$out/sc_peer.txt"
"$python" -W ignore peer_sc.py --device cuda --dtype float64 --atoms 1000 --repeats 30 \
  --json "$out/sc_peer_fp64.json" | tee -a "$out/sc_peer.txt"
"$python" summarize_sc.py "$out/sc_peer_fp32.json" "$out/summary.json"
