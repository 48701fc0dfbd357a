"""Files of tables as users have them: types, settings, and what is refused or said."""

import datetime
import decimal
import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import privnets
from privnets import data
from privnets.audit.inputs import AuditError
from privnets.references.data import TableReference
from privnets.references.table_files import STANDARD, read_frame
from privnets.references.table_format import TableFormat
from privnets.references.user_files import set_folder

RECORDS = 40
NUMBERS = [str(i) for i in range(RECORDS)]
PLAINLY = r"\(all written in one way, without signs and units: 5k as 5000, \(5\) as -5\)"


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """Folder of a study."""
    set_folder(tmp_path)
    return tmp_path


@pytest.fixture
def column(folder):
    """Writes a file of a column `c` and a target `y`, and reads it as a study does."""

    def read(values, *, header="c,y", **settings):
        separator = settings.get("separator", ",")
        rows = [f"{values[i % len(values)]}{separator}{i % 2}" for i in range(RECORDS)]
        text = "\n".join([header.replace(",", separator), *rows, ""])
        (folder / "t.csv").write_bytes(text.encode(settings.get("encoding", "utf-8")))
        reference = {"table": "t.csv", "target": "y", **settings}
        return data.load(TableReference.model_validate(reference, strict=True))

    return read


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        (["1", "+2", "-3.5", "1e2", ".5", "4."], {}, [1, 2, -3.5, 100, 0.5, 4]),
        ([" 1", "2 "], {}, [1, 2]),
        (['"1,5"', '"2,25"'], {"decimal": ","}, [1.5, 2.25]),
        (["1,5", "2"], {"decimal": ",", "separator": ";"}, [1.5, 2]),
        (['"1,200"', '"1,234,567.5"', "7"], {"thousands": ","}, [1200, 1234567.5, 7]),
        (['"1.234,56"', '"2.000"'], {"decimal": ",", "thousands": "."}, [1234.56, 2000]),
        (["1 200", "3"], {"thousands": " "}, [1200, 3]),
        (["1\u202f200", "3"], {"thousands": "\u202f"}, [1200, 3]),
        (["1", "2"], {"separator": "\t"}, [1, 2]),
        (["1", "2"], {"encoding": "utf-16"}, [1, 2]),
        (["2020-01-01", "1970-01-02T12:00"], {"dates": ["c"]}, [18262, 1.5]),
        (["31/12/1970", "02/01/1970"], {"dates": ["c"], "date_format": "%d/%m/%Y"}, [364, 1]),
        (["20200101", "19700102"], {"dates": ["c"], "date_format": "%Y%m%d"}, [18262, 1]),
        (["11.1970", "01.1971"], {"dates": ["c"], "date_format": "%m.%Y"}, [304, 365]),
        (["19700102", ""], {"dates": ["c"], "date_format": "%Y%m%d", "missing": "replace"}, [1, 1]),
        (["3", "?"], {"missing_values": ["?"], "missing": "replace"}, [3, 3]),
        (["3", "NA"], {"missing": "replace"}, [3, 3]),
        ([str(2**63), "0"], {}, [2.0**63, 0]),
        (["10.2024", "12.1999"], {}, [10.2024, 12.1999]),
        (["01.2024", "0.5"], {}, [1.2024, 0.5]),
    ],
)
def test_numbers_are_read_by_the_settings_of_the_study(column, values, settings, expected):
    loaded = column(values, **settings)
    assert loaded.feature_names == ("c",)
    np.testing.assert_array_equal(loaded.x[: len(expected), 0], expected)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        (["?", *NUMBERS[1:]], {}, r"'c', where 1 of 40 values are not numbers: '\?'.*missing_val"),
        ([*NUMBERS[1:], "unknown"], {}, r"missing_values: \['unknown'\]"),
        (['"1,5"', '"2,25"'], {}, r'set decimal: ","\)'),
        (['"1,200.50"', '"7,000"'], {}, r'set thousands: ","\)'),
        (['"1,200"', '"7,000"'], {}, r'set decimal: "," or thousands: ","\)'),
        (['"1.234,56"'], {}, r'set decimal: "," and thousands: "\."\)'),
        (["$1200", "$300"], {}, "'\\$1200', '\\$300'.*without signs and units"),
        (["12%", "3%"], {}, "without signs and units"),
        ([f"{i} kg" for i in range(9)], {}, "without signs and units"),
        (
            ["0", "1", "2", "3+"],
            {},
            r"'3\+'; expected numbers \(all written.*without signs.*under categorical",
        ),
        ([*NUMBERS[2:], "7a", "8b"], {}, "'7a', '8b'"),
        (["50K", "2M"], {}, PLAINLY),
        (["5k", "10k", "2m", "7"], {}, PLAINLY),
        (["10kg", "20lb"], {}, PLAINLY),
        ([str(2**64), "1"], {}, "whole numbers too large to be exact"),
        ([str(2**53 + 1), "0.5"], {}, "whole numbers too large to be exact"),
        ([f"{2**53 + 1}.0"], {}, "whole numbers too large to be exact"),
        (['"0,123"', '"1,200"'], {"thousands": ","}, r"numbers: '0,123'.*set decimal: \",\"\)"),
        (["true", "1", "0"], {}, r"not numbers: 'true'; expected numbers \(write truth values as"),
        (["missing", ""], {"missing": "replace"}, "of 'c' beside the value 'missing'"),
        ([str(2**63 + 1), "1"], {}, "'c' with whole numbers that float64 rounds"),
        ([str(-(2**53) - 1), "1"], {}, "whole numbers that float64 rounds"),
        (
            ['"\u20ac 1.234,56"', '"\u20ac 7,00"'],
            {},
            PLAINLY,
        ),
        (
            ['"$1,200.50"', "-", "7"],
            {},
            PLAINLY,
        ),
        (['"1,5"', "?", '"2,25"'], {}, r"set missing_values: \['\?'\] and decimal: \",\"\)"),
        (["1.5", '"2,5"'], {}, "all written in one way"),
        (["1'200 kg", "3 kg"], {}, PLAINLY),
        (["\u22125", "3", "\u22122"], {}, PLAINLY),
        (["(5)", "3"], {}, PLAINLY),
        (
            ['"\u22121,5"', '"2,25"'],
            {},
            PLAINLY,
        ),
        (["-$5", "$3"], {}, PLAINLY),
        (["\u22125k", "2m"], {}, PLAINLY),
        (["\u0661\u0662", "\u0663"], {}, "40 of 40 values are not numbers: '\u0661\u0662'"),
        (["1.5"], {"decimal": ","}, r'set decimal: "\."\)'),
        (["5-", "3"], {}, PLAINLY),
        (["1\u00a0200", "3"], {}, r'set thousands: "\\u00a0"\)'),
        (["1\u2019200", "3"], {}, r'set thousands: "\\u2019"\)'),
        (["inf", "1"], {}, "infinite numbers in 'c'"),
        (["1e400", "1"], {}, "infinite numbers in 'c'"),
        (["2020-01-31"], {}, r"dates or times as '2020-01-31'; expected dates: \[c\];"),
        (["31.01.2020", "01.02.2020"], {}, r"dates: \[c\] and date_format"),
        (["3 Jan 2020"], {}, "date_format"),
        (["01/2024", "12/2024"], {}, "dates or times as '01/2024'"),
        (["01.2024", "12.2024"], {}, "dates or times as '01.2024'"),
        (["1\u2009200", "3"], {}, r'set thousands: "\\u2009"\)'),
        (["12:30"], {}, "dates or times as '12:30'"),
        (["31/01/2020"], {"dates": ["c"]}, "dates: got 'c', where 40 values have another format"),
        (["now", "2020-01-01"], {"dates": ["c"]}, "20 values have another format: 'now'"),
        (["today"], {"dates": ["c"], "date_format": "%Y"}, "another format: 'today'"),
        (["2020-01-01", "9999-12-31"], {"dates": ["c"]}, "20 values are as far as '9999-12-31'"),
        (["1500-01-01"], {"dates": ["c"]}, "expected dates of the years 1678 to 2261"),
        (["2020-01-01"], {"dates": ["d"]}, "dates: got 'd'"),
        ([""], {"missing": "replace"}, "'c' without any value"),
        (
            ["1", "  "],
            {},
            r"error, which refuses 20 missing values: c \(20\); expected drop or replace",
        ),
        (["1"], {"header": "y,y"}, "'y' twice in the header"),
        (["1"], {"header": "y ,y"}, "'y' twice in the header"),
        (["1"], {"header": ",y"}, "'Unnamed: 0', a column without a name"),
        (["1"], {"header": " ,y"}, "'Unnamed: 0', a column without a name"),
        (["1"], {"header": "c, y "}, r"columns of the table: c, ' y ' \(did you mean ' y '\?\)"),
    ],
)
def test_columns_of_unclear_use_are_refused_by_name(column, values, settings, message):
    with pytest.raises(data.UserFormError, match=message):
        column(values, **settings)


