"""Who generates: the embedded engine, vLLM, servers, and pools of engines on many machines."""
