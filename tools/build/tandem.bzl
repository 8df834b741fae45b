"""Macros that every BUILD file of tandem uses: one place for flags, include paths and test defaults."""

load("//tools/build:cuda.bzl", "cuda_objects", "link_only")
load("//tools/build:headers.bzl", "linked_headers")

# Everything that bits and symbols depend on stands here and not in .bazelrc, so that a user's workspace builds the same library.
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

# What kernels are compiled with to run on the CPU: the compiler calls a function of //tests/cuda_emulation around each access.  Never
# in linkopts: the functions would be ThreadSanitizer's.  A sanitizer's build has its own calls instead, and does without these checks.
EMULATED_CUDA_COPTS = select({
    "@tandem//tests/cuda_emulation:sanitizer": [],
    "//conditions:default": [
        "-fsanitize=thread",
        "--param=tsan-instrument-func-entry-exit=0",
        "-Wno-tsan",  # fences mean nothing to it, and nothing here
    ],
})

def _with_cuda(emulated, toolkit, none = []):
    return select({
        "@tandem//tools/build:cuda_emulated": emulated,
        "@tandem//tools/build:cuda_toolkit": toolkit,
        "//conditions:default": none,
    })

# target_compatible_with of what only builds with GPUs can do, and only those that emulate them.
NEEDS_CUDA = _with_cuda([], [], ["@tandem//tests/cuda_emulation:impossible"])
NEEDS_CUDA_EMULATION = _with_cuda([], ["@tandem//tests/cuda_emulation:impossible"], ["@tandem//tests/cuda_emulation:impossible"])

# What includes CUDA's headers depends on these.
CUDA_HEADERS = _with_cuda(["@tandem//tests/cuda_emulation"], ["@cuda_toolkit//:headers"])

def _cuda(name, srcs, headers, copts, cuda_deps):
    """The targets of a library's files for GPUs; `headers` is all that they include but for CUDA's.

    CUDA's headers reach these files alone: what depends on the library is compiled alike in every configuration, and once.

    Returns:
      the objects to add to the library, and what it is linked with
    """
    kernels = [s for s in srcs if s.endswith(".cu")]
    host = [s for s in srcs if not s.endswith(".cu")]
    private = {"tags": ["manual"], "visibility": ["//visibility:private"]}
    objects = {"emulated": [], "toolkit": []}
    libraries = {"emulated": ["@tandem//tests/cuda_emulation"], "toolkit": ["@cuda_toolkit//:cudart"] + cuda_deps}
    if host:
        native.cc_library(
            name = name + "_cuda_host",
            srcs = host,
            copts = COPTS + ["-DTANDEM_WITH_CUDA"] + copts,
            deps = headers + CUDA_HEADERS,
            **private
        )
        native.filegroup(
            name = name + "_cuda_host_objects",
            srcs = [":%s_cuda_host" % name],
            output_group = "compilation_outputs",
            **private
        )
        for choice in objects:
            objects[choice].append(":%s_cuda_host_objects" % name)
    if kernels:
        cuda_objects(
            name = name + "_cuda_objects",
            srcs = kernels,
            defines = ["TANDEM_WITH_CUDA"],
            deps = headers + ["@cuda_toolkit//:headers"],
            **private
        )
        objects["toolkit"].append(":%s_cuda_objects" % name)
        wrappers = []
        for file in kernels:
            wrapper = file + ".emulated.cc"
            wrappers.append(wrapper)
            native.genrule(
                name = file.replace("/", "_") + "_wrapper",
                outs = [wrapper],
                cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), file),
                **private
            )
        native.cc_library(
            name = name + "_cuda_emulated",
            srcs = wrappers,
            textual_hdrs = kernels,
            copts = COPTS + ["-DTANDEM_WITH_CUDA", "-Wno-unknown-pragmas"] + EMULATED_CUDA_COPTS,
            linkstatic = True,
            deps = headers + ["@tandem//tests/cuda_emulation"],
            **private
        )
        libraries["emulated"].append(":%s_cuda_emulated" % name)
    link_only(
        name = name + "_cuda_libraries",
        deps = _with_cuda(**libraries),
        **private
    )
    return _with_cuda(**objects), [":%s_cuda_libraries" % name]

