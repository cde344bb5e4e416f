"""Options of ``serve``: what cannot be done is told with option, value and what is allowed, status 2."""

import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from server.serve_processes import Serve, Sink, Traffic, await_that, serving

from otel_loopeval.cli.main import main
from otel_loopeval.server.bodies import BodyError, plain
from otel_loopeval.server.option_values import read_tokens
from otel_loopeval.server.store.store import Store

ADDRESS = "an address is HOST:PORT, such as 127.0.0.1:4318 or [::1]:4318, with a port to 65535, got "
TIME = "a time is a number with ms, s, m, h or d, such as 30s"
SIZE = "a size is a whole number of bytes, or with k, m or g, at least "
A_FILE = "argument --store: the store is a regular file, given by its path, or none, got "
STORE = "argument --store: the store"
UNOPENED = "argument --store: cannot open the store"
BOTH = "(it takes a file that can be read and written, in a folder that is there and can be written to)"
NEXT_HOP = "the next hop is the base URL of OTLP over HTTP, such as http://127.0.0.1:4328, got "
REACHED = "0.0.0.0:0 can be reached from other machines: give --tls-cert and --tls-key, or --insecure"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_text("")
    Path("no-text").write_bytes(b"\xff\xfe")
    Path("twice").write_text("red:a\nblue:a\n")
    Path("spaces").write_text("# whose\n\nred:a b\n")
    Path("colons").write_text("red:a\nacme:user:secret-1\n")
    Path("watchers").write_text("*:secret-1\n*:secret-2\n")
    Path("folder").mkdir()
    os.mkfifo("pipe")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "nowhere"], f"argument --http: {ADDRESS}'nowhere'"),
        (["--http", "none"], f"argument --http: {ADDRESS}'none'"),
        (["--http", "127.0.0.1:65536"], f"{ADDRESS}'127.0.0.1:65536'"),
        (["--http", "::1:4318"], f"{ADDRESS}'::1:4318'"),
        (["--http", "[::1:4318"], f"{ADDRESS}'[::1:4318'"),
        (["--http", "127.0.0.1:\u0664"], f"{ADDRESS}'127.0.0.1:\u0664'"),
        (["--grpc", "off"], f"argument --grpc: {ADDRESS}'off'; or none"),
        (["--http", "0.0.0.0:0"], f"argument --http: {REACHED}"),
        (["--grpc", "0.0.0.0:0"], f"argument --grpc: {REACHED}"),
        (
            ["--http", "nonexist.invalid:0"],
            "argument --http: nonexist.invalid:0 is no address of this machine: ",
        ),
        (
            ["--grpc", "nonexist.invalid:0"],
            "argument --grpc: nonexist.invalid:0 is no address of this machine: ",
        ),
        (["--http", "[::]:4318"], "[::]:4318 can be reached from other machines"),
        (
            ["--http", "127.0.0.1:9", "--grpc", "127.0.0.1:9"],
            "--http and --grpc cannot both be at 127.0.0.1:9",
        ),
        (["--forward", "ftp://x"], f"argument --forward: {NEXT_HOP}'ftp://x'"),
        (["--forward", "http://x:99999"], f"{NEXT_HOP}'http://x:99999'"),
        (["--forward", "http://[::1"], f"{NEXT_HOP}'http://[::1'"),
        (["--forward", "http://x\r\ny:1"], f"{NEXT_HOP}'http://x\\r\\ny:1' (printable ASCII only)"),
        (["--forward", "http://x/v1/traces"], "(the base alone: /v1/traces and the like are added)"),
        (["--forward", "http://me:secret-1@x"], "give --forward-header authorization="),
        (["--forward", "http://127.0.0.1:4318"], "is this server itself (127.0.0.1:4318)"),
        (["--forward", "http://localhost:4318/"], "is this server itself (127.0.0.1:4318)"),
        (["--forward", "http://127.0.0.1:7", "--grpc", "localhost:7"], "is this server itself (localhost:7)"),
        (["--forward-header", "a=b"], "headers for the next hop need a next hop: give --forward"),
        (["--forward-header", "secret-1"], "a header is NAME=VALUE in printable ASCII, got no ="),
        (
            ["--forward-header", "a=secret-1\x01"],
            "a header is NAME=VALUE in printable ASCII, got 'a' and a value",
        ),
        (["--forward-header", "Content-Length=9"], "the header content-length is each request's own"),
        (["--forward-ca", "not-there"], "argument --forward-ca: cannot read 'not-there': No such file"),
        (["--forward-ca", "folder"], "argument --forward-ca: cannot read 'folder': Is a directory"),
        (
            ["--forward-ca", "empty"],
            "argument --forward-ca: 'empty' has no certificates of authorities in it",
        ),
        (["--forward-ca", "no-text"], "argument --forward-ca: 'no-text' has no certificates of authorities"),
        (["--forward-cert", "empty"], "--forward-cert and --forward-key go together"),
        (["--forward-key", "not-there"], "argument --forward-key: cannot read 'not-there'"),
        (["--store", "none"], "with --store none it takes --forward: what comes in has to go somewhere"),
        (["--store", ""], f"{A_FILE}''"),
        (["--store", "folder"], f"{A_FILE}'folder'"),
        (["--store", "nowhere/"], f"{A_FILE}'nowhere/'"),
        (["--store", ":memory:"], f"{A_FILE}':memory:'"),
        (["--store", "file:foo?mode=ro"], f"{A_FILE}'file:foo?mode=ro'"),
        (["--store", "/dev/null"], f"{A_FILE}'/dev/null'"),
        (["--store", "pipe"], f"{A_FILE}'pipe'"),
        (
            ["--store-max-age", "0"],
            f"argument --store-max-age: {TIME}, at least 1 s, at most 36500d, got '0'",
        ),
        (
            ["--store-max-size", "1.5g"],
            f"argument --store-max-size: {SIZE}1m, at most 4294967296g, got '1.5g'",
        ),
        (["--idle", "soon"], f"argument --idle: {TIME}, at most 36500d, got 'soon'"),
        (["--idle=-1s"], f"argument --idle: {TIME}, at most 36500d, got '-1s'"),
        (["--grace", "nan"], f"argument --grace: {TIME}, at most 36500d, got 'nan'"),
        (["--max-age", "36501d"], f"argument --max-age: {TIME}, at least 1 s, at most 36500d, got '36501d'"),
        (
            ["--max-age", "5s", "--idle", "6s", "--grace", "1s"],
            "--max-age 5s is below --idle 6s: no trace is followed for that long: raise",
        ),
        (["--max-age", "5s", "--idle", "5s", "--grace", "1m"], "--max-age 5s is below --grace 60s: "),
        (
            ["--max-age", "5s", "--idle", "6s", "--grace", "7s"],
            "--max-age 5s is below --idle 6s and --grace 7s: ",
        ),
        (["--max-memory", "0"], f"argument --max-memory: {SIZE}1m, at most 4294967296g, got '0'"),
        (
            ["--max-memory", "99999999999g"],
            f"argument --max-memory: {SIZE}1m, at most 4294967296g, got '99999999999g'",
        ),
        (["--max-body", "5g"], f"argument --max-body: {SIZE}1k, at most 1g, got '5g'"),
        (
            ["--request-time", "inf"],
            f"argument --request-time: {TIME}, at least 1 s, at most 36500d, got 'inf'",
        ),
        (["--token-file", "not-there"], "argument --token-file: cannot read 'not-there': No such file"),
        (["--token-file", "folder"], "argument --token-file: cannot read 'folder': Is a directory"),
        (["--token-file", "empty"], "argument --token-file: 'empty' has no token in it"),
        (["--token-file", "no-text"], "argument --token-file: 'no-text' is no text in UTF-8"),
        (
            ["--token-file", "twice"],
            "argument --token-file: line 2 of 'twice' has a token that was there before",
        ),
        (["--token-file", "spaces"], "argument --token-file: line 3 of 'spaces' is no tenant:token"),
        (
            ["--token-file", "colons"],
            "argument --token-file: line 2 of 'colons' has more than one colon: it is tenant:token",
        ),
        (
            ["--token-file", "watchers"],
            "argument --token-file: 'watchers' lets nobody send: the token of * shows the runs of all,",
        ),
        (["--tls-cert", "empty"], "--tls-cert and --tls-key go together"),
        (["--tls-cert", "not-there", "--tls-key", "empty"], "argument --tls-cert: cannot read 'not-there'"),
        (
            ["--tls-cert", "empty", "--tls-key", "empty"],
            "arguments --tls-cert and --tls-key: there is no certificate in 'empty', as PEM: it is empty",
        ),
        (
            ["--forward", "https://x", "--forward-cert", "no-text", "--forward-key", "empty"],
            "--forward-key: there is no certificate in 'no-text', as PEM: it is text with -----BEGIN in it",
        ),
        (["--threshold", "nan"], "argument --threshold: 'nan' is no finite number, such as 8 or 0.5"),
        (["--max-wasted-iterations", "-1"], "--max-wasted-iterations: '-1' is no whole number from 0"),
        (
            ["--token-budget", "0"],
            "argument --token-budget: '0' is no whole number from 1 to 999999999999999999",
        ),
        (
            ["--token-budget", "9" * 23],
            f"argument --token-budget: '{'9' * 23}' is no whole number from 1 to 999999999999999999",
        ),
        (["--trace-url", "http://x/y"], "argument --trace-url: an address of traces is http:// or https://"),
        (["--trace-url", "javascript:{trace_id}"], "got 'javascript:{trace_id}'"),
    ],
)
def test_what_cannot_be_done_is_told(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["serve", *arguments])
    except SystemExit as end:
        status = end.code
    assert status == 2
    told = capfd.readouterr().err
    assert message in told
    assert "secret-1" not in told
    assert not Path("otel-loopeval.db").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--http", "{busy}"], "argument --http: cannot listen on {busy}: Address already in use"),
        (["--grpc", "{busy}"], "argument --grpc: cannot listen on {busy} for gRPC: Address already in use"),
        (["--store", "nowhere/x.db"], f"{UNOPENED} 'nowhere/x.db': No such file or directory {BOTH}"),
        (["--store", "/proc/x.db"], f"{UNOPENED} '/proc/x.db': No such file or directory {BOTH}"),
        (["--store", f"{'x' * 300}.db"], f"{UNOPENED} '{'x' * 300}.db': File name too long {BOTH}"),
        (["--store", "circle"], f"{UNOPENED} 'circle': "),
        (
            ["--store", "no-text"],
            f"{STORE} 'no-text' fails: file is not a database; move the file away, and a new one is made, or",
        ),
        (
            ["--store", "in-use.db"],
            f"{STORE} 'in-use.db' is in use by another process: each needs a file of its own",
        ),
    ],
)
def test_what_the_machine_does_not_give_is_told_with_status_1(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("no-text").write_bytes(bytes(range(256)) * 20)
    Path("circle").symlink_to("circle")
    with closing(Store("in-use.db")), socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        given = [argument.format(busy=busy) for argument in arguments]
        for name in ("--http", "--grpc"):
            if name not in given:
                given += [name, "127.0.0.1:0"]
        assert main(["serve", *given]) == 1
    told = capfd.readouterr().err
    assert message.format(busy=busy) in told
    assert "Traceback" not in told


def certificate(name: str) -> None:
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=a -keyout {name}.key -out {name}.cert".split(),
        check=True,
        capture_output=True,
    )


