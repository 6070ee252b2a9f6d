"""A llama.cpp server in this process, asked over HTTP.

xllamacpp's own methods speak only the OpenAI dialect; the server behind them also knows /tokenize, /completion with
token ids, and log-probabilities of as many tokens as asked for.
"""
import json
import math
import urllib.request

import xllamacpp

# What every comparison runs with. One sequence, the cache in f16 as by default, and the whole of Gemma's windowed
# cache kept, so that a prompt grown by one token continues from the cache instead of being read again.
SETTINGS = {"n_ctx": 4096, "n_parallel": 1, "swa_full": True, "warmup": False, "verbosity": 0}


class Llama:
    """One model, loaded. Leave the process with os._exit: the server's threads do not end by themselves."""

    def __init__(self, path, threads, **settings):
        self.settings, self.threads = {**SETTINGS, **settings}, threads
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        for name, value in self.settings.items():
            if name == "flash_attn_type":
                types = xllamacpp.llama_flash_attn_type.__members__
                value = next(kind for key, kind in types.items() if key.endswith(value))
            setattr(params, name, value)
        self.server = xllamacpp.Server(params)

    def about(self):
        """What a fixture records of where it comes from."""
        return {
            "package": f"xllamacpp=={xllamacpp.__version__}",
            "backend": "cpu",
            "threads": self.threads,
            "settings": self.settings,
        }

    def post(self, route, body):
        request = urllib.request.Request(
            self.server.listening_address + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    def tokenize(self, text, special):
        """Token ids of a text: as a prompt (BOS, control tokens read) or as plain text."""
        return self.post("/tokenize", {"content": text, "add_special": special, "parse_special": special})["tokens"]

    def chat_prompt(self, messages):
        """The prompt that the model's own template makes of a chat."""
        return self.post("/apply-template", {"messages": messages})["prompt"]

    def steps(self, ids, count, top=2, force=None):
        """Greedy continuation of a prompt: for each step the token, its log-probability, and the `top` likeliest.

        The log-probabilities are of the raw logits. `force` names a token to take whatever its probability.
        """
        reply = self.post(
            "/completion",
            {
                "prompt": ids,
                "n_predict": count,
                "temperature": 0,
                "top_k": 1,
                "seed": 1,
                "n_probs": top,
                "return_tokens": True,
                "cache_prompt": force is not None,
                "logit_bias": [] if force is None else [[force, 1e6]],
            },
        )
        steps = [
            {"id": step["id"], "logprob": step["logprob"], "top": [(t["id"], t["logprob"]) for t in step["top_logprobs"]]}
            for step in reply["completion_probabilities"]
        ]
        return steps, reply["stop_type"]

    def logprobs(self, ids, vocab):
        """The log-probability of every token after a prompt, by id."""
        (step,), _ = self.steps(ids, 1, top=vocab)
        values = [-math.inf] * vocab
        for token, logprob in step["top"]:
            values[token] = logprob
        return values

    def forced(self, ids):
        """The log-probability of each token of a sequence but the first, given those before it.

        One request a token: the prompt grows by that token, which was forced at the request before, so the cache
        holds all of it but the last.
        """
        values = []
        for end in range(1, len(ids)):
            (step,), _ = self.steps(ids[:end], 1, top=1, force=ids[end])
            if step["id"] != ids[end]:
                raise RuntimeError(f"token {end}: the server took {step['id']} where {ids[end]} was forced")
            values.append(step["logprob"])
        return values
