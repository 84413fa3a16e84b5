#!/bin/bash
# Builds a LAMMPS with Kokkos for NVIDIA GPUs, on a machine without one too, and packs it with its MPI into an archive
# that needs nothing but a driver where it is unpacked (lmp and mpirun in it are scripts):
#
#   benchmarks/device/cross_compile_lammps.sh --lammps SOURCE --kokkos SOURCE --mpi PREFIX --work FOLDER \
#     --out lammps-kokkos.tar.xz [--arch HOPPER90] [--jobs 2] [--stage 'kokkos configure lammps pack']
#
# LAMMPS 4Feb2025 and Kokkos 4.5.01; needs the CUDA toolkit (nvcc in PATH), no network. PREFIX holds the MPICH of PyPI's
# package `mpich` (a Python environment with it, such as .venv). A second run goes on where the first one stopped. Two
# things make it bearable on few cores: sources that never see Kokkos go to the ordinary compiler instead of nvcc, and of
# the KOKKOS package only what runs of clebsch/kk and a sanity check need is compiled.
# The plugin: scripts/build-kokkos --lammps-build FOLDER/build. On the GPU machine itself: build_lammps_gpu.sh.
set -euo pipefail
arch=HOPPER90 jobs=2 lammps='' kokkos='' mpi='' work='' out='' stages='kokkos configure lammps pack'
while (($#)); do
  case $1 in
    --lammps) lammps=$(realpath "$2") ;;
    --kokkos) kokkos=$(realpath "$2") ;;
    --mpi) mpi=$(realpath "$2") ;;
    --work) work=$(realpath -m "$2") ;;
    --out) out=$(realpath -m "$2") ;;
    --arch) arch=$2 ;;
    --jobs) jobs=$2 ;;
    --stage) stages=$2 ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift 2
done
[[ -f $lammps/src/version.h && -f $kokkos/bin/nvcc_wrapper && -n $work ]] || {
  echo "expected --lammps, --kokkos (their source trees) and --work; see the head of $0" >&2
  exit 1
}
[[ -x $mpi/bin/mpicxx && -f $mpi/lib/libmpi.so.12 ]] || {
  echo "expected --mpi to name a prefix with bin/mpicxx and lib/libmpi.so.12, got '$mpi'" >&2
  exit 1
}
command -v nvcc > /dev/null || { echo "expected nvcc in PATH, found none" >&2 && exit 1; }
export NVCC_WRAPPER_DEFAULT_COMPILER=g++
mkdir -p "$work"
prefix=$work/prefix build=$work/build
sm=sm_$(tr -cd '0-9' <<< "$arch")
cached=$(command -v ccache || true)

