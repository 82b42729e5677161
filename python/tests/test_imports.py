"""The modules of fwht import downward only, and none hides an import of a sister inside a function."""

import ast
from pathlib import Path

import fwht

ROOT = Path(fwht.__file__).parent
FILES = {".".join(("fwht", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")}


def sisters(module, tree):
    """Modules of fwht that this one names in an import."""
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in FILES}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1] + ([base] if base else []))
            for alias in node.names:
                name = f"{base}.{alias.name}" if f"{base}.{alias.name}" in FILES else base
                found |= {name} & FILES.keys()
    return found - {module}


def test_no_import_inside_a_function():
    for module, path in FILES.items():
        if module.startswith("fwht.bench"):  # a program of its own, whose peers are optional
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert not sisters(module, function), f"{module}.{function.name}"


def test_no_circle():
    below = {module: sisters(module, ast.parse(path.read_text())) for module, path in FILES.items()}
    assert "fwht._torch.calls" in below["fwht._torch.eager"] and "fwht._c" in below["fwht.array"]  # the walk sees something
    done = set()

    def visit(module, way):
        assert module not in way, " -> ".join([*way, module])
        if module not in done:
            for other in sorted(below[module]):
                visit(other, [*way, module])
            done.add(module)

    for module in below:
        visit(module, [])
