# SPDX-License-Identifier: BSD-2-Clause
"""Debian's kernels for the guests: downloaded as packages, unpacked into a
folder of ours and never installed."""
import glob
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

# The names that a user gives, and the packages that name the newest of that line.
IMAGES = {'6.1': 'linux-image-amd64', '6.12': 'linux-image-6.12-amd64',
          '6.12-rt': 'linux-image-6.12-rt-amd64'}
# Older and newer ones than this Debian has, by the release that has them. Modules
# are built by that release's compiler, in a small installation of it.
RELEASES = {'5.10': ('bullseye', 'bullseye'),
            'newest': ('trixie', 'trixie-backports')}
# The names in Linux 6.16 and later.
RENAMED = {'crc32c_generic': 'crc32c_cryptoapi',
           'crc32_generic': 'crc32_cryptoapi'}
NAMES = list(IMAGES) + list(RELEASES)
HEADERS = {'6.1': 'linux-headers-amd64', '6.12': 'linux-headers-6.12-amd64',
           '6.12-rt': 'linux-headers-6.12-rt-amd64'}


class Unusable(Exception):
    """Something is missing; the text says what to do."""


def folder():
    return os.environ.get('VM_DIR') or os.path.join(SOURCE, 'build-vm')


def apt(*args):
    out = subprocess.run(args, capture_output=True, text=True, check=False)
    if out.returncode:
        raise Unusable('%s: %s' % (' '.join(args), out.stderr.strip()))
    return out.stdout


def refresh():
    """The lists of packages, where there are none or they are old."""
    apt('apt-get', 'update', '-q')


def depends(package):
    """The real packages that one depends on, the first of alternatives."""
    names = re.findall(r'^ +\|?Depends: (\S+)$', apt('apt-cache', 'depends',
                                                     package), re.M)
    return [n for n in names if not n.startswith('<')]


def wanted(line):
    """The packages of a line: its image, headers and what those build with."""
    try:
        image = depends(IMAGES[line])[0]
    except (Unusable, IndexError):
        refresh()
        image = (depends(IMAGES[line]) or [None])[0]
    if not image:
        raise Unusable('no package %s: this Debian has no Linux %s' %
                       (IMAGES[line], line))
    headers = [p for p in depends(HEADERS[line])
               if p.startswith('linux-headers-')][0]
    more = [p for p in depends(headers)
            if re.match(r'linux-(headers|kbuild)-', p)]
    return [image, headers] + more


def unpack(line, say):
    top = os.path.join(folder(), line)
    os.makedirs(os.path.join(top, 'debs'), exist_ok=True)
    for package in wanted(line):
        have = glob.glob(os.path.join(top, 'debs', package + '_*.deb'))
        if have:
            continue
        say('fetching %s' % package)
        # A download that was cut off leaves nothing that looks complete.
        part = os.path.join(top, 'debs', 'part')
        os.makedirs(part, exist_ok=True)
        out = subprocess.run(['apt-get', 'download', '-q', package], cwd=part,
                             capture_output=True, text=True, check=False)
        debs = glob.glob(os.path.join(part, '*.deb'))
        if out.returncode or len(debs) != 1:
            raise Unusable('apt-get download %s failed:\n%s' %
                           (package, out.stderr.strip()))
        subprocess.run(['dpkg-deb', '-x', debs[0], os.path.join(top, 'root')],
                       check=True)
        os.rename(debs[0], os.path.join(top, 'debs',
                                        os.path.basename(debs[0])))
    for made in glob.glob(os.path.join(top, 'root/usr/src/linux-headers-*')):
        if os.path.exists(os.path.join(made, '.config')):
            relocate(made)


def relocate(headers):
    """Debian's headers name their other half by where it is installed."""
    path = os.path.join(headers, 'Makefile')
    with open(path, encoding='utf-8') as f:
        text = f.read()
    moved = re.sub(r'^include /usr/src/',
                   'include $(dir $(lastword $(MAKEFILE_LIST)))../', text,
                   flags=re.M)
    if moved != text:
        with open(path, 'w', encoding='utf-8') as f:
            f.write(moved)


def depmod(root, version):
    if not os.path.exists(os.path.join(root, 'lib/modules', version,
                                       'modules.dep')):
        subprocess.run(['depmod', '-b', root, version], check=True)


class Kernel:
    """image: bzImage; root: folder with lib/modules/VERSION; headers: what
    modules for it are built against."""

    def __init__(self, image, root, version, headers):
        self.image, self.root, self.version = image, root, version
        self.built = headers

    def headers(self):
        return self.built

    def make_module(self, into, part=''):
        """(exit status, output) of building ummunot into a folder, or the
        module in the folder @part beside it."""
        return output(['make', '-s', '-C',
                       os.path.join(SOURCE, 'kernel', part),
                       'KDIR=' + self.built, 'B=' + into])

    def modules(self):
        return os.path.join(self.root, 'lib/modules', self.version)

    def closure(self, names):
        """Files of the modules @names and what they need, in order of load.
        One that is built into the kernel is left out."""
        deps = {}
        with open(os.path.join(self.modules(), 'modules.dep'),
                  encoding='utf-8') as f:
            for entry in f:
                path, needs = entry.rstrip('\n').split(':')
                deps[module_name(path)] = [path] + needs.split()
        with open(os.path.join(self.modules(), 'modules.builtin'),
                  encoding='utf-8') as f:
            builtin = {module_name(entry.strip()) for entry in f}
        out = []
        for name in names:
            if name not in deps:
                name = RENAMED.get(name, name)
            if name in builtin:
                continue
            if name not in deps:
                raise Unusable('kernel %s has no module %s' %
                               (self.version, name))
            for path in reversed(deps[name]):
                if path not in out:
                    out.append(path)
        return out


