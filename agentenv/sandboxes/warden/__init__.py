"""The process around a supervisor where no other program makes the sandbox. Standard library only, like the supervisor.

It is started by the system's Python, puts itself into its cgroup, gives up its user, confines a child of its own in the
way it is told (namespaces, Landlock, or not at all), in which the supervisor then serves, and stays to see to the end:
when that child is dead, or the harness is, nothing below it lives on. The folder is handed over as a zip file together
with the supervisor (`agentenv.sandboxes.bundle`).
"""
