#!/usr/bin/env python3
"""llama.cpp's side of `cargo xtask bench`: one JSON line with its prefill and decode speed in tokens per second.

    llama_speed.py --model-file MODEL.gguf --threads N --prefill TOKENS --decode TOKENS

Its defaults throughout (flash attention, f16 cache, warm-up), one sequence. The prompt is token ids, so that both
engines process the same number whatever their tokenizers say; which ids is of no matter to the speed.
"""
import argparse
import json
import os
import sys

import xllamacpp


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-file", required=True)
    for name in ("threads", "prefill", "decode"):
        parser.add_argument("--" + name, type=int, required=True)
    args = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = args.model_file
    params.n_ctx = args.prefill + args.decode + 64
    params.n_parallel = 1
    params.verbosity = 0
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    server = xllamacpp.Server(params)
    prompt = [1000 + i * 7919 % 20000 for i in range(args.prefill)]
    request = {
        "prompt": prompt,
        "n_predict": args.decode + 1,
        "temperature": 0,
        "top_k": 1,
        "cache_prompt": False,
        "ignore_eos": True,
    }
    # Once to warm caches and clocks, once to measure.
    for _ in range(2):
        reply = server.handle_completions(request)
        reply = reply if isinstance(reply, dict) else json.loads(reply)
    timings = reply["timings"]
    if timings["prompt_n"] != args.prefill or timings["predicted_n"] != args.decode + 1:
        sys.exit(f"llama.cpp processed other token counts than asked for: {timings}")
    # The first token comes out of the prefill, so its clock covers one decode step less than the tokens it reports.
    speeds = {
        "prefill_tok_s": args.prefill / timings["prompt_ms"] * 1e3,
        "decode_tok_s": args.decode / timings["predicted_ms"] * 1e3,
    }
    print(json.dumps(speeds))
    sys.stdout.flush()
    # The server's threads would keep the process alive.
    os._exit(0)


main()
