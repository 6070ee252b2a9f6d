#!/usr/bin/env python3
"""`cargo xtask test oracle`: the built engine beside a llama.cpp that runs here and now.

    against_llama.py MODEL.gguf THREADS ENGINE...

ENGINE... is how the engine's command starts. Greedy text of both must be equal, or first differ at a token that
llama.cpp itself hardly prefers over its second choice: the two round activations differently. The engine's own tests
compare token by token with recorded answers; this shows that the recordings are not what makes them pass. Prints
results as Rust's test harness does.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from llama import Llama  # noqa: E402

# A difference is excused up to this gap of log-probabilities between llama.cpp's first and second choice. Rounding
# activations moves its logits by 0.12 (root mean square, as examples/engine/tests/engine/noise.rs measures), the difference of
# two of them by the square root of two more; five times that.
NEAR_TIE = 0.85
TOKENS = 32
# English, so that every prefix of the tokens is text.
PROMPTS = [
    "The capital of France is",
    "1, 2, 4, 8, 16, 32,",
    "To make tea, first boil the water. Then",
    "The tide comes in twice a day because",
]


def answer(engine, model, threads, prompt):
    command = [*engine, "generate", "--raw", "--model-file", model, "--threads", threads]
    command += ["--max-tokens", str(TOKENS), "--prompt", prompt]
    # The command ends its answer with a line break of its own.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.removesuffix("\n")


def judge(llama, prompt, ours):
    """`None` when the two agree, else what they differ in."""
    steps, _ = llama.steps(llama.tokenize(prompt, True), TOKENS)
    ids = [step["id"] for step in steps]
    for count, step in enumerate(steps, 1):
        theirs = llama.post("/detokenize", {"tokens": ids[:count]})["content"]
        if ours.startswith(theirs):
            continue
        gap = step["top"][0][1] - step["top"][1][1]
        said = f"token {count}: llama.cpp says {theirs!r}, memtier {ours!r}, gap {gap:.3f}"
        if gap < NEAR_TIE:
            print(f"  a near tie: {said}")
            return None
        return said
    return None


def main():
    model, threads, *engine = sys.argv[1:]
    llama = Llama(model, int(threads))
    name = pathlib.Path(model).stem
    failed = 0
    for prompt in PROMPTS:
        difference = judge(llama, prompt, answer(engine, model, threads, prompt))
        print(f"test {name}: {prompt} ... {'FAILED' if difference else 'ok'}", flush=True)
        if difference:
            failed += 1
            print(f"  {difference}")
    verdict = "FAILED" if failed else "ok"
    print(f"\ntest result: {verdict}. {len(PROMPTS) - failed} passed; {failed} failed; 0 ignored; 0 measured")
    sys.stdout.flush()
    # The server's threads would keep the process alive.
    os._exit(1 if failed else 0)


main()
