#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# kedge perf beside UCX and libfabric, those that this build knows and this
# machine has: which builds they are, where they come from. No time is judged.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
# It fills what is allocated, which is what this measures.
unset MALLOC_PERTURB_

# The peer, if this build knows it and it is installed.
"$KEDGE" perf -s 8,100K -r 1 -b malloc,heap,fresh -p ucx --json \
	>"$DIR/out" 2>"$DIR/err"
case $? in
0)
	json 'd["peer"] == "ucx" and d["peer_version"]' \
		'all(r["peer"] == "ucx" for r in d["rows"])' \
		'all(r["peer_latency_us"] == min(p["latency_us"]
			for p in r["peers"]) for r in d["rows"])' \
		'all(r["peer_gbps"] == max(p["gbps"]
			for p in r["peers"]) for r in d["rows"])' \
		'all([p["tls"] for p in r["peers"]] == ["posix", "posix,cma"]
			for r in d["rows"])' \
		'all(abs(r["gbps_ratio"] * r["peer_gbps"] / r["gbps"] - 1)
			< 1e-6 for r in d["rows"])' \
		'[p["peer"] for p in d["peers"]] == ["ucx"]' \
		'"libucp.so" in d["peers"][0]["path"]' \
		'd["peers"][0]["assertions"] in (False, True)' \
		'd["peers"][0]["parameter_checks"] in (False, True)'
	# A build that is no release is named as such, and no other.
	if python3 -c 'import json, sys
p = json.load(open(sys.argv[1]))["peers"][0]
sys.exit(not (p["assertions"] or p["parameter_checks"]))' "$DIR/out"; then
		says err 'slower than the release builds'
	else
		silent err
	fi
	# The same library by its prefix: as a user installs one.
	ucp=$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["peers"][0]["path"])' "$DIR/out")
	mkdir -p "$DIR/prefix"
	ln -s "$(dirname "$(readlink -f "$ucp")")" "$DIR/prefix/lib64"
	expect 0 perf -s 8 -r 1 -p ucx --peer-tls posix \
		--peer-prefix "$DIR/prefix" --json
	json "d['peers'][0]['path'] == '$DIR/prefix/lib64/libucp.so.0'"
	# One whose parts would be mixed with others'.
	mkdir -p "$DIR/moved/lib"
	cp "$(readlink -f "$ucp")" "$DIR/moved/lib/libucp.so.0"
	expect 3 perf -s 8 -r 1 -p ucx --peer-prefix "$DIR/moved"
	says err 'set LD_LIBRARY_PATH='
	expect 3 perf -s 8 -r 1 -p ucx --peer-prefix "$DIR/none"
	says err 'name the --prefix that UCX was installed with'
	expect 0 perf -s 5000 -r 1 -C -p ucx --peer-tls posix --csv
	says out 'ucx,"posix",5000,malloc,'
	expect 3 perf -s 8 -r 1 -p ucx --peer-tls nosuch
	;;
*)
	grep -qE 'knows no ucx|cannot load UCX|this UCX has no' "$DIR/err" ||
		fail "with a peer: $(cat "$DIR/err")"
	echo "without the peer: $(cat "$DIR/err")"
	expect 2 perf -p none --peer-tls posix
	;;
esac

# libfabric, in the same way; and both at a time.
"$KEDGE" perf -s 8,100K -r 1 -b malloc,heap,fresh -C -p libfabric --json \
	>"$DIR/out" 2>"$DIR/err"
case $? in
0)
	json 'd["peer"] == "libfabric" and d["wrong"] == 0' \
		'd["peers"][0]["assertions"] is None' \
		'all([(p["peer"], p["tls"]) for p in r["peers"]] ==
			[("libfabric", "shm")] for r in d["rows"])' \
		'all(p["latency_us"] > 0 and p["gbps"] > 0
			for r in d["rows"] for p in r["peers"])'
	expect 0 perf -s 9000 -r 1 -C -p libfabric:tcp --csv
	says out 'libfabric,"tcp",9000,malloc,'
	expect 0 perf -s 9000 -r 1 -p libfabric:tcp,libfabric
	says out ' libfabric tcp '
	says out ' libfabric shm '
	expect 3 perf -s 8 -r 1 -p libfabric:nosuch
	says err 'no provider "nosuch"'
	expect 2 perf -p libfabric:a:b
	expect 2 perf -p libfabric --peer-tls posix
	"$KEDGE" perf -s 8 -r 1 -p ucx,libfabric --json >"$DIR/out" \
		2>"$DIR/err" || grep -qE 'no ucx|cannot load' "$DIR/err" ||
		fail "two peers: $(cat "$DIR/err")"
	[ ! -s "$DIR/out" ] || json 'd["peer"] == "ucx,libfabric"' \
		'len(d["peers"]) == 2 and len(d["rows"][0]["peers"]) == 3'
	;;
*)
	grep -qE 'knows no libfabric|cannot load libfabric|no provider' \
		"$DIR/err" || fail "with libfabric: $(cat "$DIR/err")"
	echo "without libfabric: $(cat "$DIR/err")"
	;;
esac

# Mistakes.
expect 2 perf -p mpi
says err "ucx, libfabric[:PROVIDER] or none"
expect 2 perf -p ,
expect 2 perf --peer-prefix "$DIR"
expect 2 perf --peer-tls posix
expect 2 perf --connect @nowhere -p ucx
exit "$FAILED"
