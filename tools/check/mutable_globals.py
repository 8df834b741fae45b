#!/usr/bin/python3
"""Checks that libraries have no mutable globals, because ranks may be threads of one process: variables at namespace scope, static
locals, static members and thread_local variables must be const. mutable_globals_allowed.txt lists the exceptions, one per line:
file, name, reason.

The check parses C++ by its brackets only. Each `{` opens a namespace, a type, an initializer or a block. For each statement that
ends with `;` in a namespace or type, and each static one in a block, its tokens decide whether it defines a mutable variable.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
import common

ALLOWED = "tools/check/mutable_globals_allowed.txt"

_TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|&&|[{}()\[\];,=<>*&:~]|\S")
_NOT_A_VARIABLE = {
    "using", "typedef", "friend", "static_assert", "namespace", "extern", "return", "concept", "operator", "goto", "case",
    "default", "public", "private", "protected", "throw", "co_return", "co_yield", "delete", "asm"
}
_TYPE_WORDS = {"class", "struct", "union", "enum"}
_WORD = re.compile(r"[A-Za-z_]\w*$")
_INIT = "{}"  # stands for a skipped initializer


def _without_preprocessor(text):
    """Removes preprocessor lines; line numbers do not change."""
    out = []
    continued = False
    for line in text.split("\n"):
        directive = continued or line.lstrip().startswith("#")
        continued = directive and line.rstrip().endswith("\\")
        out.append("" if directive else line)
    return "\n".join(out)


def _strip_angles(words):
    """Removes template argument lists, from a `<` after a word to its `>`, and `template <...>`."""
    out = []
    i = 0
    while i < len(words):
        if words[i] == "<" and out and (_WORD.match(out[-1]) and out[-1] != "operator"):
            depth, parens, j = 0, 0, i
            while j < len(words):
                parens += {"(": 1, ")": -1}.get(words[j], 0)
                if parens == 0:
                    depth += {"<": 1, ">": -1}.get(words[j], 0)
                j += 1
                if depth == 0:
                    break
            if depth == 0:
                i = j
                continue
        out.append(words[i])
        i += 1
    return [w for w in out if w != "template"]


def _strip_brackets(words):
    """Removes [[attributes]], array bounds and alignas(...)."""
    out = []
    depth = 0
    i = 0
    while i < len(words):
        w = words[i]
        if w == "[":
            depth += 1
        elif w == "]":
            depth -= 1
        elif depth == 0 and w in ("alignas", "__attribute__", "decltype", "explicit") and words[i + 1:i + 2] == ["("]:
            level = 0
            while i + 1 < len(words):
                i += 1
                level += {"(": 1, ")": -1}.get(words[i], 0)
                if level == 0:
                    break
            if w == "decltype":
                out.append("auto")
        elif depth == 0:
            out.append(w)
        i += 1
    return out


def _declarator(words):
    """The words before the initializer."""
    depth = 0
    for i, w in enumerate(words):
        depth += {"(": 1, ")": -1}.get(w, 0)
        if depth == 0 and (w == "=" or w == _INIT):
            return words[:i]
    return words


def _mutable_variable(words, scope):
    """The name of the mutable variable that the statement defines, or None."""
    words = _strip_angles(_strip_brackets(words))
    while words[:1] and words[0] in ("public", "private", "protected") and words[1:2] == [":"]:
        words = words[2:]
    if not words or words[0] in _NOT_A_VARIABLE or {"operator", "using", "typedef", "friend"} & set(words):
        return None
    is_static = "static" in words or "thread_local" in words
    if scope != "namespace" and not is_static:
        return None
    if words[0] in _TYPE_WORDS and (len(words) <= 3 or ":" in words) and "=" not in words:
        return None  # a forward declaration
    words = _declarator(words)
    if "constexpr" in words or "consteval" in words:
        return None
    words = [w for w in words if w not in ("static", "inline", "constinit", "volatile", "mutable")]
    thread_local = "thread_local" in words
    words = [w for w in words if w != "thread_local"]
    if "(" in words:
        i = words.index("(")
        if words[i + 1:i + 2] == ["*"]:  # a pointer to function: void (*name)(int)
            name = next((w for w in words[i + 2:] if _WORD.match(w)), None)
            return None if name == "const" else name
        if scope != "block":  # a function, or a macro
            return None
        words = words[:i]  # static Type name(argument);
    if ":" in words:  # a bit field or a label
        words = words[:words.index(":")]
    names = [w for w in words if _WORD.match(w) and w != "const"]
    if len(names) < 2:
        return None
    after_pointer = len(words) - 1 - words[::-1].index("*") if "*" in words else -1
    if "const" in words[after_pointer + 1:] and not thread_local:
        return None
    return names[-1]


def _opens(words, scope):
    """What a `{` after these words opens: namespace, type, enum, block or initializer."""
    if scope == "initializer":
        return "initializer"
    plain = _strip_angles(_strip_brackets(words))
    names_type = bool(set(plain) & _TYPE_WORDS) and "(" not in plain and "=" not in plain
    if scope == "block" and not {"static", "thread_local"} & set(words):
        return "type" if names_type else "block"
    if sum({"(": 1, ")": -1}.get(w, 0) for w in words) > 0:
        return "initializer"
    if not plain or "operator" in plain:
        return "block"
    if "namespace" in plain or plain == ["extern", '"', '"']:
        return "namespace"
    if names_type:
        return "enum" if "enum" in plain else "type"
    if len(_declarator([w for w in plain if w != _INIT])) < len([w for w in plain if w != _INIT]):
        return "initializer"
    if plain[0] == "," or plain[-1] == _INIT:
        return "block"  # the body after a constructor's member initializers
    return "block" if "(" in plain else "initializer"


def mutable_globals(text):
    """(line, name) of each mutable global in C++ text."""
    text = _without_preprocessor(common.strip_comments_and_strings(text))
    found = []
    scopes = ["namespace"]
    statements = [[]]
    line, at = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", at, match.start())
        at = match.start()
        word = match.group(0)
        scope = scopes[-1]
        words = statements[-1]
        if word == "{":
            kind = _opens(words, scope)
            if kind in ("type", "enum"):  # struct { ... } name; defines a variable of some type
                statements[-1] = [w for w in words if w in ("static", "const", "constexpr", "typedef")] + ["auto"]
            elif kind != "initializer":
                statements[-1] = []
            scopes.append(kind)
            statements.append([])
        elif word == "}" and len(scopes) > 1:
            scopes.pop()
            statements.pop()
            if scope == "initializer":
                statements[-1].append(_INIT)
        elif word == ";" and sum({"(": 1, ")": -1}.get(w, 0) for w in words) <= 0:
            name = _mutable_variable(words, "block" if scope == "initializer" else scope)
            if name:
                found.append((line, name))
            statements[-1] = []
        elif scope != "enum":
            words.append(word)
    return found


def _allowed(root):
    """Returns {(file, name)} of the exceptions, and violations of the list's format."""
    entries, violations = set(), []
    if os.path.isfile(os.path.join(root, ALLOWED)):
        for line in common.read(root, ALLOWED).splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.split(None, 2)
            if len(fields) < 3:
                violations.append("%s: no reason given: %s" % (ALLOWED, line))
            else:
                entries.add((fields[0], fields[1]))
    return entries, violations


