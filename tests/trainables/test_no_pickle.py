"""Folders from others run no code: no pickle in them is read."""

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from search_spaces.errors import UserError
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import ROOT, run_python
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import load_model, new_model
from trainables.data.text.dataset import prepare


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A model's folder whose weights are a pickle that runs code."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, vocab_size=16, **sizes))
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    weights = {**model.state_dict(), "more": Bomb(tmp_path / "exploded")}
    torch.save(weights, folder / "pytorch_model.bin")
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "exploded").exists(), "the bomb is one"
    (tmp_path / "exploded").unlink()
    return folder


def tiny() -> CausalLMConfig:
    return CausalLMConfig.model_validate(EXAMPLES["causal_lm"].config)


def test_load_model_does_not_read_pickled_weights(planted: Path, tmp_path: Path) -> None:
    config = tiny()
    dataset = prepare(config, tmp_path / "cache")
    with pytest.raises((UserError, OSError), match="safetensors"):
        load_model(config, dataset, planted)
    assert not (tmp_path / "exploded").exists()


def test_pretrained_model_does_not_unpickle_code(planted: Path, tmp_path: Path) -> None:
    dataset = prepare(tiny(), tmp_path / "cache")
    with pytest.raises(Exception, match=r"(?i)weights_only|unsupported|unpickl"):
        new_model(CausalLMConfig(model_name_or_path=str(planted)), dataset)
    assert not (tmp_path / "exploded").exists()


WATCHED = """
import sys
from pathlib import Path
from tests.fuzz import folders
paths = folders.make_sweep(Path(sys.argv[1]))
for place in ("ray/tuner.pkl", "trials/t0000/checkpoints/step_00000001/optimizer.pt", "study.pkl"):
    (paths.root / place).parent.mkdir(parents=True, exist_ok=True)
    (paths.root / place).write_bytes(b"cposix\\nsystem\\n(S'touch exploded'\\ntR.")
read = []
def hook(event, args):
    if event == "pickle.find_class":
        read.append(args)
sys.addaudithook(hook)
assert folders.check(paths)
sys.exit(repr(read) if read else 0)
"""


def test_resume_reads_no_pickle(tmp_path: Path) -> None:
    run_python("-c", WATCHED, tmp_path)
    assert not (ROOT / "exploded").exists()
