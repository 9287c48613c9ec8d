"""Tables: every format gives the same columns, and what is no table is refused."""

import bz2
import datetime as dt
import gzip
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from gradslide._support.errors import InputError, MissingPackageError
from gradslide.data import tables
from gradslide.data.tables import Table, read_table

CSV = "id,age,weight,smokes,ward,since\n1,30,70.5,true,north,2020-01-02\n2,,NA,,,\n3,50,61,false,south,2021-03-04\n"
KINDS = {"id": "number", "age": "number", "weight": "number", "smokes": "boolean", "ward": "text", "since": "date"}
TEXTS = {
    "id": ["1", "2", "3"],
    "age": ["30", "", "50"],
    "weight": ["70.5", "", "61"],
    "smokes": ["true", "", "false"],
    "ward": ["north", "", "south"],
    "since": ["2020-01-02", "", "2021-03-04"],
}
ROWS = {
    "id": [1, 2, 3],
    "age": [30, None, 50],
    "weight": [70.5, None, 61.0],
    "smokes": [True, None, False],
    "ward": ["north", None, "south"],
    "since": [dt.date(2020, 1, 2), None, dt.date(2021, 3, 4)],
}


def arrow():
    return pa.table(ROWS)


def pandas_frame():
    types = {"age": "Int64", "smokes": "boolean", "ward": "category"}
    return pd.DataFrame(ROWS, index=["p", "q", "r"]).astype(types)


def polars_frame():
    return pl.DataFrame(ROWS).with_columns(pl.col("ward").cast(pl.Categorical))


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ipc(path, opener):
    with opener(str(path), arrow().schema) as writer:
        writer.write_table(arrow())


