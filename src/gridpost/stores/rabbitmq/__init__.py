"""The queues of a broker in RabbitMQ, where several edges serve them together."""

from gridpost.stores.rabbitmq.store import RabbitQueueStore, RabbitSettings

__all__ = ["RabbitQueueStore", "RabbitSettings"]
