#!/bin/sh
# The carbon model in LAMMPS on one GPU, in one call of at most five minutes: 100 ps at 1,500 K at constant energy.
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
nve carbon_nve_short 1 10 60
nve carbon_nve 100 4 230 --record
exit $status