def pq_bytes():
    pq.write_table(arrow(), sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


FILES = {
    "t.csv": lambda path: write(path, CSV),
    "T.CSV": lambda path: write(path, CSV),
    "bom.csv": lambda path: write(path, b"\xef\xbb\xbf" + CSV.encode()),
    "windows.csv": lambda path: write(path, CSV.replace("\n", "\r\n")),
    "wide.csv": lambda path: write(path, CSV.replace(",", " , ")),
    "quoted.csv": lambda path: write(path, CSV.replace("id", '"id"').replace("north", '"north"')),
    "semicolons.csv": lambda path: write(path, CSV.replace(",", ";")),
    "commas.csv": lambda path: write(path, CSV.replace(",", ";").replace("70.5", "70,5")),
    "t.csv.gz": lambda path: write(path, gzip.compress(CSV.encode())),
    "t.tsv": lambda path: write(path, CSV.replace(",", "\t")),
    "t.txt": lambda path: write(path, CSV.replace(",", "\t")),
    "t.tsv.bz2": lambda path: write(path, bz2.compress(CSV.replace(",", "\t").encode())),
    "t.parquet": lambda path: pq.write_table(arrow(), path),
    "pandas.parquet": lambda path: pandas_frame().to_parquet(path),
    "polars.pq": lambda path: polars_frame().write_parquet(path),
    "t.feather": lambda path: feather.write_feather(arrow(), str(path)),
    "t.arrow": lambda path: ipc(path, pa.ipc.new_file),
    "stream.arrow": lambda path: ipc(path, pa.ipc.new_stream),
    "t.parquet.gz": lambda path: write(path, gzip.compress(pq_bytes())),
    "polars.ipc": lambda path: polars_frame().write_ipc(path),
}
OBJECTS = {
    "pyarrow table": arrow,
    "pyarrow batch": lambda: arrow().to_batches()[0],
    "pandas": pandas_frame,
    "polars": polars_frame,
    "dict": lambda: ROWS,
}


def check(table):
    assert table.n == 3
    assert {name: column.kind for name, column in table.columns.items()} == KINDS
    assert {name: column.texts().tolist() for name, column in table.columns.items()} == TEXTS
    for name, column in table.columns.items():
        assert column.is_missing.dtype == bool
        assert column.is_missing.tolist() == [text == "" for text in TEXTS[name]]
        assert column.is_whole == (name in ("id", "age"))
        numeric = column.kind in ("number", "boolean")
        assert column.values.dtype == (np.float64 if numeric else object)
        if not numeric:
            assert {type(value) for value in column.values} == {str}
    np.testing.assert_array_equal(table.columns["weight"].values, [70.5, np.nan, 61])
    np.testing.assert_array_equal(table.columns["smokes"].values, [1, np.nan, 0])


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_same_table(name, tmp_path):
    FILES[name](tmp_path / name)
    table = read_table(tmp_path / name)
    check(table)
    assert table.source == name


@pytest.mark.parametrize("name", OBJECTS)
def test_every_object_gives_the_same_table(name):
    table = read_table(OBJECTS[name]())
    check(table)
    sources = {"pandas": "DataFrame", "polars": "DataFrame", "dict": "dict of arrays"}
    assert table.source == sources.get(name, "pyarrow table")


def test_paths_are_relative_to_the_folder(tmp_path, monkeypatch):
    write(tmp_path / "t.csv", CSV)
    check(read_table("t.csv", tmp_path))
    check(read_table(str(tmp_path / "t.csv"), tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)
    check(read_table("t.csv"))
    monkeypatch.setenv("HOME", str(tmp_path))
    check(read_table("~/t.csv", tmp_path / "elsewhere"))


def test_a_table_is_returned_as_it_is():
    table = read_table(ROWS)
    assert read_table(table) is table


@pytest.mark.parametrize("name", ["patient", "age", None])
def test_the_index_of_a_data_frame_is_dropped(name, tmp_path):
    frame = pandas_frame().rename_axis(index=name)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_feather(tmp_path / "t.feather")
    for source in (frame, tmp_path / "t.parquet", tmp_path / "t.feather"):
        check(read_table(source))


def test_the_table_does_not_share_the_memory_of_its_source():
    mine = np.array([1.0, 2.0])
    tables = [read_table(source) for source in ({"x": mine}, pa.table({"x": mine}), pl.DataFrame({"x": mine}))]
    mine[0] = 9
    for table in tables:
        assert table.column("x").values.tolist() == [1, 2]
        table.column("x").values[1] = 5
    assert mine[1] == 2


# Columns


def column(values, **options):
    """Read one column of a CSV file, given by its entries, or of an Arrow array."""
    return read_table(pa.table({"x": values}), **options).column("x")


def csv_columns(folder, content, name="t.csv"):
    columns = read_table(write(folder / name, content)).columns
    return {name: (column.kind, column.texts().tolist()) for name, column in columns.items()}


@pytest.mark.parametrize("word", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", '"NA"', "  ", " NA "])
def test_words_for_a_missing_entry(word, tmp_path):
    found = csv_columns(tmp_path, f"i,f,t\n{word},{word},{word}\n7,2.5,seven\n")
    assert found == {"i": ("number", ["", "7"]), "f": ("number", ["", "2.5"]), "t": ("text", ["", "seven"])}


def test_only_files_spell_missing_entries():
    for source in ({"x": ["NA", "b", ""]}, pl.DataFrame({"x": ["NA", "b", ""]})):
        found = read_table(source).column("x")
        assert found.values.tolist() == ["NA", "b", ""]
        assert found.is_missing.tolist() == [False, False, True]


def test_csv_strips_entries_and_names(tmp_path):
    assert csv_columns(tmp_path, " a , b\nx , 1\n y, 2\n") == {"a": ("text", ["x", "y"]), "b": ("number", ["1", "2"])}


def test_csv_keeps_line_breaks_and_delimiters_in_quotes(tmp_path):
    content = 'a,b\n"x\ny",1\n"x,y",2\n"say ""x""",3\n'
    assert csv_columns(tmp_path, content)["a"] == ("text", ["x\ny", "x,y", 'say "x"'])
    assert csv_columns(tmp_path, 'a,b\n1,"x\ny"\n')["b"] == ("text", ["x\ny"])


def test_line_breaks_in_quotes_at_the_end_of_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK", 64)
    content = "a,b\n" + '"x\ny\nz",1\n' * 50
    assert csv_columns(tmp_path, content)["a"] == ("text", ["x\ny\nz"] * 50)


def test_a_longer_row_than_pyarrows_block(tmp_path):
    width = 300_000
    content = ",".join(f"x{i}" for i in range(0, width, 100)) + "\n" + ",".join(["1" * 700] * (width // 100))
    assert len(content) > 1 << 20
    assert read_table(write(tmp_path / "t.csv", content)).n == 1


@pytest.mark.parametrize(
    ("content", "kinds"),
    [
        ("a;b\n1,5;2\n-,25e-1;3\n", {"a": ("number", ["1.5", "-0.025"]), "b": ("number", ["2", "3"])}),
        ("a;b\n1,5;2\n2.5;3\n", {"a": ("text", ["1,5", "2.5"]), "b": ("number", ["2", "3"])}),
        ("a;b\n1,5;2\nNA;3\n", {"a": ("number", ["1.5", ""]), "b": ("number", ["2", "3"])}),
        ("a;b\n1,2,3;2\n", {"a": ("text", ["1,2,3"]), "b": ("number", ["2"])}),
        ("a;b\nx,y;2\n", {"a": ("text", ["x,y"]), "b": ("number", ["2"])}),
        ('"a,b";c\n1,5;2\n', {"a,b": ("number", ["1.5"]), "c": ("number", ["2"])}),
        ('"a;b",c\n"1,5",2\n', {"a;b": ("text", ["1,5"]), "c": ("number", ["2"])}),
        ("a,b;c\n1,2\n", {"a": ("number", ["1"]), "b;c": ("number", ["2"])}),
    ],
)
def test_semicolons_and_decimal_commas(content, kinds, tmp_path):
    assert csv_columns(tmp_path, content) == kinds


def test_tabs_do_not_make_decimal_commas(tmp_path):
    assert csv_columns(tmp_path, "a;b\tc\n1,5\t2\n", "t.tsv")["a;b"] == ("text", ["1,5"])


@pytest.mark.parametrize("entries", ["2020-01-02", "2020-01-02T10:00:00", "2020-01-02 10:00", "2.1.20", "02/01/2020"])
def test_texts_that_look_like_dates(entries, tmp_path):
    assert csv_columns(tmp_path, f"x,y\n{entries},a\n,b\n")["x"][0] == "date"
    for source in ({"x": [entries, None]}, pl.DataFrame({"x": [entries, None]})):
        found = read_table(source).column("x")
        assert (found.kind, found.values.tolist()) == ("date", [entries, ""])
    assert read_table({"x": [entries, "later"]}).column("x").kind == "text"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([dt.datetime(2020, 1, 2)], pa.timestamp("ns")), "2020-01-02 00:00:00.000000000"),
        (pa.array([dt.time(1, 2)], pa.time32("s")), "01:02:00"),
        (pa.array([dt.timedelta(seconds=5)], pa.duration("s")), "5"),
    ],
)
def test_arrow_dates(values, text):
    found = column(values)
    assert (found.kind, found.texts().tolist()) == ("date", [text])


@pytest.mark.parametrize(
    "values",
    [
        np.array(["2020-01-02", "NaT"], dtype="M8[D]"),
        np.array([5, "NaT"], dtype="m8[s]"),
        np.ma.masked_array(np.array(["2020-01-02", "2020-01-02"], dtype="M8[D]"), [False, True]),
        [dt.date(2020, 1, 2), None],
        [pd.Timestamp(2020, 1, 2), pd.NaT],
        [np.datetime64("2020-01-02"), np.datetime64("NaT")],
        [dt.time(1), float("nan")],
    ],
)
def test_dates_in_arrays(values):
    found = read_table({"x": values}).column("x")
    assert found.kind == "date"
    assert found.is_missing.tolist() == [False, True]
    assert found.values[1] == ""


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([[1, 2]]), "list<item: int64>"),
        (pa.array([{"a": 1}]), "struct<a: int64>"),
        (pa.array([b"\xff"]), "binary"),
        (pa.array([2**53 + 1]), str(2**53 + 1)),
        (pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
        (pa.array([-(2**63) + 1]), str(-(2**63) + 1)),
        (pa.array([Decimal(2**53 + 1)], pa.decimal128(20, 0)), str(2**53 + 1)),
        (pa.array([Decimal(10**30)], pa.decimal128(38, 0)), str(10**30)),
    ],
)
def test_other_kinds_in_arrow(values, text):
    found = column(pa.concat_arrays([values, pa.nulls(1, values.type)]))
    assert (found.kind, found.texts().tolist()) == ("other", [text, ""])


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1, "x", None], ["1", "x", ""]),
        ([1, True], ["1", "True"]),
        ([[1, 2], [3, 4]], ["[1, 2]", "[3, 4]"]),
        (np.array([1 + 2j]), ["(1+2j)"]),
        (np.array([b"x"]), ["b'x'"]),
        (np.array([2**53 + 1, 0]), [str(2**53 + 1), "0"]),
        ([2**70, None], [str(2**70), ""]),
        ([10**400], [str(10**400)]),
        (np.ma.masked_array([2**53 + 1, 2**53 + 1], [False, True]), [str(2**53 + 1), ""]),
    ],
)
def test_other_kinds_in_arrays(values, texts):
    found = read_table({"x": values}).column("x")
    assert (found.kind, found.values.tolist()) == ("other", texts)


