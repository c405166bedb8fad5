"""20 steps of TRL's real GRPOTrainer, stock and with Lockstep's maths: the same parameters."""

import os
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
    for name, more in (("loss", dict(recipe="trl_sapo")), ("advantages", dict(advantages="rloo"))):
        other, _ = trained(LockstepGRPOTrainer, tmp_path / name, more=more, num_iterations=2)
        assert (other - stock).abs().max() > 1e-4, name
    same, _ = trained(LockstepGRPOTrainer, tmp_path / "same", more=dict(advantages="trl_grpo"), num_iterations=2)
    assert (same - stock).abs().max() < 1e-5


def test_the_recipe_of_the_default_loss_is_that_loss(tmp_path):
    # A mean over tokens is not divided by TRL's number of tokens once more.
    stock, losses = trained(trl.GRPOTrainer, tmp_path / "stock", num_iterations=2, max_steps=6)
    same, ours = trained(LockstepGRPOTrainer, tmp_path / "same", more=dict(recipe="trl"), num_iterations=2, max_steps=6)
    assert (same - stock).abs().max() < 1e-5
    assert max(abs(a - b) for a, b in zip(ours, losses)) < 1e-6


class Faulty(LockstepGRPOTrainer):
    """Its second step has a log-probability that is no number."""

    def _policy_loss(self, seen, inputs):
        if self.state.global_step == 1:
            wrong = torch.zeros_like(seen["logp"])
            wrong[0, 0] = float("nan")
            seen["logp"] = seen["logp"] + wrong
        return super()._policy_loss(seen, inputs)


def test_a_step_with_a_bad_value_is_left_out_or_an_exception(tmp_path):
    with pytest.raises(lockstep.Error, match="logp"):
        made(Faulty, tmp_path / "raise", max_steps=3).train()
    after = []

    class Look(transformers.TrainerCallback):
        def on_step_end(self, *_, model, **__):
            after.append(torch.cat([p.detach().flatten() for p in model.parameters()]))

    with pytest.warns(RuntimeWarning, match="`logp`"):
        made(Faulty, tmp_path / "nan", dict(on_error="nan", callbacks=[Look()]), max_steps=4).train()
    assert torch.equal(after[0], after[1]) and not torch.equal(after[1], after[2]) and after[3].isfinite().all()


def test_what_cannot_be_is_refused_at_once(tmp_path, monkeypatch):
    with pytest.raises(lockstep.Error, match="entropy_coef"):
        trained(LockstepGRPOTrainer, tmp_path, more=dict(recipe="remix_full"))
    with pytest.raises(lockstep.Error, match="correction reads logp_old before the loss: TRL corrects by itself"):
        trained(LockstepGRPOTrainer, tmp_path, more=dict(recipe="trl_vllm"))
    with pytest.raises(lockstep.Error, match="'opo': they depend on the lengths"):
        trained(LockstepGRPOTrainer, tmp_path, more=dict(advantages="opo"))
    monkeypatch.setattr(lockstep.trl, "_METHODS", ("_compute_loss", "_a_method_that_is_gone"))
    with pytest.raises(lockstep.Error, match="_a_method_that_is_gone"):
        trained(LockstepGRPOTrainer, tmp_path)


class Turns(transformers.TrainerCallback):
    """Two trainers in one process, a step of one after a step of the other: what the machine does meanwhile meets both."""

    def __init__(self, own, other, slower=1.0):
        self.own, self.other, self.slower, self.seconds = own, other, slower, []

    def on_step_begin(self, *_, **__):
        assert self.own.acquire(timeout=60), "the other trainer stopped"
        self.start = time.process_time()

    def on_step_end(self, *_, **__):
        until = self.start + self.slower * (time.process_time() - self.start)
        while time.process_time() < until:
            pass
        self.seconds.append(time.process_time() - self.start)
        self.other.release()


def step_times(folder, slower=1.0, steps=18):
    """Seconds of each step, stock's and ours by turns; the first steps warm up.

    Seconds are those of this process on its processor: a step waits for nothing, and on a busy machine the wall clock measures the others."""
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
    return [turn.seconds[4:] for turn in turns]


def times_stock(folder, slower=1.0, rounds=5):
    """What a step of ours takes, in stock's step beside it: the median of all pairs. A core that others share runs at times half
    as fast, for seconds on end; both steps of a pair meet the same."""
    pairs = [pair for i in range(rounds) for pair in zip(*step_times(folder / str(i), slower))]
    times = statistics.median(own / stock for stock, own in pairs)
    print(f"step: stock {statistics.median(stock for stock, _ in pairs) * 1e3:.1f} ms, ours {times:.3f} times that")
    return times


def test_a_step_takes_as_long_as_stocks(tmp_path):
    # One thread: torch's others spin while they wait, and their time counts. One processor: two are not equally fast.
    threads, processors = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(processors)})
    try:
        # Beside other programs a measurement can be 5 % off; a trainer that is slower is slower every time.
        assert any(times_stock(tmp_path / f"ours{i}") <= 1.05 for i in range(3))
        # What the test would see of a trainer whose step takes a third longer.
        assert times_stock(tmp_path / "slow", 4 / 3, rounds=2) > 1.05
    finally:
        os.sched_setaffinity(0, processors)
        torch.set_num_threads(threads)


def test_the_example_learns():
    example = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "trl_addition.py"))
    before, after = example["main"](steps=100)
    assert after > before + 0.1
