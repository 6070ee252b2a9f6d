#!/usr/bin/env python3
"""Writes examples/engine/tests/fixtures/blocks.json: random blocks of each quantised type and their values.

The values come from gguf-py, an implementation that is neither llama.cpp's nor ours. Needs `pip install gguf==0.19.0`.
"""
import json
import pathlib

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Where each type keeps its halves, which must not be infinite, within a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
BLOCKS = 2
TARGET = pathlib.Path(__file__).resolve().parents[2] / "examples/engine/tests/fixtures/blocks.json"


def main():
    random = numpy.random.default_rng(1)
    lines = []
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        _, block_bytes = GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (BLOCKS, block_bytes), dtype=numpy.uint8)
        for at in halves:
            scales = random.normal(0, 0.05, BLOCKS).astype("<f2")
            blocks[:, at : at + 2] = scales.view(numpy.uint8).reshape(BLOCKS, 2)
        values = dequantize(blocks, kind).astype("<f4")
        lines.append(json.dumps({"type": name, "bytes": blocks.tobytes().hex(), "values": values.tobytes().hex()}))
    TARGET.write_text('{"source": "gguf-py 0.19.0", "blocks": [\n  ' + ",\n  ".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
