#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""In the guest, under rdma.sh: what a plain verbs program gains by "kedge run".

  verbs_program_bench.py KEDGE PROGRAM ROUNDS

Plain and under kedge by turns; the best of the rounds counts. Prints a line of
JSON with the ratios plain : kedge, and fails below what is promised of
--trusted-peers: a loop of registrations ten times as fast, and no message loop
slower. Of large messages it is what they take for registering that is looked at:
soft-RoCE's transfer of one takes twice as long now and then, with or without."""
import json
import subprocess
import sys

# A loss that may come of other work of the machine.
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
    # Regions with remote access end with each message unless peers are trusted.
    least = {'trusted': {'loop': LOOP, 'loop_local': LOOP, 'message_4k': NOISE,
                         'message_4k_remote': NOISE, 'message_4k_reg': 1,
                         'message_64k_reg': 1, 'message_4k_remote_reg': 1,
                         'message_64k_remote_reg': 1},
             'default': {'loop_local': LOOP, 'message_4k': NOISE,
                         'message_4k_reg': 1, 'message_64k_reg': 1}}
    bad = ['%s, %s: %.2f' % (what, name, ratio[name][what])
           for name in least for what, n in least[name].items()
           if ratio[name][what] < n]
    if bad:
        print('too slow: ' + '; '.join(bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
