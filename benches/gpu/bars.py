"""Puts what a run of `run.sh --bench` measured beside the bars that memtier holds itself to, as one table.

python3 bars.py [OUT]: OUT is the folder of logs, by default out/ beside the folder of this script. Every baseline is one of the same
run; a case whose program or baseline did not run says so. Needs Python 3 and nothing else.
"""
import pathlib
import re
import sys

LESS, MORE = "<=", ">="


def read(folder, ending):
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob(f"*{ending}.log")))


class Run:
    """What the logs of one run say, by case."""

    def __init__(self, folder):
        attention, gemm = read(folder, "gpu_bars_attention"), read(folder, "gpu_bars_gemm")
        self.attention = {name: float(us) for name, us in re.findall(r"bars (.*?): ([\d.]+) us", attention)}
        self.rates = {name: float(rate) for name, rate in re.findall(r"bars (.*?): [\d.]+ us\s+(\d+) GB/s", attention)}
        rows = re.findall(r"^(?:test \S+ \.\.\. )?([a-zA-Z0-9_-]+(?: \d+)+)\s+([\d.]+) us\s+([\d.]+)", gemm, re.M)
        self.gemm = {name: float(us) for name, us, _ in rows}
        self.gemm_rates = {name: float(rate) for name, _, rate in rows}
        self.attention_peers, self.torch = {}, {}
        text = read(folder, "attention_peers.py")
        for line in text.splitlines():
            if " ours " in line:
                name, rest = line.split(" ours ", 1)
                peers = re.findall(r"(flash|cudnn|flashinfer) ([\d.]+) us", rest)
                self.attention_peers[name.strip()] = {who: float(us) for who, us in peers}
        self.attention_copy = first(r"^copy (\d+) GB/s", text)
        text = read(folder, "gemm_peers.py")
        for name, us in re.findall(r"^(gemm[^ ]*(?: \d+)+)\s+([\d.]+)", text, re.M):
            self.torch[name] = float(us)
        self.gemm_copy = first(r"copy ([\d.]+) TB/s", text)
        # The largest product: torch's, the library's and our time, the ratios of rates.
        turns = r"in turns, .*?: torch ([\d.]+) us .*?wrapper ([\d.]+) us, own kernel ([\d.]+) us"
        self.largest = [float(us) for us in (re.findall(turns, text) or [[]])[0]] or [None] * 3
        self.largest_over = [first(rf"rates in turns: .*?{what} ([\d.]+)", text) for what in ("over torch", "over cublaslt")]
        times = read(folder, "gpu_times")
        self.small = {name.strip(): float(rate) for name, rate in re.findall(r"^(.*?)\s+[\d.]+ us\s+(\d+) GB/s", times, re.M)}
        bare = read(folder, "gpu_bare")
        self.bare = {what: float(x) for what, x in re.findall(r"(commit of 256 MiB|launch|replay of a graph of 20 launches): .*?driver [\d.]+ us: ([\d.]+) x", bare)}
        self.engine = {name: float(rate) for name, rate in re.findall(r'^(.*?): \{.*?"decode_tok_s":([\d.]+)', read(folder, "smollm2*-engine"), re.M)}


def first(pattern, text):
    found = re.search(pattern, text, re.M)
    return float(found[1]) if found else None


def over(a, b):
    return a / b if a and b else None


