#!/bin/bash
# interaction on one GPU, in pieces that do not depend on each other, together in less than five minutes:
#
#   tests/gpu/run_interaction.sh RESULTS_FOLDER [PIECE...]
#
#   tests      test_interaction.py: every named problem against the CPU in fp64, then single tests up to 1.1e6 atoms
#   bench      bench_interaction.py: speed, pieces of the tables against force error, elements, liquids; records
#   ncu        occupancy and limiter of mace-M forward and backward
#   sweep      sweep_interaction.py: plans other than the planner's (not among the usual pieces)
#   pairs      bench_pairs.py: several type pairs and liquids beside diamond, plans with splines (under 60 s; not among
#              the usual pieces). Every test with splines: CLEBSCH_CUDA_INTERACTION=spline=1 run_interaction.sh ... tests
#   density    test_interaction_density.py: interaction_density against the CPU and beside two interactions (under 60 s;
#              not among the usual pieces)
#   sanitizer  compute-sanitizer (memcheck, racecheck, initcheck, synccheck) on test_interaction.py --quick
#
# All but sweep, pairs and density without PIECE. PYTHON: .venv/bin/python where there is one, else python3. CLEBSCH_LIBRARY:
# build/lib/libclebsch.so. CLEBSCH_COMMIT, with -dirty after it when it is: where git is absent. Afterwards, in the
# checkout: python tests/bench/record.py RESULTS_FOLDER/interaction_records.json
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?usage: run_interaction.sh RESULTS_FOLDER [PIECE...]}"
out=$(cd "$1" && pwd)
shift
pieces=${*:-tests bench ncu sanitizer}
python=${PYTHON:-$root/.venv/bin/python}
command -v "$python" > /dev/null || python=python3
library=${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}
case $library in /*) ;; *) library=$PWD/$library ;; esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-$scratch/kernels}"
if [ -z "${CLEBSCH_COMMIT:-}" ] && ! git -C "$root" rev-parse HEAD > /dev/null 2>&1; then export CLEBSCH_COMMIT=unknown-dirty; fi

limited() { # limited SECONDS COMMAND...: its output, and a line that says how it ended
  local seconds=$1
  shift
  timeout --kill-after=10 "$seconds" "$@"
  local status=$?
  [ $status -eq 0 ] || echo "== status $status (124: no time left): ${*: -6}"
  return $status
}

for piece in $pieces; do
  echo "==== $piece"
  begin=$SECONDS
  case $piece in
    tests)
      limited 150 "$python" "$root/tests/gpu/test_interaction.py" --library "$library" > "$out/interaction_tests.txt" 2>&1
      cat "$out/interaction_tests.txt" | cut -c 1-600 | head -120
      ;;
    bench)
      limited 180 "$python" "$root/tests/gpu/bench_interaction.py" --library "$library" --out "$out" 2>&1 |
        tee "$out/interaction_bench.txt"
      ;;
    ncu)
      if command -v ncu > /dev/null; then
        limited 90 ncu --clock-control none -k 'regex:interaction_forward|interaction_backward|sum_slab' -c 6 \
          --section SpeedOfLight --section Occupancy --section LaunchStats --section WarpStateStats \
          --section MemoryWorkloadAnalysis --section SchedulerStats --section ComputeWorkloadAnalysis \
          "$python" "$root/tests/gpu/bench_interaction.py" --library "$library" --sections profile --problems mace-M \
          > "$out/interaction_ncu.txt" 2>&1
        grep -E "interaction_|sum_slab|Duration|Achieved Occ|Theoretical Occ|Registers Per|Memory Throughput|Compute \(SM\)|L1/TEX Cache Th|L2 Cache Th|Issue Slots Busy|No Eligible|Warp Cycles Per Issued|DRAM Throughput|ERROR" \
          "$out/interaction_ncu.txt" | cut -c 1-140 | head -120
        grep -A 3 -E "OPT|INF|WRN" "$out/interaction_ncu.txt" | cut -c 1-200 | head -60
      else
        echo "ncu is not on this machine" | tee "$out/interaction_ncu.txt"
      fi
      ;;
    sanitizer)
      if command -v compute-sanitizer > /dev/null; then
        for tool in memcheck racecheck initcheck synccheck; do
          echo "== $tool"
          PYTORCH_NO_CUDA_MEMORY_CACHING=1 limited 60 compute-sanitizer --tool $tool --error-exitcode 3 \
            "$python" "$root/tests/gpu/test_interaction.py" --library "$library" --quick --seconds 35 2>&1 | tail -30
        done | tee "$out/interaction_sanitizer.txt"
      else
        echo "compute-sanitizer is not on this machine" | tee "$out/interaction_sanitizer.txt"
      fi
      ;;
    sweep)
      limited 200 "$python" "$root/tests/gpu/sweep_interaction.py" --library "$library" 2>&1 | tee "$out/interaction_sweep.txt"
      ;;
    pairs)
      limited 58 "$python" "$root/tests/gpu/bench_pairs.py" --library "$library" --seconds 45 --out "$out" 2>&1 |
        tee "$out/interaction_pairs.txt"
      ;;
    density)
      limited 58 "$python" "$root/tests/gpu/test_interaction_density.py" --library "$library" --out "$out" 2>&1 |
        tee "$out/interaction_density.txt"
      ;;
    *) echo "no piece '$piece': expected tests, bench, ncu, sanitizer, sweep, pairs or density" ;;
  esac
  echo "== $piece: $((SECONDS - begin)) s"
done
