"""A tiny language model learns to add two digits by RL: TRL's trainer, Lockstep's maths, on a CPU, without a network.

    pip install trl lockstep-rl
    python examples/trl_addition.py            # under two minutes on two cores

Model and tokenizer are built from scratch. A short supervised phase shows the model what an answer looks like;
`LockstepGRPOTrainer` does the rest, with a recipe's advantages and the loss that `GRPOConfig` selects. Accuracy is
over all 100 problems, with several samples of each at temperature 1.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2Config, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig

from lockstep.trl import LockstepGRPOTrainer

WORDS = [*"0123456789+=", "<pad>", "<eos>"]
PROBLEMS = [(f"{a}+{b}=", f"{a + b:02}") for a in range(10) for b in range(10)]


def tokenizer() -> PreTrainedTokenizerFast:
    """A character-level tokenizer."""
    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    own.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=own, padding_side="left", pad_token="<pad>", eos_token="<eos>")


def model() -> Qwen2ForCausalLM:
    """A model with two layers of width 64."""
    size = dict(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)
    ends = dict(pad_token_id=WORDS.index("<pad>"), eos_token_id=WORDS.index("<eos>"), bos_token_id=None)
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(WORDS), max_position_embeddings=16, **size, **ends))


def ids(text: str) -> list[int]:
    return [WORDS.index(character) for character in text]


def warm_start(own: Qwen2ForCausalLM, steps: int) -> None:
    """Runs supervised steps over all problems, few enough that most answers are still wrong."""
    problems = torch.tensor([ids(prompt + answer) for prompt, answer in PROBLEMS])
    labels = problems.clone()
    labels[:, :4] = -100
    optimizer = torch.optim.AdamW(own.parameters(), lr=2e-3)
    for _ in range(steps):
        own(input_ids=problems, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def accuracy(own: Qwen2ForCausalLM, samples: int = 4) -> float:
    """Accuracy over all problems, with `samples` answers to each at temperature 1."""
    own.eval()
    text = torch.tensor([ids(prompt) for prompt, _ in PROBLEMS for _ in range(samples)])
    for _ in range(2):
        chances = own(input_ids=text).logits[:, -1].softmax(dim=-1)
        text = torch.cat([text, torch.multinomial(chances, 1)], dim=1)
    answers = torch.tensor([ids(answer) for _, answer in PROBLEMS for _ in range(samples)])
    return (text[:, -2:] == answers).all(dim=1).float().mean().item()


def right(completions: list[str], answer: list[str], **_: object) -> list[float]:
    """The reward: 1 for the correct sum, otherwise 0."""
    return [float(completion.replace(" ", "") == true) for completion, true in zip(completions, answer)]


class Progress(TrainerCallback):
    """Prints one line where TRL would print everything it logs."""

    def on_log(self, args, state, control, logs=None, **_):
        if "reward" in logs:
            print(f"step {state.global_step}: mean reward {float(logs['reward']):.3f}")


def main(steps: int = 600, warm: int = 40, seed: int = 1, recipe: str | None = None, advantages: str | None = "dapo") -> tuple[float, float]:
    """Trains; prints and returns accuracy before and after RL."""
    torch.manual_seed(seed)
    own = model()
    warm_start(own, warm)
    before = accuracy(own)
    prompts = [{"prompt": prompt, "answer": answer} for prompt, answer in PROBLEMS]
    with tempfile.TemporaryDirectory() as folder:
        trainer = LockstepGRPOTrainer(
            model=own,
            args=GRPOConfig(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=160,
                num_generations=8,
                max_completion_length=2,
                learning_rate=5e-4,
                adam_beta2=0.99,
                loss_type="dapo",
                epsilon_high=0.28,
                logging_steps=max(steps // 6, 1),
                report_to="none",
                save_strategy="no",
                use_cpu=True,
                bf16=False,
                seed=seed,
                disable_tqdm=True,
            ),
            reward_funcs=right,
            train_dataset=Dataset.from_list(prompts),
            processing_class=tokenizer(),
            recipe=recipe,
            advantages=advantages,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(Progress())
        trainer.train()
    after = accuracy(own)
    print(f"accuracy: {before:.1%} before RL, {after:.1%} after {steps} steps")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="steps of RL (%(default)s)")
    parser.add_argument("--warm", type=int, default=40, help="supervised steps before them (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipe", help="recipe of the loss; without it what GRPOConfig says")
    parser.add_argument("--advantages", default="dapo", help="recipe of the advantages (%(default)s)")
    main(**vars(parser.parse_args()))