# The compiler that CMake calls: nvcc for what sees Kokkos, the ordinary one, with nvcc's own options left out, for the rest.
write_launcher() {
  cat > "$work/choose" << TEXT
#!/bin/bash
compiler=\$1
shift
source=''
for word; do case \$word in *.cpp) source=\$word ;; esac; done
if [[ -n \$source && \$source != */KOKKOS/* ]] && ! grep -qi kokkos "\$source"; then
  kept=()
  for word; do
    case \$word in -extended-lambda | --extended-lambda | --expt-* | -arch=* | -Wext-lambda* | -Xcudafe*) ;; *) kept+=("\$word") ;; esac
  done
  $cached c++ "\${kept[@]}" 2> "$work/ordinary.\$\$" && rm -f "$work/ordinary.\$\$" && exit 0
  rm -f "$work/ordinary.\$\$"
fi
exec "\$compiler" "\$@"
TEXT
  chmod +x "$work/choose"
}

# Kokkos 4.5.01 is older than CUDA 13, which changed three functions.
patch_kokkos() {
  local file=$work/kokkos/core/src/Cuda/Kokkos_Cuda_Instance.hpp
  rm -rf "$work/kokkos"
  cp -r "$kokkos" "$work/kokkos"
  sed -i "s/^default_arch=\"sm_.*\"/default_arch=\"$sm\"/" "$work/kokkos/bin/nvcc_wrapper"
  [[ $(nvcc --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p') -lt 13 ]] || python3 - "$file" << 'TEXT'
import pathlib, sys

path = pathlib.Path(sys.argv[1])
text = path.read_text()
place = "[&] { cudaMemLocation at{}; at.type = cudaMemLocationTypeDevice; at.id = DEVICE; return at; }()"
for old, new in (
    ("cudaGraphAddDependencies(graph, from, to, numDependencies)",
     "cudaGraphAddDependencies(graph, from, to, nullptr, numDependencies)"),
    ("cudaMemAdvise(devPtr, count, advice, device)",
     f"cudaMemAdvise(devPtr, count, advice, {place.replace('DEVICE', 'device')})"),
    ("cudaMemPrefetchAsync(devPtr, count, dstDevice,",
     f"cudaMemPrefetchAsync(devPtr, count, {place.replace('DEVICE', 'dstDevice')}, 0,"),
):
    if text.count(old) != 1:
        sys.exit(f"{path}: expected once: {old}")
    text = text.replace(old, new)
path.write_text(text)
TEXT
}

stage_kokkos() {
  if [[ -f $prefix/lib/cmake/Kokkos/KokkosConfig.cmake ]]; then
    echo "-- Kokkos is there"
    return
  fi
  [[ -f $work/kokkos-build/build.ninja ]] || patch_kokkos
  cmake -S "$work/kokkos" -B "$work/kokkos-build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DCMAKE_CXX_COMPILER="$work/kokkos/bin/nvcc_wrapper" -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_SERIAL=ON \
    "-DKokkos_ARCH_$arch=ON" -DCMAKE_CXX_STANDARD=17 -DCMAKE_INSTALL_PREFIX="$prefix"
  ninja -C "$work/kokkos-build" -j "$jobs" install
}

# A source tree that differs in its cmake/ folder alone: KOKKOS's sources come from a copy without what is not needed.
write_tree() {
  local tree=$work/lammps name
  rm -rf "$tree" "$work/KOKKOS"
  mkdir -p "$tree"
  for name in "$lammps"/*; do ln -s "$name" "$tree/"; done
  rm "$tree/cmake"
  cp -r "$lammps/cmake" "$tree/cmake"
  cp -r "$lammps/src/KOKKOS" "$work/KOKKOS"
  sed -i "s|get_filename_component(LAMMPS_DIR \${CMAKE_CURRENT_SOURCE_DIR}/.. ABSOLUTE)|set(LAMMPS_DIR $lammps)|" \
    "$tree/cmake/CMakeLists.txt"
  sed -i "s|set(KOKKOS_PKG_SOURCES_DIR .*)|set(KOKKOS_PKG_SOURCES_DIR $work/KOKKOS)|" \
    "$tree/cmake/Modules/Packages/KOKKOS.cmake"
  grep -q "set(LAMMPS_DIR $lammps)" "$tree/cmake/CMakeLists.txt"
  grep -q "set(KOKKOS_PKG_SOURCES_DIR $work/KOKKOS)" "$tree/cmake/Modules/Packages/KOKKOS.cmake"
  (
    cd "$work/KOKKOS"
    mkdir kept
    for name in atom_vec_atomic atom_vec_bond atom_vec_hybrid compute_temp fix_minimize fix_nve fix_nh fix_nvt fix_npt fix_nph fix_langevin \
      fix_momentum fix_property_atom pair_lj_cut pair_hybrid pair_hybrid_overlay region_block; do
      for file in "${name}"_kokkos.*; do [[ ! -e $file ]] || mv "$file" kept/; done
    done
    rm -f {angle,atom_vec,bond,compute,dihedral,dump,fix,gran,improper,kspace,mliap,pair,pppm,region}_*_kokkos.* \
      dynamical_matrix_kokkos.* third_order_kokkos.* remap_kokkos.* fft3d_kokkos.* grid3d_kokkos.* meam_*
    mv kept/* . && rmdir kept
  )
}

stage_configure() {
  local name packages=()
  # What the table of tests/lammps/options runs, where SOURCE has it.
  for name in MC MOLECULE REPLICA; do [[ ! -d $lammps/src/$name ]] || packages+=("-DPKG_$name=ON"); done
  [[ -f $build/build.ninja ]] || write_tree
  write_launcher
  mkdir -p "$work/stubs"
  # The toolkit's stand-in for the driver's library, for the linker where there is no driver.
  ln -sf "$(find "$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")/" -path '*stubs/libcuda.so' | sed -n 1p)" \
    "$work/stubs/libcuda.so.1"
  [[ -f $build/build.ninja ]] || cmake -S "$work/lammps/cmake" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER="$prefix/bin/nvcc_wrapper" -DCMAKE_CXX_COMPILER_LAUNCHER="$work/choose" -DCMAKE_CXX_STANDARD=17 \
    -DBUILD_SHARED_LIBS=ON -DBUILD_MPI=ON -DMPI_CXX_COMPILER="$mpi/bin/mpicxx" -DBUILD_OMP=ON \
    -DPKG_KOKKOS=ON -DPKG_PLUGIN=ON "${packages[@]}" -DEXTERNAL_KOKKOS=ON -DKokkos_ROOT="$prefix" \
    -DWITH_JPEG=OFF -DWITH_PNG=OFF -DWITH_FFMPEG=OFF -DWITH_GZIP=OFF -DWITH_CURL=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_DISABLE_FIND_PACKAGE_ClangFormat=ON \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$work/stubs"
}

stage_lammps() { ninja -C "$build" -j "$jobs"; }

# What the program loads of its own build: Kokkos and LAMMPS. The system's C and C++ libraries and the driver are there.
libraries_of() {
  LD_LIBRARY_PATH=$work/stubs:$prefix/lib ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -E '/(liblammps|libkokkos|libcudart|libcublas|libcufft|libcusparse|libcurand|libnvJitLink)[^/]*$'
}

stage_pack() {
  local bundle=$work/bundle file
  [[ -x $build/lmp && -n $out ]] || { echo "expected $build/lmp and --out" >&2 && return 1; }
  rm -rf "$bundle"
  mkdir -p "$bundle"/{bin,lib}
  cp "$build/lmp" "$mpi/bin/hydra_pmi_proxy" "$bundle/bin/"
  cp -L "$mpi/bin/mpiexec" "$bundle/bin/mpiexec"
  cp -a "$mpi/lib/libmpi.so.12" "$mpi/lib/mpich" "$bundle/lib/"
  for file in $(libraries_of "$bundle/bin/lmp"); do cp -L "$file" "$bundle/lib/"; done
  strip -s "$bundle/bin/lmp" "$bundle"/lib/liblammps.so* "$bundle"/lib/libkokkos*
  cat > "$bundle/environment" << 'TEXT'
export LD_LIBRARY_PATH=$here/lib:${TORCH_LIBS:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
TEXT
  cat > "$bundle/lmp" << 'TEXT'
#!/bin/sh
# LAMMPS on a bare machine: one rank by itself, or more under the mpirun beside it.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
# By this LAMMPS tells which GPU of several a rank is to take; MPICH gives the number another name.
[ -z "${MPI_LOCALRANKID:-}" ] || export PMI_LOCAL_RANK="${PMI_LOCAL_RANK:-$MPI_LOCALRANKID}"
exec "$here/bin/lmp" "$@"
TEXT
  cat > "$bundle/mpirun" << 'TEXT'
#!/bin/sh
# MPICH's mpiexec, on one node and without asking the network: mpirun -n 2 FOLDER/lmp -in ...
here=$(cd "$(dirname "$0")" && pwd)
. "$here/environment"
exec "$here/bin/mpiexec" -launcher fork -bind-to none "$@"
TEXT
  chmod +x "$bundle/lmp" "$bundle/mpirun"
  tar cf - -C "$bundle" . | xz -6 -T4 --block-size=40MiB > "$out"
  ls -l "$out"
}

for stage in $stages; do
  echo "== $stage"
  "stage_$stage"
done
