"""The cluster's own certificate authority: certificates as files, and kubeconfigs made of them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

import trustme

ADMINISTRATORS = "system:masters"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key as PEM files; each also serves as the other side's client certificate."""

    certificate: Path
    key: Path


class Authority:
    """Signs for servers (host names and addresses) and for clients (user name and groups, as Kubernetes reads them)."""

    def __init__(self, directory: Path, authority: trustme.CA) -> None:
        self._directory = directory
        self._authority = authority
        self.certificate = directory / "ca.crt"

    @classmethod
    def create(cls, directory: Path) -> Authority:
        """A new authority whose files live in `directory`."""
        directory.mkdir(parents=True, mode=0o700)
        made = cls(directory, trustme.CA(organization_name="tpulaunch test cluster"))
        made.certificate.write_bytes(made._authority.cert_pem.bytes())
        made._write("ca.key", made._authority.private_key_pem.bytes())
        return made

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """The authority that `create` wrote into `directory`."""
        pair = ((directory / name).read_bytes() for name in ("ca.crt", "ca.key"))
        return cls(directory, trustme.CA.from_pem(*pair))

    def issue(self, name: str, *, user: str, group: str = "", hosts: tuple[str, ...] = ()) -> Certificate:
        """A certificate for `user` in one `group`, and as a server for `hosts`: files `<name>.crt`, `<name>.key`."""
        # A certificate without any host name is refused: its (critical) list of names would be empty.
        leaf = self._authority.issue_cert(
            *(hosts or ("client.invalid",)), common_name=user, organization_name=group or None
        )
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        return Certificate(self._write(f"{name}.crt", chain), self._write(f"{name}.key", leaf.private_key_pem.bytes()))

    def kubeconfig(self, path: Path, server: str, identity: Certificate, context: str = "tpulaunch-test") -> Path:
        """Writes a kubeconfig (JSON, which is YAML) with everything inline, so the file can be copied anywhere."""
        cluster = {"server": server, "certificate-authority-data": _base64(self.certificate)}
        user = {
            "client-certificate-data": _base64(identity.certificate),
            "client-key-data": _base64(identity.key),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": context, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        }
        path.write_text(json.dumps(document, indent=1))
        path.chmod(0o600)
        return path

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
