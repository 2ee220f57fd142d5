#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Make the section 3 man pages from the comments of the public headers.

One page for each call. A struct, enum or flag is described in the page of one
call that takes or names it, of the same header where there is one, and has a
one-line ".so" page of its own name, so that "man kedge_event" works.

  man.py --list HEADER...              the names of the pages, one a line
  man.py --out DIR --date D HEADER...  write them
"""
import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers  # noqa: E402

LIBRARIES = {'kedge/uring.h': ('libkedge-uring', '-lkedge-uring -lkedge',
                               'kedge-uring'),
             'kedge/verbs.h': ('libkedge-verbs', '-lkedge-verbs -lkedge',
                               'kedge-verbs'),
             'kedge/rdma.h': ('libkedge-rdma', '-lkedge-rdma -lkedge',
                              'kedge-rdma'),
             'kedge/ofi.h': ('libkedge-ofi', '-lkedge-ofi -lkedge',
                             'kedge-ofi'),
             'kedge/ofi_device.h': ('libkedge-ofi', '-lkedge-ofi -lkedge',
                                    'kedge-ofi'),
             'kedge/etcd.h': ('libkedge-etcd', '-lkedge-etcd -lkedge',
                              'kedge-etcd')}
DEFAULT_LIBRARY = ('libkedge', '-lkedge', 'kedge')
# The meaning of an errno where the comment gives the bare name.
BARE = {'ENOMEM': 'There is no memory.'}
TOKEN = re.compile(r'^([(\["]*)(@[\w>*.-]*\w|\w+\(\)|[A-Z][A-Z0-9]*_[A-Z0-9_]+'
                   r'|NULL)([)\]",.;:]*)$')


def esc(text):
    """A word or line as mdoc text."""
    text = text.replace('\\', '\\e')
    text = re.sub(r'(^|(?<=[\s(\[]))-', r'\\-', text)
    return '\\&' + text if text[:1] in ("'", '.') else text


def mark(word, pages):
    """The macro line for a word that has a meaning, or None."""
    m = TOKEN.match(word)
    if not m:
        return None
    pre, core, post = m.groups()
    if '"' in pre + post:
        return None
    if core.startswith('@'):
        macro = 'Fa ' + core[1:]
    elif core.endswith('()'):
        name = core[:-2]
        macro = ('Xr %s 3' if name in pages else 'Fn %s') % name
    else:
        macro = 'Dv ' + core
    head = ' '.join(pre) + ' ' if pre else ''
    if pre:                     # an opening delimiter goes after the macro name
        first, rest = macro.split(' ', 1)
        macro = '%s %s%s' % (first, head, rest)
    return '.' + macro + (' ' + ' '.join(post) if post else '')


def prose(text, pages):
    """mdoc lines of a run of text: marked words on lines of their own."""
    out, line = [], []

    def flush():
        if line:
            out.append(esc(' '.join(line)))
            line.clear()

    text = text.replace('*@', '@')
    for word in text.split():
        m = mark(word, pages)
        if m:
            flush()
            out.append(m)
            continue
        word = re.sub(r'@([A-Za-z_]\w*)', r'\1', word)
        if sum(len(w) + 1 for w in line) + len(word) > 76:
            flush()
        line.append(word)
        if re.search(r'[.!?]$', word) and word not in ('etc.',):
            flush()
    flush()
    return out


def sentence(text):
    """A fragment of a comment as a sentence."""
    text = text.strip()
    first = text.split(' ', 1)[0].rstrip('.,;:')
    if re.fullmatch(r"[a-z']+", first) and first not in ('enum', 'struct'):
        text = text[0].upper() + text[1:]
    return text if text.endswith(('.', ':')) else text + '.'


def errors(text):
    """(lead, [(names, text)], tail) of a "Return:" section."""
    lead, items, tail = [], [], []
    lines = text.split('\n')
    if any(re.match(r'\s+-E[A-Z0-9]+', line) for line in lines):
        where = lead
        for line in lines:
            m = re.match(r'\s+(-E[A-Z0-9]+(?:, -E[A-Z0-9]+)*)\s\s*(.*)', line)
            if m:
                items.append([m.group(1), [m.group(2)]])
                where = items[-1][1]
            elif re.match(r'\s{0,2}or ', line):
                where = tail
                where.append(line.strip())
            else:
                where.append(line.strip())
        return (' '.join(lead), [(n, ' '.join(t)) for n, t in items],
                ' '.join(tail))
    text = ' '.join(text.split())
    parts = re.split(r',?\s+(?:or\s+)?(-E[A-Z0-9]+(?:, -E[A-Z0-9]+)*)', text)
    if len(parts) == 1:
        return text, [], ''
    items = [[parts[i], parts[i + 1].strip(' :')]
             for i in range(1, len(parts), 2)]
    last = re.split(r',\s+(?=or what)', items[-1][1], maxsplit=1)
    items[-1][1] = last[0]
    return (parts[0] + ', or a negative errno:', [tuple(i) for i in items],
            last[1] if len(last) > 1 else '')


def named_in(thing, text, loosely):
    """Whether text names the struct, enum or flag; loosely: or one of the
    enum's members, or the family of either, as in KEDGE_ACCESS_*."""
    words = [thing.name]
    if loosely and thing.kind == 'enum':
        words += [p[0] for p in thing.params]
    if any(re.search(r'\b%s\b' % w, text) for w in words):
        return True
    upper = [w for w in words if w.isupper()]
    return any(w.startswith(f) for f in re.findall(r'\b(KEDGE_[A-Z_]+_)\*', text)
               for w in upper)


