"""`tune init --trainable script.py` for scripts whose options are not those of argparse."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import Tune

CLICK = """
import click

@click.command()
@click.option("-l", "--lr", type=float, default=1e-3)
@click.option("--batch-size", default=64)
@click.option("--optimizer", type=click.Choice(["sgd", "adam"]), default="sgd")
@click.option("--amp/--no-amp", default=True)
@click.option("--verbose", is_flag=True)
@click.option("--layer", multiple=True, type=int)
@click.option("--seed", default=0)
def main(lr, batch_size, optimizer, amp, verbose, layer, seed):
    print(f"{batch_size} {optimizer} val_loss={lr if amp else 2 * lr}")

main()
"""
TYPER = """
from typing import Annotated
import typer
app = typer.Typer()

@app.command()
def main(
    lr: float = 1e-3,
    batch_size: Annotated[int, typer.Option(help="rows")] = 64,
    method: str = typer.Option("sgd", "--optimizer"),
    amp: bool = True,
    seed: int = 0,
):
    print(f"{batch_size} {method} val_loss={lr if amp else 2 * lr}")

app()
"""
TYRO = """
from dataclasses import dataclass, field
from typing import Literal
import tyro

@dataclass
class Optim:
    lr: float = 1e-3
    name: Literal["sgd", "adam"] = "sgd"

@dataclass
class Args:
    optim: Optim = field(default_factory=Optim)
    amp: bool = True
    cuda: bool = True
    target: float | None = None
    seed: int = 0

args = tyro.cli(Args)
print(f"val_loss={args.optim.lr}")
"""
HF = """
from dataclasses import dataclass, field
from mine import Base, Other
from transformers import HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Model(Base):
    hidden: int = field(default=64, metadata={"help": "size"})
    fast: bool = True

parser = HfArgumentParser((Model, TrainingArguments, Other))
model, training, other = parser.parse_args_into_dataclasses()
Trainer(model, training).train()
"""
FIRE = """
import fire

def train(lr=1e-3, batch_size=64, amp=True, seed=0):
    print(f"val_loss={lr}")

fire.Fire(train)
"""
ABSL = """
from absl import app, flags
flags.DEFINE_float("lr", 1e-3, "rate")
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "method")
flags.DEFINE_bool("amp", True, "half")
flags.DEFINE_integer("seed", 0, "seed")
app.run(lambda _: print(f"val_loss={flags.FLAGS.lr}"))
"""
HYDRA = """
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    print(f"val_loss={cfg.optim.lr}")

