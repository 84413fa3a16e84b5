#!/usr/bin/env bash
# Jobs of a plan (scripts/gpu-lanes) that want a LAMMPS with Kokkos, which the job `build` makes in WORK on that machine:
#
#   kokkos.sh build                     LAMMPS, Kokkos, both plugins (build_lammps_gpu.sh; the bundle's sources.tar.xz)
#   kokkos.sh ranks POINTS [...]        benchmarks/md/gpu_ranks.py; points on one GPU are taken from jobs named one-*
#   kokkos.sh parts [...]               benchmarks/md/step_parts.py on two GPUs
#   kokkos.sh long MODEL [...]          benchmarks/md/long_run.py, 100 ps
#   kokkos.sh cost [...]                benchmarks/grade/kk_cost.py
#   kokkos.sh md [...]                  benchmarks/run md, clebsch/kk alone
#   kokkos.sh tests EXPRESSION          tests of tests/gpu that pytest's -k chooses, in parallel processes
#   kokkos.sh conformance gpu|cuda      LAMMPS's test_pair_style (docs/developers/conformance.md)
#   kokkos.sh aware ranks ...           any of these with an MPI that reads GPUs' memory (build_mpich_gpu.sh; the bundle's
#                                       mpich-gpu.tar.xz), which LAMMPS then hands its positions on the GPU
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=${WORK:-/tmp/clebsch-kokkos} bundle=${BUNDLE:-$root/.gpu}
what=$1
shift
python=(python3 -W ignore)
cd "$root"
if [[ $what == build ]]; then
  exec env PYTHON=python3 OMP_NUM_THREADS=1 nice -n 10 benchmarks/device/build_lammps_gpu.sh build \
    --sources "$bundle/sources.tar.xz" --work "$work" --out "$OUTDIR"
fi
lib=$work/clebsch/lib programs=$work/bundle
if [[ $what == aware ]]; then
  what=$1 programs=$work/aware
  shift
  if [[ ! -d $programs ]]; then
    # A job on another GPU may be here at the same time: the folder is made elsewhere and moved.
    made=$(mktemp -d "$work/aware.XXXX")
    cp -a "$work/bundle/." "$made"
    rm -rf "$made"/lib/{mpich,libmpi.so.12} "$made"/bin/{mpiexec,hydra_pmi_proxy}
    tar xJf "$bundle/mpich-gpu.tar.xz" -C "$made"
    mv -T "$made" "$programs" 2> /dev/null || rm -rf "$made"
  fi
  # LAMMPS reads the first variable, MPICH the others: it must not open its partner's memory (docs/developers/ranks.md).
  export MPICH_GPU_SUPPORT_ENABLED=1 MPIR_CVAR_ENABLE_GPU=1
  export MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD=${MPIR_CVAR_CH4_IPC_GPU_P2P_THRESHOLD:-1000000000}
  # Shorter than a job, so that a hang in our exchange says so.
  export CLEBSCH_COMM_TIMEOUT=${CLEBSCH_COMM_TIMEOUT:-20}
fi
torch=$(python3 -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')/lib
export CLEBSCH_LMP=$programs/lmp CLEBSCH_KK_LMP=$programs/lmp CLEBSCH_MPIRUN=$programs/mpirun
export CLEBSCH_PLUGIN=$lib/clebschplugin.so CLEBSCH_KK_PLUGIN=$lib/kokkos/clebschkkplugin.so
export CLEBSCH_CALL_PAIR=$lib/kokkos/callpair.so CLEBSCH_LIBRARY=$lib/libclebsch.so CLEBSCH_LAMMPS_IN_PYTHON=
export TORCH_LIBS=$lib:$torch
case $what in
  ranks)
    points=$1
    shift
    shopt -s nullglob
    known=("$OUT"/one-*/gpu_ranks.json)
    [[ $* == *"--comms none"* ]] || ((${#known[@]} == 0)) || set -- "$@" --known "${known[@]}"
    "${python[@]}" benchmarks/md/gpu_ranks.py "$OUTDIR" --points "$points" --style kk --steps 60 --run-seconds 5 \
      --limit 42 --seconds $((SECONDS_LEFT - 22)) "$@"
    ;;
  parts)
    export LD_LIBRARY_PATH=$programs/lib:$TORCH_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    "${python[@]}" benchmarks/md/step_parts.py "$OUTDIR" --lammps "$(find "$programs/lib" -name 'liblammps.so*' -print -quit)" \
      --mpirun "$programs/mpirun" --ranks 2 --limit 45 "$@"
    ;;
  long)
    "${python[@]}" benchmarks/md/long_run.py "$1" "$OUTDIR" --ps 100 --seconds $((SECONDS_LEFT - 15)) "${@:2}"
    ;;
  cost)
    export LD_LIBRARY_PATH=$programs/lib:$TORCH_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    "${python[@]}" benchmarks/grade/kk_cost.py --lmp "$CLEBSCH_LMP" --plugins "$lib" --device cuda --json "$OUTDIR/records.json" "$@"
    ;;
  md)
    "${python[@]}" benchmarks/run md --out "$OUTDIR" -- --styles kk --total $((SECONDS_LEFT - 25)) \
      --limit $((SECONDS_LEFT - 25)) "$@"
    ;;
  conformance)
    export LD_LIBRARY_PATH=$programs/lib:$TORCH_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    until [[ -x $work/conformance/test_pair_style ]]; do sleep 1; done # the last part of the build
    "${python[@]}" tests/lammps/conformance/run.py --host "$1" --harness "$work/conformance/test_pair_style" \
      --plugins "$lib:$lib/kokkos" --out "$OUTDIR/table.txt"
    ;;
  tests)
    "${python[@]}" scripts/gpu-tests --bundle /none run "$OUTDIR" tests --seconds $((SECONDS_LEFT - 6)) --processes "${PROCESSES:-14}" \
      --pytest -k "$1"
    ;;
  *) echo "expected build, ranks, parts, long, cost, md, conformance or tests, got $what" >&2 && exit 2 ;;
esac
