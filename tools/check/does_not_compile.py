#!/usr/bin/env -S python3 -B
"""Checks that lines which could only be mistakes do not compile, what the compilers say about each, that clang compiles public headers
and programs, and that a test assigns to the results of all functions."""

import os
import re
import shutil

import common
import public_headers

PRELUDE = """#include <tandem/tandem.h>
namespace td = tandem;
struct Net : td::nn::Layer { td::Tensor forward(const td::Tensor& x) override { return x; } };
extern td::Tensor x;
extern const td::Tensor y;
extern Net net;
extern td::optim::SGD sgd;
extern td::data::DigitsDataset digits;
extern std::shared_ptr<td::distributed::ProcessGroup> group;
"""
# For MISTAKES.
MORE = PRELUDE + """#include <tandem/optim/define_optimizer.h>
#include <tandem/train/trainer.h>
namespace nn = td::nn;
struct Plain : nn::Module { td::Tensor forward(const td::Tensor& x) { return x; } };
extern nn::Sequential body;
extern Plain plain;
extern td::train::Trainer trainer;
extern int argc;
extern char** argv;
void init(nn::Linear&);
void init(nn::Conv2d&);
struct Reserved {
  using Options = td::optim::SGDOptions;
  static constexpr const char* kName = "Reserved";
  static constexpr bool kCountsSteps = false;
  static std::vector<td::optim::Option> options(Options&);
  static constexpr td::optim::StateTensor<Options> kState[] = {{"sum"}, {"step"}};
  static void update_tensor(const Options&, const td::optim::TensorStep&);
};
"""
# A line, and a part of the compiler's message about it.
LINES = [
    # A variable refers to another tensor after an assignment, which a constant one or a number cannot do.
    ("y = x;", "passing 'const tandem::v0::Tensor' as 'this' argument discards qualifiers"),
    ("x = 1.5;", "use of deleted function 'tandem::v0::Tensor& tandem::v0::Tensor::operator=(tandem::v0::Scalar) &'"),
    ("for (td::Tensor row : x.unbind()) row = 0;", "use of deleted function 'tandem::v0::Tensor& tandem::v0::Tensor::operator=(tandem::v0::Scalar) &'"),
    # Temporary handles cannot be exchanged.
    ("std::swap(x[0], x[1]);", "no matching function for call to 'swap("),
    # Only integers are shapes and dimensions; only dtypes, devices and texts are options.
    ("td::zeros(true);", "no matching function for call to 'zeros(bool)'"),
    ("td::zeros(2.0);", "no matching function for call to 'zeros(double)'"),
    ("td::zeros(td::kInt64);", "no matching function for call to 'zeros(tandem::v0::DType)'"),
    ("td::full(2, 3, 4);", "no matching function for call to 'full(int, int, int)'"),
    ("td::full(2);", "no matching function for call to 'full(int)'"),
    ("x.sum(true);", "no matching function for call to 'tandem::v0::Tensor::sum(bool)'"),
    ("x.view();", "no matching function for call to 'tandem::v0::Tensor::view()'"),
    ("x.view(2, 1.5);", "no matching function for call to 'tandem::v0::Tensor::view(int, double)'"),
    ("x.to(0);", "no matching function for call to 'tandem::v0::Tensor::to(int)'"),
    # Objects that are kept by reference.
    ("td::DistributedDataParallel ddp(Net(), group);", "class template argument deduction failed"),
    ("td::optim::StepLR schedule(td::optim::SGD(net.parameters(), {.lr = 1}), {.step_size = 1});", "cannot bind non-const lvalue reference"),
]
# Mistakes, and what must be in the first error of g++, and of clang++ if that is different: a sentence of the library, or, of a deleted
# function, a name that says it. Each output has at most _MOST lines; lists of includes and the standard library's call chain do not count.
_MOST = 15
_NOT_COPIED = "modules are not copied: write nn::Linear& fc = add<nn::Linear>(..) or nn::ModuleList"
_NO_CALL = "the module has no operator(): derive it from nn::Layer"
_NO_OPTION = ("NoSuchConstructorOrOption", "has no such constructor, or")
MISTAKES = [
    ('net.add<nn::Conv2d>("conv", 1, 2, 3, {.strid = 2});', *_NO_OPTION),
    ("body.append<nn::Conv2d>(1, 2, 3, {.strid = 2});", *_NO_OPTION),
    ('net.add<nn::Conv2d>("conv", "wide");', *_NO_OPTION),
    ('struct Own : nn::Module { nn::Linear fc = add<nn::Linear>("fc", 1, 2); } own;', _NOT_COPIED),
    ("std::vector<nn::Linear> layers; layers.push_back(nn::Linear(1, 2));", _NOT_COPIED),
    ("std::vector<nn::Linear> layers; layers.emplace_back(1, 2);", _NOT_COPIED),
    ("struct Own : nn::Module { std::vector<nn::Linear> layers{nn::Linear(1, 2)}; } own;", _NOT_COPIED),
    ("nn::Linear fc(1, 2), other = fc;", _NOT_COPIED),
    ('nn::Linear fc(1, 2); net.add_module("fc", fc);', "a module that has a name is not copied: create it in the call"),
    ("plain(x);", _NO_CALL),
    ("td::DistributedDataParallel ddp(plain, group); ddp(x);", _NO_CALL),
    ("net.apply(init);", "OverloadedFunctionNeedsALambda", "an overloaded function needs a lambda: apply([](nn::Linear& linear)"),
    ("td::data::DataLoader loader(digits, td::data::SequentialSampler(9));", "the sampler is a temporary: use a variable"),
    ("td::distributed::launch(argc, argv, [](int rank) {});", "launch: f is not a function of the context"),
    ("trainer.fit([](const td::data::Batch& batch) { return 1.0; });", "fit: loss is not a function of a batch that returns a Tensor"),
    ("td::optim::rule<Reserved>();", "kState: name, step and master are names of the base class"),
    ("td::add(1, 2);", "add: one of the two must be a Tensor"),
    ("td::pow(2, 0.5);", "pow: one of the two must be a Tensor"),
]
# Mistakes that C++ reports before it looks at code of the library, or in which a text of the library would need a conversion that would
# make correct calls ambiguous. The first error is the compiler's own.
COMPILERS_OWN = [
    ("nn::Conv2d conv(1, 2, 3, {.strid = 2});", "no matching function for call to 'tandem::v0::nn::Conv2d::Conv2d(int, int, int, <brace",
     "no matching constructor for initialization of 'nn::Conv2d'"),
    ("td::optim::SGD other(net.parameters(), {.learning_rate = 1});", "no matching function for call to 'tandem::v0::optim::SGD::SGD(",
     "no matching constructor for initialization of 'td::optim::SGD'"),
    ("td::DistributedDataParallel a(net, group), b(body, group);", "inconsistent deduction for 'DistributedDataParallel",
     "template arguments deduced as 'tandem::DistributedDataParallel<Net>' in declaration of 'a' and deduced as"),
    ("double loss = td::mse_loss(x, x);", "cannot convert 'tandem::v0::Tensor' to 'double'", "no viable conversion from 'Tensor' to 'double'"),
    ("td::relu(3.0);", "from 'double' to 'tandem::v0::Tensor'", "from 'double' to 'Tensor'"),
    ("td::maximum(x, 0.5);", "from 'double' to 'tandem::v0::Tensor'", "from 'double' to 'Tensor'"),
    ("td::Tensor t = 3.0;", "from 'double' to non-scalar type 'tandem::v0::Tensor'", "from 'double' to 'td::Tensor'"),
    # A function declaration, which compiles; the use of the variable does not.
    ("nn::Sequential own(nn::ReLU(), nn::Flatten()); own(x);", "cannot convert 'tandem::v0::Tensor' to 'tandem::v0::nn::ReLU (*)()'",
     "too few arguments to function call"),
]
CLANG = "clang++-19"  # of both Debian 12 and 13


