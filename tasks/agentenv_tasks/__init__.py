"""First-party plug-ins, found through entry points like anyone else's."""
