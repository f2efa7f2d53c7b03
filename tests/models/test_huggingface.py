"""The transformers classes against our own model, which is the definition."""

import importlib.util
import sys

import pytest
import torch

from latchwork import use_backend
from latchwork.models import MinMaxRNC_LM

pytest.importorskip("transformers")

from huggingface_cases import kinds, make_model, pad, paddings, tokens
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

from latchwork.models.huggingface import MinMaxRNCForCausalLM, MinMaxRNCHFConfig, to_huggingface
from latchwork.models.int8 import quantize_int8
from latchwork.modules.state import State


@pytest.fixture
def lm():
    return make_model()


@pytest.fixture
def model(lm):
    return to_huggingface(lm)


class TestForward:
    @kinds
    def test_the_logits_and_the_state_are_those_of_our_model(self, kind):
        lm = make_model(**kind)
        ids = tokens(3, 9)
        logits, state = lm(ids)
        output = to_huggingface(lm)(ids, attention_mask=torch.ones_like(ids))
        assert torch.equal(output.logits, logits)
        assert isinstance(output.state, State)
        assert all(map(torch.equal, output.state, state))

    @kinds
    def test_one_step_at_a_time_equals_the_whole(self, kind):
        model = to_huggingface(make_model(**kind).double())
        ids = tokens(3, 9)
        whole, state, steps = model(ids), None, []
        for step in ids.split(1, dim=1):
            output = model(step, state=state)
            state = output.state
            steps.append(output.logits)
        torch.testing.assert_close(torch.cat(steps, 1), whole.logits)
        torch.testing.assert_close(state, whole.state)

    def test_embeddings_may_be_given_in_place_of_tokens(self, model):
        model.double()
        ids, mask = pad([tokens(4), tokens(2)], [[1, 1, 1, 1], [0, 1, 1, 0]], filling=0)
        embedded = model.get_input_embeddings()(ids)
        theirs, ours = model(inputs_embeds=embedded, attention_mask=mask), model(ids, attention_mask=mask)
        torch.testing.assert_close(theirs.logits[mask == 1], ours.logits[mask == 1])
        torch.testing.assert_close(theirs.state, ours.state)

    def test_the_loss_is_that_of_the_next_token_without_those_of_minus_100(self, model, lm):
        ids = tokens(3, 9)
        labels = ids.clone()
        labels[0, :5] = labels[2, 7] = -100
        logits, _ = lm(ids)
        expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        torch.testing.assert_close(model(ids, labels=labels).loss, expected)
        total = expected * labels[:, 1:].ne(-100).sum()
        torch.testing.assert_close(model(ids, labels=labels, num_items_in_batch=7).loss, total / 7)

    def test_logits_to_keep_are_the_last_or_those_named(self, model):
        ids = tokens(2, 5)
        all_logits = model(ids).logits
        torch.testing.assert_close(model(ids, logits_to_keep=2).logits, all_logits[:, -2:])
        torch.testing.assert_close(model(ids, logits_to_keep=torch.tensor([0, 3])).logits, all_logits[:, [0, 3]])

    def test_hidden_states_are_the_input_of_each_layer_and_of_the_head(self, model, lm):
        ids, mask = pad([tokens(4), tokens(2)], [[1, 1, 1, 1], [0, 1, 1, 0]], filling=0)
        hidden = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        assert len(hidden) == 1 + model.config.num_hidden_layers
        real = mask.bool()
        torch.testing.assert_close(hidden[0][real], lm.embedding(ids)[real])
        torch.testing.assert_close(lm.head(hidden[-1])[real], model(ids, attention_mask=mask).logits[real])
        assert model(ids).hidden_states is None

    def test_a_tuple_is_returned_on_demand(self, model):
        ids = tokens(2, 5)
        loss, logits, state = model(ids, labels=ids, return_dict=False)
        assert loss.shape == ()
        assert logits.shape == (2, 5, 14)
        assert isinstance(state, State)
        assert len(model(ids, use_cache=False, return_dict=False)) == 1

    def test_in_training_the_state_is_returned_only_on_demand(self, model):
        model.train()
        assert model(tokens(2, 5)).state is None
        assert model(tokens(2, 5), use_cache=True).state is not None

    def test_packed_sequences_do_not_see_each_other(self, model):
        first, second = tokens(1, 4, seed=1), tokens(1, 5, seed=2)
        reset = torch.zeros(1, 9, dtype=torch.bool)
        reset[0, 4] = True
        packed = model(torch.cat((first, second), 1), reset=reset)
        torch.testing.assert_close(packed.logits, torch.cat((model(first).logits, model(second).logits), 1))
        torch.testing.assert_close(packed.state, model(second).state)

    @pytest.mark.parametrize("items", [None, 0, 3])
    def test_where_all_labels_are_left_out_the_loss_and_its_gradient_are_zero(self, model, items):
        ids, labels = tokens(2, 5), torch.full((2, 5), -100)
        labels[:, 0] = 3  # nothing comes before it
        loss = model(ids, labels=labels, num_items_in_batch=items).loss
        loss.backward()
        assert loss == 0
        assert not any(each.grad.any() for each in model.parameters() if each.grad is not None)

    def test_int32_labels_are_taken(self, model):
        ids = tokens(2, 5)
        assert torch.equal(model(ids.int(), labels=ids.int()).loss, model(ids, labels=ids).loss)

    @pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"num_beams": 2}], ids=str)
    def test_generation_refuses_logits_with_a_nan(self, model, options):
        with torch.no_grad():
            model.lm.embedding.weight[5] = torch.nan
        with pytest.raises(FloatingPointError, match="the largest logit of each row must be finite"):
            model.generate(tokens(2, 5).clamp(max=4), max_new_tokens=3, **options)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({}, "give either input_ids or inputs_embeds, and not both"),
            ({"input_ids": torch.zeros(3)}, r"input_ids must be int64 or int32 \(B, T\); got torch.float32 \(3,\)"),
            ({"inputs_embeds": torch.zeros(2, 3, 5)}, r"inputs_embeds must be \(B, T, d_model = 12\); got \(2, 3, 5\)"),
            ({"attention_mask": torch.ones(2, 6)}, r"attention_mask must be \(B, T\) = \(2, 5\); got \(2, 6\)"),
            ({"labels": tokens(2, 4)}, r"labels must be int64 or int32 \(B, T\) = \(2, 5\); got torch.int64 \(2, 4\)"),
            ({"labels": torch.zeros(2, 5)}, r"labels must be int64 or int32 \(B, T\) = \(2, 5\); got torch.float32"),
            ({"labels": tokens(2, 5), "logits_to_keep": 1}, "logits_to_keep must be 0"),
            ({"logits_to_keep": -1}, "logits_to_keep must be at least 0; got -1"),
            ({"output_attentions": True}, "output_attentions must be False: there is no attention"),
            ({"reset": torch.zeros(2, 4, dtype=torch.bool)}, r"reset must be bool \(B, T\) = \(2, 5\)"),
            ({"reset": tokens(2, 5) > 3, "attention_mask": tokens(2, 5) > 3}, "reset is for rows without padding"),
            ({"state": State(torch.zeros(3, 1, 12), torch.zeros(3, 1, 10))}, r"state.conv must be \(n_layers, B, 12\)"),
        ],
    )
    def test_a_bad_argument_is_named(self, model, arguments, error):
        if not arguments.keys() & {"input_ids", "inputs_embeds"} and arguments:
            arguments = {"input_ids": tokens(2, 5), **arguments}
        with pytest.raises(ValueError, match=error):
            model(**arguments)

    def test_an_unknown_argument_is_an_error(self, model):
        with pytest.raises(TypeError, match="position_ids"):
            model(tokens(2, 5), position_ids=torch.arange(5))


