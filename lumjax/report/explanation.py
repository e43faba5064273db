"""What `explain` returns."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lumjax.errors import ArgumentTypeError
from lumjax.record import record
from lumjax.report import html, text
from lumjax.report.comparison import Comparison

if TYPE_CHECKING:
    from lumjax.executable import Executable
    from lumjax.insight import Insight


@record(eq=False, repr=False)
class Explanation:
    """The report on one compiled function.

    `print` it, `save` it as a file, `compare` it with another. `insight` has the data behind it and
    `executable` the program itself.
    """

    name: str
    insight: Insight
    executable: Executable

    @property
    def text(self) -> str:
        """The report as text."""
        return text.report(self.name, self.insight)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one HTML page that needs nothing else, also written to `path` if given.

        >>> import lumjax, lumjax.numpy as jnp
        >>> page = lumjax.explain(lambda x: jnp.sum(x * 2), jnp.ones(8)).html()
        >>> page.startswith("<!doctype html>"), "<script" in page
        (True, False)
        """
        page = html.report(self.name, self.insight)
        if path is not None:
            _write(path, page)
        return page

    def _repr_html_(self) -> str:
        """The page in a notebook."""
        return html.framed(self.html())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report: as HTML where the name ends in .html or .htm, else as text.

        >>> import os, tempfile, lumjax, lumjax.numpy as jnp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "report.html")
        ...     lumjax.explain(lambda x: x + 1, jnp.ones(3)).save(path)
        ...     os.path.exists(path)
        True
        """
        page = str(os.fspath(path)).lower().endswith((".html", ".htm"))
        _write(path, self.html() if page else self.text + "\n")

    def compare(self, other: Explanation) -> Comparison:
        """What `other` does differently: kernels, rules, predictions, memory.

        >>> import lumjax, lumjax.numpy as jnp
        >>> a = lumjax.explain(lumjax.jit(lambda x: x + 1, search=0), jnp.ones(3))
        >>> "kernels" in str(a.compare(lumjax.explain(lambda x: x + 2, jnp.ones(3))))
        True
        """
        if not isinstance(other, Explanation):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentTypeError(
                operation="compare",
                required="another report",
                got=f"{other!r} of type {type(other).__name__}",
                fix="pass what lumjax.explain returned",
            )
        return Comparison(self.name, self.insight, other.name, other.insight)


def _write(path: str | os.PathLike[str], content: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
