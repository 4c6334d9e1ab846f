"""
`twistd tinymq`: the options of the daemon, and the service that they make.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, TextIO

from twisted.application.service import IService
from twisted.python import usage
from twisted.python.logfile import LogFile
from typing_extensions import override

from tinymq import __version__
from tinymq.config import Config
from tinymq.configfile import load
from tinymq.errors import ConfigError, TinyMQError
from tinymq.logs import Logs

#: A log file is rotated at this size, and so many old ones are kept.
LOG_BYTES = 10 * 1024 * 1024
LOG_FILES = 10

#: Options that name a setting: option, setting.
_SETTINGS = (
    ("data", "storage.data"),
    ("http", "web.listen"),
    ("name", "broker.name"),
    ("role", "cluster.role"),
    ("zone", "cluster.zone"),
    ("log-format", "logging.format"),
    ("log-level", "logging.level"),
)


class Options(usage.Options):
    """The command line of the daemon; every other setting is in the file."""

    synopsis = "[options]"
    longdesc = (
        "A durable message broker with a dashboard. Settings come from --config FILE (TOML), "
        "from the environment (TINYMQ_STORAGE_DATA=...) and from these options, the later "
        "ones winning. `tinymq config` prints all settings."
    )
    optParameters = [
        ["config", "c", None, "A TOML file with settings."],
        ["data", "d", None, "The folder that holds everything. [default: ./data]"],
        [
            "http",
            None,
            None,
            "Endpoint of dashboard and HTTP API, or none. [default: tcp:7801:interface=127.0.0.1]",
        ],
        ["name", None, None, "This broker's name. [default: tinymq]"],
        [
            "role",
            None,
            None,
            "What runs here: all, meta (MetaServer and dashboard), or broker. [default: all]",
        ],
        [
            "meta",
            None,
            None,
            "HOST:PORT[,HOST:PORT] of the MetaServer that a broker belongs to.",
        ],
        ["zone", None, None, "Where this broker stands, such as a data centre."],
        ["log-format", None, None, "text or json. [default: text]"],
        ["log-level", None, None, "debug, info, warn, error or critical. [default: info]"],
    ]
    optFlags = [
        ["insecure", None, "Let listeners be reached from other machines, with no authentication."],
    ]

    def __init__(self) -> None:
        usage.Options.__init__(self)
        self.listen: list[str] = []
        self.settings: dict[str, object] = {}

    def opt_listen(self, endpoint: str) -> None:
        """Endpoint where clients connect, such as tcp:7800:interface=127.0.0.1; may be repeated."""
        self.listen.append(endpoint)

    opt_l = opt_listen

    def opt_set(self, assignment: str) -> None:
        """Any other setting, as GROUP.NAME=VALUE; may be given several times."""
        name, separator, value = assignment.partition("=")
        if not separator:
            raise usage.UsageError(f"--set takes GROUP.NAME=VALUE, not {assignment!r}")
        self.settings[name.strip()] = value

    @override
    def parseOptions(self, options: list[str] | None = None) -> None:
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            die(f"{error} (hint: twistd tinymq --help)")

    @override
    def opt_version(self) -> NoReturn:
        """Print the version and exit."""
        print(f"tinymq {__version__}")  # noqa: T201
        raise SystemExit(0)

    def configuration(self) -> Config:
        """
        Return the configuration that file, environment and options give.

        Raises:
            ConfigError: A setting is wrong.
        """
        overrides = dict(self.settings)
        overrides.update({setting: self[name] for name, setting in _SETTINGS if self[name]})
        if self.listen:
            overrides["network.listen"] = tuple(self.listen)
        if self["meta"]:
            overrides["cluster.meta"] = tuple(self["meta"].split(","))
        if self["insecure"]:
            overrides["network.insecure"] = True
        config = load(self["config"], os.environ, overrides)
        if config.cluster.role == "broker" and (self["http"] or "none") != "none":
            raise ConfigError("a broker has no dashboard, its MetaServer has: leave out --http")
        return config


def makeService(options: Options, reactor: Any = None) -> IService:
    """
    Make the broker's service.

    Args:
        options: The parsed command line.
        reactor: Twisted's reactor; the global one when not given.

    Returns:
        The root service. It opens the data folder when it is started, after a
        daemon has forked.
    """
    try:
        config = options.configuration()
    except TinyMQError as error:
        die(str(error))
    if reactor is None:
        from twisted.internet import reactor as installed

        # Twisted measures time by the wall clock; deadlines must not move
        # when somebody sets it.
        reactor = installed
        reactor.seconds = time.monotonic
    from tinymq.process import tune
    from tinymq.service import BrokerService

    reactor.callWhenRunning(tune)
    output = _log_output(options)
    _listen_to_signals(output)
    logs = Logs(output, config.logging.format, config.logging.level)
    return BrokerService(reactor, config, logs)


def die(reason: str) -> NoReturn:
    """End the process with one clear line."""
    sys.stderr.write(f"tinymq: error: {reason}\n")
    raise SystemExit(1)


def _listen_to_signals(output: TextIO) -> None:
    """Let HUP open the log file anew, for logrotate, and USR1 rotate it, as twistd does."""
    for name, method in (("SIGHUP", "reopen"), ("SIGUSR1", "rotate")):
        number = getattr(signal, name, None)
        if number is not None:
            act = getattr(output, method, None)
            signal.signal(number, lambda *_, act=act: act() if act else None)


def _log_output(options: Options) -> TextIO:
    """Where twistd's own options send log lines."""
    twistd: Any = options.parent or {}
    path = twistd.get("logfile") or ("" if twistd.get("nodaemon", True) else "twistd.log")
    if path in ("", "-"):
        return sys.stdout
    log: TextIO = LogFile.fromFullPath(
        str(Path(path).absolute()), rotateLength=LOG_BYTES, maxRotatedFiles=LOG_FILES
    )
    return log
