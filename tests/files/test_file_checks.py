"""What is checked of a file before it is believed: where it lies, its hash, how deep it is, the sizes it asks for."""

import json
import math

import pytest
import torch
from damaged_kinds import make_baseline, make_checkpoint, make_corpus, make_huggingface, make_lm, make_subwords
from safetensors.torch import load_file, save_file

from latchwork import load_model
from latchwork.baselines.registry import ModelConfig, make_model
from latchwork.data.corpus import Corpus
from latchwork.data.shards import write_corpus
from latchwork.data.tokenizers import Bytes, load_tokenizer
from latchwork.files import json_hash, parse_json, read_json, write_json
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules import State
from latchwork.tensor_files import read_tensors, write_tensors
from latchwork.training.checkpoint import why_broken
from latchwork.training.presets import CONFIGS
from latchwork.training.pretrain import pretrain

OUTSIDE = ["../../etc/passwd", "/etc/passwd", "a/../../b", "a\0b", "\ud800", "", " ", ".", "..", "link", "folder/link"]


def edit(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def add_links(folder):
    """Links to a file outside of the folder, here and in a folder of it."""
    secret = folder.parent / f"{folder.name}-secret"
    secret.write_text("secret")
    (folder / "folder").mkdir(exist_ok=True)
    for path in (folder / "link", folder / "folder" / "link"):
        if not path.is_symlink():
            path.symlink_to(secret)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_names_another_outside_of_its_folder(name, tmp_path):
    def corpus(change):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        make_corpus(folder)
        for each in (folder, folder / "tokenizer"):
            add_links(each)
        edit(folder / "manifest.json", change)
        Corpus(folder).verify()

    for change in (
        lambda values: values["splits"]["train"]["shards"][0].update(file=name),
        lambda values: values["splits"]["train"]["starts"].update(file=name),
        lambda values: values["tokenizer"].update(files={name: "0" * 64}),
    ):
        with pytest.raises(ValueError, match=r"manifest\.json must name files inside its folder; it names"):
            corpus(change)
    (tmp_path / "subwords").mkdir()
    make_subwords(tmp_path / "subwords")
    add_links(tmp_path / "subwords")
    edit(tmp_path / "subwords" / "sha256.json", lambda values: values.update({name: "0" * 64}))
    with pytest.raises(ValueError, match=r"sha256\.json must name files inside its folder"):
        load_tokenizer(tmp_path / "subwords")
    make_checkpoint(tmp_path / "checkpoints")
    add_links(tmp_path / "checkpoints" / "00000004")
    note = tmp_path / "checkpoints" / "00000004" / "checkpoint.json"
    edit(note, lambda values: values["files"].update({name: "0" * 64}))
    edit(note, lambda values: values.pop("sha256"))
    edit(note, lambda values: values.update(sha256=json_hash(values)))  # one who means harm signs what was changed
    assert "checkpoint.json must name files inside its folder" in why_broken(note.parent)


@pytest.mark.parametrize("name", [each for each in OUTSIDE if "link" not in each])
def test_an_index_of_weights_names_files_of_its_folder(name, tmp_path):
    from latchwork.models.huggingface import MinMaxRNCForCausalLM

    make_huggingface(tmp_path)
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": {"lm.embedding.weight": name}})
    with pytest.raises(ValueError, match=r"index\.json must name files inside its folder"):
        MinMaxRNCForCausalLM.from_pretrained(tmp_path)


def test_weights_in_several_files_are_hashed_and_read(tmp_path):
    from latchwork.models.huggingface import MinMaxRNCForCausalLM, to_huggingface

    model = MinMaxRNC_LM(5, MinMaxRNCLMConfig.small(d_model=8, d_state=6))
    to_huggingface(model).save_pretrained(tmp_path, max_shard_size="2KB")
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    loaded = MinMaxRNCForCausalLM.from_pretrained(tmp_path).to_latchwork()
    assert all(map(torch.equal, loaded.state_dict().values(), model.state_dict().values()))
    content = files[1].read_bytes()
    files[1].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=rf"{files[1].name} has changed"):
        MinMaxRNCForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"n_layers": 100_000},
        {"n_layers": 9_000},
        {"d_model": 10**9},
        {"d_model": 10**400},
        {"d_state": 10**18},
        {"d_state": 2**24, "degree": 2**24},
        {"extra_units": [[1, 2]] * 10_000},
        {"extra_units": [[10**9, 10**9]]},
        {"levels": 10**30},
        {"ffn_proj_factor": 1e300},
        {"ffn_proj_factor": 10**400},
        {"conv_init_val": -(10**400)},
    ],
    ids=str,
)
def test_sizes_that_the_weights_have_not_are_an_error(change, tmp_path):
    from latchwork.models.huggingface import MinMaxRNCForCausalLM

    make_lm(tmp_path / "own")
    edit(tmp_path / "own" / "config.json", lambda values: values["model"]["backbone"].update(change))
    make_huggingface(tmp_path / "theirs")
    edit(tmp_path / "theirs" / "config.json", lambda values: values.update(change))
    loaders = (MinMaxRNC_LM.load, "own"), (load_model, "own"), (MinMaxRNCForCausalLM.from_pretrained, "theirs")
    for load, folder in loaders:
        with pytest.raises(ValueError, match=r"config\.json|model\.safetensors"):
            load(tmp_path / folder)


