#!/usr/bin/env -S python3 -B
"""//docs:site is made without a warning: every public symbol has documentation, and links, anchors and pictures lead somewhere.

Public are the headers that tandem.h, models/ and train/ reach. make_site.is_exempt says which members need no comment; nor do the
values of an enumeration that has one, friends, and specializations of templates. Needs Debian's doxygen.
"""

import os
import sys
import tempfile

import make_site
import common


def check(root):
    with tempfile.TemporaryDirectory() as folder:
        return make_site.build(root, os.path.join(folder, "site"))


def _tree(changes):
    """A small tree without faults, with changes: {path: (old text, new text)}."""
    tree = {
        "tandem.h": "// All of it.\n#include <tandem/base/a.h>\n",
        "base/a.h": """// The first header. It has all kinds of symbols.
#pragma once

#include <tandem/base/version.h>

namespace tandem { inline namespace v0 {

/// A kind.
enum class Kind { kOne, kTwo };

/// Numbers, as docs/a.md says.
using Numbers = int*;

/// A class.
struct Options {
  int rank = 0;  ///< a field
  Options() = default;
  Options(const Options&) = default;
  /// A method.
  int method() const { return 0; }
};

/// A function. Returns an Options.
int function(int x, int y = 1);
int function_async(int x, int y = 1);

}}  // namespace tandem::v0

/// A macro.
#define TANDEM_MACRO(x) x
""",
        "base/version.h": "// The version.\n#pragma once\n",
        "tools/install/BUILD": '"tandem/train/b.h"',
        "train/b.h": "// A loop.\n#pragma once\nnamespace tandem { inline namespace v0 { namespace train {\n/// A loop.\nvoid loop();\n}}}  // namespace tandem::v0::train\n",
        "README.md": "# tandem\n\n![Two\nwords](docs/p.svg) [a](docs/a.md) [b](docs/a.md#two-words) `base/a.h`\n\n| Start | [a](docs/a.md) |\n",
        "docs/a.md": "# A\n\n## Two words\n\n```cpp\nint x;\n```\n\n[top](../README.md) [code](../base/a.h) [picture](p.svg)\n",
        "docs/p.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
        "examples/README.md": "# Gallery\n\n![A picture](../docs/p.svg) [top](../README.md)\n",
    }
    for path, (old, new) in changes.items():
        assert old in tree[path], (path, old)
        tree[path] = tree[path].replace(old, new)
    return tree


PLANTED = [
    (_tree({}), []),
    (_tree({"base/a.h": ("/// A kind.\n", "")}), ["base/a.h:8: Member Kind"]),
    (_tree({"base/a.h": ("/// Numbers, as docs/a.md says.\n", "")}), ["base/a.h:11: Member Numbers"]),
    (_tree({"base/a.h": ("/// A class.\n", "")}), ["base/a.h:14: Compound tandem::Options"]),
    (_tree({"base/a.h": ("  ///< a field", "")}), ["base/a.h:16: Member rank"]),
    (_tree({"base/a.h": ("  /// A method.\n", "")}), ["base/a.h:19: Member method() const"]),
    (_tree({"base/a.h": ("/// A function. Returns an Options.\n", "")}),
     ["base/a.h:23: Member function(int x", "base/a.h:24: Member function_async(int x"]),
    (_tree({"base/a.h": ("int function_async", "int another_name")}), ["base/a.h:25: Member another_name"]),
    (_tree({"base/a.h": ("/// A macro.\n", "")}), ["base/a.h:29: macro TANDEM_MACRO"]),
    (_tree({"base/a.h": ("/// A class.", "/// A class. See @ref gone.")}), ["base/a.h:14: unable to resolve reference to 'gone'"]),
    (_tree({"train/b.h": ("/// A loop.\n", "")}), ["train/b.h:4: Member loop()"]),
    (_tree({"README.md": ("(docs/a.md)", "(docs/b.md)")}), ["README.md:4: unable to resolve reference to 'docs/b.md'", "README.md:6: unable to resolve reference to 'docs/b.md'"]),
    (_tree({"README.md": ("#two-words", "#three-words")}), ["README.md:4: unable to resolve reference to 'a--three-words'"]),
    (_tree({"README.md": ("p.svg", "q.svg")}), ["README.md: the link docs/q.svg"]),
    (_tree({"docs/a.md": ("../base/a.h", "../base/b.h")}), ["docs/a.md: the link ../base/b.h leads to nothing"]),
    (_tree({"examples/README.md": ("p.svg", "q.svg")}), ["examples/README.md: the link ../docs/q.svg"]),
]

# As in Doxygen's warnings.
EXEMPT = ["Options() (function) of struct tandem::Options", "Options(const Options &) (function) of struct tandem::Options",
          "Options(Options &&other) noexcept (function) of struct tandem::Options", "push_back(T x) (function) of class tandem::SmallVector",
          "operator=(Options &&) (function) of struct tandem::Options", "push_back(T x) (function) of class SmallVector< int64_t, 6 >",
          "operator<<(std::ostream &out, const Shape &shape) (function) of namespace tandem"]
NOT_EXEMPT = ["Options(int x) (function) of struct tandem::Options", "size() const (function) of class tandem::State",
              "Options(const Others &) (function) of struct tandem::Options", "add(Tensor a) (function) of namespace tandem",
              "rank (variable) of struct tandem::Options", "SmallVector (typedef) of namespace tandem",
              "operator+(const Tensor &a, const Tensor &b) (function) of namespace tandem"]

# Lines of a header, in which some lines get the comment of the one above.
SHARED = [
    (["/// A.", "int f(int x);", "int f(float x);", "int f_async();", "int g();"], {2: "/** A. */ int f(float x);", 3: "/** A. */ int f_async();"}),
    (["/// A.", "/// B.", "int f(int x);", "int f();", "", "int f(float x);"], {3: "/** A. @nl B. */ int f();"}),
    (["int f(int x);  ///< a", "int f(float x);", "int g();"], {1: "/** a */ int f(float x);"}),
    (["  /// A.", "  void send(int x);", "  int isend(int x,", "            int y);"], {2: "  /** A. */ int isend(int x,"}),
    (["/// A.", "void all_x_coalesced();", "void y_coalesced();"], {2: "/** A. */ void y_coalesced();"}),
    (["/// A.", "int f(int x) { return f(x, 1); }", "int g(int x) { return g(x, 1); }", "int h(int x);"], {2: "/** A. */ int g(int x) { return g(x, 1); }"}),
]

SUMMARIES = [("// Layers (A. V et al., \"x\", 2017). More.\n#x", "Layers (A. V et al., \"x\", 2017)."), ("// One line,\n// two lines: x\n", "One line, two lines: x.")]


def self_test():
    for symbols, expected in ((EXEMPT, True), (NOT_EXEMPT, False)):
        for symbol in symbols:
            if make_site.is_exempt("Member %s is not documented." % symbol) != expected:
                sys.exit("%s is %sexempt" % (symbol, "not " if expected else ""))
    for lines, changed in SHARED:
        if make_site.share_comments(lines) != [changed.get(at, line) for at, line in enumerate(lines)]:
            sys.exit("%r became %r" % (lines, make_site.share_comments(lines)))
    for text, expected in SUMMARIES:
        if make_site.summary(text)[0] != expected:
            sys.exit("%r became %r" % (text, make_site.summary(text)))


if __name__ == "__main__":
    if not make_site.have_doxygen():
        sys.exit("doxygen is missing; as root: " + make_site.INSTALL)
    self_test()
    common.run(check, PLANTED, at_least=200)