@pytest.mark.parametrize("whole", [2**53, -(2**53), 2**60, -(2**63), 2**53 + 2])
def test_large_integers_that_are_exact_stay_numbers(whole):
    for source in (pa.table({"x": [whole]}), {"x": np.array([whole])}, {"x": [whole]}):
        found = read_table(source).column("x")
        assert (found.kind, found.is_whole, found.texts()[0]) == ("number", True, str(whole))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, 3], pa.int8()),
        pa.array([1, None, 3], pa.uint64()),
        pa.array([1, None, 3], pa.float16()),
        pa.array([1, float("nan"), 3], pa.float32()),
        pa.array([1, None, 3], pa.decimal128(5, 2)),
        pa.array([1, None, 3], pa.decimal128(5, 0)),
        pa.array([1, None, 3]).dictionary_encode(),
    ],
)
def test_numbers_in_arrow(values):
    found = column(values)
    assert found.kind == "number"
    np.testing.assert_array_equal(found.values, [1, np.nan, 3])
    assert found.texts().tolist() == ["1", "", "3"]
    floats = pa.types.is_floating(values.type) or values.type == pa.decimal128(5, 2)
    assert found.is_whole != floats


@pytest.mark.parametrize(
    ("values", "is_whole"),
    [
        ([1, None, 3], True),
        ([1, float("nan"), np.int64(3)], True),
        ((1.0, None, 3), False),
        ([1, "", 3], True),
        ([Decimal(1), Decimal("NaN"), Decimal(3)], False),
        (np.array([1, np.nan, 3], dtype=np.float32), False),
        (np.ma.masked_array([1, 2, 3], [False, True, False]), True),
        (np.ma.masked_array([1.0, 2, 3], [False, True, False]), False),
        (pd.Series([1, None, 3], dtype=object), True),
        (pl.Series([1, None, 3]), False),
        (pa.chunked_array([[1, None], [3]]), False),
    ],
)
def test_numbers_in_arrays(values, is_whole):
    found = read_table({"x": values}).column("x")
    assert (found.kind, found.is_whole) == ("number", is_whole)
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, [1, np.nan, 3])
    assert found.is_missing.tolist() == [False, True, False]


