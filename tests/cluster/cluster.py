"""The cluster a test uses: one brought up here with nodes it may break, or one given by a kubeconfig."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import add_ons, fake_nodes, images, kueue, node, state
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.archives import hold
from tests.cluster.build import Built, build
from tests.cluster.control_plane import Site, start_api_server, start_controllers
from tests.cluster.errors import ClusterError
from tests.cluster.machine import Machine, reap, start_ticks_of_this_process
from tests.cluster.network import plug_in_host, silence
from tests.cluster.pki import Authority
from tests.cluster.pools import ACCELERATOR, CHIP, DEFAULT_POOLS, Pool
from tests.cluster.prerequisites import require_programs
from tests.cluster.state import NodeState, State
from tests.cluster.static_image import BUSYBOX, write_archive


class Cluster(ABC):
    """A running cluster seen by an administrator. See the package's docstring for the tour."""

    is_own: bool
    busybox: str
    """An image with a shell that every real node has or can pull."""

    def __init__(self, kubeconfig: Path, context: str | None) -> None:
        self.kubeconfig = kubeconfig
        self.context = context
        self.api = Api(kubeconfig, context)
        self.get = self.api.get
        self.find = self.api.find
        self.list = self.api.list
        self.apply = self.api.apply
        self.create = self.api.create
        self.patch = self.api.patch
        self.delete = self.api.delete
        self.wait_for = self.api.wait_for
        self.logs = self.api.logs
        self.dump = self.api.dump

    @abstractmethod
    def lacks(self, feature: str) -> str | None:
        """Why the cluster cannot offer the feature, or None when it can."""

    def require(self, *features: str) -> None:
        """Skips the running test, with the reason, unless the cluster offers all these features."""
        import pytest

        for feature in features:
            reason = self.lacks(feature)
            if reason:
                pytest.skip(f"needs {feature}: {reason}")

    def events(self, namespace: str) -> list[Object]:
        """The namespace's events, oldest first."""

        def when(event: Object) -> str:
            moment = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
            return str(moment)

        return sorted(self.list("Event", namespace), key=when)

    def make_queue(self, namespace: str, name: str = "tpu", chips: int = 1024) -> str:
        """Makes a Kueue LocalQueue in the namespace with a quota of `chips` per generation, and returns its name."""
        for document in (*kueue.flavors(), *kueue.queues(namespace, name, chips)):
            self.apply(document)
        self.wait_for("LocalQueue", name, namespace, condition="Active")
        return name

    def can_confirm(self, node: str) -> bool:
        """Whether the node's kubelet is expected to say that a pod has stopped."""
        return True

    def evict(self, pod: str, namespace: str) -> None:
        """Evicts a pod through the eviction API, as a drain does."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        self.api.request("POST", self.api.path("Pod", pod, namespace) + "/eviction", eviction)


class GivenCluster(Cluster):
    """A cluster chosen by a kubeconfig: nothing is installed in it, nodes and images are left alone."""

    is_own = False
    busybox = os.environ.get("TPULAUNCH_TEST_BUSYBOX", "busybox:1.36")

    def lacks(self, feature: str) -> str | None:
        """Looked up in the cluster itself."""
        if feature in ("node-control", "fake-nodes", "load-image"):
            return "this is not a cluster of the test suite's own"
        if feature in ("jobset", "kueue"):
            kind, group = {"jobset": ("JobSet", "jobset.x-k8s.io"), "kueue": ("LocalQueue", "kueue.x-k8s.io")}[feature]
            try:
                self.list(kind)
            except ApiError as error:
                return f"{group} is not served there ({error.status})"
            return None
        if feature == "tpu-nodes":
            return None if self._tpu_nodes() else f"no node there has label {ACCELERATOR} and {CHIP}"
        if feature == "tpu-policies":
            is_there = add_ons.injects(self.api)
            return (
                None if is_there else "TPU variables are not injected by admission there; apply tests/cluster/policies"
            )
        if feature == "tpu-injection":
            # On GKE half of it happens when a container starts, so no dry run shows it.
            is_gke = any(each["spec"].get("providerID", "").startswith("gce://") for each in self._tpu_nodes())
            return None if is_gke else self.lacks("tpu-policies")
        raise ClusterError(f"unknown feature {feature!r}")

    def _tpu_nodes(self) -> list[Object]:
        return [each for each in self.list("Node", labels=ACCELERATOR) if CHIP in each["status"].get("capacity", {})]


class OwnCluster(Cluster):
    """A cluster on this host. Its nodes can be added, broken and removed."""

    is_own = True
    busybox = BUSYBOX

    def __init__(self, directory: Path, site: Site, known: State) -> None:
        super().__init__(directory / "kubeconfig", "tpulaunch-test")
        self.directory = directory
        self._site = site
        self._state = known

    # -- life --------------------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        pools: Sequence[Pool] = DEFAULT_POOLS,
        *,
        with_add_ons: bool = True,
        stays: bool = False,
        keep_logs_in: Path | None = None,
    ) -> OwnCluster:
        """Builds what is missing, starts everything and returns when all nodes are ready and all add-ons serve.

        Without add-ons there is Kubernetes alone. With `stays` the cluster outlives this process; otherwise the kernel
        ends it with the calling (main) thread, however that ends. A failed start leaves only logs, in a directory that
        the error names.
        """
        require_programs()
        state.sweep()
        built = build()
        directory = state.new_directory()
        state.claim(directory, os.getpid(), start_ticks_of_this_process())
        try:
            return cls._start(directory, built, pools, with_add_ons, stays)
        except BaseException as error:
            kept = _keep_logs(directory, keep_logs_in)
            _abandon(directory)
            if isinstance(error, ClusterError):
                raise ClusterError(f"{error}\nall logs: {kept}") from error
            raise

    @classmethod
    def _start(
        cls, directory: Path, built: Built, pools: Sequence[Pool], with_add_ons: bool, stays: bool
    ) -> OwnCluster:
        machine = Machine.boot("cluster", ("pid", "mount"), dies_with_caller=not stays)
        try:
            cluster = cls._fill(directory, built, machine, stays)
            with ThreadPoolExecutor(2) as workers:
                nodes = workers.submit(cluster.add_nodes, pools)
                try:
                    if with_add_ons:
                        add_ons.install(cluster._site, cluster.api, built.manifests, cluster.kubeconfig)
                    nodes.result()
                except BaseException:
                    machine.power_off()  # else the executor waits for nodes that nobody wants any more
                    raise
        except BaseException:
            machine.power_off()
            raise
        return cluster

    @classmethod
    def _fill(cls, directory: Path, built: Built, machine: Machine, stays: bool) -> OwnCluster:
        switch = Machine.boot("switch", ("net",), inside=machine)
        network = plug_in_host(switch, directory.name.removeprefix(state.PREFIX)[:8])
        authority = Authority.create(directory / "pki")
        site = Site(directory, built.binaries, machine, authority, network.host)
        owner = None if stays else os.getpid()
        known = State(
            server="",
            owner_pid=owner,
            owner_start_ticks=None if owner is None else start_ticks_of_this_process(),
            machine=machine,
            switch=switch,
            network=network,
            nodes={},
        )
        known.save(directory)
        busybox = shutil.which("busybox")
        assert busybox is not None
        write_archive(directory / "busybox.tar", Path(busybox))
        api = start_api_server(site)
        known = dataclasses.replace(known, server=api.client.configuration.host)
        known.save(directory)
        start_controllers(site, directory / "kubeconfig")
        return cls(directory, site, known)

    @classmethod
    def attach(cls, directory: Path) -> OwnCluster:
        """The running cluster of that directory, started by another process."""
        known = State.load(directory)
        authority = Authority.load(directory / "pki")
        site = Site(directory, build().binaries, known.machine, authority, known.network.host)
        return cls(directory, site, known)

    def down(self) -> None:
        """Ends and removes everything of the cluster; raises when something is still found afterwards."""
        state.remove(self.directory)
        reap()
        left = state.leftovers(self.directory, self._state)
        if left:
            raise ClusterError(f"the cluster is down, but this is left: {', '.join(left)}")

    def keep_logs(self, target: Path | None = None) -> Path:
        """Copies all logs to a directory that outlives the cluster and returns it."""
        return _keep_logs(self.directory, target)

    def lacks(self, feature: str) -> str | None:
        """Nothing is lacking here but real TPUs."""
        return None

    # -- identities --------------------------------------------------------------------------------------------------

    def kubeconfig_as(self, user: str, group: str = "") -> Path:
        """A kubeconfig of another user, who may do nothing until RBAC says otherwise."""
        path = self.directory / f"kubeconfig.{user}"
        identity = self._site.authority.issue(f"user-{user}", user=user, group=group)
        return self._site.authority.kubeconfig(path, self._state.server, identity)

    # -- nodes -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[str, NodeState]:
        """All nodes by name; one that is powered off has no machine."""
        return dict(self._state.nodes)

    def can_confirm(self, node: str) -> bool:
        """Whether a kubelet (or the one that plays it) is there to say that a pod has stopped."""
        known = self._state.nodes.get(node)
        return known is not None and (known.machine is not None or not known.pool.real)

    def add_nodes(self, pools: Sequence[Pool]) -> list[str]:
        """Adds the nodes of these pools and returns their names once they are ready, with their chips."""
        taken = {each.number for each in self._state.nodes.values()}
        numbers = (number for number in range(1, 240) if number not in taken)
        wanted = [
            NodeState(name, pool, next(numbers) if pool.real else 0, None)
            for pool in pools
            for name in pool.node_names()
        ]
        known = set(self._state.nodes)
        twice = sorted(known & {each.name for each in wanted})
        if twice:
            raise ClusterError(f"there are nodes named {', '.join(twice)} already")
        with ThreadPoolExecutor(max(1, min(4, len(wanted)))) as workers:
            made = list(workers.map(lambda each: self._boot(each) if each.pool.real else self._pretend(each), wanted))
            self._remember(*made)
            if any(not each.pool.real for each in made):
                self._keep_fake_nodes()
            list(workers.map(self._make_ready, made))
        return [each.name for each in made]

    def set_chips(self, name: str, chips: int) -> None:
        """Sets the node's `google.com/tpu`, as capacity and as what can be allocated."""
        amounts = {"capacity": {CHIP: str(chips)}, "allocatable": {CHIP: str(chips)}}
        self.patch("Node", name, {"status": amounts}, subresource="status")

    def kill_node(self, name: str) -> None:
        """Powers the node off: first its network goes silent, then every process is killed. Its Node object stays."""
        victim = self._state.nodes[name]
        if victim.machine is None:
            raise ClusterError(f"node {name} is not running")
        silence(self._state.switch, victim.number)
        victim.machine.power_off()
        self._remember(dataclasses.replace(victim, machine=None))

    def signal(self, pod: str, namespace: str, name: str) -> None:
        """Sends a signal (`TERM`) to the first process of the pod's one container; the API server hears nothing."""
        seen = self.get("Pod", pod, namespace)
        machine = self._state.nodes[seen["spec"]["nodeName"]].machine
        assert machine is not None
        [status] = seen["status"]["containerStatuses"]
        identity = status["containerID"].rpartition("/")[2]
        ctr = str(self._site.binaries["ctr"])
        machine.run(ctr, "--namespace=k8s.io", "tasks", "kill", f"--signal=SIG{name}", identity)

    def restart_node(self, name: str) -> None:
        """Boots a killed node again; its images are still there, its pods are not."""
        booted = self._boot(self._state.nodes[name])
        self._remember(booted)
        self._make_ready(booted)

    def delete_node_object(self, name: str) -> None:
        """Deletes only the Node object, as the cloud's controller does once a VM is gone."""
        self.delete("Node", name)

    def remove_node(self, name: str) -> None:
        """Powers the node off, if it runs, and deletes its Node object."""
        if self._state.nodes[name].machine is not None:
            self.kill_node(name)
        self.delete("Node", name)
        # Nobody is left to confirm that they have stopped.
        for pod in self.list("Pod", fields=f"spec.nodeName={name}"):
            self.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace_seconds=0)
        rest = {key: each for key, each in self._state.nodes.items() if key != name}
        self._state = dataclasses.replace(self._state, nodes=rest)
        self._state.save(self.directory)

    def _boot(self, wanted: NodeState) -> NodeState:
        return dataclasses.replace(wanted, machine=node.boot(self._site, self._state, wanted))

    def _pretend(self, wanted: NodeState) -> NodeState:
        fake_nodes.create(self.api, wanted.name, wanted.pool)
        return wanted

    def _keep_fake_nodes(self) -> None:
        marker = self.directory / "fake-nodes"
        if not marker.exists():
            marker.touch()
            self._site.machine.start(
                [sys.executable, "-m", "tests.cluster.fake_nodes", str(self.kubeconfig)],
                self._site.logs / "fake-nodes.log",
                {"PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def _make_ready(self, made: NodeState) -> None:
        def is_ready(seen: Object) -> bool:
            conditions = seen["status"].get("conditions", [])
            taints = seen["spec"].get("taints", [])
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) and not any(
                each["key"].startswith("node.kubernetes.io/") for each in taints
            )

        self.wait_for("Node", made.name, until=is_ready)
        if made.pool.chips:
            self.set_chips(made.name, made.pool.chips)

    def _remember(self, *nodes: NodeState) -> None:
        merged = self._state.nodes | {each.name: each for each in nodes}
        self._state = dataclasses.replace(self._state, nodes=merged)
        self._state.save(self.directory)

    # -- images ------------------------------------------------------------------------------------------------------

    def build_image(self, backend: str = "jax", nodes: Sequence[str] | None = None) -> str:
        """Builds the project's worker image, or takes it from the cache, loads it, and returns its name."""
        self.load_image(images.archive_of(backend), nodes)
        return images.name_of(backend)

    def load_image(self, archive: Path, nodes: Sequence[str] | None = None) -> None:
        """Imports the archive's images into these real nodes, by default all, and into those added later."""
        running = [
            (each.name, each.machine)
            for each in self._state.nodes.values()
            if each.machine and (nodes is None or each.name in nodes)
        ]
        if nodes is None:
            archive = hold(archive, self.directory / "archives")
        with ThreadPoolExecutor(2) as workers:
            imports = [
                workers.submit(node.import_images, self._site, name, machine, archive) for name, machine in running
            ]
            for each in imports:
                each.result()
        if nodes is None and str(archive) not in self._state.archives:
            self._state = dataclasses.replace(self._state, archives=(*self._state.archives, str(archive)))
            self._state.save(self.directory)


def _keep_logs(directory: Path, target: Path | None) -> Path:
    kept = target or Path(tempfile.mkdtemp(prefix="tpulaunch-logs-"))
    if (directory / "logs").exists():
        shutil.copytree(directory / "logs", kept, dirs_exist_ok=True, symlinks=True)
    return kept


def _abandon(directory: Path) -> None:
    state.remove(directory)
    reap()
