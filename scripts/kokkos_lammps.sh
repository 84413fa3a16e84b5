# shellcheck shell=bash
# A LAMMPS with Kokkos and the plugin of clebsch/kk for it, for tests. Sourced after scripts/lib.sh and scripts/lammps.sh.
#
# Kokkos comes from Debian's package libkokkos-dev (OpenMP, 5.x: what the newer LAMMPS needs), in which suite it may be.
# Its library wants a newer C library than Debian 12 has, so there lmp runs with that suite's, unpacked beside Kokkos:
# nothing of the machine changes. The rest of the process (torch, MPI) is the same as anywhere.

# Styles of what tests/lammps/test_kokkos.py, test_kokkos_mixed.py and conformance run; others are left out (scripts/lammps_subset.py).
kokkos_styles=(
  AtomStyle:atomic PairStyle:lj/cut PairStyle:hybrid PairStyle:hybrid/overlay
  FixStyle:nve FixStyle:npt FixStyle:deform FixStyle:balance
  ComputeStyle:temp ComputeStyle:pressure ComputeStyle:pe ComputeStyle:pe/atom ComputeStyle:stress/atom
  ComputeStyle:centroid/stress/atom ComputeStyle:reduce DumpStyle:custom ReaderStyle:native IntegrateStyle:verlet MinimizeStyle:cg
  CommandStyle:read_data CommandStyle:set CommandStyle:run CommandStyle:minimize CommandStyle:rerun
  CommandStyle:velocity CommandStyle:plugin
  CommandStyle:write_restart CommandStyle:read_restart CommandStyle:write_data CommandStyle:write_coeff
  'NBinStyle:*' 'NStencilStyle:*' 'NTopoStyle:*' 'NPairStyle:*'
)
# Compiling is what takes time: LAMMPS's own share of the tests' steps is small. (PKG_PLUGIN is its only other package.)
kokkos_lammps_options=(
  "${lammps_options[@]}" "-DCMAKE_PROJECT_lammps_INCLUDE=$root/scripts/lammps_precompile.cmake"
  -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DPKG_PLUGIN=ON -DPKG_KOKKOS=ON -DEXTERNAL_KOKKOS=ON
)

# download_kokkos FOLDER: Debian's Kokkos into FOLDER/usr, its version into FOLDER/version, and into FOLDER/runtime the
# C and C++ libraries that it needs where this machine's are older.
download_kokkos() {
  local folder=$1 apt_dir="$deps/apt-kokkos" apt_id apt_uri apt_keyring suite version library found=''
  own_apt "$apt_dir"
  export APT_CONFIG="$apt_dir/apt.conf"
  rm -rf "$folder" "$folder.part"
  mkdir -p "$folder.part/packages"
  for suite in trixie forky sid; do
    printf 'deb [signed-by=%s] %s %s main\n' "$apt_keyring" "$apt_uri" "$suite" >"$apt_dir/sources.list"
    apt-get update || continue
    version=$(apt-cache show --no-all-versions libkokkos-dev 2>/dev/null | sed -n 's/^Version: //p' || true)
    [[ -n $version ]] || continue
    found="$found $version ($suite)"
    [[ $version == 5.* ]] || continue
    library=$(apt-cache show --no-all-versions libkokkos-dev | sed -nE 's/^Depends:.*\b(libkokkos[0-9.]+).*/\1/p')
    (cd "$folder.part/packages" && apt-get download libkokkos-dev "$library") || continue
    unpack_kokkos "$folder.part"
    if ldd "$folder.part"/usr/lib/*/libkokkoscore.so 2>&1 | grep 'not found'; then
      mkdir "$folder.part/packages/runtime"
      (cd "$folder.part/packages/runtime" && apt-get download libc6 libstdc++6 libgcc-s1 libgomp1) || continue
      for library in "$folder.part"/packages/runtime/*.deb; do dpkg -x "$library" "$folder.part/runtime"; done
    fi
    printf '%s' "$version" >"$folder.part/version"
    rm -rf "$apt_dir" "$folder.part/packages"
    mv "$folder.part" "$folder"
    return 0
  done
  echo "expected Debian's package libkokkos-dev in version 5.x, found:${found:- none}; the messages above say what was tried"
  return 1
}

# unpack_kokkos FOLDER: FOLDER/packages/*.deb into FOLDER, usable from there.
unpack_kokkos() {
  local package targets name
  for package in "$1"/packages/*.deb; do dpkg -x "$package" "$1"; done
  targets=$(echo "$1"/usr/lib/*/cmake/Kokkos)
  # The package names its headers by their installed place, and two libraries that it does not contain: they have headers
  # alone.
  sed -i "s#\"/usr/include/kokkos\"#\"\${_IMPORT_PREFIX}/include/kokkos\"#" "$targets/KokkosTargets.cmake"
  for name in algorithms simd; do
    name="$targets/../../libkokkos$name.a"
    [[ -e $name ]] || ar rc "$name"
  done
}