@pytest.mark.parametrize(
    ("values", "settings", "features"),
    [
        (["0", "1", "3+"], {"categorical": ["c"]}, ("c=0", "c=1", "c=3+")),
        (["00123", "10115"], {}, ("c=00123", "c=10115")),
        (["True", "false"], {}, ("c=False", "c=True")),
        (["NA", "DE"], {}, ("c=DE", "c=NA")),
        (["NA", "DE"], {"missing_values": ["NA"], "missing": "replace"}, ("c=DE", "c=missing")),
        (["yes", "no"], {}, ("c=no", "c=yes")),
        (["+1 555 240 8605", "+1 555 240 8606"], {}, ("c=+1 555 240 8605", "c=+1 555 240 8606")),
        (["10.0.33.157", "192.168.100.200"], {}, ("c=10.0.33.157", "c=192.168.100.200")),
        (["12A", "3B", "7"], {}, ("c=12A", "c=3B", "c=7")),
        (["V57", "E90", "250.83"], {}, ("c=250.83", "c=E90", "c=V57")),
        (["1st", "2nd"], {}, ("c=1st", "c=2nd")),
        (["24-35 years", "9 years"], {}, ("c=24-35 years", "c=9 years")),
        (["1.2.3", "2.0.1"], {}, ("c=1.2.3", "c=2.0.1")),
        (["0x1F", "0xA0"], {"categorical": ["c"]}, ("c=0x1F", "c=0xA0")),
        (["<30", ">30", "NO"], {}, ("c=<30", "c=>30", "c=NO")),
        (["<18", "18-65", "65+"], {}, ("c=18-65", "c=65+", "c=<18")),
        (['"[0, 10)"', '"[10, 20)"'], {}, ("c=[0, 10)", "c=[10, 20)")),
        (['"a\nb"', "c"], {}, ("c=a\nb", "c=c")),
        (["é"], {"encoding": "cp1252"}, ("c=é",)),
        (["2020-01-31"], {"categorical": ["c"]}, ("c=2020-01-31",)),
    ],
)
def test_texts_are_categories_as_they_stand_in_the_file(column, values, settings, features):
    assert column(values, **settings).feature_names == features


