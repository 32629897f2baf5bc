"""The page of public names is read from the source and says what the source says."""

import ast
import re

import book_project
import pytest

import selfspec
from selfspec.study import api_page

ROOT = book_project.ROOT


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def page():
    return api_page.page(ROOT)


def test_every_public_name_is_on_the_page_once(page):
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert set(selfspec.__all__) <= set(headings)
    for package in api_page.PACKAGES:
        exported = {public.name for public in api_page.names(ROOT, package)}
        assert exported and exported <= set(headings)
    places = re.findall(r"^### (\w+)\n\n\*([\w.]+)\*$", page, re.MULTILINE)
    assert len(places) == len(headings) == len(set(places))


def test_every_public_function_and_class_says_what_it_is():
    silent = [
        f"{public.module}.{public.name}"
        for package in api_page.PACKAGES
        for public in api_page.names(ROOT, package)
        if isinstance(public.node, ast.FunctionDef | ast.ClassDef)
        and not ast.get_docstring(public.node)
    ]
    assert silent == []


def test_a_docstring_becomes_prose_code_and_lists(tmp_path):
    write(
        tmp_path,
        {
            "p/__init__.py": '"""A package."""\nfrom p.a import f\n__all__ = ["f"]\n',
            "p/a.py": (
                "def f(one: int, *, other: str = 'a, b') -> str:\n"
                '    """Do it to <that>.\n\n    An example:\n\n        f(1)\n\n'
                "    Args:\n        one: of two,\n            on two lines.\n"
                "        other: `code` and *star*.\n\n    Raises:\n"
                '        ValueError: one is 0.\n    """\n'
            ),
        },
    )
    [public] = api_page.names(tmp_path, "p")
    text = api_page._entry(public)
    assert "```python\nf(one: int, *, other: str='a, b') -> str\n```" in text
    assert r"Do it to \<that\>." in text and "```text\nf(1)\n```" in text
    assert "- `one`: of two,\n  on two lines." in text
    assert r"- `other`: `code` and \*star\*." in text
    assert "*Raises*\n\n- `ValueError`: one is 0." in text


def test_a_class_shows_its_fields_or_how_it_is_made_and_its_public_methods(tmp_path):
    write(
        tmp_path,
        {
            "p/__init__.py": '_PUBLIC = {"C": "p.a", "D": "p.a", "E": "p.b"}\n',
            "p/a.py": (
                'class C(Base):\n    """C."""\n    x: int = 3\n    def go(self, y): ...\n'
                "    def _hidden(self): ...\n"
                '    @property\n    def size(self) -> int:\n        """How much."""\n'
                'class D:\n    """D."""\n    def __init__(self, a, *, b=1): ...\n'
            ),
            "p/b.py": "from p.c import E\n",
            "p/c.py": "E: int = 5\n",
        },
    )
    first, second, third = map(api_page._entry, api_page.names(tmp_path, "p"))
    assert "class C(Base)\n    x: int = 3" in first
    assert ".go(y)" in first and "_hidden" not in first
    assert "```python\n.size\n```\n\nHow much." in first
    assert "```python\nD(a, *, b=1)\n```" in second
    assert "E: int = 5" in third and "*p.c*" in third


def test_a_name_that_is_defined_nowhere_is_told(tmp_path):
    write(tmp_path, {"p/__init__.py": '_PUBLIC = {"gone": "p.a"}\n', "p/a.py": ""})
    with pytest.raises(ValueError, match="p exports gone, which p.a does not define"):
        api_page.names(tmp_path, "p")
