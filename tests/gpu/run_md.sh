#!/bin/sh
# Molecular dynamics in LAMMPS on one GPU, in calls of ten minutes at most: `clebsch device cuda` and `clebsch/kk`
# against the CPU, speed from 64 to a million atoms with peers beside it, memory and energy over 100,000 steps.
#
#   tests/gpu/run_md.sh RESULTS_FOLDER [PIECE ...]     pieces: tests bench max million peers leak profile ranks
#
# `ranks` (not among the usual pieces) is for machines of several GPUs: every test of clebsch/kk with one MPI rank a GPU,
# then the same systems on one GPU and on all of them.
# `max` is 64,000 atoms of both models and a million of carbon's; `million` is MACE-M with a million atoms alone, a few
# steps of about 1.5 s each, which with starting and the reference take a minute and a half. Without PIECE all of them run.
# `peers` makes mace-M.pt anew where mace-torch is, since the peer draws its random weights on the spot and one seed gives
# others elsewhere (where cuequivariance is importable mace-torch takes another basis, with fewer weights).
# CLEBSCH_KK_LMP, CLEBSCH_KK_PLUGIN: a Kokkos lmp (cross_compile_lammps.sh) and clebschkkplugin.so, with clebschplugin.so
# one folder above it; without them only `device cuda` runs. LMP, CLEBSCH_PLUGIN: a plain lmp (default: the Kokkos one,
# which serves as well) and clebschplugin.so, with libclebsch.so beside it. CLEBSCH_LIBRARY, CLEBSCH_GPU_MODELS, PYTHON,
# CLEBSCH_COMMIT as for run_model.sh. PEERS: a folder with mace-torch, e3nn, ase, cuequivariance for Python. TORCH_LIBS:
# folders for the run-time linker, by default those of clebschplugin.so and of Python's torch. One failing piece does not
# stop the rest. CLEBSCH_MD_QUICK=1: tiny sizes, to rehearse the script where there is no GPU.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
python=${PYTHON:-python3}
export CLEBSCH_LMP="${LMP:-${CLEBSCH_LMP:-${CLEBSCH_KK_LMP:-$root/.venv/bin/lmp}}}"
export CLEBSCH_PLUGIN="${CLEBSCH_PLUGIN:-$root/build/lib/clebschplugin.so}"
export CLEBSCH_CACHE_DIR="${CLEBSCH_CACHE_DIR:-/tmp/clebsch-kernels}"
export PYTHONPATH="$root/src/python${PYTHONPATH:+:$PYTHONPATH}"
[ -n "${TORCH_LIBS:-}" ] ||
  TORCH_LIBS=$(dirname "$CLEBSCH_PLUGIN"):$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/lib