@pytest.mark.parametrize("values", [[True, None], [np.True_, pd.NA], np.ma.masked_array([True, True], [False, True])])
def test_booleans_in_arrays(values):
    found = read_table({"x": values}).column("x")
    assert (found.kind, found.texts().tolist()) == ("boolean", ["true", ""])
    np.testing.assert_array_equal(found.values, [1, np.nan])


@pytest.mark.parametrize(
    "values", [np.array(["a", ""]), np.array(["a", None]), pd.Series(["a", pd.NA], dtype="string")]
)
def test_texts_in_arrays(values):
    found = read_table({"x": values}).column("x")
    assert (found.kind, found.values.tolist()) == ("text", ["a", ""])
    assert type(found.values[0]) is str


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical(["b", None, "a"], categories=["a", "b", "c"]),
        pl.Series(["b", None, "a"], dtype=pl.Categorical),
        pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"])),
        pa.chunked_array([pa.array(["b", None]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]),
        pa.array(["b", None, "a"], pa.large_string()),
        pa.array(["b", None, "a"], pa.string_view()),
    ],
)
def test_categories_become_texts(values):
    frame = {pl.Series: pl.DataFrame, pd.Categorical: pd.DataFrame}.get(type(values), pa.table)
    found = read_table(frame({"x": values})).column("x")
    assert (found.kind, found.values.tolist()) == ("text", ["b", "", "a"])


