#!/usr/bin/env bash
# Lockstep beside verl 0.9.1 and torch.compile, one run on this machine, 2 threads each:
#
#   benches/peers/run.sh                      three shapes of 2048 tokens: 8 sequences (a micro-batch), 64, 512 (a batch)
#   benches/peers/run.sh SEQUENCES [LENGTH]
#
# A process for each shape: torch.compile makes slower code for one that it meets second.
#
# Installs torch and verl from PyPI (about 6 GB) into target/peers, once. Needs python3 with venv and a C++ compiler
# (torch.compile); everything else it brings. Not part of .ci/run: the download is larger than the rest together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

venv=${LOCKSTEP_PEERS:-${CARGO_TARGET_DIR:-$PWD/target}/peers}
if [ ! -e "$venv/complete" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check torch
    # verl without its pins, which would bring engines and trackers that its formulas do not use.
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps verl==0.9.1
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        packaging omegaconf hydra-core tensordict transformers ray codetiming datasets orjson
    touch "$venv/complete"
fi

cargo build --release --quiet -p lockstep-benches --example peers
lockstep=${CARGO_TARGET_DIR:-$PWD/target}/release/examples/peers
compare() { "$venv/bin/python" benches/peers/compare.py "$lockstep" "$@"; }
if [ $# -gt 0 ]; then
    compare "$@"
else
    for sequences in 8 64 512; do
        compare "$sequences" 2048
        echo
    done
fi
