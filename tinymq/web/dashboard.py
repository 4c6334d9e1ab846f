"""The dashboard: every page, on one Klein app."""

from __future__ import annotations

from tinymq.web.actions import Actions
from tinymq.web.api_page import ApiPage
from tinymq.web.broker_pages import BrokerPages
from tinymq.web.channel_actions import ChannelActions
from tinymq.web.channel_moves import ChannelMoves
from tinymq.web.client_pages import ClientPages
from tinymq.web.deadletter_pages import DeadLetterPages
from tinymq.web.delayed_steps import DelayedSteps
from tinymq.web.exchange_actions import ExchangeActions
from tinymq.web.finding import Finding
from tinymq.web.group_moves import GroupMoves
from tinymq.web.inflight_pages import InFlightPages
from tinymq.web.pages import Pages
from tinymq.web.push_pages import PushPages
from tinymq.web.schedule_pages import SchedulePages
from tinymq.web.transaction_pages import TransactionPages


class Dashboard(
    Pages,
    BrokerPages,
    ClientPages,
    ChannelActions,
    ChannelMoves,
    InFlightPages,
    DeadLetterPages,
    DelayedSteps,
    SchedulePages,
    ExchangeActions,
    PushPages,
    GroupMoves,
    TransactionPages,
    Finding,
    ApiPage,
    Actions,
):
    """All pages. Its `app` finds the method that an address belongs to."""
