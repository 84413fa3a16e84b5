#!/bin/bash
# NequIP on one GPU in two calls of at most seven minutes each, of pieces that do not depend on each other:
#
#   tests/gpu/run_nequip.sh RESULTS_FOLDER proof|speed|PIECE...
#
# proof: tests, lammps, sanitizer, edges, nve (alone: processes that share a GPU take turns, and ten times as long)
#   nve        nve_water.py: 100 ps of the shipped water model at constant energy, averages beside those of the CPU
#   tests      test_model.py --quick: whole models, steps from lists of pairs, allocations, changing graphs
#   lammps     test_md.py: pair_style clebsch device cuda against the CPU
#   sanitizer  synccheck, initcheck, memcheck, racecheck on test_interaction.py --quick
#   edges      memcheck, initcheck and racecheck on the steps from lists of pairs
# speed: nothing beside it
#   kernels    bench_interaction.py: both kernels of mace-M and nequip-M again, liquids and five elements
#   bench      bench_model.py: NequIP S, M, L
#   peers      peer_model.py: upstream eager and with OpenEquivariance beside ours
#   ncu        occupancy and limiter of both kernels of mace-M
#
# CLEBSCH_LIBRARY, CLEBSCH_GPU_MODELS (make_models.py), CLEBSCH_COMMIT. SITE: a folder of Python packages (those of
# pack_nequip.sh); PEERS: the unpacked archive of pack_peers.sh; LMP and CLEBSCH_PLUGIN for nve and lammps. PYTHON:
# python3 by default. Results appear as they are made; a piece that fails or runs out of its time does not stop the rest.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?usage: run_nequip.sh RESULTS_FOLDER proof|speed|PIECE...}"
out=$(cd "$1" && pwd)
shift
python=${PYTHON:-python3}
library=${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}
case $library in /*) ;; *) library=$PWD/$library ;; esac
export CLEBSCH_LIBRARY=$library
export PYTHONPATH="$root/src/python${SITE:+:$SITE}${PYTHONPATH:+:$PYTHONPATH}"
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-/tmp/clebsch-kernels}"
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
export CLEBSCH_LMP="${LMP:-$root/.venv/bin/lmp}" CLEBSCH_PLUGIN="${CLEBSCH_PLUGIN:-$root/build/lib/clebschplugin.so}"
export LMP="$CLEBSCH_LMP"
# For a LAMMPS that was packed without them: torch's libraries and ours.
torch=$("$python" -c 'import torch; print(torch.__path__[0] + "/lib")' 2> /dev/null)
export TORCH_LIBS="${TORCH_LIBS:-$torch:$(dirname "$library")}"
cd "$root/tests/gpu" || exit 1

limited() { # limited SECONDS COMMAND...: its output, and a line that says how it ended
  local seconds=$1
  shift
  timeout --kill-after=10 "$seconds" "$@"
  local status=$?
  [ $status -eq 0 ] || echo "== status $status (124: no time left): ${*: -4}"
  return $status
}
sanitize() { # sanitize "TOOL..." SECONDS PYTHON_ARGUMENT...: all tools at a time, then the end of what each has to say
  local tools=$1 seconds=$2 tool
  shift 2
  local jobs=()
  for tool in $tools; do
    limited "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 3 \
      "$python" "$@" > "$out/sanitizer_$tool.tmp" 2>&1 &
    jobs+=($!)
  done
  wait "${jobs[@]}" # not for what runs in the background besides
  for tool in $tools; do
    echo "== $tool"
    tail -n 25 "$out/sanitizer_$tool.tmp" | cut -c1-300
    rm -f "$out/sanitizer_$tool.tmp"
  done
}

piece() {
  case $1 in
    nve)
      limited "${NVE_SECONDS:-170}" "$python" nve_water.py "$out" --seconds "$((${NVE_SECONDS:-170} - 20))" \
        --beside results/nve_water_cpu.json > "$out/nve_water.txt" 2>&1
      tail -n 12 "$out/nve_water.txt" | cut -c1-600
      ;;
    tests)
      limited 100 "$python" test_model.py --quick > "$out/model_quick.txt" 2>&1
      grep -v '^ok' "$out/model_quick.txt" | tail -40 | cut -c1-400
      grep -E 'lists of pairs|allocations' "$out/model_quick.txt" | cut -c1-300
      grep -c '^ok' "$out/model_quick.txt"
      ;;
    lammps)
      limited 60 "$python" test_md.py "$out/md_tests.json" --styles cuda --only "${MD_ONLY:-water}" --threads 4 --total 45 \
        2>&1 | tee "$out/md_tests.txt" | cut -c1-260
      ;;
    sanitizer | edges)
      if ! command -v compute-sanitizer > /dev/null; then
        echo "compute-sanitizer is not on this machine"
      elif [ "$1" = sanitizer ]; then
        export PYTORCH_NO_CUDA_MEMORY_CACHING=1
        sanitize "synccheck initcheck memcheck racecheck" 75 test_interaction.py --library "$library" --quick \
          --seconds 45 2>&1 | tee "$out/interaction_sanitizer.txt"
      else # recording a step needs torch's cache of memory
        unset PYTORCH_NO_CUDA_MEMORY_CACHING
        sanitize "memcheck initcheck racecheck" 100 test_model.py --only "float64, lists of pairs" 2>&1 |
          tee "$out/edges_sanitizer.txt"
      fi
      ;;
    kernels)
      limited 75 "$python" bench_interaction.py --library "$library" --out "$out" --sections liquids,speed \
        --problems mace-M,nequip-M 2>&1 | tee "$out/interaction_bench.txt" | cut -c1-160
      ;;
    bench)
      limited 90 "$python" bench_model.py "$out/model_bench.json" > "$out/model_bench.txt" 2>&1
      cut -c1-260 "$out/model_bench.txt"
      ;;
    peers)
      PYTHONPATH="$PYTHONPATH${PEERS:+:$PEERS}" limited 110 "$python" peer_model.py "$out/model_peers.json" --seconds 90 \
        > "$out/model_peers.txt" 2>&1
      cut -c1-240 "$out/model_peers.txt" | tail -n 40
      ;;
    ncu) ./run_interaction.sh "$out" ncu ;;
    *) echo "no piece '$1'" && false ;;
  esac
}

status=0
for name in "$@"; do
  case $name in
    proof) pieces="tests lammps sanitizer edges nve" ;;
    speed) pieces="kernels bench peers ncu" ;;
    *) pieces=$name ;;
  esac
  for one in $pieces; do
    begin=$SECONDS
    echo "==== $one"
    piece "$one" || status=1
    echo "== $one: $((SECONDS - begin)) s"
  done
done
exit $status
