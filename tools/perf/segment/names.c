// SPDX-License-Identifier: BSD-2-Clause
/* Names of the backends and of the rows of kedge perf --segment. */
#include "tools/perf/segment/segment.h"

const char *const seg_backend_names[SEG_BACKENDS + 1] = { "convert", "module", NULL };

const struct seg_name seg_names[SEG_BENCHES] = {
	[SEG_LOAD] = { "load", "load", "own memory", false },
	[SEG_VALID] = { "valid", "valid()", "a load of own memory", false },
	[SEG_ATTACH] = { "attach", "attach, detach", "mmap, munmap of a memfd", false },
	[SEG_TOUCH_LOAD] = { "touch_load", "first load of a page", "of a memfd's", false },
	[SEG_TOUCH_STORE] = { "touch_store", "first store to a page", "to a memfd's",
			      false },
	[SEG_EXCHANGE] = { "exchange", "there and back", "in MAP_SHARED memory", false },
	[SEG_COPY] = { "copy", "copy out of it", "process_vm_readv", true },
	[SEG_MAKE_PAGES] = { "make", "make", "memcpy", true },
	[SEG_MAKE_HUGE] = { "make_huge", "make, of huge pages", "memcpy", true },
	[SEG_REMOVE] = { "remove", "remove", "memcpy", true },
};
