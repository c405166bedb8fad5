"""The blocks of Python in the README and in the package's own run as printed."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", ["README.md", "python/README.md"])
def test_the_block_runs(path):
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), flags=re.S)
    names = {}
    exec(block, names)
    credit = names["credit"]
    coef = names["logp"].grad if "out" in names else names["loss"].coef
    assert len(credit.advantage) == 2 and coef.shape == names["logp"].shape and coef.any()


@pytest.mark.parametrize("module", ["lockstep", "lockstep.torch", "lockstep.logits", "lockstep.routing", "lockstep.tree"])
def test_the_examples_of_docstrings_run(module):
    failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted and not failed
