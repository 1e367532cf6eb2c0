"""Run `model.ubj` with xgboost, or `model.txt` with lightgbm: FOLDER INPUTS.npz OUTPUTS.npz."""

import json
import sys
from pathlib import Path

import numpy as np

folder, inputs, outputs = map(Path, sys.argv[1:])
table = json.loads((folder / "table.json").read_text())
kinds = ["q" if known is None else "c" for known in table["columns"].values()]
if (folder / "model.ubj").exists():
    import xgboost as library

    model = library.Booster(model_file=folder / "model.ubj")
    options = {"feature_types": kinds, "enable_categorical": True}
    read = lambda rows: library.DMatrix(rows, **options)  # noqa: E731
else:
    import lightgbm as library

    model, read = library.Booster(model_file=folder / "model.txt"), np.asarray

found = {}
with np.load(inputs) as given:
    for name in (name for name in given.files if name.isdigit()):
        output = model.predict(read(given[name].astype(np.float64)))
        if table["task"] == "binary":  # the libraries give the second class only
            output = np.stack([1 - output, output], axis=1)
        found[name] = output.reshape(len(output), -1)
np.savez(outputs, runtime=f"{library.__name__} {library.__version__}", **found)