class TestMask:
    @kinds
    @paddings
    def test_padding_is_not_seen(self, kind, masks):
        """Each row has the logits and the state that it has alone, whatever stands in the padding."""
        model = to_huggingface(make_model(**kind).double())
        rows = [tokens(sum(mask), seed=number) for number, mask in enumerate(masks)]
        outputs = []
        for filling in (0, 5, -100):
            ids, mask = pad(rows, masks, filling)
            outputs.append(model(ids, attention_mask=mask))
        for number, row in enumerate(rows):
            alone = model(row.unsqueeze(0))
            for output in outputs:
                logits = output.logits[number, mask[number].bool()]
                torch.testing.assert_close(logits, alone.logits[0], atol=1e-10, rtol=0)
                torch.testing.assert_close(output.state.select([number]), alone.state, atol=1e-10, rtol=0)

    def test_a_masked_step_has_the_output_of_the_last_real_one(self, model):
        ids, mask = pad([tokens(3)], [[1, 0, 1, 1, 0, 0]], filling=0)
        logits = model(ids, attention_mask=mask).logits[0]
        assert torch.equal(logits[1], logits[0])
        assert torch.equal(logits[4], logits[3])
        assert torch.equal(logits[5], logits[3])

    def test_the_gradient_of_padding_is_zero(self, model):
        ids, mask = pad([tokens(3), tokens(5)], [[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0]], filling=0)
        embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
        labels = ids.masked_fill(mask == 0, -100)
        model(inputs_embeds=embedded, attention_mask=mask, labels=labels).loss.backward()
        assert embedded.grad[mask == 0].count_nonzero() == 0
        assert embedded.grad[mask == 1].count_nonzero() > 0

    @kinds
    def test_a_row_of_nothing_but_padding_keeps_the_initial_state(self, kind):
        lm = make_model(**kind)
        ids, mask = pad([tokens(2), tokens(0)], [[1, 1, 0], [0, 0, 0]], filling=3)
        state = to_huggingface(lm)(ids, attention_mask=mask).state
        torch.testing.assert_close(state.select([1]), lm.initial_state(1))

    def test_with_a_state_a_longer_mask_counts_at_its_end(self, model):
        first, second = pad([tokens(2), tokens(4)], [[0, 0, 1, 1], [1, 1, 1, 1]], filling=0), tokens(2, 3, seed=2)
        state = model(first[0], attention_mask=first[1]).state
        mask = torch.cat((first[1], torch.ones(2, 3)), 1)
        together = model(torch.cat((first[0], second), 1), attention_mask=mask)
        continued = model(second, state=state, attention_mask=mask)
        torch.testing.assert_close(continued.logits, together.logits[:, 4:])
        torch.testing.assert_close(continued.state, together.state)

    def test_with_a_state_new_tokens_may_not_be_masked(self, model):
        state = model(tokens(1, 3)).state
        with pytest.raises(ValueError, match="attention_mask must be 1 at all new tokens where a state is given"):
            model(tokens(1, 2), state=state, attention_mask=torch.tensor([[1, 1, 1, 1, 0]]))


