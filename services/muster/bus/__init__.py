"""NATS: subjects, streams, message types, the client and the embedded server. Services talk to each other only through here."""
