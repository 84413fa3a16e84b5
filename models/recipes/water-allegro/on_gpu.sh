#!/bin/bash
# One piece of the Allegro water model's training on a GPU (models/recipes/water-allegro/README.md). Pieces follow each other:
#
#   models/recipes/water-allegro/on_gpu.sh RESULTS_FOLDER 1 [SECONDS]     # stage 1
#   models/recipes/water-allegro/on_gpu.sh RESULTS_FOLDER 2 [SECONDS]     # stage 2, as often as it says "stopped by the clock"
#
# WATER_PACK: the archive of models/recipes/water-allegro/pack.sh (.gpu/water-allegro/pack.tar.xz). WATER_STATE: the state.tar that
# the last piece left in its results (.gpu/water-allegro/state.tar); a machine that still has the last piece's files
# needs none. PYTHON: Python 3.12 with torch, numpy and scipy. SECONDS: of this call, 560 by default. WATER_MORE: options of
# train.py, --compile when it is not set.
set -u
begun=$(date +%s)
root=$(cd "$(dirname "$0")/../../.." && pwd)
out=${1:?usage: run_water_allegro.sh RESULTS_FOLDER STAGE [SECONDS]}
stage=${2:?usage: run_water_allegro.sh RESULTS_FOLDER STAGE [SECONDS]}
seconds=${3:-560}
pack=${WATER_PACK:-$root/.gpu/water-allegro/pack.tar.xz}
state=${WATER_STATE:-$root/.gpu/water-allegro/state.tar}
python=${PYTHON:-python3}
# A checkpoint remembers where it was written: every piece works here.
work=/tmp/clebsch-water-allegro
mkdir -p "$out" "$work"
out=$(cd "$out" && pwd)

if [ ! -d "$work/site" ]; then
  tar xJf "$pack" -C "$work" || exit 1
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$work/site" "$work"/wheels/*.whl || exit 1
fi
if [ ! -d "$work/run1" ] && [ -f "$state" ]; then tar xf "$state" -C "$work" || exit 1; fi
export PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH}
export OMP_NUM_THREADS=2 TORCHINDUCTOR_COMPILE_THREADS=6
"$python" -c 'import torch, nequip, allegro; print(torch.__version__, torch.cuda.is_available())' || exit 1

# The last 25 seconds are for the results.
left=$((seconds - 25 - $(date +%s) + begun))
if [ "$stage" = 1 ]; then
  words=("$work/run1")
else
  words=("$work/run2" --start "$work/run1/last.ckpt")
fi
# shellcheck disable=SC2086
timeout -k 5 $((left + 15)) "$python" "$root/models/recipes/water-allegro/train.py" "$work/data" "${words[@]}" \
  --seconds "$left" ${WATER_MORE---compile} 2>&1 | tee "$out/water_allegro_$stage.txt" | tail -n 60
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then tail -n 40 "${words[0]}/console.txt"; fi
parts=()
for name in run1/last.ckpt run1/log run1/console.txt run2/last.ckpt run2/start.ckpt run2/epochs.txt run2/log run2/console.txt; do
  if [ -e "$work/$name" ]; then parts+=("$name"); fi
done
if [ ${#parts[@]} -gt 0 ]; then tar cf "$out/state.tar" -C "$work" "${parts[@]}"; fi
ls -l "$out"
exit "$status"
