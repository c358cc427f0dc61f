//! One seeded simulator: crash campaigns over the heap and the key-value engine.
