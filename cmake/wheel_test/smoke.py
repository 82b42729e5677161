"""What fwht must do without any other package: `./testbed wheel` runs this file in an empty environment, with the installed wheel, and
with a folder of the package `kernels` as argument, which is imported as that package does it."""

import array
import importlib.util
import json
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
if folder is None:
    start = time.perf_counter()
    import fwht

    print(f"smoke test: import fwht took {1e3 * (time.perf_counter() - start):.0f} ms")
    assert {point.name for group in ("vllm.general_plugins", "sglang.srt.plugins") for point in entry_points(group=group)} == {"fwht"}
    assert importlib.util.find_spec("fast_hadamard_transform") is not None
else:
    name = json.loads((folder / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
    fwht = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fwht)

assert Path(fwht._c.library._name).parent == (folder or Path(fwht.__file__).parent)
assert not {"numpy", "torch"} & set(sys.modules)
assert fwht.operators.operator_for(14336) == "28x512"
assert {"auto", "cpu"} <= {variant.name for variant in fwht.variants()}
x = array.array("f", range(1, 9))
plan = fwht.plan(8, 1, "float32", scale=1.0, device="cpu")
assert fwht._c.library.fwht_plan_execute(plan._handle, x.buffer_info()[0], x.buffer_info()[0], None) == 0
assert x.tolist() == [36, -4, -8, 0, -16, 0, 0, 0]
if not fwht.build_info()["devices"]:  # as where wheels are made: one sentence, for a build with CUDA too
    try:
        fwht.plan(8, 1, "float32", device=0)
        raise AssertionError("a plan without a device")
    except RuntimeError as error:
        assert str(error).startswith("fwht: no CUDA device: "), error
print(f"smoke test: fwht {fwht.__version__} from {fwht.__file__} is right")
