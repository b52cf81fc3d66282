"""Floor 2: messages to token ids and back."""