def all_text(item):
    return '\n'.join([item.brief, item.code] + [t for _, t in item.params] +
                     item.body + list(item.sections.values()))


def place_types(items):
    """{call name: [types described in its page]}, each type once."""
    calls = [i for i in items if i.kind in ('func', 'inline')]
    types = [i for i in items if i not in calls]
    hosted = {c.name: [] for c in calls}
    left = list(types)
    # Structs by signature first: there is where a reader looks for them.
    for t in [t for t in types if t.kind == 'struct']:
        for c in calls:
            if any(re.search(r'\bstruct %s\b' % t.name, a) for a in c.args):
                hosted[c.name].append(t)
                left.remove(t)
                break

    def settle(loosely, anywhere):
        for t in left:
            for c in calls:
                if not anywhere and c.header != t.header:
                    continue
                text = '\n'.join(all_text(i) for i in [c] + hosted[c.name])
                if named_in(t, text, loosely):
                    hosted[c.name].append(t)
                    left.remove(t)
                    return True
        return False

    while any(settle(*how) for how in ((False, False), (True, False),
                                       (False, True), (True, True))):
        pass
    if left:
        raise headers.DocError('%s: no call names %s' % (left[0].where,
                                                         left[0].name))
    return hosted


def errno_list(errs, where, pages):
    """The list of [(names, cause)]."""
    out = ['.Bl -tag -width Er']
    for names, text in errs:
        text = text.strip(' .') or BARE.get(names.strip('-'), '')
        if not text:
            raise headers.DocError('%s: %s without a cause' % (where, names))
        for n in names.split(', '):
            out.append('.It Bq Er \\-' + n[1:])
        out += prose(sentence(text), pages)
    return out + ['.El']


def described(text, where, pages):
    """A parameter's text. Behind a colon, lines that begin with an errno are a
    list; elsewhere a sentence happens to have one there."""
    lead, *lines = re.split(r'\n(?=-E)', text)
    if not lines or not lead.endswith(':'):
        return prose(sentence(text), pages)
    return prose(lead, pages) + errno_list(
        [re.match(r'(-E\w+(?:, -E\w+)*)\s*(.*)', line, re.S).groups()
         for line in lines], where, pages)


def tag_list(pairs, macro, where, pages):
    out = ['.Bl -tag -width Ds']
    for name, text in pairs:
        out += ['.It %s %s' % (macro, name)] + described(text, where, pages)
    return out + ['.El']


def values(text, pages):
    """What is returned: of "1: it is over; 0: it is not; or an errno" a list,
    and what follows as prose."""
    parts = re.split(r'(?:^|;\s+)(\d+):\s+', text)
    if parts[0] or len(parts) < 5:
        return prose(sentence(text), pages)
    last, _, tail = parts[-1].partition('; or ')
    last, _, more = (last, '', '') if tail else last.partition(';, or ')
    tail = tail or more
    parts[-1] = last
    out = ['.Bl -tag -width Ds']
    for value, what in zip(parts[1::2], parts[2::2]):
        out += ['.It ' + value] + prose(sentence(what), pages)
    out.append('.El')
    return out + (['.Pp'] + prose(sentence('Or ' + tail), pages) if tail else [])


def literal(code):
    code = code.replace('KEDGE_API ', '').expandtabs(8)
    return ['.Bd -literal'] + [esc(line) if line.strip() else ''
                               for line in code.split('\n')] + ['.Ed']


def type_block(t, pages):
    kind = {'macro': '.Dv %s', 'enum': '.Vt "enum %s"',
            'struct': '.Vt "struct %s"'}[t.kind] % t.name
    title = {'macro': t.name}.get(t.kind, '%s %s' % (t.kind, t.name))
    out = ['.Ss ' + title]
    if t.kind == 'macro':
        return out + prose(sentence(t.brief), pages) + literal(t.code)
    out += [kind + ' :'] + prose(t.brief + '.', pages) + literal(t.code)
    fields = [p for p in t.params if p[0] != 'reserved']
    private = [n for n, text in fields if text == 'private']
    fields = [p for p in fields if p[1] != 'private']
    if fields:
        out += tag_list(fields, 'Dv' if t.kind == 'enum' else 'Fa', t.where,
                        pages)
    if private:
        out += ['The members are private.']
    for name, text in t.sections.items():
        out += ['.Pp', name + ':'] + prose(text, pages)
    for para in t.body:
        out += ['.Pp'] + prose(para, pages)
    return out


