//! The event loop that joins transports, protocols and the key-value engine.
