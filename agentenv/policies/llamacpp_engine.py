"""llama.cpp in this process, through `xllamacpp`: loading it, and single blocking calls of it.

What this module owns: the settings that make the engine ours (no listener anybody can reach, quiet unless something is
wrong, one window per slot), and the shape of its answers. It knows nothing of episodes; `llamacpp_sampling` makes
replies of its answers. Every method blocks: call them from worker threads.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentenv.errors import ConfigError, HarnessFault, PolicyServerFault, PromptTooLong, ended

if TYPE_CHECKING:
    import httpx

_ERRORS_ONLY = 1
"""llama.cpp's log level: errors go to stderr, the chatter about slots and timings does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSettings:
    """How to load the engine."""

    model_path: Path
    n_ctx: int
    """Window of one slot, in tokens."""
    n_parallel: int
    """Slots: replies sampled at once."""
    n_threads: int
    n_batch: int
    """Prompt tokens per step. A call that is abandoned while it reads its prompt ends after at most one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One finished call, in llama.cpp's native terms."""

    ids: list[int]
    """(C,) every sampled id, the end token included."""
    scored: list[tuple[int, float | None]]
    """(id, log-prob) of those tokens that ended on a whole character; shorter than ``ids`` where some did not."""
    candidates: list[dict[int, float]]
    """Per item of ``scored``: id to log-prob of the most likely tokens there, as many as were asked for."""
    stop: str
    """``eos``, ``limit``, ``word`` or ``none``."""
    window_full: bool
    n_prompt: int
    """Prompt tokens the engine says it used."""
    n_cached: int
    settings: dict[str, Any]
    """Sampling settings the engine says it used."""


class _Server(Protocol):
    @property
    def listening_address(self) -> str: ...

    def handle_completions(self, prompt: dict[str, Any], callback: Callable[[Any], bool] | None = None) -> Any: ...

    def handle_metrics(self) -> str: ...


