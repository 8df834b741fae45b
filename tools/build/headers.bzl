"""A rule that links all headers of a package below one include folder, whichever target they belong to."""

# Part of the include folder's path, between the package's output folder and the path in #include.
INCLUDE_FOLDER = "/_include/"

def _linked_headers_impl(ctx):
    package = ctx.label.package
    prefix = "tandem/" + package if package else "tandem"
    headers = []
    folder = None
    for file in ctx.files.hdrs:
        path = file.short_path
        if path.startswith("../"):  # a file of another workspace: ../<name>/<path>
            path = path.split("/", 2)[2]
        if package:
            path = path[len(package) + 1:]
        link = ctx.actions.declare_file("%s/%s/%s" % (INCLUDE_FOLDER.strip("/"), prefix, path))
        ctx.actions.symlink(output = link, target_file = file)
        headers.append(link)
        folder = link.path[:-len("/%s/%s" % (prefix, path))]
    own = cc_common.create_compilation_context(headers = depset(headers), includes = depset([folder]))
    merged = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = own)],
        cc_infos = [d[CcInfo] for d in ctx.attr.deps],
    )
    return [merged, DefaultInfo(files = depset(headers))]

linked_headers = rule(
    implementation = _linked_headers_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(mandatory = True, allow_files = [".h", ".cc"]),
    },
    doc = """Headers included as <tandem/<package>/<file>>, and `deps`.

    cc_library's include_prefix would create one folder per target. When a header moves to another target, its old link stays, and a
    compiler without a sandbox finds it: an "undeclared inclusion" error although the BUILD files are correct.
    """,
)