class OfRelease(Kernel):
    """Of another release of Debian: its headers are in @chroot."""

    def __init__(self, chroot, *args):
        super().__init__(*args)
        self.chroot = chroot

    def headers(self):
        return self.chroot + self.built

    def make_module(self, into, part=''):
        here = os.path.join(self.chroot, 'ummunot')
        shutil.rmtree(here, ignore_errors=True)
        for part in ('kernel', 'include/uapi'):
            shutil.copytree(os.path.join(SOURCE, part),
                            os.path.join(here, part))
        shutil.copy(os.path.join(SOURCE, 'meson.build'), here)
        status, said = output(within(self.chroot, [
            'make', '-s', '-C', os.path.join('/ummunot/kernel', part),
            'KDIR=' + self.built, 'B=/ummunot/out']))
        if not status:
            os.makedirs(into, exist_ok=True)
            for made in glob.glob(os.path.join(here, 'out/*.ko')):
                shutil.copy(made, into)
        return status, said


def output(command):
    out = subprocess.run(command, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, check=False)
    return out.returncode, out.stdout


def must(command):
    status, said = output(command)
    if status:
        raise Unusable('%s failed:\n%s' % (' '.join(command), said.strip()))
    return said


def within(chroot, command):
    """The command in a chroot that has /proc, which the kernel's tools need."""
    return ['unshare', '-m', 'sh', '-ec',
            'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"',
            chroot] + command


def install(chroot, base, suite):
    """A small Debian with the headers of its newest kernel, and its packages."""
    if os.geteuid() or not shutil.which('debootstrap'):
        raise Unusable('a kernel of %s needs root, and debootstrap installed: '
                       'its modules are built in a chroot' % suite)
    must(['debootstrap', '--variant=minbase', '--include=make,binutils', base,
          chroot])
    lists = os.path.join(chroot, 'etc/apt/sources.list')
    with open(lists, encoding='utf-8') as f:
        first = f.readline()
    if suite != base:
        with open(lists, 'a', encoding='utf-8') as f:
            f.write(first.replace(base, suite))
    must(within(chroot, ['apt-get', 'update', '-q']))
    must(within(chroot, ['apt-get', 'install', '-q', '-y', '-t', suite,
                         '--no-install-recommends', 'linux-headers-amd64']))
    must(within(chroot, ['sh', '-ec', PARTS, suite]))


# An image's parts: in later releases it is one package with its modules no more.
PARTS = '''
mkdir -p /parts
cd /parts
of() { apt-cache depends "$1" | sed -n 's/^ *Depends: //p' |
	grep -E '^linux-(image|binary|modules|base)-[0-9]' || true; }
image=$(of "linux-image-amd64/$0" | grep -m 1 image)
for p in $image $(of "$image"); do
	[ -e "$p.deb" ] || { apt-get download -q "$p"; mv "${p}"_*.deb "$p.deb"; }
done
'''


def of_release(line, say):
    top = os.path.join(folder(), line)
    chroot, root = os.path.join(top, 'chroot'), os.path.join(top, 'root')
    ready = os.path.join(top, 'ready')
    if not os.path.exists(ready):
        say('installing a small Debian for its kernel "%s" (some minutes)' %
            line)
        shutil.rmtree(top, ignore_errors=True)
        os.makedirs(top)
        install(chroot, *RELEASES[line])
        for deb in glob.glob(os.path.join(chroot, 'parts/*.deb')):
            must(['dpkg-deb', '-x', deb, root])
        if not os.path.exists(os.path.join(root, 'lib')):
            os.symlink('usr/lib', os.path.join(root, 'lib'))
        with open(ready, 'w', encoding='utf-8'):
            pass
    image = (glob.glob(os.path.join(root, 'boot/vmlinuz-*')) +
             glob.glob(os.path.join(root, 'lib/modules/*/vmlinuz')))[0]
    version = os.listdir(os.path.join(root, 'lib/modules'))[0]
    depmod(root, version)
    return OfRelease(chroot, image, root, version,
                     '/usr/src/linux-headers-' + version)


def module_name(path):
    return re.sub(r'\.ko(\.[a-z]+)?$', '', os.path.basename(path)) \
        .replace('-', '_')


def own(top):
    """A kernel that debug-kernel.sh built in a folder."""
    versions = os.listdir(os.path.join(top, 'root/lib/modules'))
    if len(versions) != 1:
        raise Unusable('%s/root/lib/modules must have one version' % top)
    return Kernel(os.path.join(top, 'bzImage'), os.path.join(top, 'root'),
                  versions[0], os.path.join(top, 'build'))


def kernel(name, say=lambda text: print(text, file=sys.stderr)):
    """One of NAMES, or a folder as own() wants it."""
    if name in RELEASES:
        return of_release(name, say)
    if name not in IMAGES:
        if os.path.exists(os.path.join(name, 'bzImage')):
            return own(name)
        raise Unusable('no kernel "%s": say one of %s, or a folder with bzImage' %
                       (name, ', '.join(NAMES)))
    unpack(name, say)
    top = os.path.join(folder(), name, 'root')
    images = glob.glob(os.path.join(top, 'boot/vmlinuz-*'))
    newest = max(images, key=os.path.getmtime)
    version = os.path.basename(newest)[len('vmlinuz-'):]
    depmod(top, version)
    return Kernel(newest, top, version,
                  os.path.join(top, 'usr/src/linux-headers-' + version))
