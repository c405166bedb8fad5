"""One line of verl's configuration switches, in its own process and in a worker of Ray; and what is said when something is wrong."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

verl = pytest.importorskip("verl")
import hydra  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402

import lockstep  # noqa: E402
import lockstep.verl  # noqa: E402


@pytest.fixture
def installed(monkeypatch):
    """An environment in which verl finds the plug-in by its entry point alone."""
    found = [point.value for point in entry_points(group="verl.plugins")]
    assert "lockstep.verl" in found, "the wheel of lockstep-rl is not installed for this interpreter: pip install it, then run this test"
    for name in ("VERL_USE_EXTERNAL_MODULES", "VERL_USE_EXTERNAL_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


def composed(*overrides):
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer", ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", *overrides])


@pytest.mark.parametrize(
    ("mode", "name"), [("lockstep", "vanilla"), ("lockstep:gspo", "gspo"), ("lockstep:dapo", "dapo"), ("lockstep:file", "file")]
)
def test_one_line_switches(mode, name):
    stock, switched = composed(), composed(f"actor_rollout_ref.actor.policy_loss.loss_mode={mode}")
    actor = omega_conf_to_dataclass(switched.actor_rollout_ref.actor)
    loss = core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)
    assert loss.func is lockstep.verl.policy_loss and loss.args == (name,)
    assert switched != stock
    stock.actor_rollout_ref.actor.policy_loss.loss_mode = mode
    assert switched == stock, "another line differs"


@pytest.mark.parametrize(("key", "name"), [("lockstep", "grpo"), ("lockstep:rloo", "rloo"), ("lockstep:max_rl", "max_rl")])
def test_another_line_switches_advantages(key, name):
    estimate = core_algos.get_adv_estimator_fn(composed(f"algorithm.adv_estimator={key}").algorithm.adv_estimator)
    assert estimate.func is lockstep.verl.estimate and estimate.args == (name,)


def test_the_page_of_examples_says_what_verl_takes():
    page = (Path(__file__).parents[2] / "examples" / "verl_switch.md").read_text(encoding="utf-8")
    lines = [line.split() for line in page.splitlines() if line.startswith("python -m verl.trainer.main_ppo")]
    switched = [composed(*(word for word in line if "=" in word)) for line in lines]
    modes = {config.actor_rollout_ref.actor.policy_loss.loss_mode for config in switched}
    assert modes == {"vanilla", "lockstep", "lockstep:file"}
    assert {config.algorithm.adv_estimator for config in switched} == {"gae", "lockstep"}
    named = {word.strip("`").rpartition("=")[2] for word in page.replace(",", " ").split() if "`lockstep:" in word or "=lockstep:" in word}
    assert len(named) >= 7 and named <= {*core_algos.POLICY_LOSS_REGISTRY, *core_algos.ADV_ESTIMATOR_REGISTRY}


def test_a_worker_of_ray_that_imports_verl_alone_has_it(installed):
    ray = pytest.importorskip("ray")

    def looked_up():
        import sys

        from verl.trainer.ppo import core_algos

        names = [key for key in core_algos.POLICY_LOSS_REGISTRY if key.startswith("lockstep")]
        of = core_algos.get_policy_loss_fn("lockstep").func
        return sys.executable, f"{of.__module__}.{of.__name__}", names

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        executable, function, names = ray.get(ray.remote(looked_up).remote(), timeout=120)
    finally:
        ray.shutdown()
    assert executable == sys.executable and function == "lockstep.verl.policy_loss"
    assert {f"lockstep:{name}" for name in (*lockstep.names(), "file")} < set(names)


def test_check_says_what_is_registered(installed, tmp_path):
    said = subprocess.run([sys.executable, "-m", "lockstep.verl", "check"], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[:2] == [f"verl {verl.__version__}, tested with 0.9.1", "entry point verl.plugins: found"]
    assert lines[2].startswith("losses: lockstep, lockstep:vanilla,") and "lockstep:dapo" in lines[2]
    assert lines[3].startswith("estimators: lockstep, lockstep:grpo,") and lines[3].endswith(", lockstep:file")


def test_check_says_that_verl_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", None)
    (wrong,) = lockstep.verl.check()
    assert wrong.startswith("verl cannot be imported: ") and wrong.endswith("Install verl==0.9.1")


def test_check_says_that_a_version_is_not_tested(installed, monkeypatch):
    monkeypatch.setattr(verl, "__version__", "0.3.0")
    (wrong,) = lockstep.verl.check()
    assert wrong.startswith("verl 0.3.0 is not tested: install verl==0.9.1")


def test_check_says_that_there_is_no_entry_point(installed, monkeypatch):
    monkeypatch.setattr(lockstep.verl, "entry_points", lambda group: [])
    (wrong,) = lockstep.verl.check()
    assert wrong.startswith("no entry point: install the wheel")
    # The fallback needs none.
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "another,lockstep.verl")
    assert not lockstep.verl.check()


def test_check_says_why_nothing_was_loaded(installed, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(core_algos, "POLICY_LOSS_REGISTRY", {})
        patch.setenv("VERL_USE_EXTERNAL_PLUGINS", "another")
        (wrong,) = lockstep.verl.check()
    assert wrong == "verl did not load the plug-in: VERL_USE_EXTERNAL_PLUGINS is 'another'"
    monkeypatch.delattr(core_algos, "POLICY_LOSS_REGISTRY")
    (wrong,) = lockstep.verl.check()
    assert wrong.startswith("the plug-in failed to load: AttributeError: ") and "POLICY_LOSS_REGISTRY" in wrong


def test_it_registers_where_it_is_imported_before_verl(installed):
    code = "import lockstep.verl; from verl.trainer.ppo.core_algos import get_policy_loss_fn; get_policy_loss_fn('lockstep')"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