def synopsis(item):
    out = ['.Sh SYNOPSIS', '.In ' + item.header]
    for t in item.typedefs:
        m = re.match(r'typedef (.*?)\(\*(\w+)\)\((.*)\);', ' '.join(t.split()))
        out += ['.Bd -literal', esc('typedef %s(*%s)(%s);' % m.groups()), '.Ed']
    inline = 'static inline ' if item.kind == 'inline' else ''
    out += ['.Ft %s' % (inline + item.ret), '.Fo ' + item.name]
    out += ['.Fa "%s"' % a for a in item.args] or ['.Fa void']
    return out + ['.Fc']


def returns(item, pages):
    if 'Return' not in item.sections:
        return ['.Sh RETURN VALUES', 'None.'], []
    lead, errs, tail = errors(item.sections['Return'])
    out = ['.Sh RETURN VALUES'] + values(lead, pages)
    if not errs:
        return out, []
    out[-1] = re.sub(r':$', '', out[-1])
    out[-1] += ' .' if out[-1].startswith('.') else ', see ERRORS.'
    out += ['.Xr kedge_strerror 3', 'tells the reason in words.']
    if item.name == 'kedge_strerror':
        out = out[:-2]
    err = ['.Sh ERRORS'] + errno_list(errs, item.where, pages)
    if tail:
        tail = re.sub(r'^or what', 'Also what', tail)
        err += ['.Pp'] + prose(sentence(tail), pages)
    return out, err


def rules(item):
    """[(heading, text)] of threads, fork and ownership. Fork may stand in the
    section of threads: "Threads: any. Fork: works in the child."."""
    out = []
    for name in ('Threads', 'Fork', 'Ownership'):
        text = item.sections.get(name, '')
        both = re.match(r'and Fork:\s+(.*)', text, re.S)
        if both:
            out.append(('THREADS AND FORK', both.group(1)))
            continue
        text, fork, rest = re.match(r'(.*?)(?:\s(Fork):\s+(.*))?$', text,
                                    re.S).groups()
        out += [(name.upper(), text)] if text else []
        out += [(fork.upper(), rest)] if fork else []
    return out


def page(item, hosted, calls, date, version):
    pages = {c.name for c in calls} - {item.name}
    lib, link, pc = LIBRARIES.get(item.header, DEFAULT_LIBRARY)
    out = ['.\\" SPDX-License-Identifier: BSD-2-Clause',
           '.\\" Made of the comments in %s.' % item.header,
           '.Dd ' + date, '.Dt %s 3' % item.name.upper(),
           '.Os kedge ' + version,
           '.Sh NAME', '.Nm ' + item.name, '.Nd ' + esc(item.brief),
           '.Sh LIBRARY', '%s (%s; pkg\\-config %s)' % (lib, esc(link), pc)]
    out += synopsis(item) + ['.Sh DESCRIPTION']
    if item.body:
        for n, para in enumerate(item.body):
            out += (['.Pp'] if n else []) + prose(para, pages)
    else:
        out += ['.Nm :'] + prose(item.brief + '.', pages)
    if item.params:
        out += ['.Pp', 'The parameters:'] + tag_list(item.params, 'Fa',
                                                     item.where, pages)
    for t in hosted:
        out += type_block(t, pages)
    ret, err = returns(item, pages)
    for heading, text in rules(item):
        out += ['.Sh ' + heading] + prose(sentence(text), pages)
    out += ret + err + ['.Sh SEE ALSO']
    linked = {w for w in pages if re.search(r'\b%s\(\)' % w, all_text(item))}
    linked |= {c.name for c in calls
               if c.header == item.header and c is not item}
    if err:
        linked.add('kedge_strerror')
    linked.discard(item.name)
    out += ['.Xr %s 3 ,' % n for n in sorted(linked)] + ['.Xr kedge 7']
    return '\n'.join(out) + '\n'


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--list', action='store_true')
    ap.add_argument('--out')
    ap.add_argument('--date')
    ap.add_argument('--version', default='')
    ap.add_argument('header', nargs='+')
    args = ap.parse_args()

    items = headers.parse(sorted(args.header))
    calls = [i for i in items if i.kind in ('func', 'inline')]
    hosted = place_types(items)
    names = {c.name for c in calls}
    files = {}
    for c in calls:
        files[c.name] = c
        for t in [t for t in hosted[c.name] if t.name not in names]:
            files[t.name] = '.so man3/%s.3\n' % c.name
    if args.list:
        print('\n'.join('%s.3' % f for f in sorted(files)))
        return 0
    if not args.out or not args.date:
        ap.error('--out and --date are needed')
    for name, what in files.items():
        if not isinstance(what, str):
            what = page(what, hosted[name], calls, args.date, args.version)
        with open(os.path.join(args.out, name + '.3'), 'w',
                  encoding='utf-8') as f:
            f.write(what)
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except headers.DocError as e:
        sys.exit('man.py: %s' % e)
