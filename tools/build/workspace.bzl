"""All that a workspace needs to build tandem without a network; this workspace and its users' call the same macro.

    local_repository(name = "tandem", path = "...")
    load("@tandem//tools/build:workspace.bzl", "tandem_workspace")
    tandem_workspace()

Bazel downloads a few repositories for itself unless they are already defined: here they come from Debian's packages or from
stand-ins below third_party/bazel.
"""

load("//third_party:libraries.bzl", "system_libraries")

def _stub_repository_impl(rctx):
    rctx.file("WORKSPACE", "")
    for path, label in rctx.attr.files.items():
        rctx.symlink(Label(label), path)
    for path in rctx.attr.empty:
        rctx.file(path, "")

_stub_repository = repository_rule(
    implementation = _stub_repository_impl,
    local = True,
    attrs = {
        "empty": attr.string_list(doc = "files made empty"),
        "files": attr.string_dict(doc = "path in the repository -> label of the file it links to"),
    },
)

_SYSTEM_REPOSITORIES = {
    "platforms": "/usr/share/bazel/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
}

def tandem_workspace():
    """Declares every repository that tandem's targets and Bazel's own tools load, unless the workspace has it already."""
    have = native.existing_rules()
    if "rules_cc" not in have:
        _stub_repository(
            name = "rules_cc",
            empty = ["BUILD", "cc/BUILD"],
            files = {"cc/defs.bzl": "@tandem//third_party/bazel/rules_cc:cc/defs.bzl"},
        )
    if "remote_coverage_tools" not in have:
        _stub_repository(
            name = "remote_coverage_tools",
            files = {
                "BUILD": "@tandem//third_party/bazel/coverage_tools:BUILD",
                "none.sh": "@tandem//third_party/bazel/coverage_tools:none.sh",
            },
        )
    for name, path in _SYSTEM_REPOSITORIES.items():
        if name not in have:
            native.local_repository(name = name, path = path)
    system_libraries()