export TORCH_LIBS
styles=cuda
[ -z "${CLEBSCH_KK_LMP:-}" ] || styles=cuda,kk
[ "$styles" = cuda,kk ] || echo "clebsch/kk is left out: CLEBSCH_KK_LMP is not set"
threads=$(nproc)
[ "$threads" -le 8 ] || threads=8
md="$python -W ignore $root/tests/bench/md"
cd "$root/tests/gpu" || exit 1
small=64,512,8000 large=64000,1000000 peer=512,8000 ranks=64000 steps=500 leak=100000
[ -z "${CLEBSCH_MD_QUICK:-}" ] || small=64 large=64 peer=64 ranks=64 steps=10 leak=100
status=0
# bench NAME LIMIT OPTION...: one run of tests/bench/md into md_NAME.json
bench() {
  name=$1 limit=$2
  shift 2
  # shellcheck disable=SC2086
  timeout "$limit" $md --threads "$threads" --json "$out/md_$name.json" --plot "$out/md_$name.png" --logs "$out/logs" \
    --total "$((limit - 25))" --limit "$limit" "$@" > "$out/md_$name.txt" 2>&1
}
[ $# -gt 0 ] || set -- tests bench max million peers leak profile
for piece in "$@"; do
  start=$(date +%s)
  case $piece in
    tests)
      timeout 100 "$python" -W ignore test_md.py "$out/md_tests.json" --styles "$styles" --threads 2 --ranks 2 --jobs 6 \
        --limit 60 --total 75 > "$out/md_tests.txt" 2>&1
      ;;
    bench)
      bench bench 190 --styles "$styles" --cases mace-M,carbon,nequip-M,water --atoms $small --steps $steps --seconds 8 \
        --no-peers
      ;;
    max)
      (
        bench max 75 --styles "${styles#cuda,}" --cases carbon --atoms $large --steps 20 --seconds 20 --no-peers
        rc=$?
        bench max_mace 40 --styles "${styles#cuda,}" --cases mace-M --atoms "${large%%,*}" --steps 20 --seconds 20 \
          --no-peers || rc=1
        cat "$out/md_max_mace.txt" >> "$out/md_max.txt"
        exit $rc
      )
      ;;
    million)
      bench million 120 --styles "${styles#cuda,}" --cases mace-M --atoms "${large##*,}" --steps 5 --seconds 20 --no-peers
      ;;
    peers)
      PYTHONPATH="${PEERS:+$PEERS:}$PYTHONPATH"
      (
        models=$(mktemp -d) && trap 'rm -rf "$models"' EXIT
        folder=${CLEBSCH_GPU_MODELS:-$root/.gpu/models}
        [ ! -d "$folder" ] || ln -s "$(cd "$folder" && pwd)"/* "$models"
        rm -f "$models/mace-M.pt"
        if timeout 60 "$python" -W ignore make_mace_models.py "$models" mace-M > "$out/md_peers_model.txt" 2>&1; then
          export CLEBSCH_GPU_MODELS="$models"
        else
          echo "mace-M.pt is not made here, that of $folder is used: $(tail -n 1 "$out/md_peers_model.txt")"
        fi
        bench peers 110 --styles "${styles#cuda,}" --cases mace-M,nequip-M --atoms $peer --steps 100 --seconds 6
      )
      ;;
    leak)
      timeout 110 "$python" -W ignore leak_md.py "$out/md_leak.json" --style "${styles#cuda,}" --case carbon \
        --steps $leak --seconds 65 > "$out/md_leak.txt" 2>&1
      ;;
    profile)
      (
        here=$(dirname "${CLEBSCH_KK_LMP:-/}")
        [ -f "$here/environment" ] || { echo "no Kokkos LAMMPS of cross_compile_lammps.sh: nothing to profile" && exit 1; }
        # shellcheck source=/dev/null
        . "$here/environment"
        for case in mace-M carbon; do
          timeout 40 "$python" -W ignore profile_md.py "$out/md_profile_$case.json" --lammps "$here/lib/liblammps.so.0" \
            --plugin "$CLEBSCH_KK_PLUGIN" --case $case --atoms $peer || status=1
        done
        exit $status
      ) > "$out/md_profile.txt" 2>&1
      ;;
    ranks)
      (
        gpus=$(nvidia-smi -L 2> /dev/null | grep -c GPU)
        [ "$gpus" -gt 0 ] || gpus=1
        timeout 110 "$python" -W ignore test_md.py "$out/md_ranks_tests.json" --styles kk --threads 2 --jobs 6 \
          --limit 60 --total 60 --ranks 2 --gpus "$([ "$gpus" -gt 2 ] && echo 2 || echo "$gpus")" --every
        rc=$?
        for n in 1 $gpus; do
          bench "ranks_$n" 75 --styles kk --cases carbon,allegro,mace-M --atoms $ranks --steps 100 --seconds 6 \
            --ranks "$n" --gpus "$n" --no-peers || rc=1
          cat "$out/md_ranks_$n.txt"
          [ "$gpus" -gt 1 ] || break
        done
        exit $rc
      ) > "$out/md_ranks.txt" 2>&1
      ;;
    *) echo "unknown piece $piece" && false ;;
  esac
  rc=$?
  echo "== md $piece: status $rc, $(($(date +%s) - start)) s"
  [ $rc = 0 ] || status=1
  [ ! -f "$out/md_$piece.txt" ] || cut -c1-330 "$out/md_$piece.txt" | tail -n 70
done
exit $status
