/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * This process's memory as /proc shows it, for the device that explains why it was
 * not pinned. Part of each library that has one. Read without an allocation,
 * because the caller may hold the allocator's locks; another thread may change it
 * at any time, so an answer is a good guess.
 */
#ifndef DEVICE_PROC_H
#define DEVICE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum proc_fault {
	PROC_NO_FAULT,    /* or it does not show */
	PROC_HOLE,        /* not mapped */
	PROC_NO_READ,     /* PROT_NONE, or only executable */
	PROC_NO_WRITE,    /* not writable, and that was wanted */
	PROC_SHARED_FILE, /* writable, but not pinned for long */
};

/* The first mapping that cannot be pinned, or the hole. */
struct proc_vma {
	uint64_t start, end;
	char perm[5];
	char name[112];
};

/* Bytes that this process has pinned; 0 where /proc does not tell. */
uint64_t kedge__proc_pinned(void);

/* Why [start, end) cannot be pinned, for writing or for reading. */
enum proc_fault kedge__proc_fault(uint64_t start, uint64_t end, bool writes,
				  struct proc_vma *v);

/*
 * Call @each for what of a mapping that may have lazily freed pages is in
 * [start, end), one by one. False where /proc does not tell.
 */
bool kedge__proc_each_lazy(uint64_t start, uint64_t end,
			   void (*each)(void *arg, uint64_t from, uint64_t to),
			   void *arg);

/* True if this thread has CAP_IPC_LOCK, in whatever namespace. Reads no file. */
bool kedge__proc_has_ipc_lock(void);

/* True if RLIMIT_MEMLOCK does not bind this thread. */
bool kedge__proc_may_pin(void);

/* "64 MiB", "20 KiB", "5 bytes". Returns @buf. */
const char *kedge__proc_bytes(char *buf, size_t size, uint64_t bytes);

#endif /* DEVICE_PROC_H */
