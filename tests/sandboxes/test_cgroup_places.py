"""Where groups can be made, by what the kernel says: as it was seen on machines of several kinds, and nonsense."""

from __future__ import annotations

import pytest
from agentenv.core.sandbox import SandboxLimits
from agentenv.sandboxes.cgroups import candidates
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20
LIMITS = SandboxLimits(total_memory_bytes=512 * MIB, memory_bytes=400 * MIB, processes=100)

OF_A_DESKTOP = (
    "0::/user.slice/user-1000.slice/session-2.scope\n",
    "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
)
OF_AN_OLDER_SERVER = (
    (
        "12:pids:/user.slice/user-0.slice/session-1.scope\n11:rdma:/\n10:net_cls,net_prio:/\n9:perf_event:/\n"
        "8:memory:/user.slice/user-0.slice/session-1.scope\n7:hugetlb:/\n6:blkio:/user.slice\n5:cpu,cpuacct:/user.slice\n"
        "4:cpuset:/\n3:freezer:/\n2:devices:/user.slice\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n"
        "0::/user.slice/user-0.slice/session-1.scope\n"
    ),
    (
        "32 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        "33 24 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,name=systemd\n"
        "36 24 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct\n"
        "40 24 0:35 / /sys/fs/cgroup/memory rw,nosuid shared:19 - cgroup cgroup rw,memory\n"
        "44 24 0:39 / /sys/fs/cgroup/pids rw,nosuid shared:23 - cgroup cgroup rw,pids\n"
    ),
)
OF_A_CONTAINER = (
    "11:pids:/docker/0123abcd\n5:memory:/docker/0123abcd\n1:name=systemd:/docker/0123abcd\n0::/docker/0123abcd\n",
    (
        "700 699 0:31 /docker/0123abcd /sys/fs/cgroup/memory ro,nosuid master:19 - cgroup cgroup rw,memory\n"
        "701 699 0:35 /docker/0123abcd /sys/fs/cgroup/pids ro,nosuid master:23 - cgroup cgroup rw,pids\n"
    ),
)
OF_ONE_HIERARCHY = (
    "2:memory,pids:/ours\n1:cpu,cpuacct:/\n",
    (
        "40 24 0:35 / /sys/fs/cgroup/limits rw - cgroup cgroup rw,pids,memory\n"
        "41 24 0:36 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    ),
)
WITHOUT_PIDS = ("4:memory:/ours\n1:name=pids:/ours\n", (
    "40 24 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 24 0:36 / /sys/fs/cgroup/named rw - cgroup cgroup rw,name=pids\n"
))  # fmt: skip
OF_SEVERAL_MOUNTS = (
    "4:memory:/a b\n3:pids:/a b\n",
    (
        "40 24 0:35 / /a\\040place/memory rw shared:1 master:2 - cgroup cgroup rw,memory\n"
        "41 24 0:36 / /a\\040place/pids rw - cgroup cgroup rw,pids\n"
        "90 24 0:35 /elsewhere /other/memory rw - cgroup cgroup rw,memory\n"
        "91 24 0:36 /elsewhere /other/pids rw - cgroup cgroup rw,pids\n"
    ),
)


@pytest.mark.parametrize(
    ("said", "parents"),
    [
        (OF_A_DESKTOP, None),
        (
            OF_AN_OLDER_SERVER,
            [f"/sys/fs/cgroup/{each}/user.slice/user-0.slice/session-1.scope" for each in ("memory", "pids")],
        ),
        (OF_A_CONTAINER, ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"]),
        (OF_ONE_HIERARCHY, ["/sys/fs/cgroup/limits/ours"]),
        (WITHOUT_PIDS, None),
        (OF_SEVERAL_MOUNTS, ["/a place/memory/a b", "/a place/pids/a b"]),
        (("", ""), None),
        (("nonsense\n\n1:\n:::\n", "nonsense\n\n - cgroup\n1 2 3:4 - cgroup cgroup rw,memory\n"), None),
    ],
    ids=["desktop", "server", "container", "one hierarchy", "no pids", "several mounts", "nothing", "nonsense"],
)
def test_groups_of_version_1_are_found_as_the_kernel_says(said, parents):
    """Controllers may share a hierarchy, hierarchies have names, and be mounted in part, or twice."""
    found = [each for each in candidates(*said) if each.version == 1]
    assert [list(map(str, each.parents)) for each in found] == ([] if parents is None else [parents])
    assert all(len(each.roots) == len(each.parents) for each in found)


def test_one_hierarchy_with_both_controllers(tmp_path):
    """One folder for both, limited in both, and removed."""
    (tmp_path / "ours").mkdir()
    mounts = f"40 24 0:35 / {tmp_path} rw - cgroup cgroup rw,pids,memory\n"
    (found,) = candidates("2:memory,pids:/ours\n", mounts)
    group = found.make("one", LIMITS)
    assert group.folders == (tmp_path / "ours" / "one",)
    assert (group.folders[0] / "memory.limit_in_bytes").read_text() == str(512 * MIB)
    assert (group.folders[0] / "pids.max").read_text() == "108"
    assert len(group.joins) == 1


PARTS = st.sampled_from(
    ["0", "1:", ":", "memory", "pids", ",", "name=", "/", "/a", "..", " ", " - ", "cgroup", "cgroup2", "rw", "\n",
     "30 20 0:25 / /nowhere rw - cgroup cgroup rw,memory,pids\n", "3:memory,pids:/a\n", "0::/\n", "\\040", "\0", "ü"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PARTS, max_size=30).map("".join),
    st.binary(max_size=60).map(lambda read: read.decode(errors="surrogateescape")),
)


@given(TEXTS, TEXTS)
def test_reading_what_the_kernel_says_is_total(membership, mounts):
    """candidates(a, b) gives places, for all texts a and b."""
    for found in candidates(membership, mounts):
        assert found.parents
        assert len(set(found.parents)) == len(found.parents) == len(found.roots)
