"""Base models and the policies on them: loading, adapters, export, devices, chat templates."""
