# shellcheck shell=bash
# A LAMMPS of 64-bit atom IDs (-DLAMMPS_SIZES=bigbig) and the plugin for it, for tests. Sourced after scripts/lammps.sh and
# scripts/kokkos_lammps.sh, whose styles it has, and those that tests/lammps/options names besides.

option_styles=(
  AtomStyle:bond BondStyle:zero PairStyle:hybrid/scaled RegionStyle:block IntegrateStyle:respa MinimizeStyle:fire
  FixStyle:box/relax FixStyle:deposit FixStyle:gcmc FixStyle:atom/swap FixStyle:widom
  ComputeStyle:group/group ComputeStyle:pair/local ComputeStyle:reduce
  CommandStyle:balance CommandStyle:change_box CommandStyle:create_atoms CommandStyle:delete_atoms
  CommandStyle:displace_atoms CommandStyle:read_restart CommandStyle:write_restart
)
bigbig_options=("${lammps_options[@]}" -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DLAMMPS_SIZES=bigbig -DPKG_PLUGIN=ON -DPKG_MC=ON
  -DPKG_MOLECULE=ON)

build_bigbig_lammps() {
  local source=$1 folder=$2 options=()
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  rm -rf "$folder-source"
  "$venv/bin/python" "$root/scripts/lammps_subset.py" "$source" "$folder-source" "${kokkos_styles[@]}" "${option_styles[@]}"
  cmake -S "$folder-source/cmake" -B "$folder" -G Ninja "${bigbig_options[@]}" "${options[@]}" \
    -DMPI_CXX_COMPILER="$venv/bin/mpicxx" -DPython_EXECUTABLE="$venv/bin/python"
  ninja -C "$folder" -j "$jobs"
}

configure_and_build_bigbig_plugin() {
  local options=()
  if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  cmake -S "$root/lammps_plugin" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLEBSCH_WERROR="${CLEBSCH_WERROR:-ON}" "${options[@]}" \
    -Dclebsch_DIR="$build" -DLAMMPS_SOURCE_DIR="$2-source" -DLAMMPS_BUILD_DIR="$2" -DMPI_CXX_COMPILER="$venv/bin/mpicxx"
  ninja -C "$1" -j "$jobs"
}

# ensure_bigbig_tests RELEASE FOLDER: such a LAMMPS in .deps, its plugin in FOLDER/lib. The tests find FOLDER/lmp.
ensure_bigbig_tests() {
  local release=$1 folder=$2 lammps="$deps/lammps-bigbig" key
  rm -f "$folder/lmp"
  get_lammps_source "$release"
  key=$(key_of "$lammps_source/src/version.h" "$root/scripts/lammps_subset.py" -- "$lammps_source" "$venv" \
    "${kokkos_styles[*]} ${option_styles[*]}" "${bigbig_options[*]}")
  [[ -x $lammps/lmp ]] || rm -f "$stamps/lammps-bigbig"
  stamped lammps-bigbig "$key" "building LAMMPS $release with 64-bit atom IDs (2 minutes on 2 cores)" \
    "read the log; the first error in it names the file" build_bigbig_lammps "$lammps_source" "$lammps"
  run_logged plugin-bigbig "building the plugin for that LAMMPS" "read the log; the first error in it names the file" \
    configure_and_build_bigbig_plugin "$folder" "$lammps"
  ln -s "$lammps/lmp" "$folder/lmp"
}
