"""Macros of tandem's BUILD files: compiler flags, include paths and test defaults."""

load("//tools/build:cuda.bzl", "cuda_objects", "link_only")
load("//tools/build:headers.bzl", "linked_headers")

# Flags that numerical results and symbols depend on are here and not in .bazelrc, so that a user's workspace builds the
# same library.
COPTS = [
    "-std=c++20",
    "-march=x86-64-v3",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Wall",
    "-Wextra",
    "-Wshadow",
]

# Flags of tests, which take longer to compile than to run.
TEST_COPTS = COPTS + ["-O0", "-U_FORTIFY_SOURCE"]

# The compiler does not vectorize square roots that set errno. The macro says the same to headers; precompiled headers of
# other flags cannot have it.
NO_MATH_ERRNO = ["-fno-math-errno", "-U__NO_MATH_ERRNO__"]

# Precompiled headers, which save a third of the time to compile. Only this workspace uses them (.bazelrc): others
# compile the library from the text of the headers.
def _precompiled(values):
    return select({
        "@tandem//tools/build:with_precompiled_headers": values,
        "//conditions:default": [],
    })

_STD_PCH = _precompiled(["-include", "std_pch.h"])
_STD_PCH_DEPS = _precompiled(["@tandem//tools/build:std_pch"])

# Flags and dependencies of tests, and of libraries in tests/ that include GoogleTest.
GTEST_PCH = _precompiled(["-include", "gtest_pch.h"])
GTEST_PCH_DEPS = _precompiled(["@tandem//tests/support:gtest_pch"])

# Flags of kernels that are emulated on the CPU: the compiler calls a function of //tests/cuda_emulation at each memory
# access. Not in linkopts, which would link ThreadSanitizer's functions instead. Builds with a sanitizer omit these
# checks.
EMULATED_CUDA_COPTS = select({
    "@tandem//tests/cuda_emulation:sanitizer": [],
    "//conditions:default": [
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        # Each access of the source stays one call, so that accesses can be counted: vectors are not split into their
        # elements, and threads on different paths execute the same code where the paths have met.
        "-fno-tree-sra",
        "-fno-thread-jumps",
        "-fno-unswitch-loops",
        "-fno-split-paths",
        "-fno-reorder-blocks",
        "-Wno-tsan",  # TSan does not support fences; they have no effect in the emulation either
    ],
})

def _with_cuda(emulated, toolkit, none = []):
    return select({
        "@tandem//tools/build:cuda_emulated": emulated,
        "@tandem//tools/build:cuda_toolkit": toolkit,
        "//conditions:default": none,
    })

# Values of target_compatible_with: NEEDS_CUDA for targets that need any CUDA build, NEEDS_CUDA_EMULATION for targets
# that need the emulation, NEEDS_CUDA_TOOLKIT for targets that need CUDA's compiler, NEEDS_NO_CUDA for targets that need a
# build without CUDA.
NEEDS_CUDA = _with_cuda([], [], ["@tandem//tests/cuda_emulation:impossible"])
NEEDS_CUDA_EMULATION = _with_cuda([], ["@tandem//tests/cuda_emulation:impossible"], ["@tandem//tests/cuda_emulation:impossible"])
NEEDS_CUDA_TOOLKIT = _with_cuda(["@tandem//tests/cuda_emulation:impossible"], [], ["@tandem//tests/cuda_emulation:impossible"])
NEEDS_NO_CUDA = _with_cuda(["@tandem//tests/cuda_emulation:impossible"], ["@tandem//tests/cuda_emulation:impossible"])

# Dependencies of targets that include CUDA's headers.
CUDA_HEADERS = _with_cuda(["@tandem//tests/cuda_emulation"], ["@cuda_toolkit//:headers"])

_PRIVATE = {"tags": ["manual"], "visibility": ["//visibility:private"]}

def _unity(name, srcs, apart = []):
    """Replaces files by one that includes them: headers and templates are compiled once.

    Kernels (*_cpu.cc, *_avx*.cc) stay apart, because optimizing them takes most of their time, files of tests, whose names
    repeat, and those in `apart`. tools/check/unity_names.py keeps a name from meaning something else in another file.

    Returns:
      the files to compile, and those that they include
    """
    together = [s for s in srcs if s.endswith(".cc") and not s.endswith("_cpu.cc") and "_avx" not in s and s not in apart]
    package = native.package_name()
    if len(together) < 2 or package.startswith("tests/"):
        return srcs, []
    native.genrule(
        name = name + "_unity",
        outs = [name + "_unity.cc"],
        cmd = "printf '#include \"%s\"\\n' {} > $@".format(" ".join(["%s/%s" % (package, s) for s in together])),
        **_PRIVATE
    )
    unity = "@tandem//tools/build:with_unity"
    rest = [s for s in srcs if s not in together]
    return select({unity: [name + "_unity.cc"] + rest, "//conditions:default": srcs}), select({unity: together, "//conditions:default": []})

