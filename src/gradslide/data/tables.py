"""Tables of one site's rows, from files or from memory, as NumPy columns."""

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gradslide._support.errors import InputError, MissingPackageError, kind_of, nearest, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.data.svmlight import read_text

Kind = Literal["number", "boolean", "text", "date", "other"]

_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".")
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
_COMMA_NUMBER = r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?")
_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
_BLOCK = 1 << 26  # bytes of CSV parsed at a time; a row must fit
_EXACT = 2**53  # float64 holds every integer up to here
_LARGEST = 2**64  # integers end here


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Attributes
    ----------
    kind : {"number", "boolean", "text", "date", "other"}
        A column with no entry at all is one of numbers.
    values : ndarray
        Numbers and booleans (0 or 1) are float64, NaN where missing. All others are Python strings,
        "" where missing; those of dates and of other kinds are for messages only.
    is_missing : ndarray
        bool, of the shape of values.
    is_whole : bool
        The numbers have an integer type in the source.
    """

    kind: Kind
    values: Array
    is_missing: Array
    is_whole: bool = False

    def texts(self) -> Array:
        """Return every entry as text: 1 and 1.0 are "1", booleans "true" or "false", missing entries ""."""
        if self.kind == "number":
            texts = _objects([_number_text(value) for value in self.values.tolist()])
        elif self.kind == "boolean":
            texts = np.where(self.values == 1, "true", "false").astype(object)
        else:
            texts = self.values.copy()
        texts[self.is_missing] = ""
        return texts

    def take(self, rows: Array) -> "Column":
        """Return these rows, given by number or by a mask."""
        return Column(self.kind, self.values[rows], self.is_missing[rows], self.is_whole)


@dataclass(frozen=True, eq=False)
class Table:
    """A table of one site's rows.

    Attributes
    ----------
    source : str
        The file's name, or the kind of object, for messages.
    columns : dict
        `Column` by name, in the order of the source.
    n : int
        Number of rows.
    """

    source: str
    columns: dict[str, Column]
    n: int

    def take(self, rows: Array) -> "Table":
        """Return these rows, given by number or by a mask."""
        columns = {name: column.take(rows) for name, column in self.columns.items()}
        return Table(self.source, columns, len(np.arange(self.n)[rows]))

    def column(self, name: str) -> Column:
        """Return a column by name.

        Raises
        ------
        InputError
            There is none of that name.
        """
        if name in self.columns:
            return self.columns[name]
        best = nearest(name, self.columns)
        close = dict.fromkeys([*([best] if best else []), *difflib.get_close_matches(name, self.columns)])
        first, rest = list(self.columns)[:10], len(self.columns) - 10
        listed = ", ".join(first) + (f" and {rest} more" if rest > 0 else "")
        remedy = f"did you mean {' or '.join(map(repr, close))}?" if close else f"its columns are {listed}"
        rule = "a table must have the columns that are asked for"
        raise InputError(rule, f"{self.source}, which has no {name!r}", remedy)


@checked_arguments
def read_table(source: object, folder: Path | None = None) -> Table:
    """Read a table from a file or from memory.

    Files are CSV (.csv, with commas or semicolons; .tsv and .txt, with tabs), Parquet (.parquet, .pq)
    and Arrow (.arrow, .feather, .ipc); each may be compressed, as in .csv.gz. In a CSV file, white
    space around an entry does not count, and these mean a missing entry: nothing, NA, N/A, NaN, nan,
    null, NULL, None and a dot. A file with semicolons may have decimal commas. In all tables, empty
    texts and NaN are missing, and the index of a pandas DataFrame is dropped, also one in a file.

    Parameters
    ----------
    source : str, path-like, DataFrame, pyarrow.Table, dict or Table
        The file, a DataFrame of pandas or polars, or arrays by column name. A `Table` is returned as
        it is.
    folder : Path, optional
        The folder that a relative path starts from; by default the working directory.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        The source is no table, or cannot be read.
    MissingPackageError
        The source is no dict, and pyarrow is not installed.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, Mapping):
        return _from_arrays(source)
    is_path = isinstance(source, str | os.PathLike)
    require(
        is_path or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"),
        "a table must be a path, a DataFrame, a pyarrow table or a dict of arrays",
        kind_of(source),
        "convert it to one of these; collect a LazyFrame first",
    )
    try:
        import pyarrow as pa
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "tables need pyarrow", "none installed", "in a checkout of gradslide: pip install '.[tables]'"
        ) from error
    if isinstance(source, str | os.PathLike):
        path = Path(folder or "") / Path(source).expanduser()
        return _from_arrow(_read_file(path), path.name)
    name = "pyarrow table" if type(source).__module__.startswith("pyarrow") else "DataFrame"
    try:
        table = _without_index(pa.table(source))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"a {name} must have named columns of one type each", _said(error), "correct that column or leave it out"
        ) from error
    return _from_arrow(table, name)