class TestWeights:
    @kinds
    def test_a_saved_model_is_loaded_bit_for_bit(self, kind, tmp_path):
        lm = make_model(**kind)
        to_huggingface(lm).save_pretrained(tmp_path)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
        assert type(loaded) is MinMaxRNCForCausalLM
        assert AutoConfig.from_pretrained(tmp_path).to_latchwork() == lm.config
        ours = lm.state_dict()
        theirs = loaded.to_latchwork().state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        tied = kind.get("tie_weights", True)
        assert (loaded.lm.head.weight is loaded.lm.embedding.weight) == tied
        assert ("lm.head.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)
        assert torch.equal(loaded(tokens(2, 5)).logits, lm(tokens(2, 5))[0])

    def test_conversion_shares_the_weights(self, lm):
        model = to_huggingface(lm.train())
        assert model.to_latchwork() is lm
        assert model.training
        assert {id(each) for each in model.parameters()} == {id(each) for each in lm.parameters()}

    def test_a_folder_refers_to_our_code_and_carries_no_copy(self, model, tmp_path):
        """Which is what transformers would make of classes it loaded with trust_remote_code."""
        type(model).register_for_auto_class("AutoModelForCausalLM")
        type(model.config).register_for_auto_class("AutoConfig")
        model.save_pretrained(tmp_path)
        assert [each.name for each in tmp_path.glob("*.py")] == ["modeling_minmaxrnc.py"]

    def test_weights_in_8_bits_are_refused(self, lm):
        with pytest.raises(TypeError, match=r"model must have floating-point weights; got torch\.int8"):
            to_huggingface(quantize_int8(lm))

    @kinds
    def test_a_new_model_is_initialised_as_ours(self, kind):
        config = MinMaxRNCHFConfig.from_latchwork(14, make_model(**kind).config)
        torch.manual_seed(3)
        theirs = AutoModelForCausalLM.from_config(config)
        torch.manual_seed(3)
        ours = MinMaxRNC_LM(14, config.to_latchwork())
        assert all(map(torch.equal, theirs.lm.state_dict().values(), ours.state_dict().values()))

    @kinds
    def test_what_a_checkpoint_lacks_is_initialised_as_ours(self, kind, tmp_path):
        lm = make_model(**kind)
        to_huggingface(lm).save_pretrained(tmp_path)
        tensors = load_file(tmp_path / "model.safetensors")
        lacking = [name for name in tensors if "layers.1." in name]
        save_file({name: tensors[name] for name in tensors if name not in lacking}, tmp_path / "model.safetensors")
        torch.manual_seed(3)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
        torch.manual_seed(3)
        new = MinMaxRNC_LM(14, lm.config).state_dict()
        assert len(lacking) > 10
        for name in tensors:
            expected = new[name.removeprefix("lm.")] if name in lacking else tensors[name]
            assert torch.equal(loaded[name], expected), name

    def test_bfloat16(self, lm, tmp_path):
        to_huggingface(lm).save_pretrained(tmp_path)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {each.dtype for each in loaded.state_dict().values()} == {torch.bfloat16}
        ids = tokens(2, 7)
        output = loaded(ids, labels=ids)
        expected, _ = lm.to(torch.bfloat16)(ids)
        assert torch.equal(output.logits, expected)
        assert output.loss.isfinite()
        assert output.state.x.dtype == torch.bfloat16
        new = loaded.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False)
        assert torch.equal(new[:, 7:], lm.generate(ids, 5, temperature=0))

    @pytest.mark.parametrize("tie_weights", [True, False])
    @pytest.mark.parametrize("mean_resizing", [True, False])
    def test_the_vocabulary_may_be_resized(self, tie_weights, mean_resizing, tmp_path):
        lm = make_model(tie_weights=tie_weights)
        model = to_huggingface(lm)
        before = model(tokens(2, 5)).logits
        model.resize_token_embeddings(20, mean_resizing=mean_resizing)
        ids = torch.cat((tokens(2, 5), torch.tensor([[19], [14]])), 1)
        logits = model(ids, labels=ids).logits
        torch.testing.assert_close(logits[:, :5, :14], before)
        assert logits.shape == (2, 6, 20)
        assert (model.config.vocab_size, lm.vocab_size) == (20, 20)
        assert (lm.head.weight is lm.embedding.weight) == tie_weights
        if not mean_resizing:
            assert 0.1 < lm.embedding.weight[14:].std() < 0.3  # ours is sqrt(2 / (5 * 12)) = 0.18
        model.save_pretrained(tmp_path)
        assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, logits)

    @pytest.mark.parametrize("dropout", [0.0, 0.3])
    def test_gradient_checkpointing_changes_no_gradient(self, dropout):
        ids, mask = pad([tokens(6), tokens(3)], [[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]], filling=0)
        results = []
        for enable in (False, True):
            model = to_huggingface(make_model(ffn_dropout=dropout).train())
            if enable:
                model.gradient_checkpointing_enable()
            assert model.lm.backbone.gradient_checkpointing == model.is_gradient_checkpointing == enable
            torch.manual_seed(3)
            loss = model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
            loss.backward()
            results.append([loss, *(each.grad for each in model.parameters())])
        assert all(map(torch.equal, *results))
        model.gradient_checkpointing_disable()
        assert not model.lm.backbone.gradient_checkpointing


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_trainer_trains_it(tmp_path):
    pytest.importorskip("accelerate")
    model = MinMaxRNCForCausalLM(MinMaxRNCHFConfig(vocab_size=14, d_model=12, n_layers=2, d_state=10))
    rows = [{"input_ids": row, "labels": row} for row in torch.arange(12).repeat(16, 1) % 4 + 3]
    arguments = TrainingArguments(
        str(tmp_path), max_steps=30, learning_rate=0.02, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 4
    assert trainer.predict(rows).predictions.shape == (16, 12, 14)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_noise_on_the_embedding_of_neftune_reaches_the_training_and_leaves_with_it(tmp_path):
    pytest.importorskip("accelerate")
    rows = [{"input_ids": row, "labels": row} for row in torch.arange(40).repeat(8, 1) % 4 + 3]  # enough for pairs

    def train(alpha, backend):
        torch.manual_seed(1)
        config = MinMaxRNCHFConfig(vocab_size=14, d_model=12, n_layers=2, d_state=10, ffn_dropout=0.0)
        model = MinMaxRNCForCausalLM(config)
        arguments = {"max_steps": 4, "learning_rate": 0.02, "report_to": [], "use_cpu": True, "disable_tqdm": True}
        trainer = Trainer(
            model, TrainingArguments(str(tmp_path), neftune_noise_alpha=alpha, **arguments), train_dataset=rows
        )
        with use_backend(backend):
            loss = trainer.train().training_loss
        assert not model.get_input_embeddings()._forward_hooks
        return loss, torch.cat([each.detach().flatten() for each in model.parameters()])

    loss, weights = train(30.0, "auto")
    expected_loss, expected = train(30.0, "torch")
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    torch.testing.assert_close(weights, expected, rtol=1e-2, atol=1e-3)
    assert abs(loss - train(None, "auto")[0]) > 1e-3


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    spec = importlib.util.find_spec("latchwork.models.huggingface")
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[hf\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_a_transformers_that_would_not_reorder_the_state_is_refused(monkeypatch):
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "5.12.1")
    spec = importlib.util.find_spec("latchwork.models.huggingface")
    with pytest.raises(ImportError, match=r"transformers must be 5\.13 or later; got 5\.12\.1"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
