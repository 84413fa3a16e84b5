#!/bin/bash
# tensor_product_conv on one GPU, in pieces that each end within four minutes and do not depend on each other:
#
#   tests/gpu/run_conv.sh RESULTS_FOLDER [PIECE...]
#
#   peers      which other libraries can be imported
#   tests      test_conv.py: every named problem against the fp64 reference; edge_embedding
#   sanitizer  compute-sanitizer (memcheck, racecheck, initcheck, synccheck) over every kernel variant, four processes a
#              tool; sanitize_conv.py --list names the cases
#   all2       peers, then tests beside the sanitizer, then 8000 atoms and the double backward alone: nine minutes
#   big        arrays beyond 2^31 elements
#   bench      1000 atoms, fp32: forward, backward, double backward beside every peer; roofline plot; summary records
#   bench64    1000 atoms, fp64
#   more       1000 atoms, fp32: other problems of the registry (uneven, DiffDock, tetris, roofline)
#   bench8000  8000 atoms, fp32 and fp64
#   double     1000 atoms, fp32: our double backward against its composition alone (not part of all)
#   sweep, sweep_double   other plans than the planner's, fp32, 8000 and 1000 atoms, and which are faster (not part of all)
#   ncu        occupancy and limiter of mace-M forward and backward
#
# All of them but double, all2 and the sweeps without PIECE. PYTHON: .venv/bin/python where there is one, else python3. CLEBSCH_LIBRARY:
# build/lib/libclebsch.so. CLEBSCH_PEERS: a folder or .tar.xz that holds the other libraries' packages
# (.gpu/peers.tar.xz). CLEBSCH_COMMIT, with -dirty after it when it is: where git is absent.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:?usage: run_conv.sh RESULTS_FOLDER [PIECE...]}"
out=$(cd "$1" && pwd)
shift
pieces=${*:-peers tests sanitizer big bench bench64 bench8000 more ncu}
python=${PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || python=python3
library=${CLEBSCH_LIBRARY:-$root/build/lib/libclebsch.so}
case $library in /*) ;; *) library=$PWD/$library ;; esac
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore PYTHONDONTWRITEBYTECODE=1
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-$scratch/kernels}"
if [ -z "${CLEBSCH_COMMIT:-}" ] && ! git -C "$root" rev-parse HEAD > /dev/null 2>&1; then export CLEBSCH_COMMIT=unknown-dirty; fi

peers=${CLEBSCH_PEERS:-$root/.gpu/peers.tar.xz}
if [ -f "$peers" ]; then
  mkdir "$scratch/peers" && tar xJf "$peers" -C "$scratch/peers" && peers=$scratch/peers
fi
[ -d "$peers" ] && export PYTHONPATH="$peers${PYTHONPATH:+:$PYTHONPATH}"
# Their extensions find torch's own CUDA libraries here.
cuda_libraries=$("$python" -c 'import glob, os, torch
print(":".join(glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "*", "lib"))))')
export LD_LIBRARY_PATH="$cuda_libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

limited() { # limited SECONDS COMMAND...: its output, and a line that says how it ended
  local seconds=$1
  shift
  timeout --kill-after=10 "$seconds" "$@"
  local status=$?
  [ $status -eq 0 ] || echo "== status $status (124: no time left): ${*: -6}"
  return $status
}

gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -1)
commit=${CLEBSCH_COMMIT:-$(git -C "$root" rev-parse HEAD 2> /dev/null)}
stamp() { # the first line of a text result
  echo "# commit $commit, ${gpu:-no GPU}, $(date -u +%Y-%m-%dT%H:%MZ), tests/gpu/run_conv.sh $piece"
}

check_peers() {
  limited 200 "$python" - << 'EOF'
import importlib, os
for name in ("e3nn", "openequivariance", "cuequivariance_torch", "cuequivariance_ops_torch", "flashTP_e3nn"):
    try:
        print("here:", name, getattr(importlib.import_module(name), "__version__", "?"))
    except BaseException as error:
        print("not here:", name, repr(error)[:300])
EOF
  # Where the prebuilt extension of OpenEquivariance does not load, it can compile its own (40 s), once for all pieces.
  if ! limited 100 "$python" -c 'import openequivariance as o; assert o.BUILT_EXTENSION' 2> /dev/null; then
    export OEQ_JIT_EXTENSION=1
    limited 200 "$python" -c 'import openequivariance as o; print("compiled:", o.BUILT_EXTENSION, o.BUILT_EXTENSION_ERROR)'
  fi
}

bench() { # bench NAME SECONDS ARGUMENTS...
  local name=$1 seconds=$2
  shift 2
  limited "$seconds" "$python" "$root/tests/bench/conv" --library "$library" --device cuda --json "$out/$name.json" \
    --deadline $((seconds - 45)) "$@" 2>&1 | tee "$out/$name.txt"
}

six=mace-l1,mace-M,mace-L,nequip-water,nequip-M,7net-l3i5
warm() { # warm PASSES PROBLEMS [PLAN...]: compiles side by side; an empty plan is the planner's own
  local passes=$1 problems=$2
  shift 2
  for problem in ${problems//,/ }; do
    for plan in "$@"; do echo "$problem" "${plan:-prefetch=-1}"; done
  done | limited 100 xargs -P 14 -L 1 bash -c 'timeout 90 "$0" "$1" --library "$2" --device cuda --libraries clebsch \
    --passes "$3" --problems "$4" --schedules "$5" --plans-only --repeats 1 > /dev/null 2>&1 || echo "no kernel: $4 $5"' \
    "$python" "$root/tests/bench/conv" "$library" "$passes"
}

sweep() { # sweep NAME CELLS PASSES PROBLEMS PLAN...: compiled side by side first, timed alone
  local name=$1 cells=$2 passes=$3 problems=$4
  shift 4
  warm "$passes" "$problems" "" "$@"
  bench "$name" 200 --cells "$cells" --passes "$passes" --problems "$problems" --libraries clebsch --schedules "$*" \
    --repeats 10 | grep -vi warn
  "$python" "$root/tests/bench/conv/plans.py" "$out/$name.json" | tee "$out/${name}_choice.txt"
}

# The bodies of some functions are shells of their own, whose wait is for their own processes.
tests() ( # tests SECONDS: in eight processes, as most of the time is the compiler's
  for part in 0 1 2 3 4 5 6 7; do
    names=$("$python" -c 'import sys, torch
torch.ops.load_library(sys.argv[1])
problems = sorted(torch.classes.clebsch.Model.named_problems().items(), key=lambda item: len(item[1]))
names = [name for name, text in problems if text.startswith("conv ")]
print(",".join(names[int(sys.argv[2]) :: 8]))' "$library" $part)
    limited "$1" "$python" "$root/tests/gpu/test_conv.py" --library "$library" --only "$names" \
      > "$scratch/tests_$part.txt" 2>&1 &
  done
  limited "$1" "$python" "$root/tests/gpu/test_edge_embedding.py" --library "$library" > "$scratch/tests_8.txt" 2>&1 &
  limited "$1" "$python" "$root/tests/gpu/test_index_check.py" --library "$library" > "$scratch/tests_9.txt" 2>&1 &
  wait
  { stamp && sed 's:/[^ ]*/::g' "$scratch"/tests_?.txt; } > "$out/conv_tests.txt"
)