def test_a_key_that_is_not_the_certificates_and_one_with_a_passphrase(
    capfd: pytest.CaptureFixture[str],
) -> None:
    certificate("one")
    certificate("two")
    locked = ["openssl", "rsa", "-aes256", "-passout", "pass:x", "-in", "one.key", "-out", "locked.key"]
    subprocess.run(locked, check=True, capture_output=True)
    for key, message in {
        "two.key": "the certificate in 'one.cert' and the key in 'two.key' do not belong together",
        "locked.key": "the key in 'locked.key' has a passphrase: give one without",
        "two.cert": "there is no key in 'two.cert', as PEM: are they swapped?",
        "empty": "there is no key in 'empty', as PEM: it is empty",
    }.items():
        for name in ("tls", "forward"):
            assert main(["serve", f"--{name}-cert", "one.cert", f"--{name}-key", key]) == 2
            assert f"arguments --{name}-cert and --{name}-key: {message}" in capfd.readouterr().err


def test_a_certificate_and_a_key_that_are_swapped(capfd: pytest.CaptureFixture[str]) -> None:
    certificate("one")
    for name in ("tls", "forward"):
        assert main(["serve", f"--{name}-cert", "one.key", f"--{name}-key", "one.cert"]) == 2
        assert (
            f"arguments --{name}-cert and --{name}-key: there is no certificate in 'one.key', as PEM: "
            "are they swapped?"
        ) in capfd.readouterr().err


