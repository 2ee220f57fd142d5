#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# In the guest, under rdma.sh: the stale write on a real RDMA stack. The naive
# cache's copy is wrong although every transfer completed; kedge's is right.
#
#	rdma_demo.sh KEDGE ROUNDS
set -eu
kedge=$1
rounds=$2
file=$(mktemp)
trap 'rm -f "$file" "$file.json"' EXIT
# A name is given: looking for a file takes long where the host's are remote.
head -c 4000001 /dev/urandom >"$file"
"$kedge" demo -q --json --device "verbs:$RDMA_CLIENT_DEV" --rounds "$rounds" \
	--churn 20 --seed 3 "$file" >"$file.json"
python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
m = {m["name"]: m for m in d["modes"]}
for name in m:
    print(name, {k: m[name][k] for k in
                 ("chunks", "registrations", "hits", "stale")})
assert d["device"] == "verbs", d["device"]
assert d["notifier"] != "none", d["notifier"]
assert m["uncached"]["intact"], "uncached"
assert not m["naive"]["intact"] and m["naive"]["stale"], "naive is right"
assert m["kedge"]["intact"], "kedge is wrong"
assert m["kedge"]["hits"], "kedge caches nothing"
' "$file.json"
