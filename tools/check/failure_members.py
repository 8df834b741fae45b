#!/usr/bin/env -S python3 -B
"""Checks which data members below distributed/ remember that a process group has failed, or why: at most four, those of MEMBERS. OTHERS
has the members with such a name or type that remember something else, by reason. A member in neither is a violation, and so is an
entry without a member. distributed/launch is not checked: it remembers failures of jobs."""

import re

import common

MAX_MEMBERS = 4
MEMBERS = {
    "FailureLatch::known_": "the failure of a group, and the ends of its members, as one rank knows them",
    "FailureBoard::State::events": "the ends of ranks that a store knows: the first channel",
    "Mesh::ends_": "the ends of network connections: the second witness",
    "ShmBackend::ends_": "the ranks that have left the shared memory: the second witness",
}
OTHERS = {
    "the part of a value that FailureLatch::known_ has": [
        "Failure::first_failed", "FailureLatch::Known::failure", "FailureLatch::Known::failed_at", "FailureLatch::Known::store",
        "FailureLatch::Known::ended", "FailureLatch::Known::has_own_ended", "FailureLatch::Known::has_failed_operation",
    ],
    "a copy of known_ that the thread which advances the operations compares with it": ["Executor::known_"],
    "functions": ["FailureLatch::listeners_", "NcclBackend::Options::on_failure", "Left::ends_"],
    "a reference to the latch": ["Executor::latch_", "NcclBackend::Options::latch"],
    "the result of one operation": [
        "Operation::error", "Operation::ended", "Executor::ended_", "Operation::is_extended", "P2pRequest::failed", "InFlightWork::is_lost",
        "HierarchicalBackend::failed_",
    ],
    "the error of a communication hook or of its all-reduce, which later buckets of the same hooks get": ["CommHookPipeline::failure_"],
    "an error that CUDA will throw, and may not": ["NcclBackendImpl::has_deferred_error_"],
    "this rank has ended its own part, see Backend::do_cancel": [
        "Connection::is_cancelled_", "MpiBackend::is_cancelled_", "NetworkBackend::is_cancelled_"],
    "one connection, until Mesh::ends_ has its end": ["Connection::ended_", "Connection::may_have_ended_"],
    "whether Mesh::ends_ has an end": ["Mesh::any_ended_"],
    "a try to connect": ["Connector::errors_", "Connections::error"],
    "the ends that a store reports to one rank while it joins": ["Rendezvous::ended_", "Rendezvous::ended_fd_"],
    "the board of a store": [
        "FileStore::failures_", "MemoryStore::failures_", "StoreServer::failures_", "TcpStore::failures_", "EndableStore::board_"],
    "how a rank has ended": ["RankEndEvent::end"],
    "handles of listeners": ["FileStore::ends_", "EndableStore::ends_"],
    "waits are over": ["EndableStore::has_ended_"],
    "the connection to the store, whose end goes to the board": [
        "StoreServer::Connection::send_error", "StoreServer::broadcasts_", "TcpStore::send_error_", "TcpStore::lost_"],
    "an error of numbers": ["HookReport::Bucket::relative_error", "HookReport::Hook::relative_error", "HookReport::relative_error", "Matrix::error"],
}
_NAME = re.compile(r"fail|error|abort|lost|ended|^ends_?$|problem|poison|broken|dead(?!line)|cancel", re.IGNORECASE)
_TYPE = re.compile(r"\b(?:exception_ptr|Failure|GroupError|CommError|PeerEnd|RankEnd\w*|End|Problem|Known|FailureBoard|FailureLatch)\b")
_SCOPE = re.compile(r"\b(?:class|struct|union)\s+(?:TANDEM_API\s+|\[\[\w+\]\]\s*)?([\w:]+)(?:\s+final)?(?:\s*:[^{;]*)?$")
_MEMBER = re.compile(r"^(?P<type>.*?[\w>*&\]]\s*[\s*&])(?P<name>\w+)(?:\[[^\]]*\])*(?:\s*=.*)?$", re.DOTALL)
_NOT_A_MEMBER = re.compile(r"^(?:using|typedef|friend|static\s+constexpr|static_assert|template|enum|class|struct|union|return)\b")