def test_a_file_of_tokens_may_begin_with_a_mark_of_its_encoding() -> None:
    Path("marked").write_bytes(b"\xef\xbb\xbfred:a\r\n*:b\r\n")
    assert read_tokens(Path("marked")) == {"a": "red", "b": "*"}


def test_an_encoding_that_is_not_known_is_told_as_text() -> None:
    with pytest.raises(BodyError, match=r"^content-encoding is gzip, zstd or deflate, got 'br'$"):
        plain(b"", b"br", 10)


def test_certificates_for_a_next_hop_need_one_that_shows_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    certificate("one")
    pair = ["--forward-cert", "one.cert", "--forward-key", "one.key"]
    for given in (["--forward-ca", "one.cert"], pair):
        for to in ([], ["--forward", "http://x"]):
            assert main(["serve", *to, *given]) == 2
            url = to[1] if to else "none"
            message = (
                f"certificates for the next hop need one of https: give --forward https://…, got '{url}'"
            )
            assert message in capfd.readouterr().err


def test_beyond_loopback_with_insecure_and_on_the_other_loopback(tmp_path: Path) -> None:
    for address, reached in (("0.0.0.0", "127.0.0.1"), ("[::1]", "::1")):
        with (
            serving("--insecure", "--store", "x.db", http=f"{address}:0", cwd=tmp_path) as server,
            socket.create_connection((reached, server.port), timeout=30) as connection,
        ):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")


