"""How policies write tool calls: one module per style, each a total parser and its inverse."""
