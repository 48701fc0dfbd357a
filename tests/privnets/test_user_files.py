"""Modules of users: which source identifies them, and when they are imported again."""

import pytest

from privnets.references.user_files import describe_error, import_object, set_folder, source_digest


@pytest.fixture
def write(tmp_path):
    """Writes files into the folder of a study."""
    set_folder(tmp_path)

    def write_files(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    return write_files


@pytest.mark.parametrize(
    ("location", "edited"),
    [
        ("alone_uf:value", "alone_uf"),
        ("importing_uf:value", "helper_uf"),
        ("space_uf.net:value", "space_uf__in__net"),
    ],
)
def test_changed_source_is_another_digest_and_is_imported_again(write, location, edited):
    write(
        alone_uf="value = 1",
        importing_uf="from helper_uf import value",
        helper_uf="value = 1",
        space_uf__in__net="value = 1",
    )
    before = source_digest(location, "model")
    assert import_object(location, "model") == 1
    assert source_digest(location, "model") == before
    write(**{edited: "value = 2"})
    assert source_digest(location, "model") != before
    assert import_object(location, "model") == 2


def test_an_installed_package_is_identified_by_its_version(write):
    write(sklearn="value = 1")
    assert source_digest("sklearn.linear_model:Ridge", "model").startswith("scikit-learn ")


FAILING = """\
import pandas as pd

def absent_key():
    return pd.Series([1], ["a"])["b"]

def library():
    raise RuntimeError("[10:00] Check failed\\n\\n  n > 0 \\nStack trace:\\n  [bt] (0) lib.so")

def long():
    raise ValueError("x" * 5000)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent_key", "KeyError: 'b' ({file}, line 4)"),
        ("library", "RuntimeError: [10:00] Check failed n > 0 ({file}, line 7)"),
        ("long", f"ValueError: {'x' * 600}... ({{file}}, line 10)"),
    ],
)
def test_errors_name_the_line_of_the_user_in_one_line(write, tmp_path, name, expected):
    """Pandas raises the first one in compiled code, whose files have relative paths."""
    write(failing_uf=FAILING)
    function = import_object(f"failing_uf:{name}", "model")
    with pytest.raises(Exception, match=r".") as caught:
        function()
    assert describe_error(caught.value) == expected.format(file=tmp_path / "failing_uf.py")
