"""Floor 3: environments over the machine: the asynchronous one, and its Gymnasium door."""
