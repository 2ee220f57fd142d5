#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The checks that need no run of the program.
#   lint.sh BUILD [CHECK...]   run them, all without a name; say how each went
#   lint.sh --list             their names
set -u

checks="headers layers tests root api abi man spelling shell style words go"
src=$(cd "$(dirname "$0")/.." && pwd)

# Files that belong to the project, or will when they are added; in a tarball, every file,
# also where that was unpacked within a repository of something else.
find_files()
{
	if up=$(git -c safe.directory="$src" rev-parse --show-cdup 2>/dev/null) &&
	   [ -z "$up" ]; then
		git -c safe.directory="$src" ls-files --cached --others \
			--exclude-standard
	else
		find . -type f -not -path './build*' -not -path './.git/*' \
			-printf '%P\n'
	fi | while read -r f; do
		[ ! -e "$f" ] || echo "$f"
	done
}

files()
{
	printf '%s\n' "$all"
}

# All that stands in the root. Whatever a test or a crash leaves there shows, too.
root=".ci .clang-format .gitignore CHANGELOG.md CONTRIBUTING.md LICENSE Makefile
	README.md bindings debian docs examples include kernel linux man meson.build meson_options.txt packaging
	scripts src tests tools"
check_root()
{
	there=$(find . -mindepth 1 -maxdepth 1 -not -name .git \
		-not '(' -name 'build*' -type d ')' -printf '%f\n' | sort)
	# shellcheck disable=SC2086 # a list of words
	wanted=$(printf '%s\n' $root | sort)
	[ "$there" = "$wanted" ] && return
	echo "the root has (+) or lacks (-), as lint.sh lists it:"
	echo "$wanted" >"$build/root.wanted"
	echo "$there" | diff "$build/root.wanted" - | sed -n 's/^>/+/p; s/^</-/p'
	return 1
}

check_man()
{
	pages=$(find "$build/man" -name '*.[137]' -size +0 | sort)
	[ -n "$pages" ] || { echo "no man pages in $build/man"; return 1; }
	# A page that is one .so line has nothing to check.
	echo "$pages" | xargs -d '\n' grep -L '^\.so ' |
		xargs -d '\n' mandoc -T lint -W warning
}

check_spelling()
{
	files | grep -vE '^(LICENSE|scripts/codespell-ignore)$' |
		xargs codespell -I scripts/codespell-ignore
}

check_shell()
{
	files | while read -r f; do
		head -n 1 "$f" | grep -Eq '^#!.*\b(ba)?sh$' && echo "$f"
	done | xargs -n 8 -P "$(nproc)" shellcheck -x
}

# Faults that a compiler does not see; docs of each rule in CONTRIBUTING.md.
check_style()
{
	status=0
	sources=$(files | grep -E '\.(c|h|cc|inc|S|sh|py|go|build|ci/run)$|^Makefile$')
	for f in $sources; do
		[ -s "$f" ] || { echo "$f: empty"; status=1; }
	done
	echo "$sources" | style_of_lines || status=1
	return $status
}

# A function begins with a brace in the first column, or behind its arguments, and
# ends with the last one there before another begins: #ifdef may leave it several.
style_of_lines()
{
	# shellcheck disable=SC2016 # they are awk's
	xargs awk '
		function fail(text) { print FILENAME ":" FNR ": " text; bad = 1 }
		function finish() {
			if (file && !spdx)
				{ print file ": no SPDX line on top"; bad = 1 }
			if (limit && lines > limit)
				{ print file ": " lines " lines, limit " limit; bad = 1 }
		}
		function end_of(what, first) {
			if (FNR - first + 1 > 60)
				fail("a " what " of " FNR - first + 1 " lines, limit 60")
		}
		FNR == 1 {
			finish(); file = FILENAME; spdx = 0; body = 0; macro = 0; head = 0
			c = file ~ /\.(c|h|cc|inc|go)$/
			limit = file ~ /\.h$/ ? 400 : c ? 600 : 0
		}
		FNR <= 2 && /SPDX-License-Identifier: .*BSD-2-Clause/ { spdx = 1 }
		/[ \t]$/ { fail("white space at the end") }
		/(^|[^A-Z_])(TO[D]O|FIX[M]E|XX[X]|HAC[K])([^A-Z_]|$)/ { fail("unfinished") }
		c && /^[^ \t#}].*\{/ { body = 0 }
		c && (/^\{/ || /^[^ \t#}][^=]*\)[^=;]*\{[ \t]*(\/[\/*].*)?$/ ||
		      head && /^[ \t].*\)[ \t]*\{/) { body = FNR; head = 0 }
		c && /^[^ \t#].*[(,]/ { head = /[;{}]/ ? 0 : FNR }
		/;/ { head = 0 }
		c && /syscall\(SYS_mmap/ { wide = FNR }
		c && wide && /, *0\)/ && !/[^_]mmap\(/ {
			fail("an offset as narrow as an int: 0L, or own_mmap()")
		}
		/;/ { wide = 0 }
		c && /^\}/ && body { end_of("function", body) }
		c && /^[ \t]*#[ \t]*define/ { macro = FNR }
		c && macro && !/\\$/ { end_of("macro", macro); macro = 0 }
		c {
			n = 0
			for (i = 1; i <= length($0); i++)
				n = substr($0, i, 1) == "\t" ? n + 8 - n % 8 : n + 1
			if (n > 100)
				fail(n " columns, limit 100")
		}
		{ lines = FNR }
		END { finish(); exit bad }'
}

# "go vet" is part of the package's tests, as it compiles the package.
check_go()
{
	command -v gofmt >/dev/null || { echo "skipped: there is no gofmt"; return 0; }
	unformatted=$(files | grep '\.go$' | xargs gofmt -l) || return 1
	[ -z "$unformatted" ] && return
	echo "gofmt would change: $unformatted"
	return 1
}

run()
{
	case $1 in
	headers) scripts/check-headers.sh . ;;
	layers) scripts/check-layers.py . "$build" ;;
	tests) scripts/check-tests.py . "$build" && scripts/test-table.py "$build" ;;
	root) check_root ;;
	api) scripts/check-api.py . "$build" ;;
	abi) scripts/abi.sh "$build" ;;
	man) check_man ;;
	spelling) check_spelling ;;
	shell) check_shell ;;
	style) check_style ;;
	words) scripts/check-words.py . ;;
	go) check_go ;;
	*) echo "lint.sh: no check is called $1"; return 1 ;;
	esac
}

if [ "${1:-}" = --list ]; then
	echo "$checks" | tr ' ' '\n'
	exit 0
fi
[ $# -ge 1 ] || { echo "usage: lint.sh BUILD [CHECK...]" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
shift
# shellcheck disable=SC2086 # a list of words
[ $# -gt 0 ] || set -- $checks
cd "$src" || exit 2
all=$(find_files)
[ -n "$all" ] || { echo "lint.sh: no file is found: does git work here?" >&2; exit 1; }
status=0
for check; do
	if out=$(run "$check" 2>&1); then
		echo "ok   $check"
		printf '%s\n' "$out" | grep '^skipped: '
	else
		echo "FAIL $check"
		printf '%s\n' "$out"
		status=1
	fi
done
exit $status
