"""Entry of the zip file: serve on stdin and stdout until they are closed."""

from agentenv.sandboxes.supervisor.serving import main

main()
