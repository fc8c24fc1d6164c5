"""Streams of message brokers: Kafka, NATS JetStream, Redis streams and MQTT.

A :class:`Source` reads messages from a position, a :class:`Sink` sends messages with stable ids.
"""

from steelyard.brokers.interface import Address, BrokerError, Message, Sink, Source, open_sink, open_source

__all__ = ["Address", "BrokerError", "Message", "Sink", "Source", "open_sink", "open_source"]
