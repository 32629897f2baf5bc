"""The page of public names, read from the source without importing it.

What a package's `__init__.py` exports is looked up where it is defined: signature,
docstring, and of a class its public methods. Nothing is executed, so the page needs no
MLX and cannot differ from the code. Knows Python's syntax and this project's docstrings.

    api_page.page(Path("."))          # Markdown, a section a package
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from selfspec.study.markdown import prose

PACKAGES = (
    "selfspec",
    "selfspec.models",
    "selfspec.decoding",
    "selfspec.costs",
    "selfspec.selection",
    "selfspec.training",
)
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
WIDTH = 76


@dataclass(frozen=True)
class Public:
    """A public name with the node that defines it."""

    name: str
    module: str
    node: ast.stmt


def page(root: Path) -> str:
    """Every package with its public names; each name once, where it is met first."""
    seen: set[tuple[str, str]] = set()
    parts = []
    for package in PACKAGES:
        own = [
            public
            for public in names(root, package)
            if (public.module, public.name) not in seen
        ]
        seen |= {(public.module, public.name) for public in own}
        parts.append(f"## {package}")
        parts.append(_text(ast.get_docstring(_tree(_path(root, package))) or ""))
        parts += [_entry(public) for public in own]
    return "\n\n".join(part for part in parts if part)


def names(root: Path, package: str) -> list[Public]:
    """What the package exports, in alphabetical order.

    Raises:
        ValueError: a name that is exported and defined nowhere.
    """
    found = []
    for name, module in sorted(_exports(root, package).items(), key=_by_name):
        place = _definition(root, module, name)
        if place is None:
            raise ValueError(
                f"{package} exports {name}, which {module} does not define"
            )
        found.append(Public(name, *place))
    return found


def _by_name(item: tuple[str, str]) -> tuple[bool, str]:
    return (not item[0][0].isupper(), item[0].lower())


def _path(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@lru_cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _exports(root: Path, package: str) -> dict[str, str]:
    """Name -> module that has it: a table `_PUBLIC`, or what `__all__` takes from imports."""
    listed: set[str] = set()
    imported: dict[str, str] = {}
    for node in _tree(_path(root, package)).body:
        for target, value in _assigned(node):
            if target == "_PUBLIC":
                return ast.literal_eval(value)
            if target == "__all__":
                listed = set(ast.literal_eval(value))
        if isinstance(node, ast.ImportFrom) and node.module:
            imported |= {alias.name: node.module for alias in node.names}
    return {name: imported[name] for name in listed & set(imported)}


def _assigned(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if node.value is not None:
            yield node.target.id, node.value


def _definition(root: Path, module: str, name: str) -> tuple[str, ast.stmt] | None:
    """Where a name is defined, through re-exports."""
    path = _path(root, module)
    if not path.is_file():
        return None
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if any(target == name for target, _ in _assigned(node)):
            return module, node
        if isinstance(node, ast.ImportFrom) and node.module:
            if any((alias.asname or alias.name) == name for alias in node.names):
                return _definition(root, node.module, name)
    onward = _exports(root, module).get(name)
    return _definition(root, onward, name) if onward else None


def _entry(public: Public) -> str:
    node = public.node
    lines = [f"### {public.name}", f"*{public.module}*"]
    if isinstance(node, ast.FunctionDef):
        lines += [_code(_signature(node)), _text(ast.get_docstring(node) or "")]
    elif isinstance(node, ast.ClassDef):
        lines += [_code(_class(node)), _text(ast.get_docstring(node) or "")]
        lines += _methods(node)
    else:
        lines.append(_code(_short(ast.unparse(node))))
    return "\n\n".join(line for line in lines if line)


def _signature(node: ast.FunctionDef, name: str = "") -> str:
    """`name(arguments) -> result` without self, an argument a line where it is long.

    Args:
        name: instead of the function's own.
    """
    arguments = re.sub(r"^(self|cls)(, |$)", "", ast.unparse(node.args))
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    name = name or node.name
    text = f"{name}({arguments}){returns}"
    if len(text) <= WIDTH:
        return text
    parts = _split(arguments)
    return f"{name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


def _split(arguments: str) -> list[str]:
    """At the commas that no bracket or quote encloses."""
    parts, depth, quote, start = [], 0, "", 0
    for place, letter in enumerate(arguments):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(arguments[start:place].strip())
            start = place + 1
    return [*parts, arguments[start:].strip()]


def _class(node: ast.ClassDef) -> str:
    """The class with its bases, and its fields if it is a dataclass or named tuple."""
    bases = f"({', '.join(map(ast.unparse, node.bases))})" if node.bases else ""
    fields = [
        f"    {ast.unparse(item)}"
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item).startswith("_")
    ]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _signature(item, node.name)
    return "\n".join([f"class {node.name}{bases}", *fields])


def _methods(node: ast.ClassDef) -> list[str]:
    found = []
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or item.name.startswith("_"):
            continue
        marks = {ast.unparse(mark) for mark in item.decorator_list}
        text = ast.get_docstring(item)
        if any(mark.endswith((".setter", "overload")) for mark in marks):
            continue
        if "property" in marks or "cached_property" in marks:
            shown = f".{item.name}"
        else:
            shown = _signature(item, f".{item.name}")
        found.append(_code(shown))
        if text:
            found.append(_text(text))
    return found


def _short(text: str) -> str:
    lines = text.splitlines()
    return text if len(text) <= 300 else f"{lines[0][:WIDTH]} ..."


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _text(docstring: str) -> str:
    """A docstring as Markdown: prose, indented code, and lists for its sections."""
    blocks: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        lines = block.splitlines()
        head = lines[0].rstrip(":")
        if head in SECTIONS and lines[0].endswith(":"):
            blocks.append(f"*{head}*\n\n{_items(lines[1:])}")
        elif all(line.startswith("    ") for line in lines):
            code = inspect.cleandoc(block)
            if blocks and blocks[-1].endswith("\n```"):  # goes on after an empty line
                blocks[-1] = blocks[-1].removesuffix("\n```") + f"\n\n{code}\n```"
            else:
                blocks.append(f"```text\n{code}\n```")
        else:
            blocks.append("\n".join(prose(line) for line in lines))
    return "\n\n".join(blocks)


def _items(lines: list[str]) -> str:
    """'name: what it is' lines as a list, continued lines with the item they belong to."""
    items: list[str] = []
    inner = inspect.cleandoc("\n".join(lines)).splitlines()
    for line in inner:
        named = re.match(r"([*\w][\w, *.\[\]]*):\s+(.*)", line)
        if named and not line.startswith(" "):
            items.append(f"- `{named[1]}`: {prose(named[2])}")
        elif items:
            items[-1] += f"\n  {prose(line.strip())}"
        else:
            items.append(f"- {prose(line.strip())}")
    return "\n".join(items)
