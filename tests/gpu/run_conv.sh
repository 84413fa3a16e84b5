#!/bin/sh
# tensor_product_conv on one GPU, in one call of some six minutes: tests, the same under compute-sanitizer, then times
# beside OpenEquivariance (fp32 and fp64, 1000 and 8000 atoms) and the records of summary.json.
#
#   tests/gpu/run_conv.sh [results folder]
#
# Needs build/lib/libclebsch.so (or CLEBSCH_LIBRARY); OpenEquivariance where Python can import it (PYTHONPATH).
# PYTHON: the interpreter, .venv/bin/python by default. CLEBSCH_COMMIT: where git is absent.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-$root/tests/gpu/results}
python=${PYTHON:-$root/.venv/bin/python}
library=${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}
problems=$root/tests/gpu/results/kernels.json
commit=${CLEBSCH_COMMIT:-$(git -C "$root" rev-parse --short HEAD)}
mkdir -p "$out"
cd "$root/tests/gpu"
"$python" test_conv.py --library "$library" --problems "$problems" > "$out/conv_tests.txt" 2>&1 || {
  cat "$out/conv_tests.txt"
  echo "the tests failed: nothing is timed" >&2
  exit 1
}
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck initcheck synccheck; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 3 "$python" test_conv.py --library "$library" \
      --problems "$problems" --only test-uneven,test-parity --quick || echo "$tool: status $?"
  done > "$out/conv_sanitizer.txt" 2>&1
else
  echo "compute-sanitizer is not on this machine" > "$out/conv_sanitizer.txt"
fi
for cells in 5 10; do
  atoms=$((8 * cells * cells * cells))
  "$python" bench_conv.py --library "$library" --problems "$problems" --cells "$cells" --dtypes float32,float64 --peer \
    --repeats 20 --commit "$commit" --out "$out/conv_peer_$atoms.json"
done
"$python" summarize_conv.py "$out/conv_peer_1000.json" "$out/summary.json"
