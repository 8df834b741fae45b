#!/usr/bin/env python3
"""The parts of //docs:site's checks that do without doxygen: links, pages, comments that declarations share, exempt symbols."""

import sys

sys.dont_write_bytecode = True
import headers
import links
import make_site
import pages
import common

PLANTED = [
    ({"a.html": "<h1 id='top'>A</h1><a href='b.html#x'>b</a><a href='#top'>a</a><a href='https://x.org/gone'>x</a><img src='c.svg' alt='c'/>",
      "b.html": "<a name='x'></a><object data='c.svg'></object>", "c.svg": ""}, []),
    ({"a.html": "<a href='b.html'>b</a>"}, ["the link b.html"]),
    ({"a.html": "<a href='b.html#y'>b</a><a href='#z'>z</a>", "b.html": "<i id='x'></i>"}, ["no anchor #y", "no anchor #z"]),
    ({"a.html": "<img src='c.svg' alt='c'/><object data='d.svg'></object><img alt='' src='e.svg'/>", "e.svg": ""},
     ["the link c.svg", "the link d.svg"]),
    ({"a.html": "<link href='a.css'/><script src='a.js'></script>"}, ["the link a.css", "the link a.js"]),
    ({"a.html": "", "search/all_0.js": "['x',['x',['../a.html#q',1,'f']]],['y',['y',['../b.html',1,'g']]]"},
     ["no anchor #q", "the link ../b.html"]),
]

# Lines of a header -> the lines that get a comment, with it.
SHARED = [
    (["/// A.", "int f(int x);", "int f(float x);", "int f_async(int x);", "int g();"], {2: "/// A.", 3: "/// A.", 4: "/// A."}),
    (["/// A.", "int f(int x);", "", "int f(float x);"], {2: "/// A."}),
    (["int f(int x);  ///< a", "int f(float x);", "int g();"], {}),
    (["  /// A.", "  void send(int x);", "  int isend(int x,", "            int y);", "  void recv(int x);"],
     {2: "  /// A.", 3: "  /// A.", 5: "  /// A."}),
    (["/// A.", "void all_x_coalesced();", "void y_coalesced();"], {2: "/// A.", 3: "/// A."}),
]

# As in Doxygen's warnings.
EXEMPT = ["Options() (function) of struct tandem::Options", "Options(const Options &) (function) of struct tandem::Options",
          "Options(Options &&other) noexcept (function) of struct tandem::Options",
          "operator=(Options &&) (function) of struct tandem::Options", "push_back(T value) (function) of class tandem::SmallVector",
          "push_back(int64_t value) (function) of class SmallVector< int64_t, 6 >",
          "operator<<(std::ostream &out, const Shape &shape) (function) of namespace tandem"]
NOT_EXEMPT = ["tandem::Options", "Options(int x) (function) of struct tandem::Options", "size() const (function) of class tandem::State",
              "Options(const Others &) (function) of struct tandem::Options", "add(Tensor a) (function) of namespace tandem",
              "rank (variable) of struct tandem::Options", "SmallVector (typedef) of namespace tandem",
              "operator+(const Tensor &a, const Tensor &b) (function) of namespace tandem"]


def _check_shared(lines, expected):
    result = headers._share_comments(lines)
    found = {}
    for (line, _), (following, number) in zip(result, result[1:]):
        if line.lstrip().startswith("///") and not following.lstrip().startswith("///"):
            found[number] = line
    if found != expected:
        sys.exit("%r: expected %r, got %r" % (lines, expected, found))


def main():
    common.self_test(links.check, PLANTED)
    for lines, expected in SHARED:
        _check_shared(lines, expected)
    for symbols, expected in ((EXEMPT, True), (NOT_EXEMPT, False)):
        for symbol in symbols:
            if make_site.is_exempt(symbol) != expected:
                sys.exit("%s is %sexempt" % (symbol, "not " if expected else ""))
    if pages.slug("`launch`: starting ranks, 2.0") != "launch-starting-ranks-20":
        sys.exit("headings and GitHub's fragments differ")
    print("%d cases" % (len(PLANTED) + len(SHARED) + len(EXEMPT) + len(NOT_EXEMPT)))


if __name__ == "__main__":
    main()
