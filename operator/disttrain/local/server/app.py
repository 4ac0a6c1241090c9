"""The server: HTTP on loopback around the objects, for one machine and its one user."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from disttrain.local.kubeconfig import TOKEN_HEADER
from disttrain.local.server import crds, discovery, errors, logs, render, strategies
from disttrain.local.server.collector import Collector
from disttrain.local.server.errors import ApiError
from disttrain.local.server.faults import Faults, Rule
from disttrain.local.server.handlers import Answer, Body, Handlers
from disttrain.local.server.logs import LogFiles, LogSource
from disttrain.local.server.objects import Objects, Strategy, Write
from disttrain.local.server.openapi import Documents
from disttrain.local.server.pods import Pods
from disttrain.local.server.resources import CRDS, NAMESPACES, PODS, Resource, Types
from disttrain.local.server.selectors import selector
from disttrain.local.server.store import LOG_LENGTH, Event, Record, Store, encode
from disttrain.local.server.target import Target, parse
from disttrain.local.server.watch import Watch

log = logging.getLogger(__name__)

OPEN_PATHS = {"/healthz", "/readyz", "/livez", "/version"}
CONTROL_PREFIX = "/disttrain-local/"
FAULTS_PATH, JOURNAL_PATH = f"{CONTROL_PREFIX}faults", f"{CONTROL_PREFIX}journal"
LOOPBACK_NAMES = {"127.0.0.1", "localhost", "::1"}
_JSON_HEADERS = {"Content-Type": render.JSON}
CUSTOM, DEFINITIONS, POD_STRATEGY = crds.Custom(), crds.Definitions(), Pods()
LARGEST_BODY = 3 * 1024 * 1024  # bytes, as the real server's


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)


class ApiServer:
    """A Kubernetes API on 127.0.0.1 with its state in `directory` (made with mode 0700).

    Every path but health and version wants the bearer token. Use it as an async context manager, or `start` and `stop`.
    """

    def __init__(
        self,
        directory: Path,
        token: str,
        faults: Faults | None = None,
        logs: LogSource | None = None,
        *,
        log_length: int = LOG_LENGTH,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        self.token, self.faults = token, faults or Faults()
        self.logs = logs or LogFiles(directory / "pods")
        self.types = Types()
        self.store = Store(directory / "state.sqlite", log_length)
        self.objects = Objects(self.store, self._strategy)
        self._documents = Documents(self.types)
        self._handlers = Handlers(self.objects)
        self._runner: web.ServerRunner | None = None
        self._streams: set[Watch] = set()
        self.url = ""
        self.collector = Collector(self.objects, self.types)
        self._background: asyncio.Task[None] | None = None
        self._loaded: set[str] = set()
        for resource in self.types:
            self._load(resource)
        for record in self.store.all(CRDS):
            self._register(record)
        self.store.after.append(self._follow_types)
        for name in ("default", "kube-system"):
            if self.store.get(NAMESPACES, "", name) is None:
                self.objects.create(NAMESPACES, "", {"metadata": {"name": name}}, Write())

    def _load(self, resource: Resource) -> None:
        if resource.key not in self._loaded:
            self._loaded.add(resource.key)
            self.store.load(resource)

    def _follow_types(self, resource: Resource, event: Event) -> None:
        """A CRD that comes, changes or goes takes its type along."""
        if resource.key != CRDS.key:
            return
        before = crds.resource_of(event.before.object()) if event.before else None
        if before is not None:
            self.types.remove(before)
        if not event.gone:
            self._register(event.record)

    def _register(self, crd: Record) -> None:
        found = crds.resource_of(crd.object())
        if found is not None:
            self.types.add(found)
            self._load(found)

    def _strategy(self, resource: Resource) -> Strategy:
        if resource.custom is not None:
            return CUSTOM
        if resource is PODS:
            return POD_STRATEGY
        return DEFINITIONS if resource.key == CRDS.key else strategies.BY_TYPE.get(resource.key, strategies.PLAIN)

    async def start(self, port: int = 0) -> str:
        """Listen; returns the URL. Port 0 takes a free one."""
        server = web.Server(self._serve, request_factory=_request, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        self._background = asyncio.create_task(self.collector.run())
        site = web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        """End all watches, stop listening and close the state."""
        for watch in list(self._streams):
            watch.drop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])
        self.store.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # From a request to its answer

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        verb = request.method.lower()
        try:
            if (guarded := self._guard(request)) is not None:
                return self._fail(request, verb, guarded)
            special = await self._special(request)
            if special is not None:
                return special
            target = parse(self.types, request.method, request.path, request.query)
            verb = target.verb
            return await self._target(request, target)
        except ApiError as error:
            return self._fail(request, verb, error)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, request.path_qs)
            return self._fail(request, verb, ApiError(500, "InternalError", f"Internal error occurred: {error!r}"))

    def _fail(self, request: web.BaseRequest, verb: str, error: ApiError) -> web.Response:
        if not request.path.startswith(CONTROL_PREFIX):
            self.faults.note(verb, request.path_qs, error.code)
        return web.Response(
            body=encode(error.status()), status=error.code, content_type=render.JSON, headers=error.headers
        )

    def _guard(self, request: web.BaseRequest) -> ApiError | None:
        """Refuse what does not come from a client of this machine that holds the token."""
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname
        if host not in LOOPBACK_NAMES:
            return ApiError(403, "Forbidden", f"this server answers to 127.0.0.1 and localhost only, not to {host!r}")
        if "Origin" in request.headers:
            return ApiError(403, "Forbidden", "this server does not answer web pages (the request has an Origin)")
        if request.path in OPEN_PATHS:
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else request.headers.get(TOKEN_HEADER, "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return ApiError(401, "Unauthorized", "Unauthorized")
        return None

    def _json(self, request: web.BaseRequest, body: Any, media: str = render.JSON) -> web.Response:
        self.faults.note("get", request.path_qs, 200)
        return web.Response(body=encode(body), headers={"Content-Type": media})

    async def _special(self, request: web.BaseRequest) -> web.Response | None:
        """Paths that are not about objects; None for the others."""
        path = request.path.rstrip("/")
        if path in ("/healthz", "/readyz", "/livez"):
            return web.Response(text="ok")
        if path == "/version":
            return self._json(request, discovery.version())
        if path in ("/api", "/apis"):
            if discovery.AGGREGATED in request.headers.get("Accept", "").replace(" ", ""):
                return self._json(request, discovery.aggregated(self.types, core=path == "/api"), discovery.AGGREGATED)
            return self._json(request, discovery.core_versions() if path == "/api" else discovery.groups(self.types))
        if path in (FAULTS_PATH, JOURNAL_PATH):
            return await self._control(request, path)
        if path == "/openapi/v2":
            return self._old_openapi(request)
        if path == "/openapi/v3":
            return self._json(request, self._documents.index())
        if path.startswith("/openapi/v3/") and (
            found_document := self._documents.get(path.removeprefix("/openapi/v3/"))
        ):
            return web.Response(body=found_document, content_type=render.JSON)
        parts = path.split("/")[1:]
        if parts[0] == "api" and len(parts) == 2:
            return self._json(request, discovery.resource_list(self.types.check_group("", parts[1])))
        if parts[0] == "apis" and len(parts) == 2 and (found := discovery.group(self.types, parts[1])):
            return self._json(request, found)
        if parts[0] == "apis" and len(parts) == 3:
            if parts[1:] == [discovery.REVIEW_GROUP, "v1"]:
                return self._json(request, discovery.review_list())
            return self._json(request, discovery.resource_list(self.types.check_group(parts[1], parts[2])))
        if parts == ["apis", discovery.REVIEW_GROUP, "v1", discovery.REVIEW] and request.method == "POST":
            review = (await self._body(request)).json()
            return self._json(request, {**review, "status": {"allowed": True, "reason": "one machine, one user"}})
        if parts[0] not in ("api", "apis") or len(parts) < (3 if parts[0] == "api" else 4):
            raise errors.no_such_path()
        return None

    def _old_openapi(self, request: web.BaseRequest) -> web.Response:
        """A v2 document that describes nothing: kubectl wants one for a `List`, and leaves the check to the server."""
        if "protobuf" in request.headers.get("Accept", ""):
            self.faults.note("get", request.path_qs, 200)
            return web.Response(body=b"", content_type=discovery.OLD_OPENAPI)  # as protobuf, no bytes are no fields
        info = {"title": "The Kubernetes API of one machine", "version": "v1.34.0"}
        return self._json(request, {"swagger": "2.0", "info": info, "paths": {}})

    async def _control(self, request: web.BaseRequest, path: str) -> web.Response:
        """Faults and the journal, for tests in another process."""
        if path == JOURNAL_PATH:
            return web.Response(body=msgspec.json.encode(list(self.faults.journal)), content_type=render.JSON)
        if request.method == "POST":
            try:
                self.faults.add(msgspec.json.decode(await request.read(), type=Rule))
            except msgspec.MsgspecError as error:
                raise errors.bad_request(f"not a fault rule: {error}") from None
        elif request.method == "DELETE":
            self.faults.clear()
        return web.Response(body=msgspec.json.encode(self.faults.rules), content_type=render.JSON)

    async def _body(self, request: web.BaseRequest) -> Body:
        if not request.body_exists:
            return Body(b"", "")
        too_large = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {LARGEST_BODY}")
        if (request.content_length or 0) > LARGEST_BODY:
            raise too_large
        try:
            data = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_large from None
        return Body(data, request.headers.get("Content-Type", "").split(";")[0].strip())

    async def _target(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        rule = self.faults.find(target.verb, target.label, target.namespace or "", target.name)
        body = await self._body(request)
        if rule is not None:
            if rule.action == "delay":
                await asyncio.sleep(rule.seconds)
            elif rule.action == "error":
                status = rule.status()
                headers = {"Retry-After": str(rule.retry_after)} if rule.retry_after else {}
                self.faults.note(target.verb, request.path_qs, rule.code)
                return web.Response(body=encode(status), status=rule.code, content_type=render.JSON, headers=headers)
            elif rule.action == "close_before":
                return self._hang_up(request, target)
        if target.verb == "watch":
            return await self._watch(request, target)
        if target.label == "pods/log" and target.verb == "get":
            return await self._log(request, target)
        answer = self._handlers.handle(target, body, request.headers.get("Accept", ""))
        if self.store.pending:
            await asyncio.sleep(0)  # let requests that came together be committed together
            self.store.flush()
        if rule is not None and rule.action == "close_after":
            return self._hang_up(request, target)
        self.faults.note(target.verb, request.path_qs, answer.status)
        return self._respond(answer)

    @staticmethod
    def _respond(answer: Answer) -> web.Response:
        response = web.Response(body=answer.body, status=answer.status, headers=_JSON_HEADERS)
        for warning in answer.warnings:
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    def _hang_up(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Close the connection without an answer."""
        self.faults.note(target.verb, request.path_qs, 0)
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query, resource = target.query, target.resource
        accept = request.headers.get("Accept", "")
        test = selector(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        render_event = render.event_renderer(resource, accept, query.get("includeObject", "Metadata"))
        version = query.get("resourceVersion", "")
        if version and not version.isdecimal():
            raise errors.bad_request(
                f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
            )
        timeout = target.number("timeoutSeconds")
        watch = Watch(
            self.store, resource, target.namespace if resource.namespaced else None, target.name, test, render_event,
            target.flag("allowWatchBookmarks"),
        )  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": render.JSON})
        try:
            watch.start(version, initial=target.flag("sendInitialEvents"))
        except ApiError as error:
            watch.refuse(error)
        self.faults.note("watch", request.path_qs, 200)
        self._streams.add(watch)
        self.faults.watches.add(watch)
        try:
            self.faults.apply_to_watch(watch)
            await response.prepare(request)
            await watch.run(response, None if timeout is None else float(timeout))
            if watch.dropped and request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the client has gone: the usual end of a watch
        finally:
            watch.close()
            self._streams.discard(watch)
            self.faults.watches.discard(watch)
        return response

    async def _log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """A container's log as plain text, followed to its end if asked."""
        asked = logs.LogRequest(target)
        record = self.objects.get(PODS, target.namespace or "", target.name)
        pod = record.object()
        container = logs.choose_container(pod, asked.container)
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)  # nobody has taken the pod yet: there is nothing, and nothing to wait for
        path = logs.find(self.logs, pod, container, previous=asked.previous)
        self.faults.note(target.verb, request.path_qs, 200)

        def ended() -> bool:
            current = self.store.get(PODS, record.namespace, record.name)
            return current is None or current.uid != record.uid or logs.has_ended(current.object(), container)

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # a client that has seen enough
            async for block in logs.read(path, asked, ended):
                await response.write(block)
        return response