def test_what_is_told_at_the_start_is_enough_to_send_to_it(tmp_path: Path) -> None:
    Path("tokens").write_text("red:secret-1\n")
    Path("tokens").chmod(0o644)
    with serving("--store", "runs.db", "--token-file", "tokens", cwd=tmp_path, grpc=True) as server:
        http, grpc = f"http://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.grpc}"
        await_that(lambda: len(server.lines) == 5, "five lines")
    to_http = f"OTEL_EXPORTER_OTLP_ENDPOINT={http} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    to_grpc = f"OTEL_EXPORTER_OTLP_ENDPOINT={grpc}"
    token = "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN"
    assert server.lines == [
        "otel-loopeval: tokens can be read by others: chmod 600\n",
        f"otel-loopeval: listening at {http}, gRPC at 127.0.0.1:{server.grpc}\n",
        f"otel-loopeval: the runs are at {http}/ and kept in {tmp_path / 'runs.db'}\n",
        f"otel-loopeval: to send to it: {to_http}, or for gRPC {to_grpc}\n",
        f"otel-loopeval: each sender brings a token: {token}\n",
    ]


def test_a_loop_through_another_server_ends_with_a_clear_refusal(tmp_path: Path) -> None:
    traffic = Traffic()
    traffic.agent()
    body = traffic.body()
    with Sink() as first:  # keeps a port for as long as the other one needs to be told of it
        port = int(first.url.rpartition(":")[2])
    loop = Serve("--forward", f"http://127.0.0.1:{port}", cwd=tmp_path)
    try:
        with serving(
            "--forward", f"http://127.0.0.1:{loop.port}", http=f"127.0.0.1:{port}", cwd=tmp_path
        ) as back:
            status, headers, text = back.request(
                "POST", "/v1/traces", body, {"content-type": "application/x-protobuf"}
            )
            assert (status, text) == (503, b"the next hop says 503")
            assert headers["retry-after"] in {"1", "5"}
            assert back.request("GET", "/healthz")[0] == 200
            assert back.metrics()["loopeval_serve_spans_total"] == 0
    finally:
        loop.end(9)
