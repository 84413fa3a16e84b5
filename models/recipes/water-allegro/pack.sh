#!/bin/bash
# Packs what the training needs on a machine without a network, for Python 3.12 with torch: upstream's packages as
# wheels, and the data of ../water-nequip.
#
#   models/recipes/water-allegro/pack.sh ARCHIVE.tar.xz DATA
#
# DATA: the folder that make_data.py made, with train.xyz and valid.xyz. PYTHON: an interpreter with pip.
set -euo pipefail
target=$(realpath -m "${1:?usage: pack.sh ARCHIVE.tar.xz DATA}")
data=$(realpath "${2:?usage: pack.sh ARCHIVE.tar.xz DATA}")
root=$(cd "$(dirname "$0")/../../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/benchmarks/device/pack_nequip.sh" "$work/wheels"
grep -E '^(nequip-allegro|lmdb|setuptools)==' "$root/scripts/requirements-test.txt" > "$work/packages.txt"
"$python" -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
  --platform manylinux2014_x86_64 --python-version 3.12 -d "$work/wheels" -r "$work/packages.txt"
mkdir "$work/data"
cp "$data/train.xyz" "$data/valid.xyz" "$work/data"
mkdir -p "$(dirname "$target")"
tar cf - -C "$work" wheels data | xz -2 -T1 > "$target"
ls -l "$target"
