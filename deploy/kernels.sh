#!/usr/bin/env bash
# Kernels that a release ships, so that a box with a driver needs no compiler: `deploy/kernels.sh FOLDER [ARCHITECTURE,...]`.
# Needs NVRTC (`pip install nvidia-cuda-nvrtc`), no GPU. All cores compile; how far they are is told on the way. What is in the folder
# already is not made again, so a run that was stopped goes on where it was.
set -euo pipefail
binary=${SHARDWRIGHT:-shardwright}
folder=${1:?usage: deploy/kernels.sh FOLDER [ARCHITECTURE,...]}
# shellcheck disable=SC2206
arch=${2:+--arch $2}
# shellcheck disable=SC2086
"$binary" kernels --out "$folder" --demo --preset glm-5,glm-5.1,glm-5.2 \
    --recipe ud-q4_k_xl,ud-q4_k_s-like,ud-q2_k_xl-like --tp 1,2,4,6,8 $arch
echo "$(find "$folder" -type f | wc -l) files, $(find "$folder" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }') bytes"
