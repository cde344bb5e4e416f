"""Next hops with TLS: whom we trust, and who we are."""

import shutil
import ssl
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from server.serve_processes import Serve, await_that, serving

HEADERS = {"content-type": "application/x-protobuf"}


@pytest.fixture(autouse=True)
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Authorities that nobody knows, ``ca`` and ``other``; of the first, ``hop`` and ``us``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    monkeypatch.chdir(tmp_path)
    Path("names").write_text("subjectAltName=DNS:localhost")
    new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    commands = [
        f"req -x509 {new} -keyout {name}.key -out {name}.pem -subj /CN={name}" for name in ("ca", "other")
    ]
    for name in ("hop", "us"):
        commands.append(f"req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}")
        commands.append(
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names"
            f" -out {name}.pem"
        )
    for command in commands:
        subprocess.run([openssl, *command.split()], check=True, capture_output=True)


@contextmanager
def hop(*, asks: bool = False) -> Generator[tuple[str, list[bytes]], None, None]:
    """A next hop with a certificate, which may ask for one in turn: its URL, and the bodies that it took."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name for it
            pass

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:  # what it refuses
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("hop.pem", "hop.key")
    if asks:
        context.load_verify_locations("ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"https://localhost:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()


def sends(server: Serve, body: bytes) -> int:
    status, headers, text = server.request("POST", "/v1/logs", body, HEADERS)
    if status != 200:
        assert (status, headers["retry-after"], text) == (503, "5", b"the next hop does not answer")
    return status


def test_an_authority_is_trusted_if_the_system_or_we_are_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path.cwd()
    with hop() as (url, bodies):
        with serving("--forward", url, "--forward-ca", "other.pem", cwd=here) as server:
            assert [sends(server, b"a"), sends(server, b"b")] == [503, 503]
            await_that(lambda: any("cannot connect" in line for line in server.lines), "a reason")
            (told,) = (line for line in server.lines if "cannot connect" in line)
            assert "otel-loopeval: cannot connect to the next hop: " in told
            assert "CERTIFICATE_VERIFY_FAILED" in told
        with serving("--forward", url, "--forward-ca", "ca.pem", cwd=here) as server:
            assert [sends(server, b"c"), sends(server, b"d")] == [200, 200]
        monkeypatch.setenv("SSL_CERT_FILE", "ca.pem")
        with serving("--forward", url, cwd=here) as server:
            assert sends(server, b"e") == 200
        with serving("--forward", url, "--forward-ca", "other.pem", cwd=here) as server:
            assert sends(server, b"f") == 200
    assert bodies == [b"c", b"d", b"e", b"f"]


def test_a_next_hop_that_asks_for_a_certificate() -> None:
    here = Path.cwd()
    with hop(asks=True) as (url, bodies):
        trusting = ("--forward", url, "--forward-ca", "ca.pem")
        with serving(*trusting, "--forward-cert", "us.pem", "--forward-key", "us.key", cwd=here) as server:
            assert [sends(server, b"a"), sends(server, b"b")] == [200, 200]
        with serving(*trusting, cwd=here) as server:
            assert sends(server, b"c") == 503
            await_that(lambda: any("cannot connect" in line for line in server.lines), "a reason")
    assert bodies == [b"a", b"b"]
