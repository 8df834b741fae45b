"""A rule for the folder that //:install copies: headers, a static library, CMake and pkg-config files, programs, documents."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//tools/build:headers.bzl", "INCLUDE_FOLDER")

def _header_argument(file):
    """tandem/ops/math.h=PATH, or None for a header of another library."""
    if INCLUDE_FOLDER not in file.path:
        return None
    return file.path.split(INCLUDE_FOLDER)[1] + "=" + file.path

def _linked(library):
    """Objects and link flags of all libraries that `library` depends on."""
    objects = []
    link_flags = []
    for linker_input in library[CcInfo].linking_context.linker_inputs.to_list():
        for library in linker_input.libraries:
            # The objects of all libraries are in one archive, so alwayslink is not needed for the order of archives.
            objects += library.pic_objects or library.objects
        for flag in linker_input.user_link_flags:
            if flag not in link_flags:
                link_flags.append(flag)
    return objects, link_flags

def _install_tree_impl(ctx):
    info = ctx.attr.library[CcInfo]
    objects, link_flags = _linked(ctx.attr.library)
    mpi_objects = []
    if ctx.attr.mpi_library:
        mpi_objects = [o for o in _linked(ctx.attr.mpi_library)[0] if o not in objects]

    toolchain = find_cpp_toolchain(ctx)
    out = ctx.actions.declare_directory(ctx.label.name)
    headers = info.compilation_context.headers
    args = ctx.actions.args()
    args.add("--out", out.path)
    args.add("--ar", toolchain.ar_executable)
    args.add_all(headers, before_each = "--header", map_each = _header_argument)
    args.add_all(ctx.attr.public_headers, before_each = "--public-header")
    args.add_all(objects, before_each = "--object")
    args.add_all(mpi_objects, before_each = "--mpi-object")
    args.add_all(ctx.attr.defines, before_each = "--define")
    for flag in link_flags:
        args.add("--link-flag=" + flag)
    args.add_all(ctx.files.programs, before_each = "--program")
    args.add_all(ctx.files.documents, before_each = "--document")
    for target, path in ctx.attr.templates.items():
        args.add_all("--template", [path, target.files.to_list()[0]])
    args.use_param_file("@%s", use_always = True)
    args.set_param_file_format("multiline")
    ctx.actions.run(
        executable = ctx.executable._make_tree,
        arguments = [args],
        inputs = depset(
            objects + mpi_objects + ctx.files.programs + ctx.files.documents + ctx.files.templates,
            transitive = [headers, toolchain.all_files],
        ),
        outputs = [out],
        mnemonic = "InstallTree",
        progress_message = "Collecting installed files",
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

install_tree = rule(
    implementation = _install_tree_impl,
    attrs = {
        "defines": attr.string_list(doc = "macros that programs are compiled with"),
        "documents": attr.label_list(allow_files = True, doc = "files for share/doc/tandem"),
        "library": attr.label(
            mandatory = True,
            providers = [CcInfo],
            doc = "libtandem.a has all objects that it depends on; the headers that tandem/tandem.h includes are installed",
        ),
        "mpi_library": attr.label(providers = [CcInfo], doc = "libtandem_mpi.a has its objects; none where OpenMPI is not installed"),
        "public_headers": attr.string_list(doc = "headers that are installed besides, and those that they include"),
        "programs": attr.label_list(doc = "programs for bin"),
        "templates": attr.label_keyed_string_dict(
            allow_files = True,
            doc = "file -> its path below the prefix; @VERSION@, @DEFINE_FLAGS@, @DEFINE_LIST@, @LINK_FLAGS@ and @LINK_LIST@ are replaced",
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_make_tree": attr.label(default = "//tools/install:make_tree", executable = True, cfg = "exec"),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
