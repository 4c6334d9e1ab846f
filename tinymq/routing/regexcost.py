"""
How large a regular expression becomes when its repetitions are written out.

Matching takes time in proportion to that times the length of the text, whatever the
expression is; so with both bounded, there is no expression that takes long.
"""

from __future__ import annotations

import re
from typing import Final

#: Classes of Unicode have hundreds of ranges, so they cost more than a letter.
_CLASSES: Final = "wWdDsSpPbB"
_CLASS: Final = 10
#: A dot, or a class of all but a few, is ten states in UTF-8, which are told apart by few.
_ANY: Final = 5
_VERBOSE: Final = re.compile(r"\(\?[a-wyzA-Z-]*x")
_COUNT: Final = re.compile(r"\{(\d*)(,?)(\d*)\}")
_DIGITS: Final = 5


def regex_cost(pattern: str) -> int:
    """
    Estimate the size of a regular expression.

    Args:
        pattern: The expression; one that is none gives a number, too.

    Raises:
        ValueError: A number in it has too many digits, or spaces mean nothing in it.
    """
    if _VERBOSE.search(pattern):
        raise ValueError("a regular expression with the flag x is not known here")
    #: What each open group costs so far, and what its last part costs.
    groups: list[list[int]] = [[0, 0]]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        count = _COUNT.match(pattern, at) if character == "{" else None
        if count is not None:
            group = groups[-1]
            group[0] += group[1] * (_times(count) - 1)
            group[1] *= _times(count)
            at = count.end()
            continue
        if character == "[":
            at, cost = _set(pattern, at)
            _add(groups, cost)
            continue
        if character == "(":
            groups.append([0, 0])
        elif character == ")" and len(groups) > 1:
            _add(groups, groups.pop()[0] + 1)
        elif character == "\\":
            at, cost = _escape(pattern, at + 1)
            _add(groups, cost)
            continue
        elif character in "*+?":
            groups[-1][0] += 1
        else:
            _add(groups, _ANY if character == "." else 1)
        at += 1
    return sum(total for total, _ in groups)


def _escape(pattern: str, at: int) -> tuple[int, int]:
    """Return where an escape ends whose letter is here, and what it costs."""
    letter = pattern[at : at + 1]
    at += 1
    if letter and letter in "pP":  # such as pL and p{Greek}
        end = pattern.find("}", at) if pattern[at : at + 1] == "{" else at
        at = max(end, at) + 1
    return at, _CLASS if letter and letter in _CLASSES else 1


def _set(pattern: str, at: int) -> tuple[int, int]:
    """Return where a set of characters ends, and what it costs."""
    cost, depth, first = 1, 0, False
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "[":
            depth += 1
            first = True
            if pattern[at : at + 1] == "^":
                at += 1
                cost += _ANY
            continue
        if character == "]" and not first:
            depth -= 1
            if not depth:
                break
        elif character == "\\":
            at, more = _escape(pattern, at)
            cost += more - 1
        elif character > "\x7f":
            cost += 1
        first = False
    return at, cost


def _add(groups: list[list[int]], cost: int) -> None:
    groups[-1][0] += cost
    groups[-1][1] = cost


def _times(count: re.Match[str]) -> int:
    if len(count.group()) > 2 * _DIGITS:
        raise ValueError("a number in the regular expression has too many digits")
    low, comma, high = int(count.group(1) or 0), count.group(2), int(count.group(3) or 0)
    return max(low + (1 if comma and not high else 0), high, 1)
