"""What a policy is made of, as a digest: its class and bases, the code of both and of every helper that the code names,
the constants and globals that it names, and its state, all by content. Equal digests mean equal policies, in any process:
addresses, the order of sets and PYTHONHASHSEED are not in it. What cannot be known by content (an open file, a generator,
code that reads files or the environment while it decides) is named, and then there is no identity.

Modules that are installed count by name and version, everything else by content. Objects are walked breadth first and
numbered as they are met, so that cycles end and shared objects stay shared."""

import builtins
import collections
import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.util
import logging
import os
import pathlib
import struct
import sys
import sysconfig
import threading
import types
import warnings
import weakref

_NOT_STATE = {"__dict__", "__weakref__", "__module__", "__annotations__", "__annotate__", "__annotate_func__", "__doc__",
              "__annotations_cache__", "__static_attributes__", "__firstlineno__", "_abc_impl", "__orig_bases__",
              "__parameters__", "__type_params__", "__slotnames__"}  # the last is what copy keeps of a class
_BEFORE_DECIDING = {"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__repr__", "__str__"}
_READS_MORE = {"open", "eval", "exec", "compile", "globals", "__import__", "input"}  # of builtins
_READS_MORE_BY_NAME = {"environ", "environb", "getenv", "import_module", "__globals__", "f_globals", "f_locals", "_getframe",
                       "currentframe", "read_text", "read_bytes", "fromfile", "loadtxt", "genfromtxt", "read_csv",
                       "read_parquet", "read_json", "urlopen", "check_output", "__builtins__"}
_GLOBAL_NAMES = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_SLOT_KINDS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_C_FUNCTIONS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
_CONTAINERS = (list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex)
_MISSING = object()
_IS_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of a class; some of C's have it, too


