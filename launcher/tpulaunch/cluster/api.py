"""The verbs of the API server on plain dicts: get, list, apply, delete, watch, stream; failures become our errors."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpulaunch.cluster.errors import AccessError, ApiError, ApiStatus, UnreachableError
from tpulaunch.cluster.kinds import Kind
from tpulaunch.cluster.kubeconfig import Target
from tpulaunch.cluster.objects import MANAGER, Object, dig, uid_of

CONNECT_SECONDS = 3.0
_READ_SECONDS = 60.0
_WATCH_SECONDS = 240
_PAGE = 500
#: How long a watch bears a server that is away, and how often it asks meanwhile.
_OUTAGE_SECONDS, _OUTAGE_PAUSE_SECONDS = 900.0, 1.0
Query = Mapping[str, Any]


class Api:
    """A connection to one API server with one identity. Safe to use from several threads."""

    def __init__(
        self,
        target: Target,
        configuration: Any,
        headers: Mapping[str, str],
        *,
        groups: Sequence[str] = (),
        request_timeout_seconds: float | None = None,
        tell_request: Callable[[str], None] | None = None,
    ) -> None:
        from kubernetes.client.rest import RESTClientObject
        from urllib3 import HTTPHeaderDict

        self.target = target
        self._configuration = configuration
        self._pool = RESTClientObject(configuration).pool_manager
        self._headers = HTTPHeaderDict(headers)
        for group in groups:
            self._headers.add("Impersonate-Group", group)
        self._read_seconds = request_timeout_seconds or _READ_SECONDS
        self._tell_request = tell_request
        self._versions: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        """The cluster in words, for messages: context and server."""
        return f"context {self.target.context} ({self.target.server})" if self.target.context else self.target.server

    def get_path(self, path: str, query: Query | None = None, *, timeout_seconds: float | None = None) -> Any:
        """Return the JSON at a path.

        Raises:
            ApiError: The server answered with an error.
            AccessError: It does not know who asks, or its certificate does not fit.
            UnreachableError: It did not answer.
        """
        return self._request("GET", path, query=query, timeout_seconds=timeout_seconds)[1]

    def version_of(self, kind: Kind) -> str | None:
        """Return the version of a kind's group to use, or None if the cluster does not serve it."""
        if not kind.group:
            return kind.versions[0]
        with self._lock:
            if kind.group not in self._versions:
                self._versions[kind.group] = self._served(kind.group)
            served = self._versions[kind.group]
        return next((version for version in kind.versions if version in served), None)

    def _served(self, group: str) -> tuple[str, ...]:
        try:
            body = self.get_path(f"/apis/{group}")
        except ApiError as error:
            if error.status.code == 404:
                return ()
            raise
        return tuple(str(version.get("version")) for version in body.get("versions") or ())

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Return one object, or None if it (or its kind) is not there."""
        version = self.version_of(kind)
        if version is None:
            return None
        try:
            found: Object = self.get_path(kind.path(version, namespace, name))
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise
        return found

    def list_all(
        self, kind: Kind, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> list[Object]:
        """Return the objects of a kind, in one namespace or in all; none if the kind is not served."""
        return self._list(kind, namespace, labels, fields)[0]

    def _list(
        self, kind: Kind, namespace: str | None, labels: str | None, fields: str | None
    ) -> tuple[list[Object], str]:
        version = self.version_of(kind)
        if version is None:
            return [], ""
        query: dict[str, Any] = {"labelSelector": labels, "fieldSelector": fields, "limit": _PAGE}
        items: list[Object] = []
        while True:
            page = self.get_path(kind.path(version, namespace), query)
            api_version = f"{kind.group}/{version}" if kind.group else version
            items += [{"apiVersion": api_version, "kind": kind.name, **item} for item in page.get("items") or ()]
            query["continue"] = dig(page, "metadata", "continue")
            if not query["continue"]:
                return items, str(dig(page, "metadata", "resourceVersion", default=""))

    def apply(
        self, kind: Kind, namespace: str | None, obj: Object, *, is_dry_run: bool = False, is_forced: bool = False
    ) -> tuple[Object, bool]:
        """Return the object after a server-side apply as ``tpulaunch``, and whether it was created by it.

        Unknown fields are refused; ``is_forced`` takes over fields that other managers own.
        """
        query = {
            "fieldManager": MANAGER,
            "fieldValidation": "Strict",
            "force": "true" if is_forced else "false",
            "dryRun": "All" if is_dry_run else None,
        }
        version = self.version_of(kind) or kind.versions[0]
        path = kind.path(version, namespace, str(dig(obj, "metadata", "name")))
        status, body = self._request("PATCH", path, query=query, body=obj, content_type="application/apply-patch+yaml")
        return body, status == 201

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Foreground",
        grace_seconds: int | None = None,
        is_dry_run: bool = False,
    ) -> None:
        """Ask for an object to be deleted; with ``uid``, only if it is still that very object."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if is_dry_run:
            options["dryRun"] = ["All"]
        version = self.version_of(kind) or kind.versions[0]
        self._request("DELETE", kind.path(version, namespace, name), body=options, content_type="application/json")

    def create_review(self, path: str, body: Object) -> Object:
        """Return the server's answer to a review (access, identity); nothing is stored by it."""
        answer: Object = self._request("POST", path, body=body, content_type="application/json")[1]
        return answer

    def follow(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str | None = None,
        name: str | None = None,
        stop: threading.Event | None = None,
        patience_seconds: float = _WATCH_SECONDS,
    ) -> Iterator[dict[str, Object]]:
        """Yield the objects of a kind by UID: at once, after each change, and at least once per ``patience_seconds``.

        Each yield is the whole present state, so a consumer never has to have seen an event. Ends when ``stop`` is set.
        Once it has answered, a server may be away for a quarter of an hour, as while its control plane is upgraded.
        """
        fields = f"metadata.name={name}" if name else None
        stop = stop or threading.Event()
        bear_until = 0.0
        while not stop.is_set():
            try:
                items, resource_version = self._list(kind, namespace, labels, fields)
            except (UnreachableError, ApiError) as error:
                if not _may_pass(error) or time.monotonic() > bear_until:
                    raise
                stop.wait(_OUTAGE_PAUSE_SECONDS)
                continue
            bear_until = time.monotonic() + patience_seconds + _OUTAGE_SECONDS
            state = {uid_of(item): item for item in items}
            yield dict(state)
            version = self.version_of(kind)
            if version is None:
                stop.wait(patience_seconds)
                continue
            query = {
                "watch": "true",
                "labelSelector": labels,
                "fieldSelector": fields,
                "resourceVersion": resource_version,
                "timeoutSeconds": max(1, int(patience_seconds)),
            }
            yield from self._watch(kind.path(version, namespace), query, state, stop)

    def _watch(
        self, path: str, query: dict[str, Any], state: dict[str, Object], stop: threading.Event
    ) -> Iterator[dict[str, Object]]:
        try:
            with self.stream(path, query, read_seconds=query["timeoutSeconds"] + 30) as stream:
                rest = b""
                for chunk in stream:
                    *lines, rest = (rest + chunk).split(b"\n")
                    changed = False
                    for line in filter(None, lines):
                        event = json.loads(line)
                        if event.get("type") == "ERROR":  # the version is too old: list anew
                            return
                        obj = event["object"]
                        if event["type"] == "DELETED":
                            state.pop(uid_of(obj), None)
                        else:
                            state[uid_of(obj)] = obj
                        changed = True
                    if changed:
                        yield dict(state)
                    if stop.is_set():
                        return
        except (UnreachableError, ApiError) as error:
            if not _may_pass(error):
                raise
            stop.wait(_OUTAGE_PAUSE_SECONDS)  # the list that follows tells whether the server is gone

    def stream(self, path: str, query: Query, *, read_seconds: float) -> Stream:
        """Open a long answer, to be read as it comes. Raises as :meth:`get_path` does."""
        response = self._open("GET", path, query, read_seconds=read_seconds)
        if response.status >= 400:
            self._fail(response, path)
        return Stream(response, self.where)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Object | None = None,
        content_type: str = "",
        timeout_seconds: float | None = None,
    ) -> tuple[int, Any]:
        headers = {"Content-Type": content_type} if content_type else {}
        data = None if body is None else json.dumps(body).encode()
        attempts = 2 if method == "GET" else 1  # a kept connection may have been closed by the server meanwhile
        for attempt in range(1, attempts + 1):
            try:
                seconds = timeout_seconds or self._read_seconds
                response = self._open(method, path, query or {}, data=data, headers=headers, read_seconds=seconds)
                payload = self._read(response)
                break
            except UnreachableError as error:
                if attempt == attempts or not error.is_broken_connection:
                    raise
        if response.status >= 400:
            self._fail(response, path, payload)
        if response.status >= 300:
            raise AccessError(f"{self.where}: {path}: the server points elsewhere; is it an API server?")
        try:
            return response.status, json.loads(payload) if payload else {}
        except ValueError:
            raise AccessError(
                f"{self.where}: {path}: the answer is no JSON; is {self.target.server} an API server?"
            ) from None

    def _open(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        read_seconds: float,
    ) -> Any:
        import urllib3
        from urllib3.util import Timeout

        sent = urllib3.HTTPHeaderDict(self._headers)
        sent.update({"Accept": "application/json", "User-Agent": MANAGER, **(headers or {})})
        bearer = self._configuration.auth_settings().get("BearerToken")
        if bearer and bearer.get("value"):
            sent["Authorization"] = bearer["value"]
        url = self._configuration.host + path
        if given := {key: value for key, value in query.items() if value is not None}:
            from urllib.parse import urlencode

            url += "?" + urlencode(given)
        start, outcome = time.monotonic(), "no answer"
        try:
            response = self._pool.request(
                method,
                url,
                body=data,
                headers=sent,
                timeout=Timeout(connect=CONNECT_SECONDS, read=read_seconds),
                preload_content=False,
                redirect=False,
            )
            outcome = str(response.status)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _translate(error, self.where) from None
        finally:
            if self._tell_request:
                self._tell_request(f"{method} {url} {outcome} in {1000 * (time.monotonic() - start):.0f} ms")
        return response

    def _read(self, response: Any) -> bytes:
        import urllib3

        try:
            payload: bytes = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _translate(error, self.where) from None
        finally:
            response.release_conn()
        return payload

    def _fail(self, response: Any, path: str, payload: bytes | None = None) -> None:
        text = (self._read(response) if payload is None else payload).decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except ValueError:
            body = text
        status = ApiStatus.read(response.status, body)
        if status.code == 401:
            raise AccessError(f"{self.where}: the server does not accept the credentials of {self.target.user_name!r}")
        raise ApiError(status, "" if status.reason else f"{self.where}: {path}")


