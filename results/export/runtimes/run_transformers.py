"""Runs a language model with transformers alone: FOLDER INPUTS.npz OUTPUTS.npz.

Reads `model.gguf` where there is one, by transformers' own reader.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

transformers.utils.logging.set_verbosity_error()
folder, inputs, outputs = sys.argv[1:]
gguf = {"gguf_file": "model.gguf"} if Path(folder, "model.gguf").exists() else {}
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **gguf).eval()
found = {}
with np.load(inputs) as given, torch.no_grad():
    for k in given.files:
        if k.isdigit():
            found[k] = model(input_ids=torch.from_numpy(given[k])).logits.numpy()
    if "text" in given.files:
        tokenizer = AutoTokenizer.from_pretrained(folder, **gguf)
        found["tokens"] = np.array(
            tokenizer(str(given["text"]), add_special_tokens=False)["input_ids"]
        )
np.savez(outputs, runtime=f"transformers {transformers.__version__}", **found)
