#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# ci.sh [--whole]: run .ci/run on a clone of HEAD in a folder of its own, so that neither what is
# not committed nor an old build decides. Where it passes, the commit is written to
# $(git rev-parse --git-dir)/ci-passed, with --whole also to ci-passed-whole.
set -eu

whole=
case ${1-} in
'') ;;
--whole) whole=--whole ;;
--help) sed -n '/^# ci.sh/,/^set /s/^# //p' "$0"; exit 0 ;;
*) echo "usage: ci.sh [--whole]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
passed=$(cd "$(git rev-parse --git-dir)" && pwd)/ci-passed
commit=$(git rev-parse HEAD)
[ -z "$(git status --porcelain)" ] ||
	echo "ci.sh: what is not committed takes no part" >&2
# A hook of git's has the repository in its environment, and checkout would go there.
# shellcheck disable=SC2046 # names
unset $(git rev-parse --local-env-vars)
# In a folder that other users may enter, as a clone elsewhere is.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 143' TERM INT HUP
chmod 755 "$tmp"
git clone -q . "$tmp/kedge"
git -C "$tmp/kedge" checkout -q "$commit"
bash "$tmp/kedge/.ci/run" $whole
echo "$commit" >"$passed"
[ -z "$whole" ] || echo "$commit" >"$passed-whole"
echo "passed: $commit"
