#!/bin/sh
# The carbon model in LAMMPS on one GPU, in one call of at most five minutes: 100 ps of 1728 atoms at 1,500 K at constant
# energy, the example with its picture, and a short run of 8000 atoms.
#
#   tests/gpu/run_carbon.sh RESULTS_FOLDER
#
# LMP: the LAMMPS executable. CLEBSCH_PLUGIN: clebschplugin.so. CLEBSCH_KK_LMP, CLEBSCH_KK_PLUGIN: a LAMMPS with Kokkos and
# clebschkkplugin.so, which then run the long one. PYTHON: the interpreter, python3 by default. CLEBSCH_COMMIT:
# where git is absent.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
mkdir -p "$out"
out=$(cd "$out" && pwd)
lmp=${LMP:-$root/.venv/bin/lmp}
plugin=${CLEBSCH_PLUGIN:-$root/build/lib/clebschplugin.so}
status=0
# nve FILE PS CELLS LIMIT [--record]
nve() {
  file=$1 ps=$2 cells=$3 limit=$4
  shift 4
  timeout "$limit" "${PYTHON:-python3}" "$root/models/carbon-mace/nve.py" "$root/models/carbon-mace.pt" "$out/$file.json" \
    --ps "$ps" --cells "$cells" --device cuda --lmp "$lmp" --plugin "$plugin" "$@" > "$out/$file.txt" 2>&1 || status=1
  tail -n 25 "$out/$file.txt"
}
if [ -n "${CLEBSCH_KK_LMP:-}" ]; then
  nve carbon_nve 100 6 230 --record --flags "-k on g 1 -sf kk" --lmp "$CLEBSCH_KK_LMP" --plugin "$CLEBSCH_KK_PLUGIN"
else
  nve carbon_nve 100 6 230 --record
fi
example=$(mktemp -d)
cp -r "$root/examples/carbon_lattice" "$root/examples/lammps_output.py" "$example"
(
  cd "$example/carbon_lattice" &&
    timeout 90 "$lmp" -in in.carbon -var model "$root/models/carbon-mace.pt" -var plugin "$plugin" > screen.txt 2>&1
  tail -n 3 screen.txt
  "${PYTHON:-python3}" plot.py && cp carbon.png log.lammps "$out/"
) || status=1
rm -rf "$example"
nve carbon_nve_short 1 10 60
exit $status
