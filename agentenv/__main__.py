"""``python -m agentenv``."""

from agentenv.cli.main import main

if __name__ == "__main__":
    main()
