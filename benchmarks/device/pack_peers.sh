#!/bin/bash
# Packs the libraries that benchmarks/conv is compared with into one archive that needs no network where it is used:
#
#   benchmarks/device/pack_peers.sh .gpu/peers.tar.xz
#
# OpenEquivariance and FlashTP are built from source here (no GPU needed), for Python 3.12, torch 2.11 and sm_90;
# cuEquivariance comes from its wheels, with the machine code of other architectures blanked, which makes it a tenth as
# large. PYTHON312: an interpreter with headers. TORCH: the folder of torch 2.11, of any Python. FLASHTP: a checkout of it,
# cloned otherwise. Needs nvcc and the network.
set -euo pipefail
target=$(realpath -m "${1:?usage: pack_peers.sh ARCHIVE.tar.xz}")
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON312:-python3.12}
torch=${TORCH:-$(echo "$root"/.venv/lib/python3*/site-packages/torch)}
cuda=${CUDA_HOME:-/usr/local/cuda}
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site
mkdir "$site"
cd "$work"

echo "== cuEquivariance"
"$python" -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
  --platform manylinux_2_24_x86_64 --python-version 3.12 -d wheels cuequivariance==0.13.0 cuequivariance-torch==0.13.0 \
  cuequivariance-ops-torch-cu13==0.13.0 cuequivariance-ops-cu13==0.13.0 tqdm platformdirs nvidia-ml-py
for wheel in wheels/*.whl; do "$python" -m zipfile -e "$wheel" "$site"; done
# What its Triton kernels were tuned to on this architecture stays: without it they run with defaults.
find "$site/cuequivariance_ops/triton/cache" -type f ! -name '*.9.0.json' -delete
"$python" - "$site/cuequivariance_ops/lib/libcue_ops.so" "$site"/cuequivariance_ops_torch/_ext/*.so << 'EOF'
import pathlib, re, struct, subprocess, sys

# A section .nv_fatbin is a row of containers: magic, version, header size, size; then entries: kind (1 PTX, 2 machine
# code), version, header size, payload size, ..., architecture at byte 28. Payloads of other architectures become zeros.
for path in map(pathlib.Path, sys.argv[1:]):
    data = bytearray(path.read_bytes())
    table = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    for found in re.finditer(r"\] \.nv_fatbin\S*\s+\S+\s+\S+\s+(\S+)\s+(\S+)", table):
        at, size = (int(word, 16) for word in found.groups())
        end = at + size
        while at < end - 16:
            magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
            if magic != 0xBA55ED50:
                at += 8
                continue
            entry, at = at + header, at + header + length
            while entry < at:
                kind, _, header, payload = struct.unpack_from("<HHIQ", data, entry)
                arch = struct.unpack_from("<I", data, entry + 28)[0]
                if arch != 90:
                    data[entry + header : entry + header + payload] = bytes(payload)
                entry += header + payload
    path.write_bytes(data)
EOF

echo "== OpenEquivariance"
"$python" -m pip install -q --target tools nanobind scikit-build-core setuptools-scm setuptools wheel
PYTHONPATH=$work/tools "$python" -m pip download -q --no-deps --no-binary :all: --no-build-isolation -d . \
  openequivariance==0.7.0
tar xzf openequivariance-0.7.0.tar.gz
cp -r openequivariance-0.7.0/openequivariance "$site/"
mkdir "$site/openequivariance-0.7.0.dist-info"
cp openequivariance-0.7.0/PKG-INFO "$site/openequivariance-0.7.0.dist-info/METADATA"
source=openequivariance-0.7.0/openequivariance/extension
flags="-O2 -std=c++17 -fPIC -fvisibility=hidden -DNDEBUG -I$headers -Itools/nanobind/include
  -Itools/nanobind/ext/robin_map/include -I$source -I$source/backend -I$source/json11 -I$torch/include -I$cuda/include"
# shellcheck disable=SC2086
{
  g++ $flags -DNB_COMPACT_ASSERTIONS -fno-strict-aliasing -c tools/nanobind/src/nb_combined.cpp -o nanobind.o
  g++ $flags -DCUDA_BACKEND=1 -DINCLUDE_NB_EXTENSION -c $source/libtorch_tp_jit_stable.cpp -o extension.o
  g++ $flags -c $source/json11/json11.cpp -o json.o
}
g++ -shared -s -o "$site/openequivariance/_torch/extlib/oeq_stable_cuda.so" nanobind.o extension.o json.o \
  -L"$torch/lib" -ltorch_cpu -lc10 -ltorch_cuda -L"$cuda/lib64" -L"$cuda/lib64/stubs" -lcudart -lcuda -lnvrtc -lcublas
: > "$site/openequivariance/_torch/extlib/liboeq_stable_cuda_aoti.so" # looked for, not used

echo "== FlashTP"
if [ -n "${FLASHTP:-}" ]; then
  cp -r "$FLASHTP" flashtp
else
  git clone -q https://github.com/SNU-ARC/flashTP flashtp && git -C flashtp checkout -q d52e414
fi
kernels=flashtp/flashTP_e3nn/sptp_exp_opt_large
mkdir -p shim/torch # the whole of torch/extension.h takes nvcc a minute a file
cat > shim/torch/extension.h << 'EOF'
#pragma once
#include <ATen/ATen.h>
namespace torch { using namespace at; constexpr auto kFloat32 = at::kFloat; constexpr auto kFloat64 = at::kDouble; }
EOF
for file in "$kernels"/*.cu; do
  nvcc -w -O2 -std=c++17 -gencode=arch=compute_90,code=sm_90 -Xcompiler -fPIC --expt-relaxed-constexpr -Ishim \
    -I"$torch/include" -c "$file" -o "$(basename "$file" .cu).cu.o"
done
g++ -O2 -std=c++17 -fPIC -Ishim -I"$torch/include" -I"$cuda/include" -c "$kernels/sptp_exp_opt_large.cpp" -o large.cu.o
g++ -O2 -std=c++17 -fPIC -DTORCH_EXTENSION_NAME=flashtp_large_kernel -I"$headers" -I"$torch/include" \
  -I"$torch/include/torch/csrc/api/include" -I"$cuda/include" -c "$kernels/python_pybind.cpp" -o binding.cu.o
cp -r flashtp/flashTP_e3nn "$site/"
find "$site/flashTP_e3nn" -name '*.cu' -delete -o -name '*.cpp' -delete -o -name '*.hpp' -delete
g++ -shared -s -o "$site/flashTP_e3nn/flashtp_large_kernel.cpython-312-x86_64-linux-gnu.so" ./*.cu.o -L"$torch/lib" \
  -lc10 -ltorch -ltorch_cpu -ltorch_cuda -lc10_cuda -ltorch_python -L"$cuda/lib64" -lcudart
# Its other kernels (for LAMMPS, for more than 256 coefficients) are not built.
sed -i '/^from .*_lammps$/d; /^from .*_extcg$/d' "$site/flashTP_e3nn/flashTP.py"

find "$site" -name __pycache__ -prune -exec rm -rf {} +
mkdir -p "$(dirname "$target")"
tar cf - -C "$site" . | xz -4 -T1 > "$target"
ls -l "$target"
