"""Runs a registered model with mlflow alone: models:/NAME/VERSION INPUTS.npz OUTPUTS.npz."""

import sys

import mlflow
import numpy as np

uri, inputs, outputs = sys.argv[1:]
model = mlflow.pyfunc.load_model(uri)
((name,), (output,)) = (s.input_names() for s in (model.metadata.signature.inputs, model.metadata.signature.outputs))
with np.load(inputs) as given:
    found = {k: model.predict({name: given[k]})[output] for k in given.files if k.isdigit()}
np.savez(outputs, runtime=f"mlflow {mlflow.__version__}", **found)
