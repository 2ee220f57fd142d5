#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""In the guest, under rdma.sh: what a plain verbs program gains by "kedge run".

  verbs_program_bench.py KEDGE PROGRAM ROUNDS

Plain and under kedge by turns; the best of the rounds counts. Prints a line of
JSON with the ratios plain : kedge, and fails below what is promised of
--trusted-peers: a loop of registrations ten times as fast, and no message loop
slower."""
import json
import subprocess
import sys

# What else the machine does.
NOISE = 0.85
LOOP = 10


def measure(wrap, program):
    out = subprocess.run(wrap + [program, 'bench'], stdout=subprocess.PIPE,
                         check=True, text=True).stdout
    return json.loads(out)['verbs_program']


def main():
    kedge, program, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    wraps = {'plain': [], 'default': [kedge, 'run', '--'],
             'trusted': [kedge, 'run', '--trusted-peers', '--']}
    best = {name: {} for name in wraps}
    for _ in range(rounds):
        for name, wrap in wraps.items():
            for what, ns in measure(wrap, program).items():
                best[name][what] = min(ns, best[name].get(what, ns))
    ratio = {name: {what: round(best['plain'][what] / ns, 2)
                    for what, ns in best[name].items() if what != 'samples'}
             for name in wraps if name != 'plain'}
    print(json.dumps({'ns': best, 'plain_to_kedge': ratio}))
    bad = ['%s: %.2f' % (what, r) for what, r in ratio['trusted'].items()
           if r < (LOOP if what.startswith('loop') else NOISE)]
    # Regions with remote access end with each message there: no gain.
    bad += ['%s, default: %.2f' % (what, r)
            for what, r in ratio['default'].items()
            if 'remote' not in what and
            r < (NOISE if what != 'loop' else 0)]
    if bad:
        print('too slow: ' + '; '.join(bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
