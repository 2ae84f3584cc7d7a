"""A schema registry for tests: an HTTP server with the part of Confluent's API that readers use."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

from ottla.spark.connector.registry import FRAME


class SchemaRegistry:
    """Schemas by id and by subject."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.auth: str | None = None
        self.address = ""

    def register(self, subject: str, kind: str, text: str) -> int:
        """Register a new version of a subject; return its id."""
        number = len(self.schemas) + 1
        self.schemas[number] = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> dict[str, Any] | None:
        self.requests.append(path)
        parts = [unquote(part) for part in urlparse(path).path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"] and len(parts) == 3:
            return self.schemas.get(int(parts[2]))
        if parts[0] == "subjects" and parts[2:] == ["versions", "latest"] and parts[1] in self.subjects:
            versions = self.subjects[parts[1]]
            version = {"subject": parts[1], "version": len(versions), "id": versions[-1]}
            return version | self.schemas[versions[-1]]
        return None


def framed(number: int, content: bytes) -> bytes:
    return FRAME.pack(0, number) + content


@contextlib.contextmanager
def serving() -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if registry.auth is not None and self.headers.get("Authorization") != registry.auth:
                self.send_response(401)
                self.end_headers()
                return
            schema = registry.answer(self.path)
            body = json.dumps(schema if schema is not None else {"error_code": 40403, "message": "not found"}).encode()
            self.send_response(200 if schema is not None else 404)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    registry.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
