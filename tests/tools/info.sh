#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# kedge info: its JSON, its exit status and --env.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"

"$KEDGE" info --json >"$DIR/out" 2>"$DIR/err"
status=$?
case $status in
0) json 'd["coherent"]' 'd["level"] in ("ordered", "exact")' ;;
3) json 'not d["coherent"]' ;;
*) fail "exit status $status" ;;
esac
json '[n["name"] for n in d["notifiers"]] == ["ummunot", "uffd", "hooks", "none"]' \
	'[n["name"] for n in d["devices"] if n["name"] != "verbs"] ==
	     ["uring"]' \
	'{"verbs"} <= {n["name"] for n in d["devices"]}' \
	'sum(n["taken"] for n in d["notifiers"]) == 1' \
	'{"version", "kernel", "arch", "notifier", "level"} <= d.keys()' \
	'all({"name", "state", "text", "todo"} <= l.keys()
	     for s in ("notifiers", "devices", "messages", "limits") for l in d[s])' \
	'all(l["state"] in ("ok", "limited", "missing")
	     for s in ("notifiers", "devices", "messages", "limits") for l in d[s])' \
	'[m["name"] for m in d["messages"] if m["name"] != "mr-cache"] ==
		["shm", "tcp", "verbs", "swap", "segment",
		 "libfabric", "rcache"]' \
	'[m["name"] for m in d["messages"]][-2] == "mr-cache" or
		d["messages"][-2]["state"] == "missing"' \
	'{"eager", "copy"} <= set(d["messages"][0]["ways"])' \
	'{"eager", "direct"} <= set(d["messages"][1]["ways"])' \
	'not d["messages"][1]["secret"]' \
	'{"memlock", "regions", "mappings", "pagemap", "cpus", "pages"} <=
	     {l["name"] for l in d["limits"]}'

# A missing part says what to do, and none is missing and there at a time.
json 'all(l["todo"] for s in ("devices", "messages") for l in d[s]
	if l["state"] == "missing" and "not built" in l["text"])' \
	'len([1 for s in ("devices", "messages") for l in d[s]
	      if "fabric" in l["name"] or l["name"] == "ofi"]) == 1'

# The command links libkedge-hooks, and it must really be loaded.
json '[n["state"] for n in d["notifiers"] if n["name"] == "hooks"] !=
	["missing"]'

# The notifier that the environment asks for is taken.
KEDGE_NOTIFIER=none "$KEDGE" info --json >"$DIR/out" 2>"$DIR/err"
[ $? -eq 3 ] || fail 'no notifier, and yet coherent'
json 'd["notifier"] == "none"' 'not d["coherent"]'

# A secret that cannot be used is why nothing goes by TCP.
if KEDGE_NOTIFIER=none "$KEDGE" info | grep -q 'tcp  *ok'; then
	KEDGE_CHANNEL_SECRET=short "$KEDGE" info --json >"$DIR/out" 2>"$DIR/err"
	json 'd["messages"][1]["state"] == "missing"' \
		'"KEDGE_CHANNEL_SECRET" in d["messages"][1]["text"]' \
		'd["messages"][1]["secret"]'
	KEDGE_CHANNEL_SECRET=0123456789abcdef "$KEDGE" info --json \
		>"$DIR/out" 2>"$DIR/err"
	json 'd["messages"][1]["state"] == "ok"' \
		'not d["messages"][1]["todo"]'
fi

expect 0 info --env
says out KEDGE_NOTIFIER
says out 'not set'
expect 0 info --env --json
json '{"KEDGE_NOTIFIER", "KEDGE_VERIFY", "KEDGE_LOG"} <=
	{e["name"] for e in d["environment"]}' \
	'all({"name", "known", "valid", "value"} <= e.keys()
	     for e in d["environment"])'
KEDGE_NOTIFER=uffd
export KEDGE_NOTIFER
expect 1 info --env
says out 'did you mean KEDGE_NOTIFIER?'
expect 1 info --env --json
json 'd["environment"][-1]["name"] == "KEDGE_NOTIFER"' \
	'not d["environment"][-1]["known"]'
unset KEDGE_NOTIFER
KEDGE_VERIFY=maybe
export KEDGE_VERIFY
expect 1 info --env
says out 'none of these values'
exit "$FAILED"