@pytest.mark.parametrize("count", [3, RECORDS])
@pytest.mark.parametrize(
    "form",
    [
        *("{0} years", "~{0}", ">={0}", "{0}\u00b11", "Rs. {0}", "{0}-", "{0}.3D+06", "{0}*"),
        *("{0:#x}", "{0}/7", "<{0}", '"=""{0}"""'),
    ],
)
def test_values_of_digits_and_signs_are_refused_however_many_they_are(column, form, count):
    values = [form.format(i) for i in range(10, 10 + count)]
    with pytest.raises(data.UserFormError, match=r"not numbers: .*; or list the column"):
        column(values)
    assert len(column(values, categorical=["c"]).feature_names) == count


@pytest.mark.parametrize(
    "form", ["E11.{0}", "{0}-99", "CS {0}", "SW{0} 1AA", "v{0}.1-2", "Room{0}"]
)
def test_many_codes_are_categories(column, form):
    values = [form.format(i) for i in range(10, RECORDS)]
    assert len(column(values).feature_names) == len(values)


@pytest.mark.parametrize(
    ("values", "remark"),
    [
        (["00123", "10115"], r"with digits count as categories: c \('00123' and '10115'\)\."),
        (["<30", ">30", "NO"], r"as categories: c \('<30' and '>30'\)"),
        (["24-35 years", "9 years"], r"as categories: c \('24-35 years' and '9 years'\)"),
        (["12A", "3B", "7"], r"as categories: c \('12A' and '3B'\)"),
        (["20C", "68F"], r"as categories: c \('20C' and '68F'\)"),
        (["20 \u00b0C", "68 \u00b0F"], r"as categories: c \('20 .C' and '68 .F'\)"),
        (["10.0.33.157", "192.168.100.200"], r"as categories: c \('10\.0"),
        (["10-20", "x", "20-30"], r"as categories: c \('10-20' and '20-30'\)"),
        (["1.2\u00d710^3", "3\u00d710^2"], "as categories: c .'1.2"),
        (["20240131", "20240228"], r'c has numbers such as 20240228; .* dates: \[c\] .*"%Y%m%d"'),
        (["NA", "DE"], r"column c has 'NA' 20 times.*missing_values: \['NA'\]"),
        (["nan", "None", "x", "nan"], "c has 'nan' 20 times and 'None' 10 times.*'nan', 'None'"),
        (["yes", "Yes", "no", "no "], "case, blanks, .*: 'Yes' and 'yes', 'no' and 'no '"),
        (["caf\u00e9", "cafe\u0301"], r"characters only: 'cafe\\u0301' and 'caf\u00e9'\."),
        (["a\u200b", "a"], r"characters only: 'a' and 'a\\u200b'"),
        (["a\u00a0b", "a b"], r"characters only: 'a b' and 'a\\xa0b'"),
        (["\u041c\u043e\u0441", "\u043c\u043e\u0441"], r"only: '\u041c\u043e\u0441' and '\u043c"),
        (["it's", "it\u2019s"], 'characters only: "it\'s" and .it\u2019s'),
        (["a-b", "a\u2013b"], "characters only: 'a-b' and 'a\u2013b'"),
        (["\uff39\uff45\uff53", "yes"], r"characters only: 'yes' and '\\uff39\\uff45\\uff53'"),
    ],
)
def test_values_that_may_mean_something_else_are_remarked(column, values, remark):
    column(values)
    remarks = data.info(TableReference(table="t.csv", target="y")).remarks
    assert pd.Series(remarks).str.contains(remark).any()