def _read_file(path: Path) -> Any:
    """Return the content of a file as a pyarrow table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    require(not path.is_dir(), "a table must be one file", f"the folder {path}", "name a file in it")
    *before, ending = ["", *(suffix.lower() for suffix in path.suffixes)]
    if ending in (".gz", ".bz2", ".xz"):
        ending = before[-1]
    known = (*_DELIMITERS, *_PARQUET, *_ARROW)
    require(
        ending in known,
        f"a table's file must end in {', '.join(known)}",
        path.name,
        "save it as CSV or Parquet and name it so",
    )
    try:
        content = read_text(path)
    except OSError as error:
        raise InputError(
            "a table must be a file that can be read", f"{path}: {error.strerror}", "check its path and permissions"
        ) from error
    if ending in _DELIMITERS:
        return _read_csv(content, path.name, _DELIMITERS[ending])
    buffer = pa.BufferReader(content)
    try:
        if ending in _PARQUET:
            table = pq.ParquetFile(buffer).read()
        else:
            table = (pa.ipc.open_file if content.startswith(b"ARROW1") else pa.ipc.open_stream)(buffer).read_all()
        table.validate(full=True)
        return _without_index(table)
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = "Parquet" if ending in _PARQUET else "Arrow"
        raise InputError(f"{path.name} must be a whole {kind} file", _said(error), "write it again") from error


def _read_csv(content: bytes, name: str, delimiter: str) -> Any:
    """Return the content of a CSV file as a pyarrow table."""
    import pyarrow as pa
    import pyarrow.csv as csv

    line = re.search(rb"[^\r\n]+", content)
    if line is None:
        raise InputError(
            f"{name} must have a header", "an empty file", "write the names of the columns in its first line"
        )
    header = line[0].decode("utf-8", "replace")
    _require_utf8("\0" not in header and "\ufffd" not in header, name, "the header")
    bare = re.sub(r'"[^"]*"', "", header)  # without quoted names
    has_semicolons = delimiter == "," and ";" in bare and "," not in bare
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),  # with threads, errors name no row
            parse_options=csv.ParseOptions(delimiter=";" if has_semicolons else delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(null_values=_MISSING),
        )
    except (pa.ArrowException, ValueError) as error:
        raise InputError(
            f"{name} must have as many entries in each row as in its header",
            _said(error),
            "correct that row; an entry with the delimiter in it needs quotes",
        ) from error
    for field in table.schema:
        _require_utf8(field.type != pa.binary(), name, f"the column {field.name!r}")
    texts = [place for place, field in enumerate(table.schema) if field.type == pa.string()]
    last = [table.column(place)[-1].as_py() or "" for place in texts] if table.num_rows else []
    require(
        content.count(b'"') % 2 == 0 or not any("\n" in text for text in last),  # it would take all rows to the end
        f"{name} must close every quote",
        f"an open one in row {table.num_rows}",
        "add the missing quote",
    )
    before = table
    for place in texts:
        table = table.set_column(place, table.field(place).name, _reread(table.column(place), has_semicolons))
    if has_semicolons:
        _require_one_decimal_point(name, before, table)
    return table


def _require_utf8(holds: bool, name: str, place: str) -> None:
    require(holds, f"{name} must be UTF-8", f"another encoding in {place}", "save it as UTF-8 ('CSV UTF-8' in Excel)")


def _reread(values: Any, decimal_commas: bool) -> Any:
    """Strip a column of text in a CSV file; it may hold numbers or booleans then."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.utf8_trim_whitespace(values)
    values = pc.if_else(pc.is_in(values, pa.array(_MISSING)), None, values)
    numerals = values
    if decimal_commas and pc.all(pc.match_substring_regex(values, _COMMA_NUMBER)).as_py():
        numerals = pc.replace_substring(values, ",", ".")
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            return numerals.cast(kind)
        except pa.ArrowInvalid:
            continue
    return values


