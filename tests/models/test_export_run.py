"""A run in the Hugging Face format: what transformers reads of it, in a process that has imported nothing of ours."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")
from transformers import AutoTokenizer

from latchwork.data.tokenizers import Bytes, Characters, save_tokenizer
from latchwork.interop.huggingface import export_huggingface
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.models.huggingface import MinMaxRNCForCausalLM

TOKENIZERS = {"characters": Characters("\n abcdé"), "without a new line": Characters(" abcdé"), "bytes": Bytes()}


def export(name, tmp_path):
    """The folder of an exported model, the model, and its tokenizer."""
    tokenizer = TOKENIZERS[name]
    model = MinMaxRNC_LM(tokenizer.vocabulary, MinMaxRNCLMConfig.small(d_model=8, d_state=6)).eval()
    model.save(tmp_path / "model")
    save_tokenizer(tokenizer, tmp_path / "model" / "tokenizer")
    export_huggingface(tmp_path / "model", tmp_path / "hf")
    return tmp_path / "hf", model, tokenizer


@pytest.fixture(params=TOKENIZERS)
def exported(request, tmp_path):
    return export(request.param, tmp_path)


def test_their_tokenizer_is_ours(exported):
    folder, _, ours = exported
    theirs = AutoTokenizer.from_pretrained(folder)
    texts = ["abc", "", "  a  b", "daé é", "a b\nc\n\n" if ours.vocabulary > 6 else " "]
    texts += ["日本\U0001f4a9\r\n\t\0 'tis 12", "n\u0303 ﬁ"] if ours.kind == "bytes" else []
    for text in texts:
        tokens = ours.encode(text).tolist()
        assert theirs(text)["input_ids"] == tokens
        assert theirs.decode(tokens) == text
        assert theirs.decode(tokens, skip_special_tokens=True) == text
    assert theirs.eos_token_id == (ours.vocabulary if ours.end is None else ours.end)
    assert len(theirs) == theirs.eos_token_id + 1


def test_an_end_that_the_vocabulary_has_not_is_read_as_a_new_line(exported):
    folder, model, tokenizer = exported
    theirs, end = MinMaxRNCForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder).eos_token_id
    ids = torch.tensor([[end, 1, 2, end, 1]])
    read = ids if tokenizer.end is not None else ids.masked_fill(ids == end, 0)
    assert torch.equal(theirs(ids).logits, model(read)[0])
    assert theirs(ids, labels=ids).loss.isfinite()
    assert theirs.generation_config.eos_token_id == tokenizer.end


READ = """
import sys, torch, transformers
assert "latchwork" not in sys.modules
{first}
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1]{options})
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
print(model(**tokenizer("abcd", return_tensors="pt")).logits[0, -1].tolist())
model.save_pretrained(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("name", "first", "options"),
    [("bytes", "import latchwork.models.huggingface", ""), ("characters", "", ", trust_remote_code=True")],
    ids=["imported", "trusted"],
)
def test_a_fresh_process_reads_it_without_a_question(name, first, options, tmp_path):
    folder, model, tokenizer = export(name, tmp_path)
    script = READ.format(first=first, options=options)
    environment = {**os.environ, "HF_HOME": str(folder.parent / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, folder, tmp_path / "again"],
        capture_output=True, text=True, env=environment, input="", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "custom code" not in done.stdout + done.stderr
    logits = torch.tensor(eval(done.stdout))
    assert torch.equal(logits, model(torch.tensor([tokenizer.encode("abcd").tolist()]))[0][0, -1])
    for file in ("config.json", "modeling_minmaxrnc.py", "model.safetensors"):  # and saved again it is the same
        assert (folder / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
