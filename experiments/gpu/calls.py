"""The structures of kernels/calls*.h and the functions of kernels/device.h for ctypes, read from these headers, so that a
bench cannot lay out a call otherwise than the library does.

    calls.Linear(x=..., ...)         struct call_linear; fields that are not given are 0
    calls.DEVICE                     names of the device's functions, in the order of its table
"""
import ctypes
import glob
import os
import re

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "kernels")
TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
         "uint8_t": ctypes.c_uint8, "float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool}


def _read(path):
    with open(os.path.join(KERNELS, path)) as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def _field(declaration, numbers):
    """The (name, type) pairs of `const int32_t *a, b[N]`."""
    kind, names = re.fullmatch(r"(?:const )?((?:enum |struct )?\w+)\s+(.*)", declaration, re.S).groups()
    base = ctypes.c_int32 if kind.startswith("enum ") else TYPES.get(kind)
    for name in names.split(","):
        pointer, name, many = re.fullmatch(r"\s*(\**)\s*(\w+)(?:\[(\w+)\])?\s*", name).groups()
        one = ctypes.c_void_p if pointer else base
        yield name, one * (numbers.get(many) or int(many)) if many else one


def _structures():
    text = "".join(_read(path) for path in ["rules/draw_rule.h", *sorted(glob.glob("calls*.h", root_dir=KERNELS))])
    numbers = {name: int(value) for name, value in re.findall(r"\b([A-Z_]+) = (\d+)", text)}
    for whole, body in re.findall(r"(struct \w+) \{(.*?)\n\};", text, re.S):
        fields = [f for line in body.split(";") if line.strip() for f in _field(" ".join(line.split()), numbers)]
        name = "".join(part.capitalize() for part in whole.removeprefix("struct ").removeprefix("call_").split("_"))
        TYPES[whole] = type(name, (ctypes.Structure,), {"_fields_": fields})
        if whole.startswith("struct call_"):
            yield name, TYPES[whole]


globals().update(_structures())
DEVICE = re.findall(r"\(\*(\w+)\)\(", _read("device.h").split("struct device_table {")[1].split("#define")[0]) + \
    re.findall(r"^(?:RANK_)?KERNEL\((\w+),", _read("kernels.def"), re.M)