def check(root):
    paths = common.files(root, ("",) + common.LIBRARY_PACKAGES, common.CXX)
    allowed, violations = _allowed(root)
    used = set()
    for path in paths:
        for line, name in mutable_globals(common.read(root, path)):
            if (path, name) in allowed:
                used.add((path, name))
            else:
                violations.append("%s:%d: mutable global '%s'" % (path, line, name))
    violations += ["%s: %s %s does not exist; remove the line" % (ALLOWED, p, n) for p, n in sorted(allowed - used)]
    return violations, len(paths)


_CLEAN = """
#define STATIC static int hidden = 0; \\
  int also_hidden
// static int commented = 0;
namespace tandem { inline namespace v0 {
enum class Opaque : unsigned char;
template <int N, bool B = (N < 19) && (N <= max<int>() / 10)> struct Counted { static constexpr int kN = N; };
namespace detail { struct Forward; class A; enum class E : int { kOne = 1, kTwo }; }
using Map = std::map<int, int>;
template <class T, int N = 3> concept Small = requires(T t) { { t.size() } -> std::same_as<int>; };
constexpr int kSize = 3;
inline constexpr std::string_view kNames[] = {"a", "b;"};
const std::map<std::string, int> kTable{{"static int x;", 1}, {"b", 2}};
const char* const kText = "static int y = 0;";
const int kLambda = [] { int n = 0; for (int i = 0; i < 3; ++i) { n += i; } return n; }();
extern template class std::vector<int>;
static int helper(int a = 3, std::vector<int> v = {1, 2});
static inline const char* name() { return "static int z"; }
[[nodiscard]] auto f() -> int;
template <class T = int, class U = std::pair<T, T>>
struct Box : Base<T>, Other {
  int a = 0;
  T b{};
  static constexpr int kN = 3;
  static const int kM = 4;
  inline static const std::string kS{"x"};
  static Box make(int n) { return Box{n}; }
  static T* find(const char* name);
  mutable std::mutex mutex_;
  Box() : a{1}, b(2) { int local = 0; (void)local; }
  Box& operator=(const Box&) = default;
  friend bool operator==(const Box&, const Box&) { return true; }
 private:
  static void g();
  enum { kA, kB };
  struct { int x; } pair_;
};
int Box<int>::g(int n) const noexcept {
  int counter = 0;
  static const std::vector<int> table = {1, 2, 3};
  static constexpr float kHalf = 0.5f;
  static const auto* const pointer = new int(3);
  auto h = [&](int i) { counter += i; };
  if (n < 3) { static_cast<void>(n); }
  for (auto& [a, b] : pairs) { counter = a < b ? 1 : 0; }
  char c = '{';
  return counter;
}
Foo::Foo(int a) : a_{a}, b_{2} { b_ = 3; }
Foo::Foo(int a) : Base<int>(a), b_{2} { int b = 3; use(b); }
std::ostream& operator<<(std::ostream& out, const Foo& foo) { return out; }
}}  // namespace
"""

