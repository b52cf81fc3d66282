"""What sandboxes can reach, measured from inside and put on record, not assumed.

A measurement starts a program in the sandbox, which takes tens of milliseconds. What it finds is decided by the
provider and the list of hosts alone, so the first sandbox of each list is measured, and the others of the run are
recorded with what was found there.
"""

from __future__ import annotations

import asyncio

from agentenv.core.sandbox import Sandbox
from agentenv.errors import SandboxFault
from agentenv.records.axes import NetworkAccess
from agentenv.records.episode import NetworkReport


class NetworkMeasurements:
    """The measurements of one provider's sandboxes in one run, by list of hosts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], NetworkReport] = {}
        self._measuring = asyncio.Lock()

    async def of(self, sandbox: Sandbox, network: tuple[str, ...]) -> NetworkReport:
        """Say what a sandbox that was leased with this list of hosts can reach.

        Raises:
            SandboxFault: The task names hosts, and this kind of sandbox does not hold commands to exactly those;
                permanent.
        """
        report = self._known.get(network)
        if report is None:
            async with self._measuring:
                report = self._known.get(network) or await self._measure(sandbox, network)
        _check(report)
        return report

    async def _measure(self, sandbox: Sandbox, network: tuple[str, ...]) -> NetworkReport:
        try:
            state = await sandbox.network_state()
        except SandboxFault as fault:
            # Not kept: the next sandbox is measured again.
            return NetworkReport(asked=network, access=None, interfaces=(), detail=f"not measured: {fault}")
        report = NetworkReport(asked=network, access=state.access, interfaces=state.interfaces, detail=state.detail)
        self._known[network] = report
        return report


def _check(report: NetworkReport) -> None:
    if not report.asked or report.access is NetworkAccess.ALLOW_LIST:
        return
    asked = ", ".join(report.asked)
    measured = report.access or "unknown"
    fault = SandboxFault(
        f"the task lets its sandbox reach {asked} and nothing else; in this kind of sandbox the network is "
        f"{measured!s} ({report.detail}). Use one that keeps to a list of hosts: --sandbox bwrap, namespaces or docker"
    )
    fault.retryable = report.access is None
    raise fault
