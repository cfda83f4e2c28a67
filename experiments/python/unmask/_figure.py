"""What a figure of a study is in Python."""

import io
import pathlib
import tempfile

from unmask import _tables


class Figure:
    """A figure of a study, drawn: a notebook shows it. `table` has its values as a DataFrame, `paper` the paper's numbers beside
    ours (None: there are none), `svg`, `png` and `pdf` its drawings (None: nothing drew it), `text` what the command printed."""

    def __init__(self, name, text, contents):
        self.name, self.text, self._contents = name, text, contents
        self.svg, self.png, self.pdf = contents.get(".svg"), contents.get(".png"), contents.get(".pdf")
        self.svg = self.svg.decode() if self.svg is not None else None

    def _read(self, ending):
        content = self._contents.get(ending)
        return None if content is None else _tables.needed("pandas", "a figure's table").read_csv(io.BytesIO(content))

    @property
    def table(self):
        return self._read(".csv")

    @property
    def paper(self):
        return self._read("-paper.csv")

    def save(self, path):
        """Writes the drawing or the table that the path's ending names: .svg, .png, .pdf or .csv."""
        content = self._contents.get(pathlib.Path(path).suffix)
        if content is None:
            raise _tables.UsageError(f"save: {path} ends with none of {', '.join(e for e in self._contents if e.startswith('.'))}")
        pathlib.Path(path).write_bytes(content)

    def _repr_svg_(self):
        return self.svg

    def __repr__(self):
        return f"<Figure {self.name}: {', '.join(self._contents)}>"


def figures_of(draw, out):
    """Figures of what `draw(folder)` writes into a folder, which is `out`, or one that goes with the call."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(out if out is not None else scratch)
        before = {path: path.stat().st_mtime_ns for path in folder.glob("*")} if folder.exists() else {}
        text = draw(folder)
        new = sorted(path for path in folder.glob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns)
        names = [path.name[:-len(".csv")] for path in new if path.suffix == ".csv" and not path.name.endswith("-paper.csv")]
        found = []
        for name in names:
            contents = {path.name[len(name):]: path.read_bytes() for path in new if path.name.startswith(name + ".") or (
                path.name.startswith(name + "-paper."))}
            found.append(Figure(name, text, contents))
    return found