def test_categories_of_numbers_and_booleans():
    table = read_table(pd.DataFrame({"n": pd.Categorical([2, None, 1]), "b": pd.Categorical([True, None, False])}))
    assert [column.kind for column in table.columns.values()] == ["number", "boolean"]
    assert table.column("n").texts().tolist() == ["2", "", "1"]
    assert table.column("b").texts().tolist() == ["true", "", "false"]


def test_infinite_numbers_are_values(tmp_path):
    path = write(tmp_path / "t.csv", "x\ninf\n-inf\n")
    for source in (path, {"x": [np.inf, -np.inf]}, pl.DataFrame({"x": [np.inf, -np.inf]})):
        found = read_table(source).column("x")
        assert found.values.tolist() == [np.inf, -np.inf]
        assert not found.is_missing.any()
        assert found.texts().tolist() == ["inf", "-inf"]


@pytest.mark.parametrize(
    "source",
    [
        {"x": [None, None]},
        {"x": ["", None]},
        {"x": np.array(["NaT", "NaT"], dtype="M8[D]")},
        pa.table({"x": pa.nulls(2)}),
        pa.table({"x": pa.nulls(2, pa.string())}),
        pa.table({"x": pa.nulls(2, pa.bool_())}),
        pa.table({"x": pa.nulls(2, pa.list_(pa.int8()))}),
        pa.table({"x": pa.array([None, None], pa.dictionary(pa.int8(), pa.string()))}),
        pd.DataFrame({"x": [np.nan, np.nan]}),
        pl.DataFrame({"x": [None, None]}),
    ],
)
def test_a_column_without_entries_is_one_of_numbers(source):
    found = read_table(source).column("x")
    assert (found.kind, found.texts().tolist()) == ("number", ["", ""])
    np.testing.assert_array_equal(found.values, [np.nan, np.nan])
    assert found.is_missing.all()


def test_texts_of_numbers():
    values = [1.0, -0.0, 0.1, -2.5, 1e15, 1e300, 1e-7]
    assert read_table({"x": values}).column("x").texts().tolist() == [
        *("1", "0", "0.1", "-2.5", "1000000000000000", "1e+300", "1e-07")
    ]


def test_texts_are_a_copy():
    found = read_table({"x": ["a", "b"]}).column("x")
    found.texts()[0] = "c"
    assert found.values.tolist() == ["a", "b"]


# Tables


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True]), np.array([], dtype=int)])
def test_take_by_number_or_mask(rows):
    table = read_table(ROWS)
    taken = table.take(rows)
    chosen = np.arange(3)[rows]
    assert isinstance(taken, Table)
    assert (taken.n, taken.source) == (len(chosen), "dict of arrays")
    for name, column in taken.columns.items():
        assert (column.kind, column.is_whole) == (KINDS[name], name in ("id", "age"))
        assert column.texts().tolist() == [TEXTS[name][row] for row in chosen]
        assert column.is_missing.tolist() == [TEXTS[name][row] == "" for row in chosen]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("agee", "did you mean 'age'"),
        ("AGE", "did you mean 'age'"),
        ("weight_2", "did you mean 'weight_1' or 'weight'"),
        ("zzz", "its columns are age, weight, weight_1$"),
    ],
)
def test_an_unknown_column_names_those_that_are_close(name, remedy):
    table = read_table({"age": [1], "weight": [2], "weight_1": [3]})
    assert table.column("age").texts().tolist() == ["1"]
    with pytest.raises(
        InputError, match=f"^a table must have the columns .* dict of arrays, which has no '{name}'; {remedy}"
    ):
        table.column(name)


def test_an_unknown_column_of_a_wide_table_lists_some():
    table = read_table({f"x{i}": [1] for i in range(30)})
    with pytest.raises(InputError, match=r"its columns are x0, x1, .*, x9 and 20 more$"):
        table.column("zzz")


# Errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"^bad.csv must have a header; got an empty file; write the names"),
        ("\n\r\n", r"^bad.csv must have a header; got an empty file"),
        ("a,b\n", r"^bad.csv must have rows; got none; add"),
        ("a,b\n1,2\n3\n", r"^bad.csv must have as many entries .* got CSV parse error: Row #3: Expected 2 .*; correct"),
        ("a,b\n1,2,3\n", r"Row #2: Expected 2 columns, got 3: 1,2,3; correct"),
        ("a,b,a\n1,2,3\n", r"^bad.csv must have a column once; got 'a' 2 times; rename"),
        ("a, a\n1,2\n", r"once; got 'a' 2 times"),
        (",a\n0,1\n", r"^bad.csv must have a name for each column; got none for column 1; .*index=False"),
        ("a, \n0,1\n", r"none for column 2"),
        ('a,b\n1,"x\n2,y\n3,z\n', r"^bad.csv must close every quote; got an open one in row 1; add"),
        ("a,b\nK\u00f6ln,1\n".encode("latin-1"), r"^bad.csv must be UTF-8; got another .* in the column 'a'; save it"),
        ("Gr\u00f6\u00dfe,b\n1,1\n".encode("latin-1"), r"must be UTF-8; got another encoding in the header; save it"),
        ("a,b\n1,2\n".encode("utf-16"), r"must be UTF-8; got another encoding in the header"),
        ("a,b\n1,2\n".encode("utf-16-le"), r"must be UTF-8; got another encoding in the header"),
    ],
)
def test_bad_csv(content, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_table(write(tmp_path / "bad.csv", content))


def test_a_single_quote_as_inches_is_no_open_quote(tmp_path):
    assert csv_columns(tmp_path, 'a,b\n5" wide,1\nnone,2\n')["a"] == ("text", ['5" wide', "none"])


BAD_METADATA = pa.table({"x": [1]}).replace_schema_metadata({"pandas": "no JSON"})
BAD_TEXT = pa.table({"x": pa.array([b"\xff"]).view(pa.string())})


def damaged(write_it, keep):
    def make(path):
        write_it(path)
        write(path, path.read_bytes()[:keep])

    return make


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("no.csv", lambda path: None, r"must be a file that can be read; got .*no.csv: No such file or dir.*; check"),
        ("folder", lambda path: path.mkdir(), r"must be one file; got the folder .*folder; name a file in it"),
        ("f.parquet", lambda path: path.mkdir(), r"must be one file; got the folder"),
        ("t.xlsx", lambda path: write(path, "x"), r"must end in .csv, .*, .ipc; got t.xlsx; save it as CSV"),
        ("t.gz", lambda path: write(path, "x"), r"must end in .*; got t.gz"),
        ("noending", lambda path: write(path, "x"), r"must end in .*; got noending"),
        (
            "t.csv.gz",
            lambda path: write(path, CSV),
            r"t.csv.gz must be a whole .gz file; got Not a gzip.*; get it again",
        ),
        (
            "b.parquet",
            lambda path: write(path, "junk"),
            r"b.parquet must be a whole Parquet file; got .*; write it again",
        ),
        (
            "b.parquet",
            damaged(FILES["t.parquet"], -9),
            r"b.parquet must be a whole Parquet file; got .*; write it again",
        ),
        ("e.parquet", lambda path: write(path, ""), r"e.parquet must be a whole Parquet file; got .* 0 bytes; write"),
        (
            "b.feather",
            lambda path: write(path, "junk"),
            r"b.feather must be a whole Arrow file; got .*; write it again",
        ),
        ("b.arrow", damaged(FILES["t.arrow"], -9), r"b.arrow must be a whole Arrow file; got .*; write it again"),
        ("b.arrow", damaged(FILES["stream.arrow"], 300), r"b.arrow must be a whole Arrow file; got .*; write it again"),
        (
            "m.parquet",
            lambda path: pq.write_table(BAD_METADATA, path),
            r"m.parquet must be a whole Parquet file; got Expecting value.*; write",
        ),
        (
            "u.parquet",
            lambda path: pq.write_table(BAD_TEXT, path),
            r"u.parquet must be a whole Parquet .* UTF8 .*; write",
        ),
        ("e.parquet", lambda path: pq.write_table(arrow()[:0], path), r"^e.parquet must have rows; got none"),
        ("e.parquet", lambda path: pq.write_table(pa.table({}), path), r"^e.parquet must have columns; got none; add"),
    ],
)
def test_bad_files(name, make, message, tmp_path):
    make(tmp_path / name)
    with pytest.raises(InputError, match=message):
        read_table(name, tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, r"^a table must be a path, a DataFrame, .*; got int 7; convert"),
        ([1, 2], r"a table must be .*; got list \[1, 2\]; convert"),
        (np.zeros((2, 2)), r"a table must be .*; got ndarray; convert"),
        (pl.LazyFrame({"x": [1]}), r"a table must be .*; got LazyFrame.*; .*collect a LazyFrame"),
        (pl.Series([1]), r"^a DataFrame must have named columns of one type each; got .*; correct"),
        (pd.DataFrame({"x": [1, "a"]}), r"one type each; got Could not convert 'a' .* for column x .*; correct"),
        (pd.DataFrame({"x": [10**30]}), r"one type each; got Python int too large .*; correct"),
        (
            pd.DataFrame([[1, 2]], columns=["a", "a"]),
            r"one type each; got Duplicate column names found: .*'a'.*; correct",
        ),
        (pd.DataFrame({"x": [1 + 2j]}), r"one type each; got Unsupported numpy type.* column x .*; correct"),
        (pd.DataFrame({"a": []}), r"^DataFrame must have rows; got none"),
        (pd.DataFrame(index=[1, 2]), r"^DataFrame must have columns; got none"),
        (pa.table([[1], [2]], names=["a", "a"]), r"^pyarrow table must have a column once; got 'a' 2 times"),
        (pl.DataFrame({" ": [1]}), r"^DataFrame must have a name for each column; got none for column 1"),
        ({}, r"^dict of arrays must have columns; got none"),
        ({"a": []}, r"^dict of arrays must have rows; got none"),
        ({1: [2]}, r"^the keys of a dict of arrays must be the names; got int 1; use strings"),
        ({"a": [1], "b": [1, 2]}, r"must have the same length; got \{'a': 1, 'b': 2\}; give one entry per row"),
        ({"a": np.zeros((2, 2))}, r"must have one dimension; got 2 for 'a'; make each"),
        ({"a": "text"}, r"must have one dimension; got 0 for 'a'"),
        ({"a": [1], "a ": [1]}, r"^dict of arrays must have a column once; got 'a' 2 times"),
    ],
)
def test_bad_objects(source, message):
    with pytest.raises(InputError, match=message):
        read_table(source)


