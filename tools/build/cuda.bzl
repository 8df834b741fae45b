"""Rules that compile GPU kernels (*.cu) with nvcc, and build settings for CUDA. The emulation uses the host compiler instead."""

load("@cuda_toolkit//:defs.bzl", "CUDA_HOME")

_NVCC_FLAGS = [
    "-std=c++20",
    "-O3",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-march=x86-64-v3,-fno-canonical-system-headers",
    "--fmad=false",  # kernels call fma() where it is intended
    "--compress-mode=size",  # uncompressed machine code would have 12 times the size
    "--expt-relaxed-constexpr",
    "--diag-suppress=20012,20013,20014,20015",
    "-Werror=cross-execution-space-call",
]

def _choice_impl(ctx):
    if ctx.build_setting_value not in ctx.attr.values:
        fail("%s: %s is not one of %s" % (ctx.label, ctx.build_setting_value, ", ".join(ctx.attr.values)))
    return []

choice = rule(
    implementation = _choice_impl,
    build_setting = config.string(flag = True),
    attrs = {"values": attr.string_list(mandatory = True)},
    doc = "A flag with one of several values.",
)

_Words = provider(fields = ["words"])

def _words_impl(ctx):
    return _Words(words = [w for w in ctx.build_setting_value.split(",") if w])

words = rule(
    implementation = _words_impl,
    build_setting = config.string(flag = True),
    doc = "A flag with a list of values, separated by commas.",
)

def _link_only_impl(ctx):
    return [CcInfo(linking_context = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in ctx.attr.deps]).linking_context)]

link_only = rule(
    implementation = _link_only_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    doc = "Libraries without their headers: dependents are linked with them, but their compilation does not depend on them.",
)

def _gencode(architecture):
    """90a: machine code for this architecture only; 80+: PTX, which drivers compile for it and all later architectures."""
    number = architecture.rstrip("+")
    return "-gencode=arch=compute_%s,code=%s_%s" % (number, "compute" if architecture.endswith("+") else "sm", number)

_CudaObjects = provider(fields = ["files"])

def _cuda_objects_impl(ctx):
    cc = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo]
    compilation = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    outputs = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file(src.basename[:-len(".cu")] + ".cu.pic.o")
        outputs.append(out)

        # nvcc names its temporary files by its process id, which is 2 in every sandbox. `env` sets their folder, because
        # Bazel replaces the value of TMPDIR in an action's environment.
        scratch = ctx.actions.declare_directory(out.basename + ".tmp")
        arguments = ctx.actions.args()
        arguments.add_all([scratch], expand_directories = False, format_each = "TMPDIR=%s")
        arguments.add(CUDA_HOME + "/bin/nvcc")
        arguments.add_all(_NVCC_FLAGS)
        arguments.add_all([_gencode(a) for a in ctx.attr._architectures[_Words].words])
        arguments.add(cc.compiler_executable, format = "-ccbin=%s")
        arguments.add_all(compilation.includes, format_each = "-I%s")
        arguments.add_all(compilation.system_includes, format_each = "-isystem=%s")
        arguments.add_all(compilation.quote_includes, format_each = "-Xcompiler=-iquote,%s")
        arguments.add_all(compilation.defines, format_each = "-D%s")
        arguments.add_all(ctx.attr.defines, format_each = "-D%s")
        arguments.add_all(["-c", src, "-o", out])
        ctx.actions.run(
            executable = "/usr/bin/env",
            arguments = [arguments],
            inputs = depset([src], transitive = [compilation.headers, cc.all_files]),
            outputs = [out, scratch],
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % src.short_path,
        )
    return [DefaultInfo(files = depset(outputs)), _CudaObjects(files = depset(outputs))]

cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = [".cu"]),
        "_architectures": attr.label(default = "//tools/build:cuda_architectures"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = "Object files of kernels, compiled by the toolkit's nvcc.",
)

def _collect_impl(target, ctx):
    if _CudaObjects in target:
        return []
    deps = getattr(ctx.rule.attr, "srcs", []) + getattr(ctx.rule.attr, "deps", [])
    return [_CudaObjects(files = depset(transitive = [d[_CudaObjects].files for d in deps if _CudaObjects in d]))]

_collect = aspect(implementation = _collect_impl, attr_aspects = ["srcs", "deps"])

def _all_cuda_objects_impl(ctx):
    files = depset(transitive = [d[_CudaObjects].files for d in ctx.attr.deps])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

all_cuda_objects = rule(
    implementation = _all_cuda_objects_impl,
    attrs = {"deps": attr.label_list(aspects = [_collect])},
    doc = "The object files of all kernels that the libraries contain.",
)