def _skip_block(code, begin):
    """The position after the block that begins at `begin`."""
    depth = 0
    for i in range(begin, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


def members(code):
    """Yields (Class::name, type) of the data members in C++ without comments and literals."""
    code = re.sub(r"^[ \t]*#.*(?:\\\n.*)*$", "", code, flags=re.MULTILINE)
    scopes, statement, i = [], "", 0
    while i < len(code):
        c = code[i]
        text = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", statement).strip()
        if c == "{":
            scope = _SCOPE.search(text)
            if scope or "namespace" in text or text.startswith("extern"):
                scopes.append(scope.group(1) if scope else None)
                statement = ""
            elif scopes and scopes[-1] and re.search(r"[\w>\]=]$", text) and not re.search(r"\)\s*(?:const|noexcept|override|final|\s)*$|\benum\b", text):
                i = _skip_block(code, i)  # an initializer
                continue
            else:
                i = _skip_block(code, i)
                statement = ""
                continue
        elif c == "}":
            if scopes:
                scopes.pop()
            statement = ""
        elif c == ";":
            if scopes and scopes[-1] and not _NOT_A_MEMBER.match(text):
                member = _MEMBER.match(text)
                if member and not re.search(r"\)\s*(?:const|noexcept|override|= 0|= default|= delete|\s)*$", text):
                    yield "::".join([s for s in scopes if s] + [member.group("name")]), member.group("type")
            statement = ""
        else:
            statement += c
        i += 1


def check(root, remember=MEMBERS, others=OTHERS):
    violations, seen, found = [], 0, set()
    listed = list(remember) + [name for names in others.values() for name in names]
    if len(remember) > MAX_MEMBERS:
        violations.append("%d members remember a failure; at most %d may" % (len(remember), MAX_MEMBERS))
    for path in common.files(root, ("distributed",), (".h", ".cc")):
        if path.startswith("distributed/launch/"):
            continue
        for name, kind in members(common.strip_comments_and_strings(common.read(root, path))):
            seen += 1
            if not _NAME.search(name.rsplit("::", 1)[1]) and not _TYPE.search(kind):
                continue
            found.add(name)
            if name not in listed:
                violations.append("%s: %s remembers a failure; read FailureLatch instead, or list it with a reason" % (path, name))
    return violations + ["%s does not exist; remove its entry" % name for name in listed if name not in found], seen


_LISTED = {"Group::failure_": "the reason"}
_CODE = """
enum class End : uint8_t { kFailed };
/// std::string failure_;
class Group final : public Base {
 public:
  void fail(int culprit = -1) { error = {}; std::string failed; }
  bool has_failed() const override { return flag_; }
 private:
  std::string failure_%s;
%s};
"""
PLANTED = [
    ("", "", []),
    ("{}", "  const int number_ = 3;\n  std::vector<int> ranks_ = {1};\n", []),
    ("", "  std::optional<Failure> reason_;\n", ["Group::reason_ remembers"]),
    ("", "  struct Peer {\n    std::atomic<bool> has_failed{false};\n  };\n", ["Group::Peer::has_failed remembers"]),
    ("", "  bool is_aborted_ = false;\n", ["Group::is_aborted_ remembers"]),
    ("s_", "", ["Group::failures_ remembers", "Group::failure_ does not exist"]),
]


def _self_test():
    for suffix, member, expected in PLANTED:
        name = "failures_" if suffix == "s_" else "failure_"
        code = _CODE.replace("failure_%s;", name + ("{};" if suffix == "{}" else ";"), 1) % member
        common.self_test(lambda root: check(root, _LISTED, {}), [({"distributed/group/a.h": code}, expected)])
    too_many = {"Group::failure_": "", "A::b": "", "A::c": "", "A::d": "", "A::e": ""}
    assert check(common.workspace_root(), too_many, {})[0][0].startswith("5 members")


if __name__ == "__main__":
    _self_test()
    common.run(check, [], at_least=900)
