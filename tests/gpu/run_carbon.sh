#!/bin/sh
# The carbon model in LAMMPS on one GPU, in one call of at most five minutes: 100 ps at 1,500 K at constant energy, the
# example with its picture, and a short run of 8000 atoms.
#
#   tests/gpu/run_carbon.sh RESULTS_FOLDER
#
# LMP: the LAMMPS executable. CLEBSCH_PLUGIN: clebschplugin.so. PYTHON: the interpreter, python3 by default. CLEBSCH_COMMIT:
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
nve carbon_nve 100 4 230 --record
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
