/* SPDX-License-Identifier: BSD-2-Clause */
/* The userfaultfd backend's insides; uffd.c has the proofs. */
#ifndef NOTIFY_BACKEND_UFFD_H
#define NOTIFY_BACKEND_UFFD_H

#include <semaphore.h>

#include "base/process/service.h"
#include "notify/backend/uffd_place.h"
#include "notify/internal.h"
#include "notify/tripwire/tripwire.h"

/*
 * The wakeup page is one of our own that is watched like others': dropping it
 * wakes the monitor. Unlike a descriptor it cannot be closed. It is of a kind
 * that no neighbour's mapping melts with.
 */
struct uffd {
	int fd;
	struct fd_id id;
	bool unique; /* id is this descriptor's alone */
	bool counts; /* the kernel counts changes under way */
	uint64_t wakeup;
	sem_t ready;		   /* the monitor has its own descriptors */
	struct tripwire *tripwire; /* or NULL */
	pthread_t thread;
	struct service service;
	struct kedge_notifier *nf;
	_Atomic int tid;       /* the monitor's, while it runs */
	_Atomic bool closing;  /* let all go, and end */
	_Atomic bool wakeup_gone; /* unmapped, or never to be */
	uint64_t spin_ns;
	bool closed; /* the application's copy, by us */
	/* The monitor's own: */
	_Atomic bool own_table; /* of descriptors */
	int epoll;		/* or negative */
	struct uffd_place place;
	uint64_t last_ns;
	uint64_t gap_ns; /* between events, smoothed */
};

/* uffd_kernel.c: a descriptor that reports events: 0 or a negative errno. */
int uffd_get_fd(struct uffd *u);
/* True if the number still stands for it; without the monitor's lock. */
bool uffd_fd_is_ours(const struct uffd *u);
/* The changes that userfaultfd does not report here, found by trying. */
uint32_t uffd_blind_spots(void);

/* uffd_number.c: a number for a new descriptor that no other copy of libkedge has, or @fd. */
int uffd_number(int fd);
/* A thread of the process, besides the monitor, has the descriptor under its number. */
bool uffd_number_is_held(const struct uffd *u);

enum uffd_answer { UFFD_REST, UFFD_CHANGING, UFFD_STRANGER };
/* Ask if a change is under way; a stranger: the descriptor is not ours. */
enum uffd_answer uffd_ask_kernel(const struct uffd *u);

/* uffd_monitor.c */
#define UFFD_MONITOR_NAME "kedge-uffd"
int uffd_monitor_start(struct kedge_notifier *nf);
/* The calling thread is one, which has no descriptors of other notifiers: a callback asks. */
bool uffd_is_monitor(void);
/* Make it let go of everything and end. Once; in the owner. */
void uffd_monitor_stop(struct kedge_notifier *nf);

/* uffd_monitor.c. For tests, which have their own; empty. The monitor is to end: it is about to be
 * woken; and it has answered all calls. */
void monitor_stopping(void);
void monitor_let_go(void);

#endif /* NOTIFY_BACKEND_UFFD_H */
