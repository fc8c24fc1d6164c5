"""Streams of message brokers: Kafka, NATS JetStream, Redis streams and MQTT.

A :class:`Source` reads messages of a topic from a position, and a :class:`Sink` sends messages with stable
ids; there is one module per client library. ``payloads`` turns messages into rows, ``consumer`` feeds a
served model and saves the position in the transaction that saves the rows, and ``table`` makes a topic a
table for ``steelyard stream``.
"""

from steelyard.brokers.address import Address
from steelyard.brokers.interface import BrokerError, Message, Sink, Source, open_sink, open_source

__all__ = ["Address", "BrokerError", "Message", "Sink", "Source", "open_sink", "open_source"]
