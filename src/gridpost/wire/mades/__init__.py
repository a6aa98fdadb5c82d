"""Internal messages of IEC 62325-503 as they travel: metadata XML inside an AMQP 1.0 message."""
