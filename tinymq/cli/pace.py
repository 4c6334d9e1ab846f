"""How fast a channel goes, in columns and in words: its lag, and where that is going."""

from __future__ import annotations

from typing import Any, Final

from tinymq.cli.output import Column, Row, key
from tinymq.cli.values import human_span, iso


def span(milliseconds: float) -> str:
    """Write a length of time that is counted in milliseconds."""
    return human_span(milliseconds / 1000)


def per_second(value: float) -> str:
    """Write a rate."""
    return f"{value:.1f}/s"


def trend(value: float) -> str:
    """Write by how much something grows, or shrinks."""
    return f"{value:+.1f}/s" if abs(value) >= 0.05 else "0/s"


def rate(name: str) -> Any:
    """Take one of the rates of a row."""
    return lambda row: (row.get("rates") or {}).get(name)


def eta(row: Row) -> str | None:
    """Say when nothing will be left."""
    if row.get("clear_ms") is not None:
        return span(row["clear_ms"])
    return "grows" if (row.get("trend_s") or 0) > 0 else None


def state(row: Row) -> str | None:
    """Say how a channel stands, and if it is paused until when and why."""
    paused = row.get("paused")
    if not paused:
        return row["state"].replace("_", " ") if row.get("state") else None
    until = "" if paused["until_ms"] is None else f" until {iso(paused['until_ms'])}"
    return f"paused{until}" + (f": {paused['reason']}" if paused["reason"] else "")


def why(row: Row) -> str | None:
    """Say in words why a channel does not do more; the first cause."""
    causes = row.get("why") or ()
    return causes[0]["text"] if causes else None


def lag(row: Row) -> str:
    """Say how far a channel is behind: messages, age, trend, and until when."""
    told = [f"{row['lag']}"]
    if row.get("lag_ms") is not None:
        told.append(f"oldest {span(row['lag_ms'])}")
    if row.get("trend_s") is not None:
        told.append(trend(row["trend_s"]))
    if row.get("clear_ms") is not None and row["lag"]:
        told.append(f"clear in {span(row['clear_ms'])}")
    return ", ".join(told)


AGE: Final = Column("AGE", key("lag_ms"), span, right=True)
TREND: Final = Column("TREND", key("trend_s"), trend, right=True)
ETA: Final = Column("ETA", eta, right=True)
WHY: Final = Column("WHY", why, wide=True)