def check_mistakes(root, mistakes=MISTAKES + COMPILERS_OWN, prelude=MORE):
    violations = []
    with common.compiler(root) as compile_text:
        with open(os.path.join(compile_text.folder, "prelude.h"), "w", encoding="utf-8") as f:
            f.write(prelude)
        for compiler, precompiled, *include in (("g++", "prelude.h.gch", "-include", "prelude.h"),
                                                (CLANG, "prelude.h.pch", "-include-pch", "prelude.h.pch")):
            if shutil.which(compiler) is None:
                continue
            errors = compile_text(None, "-Wall", "-Wextra", "-x", "c++-header", "prelude.h", "-o", precompiled, program=compiler).stdout
            if errors:
                violations.append("%s: the prelude does not compile: %s" % (compiler, errors[:400]))
                continue
            for line, *parts in mistakes:
                output = compile_text("void mistake() { %s }\n" % line, *include, "-fsyntax-only", "-x", "c++", program=compiler).stdout
                own = re.sub(r"^/(?:usr|bin)/.*\n(?: .*\n)*", "", output, flags=re.MULTILINE)
                shown = [text for text in own.splitlines() if not re.match(r"(In file included)? +from |In file included|\d errors? gen", text)]
                part = parts[0 if compiler == "g++" else -1]
                first = next((text for text in output.splitlines() if "error: " in text), "no error")
                if part not in first:
                    violations.append("%s: %s: expected %r in the first error: %s" % (compiler, line, part, first))
                elif len(shown) > _MOST:
                    violations.append("%s: %s: %d lines, expected at most %d:\n%s" % (compiler, line, len(shown), _MOST, output))
    return violations, len(mistakes)


