# SPDX-License-Identifier: BSD-2-Clause
"""Read the kernel-doc comments of the public headers.

parse() gives a list of Item in the order of the headers. The man pages are
made of them and the API check compares them with what the libraries export.
The grammar is what CONTRIBUTING.md asks of a header and no more; anything else
is an error with file and line, so that no call goes undocumented unnoticed.
"""
import re
from dataclasses import dataclass, field

COMMENT = re.compile(r'/\*\*\n?(.*?)\*/[ \t]*\n', re.S)
FUNC = re.compile(r'(?P<ret>[\w\s]+?[\s*]+)(?P<name>kedge_\w+)\s*\((?P<args>.*)\)$',
                  re.S)
SECTIONS = ('Threads', 'Fork', 'Ownership', 'Return')
SPLIT = re.compile(r'(?:^|(?<=[.;]\s))(%s): ?' % '|'.join(SECTIONS), re.M)


class DocError(Exception):
    """A comment or declaration that the grammar does not know."""


@dataclass
class Item:
    """One documented declaration."""
    kind: str                   # func, inline, struct, enum, macro
    name: str
    brief: str
    header: str                 # kedge/cache.h
    where: str                  # file:line, for messages
    params: list = field(default_factory=list)      # (name, text)
    body: list = field(default_factory=list)        # paragraphs
    sections: dict = field(default_factory=dict)    # Threads: text
    code: str = ''              # the declaration
    ret: str = ''
    args: list = field(default_factory=list)
    typedefs: list = field(default_factory=list)


def _comment_lines(text):
    lines = [re.sub(r'^\s*\*? ?', '', line, count=1).rstrip()
             if not re.match(r'^\s*\* {2,}', line)
             else re.sub(r'^\s*\* ', '', line).rstrip()
             for line in text.split('\n')]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _take_params(lines):
    """@name: text, with continuation lines that are indented. What may be a line
    of a list of errnos ("-EFAULT  why") is a line of its own in the text."""
    params, i = [], 0
    while i < len(lines):
        m = re.match(r'@(\w+|\.\.\.):\s*(.*)', lines[i])
        if m:
            params.append([m.group(1), m.group(2)])
        elif params and lines[i].startswith(' '):
            line = lines[i].strip()
            params[-1][1] += ('\n' if re.match(r'-E[A-Z0-9]+\b', line)
                              else ' ') + line
        else:
            break
        i += 1
    return [tuple(p) for p in params], lines[i:]


def _take_sections(text):
    """The prose before the first section, and the sections by name."""
    parts = SPLIT.split(text)
    return parts[0].strip(), {parts[i]: parts[i + 1].strip('\n ')
                              for i in range(1, len(parts), 2)}


def _declaration(text, pos):
    """The declaration that starts at pos: to ; or the end of its braces."""
    depth, i = 0, pos
    if text.startswith('#define', pos):
        return text[pos:text.index('\n', pos)]
    while i < len(text):
        c = text[i]
        if c == '{':
            depth += 1
        elif c == '}':
            depth -= 1
            if not depth and not text[pos:i].lstrip().startswith(
                    ('struct', 'enum')):
                return text[pos:i + 1]
        elif c == ';' and not depth:
            return text[pos:i + 1]
        i += 1
    raise DocError('declaration without an end')


def _split_args(args):
    out, depth, cur = [], 0, ''
    for c in args:
        depth += (c == '(') - (c == ')')
        if c == ',' and not depth:
            out.append(cur)
            cur = ''
        else:
            cur += c
    return [' '.join(a.split()) for a in out + [cur] if a.strip()]


def _function(item, decl):
    head = decl.split('{')[0] if item.kind == 'inline' else decl.rstrip(';')
    head = re.sub(r'__attribute__\s*\(\(.*?\)\)\s*$', '', head, flags=re.S)
    head = re.sub(r'^\s*(KEDGE_API|static inline)\s+', '', head).strip()
    m = FUNC.match(head)
    if not m or m.group('name') != item.name:
        raise DocError('comment of %s() before "%s"' % (item.name, head))
    item.ret = ' '.join(m.group('ret').split())
    item.args = _split_args(m.group('args'))
    if item.args == ['void']:
        item.args = []
    names = [a if a == '...' else re.search(r'(\w+)(?:\[\w*\])?$', a).group(1)
             for a in item.args]
    documented = [p[0] for p in item.params]
    if [n for n in names if n != '...'] != [d for d in documented if d != '...']:
        raise DocError('%s(): parameters %s, documented %s'
                       % (item.name, names, documented))


def _item(path, header, text, m):
    where = '%s:%d' % (path, text.count('\n', 0, m.start()) + 1)
    lines = _comment_lines(m.group(1))
    first = re.match(r'(?:(struct|enum) )?(\w+)(\(\))? - (.*)', lines[0])
    if not first:
        raise DocError('%s: "%s" is no "name - what it is"' % (where, lines[0]))
    decl = _declaration(text, m.end())
    kind = first.group(1)
    if not kind:
        kind = 'macro' if decl.startswith('#define') else \
            'inline' if decl.startswith('static inline') else 'func'
    if (kind in ('func', 'inline')) != bool(first.group(3)):
        raise DocError('%s: %s: () is for functions' % (where, first.group(2)))
    item = Item(kind, first.group(2), first.group(4), header, where, code=decl)
    rest = lines[1:]
    while rest and rest[0] and not rest[0].startswith('@'):
        item.brief += ' ' + rest.pop(0).strip()
    item.params, rest = _take_params(rest)
    prose, item.sections = _take_sections('\n'.join(rest))
    item.body = [' '.join(p.split()) for p in re.split(r'\n\s*\n', prose)
                 if p.strip()]
    try:
        if kind in ('func', 'inline'):
            _function(item, decl)
            if item.ret != 'void' and 'Return' not in item.sections:
                raise DocError('%s() has no "Return:"' % item.name)
            if 'Threads' not in item.sections:
                raise DocError('%s() has no "Threads:"' % item.name)
    except DocError as e:
        raise DocError('%s: %s' % (where, e)) from None
    return item


def _undocumented(path, text, items):
    names = {i.name for i in items}
    for m in re.finditer(r'KEDGE_API[^;#]*?\b(kedge_\w+)\s*\(', text):
        if m.group(1) not in names:
            raise DocError('%s:%d: %s() has no /** comment' % (
                path, text.count('\n', 0, m.start()) + 1, m.group(1)))


def parse(paths):
    """The Items of the headers at paths (.../include/kedge/x.h)."""
    items = []
    for path in paths:
        with open(path, encoding='utf-8') as f:
            text = f.read()
        header = '/'.join(path.replace('\\', '/').split('/')[-2:])
        typedefs = re.findall(r'^typedef [^;]*;', text, re.M)
        mine = [_item(path, header, text, m) for m in COMMENT.finditer(text)]
        _undocumented(path, text, mine)
        for item in mine:
            item.typedefs = [t for t in typedefs
                             if any(re.search(r'\b%s\b' % w, t)
                                    for a in item.args
                                    for w in re.findall(r'\w+_fn\b', a))]
        items += mine
    return items
