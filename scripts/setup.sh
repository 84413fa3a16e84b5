# shellcheck shell=bash
# The set-up steps that scripts/quickstart and scripts/test share. Sourced after scripts/lib.sh and
# scripts/lammps.sh. Each step prints what it does, or that it was done before.

torch_version=2.11.0
uv_version=0.13.9
torch_index=''
build="$root/build"

# PACKAGE|what shows that it is there. Looked for by what they provide, not by name: tools may as
# well come from environment modules or a user's own prefix.
build_needs=(
  'g++|command -v c++'
  'cmake|command -v cmake'
  'ninja-build|command -v ninja'
  'python3|command -v python3'
  'python3-venv|python3 -c "import ensurepip, venv"'
  'ca-certificates|test -d /etc/ssl/certs'
)
test_needs=(
  'git|command -v git'
  'libgtest-dev|has_header gtest/gtest.h'
)
# Of the nightly part `fuzz` alone.
fuzz_needs=(
  'clang|command -v clang++'
  'libclang-rt-14-dev|printf "extern \"C\" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }" | clang++ -fsanitize=fuzzer,address -x c++ - -o /dev/null'
)
# Of the nightly part `conformance` alone: what LAMMPS's test_pair_style is built with.
conformance_needs=(
  'libgmock-dev|has_header gmock/gmock.h'
  'libyaml-dev|has_header yaml.h'
)

has_header() { printf '#include <%s>\n' "$1" | c++ -std=c++17 -E -x c++ - -o /dev/null; }