def _wide_sources(srcs):
    """The files for wider instructions than the baseline."""
    return [s for s in srcs if "_avx" in s and s.endswith(".cc")]

def tandem_cc_library(
        name,
        visibility,
        srcs = [],
        hdrs = [],
        cuda_srcs = [],
        cuda_hdrs = [],
        cuda_deps = [],
        no_cuda_srcs = [],
        copts = [],
        deps = [],
        linkstatic = True,
        **kwargs):
    """A library whose headers are included as <tandem/<package>/<file>>.

    Files for wider instructions (*_avx*.cc) are a library of their own, which gets a test <name>_symbols_test.

    Args:
      name: of the target
      visibility: who may look into it; name a group of the top BUILD file or a list of packages
      srcs: .cc files
      hdrs: headers, the private ones too: a header in srcs would not be found below <tandem/...>
      cuda_srcs: .cu and .cc files of builds with GPUs
      cuda_hdrs: headers that include CUDA's
      cuda_deps: libraries of CUDA's toolkit
      no_cuda_srcs: .cc files in their place in builds without
      copts: come after COPTS, so they win (-mavx512f ... for a file of wider instructions)
      deps: what it includes
      linkstatic: one archive, no shared object per library
      **kwargs: as for cc_library
    """
    wide = _wide_sources(srcs)
    if wide:
        if len(wide) != len(srcs):
            fail("%s: the files for wider instructions, %s, are a library of their own" % (name, wide))
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
    headers = deps
    if hdrs or cuda_hdrs:
        linked_headers(
            name = name + "_headers",
            testonly = kwargs.get("testonly", False),
            hdrs = hdrs + cuda_hdrs,  # in every configuration: a header more, and all above is compiled anew
            deps = deps,
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )
        headers = [":%s_headers" % name]
        deps = headers + deps
    if cuda_srcs:
        objects, libraries = _cuda(name, cuda_srcs, headers, copts, cuda_deps)
        srcs = srcs + _with_cuda([], [], no_cuda_srcs) + objects
        deps = deps + _with_cuda(libraries, libraries)
        define = ["-DTANDEM_WITH_CUDA"]
        copts = _with_cuda(define, define) + copts
    native.cc_library(
        name = name,
        srcs = srcs,
        copts = COPTS + copts,
        linkstatic = linkstatic,
        visibility = visibility,
        deps = deps,
        **kwargs
    )

def tandem_cc_test(name, srcs = None, deps = [], copts = [], size = "small", main = "@googletest//:gtest_main", **kwargs):
    """A test; <name>.cc unless srcs says otherwise, with GoogleTest's main unless main says otherwise (None: its own).

    Args:
      name: of the target
      srcs: default [<name>.cc]
      deps: what the test includes
      copts: come after COPTS
      size: small for tests of less than half a minute on a quiet machine; .bazelrc has the limits
      main: the library with main()
      **kwargs: as for cc_test
    """
    native.cc_test(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = COPTS + ["-O0", "-U_FORTIFY_SOURCE"] + copts,  # tests run for moments: what counts is how fast they compile
        linkstatic = True,
        size = size,
        deps = deps + ([main] if main else []),
        **kwargs
    )

def tandem_cc_binary(name, srcs = None, copts = [], **kwargs):
    """A program; <name>.cc unless srcs says otherwise.

    Args:
      name: of the target
      srcs: default [<name>.cc]
      copts: come after COPTS
      **kwargs: as for cc_binary
    """
    native.cc_binary(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = COPTS + copts,
        linkstatic = True,
        **kwargs
    )