main()
"""
NANO = """
learning_rate = 6e-4
batch_size = 12
decay_lr = True
max_iters = 5 * 10
out_dir = "out"
config_keys = [k for k in globals() if not k.startswith("_")]
exec(open("configurator.py").read())
tokens = 4
print(f"step {tokens}: train loss {1.0:.4f}, val loss {learning_rate:.4f}")
"""
SEED = "--seed={seed}"
EACH = ["--lr={lr}", "--batch-size={batch-size}", "--optimizer={optimizer}", "--{amp}", SEED]
SCRIPTS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "click": (CLICK, EACH, {"lr": 1e-3, "batch-size": 64, "optimizer": "sgd", "amp": "amp"}),
    "typer": (TYPER, EACH, {"lr": 1e-3, "batch-size": 64, "amp": "amp"}),
    "tyro": (
        TYRO,
        ["--optim.lr={optim.lr}", "--optim.name={optim.name}", "--{amp}", SEED],
        {"optim.lr": 1e-3, "optim.name": "sgd", "amp": "amp"},
    ),
    "hf": (
        HF,
        ["{args}", SEED],
        {"hidden": 64, "fast": True, "learning_rate": 5e-5, "per_device_train_batch_size": 8},
    ),
    "fire": (FIRE, ["{args}", SEED], {"lr": 1e-3, "batch_size": 64, "amp": True}),
    "absl": (ABSL, ["{args}", SEED], {"lr": 1e-3, "optimizer": "sgd", "amp": True}),
    "nano": (
        NANO,
        [f"--{name}={{{name}}}" for name in ("learning_rate", "batch_size", "decay_lr", "out_dir")],
        {"learning_rate": 6e-4, "batch_size": 12, "decay_lr": "True"},
    ),
    "hydra": (
        HYDRA,
        ["model.width={model.width}", "optim.lr={optim.lr}", "seed={seed}"],
        {"model.width": 64, "optim.lr": 1e-3},
    ),
}
LEFT_OUT = {
    "click": ("click_.py:9: verbose", "click_.py:10: layer"),
    "tyro": ("tyro_.py:15: cuda", "tyro_.py:16: target"),
    "nano": ("nano_.py:5: max_iters",),
    "hf": ("hf_.py:11: TrainingArguments", "hf_.py:11: Other", "hf_.py:7: Base"),
}


@pytest.mark.parametrize("library", SCRIPTS)
def test_options_of_every_library_become_parameters(tune: Tune, library: str) -> None:
    script, words, point = SCRIPTS[library]
    tune.write(f"{library}_.py", script)
    for name, text in {
        "config": "defaults: [{optim: adam}, _self_]\nmodel: {width: 64, name: a}\nseed: 1\n",
        "optim/adam": "lr: 1e-3\nbetas: [0.9, 0.99]\n",
    }.items():
        (tune.cwd / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
        tune.write(f"conf/{name}.yaml", text)
    tune("init", "--trainable", f"{library}_.py")
    file = Path(f"{library}_.yaml")
    spec = load_sweep(file).spec
    assert spec.command is not None
    assert sorted(spec.command[2:]) == sorted(words)
    assert spec.points == [point]
    for said in LEFT_OUT.get(library, ()):
        assert f"{said} is left out" in file.read_text()
    tune("plan", file)
    if library in ("click", "typer"):  # which are installed
        assert "val_loss 0.001" in tune("trial", file).out
        other = "points=[{lr: 0.001, amp: no-amp}]"
        assert "val_loss 0.002" in tune("trial", file, "--set", other).out


PRINTS = {
    "print('epoch {:3d} | valid loss {:5.2f} | valid ppl {:8.2f}'.format(1, x, 9.0))": "valid_loss",
    "print('\\nTest set: Average loss: {:.4f}, Accuracy: {}/{}\\n'.format(x, 9, 10))": (
        "test_average_loss"
    ),
    "print('epoch', 1, 'val_loss:', x)": "val_loss",
    "print('eval loss = %.4f after %d' % (x, 3))": "eval_loss",
    "print('dev loss: ' + f'{x:.3f}')": "dev_loss",
    "logger.info('val_loss=%s lr=%.3g', x, 0.1)": "val_loss",
}


@pytest.mark.parametrize("line", PRINTS)
def test_metric_is_found_in_what_a_script_prints(tune: Tune, line: str) -> None:
    head = "import argparse, logging, sys\nlogging.basicConfig(level=20, stream=sys.stdout)\n"
    head += "logger, x = logging.getLogger(), 0.25\np = argparse.ArgumentParser()\n"
    head += "p.add_argument('--lr', default=0.1)\np.parse_args([])\n"
    tune.write("s.py", f"{head}print(f'train loss {{2 * x}}')\n{line}\n")
    tune("init", "--trainable", "s.py")
    spec = load_sweep(Path("s.yaml")).spec
    assert (spec.objectives[0].metric, spec.objectives[0].mode) == (PRINTS[line], "min")
    shown = subprocess.run([sys.executable, "s.py"], capture_output=True, text=True, check=True)
    found = re.findall(spec.report_from.stdout[PRINTS[line]], shown.stdout)
    assert [float(number) for number in found] == [0.25]
    assert "several lines" not in (tune.cwd / "s.yaml").read_text()


@pytest.mark.parametrize("line", ["{'eval_loss': '3.9', 'epoch': '3'}", "{'eval_loss': 3.9}"])
def test_metric_of_transformers_is_found_in_its_lines(tune: Tune, line: str) -> None:
    tune.write("hf.py", HF)
    tune("init", "--trainable", "hf.py")
    spec = load_sweep(Path("hf.yaml")).spec
    assert (spec.objectives[0].metric, spec.objectives[0].mode) == ("eval_loss", "min")
    assert re.findall(spec.report_from.stdout["eval_loss"], line) == ["3.9"]


@pytest.mark.parametrize(
    ("writer", "folder"),
    [("()", "runs"), ("'logs/a'", "logs/a"), ("f'logs/{name}'", "logs"), ("log_dir=name", ".")],
)
def test_scalars_of_tensorboard_are_the_reports(tune: Tune, writer: str, folder: str) -> None:
    writer = writer if writer.startswith("(") else f"({writer})"
    lines = ["import argparse", "from torch.utils.tensorboard import SummaryWriter"]
    lines += ["p = argparse.ArgumentParser()", "p.add_argument('--lr', type=float, default=0.1)"]
    lines += ["name = str(p.parse_args().lr)", f"w = SummaryWriter{writer}"]
    tune.write("s.py", "\n".join([*lines, "w.add_scalar('charts/return', 1.0, 1)"]))
    tune("init", "--trainable", "s.py")
    spec = load_sweep(Path("s.yaml")).spec
    assert (spec.report_from.tensorboard, spec.objectives[0].metric) == (folder, "charts/return")
