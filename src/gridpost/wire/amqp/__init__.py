"""The message format of AMQP 1.0 (ISO/IEC 19464): types and sections, without a connection."""
