"""The tensors of a language model inside the checkpoint of a larger model, by the names that it has alone."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from ordinate.core.checks import need
from ordinate.pretrained._wrapper import Wrapper
from ordinate.pretrained.checkpoint_files import SizedTensors


class WrappedTensors(SizedTensors):
    """Mapping from name to tensor of the language model.

    Args:
        stored: the tensors of the checkpoint.
        wrapper: the larger model.
        prefix: of the language model's names, where it is alone and has a head.
        text: the config.json of the language model.

    Raises:
        ValueError: no tensor of a language model, or one that is stored under an earlier and a current name.
    """

    def __init__(self, stored: SizedTensors, wrapper: Wrapper, prefix: str, text: Mapping[str, Any]) -> None:
        self.default_dtype, self.activations = stored.default_dtype, stored.activations
        self._whole, self._stored, self._transposed = stored, dict[str, str](), set[str]()
        unread: list[str] = []
        for name in stored:
            own = wrapper.text_name(name, prefix)
            if own is None:
                unread.append(name)
                continue
            twice = f"{name} and {self._stored.get(own)} are the same one"
            need(own not in self._stored, "a tensor must be stored under one name", twice, "remove one of them")
            self._stored[own] = name
            if wrapper.transposed(own, stored.shape(name), text):
                self._transposed.add(own)
        must = f"the checkpoint of a {wrapper.model_type} must have the tensors of a language model"
        need(bool(self._stored), must, "got none", "download it again")
        parts = Counter(name.removeprefix("model.").partition(".")[0] for name in unread)
        listed = ", ".join(f"{part} ({count} tensors)" for part, count in sorted(parts.items())) or "nothing"
        self.unread = f"only the language model of a {wrapper.model_type} is read; not read: {listed}"

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._whole[self._stored[name]]
        return tensor.mT.contiguous() if name in self._transposed else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def shape(self, name: str) -> tuple[int, ...]:
        size = self._whole.shape(self._stored[name])
        return (*size[:-2], size[-1], size[-2]) if name in self._transposed else size
