"""All checks, in the order in which they are run and shown."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentenv.sandboxes.conformance import endings, files, honesty, other_harness, privileges, reach, resources, streams
from agentenv.sandboxes.conformance.check import Check

_MAKERS = (
    # What a command can use up.
    resources.fork_bomb,
    resources.fork_bomb_renewing,
    resources.mem_bomb_one,
    resources.mem_bomb_many,
    resources.oom_spares_supervisor,
    resources.tmp_fill,
    resources.dev_shm_fill,
    resources.workspace_fill_one_file,
    resources.workspace_fill_many_files,
    resources.inode_fill,
    resources.cpu_hogs,
    # What comes out of it.
    streams.output_flood_1gb,
    streams.huge_single_line,
    streams.binary_output,
    streams.stdin_waiter,
    streams.missing_command,
    streams.argv_too_long,
    streams.commands_100_at_once,
    # How it ends.
    endings.ignore_sigterm,
    endings.daemon_grandchild_timeout,
    endings.daemon_grandchild_normal_exit,
    endings.stop_and_continue,
    endings.kill_all,
    endings.kill_supervisor,
    endings.zombies,
    endings.exec_after_timeout,
    endings.state_between_commands,
    other_harness.clock_jump,
    other_harness.harness_killed,
    # What it can see and reach.
    reach.etc_shadow,
    reach.host_env_secret,
    reach.write_outside,
    reach.host_pids_visible,
    reach.net_egress,
    reach.unix_sockets,
    reach.inherited_descriptors,
    reach.ptrace_other,
    reach.proc_links_of_others,
    reach.sandboxes_apart,
    # What it may do.
    privileges.caps_nnp_seccomp,
    privileges.setuid_binary,
    privileges.mknod_devices,
    privileges.nested_userns,
    privileges.risky_syscalls,
    privileges.clock_change,
    privileges.tiocsti,
    privileges.mount_in_workspace,
    # What the harness can be made to read.
    files.symlink_escape_made_inside,
    files.symlink_race,
    files.hardlink_escape,
    files.fifo_and_special,
    files.sparse_1tb,
    files.deep_tree,
    files.odd_names,
    files.path_strings,
    files.workspace_closed,
    # What the provider says of itself.
    honesty.weaknesses_said,
)

CHECKS: Mapping[str, Check] = MappingProxyType({make.__name__: Check.of(make) for make in _MAKERS})
"""Name to check."""
