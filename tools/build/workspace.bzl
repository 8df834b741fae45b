"""A macro that declares all repositories for building tandem without a network, for tandem's and for users' workspaces.

    local_repository(name = "tandem", path = "...")
    load("@tandem//tools/build:workspace.bzl", "tandem_workspace")
    tandem_workspace()

Bazel downloads some repositories of its own unless they are declared. They are declared here, from Debian's packages or from
stubs in third_party/bazel.
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
        "empty": attr.string_list(doc = "empty files to create"),
        "files": attr.string_dict(doc = "path in the repository -> label of the linked file"),
    },
)

_SYSTEM_REPOSITORIES = {
    "platforms": "/usr/share/bazel/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
}

def tandem_workspace():
    """Declares the repositories of tandem's dependencies and of Bazel's own tools, except those that the workspace declares."""
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
