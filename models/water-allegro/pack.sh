#!/bin/bash
# Packs what the training needs on a machine without a network, for Python 3.12 with torch: upstream's packages as
# wheels, pinned as in scripts/requirements-test.txt, and the data of ../water-nequip.
#
#   models/water-allegro/pack.sh ARCHIVE.tar.xz DATA
#
# DATA: the folder that make_data.py made, with train.xyz and valid.xyz. PYTHON: an interpreter with pip.
set -euo pipefail
target=$(realpath -m "${1:?usage: pack.sh ARCHIVE.tar.xz DATA}")
data=$(realpath "${2:?usage: pack.sh ARCHIVE.tar.xz DATA}")
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages='nequip|nequip-allegro|e3nn|lightning|pytorch-lightning|lightning-utilities|torchmetrics|hydra-core|omegaconf'
packages+='|PyYAML|opt_einsum|opt-einsum-fx|matscipy|lmdb|tqdm|requests|charset-normalizer|idna|urllib3|certifi'
packages+='|setuptools|ase|vesin'
cat "$root"/scripts/requirements.txt "$root"/scripts/requirements-test.txt |
  grep -E "^($packages)==" | sort -u > "$work/packages.txt"
mkdir "$work/wheels"
"$python" -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
  --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
  --python-version 3.12 -d "$work/wheels" -r "$work/packages.txt"
# It comes as source alone, and is pure Python.
antlr=$(grep '^antlr4-python3-runtime==' "$root/scripts/requirements-test.txt")
"$python" -m pip wheel -q --no-deps -w "$work/wheels" "$antlr"
mkdir "$work/data"
cp "$data/train.xyz" "$data/valid.xyz" "$work/data"
mkdir -p "$(dirname "$target")"
tar cf - -C "$work" wheels data | xz -2 -T1 > "$target"
ls -l "$target"
