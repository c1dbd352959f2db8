"""A real RabbitMQ server in its own folder, run by the system's programs."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import amqp
import kombu

from devnet.ports import free_port
from devnet.servers import LocalServer


class RabbitMQ(LocalServer):
    """A RabbitMQ whose queues and messages survive restarts."""

    name = "rabbitmq"
    # Debian's wrapper would change the user. This script runs as the caller.
    _program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(self, *, port: int = 0) -> None:
        super().__init__(port=port)
        # Erlang's name server (epmd) keeps running when the node ends, so it gets a port of its own.
        self._names_port = free_port()

    @classmethod
    def is_installed(cls) -> bool:
        return cls._program.exists()

    def url(self) -> str:
        """Return the value for `BROKER_URL`."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def remove(self) -> None:
        super().remove()
        with suppress(FileNotFoundError):
            kill = ["epmd", "-port", str(self._names_port), "-kill"]
            subprocess.run(kill, env=self._variables(), capture_output=True, check=False)

    def _command(self) -> Sequence[str]:
        return ["env", *(f"{name}={value}" for name, value in self._variables().items()), str(self._program)]

    def _variables(self) -> dict[str, str]:
        def inside(name: str) -> str:
            return str(self.folder / name)

        return {
            "HOME": str(self.folder),
            "RABBITMQ_HOME": str(self._program.parents[1]),
            "RABBITMQ_NODENAME": f"{self.folder.name}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": inside("data"),
            "RABBITMQ_LOG_BASE": inside("logs"),
            "RABBITMQ_PID_FILE": inside("pid"),
            # The node must not read the configuration of the machine's own RabbitMQ.
            "RABBITMQ_CONFIG_FILE": inside("none"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": inside("plugins"),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _answers(self) -> bool:
        try:
            with kombu.Connection(self.url(), connect_timeout=2) as connection:
                connection.connect()
        except (OSError, amqp.AMQPError):
            return False
        return True
