"""TensorFlow and Keras under Ray Train: a mirrored model on two workers, saved each epoch."""

import os

import ray.train
from ray.train import ScalingConfig
from ray.train.tensorflow import TensorflowTrainer
from sklearn.datasets import load_digits


def train_func(config):
    import tensorflow as tf
    from ray.train.tensorflow.keras import ReportCheckpointCallback

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load_digits(return_X_y=True)
    data = tf.data.Dataset.from_tensor_slices((images[:1792].astype("float32") / 16, labels[:1792]))
    steps = 1792 // 128
    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        checkpoint, start = ray.train.get_checkpoint(), 0
        if checkpoint:
            with checkpoint.as_directory() as folder:
                model = tf.keras.models.load_model(os.path.join(folder, "model.keras"))
            start = int(model.optimizer.iterations.numpy()) // steps
        else:
            layers = [tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(10)]
            model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
            model.compile(
                optimizer=tf.keras.optimizers.SGD(config["lr"]),
                loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            )
    model.fit(
        data.batch(128),
        initial_epoch=start,
        epochs=6,
        verbose=0,
        callbacks=[ReportCheckpointCallback()],
    )


def main(config):
    trainer = TensorflowTrainer(
        train_func,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main({"lr": 0.1})
