import json
from math import exp, log

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.baselines.recurrent import Recurrent
from latchwork.baselines.transformer import Transformer
from latchwork.data.shards import write_corpus
from latchwork.data.tokenizers import Characters
from latchwork.evaluation import by_position as module
from latchwork.evaluation.by_position import evaluate_by_position

pytestmark = pytest.mark.usefixtures("one_thread")

V = 5
TOKENIZER = Characters("abcdé")


def make_split(tmp_path, tokens):
    text = numpy.random.default_rng(0).integers(0, V, tokens)
    documents = [text[:3], text[3:]] if tokens > 3 else [text] if tokens else []
    return write_corpus(tmp_path / "corpus", TOKENIZER, documents, [], shard_tokens=7).train


def make_minmax():
    return MinMaxRNC_LM(V, MinMaxRNCLMConfig.small(d_model=8, d_state=6)).double()


MODELS = {
    "minmax": make_minmax,
    "lstm": lambda: Recurrent(V, 1, kind=nn.LSTM, width=6).double(),
    "transformer": lambda: Transformer(V, 1, width=8, heads=2).double(),
}


def by_definition(model, split, length, windows):
    """Each prediction from its whole context, run at once: losses (windows, length)."""
    starts = numpy.linspace(0, len(split) - 1 - length, windows).astype(int)
    losses = torch.zeros(windows, length, dtype=torch.float64)
    model.eval()
    with torch.no_grad():
        for row, start in enumerate(starts):
            tokens = torch.from_numpy(split.read(int(start), length + 1))
            for context in range(1, length + 1):
                logits, _ = model(tokens[None, :context])
                losses[row, context - 1] = F.cross_entropy(logits[0, -1:], tokens[context : context + 1])
    return losses.numpy(), starts


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("length", "windows", "rows"), [(1, 5, 2), (2, None, 8), (21, 3, 2), (40, 1, 1)])
def test_streaming_equals_each_prediction_from_its_whole_context(tmp_path, monkeypatch, name, length, windows, rows):
    monkeypatch.setattr(module, "LOGITS", 3 * rows * V)  # chunks of three, after the first
    monkeypatch.setattr(module, "FIRST", 4)
    split, model = make_split(tmp_path, 41), MODELS[name]()
    lengths = TOKENIZER.byte_lengths()
    result = evaluate_by_position(model, split, length=length, windows=windows, rows=rows, byte_lengths=lengths)
    count = windows or 40 // length
    losses, starts = by_definition(model, split, length, count)
    assert result["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    assert result["perplexity"] == pytest.approx(exp(losses.mean()), rel=1e-12)
    assert (result["tokens"], result["windows"], result["length"]) == (losses.size, count, length)
    text_bytes = sum(lengths[split.read(int(start) + 1, length)].sum() for start in starts)
    assert result["bits_per_byte"] == pytest.approx(losses.sum() / log(2) / text_bytes, rel=1e-12)
    expected = None if count == 1 else losses.mean(1).std(ddof=1) / count**0.5
    assert result["standard_error"] == (None if expected is None else pytest.approx(expected, abs=1e-12))
    low = 1
    for first, last, tokens, loss in result["positions"]:
        assert (first, tokens) == (low, (last - first + 1) * count)
        assert loss == pytest.approx(losses[:, first - 1 : last].mean(), rel=1e-12)
        low = last + 1
    assert low == length + 1
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_the_buckets_end_at_powers_of_two(tmp_path):
    result = evaluate_by_position(make_minmax(), make_split(tmp_path, 30), length=20)
    assert [each[:2] for each in result["positions"]] == [[1, 1], [2, 2], [3, 4], [5, 8], [9, 16], [17, 20]]


def test_beyond_its_limit_a_model_is_not_run(tmp_path):
    split, model = make_split(tmp_path, 60), MODELS["transformer"]()
    asked = []
    model.register_forward_pre_hook(lambda _, arguments: asked.append(arguments[0].shape[1]))
    limited = evaluate_by_position(model, split, length=32, windows=2, limit=6)
    assert sum(asked) == 6
    whole = evaluate_by_position(model, split, length=32, windows=2)
    for ours, theirs in zip(limited["positions"][:3], whole["positions"][:3], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)
    assert limited["positions"][3][:3] == [5, 8, 2 * 2]  # contexts 5 and 6
    assert [each[2:] for each in limited["positions"][4:]] == [[0, None], [0, None]]
    assert limited["tokens"] == 12
    assert json.dumps(limited, allow_nan=False)


def test_a_token_has_its_average_bytes_where_the_tokenizer_cannot_say(tmp_path):
    split, model = make_split(tmp_path, 41), make_minmax()
    known = evaluate_by_position(model, split, length=40, byte_lengths=TOKENIZER.byte_lengths())
    unknown = evaluate_by_position(model, split, length=40)
    assert unknown["bits_per_byte"] == pytest.approx(known["bits_per_byte"], rel=0.05)


def test_what_is_not_a_number_is_none(tmp_path):
    model = make_minmax()
    with torch.no_grad():
        model.embedding.weight[0] = torch.nan
    result = evaluate_by_position(model, make_split(tmp_path, 20), length=8)
    assert result["loss"] is None
    assert result["perplexity"] is None
    assert result["bits_per_byte"] is None
    assert json.dumps(result, allow_nan=False)


def test_the_model_keeps_its_mode_and_progress_is_told(tmp_path):
    model, told = make_minmax().train(), []
    evaluate_by_position(model, make_split(tmp_path, 30), length=9, rows=2, watch=lambda *each: told.append(each))
    assert model.training
    assert told[-1] == (27, 27)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_long_context_takes_no_more_memory(tmp_path):
    import tracemalloc

    split, model = make_split(tmp_path, 20_000), make_minmax()
    peaks, sizes = [], []
    model.register_forward_hook(lambda *arguments: sizes.append(arguments[2][0].numel()))
    for length in (4000, 16_000):
        tracemalloc.start()
        evaluate_by_position(model, split, length=length, windows=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 16_000 * 8 * 2  # the sums by position
    assert max(sizes) <= 4096 * V


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0}, "length must be at least 1 and less than the 20 tokens of the split; got 0"),
        ({"length": 20}, "length must be at least 1 and less than the 20 tokens of the split; got 20"),
        ({"windows": 0}, "windows must be at least 1; got 0"),
        ({"rows": 0}, "rows must be at least 1; got 0"),
        ({"limit": 0}, "limit must be at least 1; got 0"),
    ],
)
def test_a_bad_option_is_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        evaluate_by_position(make_minmax(), make_split(tmp_path, 20), **{"length": 4, **changes})


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_split_without_a_prediction_is_an_error(tmp_path, tokens):
    with pytest.raises(ValueError, match=f"less than the {tokens} tokens of the split"):
        evaluate_by_position(make_minmax(), make_split(tmp_path, tokens), length=1)
