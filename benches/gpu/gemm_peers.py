"""Times torch.matmul for the shapes of `gpu_bars_gemm`, and puts both side by side.

python3 gemm_peers.py [--ours LOG]: LOG is what `gpu_bars_gemm --nocapture` printed, by default out/test-gpu_bars_gemm.log beside the
folder of this script. Random bf16, weights rotated past the cache, replays of a CUDA graph, medians, all in one process after
the other's; ratios are ours over torch's. The largest product is bound by what power the card may draw, and so by how warm it is: of that
the program beside this folder is run again, in turns with torch. Needs torch with CUDA.
"""
import argparse
import pathlib
import re
import statistics
import subprocess

import torch

LARGE = [(8192, 8192), (14336, 4096), (4096, 14336)]
# SmolLM2-135M: names, outputs and elements of a row.
LAYERS = {"qkv": (960, 576), "o": (576, 576), "gated": (3072, 576), "down": (576, 1536), "head": (49152, 576)}


def replayed(launches, repeat=7):
    """Microseconds of one of `launches`, all of them recorded in one graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launches[0]()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    # As long as ours: a few milliseconds at a time, so that neither is hotter.
    replays = 1 if len(launches) == 4 else 4
    times = []
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / replays / len(launches))
    return statistics.median(times)


def matmul(rows, outputs, columns):
    sets = min(2 + (250 << 20) // (outputs * columns * 2), (1 << 29) // (outputs * columns * 2) or 1)
    weights = torch.randn(sets, outputs, columns, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    count = 4 if rows * outputs * columns > 1 << 36 else max(sets, 40)
    return replayed([lambda i=i: x @ weights[i % sets].t() for i in range(count)])


def copy_rate():
    """Bytes read and written a microsecond, by a copy on a stream (in a graph a copy is slower)."""
    a, b = (torch.empty(4 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        b.copy_(a)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return 2 * a.numel() / statistics.median(times)


def ours(log):
    rows = re.findall(r"^(\S.*?)\s+([\d.]+) us\s+([\d.]+)\s+\S+$", log.read_text(), re.M) if log.exists() else []
    return {name: (float(us), float(rate)) for name, us, rate in rows}


def in_turns(program, rounds=5):
    """The largest product: ours by its own program, then torch's, `rounds` times; medians, and of the ratios of each round."""
    size, turns = 8192, []
    for _ in range(rounds):
        said = subprocess.run([program, "--nocapture", "--exact", "the_largest_product"], capture_output=True, text=True)
        us = {who: float(us) for who, us in re.findall(r"(gemm|cublaslt) 8192 8192 8192\s+([\d.]+) us", said.stdout)}
        if said.returncode or "cublaslt" not in us:
            print(f"{program.name} timed no product by cuBLASLt:\n{said.stdout}{said.stderr}")
            return
        turns.append((us["cublaslt"], us["gemm"], matmul(size, size, size)))
    of = lambda values: statistics.median(values)
    library, own, torch_us = (of(turn[i] for turn in turns) for i in range(3))
    print(f"in turns, {rounds} rounds: torch {torch_us:.2f} us ({2 * size**3 / torch_us * 1e-6:.0f} TFLOP/s), cuBLASLt through the wrapper {library:.2f} us, own kernel {own:.2f} us")
    ratios = sorted(theirs / ours for ours, _, theirs in turns)
    print(f"rates in turns: cublaslt over torch {of(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), own over cublaslt {of(ours / own for ours, own, _ in turns):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = pathlib.Path(__file__).resolve().parent.parent / "out/test-gpu_bars_gemm.log"
    parser.add_argument("--ours", type=pathlib.Path, default=default)
    found = ours(parser.parse_args().ours)
    copy = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy * 1e-6:.2f} TB/s")
    shapes = [(f"gemm {m} {n} {k}", m, n, k) for n, k in LARGE for m in (1, 4, 16)]
    shapes += [(f"gemm-{name} {m}", m, *LAYERS[name]) for m in (1, 4, 8, 16, 64) for name in LAYERS]
    shapes += [(f"gemm-{name} {m}", m, *LAYERS[name]) for m in (65, 512, 8192) for name in ("qkv", "o", "gated", "down")]
    print(f"{'case':<28} {'torch us':>10} {'ours us':>10} {'ours / torch':>12} {'invariant / torch':>18} {'cublaslt / torch':>17}")
    for name, m, n, k in shapes:
        torch_us = matmul(m, n, k)
        cell = lambda key: f"{found[key][0] / torch_us:.3f}" if key in found else "-"
        us = f"{found[name][0]:.2f}" if name in found else "-"
        print(f"{name:<28} {torch_us:>10.2f} {us:>10} {cell(name):>12} {cell('invariant-' + name):>18} {cell(name.replace('gemm', 'cublaslt', 1)):>17}")
    program = pathlib.Path(__file__).resolve().parent.parent / "test-gpu_bars_gemm"
    if program.exists():
        in_turns(program)
    for name, (us, rate) in found.items():
        if re.match(r"[QF]\d ", name):
            print(f"{name:<28} {us:>10.2f} us {rate:.3f} TB/s of weights, {rate * 1e6 / copy:.3f} x copy")


main()
