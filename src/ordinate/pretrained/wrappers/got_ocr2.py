"""GOT-OCR 2.0."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ordinate.pretrained._wrapper import Wrapper


class GotOcr2(Wrapper):
    """GOT-OCR 2.0, which reads texts in images, around a qwen2.

    Source: Wei et al. 2024, https://arxiv.org/abs/2409.01704.
    """

    model_type = "got_ocr2"
    causal_lm_class = "GotOcr2ForConditionalGeneration"
    base_class = "GotOcr2Model"
    text_type = "qwen2"
    text_defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 151_860,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "hidden_act": "silu",
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "rope_theta": 1e6,
        "rope_parameters": None,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 21,
    }