def _objects(name, srcs, copts, deps, linkstatic = True, apart = [], **private):
    """A filegroup with the object files of a library that has no other dependents."""
    srcs, included = _unity(name, srcs, apart)
    native.cc_library(
        name = name,
        srcs = srcs,
        textual_hdrs = included,
        copts = copts,
        linkstatic = linkstatic,
        deps = deps,
        **private
    )
    native.filegroup(
        name = name + "_objects",
        srcs = [":" + name],
        output_group = "compilation_outputs",
        **private
    )
    return ":%s_objects" % name

def _cuda(name, srcs, headers, copts, cuda_deps):
    """Creates the targets of a library's files for GPUs; `headers`: dependencies of these files, except CUDA's headers.

    Only these files depend on CUDA's headers, so dependents of the library are compiled once for all configurations.

    Returns:
      the objects to add to the library, and the libraries to link
    """
    kernels = [s for s in srcs if s.endswith(".cu")]
    host = [s for s in srcs if not s.endswith(".cu")]
    objects = {"emulated": [], "toolkit": []}
    libraries = {"emulated": ["@tandem//tests/cuda_emulation"], "toolkit": ["@cuda_toolkit//:cudart"] + cuda_deps}
    if host:
        pch, pch_deps = _pch()
        deps = headers + CUDA_HEADERS + _with_cuda([], cuda_deps) + pch_deps
        flags = COPTS + pch + ["-DTANDEM_WITH_CUDA"] + copts
        host_objects = _objects(name + "_cuda_host", host, flags, deps, linkstatic = False, **_PRIVATE)
        for choice in objects:
            objects[choice].append(host_objects)
    if kernels:
        cuda_objects(
            name = name + "_cuda_objects",
            srcs = kernels,
            defines = ["TANDEM_WITH_CUDA"],
            deps = headers + ["@cuda_toolkit//:headers"],
            **_PRIVATE
        )
        objects["toolkit"].append(":%s_cuda_objects" % name)
        wrappers = []
        for file in kernels:
            wrapper = file + ".emulated.cc"
            wrappers.append(wrapper)
            native.genrule(
                name = file.replace("/", "_") + "_wrapper",
                outs = [wrapper],
                cmd = "echo '#include \"%s\"' > $@" % "/".join([part for part in [native.package_name(), file] if part]),
                **_PRIVATE
            )
        native.cc_library(
            name = name + "_cuda_emulated",
            srcs = wrappers,
            textual_hdrs = kernels,
            copts = COPTS + _precompiled(["-include", "emulated_pch.h"]) + ["-DTANDEM_WITH_CUDA", "-Wno-unknown-pragmas"] + EMULATED_CUDA_COPTS,
            linkstatic = True,
            deps = headers + ["@tandem//tests/cuda_emulation"] + _precompiled(["@tandem//tools/build:emulated_pch"]),
            **_PRIVATE
        )
        libraries["emulated"].append(":%s_cuda_emulated" % name)
    link_only(
        name = name + "_cuda_libraries",
        deps = _with_cuda(**libraries),
        **_PRIVATE
    )
    return _with_cuda(**objects), [":%s_cuda_libraries" % name]

def _pch(testonly = False):
    """Flags and dependencies for precompiled headers. Files of tests/ are compiled without optimization, unlike std_pch."""
    package = native.package_name()
    if package.startswith("tests/") and package != "tests/cuda_emulation":
        return (GTEST_PCH, GTEST_PCH_DEPS) if testonly else ([], [])
    return (_STD_PCH, _STD_PCH_DEPS)

