"""Run `model.onnx` with onnxruntime alone: FOLDER INPUTS.npz OUTPUTS.npz."""

import sys

import numpy as np
import onnxruntime

folder, inputs, outputs = sys.argv[1:]
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
(name,) = (given.name for given in session.get_inputs())
with np.load(inputs) as given:
    found = {k: session.run(None, {name: given[k]})[0] for k in given.files if k.isdigit()}
np.savez(outputs, runtime=f"onnxruntime {onnxruntime.__version__}", **found)