@pytest.mark.parametrize(
    "change", [{"n_layers": 10**5}, {"n_layers": 9000}, {"width": 10**9}, {"width": "8"}, {"heads": 0}], ids=str
)
def test_sizes_of_a_baseline_are_checked_too(change, tmp_path):
    make_baseline(tmp_path)
    edit(tmp_path / "config.json", lambda values: values["options"].update(change))
    with pytest.raises(ValueError, match=r"config\.json"):
        load_model(tmp_path)
    if 9000 not in change.values():
        with pytest.raises(ValueError, match=next(iter(change))):
            make_model(ModelConfig(kind="transformer", options={"n_layers": 1, "width": 8, "heads": 2, **change}), 5)


def test_every_flipped_bit_is_found(tmp_path):
    tensors = {"conv": torch.randn(1, 2, 1), "x": torch.randn(1, 2, 2)}
    State(**tensors).save(tmp_path / "state")
    content = (tmp_path / "state").read_bytes()
    read = 0
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        (tmp_path / "state").write_bytes(changed)
        try:
            state = State.load(tmp_path / "state")
        except ValueError:
            continue
        read += 1  # the name of the hash itself has changed, and no tensor
        assert all(torch.equal(getattr(state, name), each) for name, each in tensors.items())
    assert 0 < read < 200


def test_the_same_tensors_give_the_same_bytes(tmp_path):
    tensors = {"b": torch.arange(3.0), "a": torch.arange(4)}
    metadata = {name: "é\n\"'{" for name in "qwertzuiop"}
    for name in ("one", "two"):
        write_tensors(tmp_path / name, tensors, metadata)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found, said = read_tensors(tmp_path / "one")
    assert metadata.items() <= said.items()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_weights_from_elsewhere_carry_no_hash_and_are_read(tmp_path):
    make_lm(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "embedding.weight": tensors["embedding.weight"] + 1}, path)
    edit(tmp_path / "config.json", lambda values: values["model"]["backbone"].update(ffn_dropout=0.5))
    model = MinMaxRNC_LM.load(tmp_path)
    assert torch.equal(model.embedding.weight, tensors["embedding.weight"] + 1)
    assert model.config.backbone.ffn_dropout == 0.5


@pytest.mark.parametrize("make", [make_lm, make_baseline])
def test_a_configuration_that_was_changed_does_not_fit_its_weights(make, tmp_path):
    """Levels and heads are in no shape: without this, it would be another network."""
    make(tmp_path)
    own = {make_lm: lambda values: values["model"]["backbone"].update(levels=2)}
    edit(tmp_path / "config.json", own.get(make, lambda values: values["options"].update(heads=4)))
    with pytest.raises(ValueError, match=r"config\.json has changed since model\.safetensors was saved with it"):
        load_model(tmp_path)


def test_a_corpus_with_a_flipped_bit_is_not_trained_on(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", Bytes(), [[1, 2, 3] * 30], [[4, 5, 6] * 30])
    shard = corpus.path / "train-00000.tokens"
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 4]) + shard.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"train-00000\.tokens has changed"):
        pretrain(CONFIGS["char-1m"], corpus.path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must be JSON: Expecting property name"),
        (b"[]", "must hold a JSON object; got list"),
        (b'{"a": {"b": 1, "b": 2}}', "must be JSON: the key 'b' is there twice"),
        (b'{"a": NaN}', "must be JSON: NaN is no number"),
        (b'{"a": [-Infinity]}', "must be JSON: -Infinity is no number"),
        (b'{"a": 1e999}', "must be JSON: 1e999 is no number"),
        (b'{"a": ' + b"1" * 5000 + b"}", "must be JSON: Exceeds the limit"),
        (b'{"a":' + b"[" * 100_000, "must be JSON nested at most 64 deep"),
        (b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", "must be JSON nested at most 64 deep"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "must be JSON nested at most 64 deep"),
        ('{"a": "é"}'.encode("latin-1"), "must be text in UTF-8: .* at byte 7"),
        ('{"a": 1}'.encode("utf-16"), "must be text in UTF-8"),
        (b'{"a": 1}' + b" " * 100, "must have at most 100 bytes"),
    ],
)
def test_what_is_wrong_with_json_is_said_with_the_name_of_the_file(content, message, tmp_path):
    (tmp_path / "some.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"some\.json {message}"):
        read_json(tmp_path / "some.json", 100 if "100 bytes" in message else 1 << 20)


def test_json_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "some.json"
    write_json(path, {"a": [1, 2.5, math.nan, {"b": (math.inf, None, True)}], "é": "日"})
    assert read_json(path) == {"a": [1, 2.5, None, {"b": [None, None, True]}], "é": "日"}
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as some editors do
    assert read_json(path)["é"] == "日"
    assert read_json(tmp_path / "none.json") is read_json(path / "none.json") is None
    assert parse_json("[" * 64 + "]" * 64, "x")
