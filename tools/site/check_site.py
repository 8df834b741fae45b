#!/usr/bin/env python3
"""//docs:site is made without a warning: every public symbol has documentation, and links, anchors and pictures lead somewhere.

Public are the headers that tandem.h reaches. make_site.is_exempt says which members need no comment; nor do the values of an enumeration that
has one, friends, and specializations of templates. Needs Debian's doxygen.
"""

import os
import sys
import tempfile

sys.dont_write_bytecode = True
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
    (_tree({"README.md": ("(docs/a.md)", "(docs/b.md)")}), ["README.md:3: the link docs/b.md", "README.md:6: the link docs/b.md"]),
    (_tree({"README.md": ("#two-words", "#three-words")}), ["a.html has no anchor #a--three-words"]),
    (_tree({"README.md": ("p.svg", "q.svg")}), ["README.md:3: the link docs/q.svg", "the link q.svg"]),
    (_tree({"README.md": ("Two\nwords", "")}), ["the picture docs/p.svg has no text"]),
    (_tree({"docs/a.md": ("../base/a.h", "../base/b.h")}), ["docs/a.md:9: the link ../base/b.h"]),
    (_tree({"examples/README.md": ("p.svg", "q.svg")}), ["examples/README.md:3: the link ../docs/q.svg", "the link q.svg"]),
]

if __name__ == "__main__":
    if not make_site.have_doxygen():
        sys.exit("doxygen is missing; as root: " + make_site.INSTALL)
    common.run(check, PLANTED, at_least=10000)
