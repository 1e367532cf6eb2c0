"""Run `model.gguf` with llama.cpp alone: FOLDER INPUTS.npz OUTPUTS.npz.

llama.cpp's server, inside this process, returns the log-probabilities of the last token of every
input, given the tokens before it. It listens on 127.0.0.1 and requires a key.
"""

import json
import secrets
import sys
from urllib.request import Request, urlopen

import numpy as np
import xllamacpp

folder, inputs, outputs = sys.argv[1:]
with np.load(inputs) as given:
    cases = {k: given[k] for k in given.files if k.isdigit()}
    text = str(given["text"]) if "text" in given.files else None
    messages = json.loads(str(given["messages"])) if text is not None else []
params = xllamacpp.CommonParams()
params.model.path = f"{folder}/model.gguf"
params.n_ctx = max(case.shape[1] for case in cases.values())
params.n_parallel, params.n_gpu_layers, params.warmup = 1, 0, False
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.api_keys = [secrets.token_hex()]
server = xllamacpp.Server(params)


def ask(path, **body):
    """The server's response, from JSON."""
    key = {"Authorization": f"Bearer {params.api_keys[0]}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body else None
    with urlopen(Request(server.listening_address + path, data, key)) as answer:
        return json.load(answer)


def tokens_of(text, begun=False):
    """Token ids; with those that begin and end a text if `begun`."""
    return ask("/tokenize", content=text, add_special=begun)["tokens"]


vocabulary = ask("/v1/models")["data"][0]["meta"]["n_vocab"]
# The bias makes the server write the letter a, because it returns no probabilities with a token
# that is part of a character or ends the text. The probabilities are those before the bias.
options = {"n_predict": 1, "temperature": 0, "logit_bias": [[tokens_of("a")[0], 1e4]]}


def last(row):
    """Log-probabilities [vocabulary] of a row's last token."""
    answer = ask("/completion", prompt=row[:-1].tolist(), n_probs=vocabulary, **options)
    by_id = sorted(answer["completion_probabilities"][0]["top_logprobs"], key=lambda t: t["id"])
    return [token["logprob"] for token in by_id]


found = {k: np.array([last(row) for row in case]) for k, case in cases.items()}
if text is not None:
    found["tokens"] = np.array(tokens_of(text))
    prompt = ask("/apply-template", messages=messages)["prompt"] if messages else text
    found["prompt"] = np.array(tokens_of(prompt, begun=True))
np.savez(outputs, runtime=f"llama.cpp (xllamacpp {xllamacpp.__version__})", **found)