# kokkos_version_of PREFIX: "5.2.2" of an installed Kokkos, or nothing.
kokkos_version_of() {
  find -L "$1" -maxdepth 6 -name KokkosConfigVersion.cmake -exec sed -nE 's/.*PACKAGE_VERSION "([0-9.]+)".*/\1/p' {} + 2>/dev/null |
    sed -n 1p
}

# build_lammps_with_kokkos SOURCE FOLDER OPTION...: the part of LAMMPS that tests need, its sources in FOLDER-source.
# kokkos_root is the Kokkos, kokkos_runtime a folder of newer C libraries or nothing.
build_lammps_with_kokkos() {
  local source=$1 folder=$2 options=() loader
  shift 2
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  export CCACHE_SLOPPINESS=pch_defines,time_macros # without, it takes no file with a precompiled header
  if [[ -n $kokkos_runtime ]]; then
    loader=$(find "$kokkos_runtime" -name 'ld-linux*.so.*' | sed -n 1p)
    # The linker sees this machine's libraries; symbols that only the newer ones have are found when lmp starts.
    options+=("-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags -Wl,-rpath,\"${loader%/*}\""
      "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -Wl,-rpath,\"${loader%/*}\" -Wl,--allow-shlib-undefined \
-Wl,--dynamic-linker=\"$loader\"")
  fi
  rm -rf "$folder-source"
  "$venv/bin/python" "$root/scripts/lammps_subset.py" "$source" "$folder-source" "${kokkos_styles[@]}"
  cmake -S "$folder-source/cmake" -B "$folder" -G Ninja "${kokkos_lammps_options[@]}" "${options[@]}" "$@" \
    -DKokkos_ROOT="$kokkos_root" -DMPI_CXX_COMPILER="$venv/bin/mpicxx" -DPython_EXECUTABLE="$venv/bin/python"
  ninja -C "$folder" -j "$jobs"
  env -u LD_LIBRARY_PATH "$folder/lmp" -help | sed -n '/^KOKKOS package/p; /^Kokkos library/p'
}

# get_kokkos: sets kokkos_root, kokkos_runtime and kokkos_version: the Kokkos in Kokkos_ROOT or Debian's. Where there is
# neither it says so, and kokkos_root is empty.
get_kokkos() {
  kokkos_root=${Kokkos_ROOT:-} kokkos_runtime=''
  if [[ -n $kokkos_root ]]; then
    kokkos_version=$(kokkos_version_of "$kokkos_root")
    [[ -n $kokkos_version ]] || die "Kokkos_ROOT=$kokkos_root is not an installed Kokkos" "expected: a prefix with KokkosConfig.cmake"
    say "-- Kokkos $kokkos_version from Kokkos_ROOT: $kokkos_root"
    return 0
  fi
  # shellcheck source=/dev/null
  if ! command -v apt-get >/dev/null || [[ $(. /etc/os-release && echo "$ID") != debian ]]; then
    say "-- clebsch/kk will not be tested: no Kokkos_ROOT, no LAMMPS_KOKKOS_BUILD_DIR, and this is not Debian, which has packages of Kokkos"
    return 0
  fi
  if [[ -f $deps/kokkos/version ]]; then
    say "-- already done: Debian's Kokkos $(<"$deps/kokkos/version")"
  else
    run_logged kokkos "getting Debian's Kokkos (15 MB)" \
      "set Kokkos_ROOT to an installed Kokkos, or leave clebsch/kk out: scripts/test --no-kokkos" download_kokkos "$deps/kokkos"
  fi
  kokkos_root="$deps/kokkos/usr" kokkos_version=$(<"$deps/kokkos/version")
  [[ ! -d $deps/kokkos/runtime ]] || kokkos_runtime="$deps/kokkos/runtime"
}

