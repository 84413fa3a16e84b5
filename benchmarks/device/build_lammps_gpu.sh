#!/bin/bash
# Builds LAMMPS with Kokkos, libclebsch and both plugins on a bare GPU machine without a network, where many cores make
# minutes of what takes cross_compile_lammps.sh most of an hour on two:
#
#   here:   benchmarks/device/build_lammps_gpu.sh sources --lammps SOURCE --kokkos SOURCE --mpi PREFIX --out sources.tar.xz
#   there:  benchmarks/device/build_lammps_gpu.sh build --sources sources.tar.xz --out FOLDER [--work /tmp/lammps-gpu]
#             [--arch HOPPER90] [--jobs CORES] [--only lammps|plugin]
#
# SOURCE and PREFIX as for cross_compile_lammps.sh, which does the building. The GPU machine needs this checkout, nvcc,
# CMake, Ninja, a C++ compiler and a Python with torch (PYTHON, default python3). FOLDER receives
#   lammps-kokkos.tar.xz.00 .01 ...  LAMMPS, Kokkos and MPI in pieces of 15 MiB:  cat lammps-kokkos.tar.xz.* | tar xJ
#   plugin.tar.xz    lib/libclebsch.so, both plugins and the libraries of their styles, and for tests/gpu/test_md.py
#                    lib/kokkos/callpair.so
#   conformance.tar.xz  LAMMPS's own test_pair_style for it (tests/lammps/conformance), where the sources have its parts
#   host.tar.xz      Kokkos's headers and settings and LAMMPS's cache: with them --only plugin builds new plugins for the
#                    same LAMMPS on a fresh machine, in a minute (--host host.tar.xz)
#   summary.txt      the machine's tools and the seconds of each part; build.log, plugin.log: what the parts said
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
verb=${1:-}
shift || true
lammps='' kokkos='' mpi='' sources='' host='' out='' work=/tmp/lammps-gpu arch=HOPPER90 only=''
# nproc reads OMP_NUM_THREADS, which says nothing of compilers.
jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
while (($#)); do
  case $1 in
    --lammps) lammps=$(realpath "$2") ;;
    --kokkos) kokkos=$(realpath "$2") ;;
    --mpi) mpi=$(realpath "$2") ;;
    --sources) sources=$(realpath "$2") ;;
    --host) host=$(realpath "$2") ;;
    --out) out=$(realpath -m "$2") ;;
    --work) work=$(realpath -m "$2") ;;
    --arch) arch=$2 ;;
    --jobs) jobs=$2 ;;
    --only) only=$2 ;;
    *) echo "unknown option $1" >&2 && exit 1 ;;
  esac
  shift 2
done

