"""Links and pictures of a folder of HTML files lead to files, and to anchors, that exist there. External links are not followed."""

import html
import os
import re
import sys
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "check"))
import common

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:|^//", re.IGNORECASE)
# Element -> the attribute that is a link.
_LINKS = {"a": "href", "area": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "src", "object": "data"}
_TAG = re.compile(r"<(%s)\b([^>]*)>" % "|".join(_LINKS))
_ATTRIBUTE = re.compile(r"""([\w-]+)=(["'])(.*?)\2""", re.DOTALL)
_ANCHOR = re.compile(r"""<[^>]*?\b(?:id|name)=(["'])(.*?)\1""")
# Entries of Doxygen's search index: {"url": text} pairs of a script.
_SEARCH_URL = re.compile(r"'\.\./([^']+)'")


class _Page:
    def __init__(self, text):
        self.anchors = {html.unescape(match.group(2)) for match in _ANCHOR.finditer(text)}
        self.links = []
        for tag in _TAG.finditer(text):
            values = {match.group(1): html.unescape(match.group(3)) for match in _ATTRIBUTE.finditer(tag.group(2))}
            link = values.get(_LINKS[tag.group(1)])
            if link:
                self.links.append((link, text.count("\n", 0, tag.start()) + 1))


def check(root):
    """(violations, number of links)"""
    pages, violations, seen = {}, [], 0
    for path in common.files(root, [""], (".html",)):
        pages[path] = _Page(common.read(root, path))

    def check_link(page, line, link):
        if _SCHEME.match(link):
            return
        target, _, fragment = link.partition("#")
        target = urllib.parse.unquote(target.partition("?")[0])
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if not os.path.isfile(os.path.join(root, path)):
            violations.append("%s:%d: the link %s leads nowhere" % (page, line, link))
        elif fragment and path in pages and urllib.parse.unquote(fragment) not in pages[path].anchors:
            violations.append("%s:%d: %s has no anchor #%s" % (page, line, path, fragment))

    for page, content in pages.items():
        for link, line in content.links:
            seen += 1
            check_link(page, line, link)
    search = os.path.join(root, "search")
    for path in sorted(os.listdir(search)) if os.path.isdir(search) else []:
        if path.endswith(".js"):
            for link in _SEARCH_URL.findall(common.read(root, os.path.join("search", path))):
                seen += 1
                check_link(os.path.join("search", path), 1, "../" + link)
    return sorted(set(violations)), seen
