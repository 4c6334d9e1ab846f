"""Pushing over real sockets on this machine, which the setting push.allow allows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from time import time
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred, succeed
from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS
from twisted.internet.task import deferLater
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.conftest import RealReactor
from tinymq.client import Client
from tinymq.embedded import EmbeddedBroker
from tinymq.meta.endpoint import Endpoint
from tinymq.outbound import Allowed
from tinymq.push.guard import Guard
from tinymq.push.request import Parcel
from tinymq.push.sending import Answer, Sender
from tinymq.webhook import new_secret, verify

SECRET = new_secret(bytes(32))
PARCEL = Parcel(
    topic="t",
    channel="c",
    partition=0,
    offset=1,
    attempt=1,
    key=None,
    headers=[],
    value=b"x" * 200_000,
)


class Receiver(Resource):
    """A web server that takes everything."""

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self) -> None:
        super().__init__()
        self.got: list[bytes] = []

    def render_POST(self, request: Any) -> bytes:  # noqa: N802 - Twisted's name
        """Take a message."""
        body: bytes = request.content.read()
        verify(dict(request.requestHeaders.getAllRawHeaders()), body, SECRET)
        self.got.append(body)
        return b"thanks"


def site(receiver: Receiver) -> Any:
    """Make a site that logs nothing."""
    made: Any = Site(receiver)
    made.noisy = False
    return made


def certificate(name: str) -> PrivateCertificate:
    """Make a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    found: PrivateCertificate = PrivateCertificate.loadPEM(text)
    return found


def pause(reactor: Any) -> Deferred[None]:
    """Let other things happen for a moment."""
    return deferLater(reactor, 0.005)


def test_pushing(real: RealReactor, tmp_path: Path) -> None:
    """A broker sends what is published to a server on this machine."""

    async def body(reactor: Any) -> None:
        broker = EmbeddedBroker(reactor, tmp_path, push__allow=("127.0.0.0/8",))
        broker.start()
        receiver = Receiver()
        port = reactor.listenTCP(0, site(receiver), interface="127.0.0.1")
        client = Client(reactor, broker.url)
        await client.admin.create_topic("t", 2)
        await client.admin.create_channel("t", "c")
        url = f"http://localhost:{port.getHost().port}/"
        await client.admin.set_push("t", "c", url, secret=SECRET)
        producer = client.producer()
        sent = [b"%d" % number * 100 for number in range(5)]
        for value in sent:
            await producer.send("t", value, key=value)
        while len(receiver.got) < 5:
            await pause(reactor)
        assert sorted(receiver.got) == sorted(sent)
        assert (await client.admin.test_push("t", "c"))["answer"] == "thanks"
        await client.close()
        await broker.stop()
        await port.stopListening()

    real(body)


@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")  # Twisted does
def test_certificates(real: RealReactor) -> None:
    """A certificate must be of somebody who is trusted, and for the name of the URL."""

    async def body(reactor: Any) -> None:
        receiver, own = Receiver(), certificate("hook.example")
        serving: Any = TLSMemoryBIOFactory(own.options(), False, site(receiver), reactor)
        port = reactor.listenTCP(0, serving, interface="127.0.0.1")
        number = port.getHost().port

        async def post(name: str, *, trusted: bool) -> Answer:
            def tls(host: str) -> Any:
                trust = Certificate(own.original)
                return optionsForClientTLS(host, trustRoot=trust if trusted else None)

            def resolve(host: str) -> Deferred[list[str]]:
                return succeed(["127.0.0.1"])

            guard = Guard(reactor, Allowed.of(["127.0.0.1"]), resolve, tls)
            url = f"https://{name}:{number}/"
            sender = Sender(guard, Endpoint(channel="c", url=url, secret=SECRET))
            try:
                return await sender.post(PARCEL, round(1000 * time()))
            finally:
                sender.close()

        assert (await post("hook.example", trusted=True)).ok
        stranger = await post("hook.example", trusted=False)
        wrong = await post("other.example", trusted=True)
        assert (stranger.status, wrong.status) == (None, None)
        assert "certificate" in stranger.error
        assert stranger.error.startswith("TLS: ")
        assert wrong.error.startswith("TLS: ")
        assert receiver.got == [PARCEL.value]
        for _ in range(5):
            await pause(reactor)
        await port.stopListening()

    real(body)
