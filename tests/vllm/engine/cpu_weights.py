"""Worker extension for vLLM on a CPU: linear weights stay live, and new ones are read from a file.

Use::

    PYTHONPATH=tests/vllm/engine vllm serve ... --worker-extension-cls cpu_weights.CpuWeightUpdates \
        --weight-transfer-config '{"backend": "file"}'

The worker imports this before it builds the model. Out of the box vLLM 0.32 keeps a prepacked copy of every linear
layer on a CPU, so that weights loaded in place are answered with 200 and then not used; here the layers compute from
the weights themselves. The ``file`` backend serves the update protocol (``/start_weight_update``,
``/update_weights``, ``/finish_weight_update``) without a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers import utils as layer_utils


def _compute_from_weights(layer: Any, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


layer_utils.dispatch_cpu_unquantized_gemm = _compute_from_weights


@dataclass
class FileInit(WeightTransferInitInfo):
    """Nothing to agree on beforehand."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):
    """Where the new weights lie: a safetensors file the worker can read."""

    path: str = ""


class FileWeightTransfer(WeightTransferEngine[FileInit, FileUpdate]):
    """Loads weights from a file into the running model."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Do nothing: there is no connection to make."""

    def start_weight_update(self) -> None:
        """Do nothing: loading is one step."""

    def receive_weights(self, update_info: FileUpdate) -> None:
        self.model.load_weights(load_file(update_info.path).items())

    def finish_weight_update(self) -> None:
        """Do nothing: the weights are in place."""

    def shutdown(self) -> None:
        """Do nothing: nothing is held."""

    @staticmethod
    def trainer_send_weights(*_: Any, **__: Any) -> None:
        raise NotImplementedError("the trainer's side writes a safetensors file")


WeightTransferEngineFactory.register_engine("file", FileWeightTransfer)


class CpuWeightUpdates:
    """Mixed into the worker; importing this module is what it is for."""
