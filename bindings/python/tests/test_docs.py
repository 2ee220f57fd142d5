# SPDX-License-Identifier: BSD-2-Clause
"""Programs of the documents. They are skipped where the documents are not: an installed
package comes without them."""
import os
import re

import kedge
import pytest
from conftest import run_python

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..')


@pytest.fixture
def uring(notifier):
    pytest.importorskip('numpy')
    try:
        kedge.Cache('uring').close()
    except kedge.Error as e:
        pytest.skip('no io_uring: %s' % e)


def text_of(*path):
    path = os.path.join(ROOT, *path)
    if not os.path.exists(path):
        pytest.skip('it is not here: %s' % path)
    with open(path, encoding='utf-8') as f:
        return f.read()


def test_the_programs_of_the_document(uring):
    cache, notifier = re.findall(r'```python\n(.*?)```', text_of('docs', 'python.md'),
                                 re.S)[:2]
    r = run_python(cache + notifier)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith("1048576 b'\\x7fELF'")


def test_the_example(uring):
    r = run_python(text_of('bindings', 'python', 'examples', 'numpy_cache.py'))
    assert r.returncode == 0, r.stderr
    assert '100 arrays, 0 wrong' in r.stdout


def test_each_name_has_a_stub():
    path = os.path.join(os.path.dirname(kedge.__file__), '__init__.pyi')
    with open(path, encoding='utf-8') as f:
        stub = f.read()
    for name in kedge.__all__:
        assert re.search(r'^(class |def )?%s\b' % name, stub, re.M), name
    for cls in (kedge.Cache, kedge.Channel, kedge.Listener, kedge.Notifier,
                kedge.Registration, kedge.Operation, kedge.Uring):
        body = re.search(r'^class %s\b.*?(?=^class |\Z)' % cls.__name__, stub, re.M | re.S)
        for name in (n for n in dir(cls) if not n.startswith('_') and n != 'closed'):
            assert re.search(r'def %s\b' % name, body.group(0)) or \
                (name == 'close' and '_Closes' in body.group(0)), (cls, name)
