# SPDX-License-Identifier: BSD-2-Clause
# The front door; meson does the work. "make help" shows what there is.
B ?= build
PREFIX ?= /usr/local
SECONDS ?= 60
N ?= 20
MESON_ARGS ?=
DEPS ?= scripts/deps.sh
DEB_DIR ?= $(B)/deb
NINJA = ninja -C $(B)

.PHONY: all run test check test-all test-repeat test-model test-vm install clean lint fuzz torture \
	bench deps help kernel-series deb test-deb ci ci-whole
all: deps $(B)/build.ninja
	@$(NINJA)

deps:
	@$(DEPS) build

$(B)/build.ninja: | deps
	@meson setup --prefix=$(PREFIX) $(MESON_ARGS) $(B)

# Exit status 3 of "kedge info" is a finding; the demo shows what it means.
run: all
	@$(B)/kedge info || [ $$? = 3 ]
	$(B)/kedge demo

# The gate: each behaviour once. A busy machine is slow and does not hang: -t 3.
test check:
	@$(DEPS) build test
	@$(MAKE) --no-print-directory all
	@scripts/test.py $(B) -t 3

# The whole: every variant of each family, with as many rounds as there are.
test-all:
	@$(DEPS) build test
	@$(MAKE) --no-print-directory all
	@scripts/test.py $(B) --whole -t 3

# The gate N times beside two busy loops: each test that ever failed, with its rate.
test-repeat:
	@$(DEPS) build test
	@$(MAKE) --no-print-directory all
	@scripts/test-repeat -n $(N) -l 2 $(B)

# What decides over a change, on a clone of HEAD: the commit that passed is noted in .git/.
ci:
	@scripts/ci.sh

ci-whole:
	@scripts/ci.sh --whole

# The protocols' models, by spin: every interleaving, and what breaks them.
test-model:
	@$(DEPS) test
	@tests/model/run.sh

# Under Debian's kernels 6.1 and 6.12, in QEMU. VM_ARGS=--quick: the short way.
test-vm:
	@$(DEPS) build test vm
	@$(MAKE) --no-print-directory all
	@tests/vm/suite.py $(VM_ARGS) $(B)

# Debian packages, of a copy of the tree, in DEB_DIR.
deb:
	@$(DEPS) build deb
	@scripts/deb.sh $(DEB_DIR)

# Packages are built, and used in a clean root, which takes root.
test-deb:
	@$(DEPS) build deb
	@tests/packaging/debian.sh

# The kernel module as patches for LINUX, a folder with source of Linux.
kernel-series:
	@linux/series.sh $(LINUX) $(B)-series

install: deps $(B)/build.ninja
ifneq ($(origin PREFIX),file)
	meson configure $(B) -Dprefix=$(PREFIX)
endif
	@$(NINJA)
	meson install -C $(B) --no-rebuild
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi

clean:
	rm -rf $(B) $(B)-fuzz $(B)-series

lint:
	@$(DEPS) build test ci
	@$(MAKE) --no-print-directory all
	@scripts/lint.sh $(B)

# Each harness for SECONDS.
fuzz:
	@$(DEPS) build ci
	@scripts/fuzz.sh $(B)-fuzz $(SECONDS)

torture: all
	$(B)/kedge torture --seconds $(SECONDS)

bench: all
	$(B)/kedge bench cache
	$(B)/kedge bench watch
	$(B)/kedge bench reg

help:
	@echo 'make           build into $(B)/'
	@echo 'make run       show what this machine can do, then the demo'
	@echo 'make test      build and run the gate: each behaviour once, in minutes'
	@echo 'make test-all  build and run every test that needs neither guests nor clang'
	@echo 'make test-repeat  the gate N times ($(N)) beside two busy loops: which tests ever fail'
	@echo 'make ci        what decides over a change, on a clone of HEAD'
	@echo 'make ci-whole  all that can be checked, on a clone of HEAD: before a release'
	@echo 'make test-model  check the models of the protocols'
	@echo 'make test-vm   run tests under other kernels, in QEMU (VM_ARGS=--quick: few)'
	@echo 'make kernel-series LINUX=FOLDER  the kernel module as patches, in $(B)-series/'
	@echo 'make deb       Debian packages, in DEB_DIR ($(DEB_DIR))'
	@echo 'make test-deb  build them, and use them in a clean root (as root)'
	@echo 'make install   install under PREFIX ($(PREFIX)); DESTDIR is heeded'
	@echo 'make torture   try to break the coherence contract for SECONDS ($(SECONDS))'
	@echo 'make bench     measure the cache and the notifier'
	@echo 'make fuzz      run each fuzz harness for SECONDS ($(SECONDS))'
	@echo 'make lint      check layers, headers, exports, ABI, tests, man pages, spelling,'
	@echo '               scripts, style, words'
	@echo 'make clean     remove $(B)/'
	@echo 'Root installs the packages that are missing; others are told which.'
	@echo 'DEPS=: skips looking for them.'
