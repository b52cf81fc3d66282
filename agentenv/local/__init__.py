"""What a machine needs to run a policy of its own: the small model, and a server around a local engine."""
