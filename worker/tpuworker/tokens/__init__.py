"""From text to token ids: which tokenizer, which engine does its work, and the proof that the engine is equal."""
