"""The Capacity Management Module: requests, allocations and broadcasts over RabbitMQ."""
