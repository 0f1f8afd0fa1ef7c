"""The folders of the package import each other in one direction, as docs/architecture.md says."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import attlm_fairseq

PACKAGE = Path(attlm_fairseq.__file__).parent
ARCHITECTURE = PACKAGE.parent / "docs" / "architecture.md"
# A folder may import those before it in this order. Modules of the package itself, such as `errors.py`, import no folder;
# only `plugin.py` does, to register the tasks.
ORDER = (
    *("files", "text", "modules", "checkpoints", "scoring", "decoding", "models", "criterions", "tasks"),
    *("nbest", "cloze", "attention", "verbs"),
)


def imports(file: Path) -> Iterator[str]:
    """Yield the folders of the package that a file imports when it runs."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            block.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for package, _, name in (name.partition(".") for name in names):
            folder = name.partition(".")[0]
            if package == PACKAGE.name and folder and (PACKAGE / folder).is_dir():
                yield folder


def test_folders_import_only_folders_before_them():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ORDER)
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {other}/"
        for place, folder in enumerate(ORDER)
        for file in (PACKAGE / folder).rglob("*.py")
        for other in imports(file)
        if other not in ORDER[: place + 1]
    ]
    modules = [file for file in PACKAGE.glob("*.py") if file.name != "plugin.py"]
    wrong += [f"{file.name} imports {folder}/" for file in modules for folder in imports(file)]
    assert not wrong


def test_the_guide_names_every_folder():
    table = ARCHITECTURE.read_text(encoding="utf-8").split("## Folders")[1].split("## ")[0]
    assert [folder for folder in ORDER if f"`{folder}/`" not in table and f"`attlm_fairseq/{folder}/`" not in table] == []


def test_no_file_imports_itself_by_way_of_others():
    files = {".".join(("attlm_fairseq", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in PACKAGE.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in files.items() if path != PACKAGE / "__init__.py"}
    graph = {name: {found for found in imported(path, modules) if found != name} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def imported(file: Path, modules: Collection[str]) -> Iterator[str]:
    """Yield which of the modules a file imports, when it runs or for its types."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = {name if (name := f"{node.module}.{alias.name}") in modules else str(node.module) for alias in node.names}
        else:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
        yield from names & set(modules)
