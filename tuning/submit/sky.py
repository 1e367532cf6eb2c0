"""One file for SkyPilot, whose managed jobs run a command again on a machine of any cloud."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.submit.manifests import cluster_name, variables
from tuning.submit.portable import files_of, require_image, set_options

_FILE = """\
# Runs sweep {name} with SkyPilot, from this folder; after a preemption on another machine:
#
#     export {exports}
#     sky jobs launch {given} {file}
#
# TUNE_KEY is the content of ~/.config/tune/key: with another key no machine trusts the sweep of the
# one before. The credentials of the mirror's bucket are those that SkyPilot gives its machines.
name: {name}
resources:
  cpus: {cpus}+
  memory: {memory}+
{accelerators}  use_spot: true
  image_id: docker:{image}
workdir: .
secrets:
{secrets}run: |
  {command}
"""


def render_sky(loaded: LoadedSweep, options: Sequence[str]) -> dict[str, str]:
    """Content of each file, by name: SkyPilot's, the sweep file, and the scripts beside it.

    Args:
        options: one, the kind of accelerator as SkyPilot names it, if machines have any.

    Raises:
        UserError: it cannot be rendered.
    """
    (cluster, nodes), spec = require_image(loaded), loaded.spec
    if spec.checkpoint.mirror is None:
        raise UserError(
            f"{loaded.path.name}: needs checkpoint.mirror, like s3://bucket/sweeps: a new machine "
            "has an empty disk"
        )
    if nodes > 1:
        raise UserError(
            f"{loaded.path.name}: cluster.max_nodes: {nodes}: SkyPilot's machines share no folder, "
            "so a sweep gets one; set it to 1"
        )
    if options and not cluster.gpus:
        raise UserError("--with: has no effect: machines have no GPU (cluster.gpus)")
    if cluster.gpus and len(options) != 1:
        raise UserError(f"--with: needs the kind of {cluster.gpus} GPUs, like --with H100")
    command = shlex.join(
        ["tune", "run", loaded.path.name, "--or-resume", *set_options(loaded.overrides)]
    )
    secrets = ["TUNE_KEY", *variables(spec)]
    file = f"{cluster_name(spec.name)}-sky.yaml"
    kind = "".join(f"  accelerators: {kind}:{cluster.gpus}\n" for kind in options)
    text = _FILE.format(
        name=cluster_name(spec.name),
        file=file,
        exports=" ".join(f"{name}=..." for name in secrets),
        given=" ".join(f"--secret {name}" for name in secrets),
        accelerators=kind,
        secrets="".join(f"  {name}: null\n" for name in secrets),
        command=command,
        **cluster.model_dump(include={"cpus", "memory", "image"}),
    )
    return {file: text, **files_of(loaded)}
