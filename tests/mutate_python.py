"""Breaks of the module in Python, for mutate.py."""

import ast

TOKENS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
          ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
          ast.NotIn: ("not in", "in"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
          ast.FloorDiv: ("//", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and")}


class Places(ast.NodeVisitor):
    """(operator, begin, end, new text) of every break of a file. What is said (raise, assert, texts) is left as it is."""

    def __init__(self, text):
        self.text, self.found, self.starts, at = text, [], [], 0
        self.lines = text.splitlines(keepends=True)
        for line in self.lines:
            self.starts.append(at)
            at += len(line)
        self.visit(ast.parse(text))

    def at(self, line, column):
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node):
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def between(self, operator, kind, left, right):
        old, new = TOKENS[type(operator)] if type(operator) in TOKENS else (None, None)
        begin, end = self.span(left)[1], self.span(right)[0]
        at = self.text.find(f" {old} ", begin - 1, end + 1) if old else -1
        if at >= 0:
            self.found.append((kind, at + 1, at + 1 + len(old), new))

    def visit_Raise(self, node):
        pass

    visit_Assert = visit_JoinedStr = visit_Raise

    def visit_Compare(self, node):
        if len(node.ops) == 1:
            self.between(node.ops[0], "relation", node.left, node.comparators[0])
        self.generic_visit(node)

    def visit_BinOp(self, node):
        self.between(node.op, "arithmetic", node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        self.between(node.op, "logic", node.values[0], node.values[1])
        self.generic_visit(node)

    def visit_Constant(self, node):
        begin, end = self.span(node)
        if isinstance(node.value, bool):
            self.found.append(("constant", begin, end, str(not node.value)))
        elif isinstance(node.value, int):
            self.found.append(("constant", begin, end, str(node.value + 1)))

    def condition(self, node):
        begin, end = self.span(node.test)
        self.found.append(("condition", begin, end, f"not ({self.text[begin:end]})"))
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = condition

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Call):
            self.found.append(("statement", *self.span(node), "pass"))
        self.generic_visit(node)

    def visit_Assign(self, node):
        if isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
            self.found.append(("statement", *self.span(node), "pass"))
        self.generic_visit(node)

    def visit_AugAssign(self, node):
        self.found.append(("statement", *self.span(node), "pass"))
        self.generic_visit(node)

    def visit_Call(self, node):
        if len(node.args) == 2 and all(isinstance(arg, ast.Name) for arg in node.args):
            (begin, middle), (start, end) = self.span(node.args[0]), self.span(node.args[1])
            self.found.append(("arguments", begin, end, self.text[start:end] + self.text[middle:start] + self.text[begin:middle]))
        self.generic_visit(node)


def candidates(text):
    return Places(text).found


def compiles(text):
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def tests_of(text):
    """The names of the tests of a suite."""
    return [f"{kind.name}.{test.name}" for kind in ast.parse(text).body if isinstance(kind, ast.ClassDef)
            for test in kind.body if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")]
