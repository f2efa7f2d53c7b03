"""lm_eval on a saved model, against the same numbers computed by hand with our own."""

import json
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import lm_eval
from huggingface_cases import LETTERS, make_model, make_tokenizer
from lm_eval.tasks import TaskManager

from latchwork.data.tokenizers import Bytes, Characters, save_tokenizer
from latchwork.interop.huggingface import export_huggingface
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.models.huggingface import to_huggingface

pytestmark = pytest.mark.slow
CHOICE = """
task: letters_choice
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{folder}/choice.json"}}, cache_dir: "{folder}/cache"}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
GENERATE = """
task: letters_generate
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{folder}/generate.json"}}, cache_dir: "{folder}/cache"}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{target}}}}"
generation_kwargs: {{until: ["."], max_gen_toks: 6, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""
CONTEXTS = ["abc", "jihgf edcba", "a", "be bad", "face a cab", "dig", "heed a", "cafe"]
CHOICES = ["a", "hi", "bad egg", "fig"]


def encode(text):
    return [LETTERS.index(letter) for letter in text]


def log_probability(lm, context, continuation):
    tokens = encode(context + continuation)
    logits, _ = lm(torch.tensor([tokens]))
    scores = logits[0].log_softmax(-1)
    return sum(scores[place - 1, tokens[place]].item() for place in range(len(context), len(tokens)))


def best_choice(lm, context):
    return max(range(len(CHOICES)), key=lambda number: log_probability(lm, context, CHOICES[number]))


def greedy(lm, context):
    """Six letters, up to a point."""
    new = lm.generate(encode(context), 6, temperature=0)[0].tolist()
    return "".join(LETTERS[token] for token in new).partition(".")[0]


@pytest.fixture
def lm():
    return make_model()


@pytest.fixture
def folder(lm, tmp_path):
    """A saved model with its tokenizer, and two tasks; six of the eight answers to each are the model's own."""
    to_huggingface(lm).save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    choices, targets = [], []
    for number, context in enumerate(CONTEXTS):
        own = number % 3 != 2
        best = best_choice(lm, context)
        choices.append({"context": context, "choices": CHOICES, "answer": best if own else (best + 1) % len(CHOICES)})
        targets.append({"context": context, "target": greedy(lm, context) if own else "no"})
    for name, task, rows in (("choice", CHOICE, choices), ("generate", GENERATE, targets)):
        (tmp_path / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / "tasks" / f"{name}.yaml").write_text(task.format(folder=tmp_path))
    return tmp_path


def test_its_scores_are_ours(lm, folder):
    assert len({best_choice(lm, context) for context in CONTEXTS}) > 1
    assert len({greedy(lm, context) for context in CONTEXTS}) > 1
    done = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder / "model"), "device": "cpu"},
        tasks=["letters_choice", "letters_generate"],
        task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
        batch_size=3,
        bootstrap_iters=0,
    )
    assert done["results"]["letters_choice"]["acc,none"] == 6 / 8
    assert done["results"]["letters_generate"]["exact_match,none"] == 6 / 8
    for sample in done["samples"]["letters_choice"]:
        expected = [log_probability(lm, sample["doc"]["context"], choice) for choice in CHOICES]
        assert [float(score) for score, _ in sample["filtered_resps"]] == pytest.approx(expected, abs=1e-4)
    for sample in done["samples"]["letters_generate"]:
        assert sample["filtered_resps"] == [greedy(lm, sample["doc"]["context"])]


ROLLING = """
task: text_rolling
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{folder}/rolling.json"}}, cache_dir: "{folder}/cache"}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list: [{{metric: bits_per_byte}}]
"""
TEXTS = ["abba\n", "\n\nba b", "a" * 40]


@pytest.mark.parametrize("tokenizer", [Characters("\n ab.xyz"), Characters(" ab.xyz"), Bytes()], ids=lambda t: t.kind)
def test_an_exported_run_is_evaluated(tokenizer, tmp_path):
    """Over characters, whose tokenizer has no end, and over bytes; the texts' first token follows the end."""
    torch.manual_seed(0)
    lm = MinMaxRNC_LM(tokenizer.vocabulary, MinMaxRNCLMConfig.small(d_model=12, d_state=10)).eval()
    with torch.no_grad():
        lm.embedding.weight.mul_(4)
    lm.save(tmp_path / "model")
    save_tokenizer(tokenizer, tmp_path / "model" / "tokenizer")
    export_huggingface(tmp_path / "model", tmp_path / "hf")
    end = tokenizer.end or 0  # a new line, or else the first character
    texts = [text.replace("\n", " ") if tokenizer.vocabulary == 7 else text for text in TEXTS]
    (tmp_path / "rolling.json").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    contexts = [{"context": text, "target": "no"} for text in ("ab", "a", "bb ")]
    (tmp_path / "generate.json").write_text("\n".join(map(json.dumps, contexts)))
    (tmp_path / "tasks").mkdir()
    for name, task in (("rolling", ROLLING), ("generate", GENERATE)):
        (tmp_path / "tasks" / f"{name}.yaml").write_text(task.format(folder=tmp_path))
    done = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(tmp_path / "hf"), "device": "cpu"},
        tasks=["text_rolling", "letters_generate"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        batch_size=2,
        bootstrap_iters=0,
    )
    for sample in done["samples"]["text_rolling"]:
        tokens = [end, *tokenizer.encode(sample["doc"]["text"]).tolist()]
        scores = lm(torch.tensor([tokens]))[0][0].log_softmax(-1)
        expected = sum(scores[place - 1, tokens[place]].item() for place in range(1, len(tokens)))
        assert float(sample["filtered_resps"][0]) == pytest.approx(expected, abs=1e-3)
    for sample in done["samples"]["letters_generate"]:
        new = lm.generate(tokenizer.encode(sample["doc"]["context"]).tolist(), 6, temperature=0)[0].tolist()
        text = tokenizer.decode(new[: new.index(256)] if 256 in new else new)
        assert sample["filtered_resps"] == [text.partition(".")[0]]


COMMAND = """
from functools import partialmethod
from lm_eval.__main__ import cli_evaluate
from lm_eval.tasks import TaskManager
TaskManager.__init__ = partialmethod(TaskManager.__init__, include_defaults=False)  # to read them takes 12 s
cli_evaluate()
"""


def test_its_command_finds_the_model(lm, folder):
    """`lm_eval --model hf`, with nothing of ours imported by hand."""
    command = [sys.executable, "-c", COMMAND, "--model", "hf", "--device", "cpu", "--batch_size", "3"]
    command += ["--model_args", f"pretrained={folder / 'model'},trust_remote_code=True"]
    command += ["--tasks", "letters_choice", "--include_path", str(folder / "tasks")]
    command += ["--output_path", str(folder / "out.json")]
    environment = {**os.environ, "HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (result,) = folder.glob("out*.json")
    assert json.loads(result.read_text())["results"]["letters_choice"]["acc,none"] == 6 / 8
