"""Public headers as Doxygen reads them: without the inline namespace, and each header a group of its package.

Copies keep the text of the headers. Overloads and _async forms that share one comment in the header get a copy of it.
"""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "check"))
import common
import public_headers

PACKAGES = {
    "base": "Errors, logging, environment variables, futures, half types, trace events.",
    "tensor": "Tensors, devices, dtypes, memory, random numbers, State; CUDA streams and graphs.",
    "autograd": "Backward, gradient modes, numerical checks of gradients.",
    "ops": "Operations on tensors, and autocast.",
    "nn": "Modules, layers and initial values.",
    "optim": "Optimizers, schedules, clipping, gradient scaling.",
    "data": "Data sets, samplers and loaders.",
    "io": "Checkpoints, safetensors, NumPy and TensorBoard files.",
    "distributed": "Starting ranks, process groups, DistributedDataParallel, communication hooks.",
    "profile": "Trace files and reports of steps.",
    "models": "Networks with the parameter names of torchvision and transformers.",
    "text": "Tokenizers, token files and data sets of texts.",
    "train": "The training loop, metrics, progress and charts.",
}
# Packages whose names are not in `tandem` itself, and the other namespaces.
_NAMESPACES = {
    "": "All of tandem. Programs usually write `namespace td = tandem;`.",
    "::comm": "Sums, broadcasts, scatters and gathers between devices of a process.",
    "::cuda": "CUDA devices, streams, events and graphs.",
    "::nn::init": "Initial values of parameters.",
    **{"::" + name: PACKAGES[name] for name in ("autograd", "nn", "optim", "data", "io", "distributed", "profile", "text", "models", "train")},
}
assert set(PACKAGES) == set(common.LIBRARY_PACKAGES)

_NAMESPACE = re.compile(r"^(namespace tandem \{ )inline namespace v0 \{(.*)$")
_NAMESPACE_END = re.compile(r"^(\}+)\}(  // namespace tandem)::v0")
_DEFINE = re.compile(r"^#define (\w+)")
_NAME = re.compile(r"(operator\s*(?:\(\)|[^\s\w(]+)|[\w~]+)\s*\(")
_HIDDEN = re.compile(r"^(\s+)friend |^()template <> |^\s+\S.* = delete;$")
_DECLARATION = re.compile(r"^[A-Za-z~\[]")
_ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]")
_PAGE = re.compile(r"\bdocs/(?:decisions/)?([\w-]+)\.md\b")
# Words that begin a sentence and are not the class of that name; Doxygen links words without a % to classes.
_WORD = re.compile(r"(^ |[.:;)] +)(Half|Versions|Device|Block|Options|Shape|Scalar|State|Event|Stream|Graph|Mode|Kind|Place|Epoch|Example|Batch|Bucket|"
                   r"Work|Identity|Dropout|Embedding)\b(?= [a-z])")
_SHARED = {"isend": "send", "recv": "send", "irecv": "send"}


def group_of(header):
    """ops/matmul.h -> ops_matmul."""
    return os.path.splitext(header)[0].replace("/", "_")


