"""One rank of a group that trains with verl's FSDP engine: `python verl_engine.py FOLDER RANK WORLD`.

For every run in `FOLDER/runs.json`, a policy loss and settings of an actor, it starts from the same parameters and makes 3 updates;
rank 0 writes the parameters and losses of all to `FOLDER/trained.pt`.
"""

import json
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from tensordict import TensorDict
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils
from verl.workers.config import ActorConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, PolicyLossConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss

ROWS, UPDATES = 8, 3


def engine(folder):
    model = HFModelConfig(
        path=str(folder / "model"),
        load_tokenizer=False,
        use_remove_padding=False,
        enable_gradient_checkpointing=False,
        override_config={"attn_implementation": "eager"},
    )
    precision = dict(param_dtype="fp32", reduce_dtype="fp32", buffer_dtype="fp32")
    own = EngineRegistry.new(
        "language_model",
        "fsdp2",
        model_config=model,
        engine_config=FSDPEngineConfig(strategy="fsdp2", mixed_precision=precision, use_torch_compile=False, reshard_after_forward=False),
        # A gradient that is 0 but for its rounding must not become a whole step.
        optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=100, override_optimizer_config={"eps": 1e-6}),
        checkpoint_config=CheckpointConfig(),
    )
    own.initialize()
    return own


def batch(update, rank, world):
    """Rows of one update, of which every rank has its share; old log-probabilities are far enough away for clips to matter."""
    generator = torch.Generator().manual_seed(update)

    def ragged(rows):
        return torch.nested.as_nested_tensor(rows[rank::world], layout=torch.jagged)

    def made(sizes, of):
        return [of(n) for n in sizes]

    prompts = torch.randint(2, 5, (ROWS,), generator=generator).tolist()
    responses = torch.randint(3, 9, (ROWS,), generator=generator).tolist()
    tokens = partial(torch.randint, 0, 17, generator=generator)
    asked, answered = made(prompts, lambda n: tokens((n,))), made(responses, lambda n: tokens((n,)))
    whole = [torch.cat(pair) for pair in zip(asked, answered)]

    def normal(mean, scale):
        return made(responses, lambda n: mean + scale * torch.randn(n, generator=generator))

    rewards = torch.randn(ROWS, generator=generator)
    # A turn of the environment inside a response.
    mask = made(responses, lambda n: (torch.arange(n) != 1).long())
    data = TensorDict(
        dict(
            input_ids=ragged(whole),
            position_ids=ragged([torch.arange(len(row)) for row in whole]),
            prompts=ragged(asked),
            responses=ragged(answered),
            response_mask=ragged(mask),
            loss_mask=ragged(mask),
            old_log_probs=ragged([row.clamp(max=0) for row in normal(-3.4, 0.4)]),
            ref_log_prob=ragged([row.clamp(max=0) for row in normal(-3.4, 0.2)]),
            advantages=ragged([reward.expand(n).contiguous() for reward, n in zip(rewards, responses)]),
            rollout_is_weights=ragged([row.abs() for row in normal(1.0, 0.2)]),
        ),
        batch_size=ROWS // world,
    )
    tensordict_utils.assign_non_tensor(
        data,
        temperature=1.0,
        use_remove_padding=False,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=ROWS // world // 2,
        global_batch_size=ROWS,
        calculate_entropy=True,
    )
    return data


def trained(own, start, rank, world, policy, settings):
    with torch.no_grad():
        for parameter, value in zip(own.module.parameters(), start):
            parameter.to_local().copy_(value)
    own.optimizer.state.clear()
    config = ActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, policy_loss=PolicyLossConfig(**policy), **settings)
    logged = []
    for update in range(UPDATES):
        with own.train_mode():
            out = own.train_batch(batch(update, rank, world), loss_function=partial(ppo_loss, config))
        logged.append(out["loss"])
    parameters = torch.cat([parameter.full_tensor().detach().flatten() for parameter in own.module.parameters()])
    return parameters, logged


def main(folder, rank, world):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    own = engine(folder)
    start = [parameter.to_local().detach().clone() for parameter in own.module.parameters()]
    before = torch.cat([parameter.full_tensor().detach().flatten() for parameter in own.module.parameters()])
    runs = json.loads((folder / "runs.json").read_text())
    out = {key: trained(own, start, rank, world, *run) for key, run in runs.items()}
    if rank == 0:
        torch.save({"before": before, "runs": out}, folder / "trained.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
