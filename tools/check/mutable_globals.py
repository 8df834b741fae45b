#!/usr/bin/python3
"""Checks that libraries have no mutable globals, because ranks may be threads of one process: variables at namespace scope, static
locals, static members and thread_local variables must be constants that the compiler initializes. mutable_globals_allowed.txt lists
the exceptions, one per line: name, reason. A reason that begins with "CUDA:" or "MPI:" is for names that only builds for GPUs, or
with MPI, have.

    mutable_globals.py FOLDER...    # checks the *.a files below these folders

Mutable globals are the objects of the symbol table in writable sections. That includes pointers to mutable objects, and constants
that are initialized when the program starts.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

ALLOWED = os.path.join(os.path.dirname(os.path.realpath(__file__)), "mutable_globals_allowed.txt")

_WRITABLE = re.compile(r"\.(?:t?bss|tdata|data)\b(?!\.rel\.ro)")
_IGNORED = re.compile(r"guard variable for |DW\.ref\.|Eigen::|cudnn_frontend::|std::|__")  # of the compiler and of templates
_TOO_MUCH = re.compile(r"\[abi:\w+\]|\(anonymous namespace\)::|\btandem::v0::|\((?:[^()]|\(\))*\)(?: const)?|<(?:[^<>]|<[^<>]*>)*>")


def short_name(demangled):
    """tandem::v0::(anonymous namespace)::Pool::instance()::pool -> Pool::instance::pool"""
    previous = None
    while previous != demangled:
        previous, demangled = demangled, _TOO_MUCH.sub("", demangled)
    return demangled.split(" ")[-1]


def mutable_globals(path):
    """Names of the variables of an object file or archive that are in writable sections."""
    found = set()
    for line in subprocess.run(["nm", "-C", "--format=sysv", path], check=True, capture_output=True, text=True).stdout.splitlines():
        fields = [field.strip() for field in line.rsplit("|", 6)]
        if len(fields) == 7 and fields[3] in ("OBJECT", "TLS") and _WRITABLE.match(fields[6]) and not _IGNORED.match(fields[0]):
            found.add(short_name(fields[0]))
    return found


def check(found, allowed_lines):
    """Violations of a set of names."""
    entries = [line.split(None, 1) for line in allowed_lines]
    violations = ["%s: no reason given" % entry[0] for entry in entries if len(entry) < 2]
    reasons = {entry[0]: entry[-1] for entry in entries}
    violations += ["mutable global %s" % name for name in sorted(found - set(reasons))]
    return violations + ["%s does not exist; remove its line" % name for name, reason in reasons.items()
                         if name not in found and not reason.startswith(("CUDA:", "MPI:"))]


_SOURCE = """
#include <atomic>
#include <map>
#include <memory>
#include <string>
namespace tandem { inline namespace v0 {
struct Foo { int n; explicit Foo(int n) : n(n) {} static int live; static constexpr int kN = 3; inline static std::atomic<long> total{0}; };
constexpr int kSize = 3;
inline constexpr std::string_view kNames[] = {"a", "b;"};
const char* const kText[] = {"static int y = 0;", "b"};
const auto kFunction = &std::string::size;
static int helper(int a) { static constexpr int kHalf[] = {1, 2}; return kHalf[a]; }
namespace {
int counter;
std::map<std::string, int> registry;
}
int Foo::live = 0;
int state = 3;
std::unique_ptr<const Foo> owner;
const char* text = "a";
static const char* const* table[3] = {kText, kText, nullptr};
void (*handler)(int) = nullptr;
int (*function)(int) = &helper;
struct { int n; } unnamed;
const std::map<int, int> kMap{{1, 2}};
thread_local const Foo* current = nullptr;
Foo& instance(int x) {
  static Foo foo(x);
  static const auto* const leaked = new Foo(3);
  thread_local int calls;
  registry["x"] = counter++ + leaked->n + calls++ + kMap.at(1) + helper(x);
  return [] () -> Foo& { static Foo inner(2); return inner; }().n ? foo : *const_cast<Foo*>(current);
}
template <class T> T& twice(T x) { static T all = x; return all; }
long use() { table[kFunction == nullptr] = kText; return table[Foo::live][0][0] + kNames[0].size() + twice(3.5) + Foo::kN + Foo::total++ + unnamed.n++; }
}}
static int outside = 4;
int* use_outside() { return &outside; }
"""
_FOUND = {"counter", "registry", "Foo::live", "Foo::total", "state", "owner", "text", "table", "handler", "function", "unnamed", "kMap",
          "current", "instance::foo", "instance::leaked", "instance::calls", "instance::{lambda#1}::operator::inner", "twice::all", "outside"}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["g++", "-std=c++20", "-O2", "-fPIC", "-c", "-x", "c++", "-", "-o", folder + "/a.o"], input=_SOURCE, text=True, check=True)
        found = mutable_globals(folder + "/a.o")
    if found != _FOUND:
        sys.exit("self-test: missing %s, unexpected %s" % (_FOUND - found, found - _FOUND))
    violations = check({"a", "b"}, ["b why", "c reason", "d", "e CUDA: why", "f MPI: why"])
    if violations != ["d: no reason given", "mutable global a", "c does not exist; remove its line", "d does not exist; remove its line"]:
        sys.exit("self-test: %s" % violations)


def main(folders):
    self_test()
    archives = [path for folder in folders for path in glob.glob(folder + "/**/*.a", recursive=True)]
    found = set().union(*map(mutable_globals, archives))
    with open(ALLOWED, encoding="utf-8") as f:
        violations = check(found, f)
    print("\n".join(violations + ["%d archives, %d mutable globals, %d violations" % (len(archives), len(found), len(violations))]))
    return 1 if violations or not archives or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
