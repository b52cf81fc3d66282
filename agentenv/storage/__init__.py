"""Floor 2: the journal, blobs and the run folder."""