@pytest.mark.parametrize("values", [["00123", "10115"], ["10-20", "20-30"]])
def test_categories_that_the_study_names_are_not_remarked(column, values):
    column(values, categorical=["c"])
    remarks = data.info(TableReference(table="t.csv", target="y", categorical=("c",))).remarks
    assert not [remark for remark in remarks if "with digits" in remark]


def test_names_that_look_alike_are_remarked(folder):
    (folder / "t.csv").write_text("c,Y,c\u200b,y\n" + "1,2,3,p\n2,3,1,q\n" * 9)
    remarks = data.info(TableReference(table="t.csv", target="y")).remarks
    differ = "differ in case, blanks, dashes, quotes or hidden characters only"
    assert f"names of columns {differ}: 'Y' and 'y', 'c' and 'c\\u200b'." in remarks


def test_a_target_that_differs_in_blanks_is_refused_and_in_case_remarked(folder):
    def write(*classes):
        rows = [f"{i},{classes[i % len(classes)]}" for i in range(RECORDS)]
        (folder / "t.csv").write_text("\n".join(["c,y", *rows]))
        return data.info(TableReference(table="t.csv", target="y"))

    with pytest.raises(data.UserFormError, match=r"target: .* in blanks .*: 'yes' and 'yes '"):
        write("yes", "no", "yes ")
    with pytest.raises(data.UserFormError, match=r"characters: 'yes' and '\\ufeffyes'"):
        write("yes", "no", "\ufeffyes")
    remarks = write("yes", "no", "Yes", "no").remarks
    assert "target y has 3 classes; no: 20 (50.0%), Yes: 10 (25.0%), yes: 10 (25.0%)." in remarks
    alike = "differ in case, blanks, dashes, quotes or hidden characters only: 'Yes' and 'yes'."
    assert f"column y has values that {alike}" in remarks
    with pytest.raises(data.UserFormError, match=r"target: .* '\?'.*task: multiclass"):
        write("0", "1", "0", "?")


