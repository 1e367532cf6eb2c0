"""Register a model in MLflow, so that `models:/name@champion` loads and predicts.

The model is the verified ONNX file, so that neither writing nor loading it uses pickle.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from results.export.exportable import Exportable
from results.export.folder import CARD
from results.export.format import Runtime
from results.export.quiet import quiet_exporters
from results.export.verify import Verification, verify_export
from results.tracking.mlflow.client import connect, experiment_id, explain_errors
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

CANDIDATE, CHAMPION = "candidate", "champion"
KIND = "tune.kind"
"""Tag of a version: the names of the model's input and output."""
RUNTIME = Runtime("run_mlflow.py", 1e-3)
_DESCRIPTION = 5000
"""Characters of a version's description that MLflow stores; the whole card lies with the model."""


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model."""

    name: str
    version: str
    verification: Verification

    def uri(self, alias: str) -> str:
        """Address for `mlflow.pyfunc.load_model`."""
        return f"models:/{self.name}@{alias}"


def register(
    uri: str,
    artifact_root: Path | None,
    experiment: str,
    onnx: Path,
    name: str,
    model: Exportable,
    tags: Mapping[str, str],
    *,
    champion: bool,
) -> RegisteredVersion:
    """Register an exported ONNX model, and verify the model that the registry returns.

    Args:
        artifact_root: folder for the artifacts of a new experiment.
        experiment: for the run that the version belongs to.
        onnx: folder of the export, with its model card.
        model: the original, for the signature and the comparison.
        tags: of the run and of the version.
        champion: whether the version gets the alias `champion` too.

    Raises:
        UserError: MLflow does not answer, or takes no model of this name, or that has models of
            another kind; or the outputs of the registered model differ, and the version is deleted.
    """
    client = connect(uri)
    with explain_errors(uri):
        where = experiment_id(client, experiment, artifact_root)
    kind = f"{model.input_name} to {model.output_name}"
    _create_model(client, name, kind)
    version = _create_version(client, where, onnx, name, model, {**tags, KIND: kind})
    tracking = {"MLFLOW_TRACKING_URI": uri}
    verification = verify_export(f"models:/{name}/{version}", RUNTIME, model, environment=tracking)
    if not verification.passed:
        client.delete_model_version(name, version)
        raise UserError(f"--to mlflow: not registered, the copy differs: {verification.summary}")
    client.set_registered_model_alias(name, CANDIDATE, version)
    if champion:
        client.set_registered_model_alias(name, CHAMPION, version)
    return RegisteredVersion(name, version, verification)


def _create_model(client: MlflowClient, name: str, kind: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as e:
        with suppress(MlflowException):
            found = client.get_registered_model(name)  # none if it is the name of a prompt
            for version in found.latest_versions:
                if (known := version.tags.get(KIND, kind)) != kind:
                    raise UserError(f"--name {name}: has models of {known}, not of {kind}") from e
            return
        raise UserError(f"--name {name}: {e.message}") from e


def _create_version(
    client: MlflowClient, where: str, onnx: Path, name: str, model: Exportable, tags: dict[str, str]
) -> str:
    """Log a run of an experiment with the model as artifact, and create a version from it."""
    run = client.create_run(where, tags=tags, run_name=f"{name} {onnx.name}")
    with quiet_exporters(), tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        _save_mlflow_model(onnx, folder, model)
        shutil.copyfile(onnx / CARD, folder / CARD)
        client.log_artifacts(run.info.run_id, str(folder), "model")
    client.set_terminated(run.info.run_id)
    source = f"{run.info.artifact_uri}/model"
    card = (onnx / CARD).read_text()[:_DESCRIPTION]
    created = client.create_model_version(
        name, source, run.info.run_id, tags=tags, description=card
    )
    return str(created.version)


def _save_mlflow_model(onnx: Path, folder: Path, model: Exportable) -> None:
    """Write an MLflow model folder, with a signature whose dynamic dimensions are open."""
    import mlflow.onnx
    import numpy as np
    import onnx as onnx_package
    import onnxruntime
    from mlflow.models.signature import ModelSignature
    from mlflow.types import Schema, TensorSpec

    example = model.examples[0].numpy()
    output = model.module(model.examples[0]).detach().numpy()
    input_shape = [-1 if i in model.dynamic else n for i, n in enumerate(example.shape)]
    input_spec = TensorSpec(example.dtype, input_shape, model.input_name)
    output_shape = [-1] * (output.ndim - 1) + [output.shape[-1]]
    output_spec = TensorSpec(np.dtype(output.dtype), output_shape, model.output_name)
    mlflow.onnx.save_model(
        onnx_package.load(onnx / "model.onnx"),
        folder,
        signature=ModelSignature(Schema([input_spec]), Schema([output_spec])),
        input_example={model.input_name: example},
        pip_requirements=[
            f"onnx=={onnx_package.__version__}",
            f"onnxruntime=={onnxruntime.__version__}",
        ],
    )
