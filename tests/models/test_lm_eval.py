"""lm_eval on an exported run, against the same numbers computed by hand with our own."""

import json
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("lm_eval")

import lm_eval
from lm_eval.tasks import TaskManager

from latchwork.data.tokenizers import Bytes, Characters, save_tokenizer
from latchwork.interop.huggingface import export_huggingface
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig

pytestmark = pytest.mark.slow
TASKS = {  # what each adds to COMMON
    "choice": """
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list: [{metric: acc}]
""",
    "generate": """
output_type: generate_until
doc_to_text: "{{context}}"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["."], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: bits_per_byte}]
""",
}
COMMON = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{folder}/{name}.json"}}, cache_dir: "{folder}/cache"}}
test_split: test"""
TOKENIZERS = {"new line": Characters("\n ab.xyz"), "no new line": Characters(" ab.xyz"), "bytes": Bytes()}
CONTEXTS = ["ab", "a", "bb", "x.a", "yab", "zzz", "b", "a b"]
CHOICES = ["a", "xb", "b.za", "y"]
TEXTS = ["abba\n", "\n\nba b", "a" * 40]


def log_probability(lm, tokens, start):
    """Of the tokens from start on, after those before them."""
    scores = lm(torch.tensor([tokens]))[0][0].log_softmax(-1)
    return sum(scores[place - 1, tokens[place]].item() for place in range(start, len(tokens)))


def score(lm, tokenizer, context, choice):
    tokens = tokenizer.encode(context + choice).tolist()
    return log_probability(lm, tokens, len(tokenizer.encode(context)))


def best_choice(lm, tokenizer, context):
    return max(range(len(CHOICES)), key=lambda number: score(lm, tokenizer, context, CHOICES[number]))


def greedy(lm, tokenizer, context):
    """Six tokens, up to a point or the end."""
    new = lm.generate(tokenizer.encode(context).tolist(), 6, temperature=0)[0].tolist()
    return tokenizer.decode(new[: new.index(256)] if 256 in new else new).partition(".")[0]


def make_tasks(name, folder):
    """An exported run, our own model, its tokenizer, and the tasks; six of eight choices and answers are its own.

    Over characters, whose tokenizer has no end, and over bytes; a rolling text's first token follows the end.
    """
    tokenizer = TOKENIZERS[name]
    torch.manual_seed(1)
    lm = MinMaxRNC_LM(tokenizer.vocabulary, MinMaxRNCLMConfig.small(d_model=12, d_state=10)).eval()
    with torch.no_grad():
        lm.embedding.weight.mul_(4)
    lm.save(folder / "model")
    save_tokenizer(tokenizer, folder / "model" / "tokenizer")
    export_huggingface(folder / "model", folder / "hf")
    rows = {"choice": [], "generate": [], "rolling": []}
    for number, context in enumerate(CONTEXTS):
        best, said, own = best_choice(lm, tokenizer, context), greedy(lm, tokenizer, context), number % 3 != 2
        answer = best if own else (best + 1) % len(CHOICES)
        rows["choice"].append({"context": context, "choices": CHOICES, "answer": answer})
        rows["generate"].append({"context": context, "target": said if own else "no"})
    rows["rolling"] = [{"text": text.replace("\n", " ") if name == "no new line" else text} for text in TEXTS]
    (folder / "tasks").mkdir()
    for task, lines in rows.items():
        (folder / f"{task}.json").write_text("\n".join(map(json.dumps, lines)))
        (folder / "tasks" / f"{task}.yaml").write_text(COMMON.format(name=task, folder=folder) + TASKS[task])
    return lm, tokenizer


@pytest.mark.parametrize("name", TOKENIZERS)
def test_its_scores_are_ours(name, tmp_path):
    lm, tokenizer = make_tasks(name, tmp_path)
    for said in (best_choice, greedy):
        assert len({said(lm, tokenizer, context) for context in CONTEXTS}) > 1
    done = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(tmp_path / "hf"), "device": "cpu"},
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        batch_size=3,
        bootstrap_iters=0,
    )
    assert done["results"]["choice"]["acc,none"] == 6 / 8
    assert done["results"]["generate"]["exact_match,none"] == 6 / 8
    for sample in done["samples"]["choice"]:
        expected = [score(lm, tokenizer, sample["doc"]["context"], choice) for choice in CHOICES]
        assert [float(found) for found, _ in sample["filtered_resps"]] == pytest.approx(expected, abs=1e-4)
    for sample in done["samples"]["generate"]:
        assert sample["filtered_resps"] == [greedy(lm, tokenizer, sample["doc"]["context"])]
    for sample in done["samples"]["rolling"]:
        tokens = [tokenizer.end or 0, *tokenizer.encode(sample["doc"]["text"]).tolist()]  # 0: the first character
        assert float(sample["filtered_resps"][0]) == pytest.approx(log_probability(lm, tokens, 1), abs=1e-3)


COMMAND = """
from functools import partialmethod
from lm_eval.__main__ import cli_evaluate
from lm_eval.tasks import TaskManager
TaskManager.__init__ = partialmethod(TaskManager.__init__, include_defaults=False)  # to read them takes 12 s
cli_evaluate()
"""


def test_its_command_finds_the_model(tmp_path):
    """`lm_eval --model hf`, with nothing of ours imported by hand."""
    make_tasks("bytes", tmp_path)
    command = [sys.executable, "-c", COMMAND, "--model", "hf", "--device", "cpu", "--batch_size", "3"]
    command += ["--model_args", f"pretrained={tmp_path / 'hf'},trust_remote_code=True"]
    command += ["--tasks", "choice", "--include_path", str(tmp_path / "tasks")]
    command += ["--output_path", str(tmp_path / "out.json")]
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (result,) = tmp_path.glob("out*.json")
    assert json.loads(result.read_text())["results"]["choice"]["acc,none"] == 6 / 8
