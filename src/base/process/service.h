/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads of the library's own. After pthread_exit() in the main thread a process
 * ends with the last of its threads: ours must not keep it alive.
 * See service.c.
 */
#ifndef BASE_PROCESS_SERVICE_H
#define BASE_PROCESS_SERVICE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/base.h"

struct service {
	void (*end)(struct service *s); /* stop the thread and join it */
	struct service *next;
	bool runs; /* its thread is there, and counts */
	bool ended;
};

/*
 * @s->end is set; the thread is about to be started by the calling one. 0 or a
 * negative errno. Until service_runs() or service_end() no thread is taken for the last.
 */
int service_begin(struct service *s);
/* The thread has been started. */
void service_runs(struct service *s);
/* False: it was ended already, there is no thread to be joined. In the process
 * that began it, while the thread still runs, or has not been started. */
bool service_end(struct service *s);
/*
 * The whole of it: begin, start the thread @run, called @name; @what says what it is for. 0, or a
 * negative errno with its reason. The caller has signals blocked, and so has the thread.
 */
int service_start(struct service *s, pthread_t *thread, void *(*run)(void *), const char *name,
		  const char *what);
/* The first three for kedge's own libraries. */
KEDGE_PRIVATE int kedge__service_begin(struct service *s);
KEDGE_PRIVATE void kedge__service_runs(struct service *s);
KEDGE_PRIVATE bool kedge__service_end(struct service *s);

/* The calling thread is the library's own and about to end: what it began outlives it. The end
 * of the program's thread that it worked for is noticed. */
void service_thread_is_ours(void);
KEDGE_PRIVATE void kedge__service_thread_is_ours(void);

/* True: the process has no other thread than the calling one and those of services. */
bool service_alone(void);

/* By the thread itself, with signals blocked: true, and it ends now, detached. False: it
 * is being ended, or that cannot be told yet; it goes on. Waits for no lock. */
bool service_leave(struct service *s);

#endif /* BASE_PROCESS_SERVICE_H */
