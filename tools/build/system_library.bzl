"""A repository rule for a library installed on the system: a repository with one cc_library of the repository's name.

Only the listed headers are linked into the repository, so undeclared dependencies do not compile. They are system includes,
without warnings.
"""

_TARGET = """
cc_library(
    name = "{name}",
    hdrs = glob(["include/**"], exclude_directories = 1),
    includes = ["include"],
    linkopts = {linkopts},
    defines = {defines},
)
"""

_MAIN = """
cc_library(
    name = "{main}",
    linkopts = ["-l{main}"],
    deps = [":{name}"],
)
"""

def _system_library_impl(rctx):
    rctx.file("WORKSPACE", "")
    missing = [h for h in rctx.attr.headers if not rctx.path(rctx.attr.prefix + "/" + h).exists]
    rctx.file("defs.bzl", "IS_INSTALLED = %s\n" % (not missing))
    if missing:
        # Fails when this package is loaded, so only targets that use the library fail.
        rctx.file("BUILD.bazel", "fail(%r)\n" % ("missing on this system: apt-get install " + rctx.attr.apt))
        return
    for header in rctx.attr.headers:
        rctx.symlink(rctx.attr.prefix + "/" + header, "include/" + header)
    text = 'package(default_visibility = ["//visibility:public"])\n'
    text += _TARGET.format(name = rctx.name, linkopts = rctx.attr.linkopts, defines = rctx.attr.lib_defines)
    for main in rctx.attr.mains:
        text += _MAIN.format(main = main, name = rctx.name)
    rctx.file("BUILD.bazel", text)

system_library = repository_rule(
    implementation = _system_library_impl,
    local = True,
    configure = True,
    attrs = {
        "apt": attr.string(mandatory = True, doc = "names of Debian's packages, for the error text"),
        "headers": attr.string_list(mandatory = True, doc = "files and folders, relative to prefix"),
        "lib_defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "mains": attr.string_list(doc = "further archives with a main(); each is a separate target"),
        "prefix": attr.string(default = "/usr/include"),
    },
)
