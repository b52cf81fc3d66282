"""Contract suites: what every implementation of a contract is put through, the fakes included."""
