#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# lists.sh MAN: values and errnos are lists in the generated pages, a line each.
set -u
FAILED=0

# has PAGE LINE...: these lines follow each other in it
has()
{
	page=$1
	shift
	printf '%s\n' "$@" >"$DIR/want"
	python3 - "$MAN/$page" "$DIR/want" <<'EOF' || FAILED=1
import sys
page, want = (open(f, encoding='utf-8').read() for f in sys.argv[1:])
if '\n' + want not in page:
    sys.exit('%s has not:\n%s' % (sys.argv[1], want))
EOF
}

DIR=$(mktemp -d) || exit 1
trap 'rm -rf "$DIR"' EXIT
trap 'exit 1' HUP INT TERM
MAN=$1
# A member's errnos.
has kedge_channel_poll.3 '0, or a negative errno:' '.Bl -tag -width Er' \
	'.It Bq Er \-EMSGSIZE'
has kedge_channel_poll.3 '.It Bq Er \-ECONNRESET' 'The peer is gone.'
# Return values, and a sentence in the place of a list.
has kedge_channel_send.3 '.Sh RETURN VALUES' '.Bl -tag -width Ds' '.It 1'
has kedge_channel_arm.3 '.It 0' 'Nothing is left to do, wait.' '.It 1'
has kedge_channel_wait.3 '.It Bq Er \-EINTR' 'A signal came; or as'
# Each rule below its own heading.
has kedge_channel_send.3 '.Sh THREADS AND FORK' 'As'
has kedge_version.3 '.Sh THREADS' 'Any.' '.Sh FORK' 'Works in the child.'
# The library that a program links.
has kedge_channel_open_ofi.3 '.Sh LIBRARY' \
	'libkedge-ofi (\-lkedge-ofi \-lkedge; pkg\-config kedge-ofi)'
exit $FAILED