def test_long_words_of_pyarrow_are_cut():
    with pytest.raises(InputError, match=r"got .{297}\.\.\.; correct"):
        read_table(pd.DataFrame([range(200)], columns=["column"] * 200))


def test_only_dicts_work_without_pyarrow(monkeypatch, tmp_path):
    frame, path = polars_frame(), write(tmp_path / "t.csv", CSV)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    check(read_table(ROWS))
    for source in (frame, path):
        with pytest.raises(MissingPackageError, match=r"tables need pyarrow; got none installed; .*'\.\[tables\]'"):
            read_table(source)


def test_arguments_are_named(tmp_path):
    with pytest.raises(InputError, match="folder"):
        read_table(ROWS, directory=tmp_path)


@pytest.mark.parametrize("costs", ["1.860", "860.5"])
def test_decimal_commas_beside_dots_are_refused(costs, tmp_path):
    """A dot may be of thousands there."""
    (tmp_path / "odd.csv").write_text(f"age;costs\n20,5;{costs}\n30,5;12.974\n")
    message = "a file with decimal commas must have no numbers with dots; got odd.csv, with dots in 'costs'"
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "odd.csv")
    (tmp_path / "fine.csv").write_text("age;costs\n20,5;1860\n30,5;12974,5\n")
    assert read_table(tmp_path / "fine.csv").column("costs").values.tolist() == [1860.0, 12974.5]