def summary(text):
    """The comment at the top of a header: (first sentence, the rest)."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
    first, _, rest = "\n".join(lines).partition(". ")
    if "\n\n" in first:
        first, _, rest = "\n".join(lines).partition("\n\n")
    return " ".join(first.split()).rstrip(".") + ".", rest.strip()


def _declared(lines, at):
    """Name of the function that is declared at a line, or None."""
    line = lines[at].strip()
    if line.startswith("template ") and at + 1 < len(lines) and "(" not in line:
        line = lines[at + 1].strip()
    match = _NAME.search(_ATTRIBUTE.sub("", line))
    return match.group(1) if match and not line.startswith(("//", "#")) else None


def _shares(name, other):
    """Whether a declaration directly below a documented one shares its comment."""
    def base(one):
        one = _SHARED.get(one, one.removesuffix("_async"))
        return "_coalesced" if one.endswith("_coalesced") else one
    return base(name) == base(other)


def _indent(line):
    return len(line) - len(line.lstrip())


def _without_hidden(lines):
    """Friends, specializations of templates and deleted functions become empty lines: Doxygen links to friends without writing about
    them, and specializations share the comment of their template."""
    result, end = [], None
    for line in lines:
        hidden = _HIDDEN.match(line)
        if end is not None:
            end = None if line == end else end
            line = ""
        elif hidden:
            if line.endswith("{"):
                end = hidden.group(1) + "}"
            at = len(result) - 1
            while at >= 0 and result[at].lstrip().startswith("///"):
                result[at] = ""
                at -= 1
            line = ""
        result.append(line)
    return result


def _share_comments(lines):
    """(line, number of the line in the header), with a comment repeated for each declaration that shares it."""
    result, comment, name, trailing, previous = [], [], None, "", ""
    for at, line in enumerate(lines):
        text = line.strip()
        if text.startswith("///") and not text.startswith("///<"):
            if not previous.startswith("///"):
                comment, name, trailing = [], None, ""
            comment.append(line)
        elif not text:
            comment, name, trailing = [], None, ""
        elif _DECLARATION.match(text) and (not comment or _indent(line) == _indent(comment[0])):
            declared = _declared(lines, at)
            shares = name and declared and _shares(declared, name) and "///<" not in line
            if previous.startswith("///") or "///<" in line:
                name, trailing = declared, "///<" + line.partition("///<")[2] if "///<" in line else ""
            elif shares and trailing:
                line += "  " + trailing
            elif shares and comment and not previous.startswith("template "):
                result += [(repeated, at + 1) for repeated in comment]
        result.append((line, at + 1))
        previous = text
    return result


def stage(header, text, pages):
    """(text for Doxygen, for each of its lines the line of the header). `pages`: names of the pages that comments may link to."""
    group = group_of(header)
    result = []
    for line, number in _share_comments(_without_hidden(text.splitlines())):
        if _DEFINE.match(line) and result and result[-1][0].startswith("///"):
            result.append(("/// @ingroup " + group, number))
        opened = _NAMESPACE.match(line)
        if opened:
            line = opened.group(1) + opened.group(2).lstrip() + " /** @addtogroup %s\n@{ */" % group
        elif _NAMESPACE_END.match(line):
            line = "/** @} */ " + _NAMESPACE_END.sub(r"\1\2", line)
        elif "///" in line:
            code, _, comment = line.partition("///")
            comment = _WORD.sub(r"\1%\2", comment.replace("<T>", "&lt;T&gt;"))
            comment = _PAGE.sub(lambda match: "@ref %s \"%s\"" % (pages[match.group(0)], match.group(0))
                                if match.group(0) in pages else match.group(0), comment)
            line = code + "///" + comment
        result.append((line, number))
    first, rest = summary(text)
    last = result[-1][1]
    package = header.split("/")[0]
    result += [(line, last) for line in [
        "/** @defgroup %s %s" % (group, header), "@ingroup " + package, "@brief " + first, "", rest, "",
        "<div class=\"include\">\\#include &lt;tandem/%s&gt;</div>" % header, "*/"]]
    lines, origin = [], []
    for line, number in result:
        for part in line.split("\n"):
            lines.append(part)
            origin.append(number)
    return "\n".join(lines) + "\n", origin


def undocumented_macros(header, text):
    """Doxygen does not report these."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        macro = _DEFINE.match(line)
        if not macro:
            continue
        before = at - 1
        while before >= 0 and lines[before].startswith("#"):
            before -= 1
        if before < 0 or not lines[before].startswith("///"):
            yield "%s:%d: macro %s is not documented" % (header, at + 1, macro.group(1))


def package_groups(headers):
    """A file of groups, one per package that has headers, and of the namespaces."""
    lines = []
    for package, text in PACKAGES.items():
        if any(header.startswith(package + "/") for header in headers):
            lines.append("/** @defgroup %s %s\n@brief %s */" % (package, package, text))
    lines += ["/** @namespace tandem%s\n@brief %s */" % (space, text) for space, text in _NAMESPACES.items()]
    return "\n".join(lines) + "\n"


def read_all(root):
    """Header -> text of all public headers but the umbrella."""
    return {header: common.read(root, header) for header in public_headers.public_headers(root)
            if header != public_headers.UMBRELLA}
