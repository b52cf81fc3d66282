"""Floor 2: records to rows of other formats."""