# LAMMPS 4Feb2025 cannot be compiled with Kokkos 5, LAMMPS 4Jul2026 not with Kokkos 4.
release_for_kokkos() {
  case $kokkos_version in
    4.*) echo 4Feb2025 ;;
    *) echo 4Jul2026 ;;
  esac
}

# begin_kokkos_lammps: what get_kokkos_lammps downloads.
begin_kokkos_lammps() {
  [[ -z ${LAMMPS_KOKKOS_BUILD_DIR:-} ]] || return 0
  get_kokkos
  [[ -n $kokkos_root ]] || return 0
  get_lammps_source "$(release_for_kokkos)"
}

# get_kokkos_lammps [PRECISION]: sets kokkos_lammps to the build folder of a LAMMPS with Kokkos (LAMMPS_KOKKOS_BUILD_DIR,
# or one built into .deps, double or mixed), or to nothing when there is no Kokkos.
get_kokkos_lammps() {
  local precision=${1:-double} release key
  kokkos_lammps=''
  if [[ $precision == double && -n ${LAMMPS_KOKKOS_BUILD_DIR:-} ]]; then
    kokkos_lammps=$LAMMPS_KOKKOS_BUILD_DIR
    say "-- Kokkos LAMMPS from LAMMPS_KOKKOS_BUILD_DIR: $kokkos_lammps"
    return 0
  fi
  get_kokkos
  [[ -n $kokkos_root ]] || return 0
  release=$(release_for_kokkos)
  get_lammps_source "$release"
  kokkos_lammps="$deps/lammps-kokkos-$precision"
  key=$(key_of "$lammps_source/src/version.h" "$root/scripts/lammps_subset.py" -- "$lammps_source" "$venv" \
    "$kokkos_root $kokkos_version $kokkos_runtime" "${kokkos_styles[*]}" "${kokkos_lammps_options[*]}")
  [[ -x $kokkos_lammps/lmp ]] || rm -f "$stamps/lammps-kokkos-$precision"
  stamped "lammps-kokkos-$precision" "$key" "building LAMMPS $release with Kokkos $kokkos_version, $precision (4 minutes on 2 cores)" \
    "read the log; scripts/test --no-kokkos leaves clebsch/kk out" \
    build_lammps_with_kokkos "$lammps_source" "$kokkos_lammps" "-DKOKKOS_PREC=$precision"
}

configure_and_build_kokkos_plugin() {
  local folder=$1 options=()
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$root/lammps_plugin" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLEBSCH_WERROR="${CLEBSCH_WERROR:-ON}" "${options[@]}" \
    -Dclebsch_DIR="$build" -DCLEBSCH_KOKKOS=ON -DLAMMPS_BUILD_DIR="$kokkos_lammps" -DMPI_CXX_COMPILER="$venv/bin/mpicxx"
  ninja -C "$folder" -j "$jobs" all callpair
}

# ensure_kokkos_tests PRECISION FOLDER: such a LAMMPS, and both plugins for it in FOLDER/lib and FOLDER/lib/kokkos: always
# a project of its own against build/, because the plain LAMMPS is another release. The tests find FOLDER/lmp.
ensure_kokkos_tests() {
  local precision=$1 folder=$2
  rm -f "$folder/lmp"
  get_kokkos_lammps "$precision"
  [[ -n $kokkos_lammps ]] || return 0
  run_logged "kokkos-plugin-$precision" "building clebsch/kk for that LAMMPS" "read the log; the first error in it names the file" \
    configure_and_build_kokkos_plugin "$folder"
  ln -s "$kokkos_lammps/lmp" "$folder/lmp"
}
