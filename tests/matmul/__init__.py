"""Contract tests of `gemmulate.matmul`, written from the specification alone and run on every engine."""
