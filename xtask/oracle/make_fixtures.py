"""Writes the fixtures that the engine's tests compare with."""
import array
import contextlib
import json
import math
import multiprocessing
import os
import pathlib
import tempfile

from texts import CHATS, TEXTS

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent.parent / "examples" / "engine" / "tests" / "fixtures"
CACHE = pathlib.Path(os.environ.get("MEMTIER_CACHE") or pathlib.Path.home() / ".cache" / "memtier")
MODELS = {"smollm2": "smollm2-135m-instruct-q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
VOCAB = {"smollm2": 49_152, "gemma3": 262_144}
GENERATED = 64
TOP = 8

# Tokenizer settings that neither file has, tried on its vocabulary.
VARIANTS = {
    "smollm2": [
        {},
        {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": None},
        {"tokenizer.ggml.pre": "qwen2"},
        {"tokenizer.ggml.pre": "gpt-2"},
        {"tokenizer.ggml.pre": "default", "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True},
    ],
    "gemma3": [{}, {"tokenizer.ggml.add_space_prefix": True}, {"tokenizer.ggml.add_eos_token": True}],
}


def make(names, threads):
    """Writes the fixtures of these names, or all; each model is loaded in a process of its own."""
    kinds = {"tokens": tokens, "chats": chats, "greedy": greedy, "perplexity": perplexity}
    FIXTURES.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names or kinds:
        for model in MODELS:
            content = apart(kinds[name], model, threads)
            path = FIXTURES / f"{name}-{model}.json"
            path.write_text(dump(content) + "\n")
            written.append(path.name)
    return {"written": written}


def dump(content):
    """JSON with one line for each element of the outer lists: small, and a change shows as one."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list):
            inner = ",\n    ".join(json.dumps(element) for element in value)
            lines.append(f"  {json.dumps(key)}: [\n    {inner}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}"


def apart(function, *arguments):
    """Runs a function in a new process: a loaded server is only got rid of with its process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise SystemExit(f"{function.__name__} failed for {arguments[0]}") from None


def _run(pipe, function, arguments):
    pipe.send(function(*arguments))
    pipe.close()
    os._exit(0)


def load(path, threads, **settings):
    from llama import Llama

    return Llama(path, threads, **settings)


@contextlib.contextmanager
def patched(model, changes):
    from gguf_patch import patch

    if not changes:
        yield CACHE / MODELS[model]
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "patched.gguf"
        patch(CACHE / MODELS[model], path, changes)
        yield path


def tokens(model, threads):
    variants, about = [], None
    for changes in VARIANTS[model]:
        with patched(model, changes) as path:
            cases, about = apart(token_cases, path, threads)
        variants.append({"changes": changes, "cases": cases})
    return {"oracle": about, "texts": TEXTS, "variants": variants}


def token_cases(path, threads):
    llama = load(path, threads, n_ctx=256)
    cases = [{"prompt": llama.tokenize(text, True), "plain": llama.tokenize(text, False)} for text in TEXTS]
    return cases, llama.about()


def chats(model, threads):
    # Gemma's file has no template; llama.cpp has one of that name built in, for when templates are not run as Jinja.
    settings = {"chat_template": "gemma", "use_jinja": False} if model == "gemma3" else {}
    llama = load(CACHE / MODELS[model], threads, n_ctx=256, **settings)
    cases = []
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        prompt = llama.chat_prompt(messages)
        cases.append({"messages": messages, "prompt": prompt, "ids": llama.tokenize(prompt, True)})
    return {"oracle": llama.about(), "chats": cases}


def prompts():
    prose = (FIXTURES / "prose.txt").read_text(encoding="utf-8")
    for prompt in json.loads((HERE / "prompts.json").read_text(encoding="utf-8")):
        yield prompt if isinstance(prompt, str) else prose[: prompt["prose_chars"]] + prompt["then"]


def greedy(model, threads):
    llama = load(CACHE / MODELS[model], threads)
    cases = []
    for prompt in prompts():
        ids = llama.tokenize(prompt, True)
        steps, stop = llama.steps(ids, GENERATED, top=TOP)
        cases.append(
            {
                "prompt": prompt,
                "ids": ids,
                "tokens": [step["id"] for step in steps],
                "top": [[[token, round(logprob, 5)] for token, logprob in step["top"]] for step in steps],
                "stop": stop,
            }
        )
    return {"oracle": llama.about(), "prompts": cases}


def perplexity(model, threads):
    llama = load(CACHE / MODELS[model], threads)
    text = (FIXTURES / "prose.txt").read_text(encoding="utf-8")
    ids = llama.tokenize(text, True)
    logprobs = llama.forced(ids)
    nll = -math.fsum(logprobs) / len(logprobs)
    return {
        "oracle": llama.about(),
        "text": "prose.txt",
        "definition": "teacher-forced over the text in one context, every token but the first",
        "tokens": len(ids),
        "nll": nll,
        "perplexity": math.exp(nll),
        "logprobs": [[round(value, 4) for value in logprobs[at : at + 64]] for at in range(0, len(logprobs), 64)],
    }


def noise(model, threads, path, flash):
    """Log-probabilities of the whole vocabulary at some steps of each greedy continuation."""
    llama = load(CACHE / MODELS[model], threads, **({} if flash else {"flash_attn_type": "DISABLED"}))
    prompts = json.loads((FIXTURES / f"greedy-{model}.json").read_text())["prompts"]
    count = 0
    with open(path, "wb") as out:
        for index, prompt in enumerate(prompts):
            for step in range(0, len(prompt["tokens"]), 16):
                logprobs = llama.logprobs(prompt["ids"] + prompt["tokens"][:step], VOCAB[model])
                array.array("I", [index, step]).tofile(out)
                array.array("f", logprobs).tofile(out)
                count += 1
    return count, llama.about()
