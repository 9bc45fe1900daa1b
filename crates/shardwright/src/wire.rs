//! Opens a file, picks a backend, makes an executor or an engine.
