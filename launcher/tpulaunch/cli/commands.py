"""The table of commands: name, one line of help, and where the function is; nothing is imported to list them."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One command: ``module`` is below :mod:`tpulaunch.cli`, ``function`` carries its options as annotations."""

    help: str
    module: str
    function: str


COMMANDS: dict[str, Entry] = {
    "init": Entry("Write a commented spec to start from.", "init", "init"),
    "validate": Entry("Check specs as far as no cluster is needed.", "validate", "validate"),
    "render": Entry("Print the exact objects that submit would send.", "render", "render_objects"),
    "plan": Entry("Show what the data will be: files, rows, lanes, steps, RAM.", "plan", "plan"),
    "run": Entry("Run the job on this machine, host by host.", "run", "run"),
    "preflight": Entry("Prove shapes, steps and compilations without training.", "preflight", "preflight"),
    "submit": Entry("Create or update the job on the cluster.", "submit", "submit"),
    "diff": Entry("Show what submit would change: exit 0 same, 1 different.", "diff", "diff"),
    "status": Entry("Show a job's state, and why it does not run.", "status", "status"),
    "list": Entry("List jobs.", "list", "list_jobs"),
    "logs": Entry("Follow the logs of all hosts.", "logs", "logs"),
    "delete": Entry("Delete a job and everything it owns.", "delete", "delete"),
    "doctor": Entry("Check the cluster: reach, versions, rights, queues, slices.", "doctor", "doctor"),
    "schema": Entry("Print the JSON Schema of the spec.", "schema", "schema"),
    "tpus": Entry("Print the table of TPU generations and topologies.", "tpus", "tpus"),
    "completion": Entry("Print the completion script of a shell.", "completion", "completion"),
}