class LlamaEngine:
    """One loaded model with its slots. Closed by whoever loaded it."""

    def __init__(self, server: _Server, *, version: str, control_folder: Path) -> None:
        self._server: _Server | None = server
        self._control_folder = control_folder
        self._control: httpx.Client | None = None
        self._closing = threading.Lock()
        self.version = version

    @classmethod
    def load(cls, settings: LlamaSettings) -> LlamaEngine:
        """Load the model; takes about a second for 100 MB.

        Raises:
            ConfigError: ``xllamacpp`` is not installed, or the file is no model that it can load.
        """
        try:
            import xllamacpp
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError):
                raise ConfigError("The policy llamacpp needs the package xllamacpp: pip install xllamacpp.") from error
            raise ConfigError(
                f"The package xllamacpp is installed and cannot be loaded: {ended(error)} Install the system library "
                "it misses (Debian, Ubuntu: apt-get install libgomp1)."
            ) from error
        _check_gguf(settings.model_path)
        binding: Any = xllamacpp  # a compiled module without types
        folder = Path(tempfile.mkdtemp(prefix="agentenv-llama-"))  # mode 0700: nobody else can reach the listener
        try:
            server = binding.Server(_params(binding, settings, folder / "control.sock"))
        except RuntimeError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ConfigError(
                f"llama.cpp cannot load {settings.model_path} with a window of {settings.n_ctx} tokens times "
                f"{settings.n_parallel} slots; what it said is on stderr. Is it a text model in GGUF format, is there "
                "enough memory, and does this version of xllamacpp know its architecture?"
            ) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(server, version=str(binding.__version__), control_folder=folder)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call one of the control routes (``/props``, ``/v1/models``, ``/tokenize``); only before `seal`.

        Raises:
            PolicyServerFault: It refuses, or answers nonsense.
        """
        import httpx

        if self._control is None:
            transport = httpx.HTTPTransport(uds=str(self._control_folder / "control.sock"))
            self._control = httpx.Client(transport=transport, base_url="http://llama", timeout=30.0)
        try:
            reply = self._control.get(path) if body is None else self._control.post(path, json=body)
            decoded = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise PolicyServerFault(f"llama.cpp does not answer {path}: {error!r}.") from error
        if reply.status_code != 200 or not isinstance(decoded, dict):
            raise PolicyServerFault(f"llama.cpp refused {path}: {reply.status_code} {reply.text[:200]!r}.")
        return decoded

    def seal(self) -> None:
        """Take the control socket away: from here on only this process can use the engine. May be called twice."""
        if self._control is not None:
            self._control.close()
            self._control = None
        shutil.rmtree(self._control_folder, ignore_errors=True)

    def complete(self, body: dict[str, Any]) -> Answer:
        """Run one call to its end. It cannot be interrupted: keep ``n_predict`` small.

        Raises:
            PromptTooLong: The prompt does not fit a slot.
            PolicyServerFault: The engine refused the call, or its answer has not the shape we know.
        """
        reply = self._ready().handle_completions({**body, "return_tokens": True, "verbose": True})
        if "error" in reply:
            raise _refusal(reply["error"])
        try:
            return _answer(reply["__verbose"])
        except (KeyError, TypeError, ValueError) as error:
            raise PolicyServerFault.permanent(
                f"llama.cpp (xllamacpp {self.version}) answered in a shape this client does not know: {error!r}."
            ) from error

    def read_prompt(self, body: dict[str, Any], abandoned: threading.Event) -> int:
        """Read a prompt into a slot without keeping anything sampled, until done or abandoned.

        Returns:
            Prompt tokens the slot already held.

        Raises:
            PromptTooLong, PolicyServerFault: As `complete`.
        """
        seen: list[dict[str, Any]] = []

        def step(chunk: dict[str, Any]) -> bool:
            seen[:] = [chunk]
            return abandoned.is_set()

        self._ready().handle_completions({**body, "n_predict": 0, "stream": True, "return_progress": True}, step)
        last = seen[0] if seen else {}
        if "error" in last:
            raise _refusal(last["error"])
        return int(last.get("timings", {}).get("cache_n", 0))

    def n_busy(self) -> int:
        """Count the calls that the engine itself is working on or has queued."""
        for line in self._ready().handle_metrics().splitlines():
            if line.startswith("llamacpp:requests_processing "):
                return int(float(line.split()[1]))
        raise PolicyServerFault("llama.cpp reports no requests_processing among its metrics.")

    def close(self) -> None:
        """Unload. May be called twice; calls that are under way must have ended."""
        with self._closing:
            self.seal()
            self._server = None  # the last reference: its destructor stops the engine and waits for its thread

    def _ready(self) -> _Server:
        if self._server is None:
            raise PolicyServerFault("The engine was closed while a call was being made.")
        return self._server


def _params(binding: Any, settings: LlamaSettings, socket: Path) -> Any:
    params = binding.CommonParams()
    params.model.path = str(settings.model_path)
    params.n_ctx = settings.n_ctx * settings.n_parallel
    params.n_parallel = settings.n_parallel
    params.kv_unified = False  # each slot has its own window
    params.n_batch = params.n_ubatch = settings.n_batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.n_threads
    params.warmup = False
    params.ctx_shift = False  # a full window ends the reply; nothing is silently dropped from its front
    params.cache_ram_mib = 0  # slots are chosen here, so a second cache would only hold memory
    params.verbosity = _ERRORS_ONLY
    params.hostnames = [str(socket)]
    params.ui = False
    params.endpoint_metrics = True
    return params


def _check_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ConfigError(f"The model file {path} cannot be read: {ended(error.strerror or error)}") from error
    if magic != b"GGUF":
        raise ConfigError(f"{path} is no GGUF file: it begins with {magic!r}, expected b'GGUF'.")


def _refusal(error: Any) -> Exception:
    said = json.dumps(error)[:300] if not isinstance(error, dict) else str(error.get("message", error))[:300]
    if isinstance(error, dict) and error.get("type") == "exceed_context_size_error":
        return PromptTooLong(f"llama.cpp refused the prompt for its length: {ended(said)}")
    if isinstance(error, dict) and error.get("type") == "invalid_request_error":
        return PolicyServerFault.permanent(f"llama.cpp refused the call: {ended(said)}")
    return PolicyServerFault(f"llama.cpp failed: {ended(said)}")


def _answer(native: dict[str, Any]) -> Answer:
    entries = native.get("completion_probabilities", [])
    ids = [int(token) for token in native["tokens"]]
    if len(ids) != native["tokens_predicted"]:
        raise ValueError(f"{native['tokens_predicted']} tokens predicted, {len(ids)} ids given")
    return Answer(
        ids=ids,
        scored=[(int(entry["id"]), _number(entry.get("logprob"))) for entry in entries],
        candidates=[_candidates(entry) for entry in entries],
        stop=str(native["stop_type"]),
        window_full=bool(native["truncated"]),
        n_prompt=int(native["tokens_evaluated"]),
        n_cached=int(native["timings"]["cache_n"]),
        settings=dict(native["generation_settings"]),
    )


def _candidates(entry: dict[str, Any]) -> dict[int, float]:
    given = [(each["id"], _number(each.get("logprob"))) for each in entry.get("top_logprobs", ())]
    return {int(token): value for token, value in given if value is not None}


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError):
        return float(value)
    return None


def file_sha256(path: Path) -> str:
    """Hash a file in pieces.

    Raises:
        HarnessFault: It cannot be read to its end.
    """
    import hashlib

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise HarnessFault(f"{path} cannot be read: {ended(error.strerror or error)}") from error
