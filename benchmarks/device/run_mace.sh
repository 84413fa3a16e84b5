#!/bin/bash
# Everything about MACE that needs a GPU, in one call of eight minutes: models of every kind against the CPU; 100 ps of the
# carbon model at constant energy in LAMMPS (alone: processes that share a GPU take turns); times beside mace-torch eager,
# cuEquivariance and OpenEquivariance, float64, five elements, a million atoms, kernel by kernel.
#
#   tests/gpu/run_mace.sh RESULTS_FOLDER [PIECE ...]      pieces: tests carbon bench (all by default)
#
# CLEBSCH_LIBRARY: libclebsch.so, with clebschplugin.so beside it (or CLEBSCH_PLUGIN). CLEBSCH_GPU_MODELS: the files of
# make_mace_models.py, .gpu/models by default. CLEBSCH_GPU_BUNDLE: a folder with what the machine lacks, .gpu by default:
# wheels/, mace-wheels/ (installed into a temporary folder, without network), peers.tar.xz (pack_peers.sh), lammps.tar.xz
# (a LAMMPS with its MPI); what is missing is left out with a line. PYTHON: the interpreter, python3 by default.
# DEVICE: cuda; another one rehearses the tests alone.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
pieces=" ${*:-tests carbon bench} "
python=${PYTHON:-python3}
bundle=${CLEBSCH_GPU_BUNDLE:-$root/.gpu}
device=${DEVICE:-cuda}
export CLEBSCH_LIBRARY="${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}"
export CLEBSCH_GPU_MODELS="${CLEBSCH_GPU_MODELS:-$root/.gpu/models}"
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-/tmp/clebsch-kernels}"
export CLEBSCH_COMMIT="${CLEBSCH_COMMIT:-$(git -C "$root" rev-parse --short HEAD 2>/dev/null)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install NAME FOLDER: the wheels of bundle/FOLDER into work/NAME
install() {
  if ls "$bundle/$2"/*.whl >/dev/null 2>&1; then
    timeout 90 "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$work/$1" \
      "$bundle/$2"/*.whl >"$out/install_$1.txt" 2>&1 || echo "FAIL installing $bundle/$2"
  fi
}
install site wheels &
install mace mace-wheels &
mkdir -p "$work/peers" "$work/lammps" "$work/lib"
[ ! -f "$bundle/peers.tar.xz" ] || tar xJf "$bundle/peers.tar.xz" -C "$work/peers" &
[ ! -f "$bundle/lammps.tar.xz" ] || tar xJf "$bundle/lammps.tar.xz" -C "$work/lammps" &
wait
plain="$root/src/python:$work/site${PYTHONPATH:+:$PYTHONPATH}"
full="$root/src/python:$work/mace:$work/site:$work/peers${PYTHONPATH:+:$PYTHONPATH}"
status=0
begun=$(date +%s)

# finished NAME STATUS: one line
finished() {
  echo "== mace $1: status $2, $(($(date +%s) - begun)) s after the start"
  [ "$2" = 0 ] || status=1
}
carbon() {
  local lmp=${LMP:-$work/lammps/lmp} plugin=${CLEBSCH_PLUGIN:-$(dirname "$CLEBSCH_LIBRARY")/clebschplugin.so}
  [ -x "$lmp" ] || lmp=$root/.venv/bin/lmp
  if [ ! -x "$lmp" ] || [ ! -f "$plugin" ]; then
    echo "FAIL carbon: no LAMMPS ($lmp) or no plugin ($plugin)"
    return 1
  fi
  cp "$plugin" "$CLEBSCH_LIBRARY" "$work/lib/"
  TORCH_LIBS=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
  export TORCH_LIBS="$work/lib:$TORCH_LIBS"
  LMP=$lmp CLEBSCH_PLUGIN=$work/lib/clebschplugin.so PYTHONPATH=$plain timeout 290 "$root/tests/gpu/run_carbon.sh" "$out"
}

cd "$root/tests/gpu" || exit 1
if [[ $pieces == *" tests "* ]]; then
  PYTHONPATH=$plain timeout 200 "$python" -W ignore test_mace.py --device "$device" >"$out/mace_tests.txt" 2>&1
  finished tests $?
  grep -v '^ok' "$out/mace_tests.txt" | tail -60 | cut -c1-600
  echo "$(grep -c '^ok' "$out/mace_tests.txt") checks passed"
fi
if [[ $pieces == *" carbon "* ]]; then
  carbon >"$out/carbon.txt" 2>&1
  finished carbon $?
  tail -n 60 "$out/carbon.txt" | cut -c1-300
fi
if [[ $pieces == *" bench "* ]]; then
  PYTHONPATH=$full timeout 230 "$python" -W ignore bench_mace.py "$out/mace_bench.json" --device "$device" --seconds 210 \
    >"$out/mace_bench.txt" 2>&1
  finished bench $?
  cut -c1-200 "$out/mace_bench.txt"
fi
exit $status
