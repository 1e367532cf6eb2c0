"""Mistakes that only the training code shows, before anything starts; and the keys of stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.pipeline.loading import load_pipeline
from trainables.causal_lm.config import CausalLMConfig
from tuning.pipelines.check import check_pipeline, pipeline_notes
from tuning.pipelines.keys import stage_keys

SHIPPED = Path(__file__).parents[3] / "search_spaces" / "pipelines" / "stories.yaml"


def problems(*overrides: str, change: Callable[[str], str] = str, folder: Path) -> str:
    file = folder / "stories.yaml"
    file.write_text(change(SHIPPED.read_text()))
    with pytest.raises(UserError) as caught:
        check_pipeline(load_pipeline(file, overrides))
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sft.fixed.hidden_size=128", "hidden_size: no effect with model_name_or_path"),
        ("sft.fixed.sequence_length=256", "is more than the 192 positions"),
        ("pretrain.choose_by=sft.answer_nll", "sft does not report 'answer_nll'"),
        ("pretrain.choose_by=sft.exact_match", "write 'min sft.exact_match' or 'max sft.exact_"),
        ("sft.tie={weight_decay: pretrain.wait_decay}", "did you mean 'weight_decay'?"),
        ("sft.tie={learning_rate: pretrain.learning_rate}", "learning_rate is tied, and in the"),
        ("sft.fixed.data.question=ask", "data/instructions has no column 'ask'"),
        ("grpo.fixed.data.answer=word", "no column 'word' (did you mean 'words'?)"),
        ("sft.fixed.data.paths='{data}/instruction/*.jsonl'", "did you mean 'instructions'?"),
        ("pretrain.fixed.data.splits=digest", "write splits: file_names"),
        ("export.to=[ggf]", "no such format (did you mean 'gguf'?)"),
        ("export.to=[gguf-q8_0]", "to gguf-q8_0: no such format (did you mean 'gguf'?)"),
        ("export.quant=int8", "quant int8: not for --to gguf; onnx takes int8, gguf takes q8_0"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused_in_one_line(
    tmp_path: Path, override: str, line: str
) -> None:
    assert line in problems(override, folder=tmp_path)


def test_models_with_different_tokenizers_are_not_compared_per_token(tmp_path: Path) -> None:
    sizes = "pretrain.space.vocab_size={choice: [300, 512]}"
    found = problems(
        sizes,
        change=lambda text: text.replace("        vocab_size: 512\n", ""),
        folder=tmp_path,
    )
    assert "the models of pretrain have different tokenizers (it searches vocab_size)" in found
    (note,) = pipeline_notes(load_pipeline(tmp_path / "stories.yaml", [sizes]))
    assert note.startswith("stage pretrain: metric: eval_loss is per token")


def test_a_trainable_that_takes_no_model_cannot_have_init(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text((SHIPPED.parents[1] / "digits.yaml").read_text())
    found = problems(
        change=lambda text: (
            text + "  - {name: digits, kind: train, sweep: digits.yaml, init: sft.winner}\n"
        ),
        folder=tmp_path,
    )
    assert "stages.5.init: digits cannot begin with a model: it has no model_name_or_path" in found


def test_the_budget_of_the_whole_holds_the_trials_of_the_stages(tmp_path: Path) -> None:
    found = problems(
        change=lambda text: text.replace("\nstages:", "\nbudget: {trials: 5}\nstages:"),
        folder=tmp_path,
    )
    assert "budget.trials: 5 is less than the 11 trials of the stages" in found


def test_costs_of_stages_need_prices_of_one_currency(tmp_path: Path) -> None:
    def limited(text: str) -> str:
        return text.replace("\nstages:", "\nbudget: {cost: 5}\nstages:")

    prices = ["sft.prices={cpu_hour: 1}", "grpo.prices={cpu_hour: 1}"]
    found = problems(*prices, change=limited, folder=tmp_path)
    assert "budget.cost: needs prices of stage pretrain" in found
    prices.append("pretrain.prices={cpu_hour: 1, currency: EUR}")
    found = problems(*prices, change=limited, folder=tmp_path)
    assert "budget.cost: the stages have prices in EUR and USD" in found


def test_the_pipeline_of_sums_is_checked() -> None:
    found = check_pipeline(load_pipeline(SHIPPED.with_name("arithmetic.yaml")))
    assert found.keys() == {"pretrain", "sft", "grpo"}


def test_the_pipeline_of_tinystories_fits_its_files(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / "data" / split).mkdir(parents=True)
        (tmp_path / "data" / split / "stories.jsonl").write_text('{"text": "Once upon a time."}\n')
    file = tmp_path / "stories_gpu.yaml"
    file.write_text(SHIPPED.with_name("stories_gpu.yaml").read_text())
    pipeline = load_pipeline(file)
    samples = check_pipeline(pipeline)
    assert pipeline.order == ["data", "requests", "pretrain", "sft", "grpo", "test", "export"]
    _, (one, *_) = samples["pretrain"]
    config = CausalLMConfig.model_validate(pipeline.sweeps["pretrain"].spec.nest(one))
    assert (config.hidden_size, config.num_layers, config.vocab_size) == (512, 8, 32_000)
    assert config.max_steps == 3000
    assert config.num_parameters == 37_364_224
    (tmp_path / "data" / "train" / "stories.jsonl").unlink()
    with pytest.raises(UserError, match=r"data\.paths\.0|no file matches data/train"):
        check_pipeline(load_pipeline(file))


@pytest.mark.parametrize(
    ("override", "changed"),
    [
        ("sft.space.learning_rate={loguniform: [0.001, 0.02]}", {"sft", "grpo", "export"}),
        ("data.stories=500", {"data", "pretrain", "sft", "grpo", "export"}),
        ("grpo.fixed.group_size=4", {"grpo", "export"}),
        ("pretrain.choose_by=null", set()),
        ("sft.tracking.name=none", set()),
        ("export.to=[hf]", {"export"}),
    ],
)
def test_a_change_changes_the_keys_of_what_depends_on_it(
    override: str, changed: set[str], tmp_path: Path
) -> None:
    before = stage_keys(load_pipeline(SHIPPED), tmp_path)
    after = stage_keys(load_pipeline(SHIPPED, [override]), tmp_path)
    assert {name for name in before if before[name] != after[name]} == changed


def test_data_that_a_sweep_names_itself_count_by_their_content(tmp_path: Path) -> None:
    def keys() -> dict[str, str]:
        made = load_pipeline(SHIPPED, [f"pretrain.fixed.data.paths={tmp_path}/*.jsonl"])
        return stage_keys(made, tmp_path / "cache")

    (tmp_path / "train.jsonl").write_text('{"text": "one"}')
    before = keys()
    assert keys() == before
    (tmp_path / "train.jsonl").write_text('{"text": "two"}')
    assert {name for name, key in keys().items() if key == before[name]} == {"data"}
