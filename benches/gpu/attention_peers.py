"""Attention by other libraries on this GPU, beside ours: torch's flash and cuDNN kernels, and FlashInfer where it can be imported.

    python3 attention_peers.py [LOG]

LOG is what `gpu_bars_attention --nocapture` printed in the same run (in the staged folder: out/test-gpu_bars_attention.log, which is found
by itself); its times stand in the table with their ratios. Random data in bf16, buffers rotated past the second-level cache, graph replay,
medians. FlashInfer compiles its kernels with nvcc at first use.
"""
import glob
import os
import re
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

PAST_CACHE = 400e6
DECODE = [
    (32, 4096, 32, 8, 128),
    (128, 1024, 32, 8, 128),
    (8, 4096, 32, 8, 128),
    (1, 8192, 64, 8, 128),
    (32, 4096, 9, 3, 64),
    (1, 512, 9, 3, 64),
    (1, 1024, 9, 3, 64),
    (1, 1024, 4, 1, 256),
]
PREFILL = [(1, 8192, 32, 8, 128), (1, 8192, 8, 2, 256), (1, 8192, 32, 8, 64)]
TORCH = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def elapsed(work, count):
    """Microseconds of one of `count` pieces of work, by the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / count


def replayed(calls, least):
    """The median time of a call: all of them in turn, at least `least`, in one graph."""
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(warm)
    turns = -(-least // len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(turns):
            for call in calls:
                call()
    graph.replay()
    times = sorted(elapsed(graph.replay, turns * len(calls)) for _ in range(7))
    return times[len(times) // 2]


def tried(measure):
    """What it measured, or None where a library refuses the shape."""
    try:
        return measure()
    except Exception as error:  # every library has its own
        print(f"refused: {str(error).splitlines()[0][:90]}")
        return None


def torch_attention(backend, sets, causal):
    def call(q, k, v):
        with sdpa_kernel([backend]):
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    return replayed([lambda it=it: call(*it) for it in sets], 5 if causal else 20)


def paged_flashinfer(library, case, count):
    batch, context, heads, kv_heads, dim = case
    page = 64
    pages = batch * context // page
    room = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = library.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=True)
    ends = torch.arange(batch + 1, device="cuda", dtype=torch.int32) * (context // page)
    full = torch.full((batch,), page, device="cuda", dtype=torch.int32)
    order = torch.randperm(pages, device="cuda").int()
    kinds = {"q_data_type": torch.bfloat16, "data_type": torch.bfloat16}
    wrapper.plan(ends, order, full, heads, kv_heads, dim, page, **kinds)
    sets = [(random(batch, heads, dim), random(pages, 2, page, kv_heads, dim)) for _ in range(count)]
    return replayed([lambda it=it: wrapper.run(*it) for it in sets], 20)


def copy_rate():
    """GB/s of a copy on a stream, read and written."""
    size = 4 << 30
    a, b = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    copies = lambda: [b.copy_(a) for _ in range(10)]
    copies()
    return 2 * size / elapsed(copies, 10) / 1000


def ours(log):
    """Times of our own lines by what they say in front of the time, and what they say behind it: GB/s or TFLOP/s."""
    times, rates = {}, {}
    for line in open(log, errors="replace"):
        it = re.search(r"bars (.*): ([0-9.]+) us ([0-9]+)", line)
        if it:
            times[it[1]], rates[it[1]] = float(it[2]), float(it[3])
    return times, rates


def row(name, mine, peers):
    """A line of the table: times in us, and ours over each."""
    cells = [f"{who} {us:.2f} us" + (f" ({mine / us:.3f} x)" if mine else "") for who, us in peers if us]
    print(f"{name:<44} ours {f'{mine:.2f} us' if mine else '-':<12} " + "  ".join(cells), flush=True)


def main():
    torch.manual_seed(1)
    here = os.path.dirname(os.path.abspath(__file__))
    logs = sys.argv[1:2] or glob.glob(os.path.join(here, "../out/*gpu_bars_attention.log"))
    times, rates = ours(logs[0]) if logs else ({}, {})
    try:
        import flashinfer
    except ImportError:
        flashinfer = None
        print("no flashinfer here: its column is empty")
    copy = copy_rate()
    print(f"copy {copy:.0f} GB/s")
    for case in DECODE:
        batch, context, heads, kv_heads, dim = case
        size = batch * context * kv_heads * dim * 4
        count = max(1, min(4, int(PAST_CACHE // size) + 1))
        sets = [tuple(random(batch, h, n, dim) for h, n in ((heads, 1), (kv_heads, context), (kv_heads, context))) for _ in range(count)]
        peers = [(who, tried(lambda: torch_attention(backend, sets, False))) for who, backend in TORCH.items()]
        del sets
        if flashinfer and dim <= 128:
            peers.append(("flashinfer", tried(lambda: paged_flashinfer(flashinfer, case, count))))
        name = f"{batch}x{context} {heads}/{kv_heads} D{dim} page 64"
        row(f"decode bf16 {name}", times.get(f"decode bf16 {name}"), peers)
    for case in PREFILL:
        batch, length, heads, kv_heads, dim = case
        sets = [(random(batch, heads, length, dim), random(batch, kv_heads, length, dim), random(batch, kv_heads, length, dim))]
        peers = [(who, tried(lambda: torch_attention(backend, sets, True))) for who, backend in TORCH.items()]
        name = f"prefill bf16 {batch}x{length} {heads}/{kv_heads} D{dim} page 64"
        row(name, times.get(name), peers)
    # Over packed pages: decode beside a copy, prefill beside the same over bf16.
    for name, us in times.items():
        it = re.match(r"(decode|prefill) (e4m3|int8|nvfp4) (.*)", name)
        if it and it[1] == "decode":
            print(f"{name:<44} ours {us:.2f} us     {rates[name]:.0f} GB/s, {rates[name] / copy:.3f} x copy")
        elif it:
            bf16 = times.get(f"prefill bf16 {it[3]}")
            print(f"{name:<44} ours {us:.2f} us     {rates[name]:.0f} TFLOP/s" + (f", {us / bf16:.3f} x the time over bf16" if bf16 else ""))


main()
