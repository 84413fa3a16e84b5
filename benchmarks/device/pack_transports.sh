#!/bin/bash
# Exchanges of features between GPUs, tested and timed without LAMMPS on a machine that has Python with torch and nothing
# of this checkout's build:
#
#   here:   benchmarks/device/pack_transports.sh .gpu/transports
#   there:  .gpu/transports/run 2 measure times.jsonl     (2: ranks, a GPU each; what else: tests/lammps/transports.cpp)
#           .gpu/transports/run 2 check 7 3000 2 61 halo nccl
#
# The folder (22 MB) holds build/tests/lammps/bin/gpu_transports with the MPI of the Python environment it was built for.
# tests/gpu/test_transports.py finds both as CLEBSCH_TRANSPORTS=.gpu/transports/gpu_transports and
# CLEBSCH_MPIRUN=.gpu/transports/mpirun.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
target=$(realpath -m "${1:?usage: pack_transports.sh FOLDER}")
program=$root/build/tests/lammps/bin/gpu_transports
mpi=${MPI:-$root/.venv}
[[ -x $program && -x $mpi/bin/hydra_pmi_proxy && -f $mpi/lib/libmpi.so.12 ]] || {
  echo "expected $program (ninja -C build gpu_transports) and PyPI's mpich in $mpi (MPI=...)" >&2
  exit 1
}
mkdir -p "$target"/{bin,lib}
strip -s -o "$target/bin/gpu_transports" "$program"
cp -L "$mpi/bin/mpiexec" "$mpi/bin/hydra_pmi_proxy" "$target/bin/"
cp -rL "$mpi/lib/libmpi.so.12" "$target/lib/"
if [[ -d $mpi/lib/mpich ]]; then cp -rL "$mpi/lib/mpich" "$target/lib/"; fi
cp -L "$(ldd "$program" | sed -n 's/.*libgomp.so.1 => \(\/[^ ]*\) .*/\1/p')" "$target/lib/"
cat > "$target/environment" << 'TEXT'
# NCCL and NVRTC are those of torch's wheels, where CLEBSCH_NCCL and CLEBSCH_NVRTC name no others.
packages=$(${PYTHON:-python3} -c 'import importlib.util as i; print(i.find_spec("torch").submodule_search_locations[0])')/..
for found in "$packages"/nvidia/nccl/lib/libnccl.so.2; do
  if [ -f "$found" ]; then export CLEBSCH_NCCL="${CLEBSCH_NCCL:-$found}"; fi
done
for found in "$packages"/nvidia/*/lib/libnvrtc.so.1[0-9]; do
  if [ -f "$found" ]; then export CLEBSCH_NVRTC="${CLEBSCH_NVRTC:-$found}"; fi
done
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
TEXT
cat > "$target/gpu_transports" << 'TEXT'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
exec "$here/bin/gpu_transports" "$@"
TEXT
cat > "$target/mpirun" << 'TEXT'
#!/bin/sh
# MPICH's mpiexec, on one node and without asking the network.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
exec "$here/bin/mpiexec" -launcher fork -bind-to none "$@"
TEXT
cat > "$target/run" << 'TEXT'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
ranks=$1
shift
exec "$here/mpirun" -n "$ranks" "$here/gpu_transports" "$@"
TEXT
chmod +x "$target"/{gpu_transports,mpirun,run}
du -sh "$target"
