"""Checks of what a command may do beyond what programs need: privileges, devices, namespaces, system calls, mounts."""

# Temporary folders named here are the sandbox's own.
# What runs inside is kept to the modules that start quickest.
# ruff: noqa: S108, PTH107, PTH110, PTH123

from __future__ import annotations

from agentenv.sandboxes.conformance.check import Bench, Finding, found
from agentenv.sandboxes.conformance.inside import ask, goes_on, said, shell


def own_status() -> dict[str, str]:
    """Give /proc/self/status."""
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


async def caps_nnp_seccomp(bench: Bench) -> Finding:
    """A command has no capability, cannot get one (NoNewPrivs 1), and a filter of system calls (Seccomp 2)."""
    async with bench.sandbox() as sandbox:
        status = await ask(sandbox, own_status)
    breaches = [
        f"{name} is {status[name]}" for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if status[name].strip("0")
    ]
    breaches += [
        f"{name} is {status.get(name)}"
        for name, good in (("NoNewPrivs", "1"), ("Seccomp", "2"))
        if status.get(name) != good
    ]
    return found(breaches, "CapEff 0, NoNewPrivs 1, Seccomp 2")


async def setuid_binary(bench: Bench) -> Finding:
    """A setuid program, the system's or one made in the workspace, gives nobody another user's rights."""
    async with bench.sandbox() as sandbox:
        own = said(await shell(sandbox, "id -u"))
        line = 'cp "$(command -v id)" {0}/my-id && chmod 6755 {0}/my-id && {0}/my-id -u; rm -f {0}/my-id'
        made = [said(await shell(sandbox, line.format(folder))) for folder in (".", '"${TMPDIR:-/tmp}"')]
        su = said(await shell(sandbox, "su -c 'id -u' root </dev/null 2>/dev/null"))
        status = await ask(sandbox, own_status)
    breaches = [f"a program with the bit set ran as user {user}" for user in made if user not in {own, ""}]
    if su == "0":
        breaches.append("su made it root")
    if status.get("NoNewPrivs") != "1":
        breaches.append("the kernel would give it another user's rights (NoNewPrivs is not set)")
    return found(breaches, f"user {own} before and after")


def use_devices(folders: list[str]) -> list[str]:
    """Try to make device files and to open those of the machine; say what was possible."""
    import os
    import stat

    possible: list[str] = []
    kinds = {"a disk": stat.S_IFBLK | 0o600, "memory": stat.S_IFCHR | 0o600}
    numbers = {"a disk": os.makedev(8, 0), "memory": os.makedev(1, 1)}
    for folder in folders:
        for what, kind in kinds.items():
            path = f"{folder}/device"
            try:
                os.mknod(path, kind, numbers[what])
                os.close(os.open(path, os.O_RDONLY))
                possible.append(f"a device file for {what} can be made and opened")
            except OSError:
                pass
            if os.path.exists(path):
                os.remove(path)
    for path in (
        "/dev/sda",
        "/dev/vda",
        "/dev/nvme0n1",
        "/dev/mem",
        "/dev/kmem",
        "/dev/port",
        "/dev/kvm",
        "/proc/kcore",
    ):
        try:
            os.close(os.open(path, os.O_RDONLY))
            possible.append(f"{path} can be read")
        except OSError:
            continue
    return possible


async def mknod_devices(bench: Bench) -> Finding:
    """No device file can be made that works; disks and memory of the machine cannot be opened."""
    async with bench.sandbox() as sandbox:
        possible = await ask(sandbox, use_devices, folders=[".", "/tmp", "/dev/shm"])
    return found(possible, "making them was refused, and those there might be could not be opened")


def make_namespaces() -> list[str]:
    """Try to get a user namespace, by each of three calls; say which gave one."""
    import ctypes
    import os
    import platform

    libc = ctypes.CDLL(None, use_errno=True)
    new_user, clone = 0x10000000, {"x86_64": 56, "aarch64": 220}[platform.machine()]
    made: list[str] = []
    for name in ("unshare", "clone", "mount"):
        child = os.fork()
        if child == 0:
            result = -1
            if name == "unshare":
                result = libc.unshare(new_user)
            elif name == "mount":
                result = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
            else:
                result = libc.syscall(clone, new_user | 17, 0, 0, 0, 0)  # 17: SIGCHLD
            os._exit(0 if result >= 0 else 1)
        if os.waitpid(child, 0)[1] == 0:
            made.append(name)
    return made


async def nested_userns(bench: Bench) -> Finding:
    """A command can make no user namespace, in which it would be root, and mount nothing."""
    async with bench.sandbox() as sandbox:
        made = await ask(sandbox, make_namespaces)
    return found([f"{name} went through" for name in made], "unshare, clone and mount were refused")


