"""The conformance suite of sandboxes: hostile commands, tried for real on any provider.

A check is an asynchronous function over the public contract (`agentenv.core.sandbox`) that knows no back-end; what is
expected of one comes from the table in `expectations` and from what the provider says of itself. Nothing here needs
pytest: ``agentenv doctor --conformance`` runs the checks, and so does the class of
`agentenv.testing.contracts.sandbox_conformance`.

Every bomb is bounded by itself (a number of forks, of bytes, of seconds), and what could reach beyond the sandbox is
tried on a stand-in first, so that a back-end that fails a check takes neither the machine nor the harness with it.
Sandboxes need ``sh`` and ``python3`` (3.9 or newer) inside.
"""
