"""Adapter of transformers models that use its AttentionInterface."""

from ordinate.probing.instrumentation.attention_interface import AttentionInterfaceModel


class HFAttentionInterface(AttentionInterfaceModel):
    """Adapter of transformers models whose attention goes through `AttentionInterface`, as in most families."""

    priority = 1
