import pytest
import torch
from torch import nn

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.baselines.recurrent import Recurrent
from latchwork.baselines.registry import ModelConfig, make_model, save_model
from latchwork.data.tokenizers import Bytes, Characters, save_tokenizer
from latchwork.evaluation.sampling import first_tokens, load_run, sample_text

SMALL = MinMaxRNCLMConfig.small(d_model=8, d_state=6)


def test_the_pieces_are_the_text_of_the_tokens_that_generate_draws():
    model, tokenizer = MinMaxRNC_LM(257, SMALL), Bytes()
    options = {"temperature": 1.5, "top_k": 200, "seed": 3}
    tokens = model.generate(tokenizer.encode("a é").tolist(), 60, **options)[0].tolist()
    text = "".join(sample_text(model, tokenizer, "a é", 60, **options, stop_at_end=False))
    assert text == tokenizer.decode(tokens)


def test_any_model_is_sampled_from_as_ours_is():
    """A greedy loop without a state is the definition."""
    model, tokenizer = Recurrent(5, 1, kind=nn.LSTM, width=6).eval(), Characters("abcde")
    tokens = [1, 2]
    with torch.no_grad():
        for _ in range(10):
            tokens.append(int(model(torch.tensor([tokens]))[0][0, -1].argmax()))
    assert "".join(sample_text(model, tokenizer, "bc", 10, temperature=0)) == tokenizer.decode(tokens[2:])
    drawn = ["".join(sample_text(model, tokenizer, "bc", 30, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


class Scripted(nn.Module):
    """Says the tokens it was given, whatever it reads."""

    def __init__(self, tokens):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.tokens = tokens

    def forward(self, tokens, state=None):
        place = state or 0
        logits = torch.zeros(1, tokens.shape[1], 257)
        logits[0, -1, self.tokens[place]] = 9.0
        return logits, place + 1


def test_characters_come_whole_and_the_end_stops():
    said = [*"né\N{PILE OF POO}".encode(), 256, *b"more", 195]
    pieces = list(sample_text(Scripted(said), Bytes(), "x", len(said), temperature=0))
    assert pieces == ["n", "é", "\N{PILE OF POO}"]
    pieces = list(sample_text(Scripted(said), Bytes(), "x", len(said), temperature=0, stop_at_end=False))
    assert "".join(pieces) == "né\N{PILE OF POO}more\N{REPLACEMENT CHARACTER}"  # cut off within a character


def test_an_empty_prompt_begins_a_document_or_a_line():
    assert first_tokens(Bytes(), "") == [256]
    assert first_tokens(Characters("a\n"), "") == [0]
    assert first_tokens(Characters("a\n"), "aa") == [1, 1]
    with pytest.raises(ValueError, match="prompt must not be empty"):
        first_tokens(Characters("ab"), "")
    with pytest.raises(ValueError, match=r"text has 'x' \(U\+0078\)"):
        first_tokens(Characters("ab"), "ax")


@pytest.mark.parametrize("where", ["run/model/tokenizer", "run/model"])
@pytest.mark.parametrize("given", ["run", "run/model"])
def test_a_run_is_found_by_its_folder_or_its_model(tmp_path, where, given):
    model = MinMaxRNC_LM(3, SMALL)
    model.save(tmp_path / "run/model")
    save_tokenizer(Characters("abc"), tmp_path / where)
    found, tokenizer = load_run(tmp_path / given)
    assert tokenizer.decode([0, 1, 2]) == "abc"
    assert torch.equal(found.embedding.weight, model.embedding.weight)
    assert not found.training


def test_a_run_of_a_baseline_is_found(tmp_path):
    model = make_model(ModelConfig(kind="lstm", options={"n_layers": 1, "width": 6}), 3)
    save_model(tmp_path / "model", model)
    save_tokenizer(Characters("abc"), tmp_path / "model/tokenizer")
    found, _ = load_run(tmp_path)
    assert torch.equal(found.embedding.weight, model.embedding.weight)


def test_what_is_no_run_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder and no network of the zoo"):
        load_run(tmp_path / "missing")
    with pytest.raises(ValueError, match="must hold a model"):
        load_run(tmp_path)
    MinMaxRNC_LM(3, SMALL).save(tmp_path)
    with pytest.raises(ValueError, match="has no tokenizer: it was trained on the symbols of a task"):
        load_run(tmp_path)
    save_tokenizer(Characters("abcd"), tmp_path)
    with pytest.raises(ValueError, match="the tokenizer has 4 tokens, the model knows 3"):
        load_run(tmp_path)
