"""CUDA's toolkit where it is installed: a repository with its headers and libraries, and where its compiler is.

Nothing is fetched, and a build that does not ask for CUDA needs none of it: what is missing is an error of the targets that use it.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]),
    includes = ["include"],
)

# The runtime is linked into the program, the libraries are found where they are now.
cc_library(
    name = "cudart",
    linkopts = ["-L{lib}", "-lcudart_static", "-ldl", "-lrt", "-pthread"],
    deps = [":headers"],
)
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = ["-L{lib}", "-l:{file}", "-Wl,-rpath,{lib}"],
    deps = [":headers"],
)
"""

_LIBRARIES = ["cublasLt", "cudnn", "nccl"]

def _cuda_toolkit_impl(rctx):
    rctx.file("WORKSPACE", "")
    home = rctx.os.environ.get("TANDEM_CUDA_HOME", "/usr/local/cuda")
    rctx.file("defs.bzl", "CUDA_HOME = %r\n" % home)
    lib = home + "/lib64"
    nvcc = rctx.path(home + "/bin/nvcc")
    if not nvcc.exists:
        rctx.file("BUILD.bazel", "fail(%r)\n" % ("no CUDA toolkit: %s is not there. tools/cuda_toolkit DIR makes one of " % nvcc +
                                                 "PyPI's packages; --repo_env=TANDEM_CUDA_HOME=DIR says where one is"))
        return
    rctx.symlink(home + "/include", "include")
    text = _BUILD.format(lib = lib)
    for name in _LIBRARIES:
        files = [f.basename for f in rctx.path(lib).readdir() if f.basename.startswith("lib%s.so." % name)]
        if files:
            text += _LIBRARY.format(name = name, lib = lib, file = sorted(files)[0])
        else:
            text += 'fail("lib%s.so is not in %s")\n' % (name, lib)
    rctx.file("BUILD.bazel", text)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    local = True,
    configure = True,
    environ = ["TANDEM_CUDA_HOME"],
)
