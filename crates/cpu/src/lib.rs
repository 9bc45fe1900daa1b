//! Runs a rank plan on the CPU: the truth that every other backend is compared with.
