"""A node from start to stop, by the command line: create a topic, write and read records, and dump the log."""

import contextlib
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

OTTLA = (sys.executable, "-m", "ottla")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        port, controller_port = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
        settings = ["--set", f"log.dirs={folder}/data", "--set", f"listeners={listeners}"]
        print("$ ottla serve", shlex.join(settings), "&")
        node = subprocess.Popen([*OTTLA, "serve", *settings], stdout=subprocess.PIPE, text=True)
        try:
            assert node.stdout is not None
            print(node.stdout.readline())
            server = ["-b", f"127.0.0.1:{port}"]
            run("topic", "create", "orders", "--partitions", "3", *server)
            lines = "".join(f"customer-{number % 5}:order {number}\n" for number in range(10))
            run("produce", "orders", "--key-separator", ":", *server, typed=lines)
            run("consume", "orders", "--from", "beginning", *server)
            run("topic", "describe", "orders", *server)
        finally:
            node.terminate()
            node.wait(20)
        segment = max(Path(folder).glob("data/orders-*/*.log"), key=lambda path: path.stat().st_size)
        run("log", "dump", str(segment))


def run(*arguments: str, typed: str = "") -> None:
    """Run a command, and print it with its output."""
    print("$ ottla", shlex.join(arguments), flush=True)
    subprocess.run([*OTTLA, *arguments], input=typed, text=True, check=True, timeout=60)
    print(flush=True)


def free_ports(count: int) -> list[int]:
    """Return different ports that are free."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in sockets]


if __name__ == "__main__":
    main()