PLANTED = [
    ({"tensor/clean.cc": _CLEAN}, []),
    ({"tests/x.cc": "int fine_in_tests = 0;"}, []),
    ({"ops/a.cc": "namespace tandem {\nint counter = 0;\n}"}, ["ops/a.cc:2: mutable global 'counter'"]),
    ({"ops/a.cc": "static std::atomic<int> hits{0};"}, ["'hits'"]),
    ({"ops/a.cc": "namespace { std::map<std::string, std::vector<int>> registry; }"}, ["'registry'"]),
    ({"ops/a.h": "inline std::mutex mutex;\ninline const char* text = \"a\";"}, ["'mutex'", "'text'"]),
    ({"ops/a.cc": "static const char* const* table[3] = {a, b, c};"}, ["'table'"]),
    ({"ops/a.cc": "constinit int state = 3;\nstd::unique_ptr<const Foo> owner;"}, ["'state'", "'owner'"]),
    ({"ops/a.cc": "void f() {\n  if (x) {\n    static int calls = 0;\n  }\n}"}, ["ops/a.cc:3: mutable global 'calls'"]),
    ({"ops/a.cc": "Foo& instance() { static Foo foo; static Foo* leaked = new Foo(3); return foo; }"},
     ["'foo'", "'leaked'"]),
    ({"ops/a.cc": "Foo& instance() { static Foo foo(1, 2); static auto& other = *new Foo{1}; return foo; }"},
     ["'foo'", "'other'"]),
    ({"ops/a.cc": "auto f = [] { return 1; };"}, ["'f'"]),
    ({"ops/a.cc": "int g() { return [] { static int n = 0; return ++n; }(); }"}, ["'n'"]),
    ({"ops/a.h": "struct A { static int live; inline static std::atomic<long> total{0}; int fine = 0; };"},
     ["'live'", "'total'"]),
    ({"ops/a.cc": _CLEAN + "int A::live = 0;"}, ["'live'"]),
    ({"ops/a.cc": "thread_local const Foo* current = nullptr;\nvoid f() { thread_local int n; }"}, ["'current'", "'n'"]),
    ({"ops/a.cc": "void (*handler)(int) = nullptr;"}, ["'handler'"]),
    ({"ops/a.cc": "struct { int n; } state;\nstruct B { int n; } b;"}, ["'state'", "'b'"]),
    ({"ops/a.cc": "int x = 0;", ALLOWED: "# why\nops/a.cc x the reason\n"}, []),
    ({"ops/a.cc": "", ALLOWED: "ops/a.cc x the reason\n"}, ["does not exist"]),
    ({"ops/a.cc": "int x = 0;", ALLOWED: "ops/a.cc x\n"}, ["no reason given", "'x'"]),
]

if __name__ == "__main__":
    common.run(check, PLANTED, at_least=30)
