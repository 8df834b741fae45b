"""A repository rule for the installed CUDA toolkit: its headers, its libraries and the path of its compiler.

Nothing is downloaded. A missing toolkit or library is an error only of the targets that depend on it.
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]),
    includes = ["include"],
)

# The runtime is linked statically; the other libraries are found at run time by rpath.
cc_library(
    name = "cudart",
    linkopts = ["-L{lib}", "-lcudart_static", "-ldl", "-lrt", "-pthread"],
    deps = [":headers"],
)

# Without files if neither the toolkit nor TANDEM_CUDA_EXTRAS has them.
cc_library(
    name = "cudnn_frontend",
    hdrs = glob(["extras/cudnn_frontend*", "extras/cudnn_frontend/**", "extras/cudnn_backend_base.h"]),
    includes = ["extras"],
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
    extras = rctx.os.environ.get("TANDEM_CUDA_EXTRAS", home) + "/include"
    rctx.file("defs.bzl", "CUDA_HOME = %r\nHAVE_CUDNN_FRONTEND = %r\n" % (home, rctx.path(extras + "/cudnn_frontend.h").exists))
    lib = home + "/lib64"
    nvcc = rctx.path(home + "/bin/nvcc")
    if not nvcc.exists:
        rctx.file("BUILD.bazel", "fail(%r)\n" % ("no CUDA toolkit: %s does not exist. Install one with tools/cuda_toolkit DIR, " % nvcc +
                                                 "or set its folder with --repo_env=TANDEM_CUDA_HOME=DIR"))
        return
    rctx.symlink(home + "/include", "include")
    rctx.symlink(extras, "extras")
    text = _BUILD.format(lib = lib)
    for name in _LIBRARIES:
        files = [f.basename for f in rctx.path(lib).readdir() if f.basename.startswith("lib%s.so." % name)]
        if files:
            text += _LIBRARY.format(name = name, lib = lib, file = sorted(files)[0])
        else:
            text += 'fail("lib%s.so not found in %s")\n' % (name, lib)
    rctx.file("BUILD.bazel", text)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    local = True,
    configure = True,
    environ = ["TANDEM_CUDA_EXTRAS", "TANDEM_CUDA_HOME"],
)
