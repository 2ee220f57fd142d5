/* SPDX-License-Identifier: BSD-2-Clause */
/* kedge segments: what is listed, and how it is printed. */
#ifndef TOOLS_SEGMENTS_SEGMENTS_H
#define TOOLS_SEGMENTS_SEGMENTS_H

#include <kedge/segment_list.h>

#include "tools/common/util.h"

/**
 * struct listed - a segment, or a process that tells nothing of its own
 * @entry:   as the library found it
 * @command: the process's name; "?" if it cannot be told
 * @user:    its user's, or the number
 */
struct listed {
	struct kedge_segment_entry entry;
	char command[64];
	char user[64];
};

/**
 * struct all_listed - all of them
 * @of:        by process; owned
 * @segments:  how many of them are segments
 * @processes: that these are of
 * @bytes:     of the segments, those of whole address spaces apart
 * @grants:    of them
 * @others:    processes of other users, which are not asked
 * @silent:    processes that were asked, and tell nothing
 */
struct all_listed {
	struct listed *of;
	size_t cnt;
	size_t room;
	size_t segments;
	size_t processes;
	uint64_t bytes;
	uint64_t grants;
	size_t others;
	size_t silent;
};

/* @pid: the only process that was asked for, or 0. 0, or an exit status. */
int segments_print(const struct all_listed *all, int pid);

#endif /* TOOLS_SEGMENTS_SEGMENTS_H */
