"""The administrative calls on exchanges and their bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tinymq.client.core.calls import Calls

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class ExchangeCalls(Calls[R]):
    """Administrative operations on exchanges; every one ends as `operate` does."""

    def create_exchange(
        self,
        name: str,
        kind: str,
        dead_letter: str | None = None,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> R:
        """
        Make a topic an exchange; the topic is made if it is not there.

        Args:
            name: The name of both.
            kind: ``direct``, ``topic``, ``fanout``, ``headers`` or ``rule``.
            dead_letter: Topic for what no binding takes; ``NAME.unroutable`` if not given.
            partitions: How many partitions the topic gets if it is made.
            config: Settings of the topic by dotted name, such as ``retention.ms``.
            dry_run: Check and change nothing.
        """
        return self.operate(
            "exchange.create",
            name=name,
            kind=kind,
            dead_letter=dead_letter,
            partitions=partitions,
            config=dict(config or {}),
            dry_run=dry_run,
        )

    def alter_exchange(self, name: str, dead_letter: str | None, *, dry_run: bool = False) -> R:
        """
        Change where an exchange sends what no binding takes.

        Args:
            name: The exchange.
            dead_letter: The topic; None for ``NAME.unroutable``.
            dry_run: Check and change nothing.
        """
        return self.operate("exchange.alter", name=name, dead_letter=dead_letter, dry_run=dry_run)

    def delete_exchange(self, name: str, *, force: bool = False, dry_run: bool = False) -> R:
        """
        Let an exchange be a plain topic again: its bindings go, its messages stay.

        Args:
            name: The exchange.
            force: Also delete the bindings that lead to it.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("exchange.delete", name=name, force=force, dry_run=dry_run)

    def list_exchanges(
        self,
        filter: str = "",  # noqa: A002 - the API's word
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List exchanges in order of their names.

        Args:
            filter: A glob for names; empty means all.
            after: Where the last answer said that the next page begins.
            limit: Most exchanges in the answer.
        """
        return self.operate("exchange.list", filter=filter, after=after, limit=limit)

    def exchange(self, name: str) -> R:
        """
        Describe an exchange with its first bindings.

        Args:
            name: The exchange.
        """
        return self.operate("exchange.info", name=name)

    def test_exchange(
        self,
        name: str,
        key: str | None = None,
        headers: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        value: str | None = None,
        encoding: str = "string",
    ) -> R:
        """
        Ask where a message would go, through all exchanges; none is published.

        Args:
            name: The exchange.
            key: The message's key.
            headers: Its headers.
            value: Its value.
            encoding: How that is written: ``string`` or ``base64``.
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        return self.operate(
            "exchange.test",
            name=name,
            key=key,
            headers=[list(pair) for pair in pairs],
            value=value,
            encoding=encoding,
        )

    def topology(self, exchange: str | None = None) -> R:
        """
        Tell which exchanges and topics lead where.

        Args:
            exchange: Only what lies before and behind this one.
        """
        return self.operate("exchange.topology", exchange=exchange)

    def bind(
        self,
        exchange: str,
        target: str,
        key: str | None = None,
        *,
        headers: Sequence[str] | None = None,
        rule: str | None = None,
        dry_run: bool = False,
    ) -> R:
        """
        Add a binding to an exchange; one that is there already is no error.

        Args:
            exchange: The exchange.
            target: The topic that it leads to, which may be an exchange.
            key: Of direct exchanges the key; of topic exchanges a pattern of keys.
            headers: Of headers exchanges: conditions such as ``region=eu``; all must hold.
            rule: Of rule exchanges: the rule, in CEL, such as ``json.total > 100``.
            dry_run: Check and change nothing.
        """
        return self.operate(
            "binding.add",
            exchange=exchange,
            target=target,
            key=key,
            headers=None if headers is None else list(headers),
            rule=rule,
            dry_run=dry_run,
        )

    def unbind(self, exchange: str, binding: str, *, dry_run: bool = False) -> R:
        """
        Remove a binding from an exchange.

        Args:
            exchange: The exchange.
            binding: The binding's id.
            dry_run: Say what would go, and change nothing.
        """
        return self.operate("binding.delete", exchange=exchange, id=binding, dry_run=dry_run)

    def list_bindings(
        self,
        exchange: str | None = None,
        target: str | None = None,
        *,
        after: str = "",
        limit: int = 100,
    ) -> R:
        """
        List bindings in order of exchange and id.

        Args:
            exchange: Only those of this exchange.
            target: Only those to this topic.
            after: Where the last answer said that the next page begins.
            limit: Most bindings in the answer.
        """
        return self.operate(
            "binding.list", exchange=exchange, target=target, after=after, limit=limit
        )