def _require_one_decimal_point(source: str, before: Any, after: Any) -> None:
    """Refuse a file in which some numbers have decimal commas, and others dots: those may be of thousands."""
    import pyarrow as pa
    import pyarrow.compute as pc

    dotted = [field.name for field in before.schema if pa.types.is_floating(field.type)]
    has_commas = any(
        pa.types.is_string(old.type) and pa.types.is_floating(new.type) and pc.any(pc.match_substring(old, ",")).as_py()
        for old, new in zip(before.columns, after.columns, strict=True)
    )
    rule, remedy = "a file with decimal commas must have no numbers with dots", "write all numbers in one way"
    got = f"{source}, with dots in {', '.join(map(repr, dotted[:3]))}"
    require(not (has_commas and dotted), rule, got, remedy)


def _without_index(table: Any) -> Any:
    """Drop the index of a pandas DataFrame, which pandas keeps as columns unless it counts the rows."""
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return table.select([place for place, name in enumerate(table.column_names) if name not in index])


def _from_arrow(table: Any, source: str) -> Table:
    columns = zip(table.column_names, table.columns, strict=True)
    return _table(source, [(name, _arrow_column(values)) for name, values in columns])


def _arrow_column(values: Any) -> Column:
    import pyarrow as pa

    is_a, kind = pa.types, values.type
    strings = (pa.string(), pa.large_string(), pa.string_view())
    if is_a.is_dictionary(kind):
        entry = pa.large_string() if kind.value_type in strings else kind.value_type
        chunks = [chunk.dictionary.cast(entry).take(chunk.indices) for chunk in values.chunks]
        return _arrow_column(pa.chunked_array(chunks, type=entry))
    missing = np.array(values.is_null(nan_is_null=True).to_numpy())
    if is_a.is_decimal(kind) and kind.scale <= 0:
        try:
            values, kind = values.cast(pa.int64()), pa.int64()
        except pa.ArrowInvalid:  # beyond 64 bits
            return _column("other", values.cast(pa.large_string()).fill_null("").to_numpy(), missing)
    if is_a.is_integer(kind):
        return _integers(values.fill_null(0).to_numpy(), missing)
    if is_a.is_boolean(kind):
        return _column("boolean", values.cast(pa.float64()).to_numpy(), missing)
    if is_a.is_floating(kind) or is_a.is_decimal(kind):
        return _column("number", values.cast(pa.float64()).to_numpy(), missing)
    try:
        texts = values.cast(pa.large_string()).fill_null("").to_numpy()
    except pa.ArrowException:  # a list, say
        texts = np.full(len(values), str(kind), dtype=object)
    if kind in strings:
        return _text(texts)
    return _column("date" if is_a.is_temporal(kind) else "other", texts, missing)


def _from_arrays(arrays: Mapping[Any, Any]) -> Table:
    """Read a dict of arrays, without pyarrow."""
    source = "dict of arrays"
    columns = []
    for name, values in arrays.items():
        require(isinstance(name, str), f"the keys of a {source} must be the names", kind_of(name), "use strings")
        array = _objects(values) if isinstance(values, list | tuple) else np.asarray(values)
        require(
            array.ndim == 1,
            f"each array of a {source} must have one dimension",
            f"{array.ndim} for {name!r}",
            "make each column an array of its own",
        )
        columns.append((name, _array_column(array, np.ma.getmaskarray(values) if np.ma.isMA(values) else False)))
    lengths = {name: len(column.values) for name, column in columns}
    require(
        len(set(lengths.values())) <= 1,
        f"the arrays of a {source} must have the same length",
        lengths,
        "give one entry per row, None where it is missing",
    )
    return _table(source, columns)