def test_the_contents_of_a_table_are_described(folder):
    frame = pd.DataFrame(
        {"age": [1.5, 2.5, None, 4.5], "ward": list("abab"), "sick": [True, False, True, True]}
    )
    frame.assign(y=[0, 1, 1, 1]).to_csv(folder / "t.csv", index=False)
    remarks = data.info(TableReference(table="t.csv", target="y", missing="drop")).remarks
    assert remarks[:2] == (
        "t.csv: records: 3 (1 others, with missing values, are left out); attributes: 3, after "
        "encoding: 5; numbers: age; categories: ward (2); truth values: sick.",
        "target y has 2 classes; 1: 2 (66.7%), 0: 1 (33.3%).",
    )


def test_equal_values_have_equal_types_however_they_are_stored(folder):
    frame = pd.DataFrame(
        {
            "whole": [3, 1, 2, 2],
            "gap": pd.array([1, None, 3, 4], dtype="Int64"),
            "real": [0.1, 1 / 3, 1e-300, 2.0],
            "truth": [True, False, True, True],
            "perhaps": pd.array([True, None, False, True], dtype="boolean"),
            "text": ["a", None, "NA", "b "],
            "code": ["01", "10", "02", "03"],
            "digits": ["1", "2", "3", "4"],
        }
    )
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    frame.to_csv(folder / "s.csv", index=False, sep=";", decimal=",", encoding="utf-16")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + (folder / "t.csv").read_bytes())
    expected = read_frame(folder / "t.csv")
    assert expected["digits"].tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(expected["real"], frame["real"])
    frame.set_axis([3, 1, 7, 5]).to_parquet(folder / "numbered.parquet")
    for name in ("t.parquet", "numbered.parquet", "t.csv.gz", "bom.csv"):
        pd.testing.assert_frame_equal(read_frame(folder / name), expected)
    other = TableFormat(separator=";", decimal=",", encoding="utf-16")
    pd.testing.assert_frame_equal(read_frame(folder / "s.csv", form=other), expected)


