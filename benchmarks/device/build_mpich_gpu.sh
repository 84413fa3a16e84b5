#!/bin/bash
# Builds an MPICH that reads and writes GPUs' memory, in place of PyPI's, which does not: LAMMPS then sends positions from
# GPU to GPU (`gpu/aware on`), and `transport aware` has an MPI to run with. Same ABI (libmpi.so.12), one node.
#
#   benchmarks/device/build_mpich_gpu.sh PREFIX [--work FOLDER] [--sm 90] [--jobs 2]
#
# The source is that of this distribution's package (Debian 12: MPICH 4.0.2), whose ABI is that of MPICH 5. PREFIX then
# serves as MPI=PREFIX of pack_transports.sh, and PREFIX/mpich-gpu.tar.xz (lib and bin) is for the jobs `aware` of
# plans/kokkos.sh. Needs nvcc, autoconf, automake and libtool; half an hour on two cores.
set -euo pipefail
prefix=$(realpath -m "${1:?usage: build_mpich_gpu.sh PREFIX [--work FOLDER] [--sm 90] [--jobs 2]}")
shift
work=/tmp/mpich-gpu sm=90 jobs=2
while (($#)); do
  case $1 in
    --work) work=$(realpath -m "$2") ;;
    --sm) sm=$2 ;;
    --jobs) jobs=$2 ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift 2
done
cuda=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
mkdir -p "$work"

# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/../../scripts/apt.sh"

fetch_source() {
  local apt=$work/apt suite apt_id apt_uri apt_keyring
  own_apt "$apt"
  suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  echo "deb-src [signed-by=$apt_keyring] $apt_uri $suite main" > "$apt/sources.list"
  export APT_CONFIG=$apt/apt.conf
  (cd "$work" && apt-get update -q && apt-get source -q --download-only mpich)
  tar xf "$work"/mpich_*.orig.tar.* -C "$work"
}

compgen -G "$work/mpich-*/configure" > /dev/null || fetch_source
source=$(dirname "$(compgen -G "$work/mpich-*/configure")")
# CUDA 13 no longer has the member that this release reads; every CUDA has the attribute.
sed -i 's/= cudaGetDeviceProperties(&prop, i)/= cudaDeviceGetAttribute(\&mode, cudaDevAttrComputeMode, i)/
  s/struct cudaDeviceProp prop;/int mode = cudaComputeModeDefault;/; s/prop\.computeMode/mode/' \
  "$source/modules/yaksa/src/backend/cuda/hooks/yaksuri_cuda_init_hooks.c"
# Kernels for deeply nested datatypes are most of a million lines, and LAMMPS and Clebsch send plain arrays. Each file
# would also be compiled twice, with -fPIC and without.
if [[ ! -f $work/fewer-kernels ]]; then
  (cd "$source/modules/yaksa" && ./autogen.sh --pup-max-nesting=2)
  sed -i 's/^CMD="${@} -o $NPIC_FILEPATH"/CMD="cp $PIC_FILEPATH $NPIC_FILEPATH"/' "$source/modules/yaksa/src/backend/cuda/cudalt.sh"
  touch "$work/fewer-kernels"
fi
mkdir -p "$work/build"
cd "$work/build"
[[ -f Makefile ]] || "$source/configure" --prefix="$prefix" --with-device=ch4:ofi --with-libfabric=embedded \
  --with-hwloc=embedded --with-cuda="$cuda" --with-cuda-sm="$sm" --with-pm=hydra --disable-fortran --disable-romio \
  --disable-static --disable-doc --enable-fast=O2 --without-x CFLAGS='-O2 -w' CXXFLAGS='-O2 -w'
make -j "$jobs"
make install
for program in mpiexec hydra_pmi_proxy; do strip -s "$prefix/bin/$program"; done
strip --strip-unneeded "$prefix"/lib/libmpi.so.12.*
mkdir -p "$prefix/pack/bin" "$prefix/pack/lib"
cp -L "$prefix"/bin/{mpiexec,hydra_pmi_proxy} "$prefix/pack/bin/"
cp -L "$prefix/lib/libmpi.so.12" "$prefix/pack/lib/"
cp -L "$(ldd "$prefix/lib/libmpi.so.12" | sed -n 's/.*=> \(\/[^ ]*libcudart[^ ]*\) .*/\1/p')" "$prefix/pack/lib/"
tar cJf "$prefix/mpich-gpu.tar.xz" -C "$prefix/pack" .
ls -l "$prefix/mpich-gpu.tar.xz"
