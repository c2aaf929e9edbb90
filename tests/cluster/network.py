"""The cluster's network: one switch in a network namespace of its own, this host and every node plugged into it.

All pods of all nodes share one flat /16, so no route, no masquerading and no kernel setting of this host is touched.
The switch sits in a namespace of its own so that this host's firewall rules (Docker's, for one) do not see the nodes'
frames. The only trace on the host is one interface, which goes with the switch.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass

from tests.cluster.errors import ClusterError
from tests.cluster.machine import Machine, run


@dataclass(frozen=True)
class Network:
    """The addresses in use. Node number `n` (from 1) has `10.x.0.(10+n)` and the pods `10.x.n.1` to `10.x.n.254`."""

    subnet: str
    interface: str

    @property
    def host(self) -> str:
        """This host's address in the cluster: API server and DNS listen on it."""
        return self._address(0, 1)

    def node(self, number: int) -> str:
        """Address of a node."""
        return self._address(0, 10 + number)

    def pods(self, number: int) -> tuple[str, str]:
        """First and last pod address of a node."""
        return self._address(number, 1), self._address(number, 254)

    def _address(self, third: int, fourth: int) -> str:
        return str(ipaddress.ip_network(self.subnet)[third * 256 + fourth])


def plug_in_host(switch: Machine, identity: str) -> Network:
    """Makes the switch and connects this host to it on a free subnet."""
    network = Network(_free_subnet(), f"tl{identity}")
    switch.run("ip", "link", "add", "switch", "type", "bridge")
    switch.run("ip", "link", "set", "switch", "up")
    run("ip", "link", "add", network.interface, "type", "veth", "peer", "name", "host", "netns", str(switch.init_pid))
    switch.run("ip", "link", "set", "host", "master", "switch", "up")
    prefix = ipaddress.ip_network(network.subnet).prefixlen
    run("ip", "address", "add", f"{network.host}/{prefix}", "dev", network.interface)
    run("ip", "link", "set", network.interface, "up")
    return network


def plug_in_node(switch: Machine, node: Machine, network: Network, number: int) -> None:
    """Connects a node; its address sits on the bridge `cni0` that its pods are put on."""
    port = f"port{number}"
    run(
        "ip", "link", "add", port, "netns", str(switch.init_pid), "type", "veth",
        "peer", "name", "eth0", "netns", str(node.init_pid),
    )  # fmt: skip
    prefix = ipaddress.ip_network(network.subnet).prefixlen
    commands = (
        "ip link set lo up",
        "ip link add cni0 type bridge",
        "ip link set eth0 master cni0 up",
        f"ip address add {network.node(number)}/{prefix} dev cni0",
        "ip link set cni0 up",
        f"ip route add default via {network.host}",
    )
    node.run("sh", "-ec", "\n".join(commands))
    switch.run("ip", "link", "set", port, "master", "switch", "up")


def silence(switch: Machine, number: int) -> None:
    """Pulls a node's plug: its peers hear nothing more, not even that their connections are closed."""
    switch.run("ip", "link", "delete", f"port{number}")


def _free_subnet() -> str:
    taken = []
    for table in json.loads(run("ip", "-json", "-4", "route", "show", "table", "all")):
        destination = table["dst"]
        if destination != "default":
            taken.append(ipaddress.ip_network(destination, strict=False))
    for second in range(200, 250):
        candidate = ipaddress.ip_network(f"10.{second}.0.0/16")
        if not any(candidate.overlaps(other) for other in taken):
            return str(candidate)
    raise ClusterError("no free subnet among 10.200.0.0/16 to 10.249.0.0/16; every one overlaps a route of this host")