def test_the_type_of_a_long_column_does_not_depend_on_where_its_texts_are(folder):
    texts = ["1"] * 300_000
    texts[-1] = "x"
    (folder / "t.csv").write_text("c,y\n" + "\n".join(f"{text},1" for text in texts))
    assert set(read_frame(folder / "t.csv")["c"]) == {"1", "x"}


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([decimal.Decimal("1.10"), decimal.Decimal("0.30")], {}, [1.1, 0.3]),
        ([decimal.Decimal("1.10")], {"decimal": ","}, [1.1]),
        ([decimal.Decimal("1.10"), None], {"missing": "replace"}, [1.1, 1.1]),
        ([decimal.Decimal(2**53 + 1), decimal.Decimal(1)], {}, "whole numbers that float64 rounds"),
        ([decimal.Decimal(10**20 + 1)], {}, "whole numbers too large to be exact"),
        (
            [decimal.Decimal(10**17), decimal.Decimal(10**17 + 1)],
            {"categorical": ["c"]},
            {f"c={10**17}", f"c={10**17 + 1}"},
        ),
        ([1e20, 2e20], {"categorical": ["c"]}, {"c=1e+20", "c=2e+20"}),
        (pa.array(["1", "2"]).cast(pa.string_view()), {}, [1, 2]),
        ([datetime.date(1970, 1, 2)], {"dates": ["c"]}, [1]),
        ([datetime.datetime(1970, 1, 1, 12)], {"dates": ["c"]}, [0.5]),
        (pa.array(["1", "2"]).dictionary_encode(), {}, {"c=1", "c=2"}),
        (np.array([1, 2], dtype=np.float16), {}, [1, 2]),
        ([[1, 2]], {}, "'c' with values of type ndarray"),
        ([{"a": 1}], {}, "'c' with values of type dict"),
        ([datetime.time(1)], {}, "'c' with values of type time"),
        ([datetime.date(2020, 1, 2)], {}, r"dates: \[c\]"),
        ([None], {"missing": "replace"}, "'c' without any value"),
        ([np.inf, 1.0], {}, "infinite numbers in 'c'"),
    ],
)
def test_types_of_parquet_are_read_or_refused(folder, values, settings, expected):
    whole = pa.concat_arrays([values if isinstance(values, pa.Array) else pa.array(values)] * 4)
    table = pa.table({"c": whole, "y": pa.array([i % 2 for i in range(len(whole))])})
    pq.write_table(table, folder / "t.parquet")
    reference = TableReference.model_validate(
        {"table": "t.parquet", "target": "y", **settings}, strict=True
    )
    if isinstance(expected, str):
        with pytest.raises(data.UserFormError, match=expected):
            data.load(reference)
        assert read_frame(folder / "t.parquet").shape == (len(whole), 2)  # it may be ignored
    elif isinstance(expected, set):
        assert set(data.load(reference).feature_names) == expected
    else:
        np.testing.assert_array_equal(data.load(reference).x[: len(expected), 0], expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be parsed"),
        (b"a,y\n", "without rows"),
        (gzip.compress(b"a,y\n1,0\n"), r"it is a gzip file; name it \.csv\.gz"),
        (b"PK\x03\x04", "it is a zip file or a workbook"),
        (b"PAR1", r"it is a parquet file; name it \.parquet"),
        (b"a,y\n1,0,\n2,1,\n", "Expected 2 columns, got 3"),
        (b"a,y\n1,0\n\n2,1\na,y\n3,0\n", "line 5, which repeats the header"),
        (b"a,y\n1,0\n a, y\n3,0\n", "line 3, which repeats the header"),
        (b"yes,1\nno,0\nyes,1\n", "line 3, .* header; expected one; in a study, header: false if"),
        (b"\xef\xbb\xbfa,y\n1,0\n\xef\xbb\xbfa,y\n3,0\n", "line 3, which repeats the header"),
        (b"a,y\n1\n", "Expected 2 columns, got 1"),
        (b"a;y\n1;0\n", "separator: got ',' .*; expected ';'"),
        ("é,y\n1,0\n".encode("latin-1"), "encoding: got utf-8, .* as cp1252"),
        ("a,y\n1,0\n".encode("utf-16"), "encoding: got utf-8, .*; expected utf-16"),
    ],
)
def test_files_that_cannot_be_parsed_are_refused_with_the_reason(folder, content, message):
    (folder / "t.csv").write_bytes(content)
    with pytest.raises(data.UserFormError, match=message):
        read_frame(folder / "t.csv")


HEADERLESS = [
    "5.1,3.5,a\n4.9,3.0,b\n4.7,3.2,a\n",
    "63,yes,2020-01-31\n67,no,2020-02-01\n41,yes,2020-03-01\n",
    "63,1,John\n67,0,Mary\n41,1,Ann\n",  # names of people do not recur
    "True,a\nFalse,b\nTrue,b\nFalse,a\n",
    "yes,red\nno,red\nyes,blue\nno,blue\n",
    "P001,x\nP002,y\nP003,x\nP004,y\n",
    "1,1,0\n2,3,1\n2,1,1\n",  # names repeat, too
    "5,,a\n6,1,b\n7,2,a\n8,2,b\n",
    "5,NA,a\n6,1,b\n7,2,a\n8,2,b\n",
    "5,?,a\n6,1,b\n7,2,a\n8,2,b\n",
    "5\n6\n",
    "20240131,1\n20240201,0\n",
    '\ufeff"1","2"\n"3","4"\n',
    "2001,2002\n4,5\n",  # years
]


@pytest.mark.parametrize("text", HEADERLESS)
def test_a_first_row_is_a_record_if_the_study_says_so(folder, text):
    (folder / "t.csv").write_text(text)
    plain = text.removeprefix("\ufeff").replace('"', "")
    names = plain.partition("\n")[0].split(",")
    numbered = [f"column_{i + 1}" for i in range(len(names))]
    (folder / "named.csv").write_text(",".join(numbered) + "\n" + plain)
    expected = read_frame(folder / "named.csv")
    without = read_frame(folder / "t.csv", form=TableFormat(header=False))
    pd.testing.assert_frame_equal(without, expected)
    if len({*names}) == len(names):
        assert len(read_frame(folder / "t.csv")) == len(expected) - 1


