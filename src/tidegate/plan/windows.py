"""Window specifications: frozen values that say which rows belong together."""

from dataclasses import dataclass

from tidegate.plan.time import Micros, render


@dataclass(frozen=True)
class Hopping:
    """Windows `[k·slide + offset, + size)`; a tumbling window is one whose slide is its size."""

    size: Micros
    slide: Micros
    offset: Micros = Micros(0)

    @property
    def tumbling(self) -> bool:
        return self.size == self.slide

    def __str__(self) -> str:
        offset = f", offset={render(self.offset)}" if self.offset else ""
        if self.tumbling:
            return f"tumbling({render(self.size)}{offset})"
        return f"hopping({render(self.size)}, {render(self.slide)}{offset})"


Window = Hopping
