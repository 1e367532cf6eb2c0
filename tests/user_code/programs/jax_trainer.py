"""JAX under Ray Train: one global batch over the devices of two processes."""

import os
import socket
import tempfile

import numpy as np
import ray.train
import ray.train.collective
from ray.train import Checkpoint, ScalingConfig
from ray.train.v2.jax import JaxTrainer
from sklearn.datasets import load_digits


def start_jax():
    """Connect the processes; on TPUs and GPUs `JaxTrainer` does it."""
    import jax

    context = ray.train.get_context()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    address = ray.train.collective.broadcast_from_rank_zero(address)
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, context.get_world_size(), context.get_world_rank())


def global_batch(sharding):
    import jax

    images, labels = load_digits(return_X_y=True)
    size = len(labels) // jax.process_count()
    here = slice(jax.process_index() * size, (jax.process_index() + 1) * size)
    local = images[here].astype("float32") / 16, labels[here].astype("int32")
    return [jax.make_array_from_process_local_data(sharding, part) for part in local]


def train_func(config):
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    start_jax()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    x, y = global_batch(NamedSharding(mesh, PartitionSpec("data")))

    def loss_fn(params, x, y):
        logits = jax.nn.log_softmax(x @ params["w"] + params["b"])
        return -jnp.mean(jnp.take_along_axis(logits, y[:, None], axis=1))

    @jax.jit
    def step(params, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        return jax.tree.map(lambda p, g: p - config["lr"] * g, params, grads), loss

    params, start = {"w": np.zeros((64, 10), "float32"), "b": np.zeros(10, "float32")}, 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = dict(np.load(os.path.join(folder, "params.npz")))
        start = int(saved.pop("epoch"))
        params = saved
    params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))

    for epoch in range(start + 1, 7):
        for _ in range(10):
            params, loss = step(params, x, y)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if jax.process_index() == 0:
                values = {name: np.asarray(value) for name, value in params.items()}
                np.savez(os.path.join(folder, "params.npz"), epoch=epoch, **values)
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": float(loss), "epoch": epoch}, checkpoint=checkpoint)


def main(config):
    trainer = JaxTrainer(
        train_loop_per_worker=train_func,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main({"lr": 0.5})
