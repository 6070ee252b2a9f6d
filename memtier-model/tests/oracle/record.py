#!/usr/bin/env python3
"""Records what llama.cpp would allocate for the models of the zoo, for `tests/oracle.rs`.

    cargo run -p memtier-model --example zoo -- ZOO
    python3 -m pip install xllamacpp==2026.10.11549
    python3 memtier-model/tests/oracle/record.py ZOO [NAME…] > memtier-model/tests/oracle/recorded.tsv

llama.cpp measures a context before it allocates one; that first, dry pass is all that is waited for, so models of a
terabyte take a second. A line is: name, settings, and the sizes in MiB of K and V (and of R and S) in the order printed.
"""
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

SETTINGS = [
    {"n_ctx": 4096},
    {"n_ctx": 8192},
    {"n_ctx": 5000},
    {"n_ctx": 131072},
    {"n_ctx": 8192, "n_parallel": 2},
    {"n_ctx": 32768, "n_parallel": 8},
    {"n_ctx": 16384, "n_parallel": 4, "kv_unified": True},
    {"n_ctx": 8192, "n_ubatch": 256},
    {"n_ctx": 8192, "swa_full": True},
    {"n_ctx": 8192, "cache_type_k": "Q8_0", "cache_type_v": "Q8_0"},
    {"n_ctx": 8192, "cache_type_k": "Q4_0", "cache_type_v": "Q4_0"},
    {"n_ctx": 8192, "cache_type_k": "Q8_0", "cache_type_v": "F16"},
]

LOAD = """
import json, sys, xllamacpp as x
a = json.loads(sys.argv[1]); p = x.CommonParams(); p.model.path = a.pop("model")
p.verbosity = 5; p.warmup = False; p.port = 18766; p.n_parallel = 1
for k, v in a.items():
    setattr(p, k, getattr(x.ggml_type, "GGML_TYPE_" + v) if k.startswith("cache_type") else v)
x.Server(p)
"""


def measure(model, settings):
    child = subprocess.Popen(
        [sys.executable, "-c", LOAD, json.dumps({"model": str(model), **settings})],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    # A model of zeros must never be read: whatever happens, the first seconds are enough.
    timer = threading.Timer(8, child.kill)
    timer.start()
    sizes, said = [], []
    try:
        for line in child.stderr:
            said.append(line.strip())
            found = re.search(r"llama_(kv_cache|memory_recurrent): size = .*", line)
            if found:
                sizes += re.findall(r"([KVRS]) \(\w+\): +([\d.]+) MiB", line)
            # The second time the tensors are loaded it is in earnest.
            if "compute buffer size" in line or (sizes and "load_tensors:" in line):
                return " ".join(f"{part}={size}" for part, size in sizes)
        return "failed: " + next((l for l in reversed(said) if "error" in l.lower()), said[-1] if said else "silent")
    finally:
        timer.cancel()
        child.kill()
        child.wait()


def main():
    zoo, names = Path(sys.argv[1]), set(sys.argv[2:])
    for model in sorted(zoo.glob("*.gguf")):
        if names and model.stem not in names:
            continue
        for settings in SETTINGS:
            sizes = measure(model, settings)
            # Some element types cannot be mixed with some kinds of attention: nothing to compare with then.
            out = sys.stderr if sizes.startswith("failed") else sys.stdout
            print(model.stem, json.dumps(settings), sizes, sep="\t", file=out, flush=True)


if __name__ == "__main__":
    main()