def call_kernel() -> dict[str, str]:
    """Make risky system calls with arguments that reach them if nothing is in the way; give those that were reached."""
    import ctypes
    import errno
    import os
    import platform
    import socket

    x86 = {"bpf": 321, "perf_event_open": 298, "keyctl": 250, "add_key": 248, "io_uring_setup": 425, "userfaultfd": 323,
           "setns": 308, "init_module": 175, "reboot": 169, "kexec_load": 246, "open_by_handle_at": 304}  # fmt: skip
    arm = {"bpf": 280, "perf_event_open": 241, "keyctl": 219, "add_key": 217, "io_uring_setup": 425, "userfaultfd": 282,
           "setns": 268, "init_module": 105, "reboot": 142, "kexec_load": 104, "open_by_handle_at": 265}  # fmt: skip
    libc = ctypes.CDLL(None, use_errno=True)
    blocked = {errno.EPERM, errno.ENOSYS, errno.EACCES}
    reached: dict[str, str] = {}
    for name, number in (x86 if platform.machine() == "x86_64" else arm).items():
        result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
        if result >= 0 or ctypes.get_errno() not in blocked:
            reached[name] = "done" if result >= 0 else os.strerror(ctypes.get_errno())
    for name, family, kind in (("packet", 17, 3), ("vsock", 40, 1), ("kernel crypto", 38, 5)):
        try:
            socket.socket(family, kind).close()
            reached[f"a {name} socket"] = "made"
        except OSError:
            continue
    return reached


async def risky_syscalls(bench: Bench) -> Finding:
    """System calls with a record of holes are refused: bpf, perf, keyrings, io_uring, userfaultfd, and odd sockets."""
    async with bench.sandbox() as sandbox:
        reached = await ask(sandbox, call_kernel)
    return found(
        [f"{name}: {what}" for name, what in reached.items()], "eleven of them, and three kinds of sockets: all refused"
    )


def change_clocks() -> list[str]:
    """Try to set the machine's clock to what it is; say how that was possible."""
    import ctypes
    import time

    libc = ctypes.CDLL(None, use_errno=True)
    possible: list[str] = []
    try:
        time.clock_settime(time.CLOCK_REALTIME, time.time())
        possible.append("the clock can be set")
    except OSError:
        pass
    adjustment = (ctypes.c_long * 64)()
    adjustment[0] = 0x4000  # ADJ_TICK, to a tick of nothing, which is invalid: who may adjust is told so
    if libc.adjtimex(adjustment) >= 0 or ctypes.get_errno() not in {1, 38}:
        possible.append("the clock can be adjusted")
    return possible


async def clock_change(bench: Bench) -> Finding:
    """The machine's clock can be neither set nor adjusted."""
    async with bench.sandbox() as sandbox:
        possible = await ask(sandbox, change_clocks)
    return found(possible, "setting and adjusting it were refused")


def type_for_others() -> list[str]:
    """Try to put input into a terminal as if somebody had typed it; say what was possible."""
    import fcntl
    import os
    import pty

    possible: list[str] = []
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
        possible.append("the terminal of the harness can be opened")
    except OSError:
        pass
    try:
        child, master = pty.fork()
    except OSError:
        return possible  # no terminal can be made
    if child == 0:
        try:
            fcntl.ioctl(0, 0x5412, b"x")  # TIOCSTI
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        possible.append("input can be put into a terminal (TIOCSTI)")
    os.close(master)
    return possible


async def tiocsti(bench: Bench) -> Finding:
    """Nothing can be typed into a terminal from inside, and there is none of the harness's."""
    async with bench.sandbox() as sandbox:
        possible = await ask(sandbox, type_for_others)
    return found(possible, "a terminal of its own took no input from it, and there was no other")


async def mount_in_workspace(bench: Bench) -> Finding:
    """A command can mount nothing in the workspace, and so have nothing else read there."""
    attempts = (
        "mount -t tmpfs none m", "mount --bind /etc m", "unshare -Urm mount -t tmpfs none m",
        "unshare -Urm mount --bind /etc m", "fusermount -o ro m", "fusermount3 -o ro m",
    )  # fmt: skip
    async with bench.sandbox() as sandbox:
        line = "; ".join(f"{attempt} >/dev/null 2>&1" for attempt in attempts)
        await shell(sandbox, f"mkdir m && echo x > m/f; {line}; true")
        breaches = await goes_on(sandbox)
        if {each.name for each in await sandbox.list("m")} != {"f"} or await sandbox.read("m/f") != b"x\n":
            breaches.append("the harness sees something else where the folder was")
        mounts = said(await shell(sandbox, 'grep -c " $(pwd -P)/" /proc/self/mountinfo'))
        if mounts != "0":
            breaches.append(f"{mounts} mounts lie in the workspace")
    return found(breaches, f"{len(attempts)} ways were refused, or led nowhere that others see")
