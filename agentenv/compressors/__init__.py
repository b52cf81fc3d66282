"""Floor 2: compressors. They plan edits over message ids; `agentenv.engine.compaction` checks and applies them."""