def tandem_cc_library(
        name,
        visibility = ["//:__subpackages__"],
        srcs = [],
        hdrs = [],
        cuda_srcs = [],
        cuda_hdrs = [],
        cuda_deps = [],
        no_cuda_srcs = [],
        calls_kernels = True,
        apart = [],
        copts = [],
        deps = [],
        linkstatic = True,
        **kwargs):
    """A library whose headers are included as <tandem/<package>/<file>>.

    Files for wider instruction sets (*_avx*.cc) must be in a separate library, for which a test <name>_symbols_test is added.

    Args:
      name: of the target
      visibility: packages that may depend on it; by default all: tools/check/include_direction.py checks the includes
      srcs: .cc files
      hdrs: public and private headers; a header in srcs would not be found as <tandem/...>
      cuda_srcs: .cu and .cc files of CUDA builds
      cuda_hdrs: headers that include CUDA's headers
      cuda_deps: libraries of CUDA's toolkit
      no_cuda_srcs: .cc files that replace cuda_srcs in builds without CUDA
      calls_kernels: whether srcs except *_cpu.cc call kernels by TANDEM_KERNEL
      apart: those of srcs that are compiled alone: a test replaces functions of theirs
      copts: flags after COPTS, which they override (-mavx512f ... for wider instruction sets)
      deps: direct dependencies
      linkstatic: build an archive, not a shared object
      **kwargs: as for cc_library
    """
    wide = [s for s in srcs if "_avx" in s and s.endswith(".cc")]
    if wide:
        if len(wide) != len(srcs):
            fail("%s: files for wider instruction sets, %s, must be in a separate library" % (name, wide))
        native.filegroup(
            name = name + "_archive",
            srcs = [":" + name],
        )
        native.sh_test(
            name = name + "_symbols_test",
            size = "small",
            srcs = [Label("//tools/check:avx_symbols.py")],
            args = ["$(locations :%s_archive)" % name],
            data = [":%s_archive" % name],
        )
    pch, pch_deps = _pch(kwargs.get("testonly"))
    headers = deps
    if hdrs or cuda_hdrs:
        linked_headers(
            name = name + "_headers",
            testonly = kwargs.get("testonly", False),
            hdrs = hdrs + cuda_hdrs,  # the same in all configurations, so that dependents are not recompiled
            deps = deps,
            **_PRIVATE
        )
        headers = [":%s_headers" % name]
        deps = headers + deps
    if cuda_srcs:
        objects, libraries = _cuda(name, cuda_srcs, headers, copts, cuda_deps)
        portable = [s for s in srcs if s.endswith("_cpu.cc") or not calls_kernels]
        if portable:  # does not depend on TANDEM_WITH_CUDA, so all configurations share the objects
            objects = objects + [_objects(name + "_portable", portable, COPTS + pch + copts, headers + pch_deps, apart = apart, **_PRIVATE)]
        srcs = [s for s in srcs if s not in portable]
    srcs, included = _unity(name, srcs, apart)
    if cuda_srcs:
        srcs = srcs + _with_cuda([], [], no_cuda_srcs) + objects
        deps = deps + _with_cuda(libraries, libraries)
        define = ["-DTANDEM_WITH_CUDA"]
        copts = _with_cuda(define, define) + copts
    native.cc_library(
        name = name,
        srcs = srcs,
        copts = COPTS + pch + copts,
        textual_hdrs = kwargs.pop("textual_hdrs", []) + included,
        linkstatic = linkstatic,
        visibility = visibility,
        deps = deps + pch_deps,
        **kwargs
    )

def precompiled_header(name, header, copts, visibility, deps = [], testonly = False):
    """A header that GCC reads in compiled form. `-include <name>.h` uses it if the target depends on `name`.

    Where a target's flags do not permit this, GCC reads the text instead.

    Args:
      name: of the target
      header: the header
      copts: flags of the targets that use it
      visibility: packages that may depend on it
      deps: libraries that it includes
      testonly: only for tests
    """
    private = dict(_PRIVATE, testonly = testonly)
    native.genrule(
        name = name + "_source",
        srcs = [header],
        outs = [name + ".cc", name + "/" + name + ".h"],
        cmd = "grep -v '^#pragma once' $< | tee $(OUTS) > /dev/null",  # GCC warns about it in the file it compiles
        **private
    )
    native.genrule(
        name = name + "_compiled",
        srcs = [_objects(name + "_object", [name + ".cc"], copts + ["-x", "c++-header"], deps, **private)],
        outs = ["%s/%s.h.gch" % (name, name)],
        cmd = "for file in $(SRCS); do cp $$file $@; done",
        **private
    )
    native.cc_library(
        name = name,
        testonly = testonly,
        includes = [name],
        textual_hdrs = ["%s/%s.h" % (name, name), "%s/%s.h.gch" % (name, name)],
        visibility = visibility,
        deps = deps,
    )

def tandem_cc_test(name, srcs = None, deps = [], copts = [], size = "small", main = "@googletest//:gtest_main", **kwargs):
    """A GoogleTest test.

    Args:
      name: of the target
      srcs: default [<name>.cc]
      deps: direct dependencies
      copts: flags after COPTS
      size: small for tests of less than 30 s on an idle machine; .bazelrc has the limits
      main: the library with main(); None: srcs define it
      **kwargs: as for cc_test
    """
    native.cc_test(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = TEST_COPTS + GTEST_PCH + copts,
        linkstatic = True,
        # Otherwise a library that lacks a dependency could link: the linker would drop the function that needs it.
        linkopts = ["-Wl,--no-gc-sections"],
        size = size,
        deps = deps + GTEST_PCH_DEPS + ([main] if main else []),
        **kwargs
    )

def tandem_cc_binary(name, visibility = ["//:__subpackages__"], srcs = None, copts = [], deps = [], **kwargs):
    """A program.

    Args:
      name: of the target
      visibility: packages that may depend on it
      srcs: default [<name>.cc]
      copts: flags after COPTS
      deps: direct dependencies
      **kwargs: as for cc_binary
    """
    pch, pch_deps = _pch(kwargs.get("testonly"))
    native.cc_binary(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = COPTS + pch + copts,
        linkstatic = True,
        visibility = visibility,
        deps = deps + pch_deps,
        **kwargs
    )