def _array_column(array: Array, masked: Array | bool) -> Column:
    kind = array.dtype.kind
    if kind in "biuf":
        missing = np.isnan(array) | masked
        if kind in "iu":
            return _integers(array, missing)
        return _column("boolean" if kind == "b" else "number", array, missing)
    if kind in "mM":
        return _column("date", array.astype(str).astype(object), np.isnat(array) | masked)
    entries = array.tolist()
    missing = np.array([_is_missing(entry) for entry in entries], dtype=bool) | masked
    present = _objects(entries)[~missing].tolist()

    def filled(filler: object) -> Array:
        return _objects([filler if gone else entry for entry, gone in zip(entries, missing, strict=True)])

    if _all_are(present, str):
        return _text(filled(""))
    if _all_are(present, bool | np.bool_):
        return _column("boolean", filled(np.nan), missing)
    if not any(isinstance(entry, bool) for entry in present):
        if _all_are(present, Integral):
            return _integers(filled(0), missing)
        if _all_are(present, Real | Decimal):
            return _column("number", filled(np.nan), missing)
    are_dates = _all_are(present, date | time | timedelta | np.datetime64 | np.timedelta64)
    return _column("date" if are_dates else "other", filled(""), missing)


def _all_are(entries: Sequence[object], kind: Any) -> bool:
    return all(isinstance(entry, kind) for entry in entries)


def _is_missing(entry: Any) -> bool:
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):  # pandas'
        return True
    if isinstance(entry, str):
        return entry == ""
    return isinstance(entry, float | np.floating | Decimal | np.datetime64 | np.timedelta64) and bool(entry != entry)


def _integers(values: Array, missing: Array) -> Column:
    """Return integers as numbers if float64 holds each exactly, else as strings of their digits."""
    large = values[(values > _EXACT) | (values < -_EXACT)].tolist()
    if all(abs(value) <= _LARGEST and int(float(value)) == value for value in large):
        return _column("number", values, missing, is_whole=True)
    return _column("other", values, missing)


def _text(values: Array) -> Column:
    missing = values == ""
    is_date = all(_DATE.fullmatch(text) for text in values[~missing])
    return _column("date" if is_date else "text", values, missing)


def _column(kind: Kind, values: Array, missing: Array, *, is_whole: bool = False) -> Column:
    if missing.all():
        return Column("number", np.full(len(values), np.nan), missing, is_whole)
    if kind in ("number", "boolean"):
        values = np.array(values, dtype=np.float64)
        values[missing] = np.nan
    else:
        values = _objects([str(value) for value in values.tolist()])
        values[missing] = ""
    return Column(kind, values, missing, is_whole)


def _table(source: str, columns: Sequence[tuple[str, Column]]) -> Table:
    """Check the names and the number of rows."""
    names = [name.strip() for name, _ in columns]
    require(len(names) > 0, f"{source} must have columns", "none", "add one")
    require(
        "" not in names,
        f"{source} must have a name for each column",
        f"none for column {names.index('') + 1 if '' in names else 0}",
        "write its name; pandas writes an index without a name unless told index=False",
    )
    name, times = Counter(names).most_common(1)[0]
    require(times == 1, f"{source} must have a column once", f"{name!r} {times} times", "rename or drop the others")
    n = len(columns[0][1].values)
    require(n > 0, f"{source} must have rows", "none", "add at least one")
    return Table(source, {name: column for name, (_, column) in zip(names, columns, strict=True)}, n)


def _objects(entries: Iterable[object]) -> Array:
    """Return an array of these objects, which may be sequences themselves."""
    return np.fromiter(entries, dtype=object)


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) <= _LARGEST else repr(value)


def _said(error: BaseException) -> str:
    """Return pyarrow's words on one line."""
    text = " ".join(", ".join(map(str, error.args)).split())
    return text if len(text) <= 300 else text[:297] + "..."
