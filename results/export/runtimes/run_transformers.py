"""Run a model with transformers alone: FOLDER INPUTS.npz OUTPUTS.npz.

Reads `model.gguf` if there is one, with the reader of transformers; runs the model code of the
folder if it has any.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
folder, inputs, outputs = sys.argv[1:]
gguf = {"gguf_file": "model.gguf"} if Path(folder, "model.gguf").exists() else {}
config = {} if gguf else json.loads(Path(folder, "config.json").read_text())
own = config.get("auto_map", {})
made = (config.get("architectures") or [""])[0].partition("For")[2]
known = f"AutoModelFor{made}" if made.endswith("Classification") else "AutoModelForCausalLM"
auto = next((name for name in own if name.startswith("AutoModel")), known)
model = getattr(transformers, auto).from_pretrained(
    folder, dtype=torch.float32, trust_remote_code=bool(own), **gguf
)
model.eval()
found = {}
with np.load(inputs) as given, torch.no_grad():
    for k in given.files:
        if k.isdigit():
            found[k] = model(torch.from_numpy(given[k])).logits.numpy()
    if "text" in given.files:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        text, messages = str(given["text"]), json.loads(str(given["messages"]))
        found["tokens"] = np.array(tokenizer(text, add_special_tokens=False)["input_ids"])
        if messages:
            text = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        found["prompt"] = np.array(tokenizer(text, add_special_tokens=not messages)["input_ids"])
np.savez(outputs, runtime=f"transformers {transformers.__version__}", **found)
