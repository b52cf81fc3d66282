"""What runs as PID 1 inside every sandbox. Standard library only, no import from outside this folder.

A supervisor is a single-threaded event loop between one stream of request frames and the processes it starts. It
never forks Python: children are made by ``posix_spawn``, about half the price of a fork. The folder is handed to the
sandbox as a zip file (`agentenv.sandboxes.bundle`) and knows nothing of how it was launched, so bubblewrap,
namespaces and containers share it.

Modules that cost time to import (``json``, ``re``, ``typing``, ``dataclasses``, ``subprocess``) are avoided: the
start of a sandbox waits for them.
"""
