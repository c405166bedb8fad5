"""TRL's own loss beside ours, with random settings on random batches.

The trainers are real; what their model would compute is drawn.
"""

import copy
from collections import defaultdict

import pytest
import torch
from draws import CASES, Draw, check_same, outcome

trl = pytest.importorskip("trl")
from test_trl import made  # noqa: E402

import lockstep.trl  # noqa: E402
from lockstep.trl import LockstepGRPOTrainer  # noqa: E402

MODEL = "_get_per_token_logps_and_entropies"


@pytest.fixture(scope="module")
def trainers(tmp_path_factory):
    classes = trl.GRPOTrainer, LockstepGRPOTrainer
    return [made(cls, tmp_path_factory.mktemp(cls.__name__)) for cls in classes]


def settings_of(draw, loss_type):
    found = dict(
        loss_type=loss_type,
        epsilon=draw.choice([0.1, 0.2, 1.5]),
        epsilon_high=draw.choice([None, 0.28, 5.0]),
        beta=draw.choice([0.0, 0.0, 0.04]),
        use_bias_correction_kl=draw.random() < 0.5,
        entropy_coef=draw.choice([0.0, 0.0, 0.01]),
        off_policy_mask_threshold=draw.choice([None, None, 0.01]),
        use_vllm=draw.random() < 0.6,
        vllm_importance_sampling_correction=draw.random() < 0.7,
        sapo_temperature_neg=draw.choice([1.05, 2.0]),
        vespo_k_pos=draw.choice([1.0, 2.0]),
        vespo_lambda_neg=draw.choice([2.0, 3.0]),
        importance_sampling_level="token",
        top_entropy_quantile=1.0,
        delta=None,
    )
    if loss_type != "vespo":
        found["importance_sampling_level"] = draw.choice(["token", "sequence"])
        # Which we refuse with VESPO.
        found["top_entropy_quantile"] = draw.choice([1.0, 1.0, 0.5])
    if loss_type not in ("vespo", "sapo", "cispo"):
        found["delta"] = draw.choice([None, None, 1.05, 1.5, 4.0])
    return found


def configure(trainer, args, accumulated):
    """Sets what TRL's constructor makes of its arguments, without loading vLLM or a reference."""
    trainer.args = args
    for name in vars(args).keys() & vars(trainer).keys():
        setattr(trainer, name, getattr(args, name))
    trainer.epsilon_low = args.epsilon
    trainer.epsilon_high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    trainer._entropy_bonus_enabled = args.entropy_coef != 0
    trainer.current_gradient_accumulation_steps = accumulated
    trainer._metrics = {"train": defaultdict(list), "eval": defaultdict(list)}
    if isinstance(trainer, LockstepGRPOTrainer):
        trainer.lockstep_recipe = lockstep.recipe(lockstep.trl.settings(args, trainer.max_completion_length))


def batch_of(draw, logp, args):
    """A micro-batch as TRL's loss takes it."""
    rows, width = logp.shape
    old = draw.near(logp, draw.choice([0.1, 0.5, 2.0]))
    mask = draw.mask(rows, width).long()
    by_token = args.loss_type != "vespo" and draw.random() < 0.2 and args.off_policy_mask_threshold is None
    found = dict(
        prompt_ids=torch.zeros(rows, 1, dtype=torch.long),
        prompt_mask=torch.ones(rows, 1, dtype=torch.long),
        completion_ids=torch.zeros(rows, width, dtype=torch.long),
        completion_mask=mask,
        advantages=draw.normal_of(rows, width) if by_token else draw.row_advantages(rows),
        num_items_in_batch=torch.tensor(draw.choice([mask.sum().item(), 50])),
        ref_per_token_logps=draw.near(logp, 0.5),
    )
    if draw.random() < 0.3:
        found["tool_mask"] = draw.mask(rows, width).long()
    live = mask * found.get("tool_mask", 1)
    corrected = args.use_vllm and args.vllm_importance_sampling_correction
    if corrected or draw.random() < 0.6:
        found["old_per_token_logps"] = old
    if args.use_vllm:
        sampler = draw.near(old, 0.3)
        if draw.random() < 0.3:
            # What vLLM could not score.
            sampler[0, 0] = float("nan")
        found["sampling_per_token_logps"] = sampler
        if corrected:
            apart = torch.nan_to_num((old - sampler) * live, nan=0.0)
            by_sequence = args.loss_type != "vespo" and draw.random() < 0.5
            ratio = (apart.sum(dim=-1, keepdim=True) if by_sequence else apart).exp()
            ratio = ratio.clamp(max=3.0) if draw.random() < 0.5 else ratio.masked_fill(ratio > 1.2, 0.0)
            found["importance_sampling_ratio"] = ratio
    return found


@pytest.mark.parametrize("loss_type", lockstep.trl._PRESETS)
def test_losses_are_trls(loss_type, trainers, monkeypatch):
    for seed in range(CASES):
        draw = Draw(seed)
        settings = settings_of(draw, loss_type)
        training, accumulated = draw.random() < 0.8, draw.choice([1, 2])
        args = copy.copy(trainers[0].args)
        vars(args).update(settings)
        logp = draw.logps(draw.randint(1, 5), draw.randint(1, 6))
        batch, entropy = batch_of(draw, logp, args), draw.uniform_of(*logp.shape)

        def run(trainer):
            configure(trainer, args, accumulated)
            trainer.model.train(training)

            def loss(own):
                # The entropy has a gradient too.
                drawn = own, (entropy + 0.1 * own).clamp(min=0.0), None
                monkeypatch.setattr(trl.GRPOTrainer, MODEL, lambda *_, **__: drawn)
                value = trainer._compute_loss(trainer.model, dict(batch))
                return value, trainer._metrics["train" if training else "eval"]

            return outcome(logp, loss)

        theirs, ours = map(run, trainers)
        case = dict(seed=seed, training=training, accumulated=accumulated, batch=sorted(batch), **settings)
        check_same(theirs, ours, case)