report_tests() {
  grep -E "FAILED|Error|status" "$out/conv_tests.txt" | head -40
  grep -E "cases" "$out/conv_tests.txt"
}

tools=${CLEBSCH_SANITIZERS:-memcheck racecheck initcheck synccheck}
sanitizer_case=("$python" "$root/tests/gpu/sanitize_conv.py" --library "$library")
# The first of these cases under no tool, each process for SECONDS: compiles their kernels side by side.
warm_sanitizer() ( # warm_sanitizer SECONDS PROCESSES
  for shard in $(seq 0 $(($2 - 1))); do
    limited $(($1 + 40)) "${sanitizer_case[@]}" --seconds "$1" --shard "$shard/$2" > "$scratch/warm_$shard.txt" 2>&1 &
  done
  wait
  cat "$scratch"/warm_*.txt | sed 's:/[^ ]*/::g' | grep -E "REFUSED|lost|Error" | sort -u | head -20
)

sanitize() { # sanitize TOOL SHARD SHARDS SECONDS: begins again where a fault has ended the process
  local end=$((SECONDS + $4)) name="$out/conv_sanitizer_logs/$1-$2"
  for _ in 1 2 3 4; do
    local left=$((end - SECONDS))
    [ $left -gt 25 ] || break
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 limited $((left + 20)) compute-sanitizer --tool "$1" --print-limit 20 \
      --error-exitcode 3 "${sanitizer_case[@]}" --seconds "$left" --shard "$2/$3" --log "$name.log" \
      >> "$name.txt" 2>&1
    grep -q "context is lost" <(tail -40 "$name.txt") || break
  done
}

# Every variant under every tool: four processes a tool. What each has done is in conv_sanitizer_logs at any time.
sanitizer() ( # sanitizer SECONDS
  if ! command -v compute-sanitizer > /dev/null; then
    echo "compute-sanitizer is not on this machine" | tee "$out/conv_sanitizer.txt"
    return
  fi
  rm -rf "$out/conv_sanitizer_logs" && mkdir -p "$out/conv_sanitizer_logs"
  for shard in 0 1 2 3; do
    for tool in $tools; do sanitize "$tool" "$shard" 4 "$1" & done
  done
  wait
  { stamp && "${sanitizer_case[@]}" --summary "$out/conv_sanitizer_logs"; } > "$out/conv_sanitizer.txt" 2>&1
  head -100 "$out/conv_sanitizer.txt"
)

