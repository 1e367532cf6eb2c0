"""Run `model.pt2` with torch alone: FOLDER INPUTS.npz OUTPUTS.npz."""

import sys

import numpy as np
import torch

folder, inputs, outputs = sys.argv[1:]
module = torch.export.load(f"{folder}/model.pt2").module()
with np.load(inputs) as given, torch.no_grad():
    found = {k: module(torch.from_numpy(given[k])).numpy() for k in given.files if k.isdigit()}
np.savez(outputs, runtime=f"torch.export {torch.__version__}", **found)
