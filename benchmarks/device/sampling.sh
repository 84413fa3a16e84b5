#!/usr/bin/env bash
# The sampler on a GPU without a network: tests, build and draw times, quality of sketches, the water dimer. Takes about
# five minutes; writes $OUT/sampling.tar.xz and ends with the tables. Needs the bundle of scripts/gpu-tests pack (.gpu).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
work=$(mktemp -d)
timeout 150 scripts/gpu-tests run "$work/tests" tests --seconds 140 --pytest -k sampling 2>&1 | tail -25
benchmarks/run sampling --out "$work"
benchmarks/run sampling-dimer --out "$work"
benchmarks/run sampling-quality --out "$work" --patience 0.12
tar cJf "${OUT:-.}/sampling.tar.xz" -C "$work" .
echo "=== build and draw"
cat "$work/sampling/output.txt"
echo "=== sketches"
cat "$work/sampling-quality/output.txt"
echo "=== dimer"
tail -5 "$work/sampling-dimer/output.txt"
