"""Run a registered model with mlflow alone: models:/NAME/VERSION INPUTS.npz OUTPUTS.npz."""

import sys

import mlflow
import numpy as np

uri, inputs, outputs = sys.argv[1:]
model = mlflow.pyfunc.load_model(uri)
signature = model.metadata.signature
(name,), (output,) = signature.inputs.input_names(), signature.outputs.input_names()
with np.load(inputs) as given:
    found = {k: model.predict({name: given[k]})[output] for k in given.files if k.isdigit()}
np.savez(outputs, runtime=f"mlflow {mlflow.__version__}", **found)