def cases(run):
    """(case, ours, baseline, ratio, direction, pass, stretch); a ratio of None was not measured."""
    def attention(name, peer, bar, stretch_peer, stretch):
        us, peers = run.attention.get(name), run.attention_peers.get(name, {})
        yield f"{name}, over {peer}", us, peers.get(peer), over(us, peers.get(peer)), LESS, bar, None
        if stretch:
            yield f"{name}, over {stretch_peer}", us, peers.get(stretch_peer), over(us, peers.get(stretch_peer)), LESS, None, stretch

    decode = "decode bf16 {} page 64"
    yield from attention(decode.format("32x4096 32/8 D128"), "flashinfer", 1.0, "cudnn", 0.98)
    yield from attention(decode.format("128x1024 32/8 D128"), "flashinfer", 0.97, "cudnn", 0.99)
    yield from attention(decode.format("8x4096 32/8 D128"), "cudnn", 1.0, "cudnn", 0.92)
    yield from attention(decode.format("1x8192 64/8 D128"), "flashinfer", 1.0, "cudnn", 0.9)
    yield from attention(decode.format("32x4096 9/3 D64"), "flashinfer", 1.0, "flashinfer", 0.88)
    for kind in ("e4m3", "int8", "nvfp4"):
        name = f"decode {kind} 32x4096 32/8 D128 page 64"
        rate = run.rates.get(name)
        bars = (0.80, 0.92) if kind == "e4m3" else (None, None)
        yield f"{name}, GB/s over copy", rate, run.attention_copy, over(rate, run.attention_copy), MORE, *bars
    paged, contiguous = (run.attention.get(f"decode bf16 32x4096 32/8 D128 page {page}") for page in (64, 4096))
    yield "paged (64) against contiguous, own kernel, rates", paged, contiguous, over(contiguous, paged), MORE, 0.97, 0.99
    for name in ("prefill bf16 1x8192 32/8 D128 page 64", "prefill bf16 1x8192 8/2 D256 page 64"):
        us, flash = run.attention.get(name), run.attention_peers.get(name, {}).get("flash")
        yield f"{name}, rate over flash's", us, flash, over(flash, us), MORE, 1.0, 1.25
    for outputs, columns in ((8192, 8192), (14336, 4096), (4096, 14336)):
        for rows in (1, 4, 16):
            name = f"gemm {rows} {outputs} {columns}"
            yield f"{name}, over torch", run.gemm.get(name), run.torch.get(name), over(run.gemm.get(name), run.torch.get(name)), LESS, 1.0, 0.94
    for kind, bar, stretch in (("Q8", 0.80, 0.90), ("F8", 0.80, 0.90), ("Q4", 0.60, 0.80)):
        for outputs, columns in ((8192, 8192), (14336, 4096), (4096, 14336)):
            for rows in (1, 4, 16):
                name = f"{kind} {rows} {outputs} {columns}"
                rate = run.gemm_rates.get(name)
                yield f"{name}, TB/s over copy", rate, run.gemm_copy, over(rate, run.gemm_copy), MORE, bar, stretch
    large = "8192 8192 8192"
    (torch, library, own), (over_torch, over_library) = run.largest, run.largest_over
    yield f"cublaslt {large} through the wrapper, rate over torch's, in turns", library, torch, over_torch, MORE, 0.98, 1.0
    yield f"gemm {large}, own mma.sync, rate over cuBLASLt's, in turns", own, library, over_library, MORE, 0.50, 0.58
    copy = run.small.get("copy of 1 GiB")
    for name in ("scale of 1 GiB", "rms_norm 65536 x 4096", "residual_rms_norm 65536 x 4096", "silu gate 16384 x 14336"):
        yield f"{name}, GB/s over copy", run.small.get(name), copy, over(run.small.get(name), copy), MORE, 0.85, 0.95
    for what, bar in (("commit of 256 MiB", 1.1), ("launch", 1.03), ("replay of a graph of 20 launches", 1.05)):
        yield f"{what}, over the bare driver", None, None, run.bare.get(what), LESS, bar, None
    for contexts in ("500 to 1000", "20 to 120"):
        name = f"bf16, one request, contexts of {contexts}"
        rate = run.engine.get(name)
        yield f"SmolLM2-135M, {name}, tok/s", rate, None, rate, MORE, 1200, 2000


def verdict(ratio, direction, bar, stretch):
    if ratio is None:
        return "not measured"
    holds = (lambda limit: ratio <= limit) if direction == LESS else (lambda limit: ratio >= limit)
    if stretch is not None and holds(stretch):
        return "stretch"
    if bar is None:
        return "" if stretch is None else "short of the stretch"
    return "pass" if holds(bar) else "MISSED"


def number(x):
    return "" if x is None else f"{x:.0f}" if x >= 1000 else f"{x:.2f}" if x >= 10 else f"{x:.3f}"


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "out"
    run = Run(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    print("| Case | Ours | Baseline | Ratio | Bar | Stretch | |\n|---|---|---|---|---|---|---|")
    for case, ours, baseline, ratio, direction, bar, stretch in cases(run):
        limit = lambda x: "" if x is None else f"{direction} {x}"
        print(f"| {case} | {number(ours)} | {number(baseline)} | {number(ratio)} | {limit(bar)} | {limit(stretch)} | {verdict(ratio, direction, bar, stretch)} |")


main()
