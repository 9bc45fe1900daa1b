//! Decides which tokens run in the next step, and what comes of them.
