"""Many connections that say nothing, in a process of their own; it tells how many the server has ended."""

import resource
import socket
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def main(port: int, count: int, protocol: str) -> None:
    """Connect; tell how many have ended for each line of input; end with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    connections: list[socket.socket] = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        if protocol == "grpc":
            connection.sendall(PREFACE)
        connections.append(connection)
    print(len(connections), flush=True)
    for _ in sys.stdin:
        print(sum(map(_has_ended, connections)), flush=True)


def _has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
