"""Floor 2: functions made tools, toolboxes, suites."""