bench8000() { # bench8000 SECONDS DTYPES
  bench conv_8000 "$1" --cells 10 --dtypes "$2" --passes forward,backward --repeats 10 \
    --libraries clebsch,cuequivariance,openequivariance
}

for piece in $pieces; do
  echo "==== $piece"
  begin=$SECONDS
  case $piece in
    all2) # tests and kernels for the sanitizer side by side; sanitizer; then timings alone: nine minutes
      tests 230 &
      testing=$!
      warm_sanitizer 90 8 &
      warming=$!
      check_peers
      wait $warming
      sanitizer 170
      wait $testing
      report_tests
      echo "== $((SECONDS - begin)) s; timings"
      limit=$((520 - (SECONDS - begin)))
      bench8000 $((limit > 150 ? 150 : limit)) float32,float64 | grep -vi warn
      limit=$((530 - (SECONDS - begin)))
      [ $limit -gt 55 ] && bench conv_double $((limit > 70 ? 70 : limit)) --cells 5 --passes double --libraries clebsch
      ;;
    peers) check_peers ;;
    tests)
      tests 200
      report_tests
      ;;
    sanitizer)
      warm_sanitizer 60 16
      sanitizer "${CLEBSCH_SANITIZER_SECONDS:-150}"
      ;;
    big)
      { stamp && limited 200 "$python" "$root/tests/gpu/test_conv_big.py" --library "$library"; } 2>&1 |
        tee "$out/conv_big.txt"
      ;;
    bench)
      bench conv_1000_fp32 240 --cells 5 \
        --libraries clebsch,cuequivariance,flashtp,openequivariance,openequivariance-ir_mul,e3nn
      "$python" "$root/tests/bench/conv/report.py" "$out/conv_1000_fp32.json" --plot "$out/conv_roofline.png" \
        --summary "$out/summary.json" > /dev/null
      ;;
    bench64)
      bench conv_1000_fp64 200 --cells 5 --dtypes float64 --passes forward,backward \
        --libraries clebsch,cuequivariance,openequivariance
      "$python" "$root/tests/bench/conv/report.py" "$out/conv_1000_fp64.json" --summary "$out/summary.json" > /dev/null
      ;;
    bench8000)
      bench8000 240 float32,float64
      ;;
    more)
      bench conv_1000_more 220 --cells 5 --passes forward,backward --libraries clebsch,cuequivariance,openequivariance \
        --problems nequip-S,nequip-L,nequip-toluene,diffdock-l1,diffdock-l2,tetris-2,roofline-1-1-1,roofline-2-1-2,roofline-3-3-3,roofline-5-5-3,roofline-5-3-5,roofline-6-3-6,roofline-7-4-7,roofline-7-7-7
      "$python" "$root/tests/bench/conv/report.py" "$out/conv_1000_more.json" --plot "$out/conv_more.png" > /dev/null
      ;;
    double) # ours alone, without waiting for compilers
      warm double "$six" ""
      bench conv_double 100 --cells 5 --passes double --libraries clebsch
      "$python" "$root/tests/bench/conv/report.py" "$out/conv_double.json" --summary "$out/summary.json" > /dev/null
      ;;
    sweep) sweep conv_sweep_8000 10 forward,backward nequip-water,nequip-M,mace-M,mace-l1,mace-L,7net-l3i5 \
      stages=2 stages=4 stages=2,units=2 stages=2,units=4 units=2 hoist=0 ;;
    sweep_double) sweep conv_sweep_double 5 double mace-l1,mace-M,mace-L,nequip-water,nequip-M,7net-l3i5 \
      stages=2 registers=120 registers=100 blocks=2 blocks=3 ;;
    ncu)
      if command -v ncu > /dev/null; then
        limited 150 ncu --clock-control none -k 'regex:conv_forward|conv_backward|sum_by_sender' -c 4 \
          --section SpeedOfLight --section Occupancy --section LaunchStats --section WarpStateStats \
          --section MemoryWorkloadAnalysis --section SchedulerStats "$python" "$root/tests/bench/conv" \
          --library "$library" --device cuda --problems mace-M --libraries clebsch --passes forward,backward \
          --repeats 3 > "$scratch/ncu.txt" 2>&1
        { stamp && cat "$scratch/ncu.txt"; } > "$out/conv_ncu.txt"
        grep -E "conv_|sum_by|Duration|Achieved Occ|Registers Per|Memory Throughput|Compute \(SM\)|No Eligible|Warp Cycles Per Issued|DRAM Throughput|ERROR" \
          "$out/conv_ncu.txt" | head -60
      else
        echo "ncu is not on this machine" | tee "$out/conv_ncu.txt"
      fi
      ;;
    *) echo "no piece '$piece': expected peers, tests, sanitizer, big, bench, bench64, bench8000, more, double, sweep, sweep_double, all2 or ncu" ;;
  esac
  echo "== $piece: $((SECONDS - begin)) s"
done
