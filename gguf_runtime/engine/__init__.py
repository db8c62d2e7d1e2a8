"""The engine: a model in memory, the steps it makes, sequences, answers and conversations."""