# ensure_packages NEED...: as root installs what is missing, otherwise says how to.
ensure_packages() {
  local need missing=()
  for need in "$@"; do
    eval "${need#*|}" >/dev/null 2>&1 || missing+=("${need%%|*}")
  done
  if ((${#missing[@]} == 0)); then
    say "-- already done: system packages"
    return 0
  fi
  local line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if ! command -v apt-get >/dev/null; then
    die "missing on this machine: ${missing[*]} (Debian's names)" "install them with your package manager and run this again"
  elif ((EUID != 0)); then
    die "missing on this machine: ${missing[*]}" "install them with this line and run this again:" \
      "  sudo sh -c '$line'"
  fi
  run_logged packages "installing system packages: ${missing[*]}" "run by hand: $line" \
    env DEBIAN_FRONTEND=noninteractive sh -c "$line"
  for need in "$@"; do
    eval "${need#*|}" >/dev/null 2>&1 ||
      die "installed ${need%%|*}, yet this fails: ${need#*|}" "log: logs/packages.log"
  done
}

python_ok() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; }

ensure_venv() {
  if [[ -x $venv/bin/python ]] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "-- already done: Python environment .venv"
  else
    python_ok python3 || die "expected Python 3.11 to 3.14 as python3, got $(python3 --version 2>&1)" \
      "put a newer python3 first in PATH"
    run_logged venv "making the Python environment .venv" "delete .venv and run this again" \
      python3 -m venv --clear "$venv"
  fi
  # A company's own certificate authority is in the machine's store, not in pip's.
  if [[ -z ${PIP_CERT:-} && -f /etc/ssl/certs/ca-certificates.crt ]]; then
    export PIP_CERT=/etc/ssl/certs/ca-certificates.crt
  fi
  export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-120}
  ensure_uv
}

# uv installs torch in a third of pip's time, and reads its settings from other variables than pip does.
ensure_uv() {
  local find_links index extra
  if ! "$venv/bin/python" -m uv --version >/dev/null 2>&1; then
    say "-> installing uv, a quick pip"
    mkdir -p "$logs"
    "$venv/bin/python" -m pip install --progress-bar off "uv==$uv_version" >"$logs/uv.log" 2>&1 ||
      warn "no uv (log: logs/uv.log); pip, which is slower, installs instead"
  fi
  pip_setting() { "$venv/bin/python" -m pip config get "$1" 2>/dev/null || true; }
  index=${PIP_INDEX_URL:-$(pip_setting global.index-url)}
  extra=${PIP_EXTRA_INDEX_URL:-$(pip_setting global.extra-index-url)}
  find_links=${PIP_FIND_LINKS:-$(pip_setting global.find-links)}
  [[ -z $index ]] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}
  [[ -z $extra ]] || export UV_INDEX=${UV_INDEX:-$extra}
  # pip passes over a folder that is not there, uv stops.
  [[ -z $find_links || ($find_links == /* && ! -d ${find_links%% *}) ]] || export UV_FIND_LINKS=${UV_FIND_LINKS:-${find_links// /,}}
  [[ -z ${PIP_CERT:-} ]] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
  export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-$PIP_DEFAULT_TIMEOUT}
  # The cache may be on another disk: then uv copies, which is no reason for a warning.
  export UV_LINK_MODE=${UV_LINK_MODE:-$([[ $(stat -c %d "${HOME:-/}" 2>/dev/null) == "$(stat -c %d "$root")" ]] && echo hardlink || echo copy)}
}

pip_install() {
  if "$venv/bin/python" -m uv --version >/dev/null 2>&1; then
    "$venv/bin/python" -m uv pip install --python "$venv/bin/python" "$@"
  else
    "$venv/bin/python" -m pip install --progress-bar off "${@/#--reinstall/--force-reinstall}"
  fi
}

# The version of the torch that .venv's Python would import, without importing it.
torch_found() { "$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null || true; }

use_torch_dir() {
  local folder=$TORCH_DIR site
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  # A .pth line comes after .venv's own packages on the path, so only torch and what .venv lacks
  # come from there. The link is for Clebsch's libraries, which look for torch beside their package.
  ln -sfn "$(cd "$folder" && pwd -P)" "$site/torch"
  dirname "$(cd "$folder" && pwd -P)" >"$site/clebsch_torch_dir.pth"
  "$venv/bin/python" -c 'import torch; print(torch.__version__, torch.__file__)'
}

ensure_torch() {
  local found
  if [[ -n ${TORCH_DIR:-} ]]; then
    [[ -f $TORCH_DIR/version.py && -d $TORCH_DIR/lib ]] ||
      die "TORCH_DIR=$TORCH_DIR is not an installed torch" \
        "expected: the folder of the Python package, .../site-packages/torch"
    stamped torch "dir $TORCH_DIR" "using the torch in TORCH_DIR ($TORCH_DIR)" \
      "TORCH_DIR must belong to the same Python version as .venv; unset it to have torch downloaded" use_torch_dir
  else
    found=$(torch_found)
    if [[ ${found%%+*} == "$torch_version" && -z $torch_index ]]; then
      say "-- already done: torch $found"
    else
      if [[ -z $torch_index ]]; then
        say "torch $torch_version with its GPU libraries is a download of about 2.7 GB (5 GB on disk)."
        say "For a CPU-only one, about 0.2 GB, pass --torch-index with the index of torch's CPU wheels."
      else
        say "torch $torch_version comes from $torch_index: about 0.2 GB if that is the index of the CPU-only wheels."
      fi
      stamped torch "pip $torch_version $torch_index" "installing torch $torch_version" \
        "check the way to the package index, or set TORCH_DIR to an installed torch" \
        pip_install "torch==$torch_version" ${torch_index:+--index-url "$torch_index"}
    fi
  fi
  found=$(torch_found)
  [[ ${found%%+*} == "$torch_version" ]] || warn "Clebsch is tested with torch $torch_version, got ${found:-an unknown version}"
}

# ensure_requirements NAME: scripts/NAME.txt. The lists are complete, so pip need not (and, with torch at
# stake, must not) find out by itself what else is wanted.
ensure_requirements() {
  local list="$root/scripts/$1.txt"
  stamped "$1" "$(key_of "$list" --)" "installing Python packages (scripts/$1.txt)" \
    "check the way to the package index" pip_install --no-deps -r "$list"
}

# ensure_beside NAME: a folder of packages for tests that cannot share .venv: scripts/requirements-NAME.txt says why.
ensure_beside() {
  local list="$root/scripts/requirements-$1.txt" folder="$deps/$1"
  stamped "requirements-$1" "$(key_of "$list" --)" "installing packages for tests (scripts/requirements-$1.txt)" \
    "check the way to the package index" pip_install --no-deps --upgrade --target "$folder" -r "$list"
}

# configure_and_build FOLDER PRESET OPTION...
configure_and_build() {
  local folder=$1 preset=$2 options=()
  shift 2
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cd "$root"  # presets are looked for in the working directory
  cmake --preset "$preset" "${options[@]}" "${own_lammps[@]}" "$@"
  ninja -C "$folder" -j "$jobs"
}

# build_clebsch PRESET OPTION...: into build/. Always run: the build system knows what is out of date.
build_clebsch() {
  run_logged build "building Clebsch" "read the log; the first error in it names the file" \
    configure_and_build "$build" "$@"
}

# The wheel of what build_clebsch has built, which tests/wheel takes from build/wheel.
install_into_venv() {
  rm -rf "$build/wheel"
  "$venv/bin/python" -m pip wheel --no-build-isolation --no-deps "--config-settings=build-dir=$build" -w "$build/wheel" "$root"
  pip_install --no-deps --reinstall "$build"/wheel/clebsch-*.whl
}

install_clebsch() {
  local files
  mapfile -t files < <({
    find "$root/src/python" "$root/cmake" "$build/lib" -type f \( -name '*.py' -o -name '*.so' -o -name '*.cmake' \)
    ls "$root"/{pyproject.toml,VERSION,CMakeLists.txt,README.md} "$root"/models/*.{md,pt} "$root"/src/CMakeLists.txt
  } | LC_ALL=C sort)
  compgen -G "$build/wheel/clebsch-*.whl" >/dev/null || rm -f "$stamps/install"
  stamped install "$(key_of "${files[@]}" --)" "installing Clebsch into .venv" "read the log" install_into_venv
  # Libraries that were linked again may be the same; the wheel is then as new as they are.
  touch "$build"/wheel/clebsch-*.whl
}
