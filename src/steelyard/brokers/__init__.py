"""Streams of message brokers: Kafka, NATS JetStream, Redis streams and MQTT.

A :class:`Source` reads the messages of a topic from a position; a :class:`Sink` sends messages with stable
ids. There is one module per client library. ``payloads`` parses messages into rows, ``consumer`` feeds a
served model and saves the position in the transaction that saves the rows, and ``table`` lets
``steelyard stream`` read a topic as a table.
"""

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source, open_sink, open_source

__all__ = ["Address", "BrokerError", "Message", "Sink", "Source", "open_sink", "open_source"]