class Stream:
    """The bytes of a long answer, each chunk as it arrives."""

    def __init__(self, response: Any, where: str) -> None:
        self._response = response
        self._where = where

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks until the server ends the answer.

        Raises:
            UnreachableError: The connection broke or fell silent before the end.
        """
        import urllib3

        try:
            while chunk := self._response.read1(65_536):
                yield chunk
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise _translate(error, self._where) from None

    def close(self) -> None:
        """Drop the connection; unread bytes are not waited for. Only for the thread that reads."""
        self._response.close()

    def interrupt(self) -> None:
        """End the reading from another thread, which :meth:`close` cannot: it would wait for the reader's lock."""
        with contextlib.suppress(AttributeError, RuntimeError, ValueError, OSError):  # ended already
            self._response.shutdown()


def _may_pass(error: UnreachableError | ApiError) -> bool:
    """Say whether the same question may be answered in a while."""
    return isinstance(error, UnreachableError) or error.status.code in (429, 500, 502, 503, 504)


def _translate(error: Exception, where: str) -> AccessError | UnreachableError:
    from urllib3 import exceptions

    if isinstance(error, exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, exceptions.SSLError):
        return AccessError(f"{where}: the server's certificate is not accepted: {error}")
    if isinstance(error, exceptions.LocationParseError | exceptions.URLSchemeUnknown | ValueError):
        return AccessError(f"{where}: the server's address is not usable: {error}")
    if isinstance(error, exceptions.ConnectTimeoutError):
        return UnreachableError(f"{where}: no connection in {CONNECT_SECONDS:g} s; is the cluster up?")
    if isinstance(error, exceptions.ReadTimeoutError):
        return UnreachableError(f"{where}: the server fell silent")
    words = str(error).rpartition(": ")[2] or type(error).__name__
    is_broken = not isinstance(error, exceptions.NewConnectionError)
    return UnreachableError(f"{where}: cannot be reached: {words}", is_broken_connection=is_broken)
