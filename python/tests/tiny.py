"""A model and a tokenizer made on the spot, for tests without a network."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHARACTERS = "0123456789+=? abc"


def tokenizer():
    words = [*CHARACTERS, "<pad>", "<eos>", "<unk>"]
    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    own.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    own.decoder = decoders.Fuse()
    special = dict(pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=own, padding_side="left", **special)


def model(folder):
    """Saved and loaded, so that a trainer can make a reference of it."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=len(CHARACTERS),
        eos_token_id=len(CHARACTERS) + 1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return Qwen2ForCausalLM.from_pretrained(folder)
