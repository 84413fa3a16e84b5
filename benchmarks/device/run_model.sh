#!/bin/sh
# Whole models on one GPU, in one call of less than four minutes: tests, then times and where they go.
#
#   tests/gpu/run_model.sh RESULTS_FOLDER [PIECE ...]      pieces: tests bench (both by default), quick,
#                                                          allegro (tests, times of both paths of its matrix
#                                                          products, sizes of a chunk: 2 minutes)
#
# Needs CLEBSCH_LIBRARY, ase and vesin in PYTHONPATH, model files of random NequIP presets in CLEBSCH_GPU_MODELS
# (tests/gpu/make_models.py makes them where nequip is). PYTHON: the interpreter, python3 by default.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root/src/python${PYTHONPATH:+:$PYTHONPATH}"
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-/tmp/clebsch-kernels}"
cd "$root/tests/gpu"
status=0
for piece in ${*:-tests bench}; do
  start=$(date +%s)
  case $piece in
    quick) timeout 120 "$python" -W ignore test_model.py --quick > "$out/model_quick.txt" 2>&1 ;;
    tests) timeout 170 "$python" -W ignore test_model.py > "$out/model_tests.txt" 2>&1 ;;
    bench) timeout 170 "$python" -W ignore bench_model.py "$out/model_bench.json" --profile > "$out/model_bench.txt" 2>&1 ;;
    allegro)
      timeout 100 "$python" -W ignore test_allegro.py > "$out/model_allegro.txt" 2>&1
      tests=$?
      timeout 60 "$python" -W ignore bench_model.py "$out/allegro_bench.json" --models allegro-l2 --profile \
        > "$out/allegro_bench.txt" 2>&1
      bench=$?
      CLEBSCH_CUDA_ALLEGRO=dense=fp32 timeout 60 "$python" -W ignore bench_model.py "$out/allegro_bench_fp32.json" \
        --models allegro-l2 --profile > "$out/allegro_bench_fp32.txt" 2>&1
      timeout 40 "$python" -W ignore sweep_allegro.py > "$out/allegro_sweep.txt" 2>&1
      [ $tests = 0 ] && [ $bench = 0 ] ;;
    *) echo "unknown piece $piece"; false ;;
  esac
  rc=$?
  echo "== model $piece: status $rc, $(($(date +%s) - start)) s"
  [ $rc = 0 ] || status=1
  case $piece in
    bench) cut -c1-260 "$out/model_bench.txt" ;;
    allegro)
      grep -v '^ok' "$out/model_allegro.txt" | tail -60 | cut -c1-400
      grep -c '^ok' "$out/model_allegro.txt"
      cut -c1-260 "$out/allegro_bench.txt" "$out/allegro_bench_fp32.txt" "$out/allegro_sweep.txt" ;;
    *) grep -v '^ok' "$out/model_$piece.txt" | tail -60 | cut -c1-400; grep -c '^ok' "$out/model_$piece.txt" ;;
  esac
done
exit $status
