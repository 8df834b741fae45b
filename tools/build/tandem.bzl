"""Macros that every BUILD file of tandem uses: one place for flags, include paths and test defaults."""

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

def _include_prefix():
    package = native.package_name()
    return "tandem/" + package if package else "tandem"

def _wide_sources(srcs):
    """The files for wider instructions than the baseline."""
    return [s for s in srcs if "_avx" in s and s.endswith(".cc")]

def tandem_cc_library(name, visibility, srcs = [], hdrs = [], copts = [], linkstatic = True, **kwargs):
    """A library whose headers are included as <tandem/<package>/<file>>.

    Files for wider instructions (*_avx*.cc) are a library of their own, which gets a test <name>_symbols_test.

    Args:
      name: of the target
      visibility: who may look into it; name a group of the top BUILD file or a list of packages
      srcs: .cc files
      hdrs: headers, the private ones too: a header in srcs would not be found below <tandem/...>
      copts: come after COPTS, so they win (-mavx512f ... for a file of wider instructions)
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
    native.cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = COPTS + copts,
        include_prefix = _include_prefix(),
        linkstatic = linkstatic,
        visibility = visibility,
        **kwargs
    )

def tandem_cc_test(name, srcs = None, deps = [], copts = [], size = "small", main = "@googletest//:gtest_main", **kwargs):
    """A test; <name>.cc unless srcs says otherwise, with GoogleTest's main unless main says otherwise (None: its own).

    Args:
      name: of the target
      srcs: default [<name>.cc]
      deps: what the test includes
      copts: come after COPTS
      size: small means a limit of 60 s
      main: the library with main()
      **kwargs: as for cc_test
    """
    native.cc_test(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = COPTS + ["-O1"] + copts,  # tests run for moments: what counts is how fast they compile
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
