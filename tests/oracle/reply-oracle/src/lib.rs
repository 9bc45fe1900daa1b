//! Nothing of its own: see `tests/agreement.rs`.
