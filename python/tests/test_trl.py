"""20 steps of TRL's real GRPOTrainer, stock and with Lockstep's maths: the same parameters."""

import runpy
import statistics
import threading
import time
from pathlib import Path

import pytest
import torch

trl = pytest.importorskip("trl")
import transformers  # noqa: E402
from datasets import Dataset  # noqa: E402
from tiny import model, tokenizer  # noqa: E402

import lockstep  # noqa: E402
import lockstep.trl  # noqa: E402
from lockstep.trl import LockstepGRPOTrainer  # noqa: E402


def reward(completions, **_):
    return [float(completion.count("3")) + 0.1 * len(set(completion)) for completion in completions]


def made(trainer, folder, more=None, **settings):
    arguments = dict(
        output_dir=folder / "run",
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        max_steps=20,
        learning_rate=1e-3,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        seed=1,
        disable_tqdm=True,
    )
    prompts = Dataset.from_dict({"prompt": [f"{i}+{j}=" for i in range(8) for j in range(8)]})
    return trainer(
        model=model(folder / "model"),
        args=trl.GRPOConfig(**{**arguments, **settings}),
        reward_funcs=reward,
        train_dataset=prompts,
        processing_class=tokenizer(),
        **(more or {}),
    )


def trained(*args, **settings):
    run = made(*args, **settings)
    before = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    run.train()
    after = torch.cat([p.detach().flatten() for p in run.model.parameters()])
    assert (after - before).abs().max() > 3e-3, "nothing was learnt"
    return after, [entry["loss"] for entry in run.state.log_history if "loss" in entry]


@pytest.mark.parametrize(
    "settings",
    [
        *(dict(loss_type=name) for name in ("grpo", "dapo", "bnpo", "dr_grpo", "luspo", "sapo", "cispo", "vespo")),
        dict(num_iterations=2),
        dict(num_iterations=2, importance_sampling_level="sequence", loss_type="grpo"),
        dict(num_iterations=2, delta=1.5),
        dict(beta=0.04, loss_type="grpo", num_iterations=2),
        dict(beta=0.04, use_bias_correction_kl=True, loss_type="grpo", num_iterations=2),
        dict(gradient_accumulation_steps=2, num_iterations=2),
        dict(entropy_coef=0.01, num_iterations=2),
        dict(entropy_coef=0.01, gradient_accumulation_steps=2, top_entropy_quantile=0.5),
        dict(off_policy_mask_threshold=0.01, num_iterations=3),
    ],
    ids=str,
)
def test_the_parameters_are_stocks(settings, tmp_path):
    theirs, their_losses = trained(trl.GRPOTrainer, tmp_path / "stock", **settings)
    ours, our_losses = trained(LockstepGRPOTrainer, tmp_path / "ours", **settings)
    assert (ours - theirs).abs().max() < 1e-5
    assert max(abs(a - b) for a, b in zip(our_losses, their_losses)) < 1e-6


def test_another_recipe_or_other_advantages_lead_elsewhere(tmp_path):
    stock, _ = trained(LockstepGRPOTrainer, tmp_path / "stock", num_iterations=2)
    for name, more in (("loss", dict(recipe="trl_cispo")), ("advantages", dict(advantages="rloo"))):
        other, _ = trained(LockstepGRPOTrainer, tmp_path / name, more=more, num_iterations=2)
        assert (other - stock).abs().max() > 1e-4, name
    same, _ = trained(LockstepGRPOTrainer, tmp_path / "same", more=dict(advantages="trl_grpo"), num_iterations=2)
    assert (same - stock).abs().max() < 1e-5


def test_what_cannot_be_is_refused_at_once(tmp_path, monkeypatch):
    with pytest.raises(lockstep.Error, match="entropy_coef"):
        trained(LockstepGRPOTrainer, tmp_path, more=dict(recipe="remix_full"))
    monkeypatch.setattr(lockstep.trl, "_METHODS", ("_compute_loss", "_a_method_that_is_gone"))
    with pytest.raises(lockstep.Error, match="_a_method_that_is_gone"):
        trained(LockstepGRPOTrainer, tmp_path)


class Turns(transformers.TrainerCallback):
    """Two trainers in one process, a step of one after a step of the other: what the machine does meanwhile meets both."""

    def __init__(self, own, other, slower=1.0):
        self.own, self.other, self.slower, self.seconds = own, other, slower, []

    def on_step_begin(self, *_, **__):
        assert self.own.acquire(timeout=60), "the other trainer stopped"
        self.start = time.perf_counter()

    def on_step_end(self, *_, **__):
        time.sleep((self.slower - 1.0) * (time.perf_counter() - self.start))
        self.seconds.append(time.perf_counter() - self.start)
        self.other.release()


def step_times(folder, slower=1.0, steps=24):
    """Median seconds of a step, stock's and ours by turns; the first steps warm up."""
    ours, theirs = threading.Semaphore(1), threading.Semaphore(0)
    turns = [Turns(theirs, ours), Turns(ours, theirs, slower)]

    trainers = [
        made(trainer, folder / trainer.__name__, dict(callbacks=[turn]), max_steps=steps)
        for trainer, turn in zip((trl.GRPOTrainer, LockstepGRPOTrainer), turns)
    ]
    runs = [threading.Thread(target=trainer.train) for trainer in trainers]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert [len(turn.seconds) for turn in turns] == [steps, steps]
    return [statistics.median(turn.seconds[4:]) for turn in turns]


def test_a_step_takes_as_long_as_stocks(tmp_path):
    times = [step_times(tmp_path / str(i)) for i in range(5)]
    ratio = statistics.median(own / stock for stock, own in times)
    print(f"step: stock {statistics.median(t for t, _ in times) * 1e3:.1f} ms, ours {ratio:.3f} times that")
    assert ratio <= 1.05
    # What the test would say of a trainer whose step takes a fifth longer.
    stock, slow = step_times(tmp_path / "slow", 1.2)
    assert slow / stock > 1.05


def test_the_example_learns():
    example = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "trl_addition.py"))
    before, after = example["main"](steps=120)
    assert after > before + 0.1