def _folders():
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths]
    found += [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    return tuple({os.path.realpath(path) + os.sep for path in found} | {os.path.abspath(path) + os.sep for path in found})


@functools.lru_cache(maxsize=None)
def _version(top):
    """The version of an installed package, or None: what has no version counts by content."""
    if top == "unmask":
        files = (pathlib.Path(__file__).with_name(name).read_bytes() for name in ("_policy.py", "_view.py"))
        return hashlib.sha256(b"".join(files)).hexdigest()
    module = sys.modules.get(top)
    if module is None or top == "__main__":
        return None
    file = getattr(module, "__file__", None)
    if top in sys.builtin_module_names or (file is None and getattr(module, "__spec__", None) is not None
                                           and module.__spec__.origin in ("built-in", "frozen")):
        return sys.version
    paths = [file] if file else list(getattr(module, "__path__", []))
    if not paths or not all(os.path.abspath(path).startswith(_folders()) for path in paths):
        return None
    if not any(part in ("site-packages", "dist-packages") for part in pathlib.Path(paths[0]).parts):
        return sys.version
    version = getattr(module, "__version__", None)
    if not isinstance(version, str):
        import importlib.metadata

        try:
            version = importlib.metadata.version(top)
        except Exception:  # no such distribution, or one whose metadata cannot be read
            version = None
    return version


def _installed(name):
    """(name, version) of an installed module, or None."""
    if not isinstance(name, str):
        return None
    version = _version(name.partition(".")[0])
    return (name, version) if version is not None else None


def _reached(module, qualname):
    """The object of that name in a module, or a value that is nothing else."""
    found = sys.modules.get(module, _MISSING)
    for part in (qualname or "?").split("."):
        found = getattr(found, part, _MISSING) if found is not _MISSING else found
    return found


def _named(thing):
    """(module, version, name) where an installed module has the thing under its name, or None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if not isinstance(name, str):
        return None
    installed = _installed(module)
    return (*installed, name) if installed and _reached(module, name) is thing else None


def _solid_base(kind):
    """The first class that C made: what memory an object has beside its attributes is that class's."""
    for base in kind.__mro__:
        if not base.__flags__ & _IS_MADE_IN_PYTHON:
            return base
        new = vars(base).get("__new__")
        if isinstance(new, types.BuiltinFunctionType) and getattr(new, "__self__", None) is base:
            return base
    return object


def _dotted(path, name):
    return f"{path}.{name}"


class _Undigested(Exception):
    pass


class Digest:
    """`hexdigest` of a thing; `unknown`: what it does not cover, in words."""

    def __init__(self, thing, name, _in_progress=()):
        self.unknown = []
        self._sha = hashlib.sha256(f"{sys.implementation.name} {sys.version_info[:3]} {sys.flags.optimize}".encode())
        self._numbers, self._kept, self._is_queued_strict, self._described = {}, [], set(), set()
        self._strict, self._lenient = collections.deque(), collections.deque()
        self._in_progress = _in_progress
        self._is_strict = True
        self._value(thing, name)
        while self._strict or self._lenient:
            self._is_strict = bool(self._strict)
            node, path = (self._strict or self._lenient).popleft()
            if id(node) in self._described:
                continue
            self._described.add(id(node))
            try:
                self._describe(node, path)
            except Exception as trouble:
                what = str(trouble) if isinstance(trouble, _Undigested) else f"a {type(node).__name__}"
                self._complain(f"{path} ({what})")
        self.hexdigest = self._sha.hexdigest()

    def _complain(self, what):
        self._emit("undigested")
        if self._is_strict:
            self.unknown.append(what)

    # What is hashed is a sequence of tagged, sized words, so that no two sequences are the same bytes.
    def _emit(self, tag, data=b""):
        if isinstance(data, str):
            data = data.encode("utf-8", "surrogatepass")
        self._sha.update(struct.pack("<BQ", len(tag), len(data)) + tag.encode())
        self._sha.update(data)

    def _value(self, value, path, is_strict=True):
        """A value in place: plain ones by content, others by number, to be described when their turn comes."""
        kind = type(value)
        if value is None or value is Ellipsis or value is NotImplemented:
            self._emit("constant", repr(value))
        elif kind in (bool, int, str, bytes):
            self._emit(kind.__name__, value if kind in (str, bytes) else hex(value))
        elif kind is float:
            self._emit("float", struct.pack("<d", value))
        elif kind is complex:
            self._emit("complex", struct.pack("<2d", value.real, value.imag))
        elif kind is tuple:
            self._emit("tuple", str(len(value)))
            for i, inner in enumerate(value):
                self._value(inner, f"{path}[{i}]", is_strict)
        elif kind is frozenset:
            self._set("frozenset", value, path, is_strict)
        elif kind is types.CodeType:
            self._code(value, path)
        elif kind is types.MethodType:
            self._emit("method")
            self._value(value.__func__, path, is_strict)
            self._value(value.__self__, path, is_strict)
        else:
            number = self._numbers.get(id(value))
            if number is None:
                number = self._numbers[id(value)] = len(self._numbers)
                self._kept.append(value)  # an address is nobody else's while it is kept
                self._lenient.append((value, path))
            if is_strict and self._is_strict and id(value) not in self._is_queued_strict:
                self._is_queued_strict.add(id(value))
                self._strict.append((value, path))
            self._emit("object", str(number))

    def _set(self, tag, values, path, is_strict=True):
        if id(values) in self._in_progress:
            self._emit("set around")
            return
        own = [(Digest(value, path, (*self._in_progress, id(values))), value) for value in values]
        own.sort(key=lambda pair: pair[0].hexdigest)
        self._emit(tag, str(len(own)))
        for digest, value in own:
            self._emit("member", digest.hexdigest)
            self._value(value, f"{path}{{...}}", is_strict)

    def _code(self, code, path):
        self._emit("code", code.co_code)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._value((code.co_name, counts, code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars,
                     getattr(code, "co_exceptiontable", b"")), path)
        self._emit("constants", str(len(code.co_consts)))
        for constant in code.co_consts:
            self._value(constant, path)

    def _describe(self, value, path):
        kind = type(value)
        self._emit("node", kind.__name__)
        for kinds, describe in self._KINDS:
            if isinstance(value, kinds):
                return describe(self, value, path)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic, numpy.dtype)):
            return self._numpy(numpy, value, path)
        return self._instance(value, path)

    # ---- code ----

    def _function(self, function, path):
        named = _named(function)
        if named:
            return self._value(named, path)
        self._emit("function", function.__name__)
        self._value(function.__code__, path)
        self._value(function.__defaults__, f"{path}'s default")
        self._dict_items(function.__kwdefaults__ or {}, f"{path}'s default")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self._value(cell, f"{name} in {path}")
        self._dict_items(vars(function), path)
        installed = _installed(function.__globals__.get("__name__"))
        if installed:
            return self._value(installed, path)
        return self._globals(function, path)

    def _globals(self, function, path):
        names, attributes, imports = set(), set(), set()
        self._names_of(function.__code__, names, attributes, imports)
        known = function.__globals__
        for name in sorted(names):
            if name in known:
                self._emit("global", name)
                self._value(known[name], self._global_path(known, name))
                self._attributes_of(known[name], attributes, name)
            elif hasattr(builtins, name):
                self._emit("builtin", name)
                if name in _READS_MORE:
                    self._complain(f"what {path} reads by {name}()")
            else:
                self._emit("missing", name)
        for name in sorted(attributes & _READS_MORE_BY_NAME):
            self._complain(f"what {path} reads by {name}")
        for name, level in sorted(imports):
            package = known.get("__package__") or known.get("__name__", "").rpartition(".")[0]
            module = importlib.import_module("." * level + name, package if level else None)
            self._emit("import", name)
            self._value(sys.modules[module.__name__.partition(".")[0]] if not level else module, name)
            self._value(module, name)
            self._attributes_of(module, attributes, name)

    @staticmethod
    def _global_path(known, name):
        return name if known.get("__name__") == "__main__" else f"{known.get('__name__')}.{name}"

    def _names_of(self, code, names, attributes, imports):
        last = []
        for instruction in dis.get_instructions(code):
            if instruction.opname in _GLOBAL_NAMES:
                names.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                level = last[-2].argval if len(last) > 1 else 0
                imports.add((instruction.argval, level if isinstance(level, int) else 0))
            elif isinstance(instruction.argval, str) and instruction.argval in code.co_names:
                attributes.add(instruction.argval)
            last = [*last[-1:], instruction]
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._names_of(constant, names, attributes, imports)

    def _attributes_of(self, value, attributes, path):
        """What code takes from a module of the user's by name has to be known; the rest of the module may be."""
        if not isinstance(value, types.ModuleType) or _installed(value.__name__):
            return
        for name in sorted(attributes & set(vars(value))):
            inner = vars(value)[name]
            self._emit("attribute", name)
            self._value(inner, f"{path}.{name}")
            if isinstance(inner, types.ModuleType) and inner.__name__.startswith(value.__name__ + "."):
                self._attributes_of(inner, attributes, f"{path}.{name}")

    def _module(self, module, path):
        installed = _installed(module.__name__)
        if installed:
            return self._value(installed, path)
        self._emit("module", module.__name__)
        file = getattr(module, "__file__", None)
        if file is not None and not file.endswith((".py", ".pyc")):
            self._emit("file", pathlib.Path(file).read_bytes())
        for name in sorted(vars(module)):
            if not (name.startswith("__") and name.endswith("__")):
                self._emit("attribute", name)
                self._value(vars(module)[name], f"{path}.{name}", is_strict=False)
        return None

    def _class(self, kind, path):
        named = _named(kind)
        if named or not kind.__flags__ & _IS_MADE_IN_PYTHON:
            self._value(named or (kind.__module__, kind.__qualname__), path)
            if not named and not _installed(kind.__module__):
                self._value(sys.modules.get(kind.__module__), kind.__module__)
            return None
        self._emit("class", kind.__qualname__)
        self._value(type(kind), path)
        self._value(kind.__bases__, path)
        attributes = {name: value for name, value in vars(kind).items() if name not in _NOT_STATE}
        for name in sorted(attributes):
            if not isinstance(attributes[name], _SLOT_KINDS):
                self._emit("attribute", name)
                self._value(attributes[name], _dotted(path if kind.__name__ in path else kind.__name__, name),
                            is_strict=name not in _BEFORE_DECIDING)
            else:
                self._emit("slot", name)
        return None

    # ---- values ----

    def _dict_items(self, items, path):
        self._emit("items", str(len(items)))
        for key, inner in items.items():
            self._value(key, path)
            self._value(inner, _dotted(path, key) if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]")

    def _listed(self, values, path):
        self._emit("values", str(len(values)))
        for i, inner in enumerate(values):
            self._value(inner, f"{path}[{i}]")

    def _numpy(self, numpy, value, path):
        if isinstance(value, numpy.dtype):
            return self._emit("dtype", f"{value.str} {value.descr if value.names else ''} {value!r}")
        array = numpy.asarray(value)
        self._value(type(value), path)
        self._emit("array", f"{array.dtype!r} {array.shape}")
        if array.dtype.hasobject or array.dtype.kind == "T":
            self._value(tuple(array.ravel().tolist()), path)
        else:
            self._sha.update(memoryview(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)))
        attributes = getattr(value, "__dict__", {})
        self._dict_items({name: attributes[name] for name in sorted(attributes) if name != "_mmap"}, path)
        return None

    def _instance(self, value, path):
        kind, base, named = type(value), _solid_base(type(value)), _named(value)
        if named:
            return self._value(named, path)
        self._value(kind, kind.__name__)
        own = {name for name in ("__reduce__", "__reduce_ex__", "__getstate__")
               if any(name in vars(c) for c in kind.__mro__ if c is not object)}
        if _named(kind) and (own or kind in copyreg.dispatch_table or base is not object) and base not in _CONTAINERS:
            return self._reduced(value, path)
        if base in _CONTAINERS:
            self._contents(value, base, path)
        elif base is not object and not issubclass(base, (BaseException, types.SimpleNamespace)):
            if own - {name for name in own if any(name in vars(c) for c in base.__mro__ if c is not object)}:
                raise _Undigested(f"a {kind.__name__}")
            self._reduced(value, path)
        elif issubclass(base, BaseException):
            self._value(value.args, path)
        return self._attributes_by_name(value, path)

    def _contents(self, value, base, path):
        if base in (set, frozenset):
            self._set(base.__name__, base(base.__iter__(value)), path)
        elif base is dict:
            self._dict_items(dict(dict.items(value)), path)
        elif base in (list, tuple):
            self._listed(list(base.__iter__(value)), path)
        elif base is bytearray:
            self._emit("bytearray", bytes(value))
        else:
            plain = {int: int.__int__, float: float.__float__, str: str.__str__, bytes: lambda v: bytes.__getitem__(v, slice(None)),
                     complex: lambda v: complex(v.real, v.imag)}[base](value)
            self._value(plain if type(plain) is base else base(plain), path)

    def _attributes_by_name(self, value, path):
        found = {}
        try:
            found.update(object.__getattribute__(value, "__dict__"))
        except AttributeError:
            pass
        for kind in type(value).__mro__:
            for name, slot in vars(kind).items():
                if isinstance(slot, types.MemberDescriptorType):
                    try:
                        found[f"{kind.__name__}:{name}" if name in found else name] = slot.__get__(value)
                    except AttributeError:
                        pass
        self._emit("attributes", str(len(found)))
        for name in sorted(found, key=str):
            self._value(name, path)
            self._value(found[name], _dotted(path, name))

    def _reduced(self, value, path):
        """What pickle would keep."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reduce = copyreg.dispatch_table.get(type(value))
            state = reduce(value) if reduce else value.__reduce_ex__(4)
        if isinstance(state, str):
            return self._value((*(_installed(type(value).__module__) or (type(value).__module__,)), state), path)
        self._emit("reduced", str(len(state)))
        for i, inner in enumerate(state):
            if i > 2 and inner is not None:
                self._emit("items" if i < 5 else "setter")
                self._value(tuple(inner) if i < 5 else inner, path)
            else:
                self._value(inner, path)
        return None

    def _c_function(self, function, path):
        owner = getattr(function, "__self__", None)
        self._emit("c function", function.__qualname__)
        if isinstance(owner, types.ModuleType) or owner is None:
            name = owner.__name__ if owner is not None else function.__module__
            module = sys.modules.get(name)
            self._value(_installed(name) or (module if module is not None else name), path)
        else:
            self._value(owner, path)

    def _refuse(self, value, path):
        raise _Undigested(f"a {type(value).__name__}")

    def _cell(self, cell, path):
        try:
            self._value(cell.cell_contents, path)
        except ValueError:
            self._emit("empty cell")

    def _cached(self, function, path):
        self._value(function.__wrapped__, path)
        self._value(tuple(sorted(function.cache_parameters().items())) if hasattr(function, "cache_parameters") else (), path)

    def _property(self, value, path):
        self._value((value.fget, value.fset, value.fdel), path)

    _KINDS = [
        (types.FunctionType, _function),
        (type, _class),
        (types.ModuleType, _module),
        (types.CellType, _cell),
        ((staticmethod, classmethod), lambda self, value, path: self._value(value.__func__, path)),
        (property, _property),
        (functools._lru_cache_wrapper, _cached),
        (_C_FUNCTIONS, lambda self, value, path: self._value((value.__objclass__, value.__name__), path)),
        ((types.BuiltinFunctionType, types.MethodWrapperType), _c_function),
        (_SLOT_KINDS, lambda self, value, path: self._value((value.__objclass__, value.__name__), path)),
        (types.MappingProxyType, lambda self, value, path: self._dict_items(dict(value), path)),
        (memoryview, lambda self, value, path: self._emit(f"{value.format} {value.shape}", value.tobytes())),
        (weakref.ref, lambda self, value, path: self._value(value(), path)),
        (logging.Logger, lambda self, value, path: self._emit("logger", value.name)),
        (_LOCKS, lambda self, value, path: None),
        ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType), _refuse),
    ]


def digest(policy):
    """(the policy's digest, what it does not cover in words): the digest is an identity where nothing is left out."""
    name = type(policy).__name__
    made = Digest(policy, name)
    return made.hexdigest, list(dict.fromkeys(made.unknown))