def test_studies_without_the_setting_of_headers_keep_their_identity():
    assert "header" not in TableFormat().model_dump()
    assert TableFormat(header=False).model_dump()["header"] is False


def test_a_separator_at_the_end_of_each_row_makes_no_column(folder):
    (folder / "t.csv").write_text("a,y,\n1,0,\n2,1,\n")
    assert list(read_frame(folder / "t.csv").columns) == ["a", "y"]
    (folder / "t.csv").write_text("1,0,\n2,1,\n")
    unnamed = read_frame(folder / "t.csv", form=TableFormat(header=False))
    assert unnamed.to_dict("list") == {"column_1": [1, 2], "column_2": [0, 1]}


def test_texts_of_parquet_that_are_no_utf_8_are_refused(folder):
    buffers = [None, *map(pa.py_buffer, (np.array([0, 1, 2], np.int32), b"a\xff"))]
    broken = pa.Array.from_buffers(pa.string(), 2, buffers)
    pq.write_table(pa.table({"a": broken, "y": [0, 1]}), folder / "t.parquet")
    with pytest.raises(data.UserFormError, match=r"cannot be parsed .Invalid UTF8"):
        read_frame(folder / "t.parquet")


def test_a_repeated_column_of_parquet_is_refused(folder):
    columns = [pa.array([1, 2]), pa.array([0, 1])]
    pq.write_table(pa.Table.from_arrays(columns, names=["y", "y"]), folder / "t.parquet")
    with pytest.raises(data.UserFormError, match="'y' twice in the header"):
        read_frame(folder / "t.parquet")


@pytest.mark.parametrize(
    "settings",
    [
        {"separator": ";;"},
        {"encoding": "utf-99"},
        {"decimal": ",", "thousands": ","},
        {"date_format": "mixed"},
    ],
)
def test_settings_without_a_meaning_are_refused(settings):
    with pytest.raises(ValidationError):
        TableFormat(**settings)
    assert TableFormat() == STANDARD


def test_a_text_in_a_record_that_is_left_out_is_the_reason_for_a_column_of_texts(folder):
    rows = [f"{i},{i % 2}" for i in range(RECORDS)]
    (folder / "t.csv").write_text("\n".join(["c,y", "kg,", *rows]))
    with pytest.raises(data.UserFormError, match="'c' with other texts in records that are left"):
        data.load(TableReference(table="t.csv", target="y", missing="drop"))


@pytest.mark.parametrize("task", [None, "multiclass"])
def test_long_decimals_are_different_classes_or_refused(folder, task):
    values = [decimal.Decimal(10**19 + i % 3) for i in range(RECORDS)]
    pq.write_table(pa.table({"c": range(RECORDS), "y": pa.array(values)}), folder / "t.parquet")
    reference = TableReference(table="t.parquet", target="y", task=task)
    if task:
        assert data.info(reference).classes == 3
    else:
        with pytest.raises(data.UserFormError, match="target: got 'y' with whole numbers"):
            data.load(reference)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_large_whole_numbers_beside_missing_ones_keep_their_digits(folder, kind):
    values = pd.array([2**53 + 1, None, *range(RECORDS - 2)], dtype="Int64")
    frame = pd.DataFrame({"a": values, "y": [0, 1] * (RECORDS // 2)})
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    assert read_frame(folder / f"t.{kind}")["a"][0] == 2**53 + 1
    reference = TableReference(table=f"t.{kind}", target="y", missing="replace")
    with pytest.raises(data.UserFormError, match="whole numbers that float64 rounds"):
        data.load(reference)
    listed = TableReference(**{**reference.model_dump(), "categorical": ("a",)})
    assert f"a={2**53 + 1}" in data.load(listed).feature_names


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_saved_signals_with_a_repeated_column_are_refused(folder, kind):
    path = folder / f"e.{kind}"
    if kind == "csv":
        path.write_text("confidence,confidence,member\n" + "0.5,0.9,1\n0.5,0.2,0\n" * 200)
    else:
        columns = [pa.array([0.5, 0.9] * 200)] * 2
        pq.write_table(pa.Table.from_arrays(columns, names=["confidence"] * 2), path)
    with pytest.raises(AuditError, match="twice"):
        privnets.audit_signals(str(path))
