#!/usr/bin/env python3
"""Asks a real llama.cpp what memtier's engine is held to.

    oracle.py tokenize   MODEL < TEXT            ids of standard input, as a prompt and as plain text
    oracle.py generate   MODEL PROMPT [-n 64]    greedy tokens with their log-probabilities
    oracle.py logits     MODEL IDS... -o FILE    log-probabilities of the whole vocabulary after each prefix, as f32
    oracle.py perplexity MODEL TEXTFILE          teacher-forced over the text in one context
    oracle.py memory     MODEL [NAME=VALUE...]   what llama.cpp reserves: weights, caches, states, compute (MiB)
    oracle.py fixtures   [NAME...]               writes the engine's test fixtures anew
    oracle.py noise      smollm2|gemma3 -o FILE  log-probabilities at some steps of the greedy fixture, for the
                                                 engine's test `noise`: prompt and step as u32, then the vocabulary as f32

Runs from a virtual environment with `pip install xllamacpp==2026.10.11549`. Answers are JSON on standard output.
`fixtures` looks for the models in $MEMTIER_CACHE (default ~/.cache/memtier).
"""
import argparse
import array
import json
import math
import os
import subprocess
import sys


def tokenize(args):
    from llama import Llama

    llama, text = Llama(args.model, args.threads), sys.stdin.read()
    return {"prompt": llama.tokenize(text, True), "plain": llama.tokenize(text, False)}


def generate(args):
    from llama import Llama

    llama = Llama(args.model, args.threads)
    ids = llama.tokenize(args.prompt, True)
    steps, stop = llama.steps(ids, args.n, top=args.top)
    return {"oracle": llama.about(), "prompt_ids": ids, "steps": steps, "stop": stop}


def logits(args):
    from llama import Llama

    llama = Llama(args.model, args.threads)
    with open(args.o, "wb") as out:
        for end in range(max(1, args.first), len(args.ids) + 1):
            array.array("f", llama.logprobs(args.ids[:end], args.vocab)).tofile(out)
    return {"oracle": llama.about(), "first": max(1, args.first), "rows": len(args.ids) + 1 - max(1, args.first)}


def perplexity(args):
    from llama import Llama

    llama = Llama(args.model, args.threads)
    with open(args.text, encoding="utf-8") as file:
        ids = llama.tokenize(file.read(), True)
    nll = -math.fsum(llama.forced(ids)) / (len(ids) - 1)
    return {"oracle": llama.about(), "tokens": len(ids), "nll": nll, "perplexity": math.exp(nll)}


# Lines of llama.cpp's log that state sizes.
MARKS = ("buffer size", "size =", "llama_memory", "graph_reserve")


def memory(args):
    """llama.cpp says what it reserves only in its log, which it writes past Python: a child's output is read."""
    if args.child:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = args.model
        params.verbosity = 5
        params.warmup = False
        for name, value in (pair.split("=", 1) for pair in args.settings):
            if name.startswith("cache_type"):
                value = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + value.upper())
            elif name == "flash_attn_type":
                types = xllamacpp.llama_flash_attn_type.__members__
                value = next(kind for key, kind in types.items() if key.endswith(value.upper()))
            else:
                value = json.loads(value)
            setattr(params, name, value)
        xllamacpp.Server(params)
        return None
    command = [sys.executable, os.path.abspath(__file__), "memory", args.model, *args.settings, "--child"]
    child = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if child.returncode != 0:
        sys.exit(child.stderr[-2000:])
    lines = [line.strip() for line in (child.stdout + child.stderr).splitlines()]
    return {"settings": args.settings, "lines": [line for line in lines if any(mark in line for mark in MARKS)]}


def fixtures(args):
    import make_fixtures

    return make_fixtures.make(args.names, args.threads)


def noise(args):
    import make_fixtures

    steps, about = make_fixtures.noise(args.name, args.threads, args.o, flash=not args.no_flash)
    return {"oracle": about, "steps": steps}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    commands = parser.add_subparsers(required=True)

    def command(function, *arguments):
        sub = commands.add_parser(function.__name__)
        sub.set_defaults(function=function)
        for names, options in arguments:
            sub.add_argument(*names.split(), **options)

    model = ("model", {})
    command(tokenize, model)
    command(generate, model, ("prompt", {}), ("-n", {"type": int, "default": 64}), ("--top", {"type": int, "default": 2}))
    command(
        logits,
        model,
        ("ids", {"type": int, "nargs": "+"}),
        ("-o", {"required": True}),
        ("--vocab", {"type": int, "required": True}),
        ("--first", {"type": int, "default": 1, "help": "length of the first prefix"}),
    )
    command(perplexity, model, ("text", {}))
    command(memory, model, ("settings", {"nargs": "*"}), ("--child", {"action": "store_true", "help": argparse.SUPPRESS}))
    command(fixtures, ("names", {"nargs": "*"}))
    command(noise, ("name", {}), ("-o", {"required": True}), ("--no-flash", {"action": "store_true"}))
    args = parser.parse_args()
    answer = args.function(args)
    if answer is not None:
        print(json.dumps(answer))
    sys.stdout.flush()
    # The server's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