# What the build reads, in one archive of about 10 MB: of LAMMPS's packages KOKKOS and PLUGIN, and of others the styles
# that the table of tests/lammps/options has.
styles=(MC/fix_{gcmc,widom,atom_swap} MOLECULE/atom_vec_bond REPLICA/{neb,fix_neb})
make_sources() {
  local folder name
  [[ -f $lammps/src/version.h && -f $kokkos/bin/nvcc_wrapper && -x $mpi/bin/mpicxx && -n $out ]] || {
    echo "expected --lammps, --kokkos (source trees), --mpi (PyPI's mpich) and --out; see the head of $0" >&2
    exit 1
  }
  folder=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf '$folder'" EXIT
  mkdir -p "$folder"/{lammps/src,kokkos,mpi/lib,mpi/bin,headers/include}
  cp -r "$lammps/cmake" "$folder/lammps/"
  cp "$lammps"/src/*.{cpp,h} "$folder/lammps/src/"
  cp -r "$lammps"/src/{KOKKOS,PLUGIN,fmt} "$folder/lammps/src/"
  for name in "${styles[@]}"; do
    mkdir -p "$folder/lammps/src/$(dirname "$name")"
    cp "$lammps/src/$name".{h,cpp} "$folder/lammps/src/$(dirname "$name")/"
  done
  for name in bin cmake core containers algorithms simd tpls example benchmarks CMakeLists.txt LICENSE Copyright.txt; do
    cp -r "$kokkos/$name" "$folder/kokkos/"
  done
  find "$folder/kokkos" -type d \( -name unit_test -o -name unit_tests -o -name perf_test -o -name performance_tests \) \
    -prune -exec rm -rf {} +
  # Of the environment that holds MPICH, only what is MPICH's.
  cp -a "$mpi"/bin/{mpicxx,mpiexec,hydra_pmi_proxy} "$folder/mpi/bin/"
  cp -a "$mpi"/lib/{libmpi.so.12,mpich} "$folder/mpi/lib/"
  ln -s libmpi.so.12 "$folder/mpi/lib/libmpi.so" # there it is a linker script, which nvcc does not read
  mkdir "$folder/mpi/include"
  cp "$mpi"/include/mpi*.h "$folder/mpi/include/"
  # A header-only library of Clebsch's sources (another one, fmt, comes with torch).
  cp -r "$root"/.venv/lib/python3*/site-packages/nlohmann_json/include/nlohmann "$folder/headers/include/"
  # LAMMPS's own tests of pair styles, and what they are linked with, as static libraries of Debian.
  if [[ -f /usr/include/yaml.h && -d /usr/include/gtest && -d /usr/include/gmock ]]; then
    mkdir -p "$folder/lammps/unittest/force-styles" "$folder"/testing/{include,lib}
    cp "$lammps"/unittest/force-styles/*.{h,cpp} "$folder/lammps/unittest/force-styles/"
    cp -r /usr/include/{gtest,gmock,yaml.h} "$folder/testing/include/"
    cp -L "$(dirname "$(find /usr/lib -name libyaml.a | sed -n 1p)")"/lib{yaml,gtest,gmock}.a "$folder/testing/lib/"
  fi
  tar cf - -C "$folder" . | xz -9 -T1 > "$out"
  ls -l "$out"
}

# A CMake package of the header library.
write_packages() {
  local place=$work/sources/headers
  mkdir -p "$place/lib/cmake/nlohmann_json"
  cat > "$place/lib/cmake/nlohmann_json/nlohmann_jsonConfig.cmake" << 'TEXT'
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
set_target_properties(nlohmann_json::nlohmann_json PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_CURRENT_LIST_DIR}/../../../include)
TEXT
}

compile() {
  "$here/cross_compile_lammps.sh" --lammps "$work/sources/lammps" --kokkos "$work/sources/kokkos" \
    --mpi "$work/sources/mpi" --work "$work" --arch "$arch" --jobs "$jobs" "$@"
}

# timed LOG NAME COMMAND...: adds to LOG.log, and a line to summary.txt; a failure shows the end of its log.
timed() {
  local log=$out/$1.log name=$2 start=$SECONDS rc=0
  shift 2
  # In the background, because errors do not stop a function that is part of a condition.
  (set -e && "$@") >> "$log" 2>&1 &
  wait $! || rc=$?
  echo "$name: $((SECONDS - start)) s, status $rc" | tee -a "$out/summary.txt"
  ((rc == 0)) || { grep -n -m 5 -A 12 -E 'FAILED|error:|Error' "$log" || tail -n 40 "$log"; }
  return "$rc"
}

build_plugin() {
  local options=$work/host-options.txt configuration torch
  write_packages
  python3 "$root/scripts/kokkos_host.py" --lammps-build "$work/build" --options "$options"
  mapfile -t configuration < "$options"
  torch=$("${PYTHON:-python3}" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
  cmake -S "$root" -B "$work/clebsch" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLEBSCH_TESTS=OFF -DCLEBSCH_PYTHON=OFF \
    "${configuration[@]}" -DTORCH_DIR="$torch" -DCMAKE_PREFIX_PATH="$work/sources/headers"
  ninja -C "$work/clebsch" -j "$jobs" clebsch clebschplugin clebschkkplugin callpair
  (cd "$work/clebsch" && strip --strip-unneeded lib/*.so lib/kokkos/*.so)
  tar cf - -C "$work/clebsch" lib/libclebsch.so lib/{clebschplugin,libclebsch_lammps}.so \
    lib/kokkos/{clebschkkplugin,libclebsch_lammps_kokkos,callpair}.so |
    xz -6 -T4 > "$out/plugin.tar.xz"
}

# test_pair_style for this LAMMPS; it is linked with LAMMPS's library, so that comes first.
build_conformance() {
  local testing=$work/sources/testing
  cmake -S "$root/tests/lammps/conformance" -B "$work/conformance" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DLAMMPS_SOURCE_DIR="$work/sources/lammps" -DLAMMPS_BUILD_DIR="$work/build" -DCONFORMANCE_GPU=ON \
    -DCMAKE_CXX_FLAGS="-isystem $testing/include" -DYAML_INCLUDE_DIR="$testing/include" \
    -DYAML_LIBRARY="$testing/lib/libyaml.a" -DGTEST_INCLUDE_DIR="$testing/include" \
    -DGTEST_LIBRARY="$testing/lib/libgtest.a" -DGTEST_MAIN_LIBRARY="$testing/lib/libgtest.a" \
    -DGMOCK_LIBRARY="$testing/lib/libgmock.a" -DGMOCK_MAIN_LIBRARY="$testing/lib/libgmock.a" \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$work/stubs:$work/prefix/lib:$work/sources/mpi/lib"
  ninja -C "$work/conformance" -j "$jobs"
  strip -s "$work/conformance/test_pair_style"
  tar cf - -C "$work/conformance" test_pair_style | xz -6 > "$out/conformance.tar.xz"
}

build_lammps() {
  compile --stage lammps
  compile --stage pack --out "$work/lammps-kokkos.tar.xz"
  split -b 15M -d "$work/lammps-kokkos.tar.xz" "$out/lammps-kokkos.tar.xz."
}

# What a later --only plugin needs of this build, at the same paths.
pack_host() {
  cd "$work"
  tar cf - prefix lammps KOKKOS build/CMakeCache.txt build/CMakeFiles/*/CMakeCXXCompiler.cmake | xz -6 -T4 > "$out/host.tar.xz"
}

build_all() {
  [[ -s $sources && -n $out ]] || { echo "expected --sources and --out; see the head of $0" >&2 && exit 1; }
  mkdir -p "$work/sources" "$out"
  tar xJf "$sources" -C "$work/sources"
  {
    nproc
    c++ --version | sed -n 1p
    nvcc --version | sed -n 's/.*release/nvcc/p'
    cmake --version | sed -n 1p
  } | tee "$out/summary.txt"
  if [[ -n $host ]]; then
    tar xJf "$host" -C "$work"
  else
    timed build kokkos compile --stage kokkos
    timed build configure compile --stage configure
    timed build host pack_host
  fi
  # Both at a time: LAMMPS ends with a few long files, which leave most cores idle.
  local plugin='' rc=0
  if [[ $only != lammps ]]; then
    timed plugin plugin build_plugin &
    plugin=$!
  fi
  [[ $only == plugin ]] || timed build lammps build_lammps || rc=1
  [[ $only == plugin || ! -d $work/sources/testing ]] || timed conformance conformance build_conformance || rc=1
  [[ -z $plugin ]] || wait "$plugin" || rc=1
  ls -l "$out"
  return "$rc"
}

case $verb in
  sources) make_sources ;;
  build) build_all ;;
  *) echo "expected 'sources' or 'build'; see the head of $0" >&2 && exit 1 ;;
esac
