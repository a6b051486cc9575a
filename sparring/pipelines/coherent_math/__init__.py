"""Mathematics: SFT, eleven-arm rollouts, coherence, DPO, GSM8K."""