def check(root, lines=LINES, prelude=PRELUDE):
    source = prelude + "".join("void line%d() { %s }\n" % (i, line) for i, (line, _) in enumerate(lines))
    with common.compiler(root) as compile_text:
        done = compile_text(source, "-fsyntax-only", "-x", "c++")
    errors = re.findall(r"^<stdin>:(\d+):\d+: error: (.*)", done.stdout, re.MULTILINE)
    violations = []
    for i, (line, part) in enumerate(lines):
        found = [text for number, text in errors if int(number) == prelude.count("\n") + i + 1]
        if not any(part in text for text in found):
            violations.append("%s: expected %r, found %s" % (line, part, found or "no error"))
    return violations, len(lines)


def check_clang(root):
    """clang compiles the public headers, and the programs of tests/consumer, without warnings."""
    headers = [header for header in public_headers.installed_headers(root) if "cuda/" not in header and not header.endswith("_cuda.h")]
    texts = ["".join("#include <tandem/%s>\n" % header for header in headers)]
    texts += ["#include <tandem/%s>\n" % path for path in common.files(root, ["tests/consumer"], (".cc",))]
    flags = "-Wall", "-Wextra", "-Wshadow", "-fsyntax-only", "-x", "c++"
    with common.compiler(root) as compile_text:
        outputs = [compile_text(text, *flags, program=CLANG).stdout for text in texts if shutil.which(CLANG)]
    return [next(line for line in output.splitlines() if ": " in line) for output in outputs if output], len(texts)


def assigned(root, headers=None):
    """Each function that returns a new tensor has a row in tests/assignment_test.cc; those of ops/ have their own test."""
    rows = common.read(root, "tests/assignment_test.cc")
    names = {}
    for path in headers or public_headers.installed_headers(root):
        if not path.startswith(("ops/", "tensor/cuda")):
            names.update((name, path) for name in re.findall(r"^TANDEM_API (?:inline )?Tensor (\w+)\(", common.read(root, path), re.MULTILINE))
    views = ["from_blob", "from_dlpack", "make_view"]  # in tests/ops/in_place_test.cc
    return ["tests/assignment_test.cc: no row for %s of %s" % (name, path) for name, path in names.items()
            if '{"%s"' % name not in rows and name not in views], len(names)


if __name__ == "__main__":
    common.self_test(lambda root: check(root, [("int x = f();", "'f' was not declared"), ("int y;", "error"), ("int z = g();", "zzz")], ""),
                     [({}, ["int y;: expected 'error', found no error", "int z = g();: expected 'zzz', found ["])])
    long = "; ".join("a%d" % i for i in range(16)) + ";"  # several lines of output for each
    common.self_test(lambda root: check_mistakes(root, [("int y;", "zzz"), ("f(); int z = zzz;", "zzz"), (long, "a0"), ("f();", "'f'")], "\n"),
                     [({}, [compiler + text for compiler in ("g++", CLANG) if shutil.which(compiler) for text in
                            (": int y;: expected 'zzz' in the first error: no error", ": f(); int z = zzz;: expected 'zzz' in the", ": a0; a1;")])])
    common.self_test(check_clang, [({"tools/install/BUILD": "", "tandem.h": "#pragma once\nstd::string f();\n",
                                     "tests/consumer/a.cc": '#include "b.h"\n', "tests/consumer/b.h": "inline void g(int x) {}\n"},
                                    ["tandem.h:2:", "b.h:1:19: warning: unused parameter 'x'"] if shutil.which(CLANG) else [])])
    common.self_test(lambda root: assigned(root, ["tensor/f.h"]),
                     [({"tests/assignment_test.cc": '{"f", 1},', "tensor/f.h": "TANDEM_API Tensor f(int x);\nTANDEM_API inline Tensor g(int x) {}\n"},
                       ["tests/assignment_test.cc: no row for g of tensor/f.h"])])
    common.run(lambda root: [sum(parts, start=type(parts[0])()) for parts in zip(check(root), check_mistakes(root), check_clang(root), assigned(root))], [], at_least=40)
