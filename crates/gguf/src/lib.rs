//! GGUF files: reading, writing, and every quantized block format.
