#!/bin/bash
# Wheels of upstream NequIP and what it imports, for the Python 3.12 of a machine without a network that has torch and
# scipy: benchmarks/models/peer_model.py times it beside Clebsch.
#
#   benchmarks/device/pack_nequip.sh FOLDER            then, there: pip install --no-index --no-deps --target SITE FOLDER/*.whl
#
# Needs the network. OpenEquivariance comes from the archive of pack_peers.sh.
set -euo pipefail
target=$(realpath -m "${1:?usage: pack_nequip.sh FOLDER}")
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}
mkdir -p "$target"
"$python" -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
  --platform manylinux_2_24_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
  --python-version 3.12 -d "$target" nequip==0.19.1 nequip-allegro==0.8.3 e3nn==0.6.0 hydra-core==1.3.8 \
  omegaconf==2.3.1 lightning==2.6.6 pytorch-lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 opt_einsum opt_einsum_fx matscipy==1.3.1 \
  ase==3.28.0 vesin==0.6.2 packaging tqdm pyyaml attrs requests urllib3 idna certifi charset-normalizer
# There is no wheel of it: made of its source, which is Python alone.
"$python" -m pip wheel -q --no-deps -w "$target" antlr4-python3-runtime==4.9.3
ls -l "$target"
