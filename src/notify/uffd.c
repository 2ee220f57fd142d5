// SPDX-License-Identifier: BSD-2-Clause
/*
 * The userfaultfd backend: the kernel tells of munmap, mremap, MAP_FIXED over,
 * MADV_DONTNEED and their kin, and holds the calling thread until the event has
 * been read. Ranges are registered for write-protect faults and never protected,
 * so that no access ever faults or hangs because of it.
 *
 * Why a change is visible before the call that made it returns (level ordered):
 *
 *  1. read() lets the calling thread go *before* it returns the event here. So
 *     the monitor polls, takes nf->lock, makes the generation odd, and only then
 *     reads. The store precedes the read in program order; the kernel passes
 *     the message under a spinlock that the waiting thread takes too; so when
 *     that thread is back from munmap() it sees the odd generation or a later
 *     one, never the one before. Any thread it tells sees it as well.
 *  2. A lookup that finds the generation odd or moved takes nf->lock, which the
 *     monitor holds until the event is queued. There is no state in which the
 *     event is neither unread nor visible.
 *  3. MADV_DONTNEED and its kin are announced before the pages go. Nothing that
 *     is registered from then until the pages are known to be gone is kept: see
 *     taint.c.
 *
 * What would break: reading before the store (an event seen by nobody), queueing
 * after unlocking (a lookup drains too early), a blocking read (the generation
 * would have to be odd all the time).
 *
 * The monitor allocates nothing, frees nothing, takes no lock but nf->lock, and
 * no thread waits for an event while it holds that: signals are blocked under it
 * and no memory is unmapped there. So a thread that sits in munmap() within an
 * allocator, whichever it is, always gets its answer.
 *
 * The monitor has its own table of file descriptors: a program that closes all
 * descriptors it does not know can not cut it off, which would leave munmap()
 * hanging or unseen.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notify/internal.h"
#include "notify/tripwire.h"
#include "notify/uffd_range.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define EVENTS                                                                 \
	(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |                 \
	 UFFD_FEATURE_EVENT_REMOVE)

#define SPIN_DEFAULT_US 200
#define EVENTS_A_ROUND	64  /* then others get the lock */
#define LOOKS		20  /* at a witness, after an event */
#define LOOK_EVERY_NS	50000

/*
 * The bell is a page of our own that is watched like others': unmapping it ends
 * the monitor. Unlike a descriptor nobody can close it. It is of a kind that no
 * neighbour's mapping melts with. It is present, so that to fill it with zeros
 * is refused: that is the question of uffd_settled().
 */
struct uffd {
	int fd;
	bool counts; /* the kernel counts changes under way */
	uint64_t bell;
	sem_t ready; /* the monitor has its own descriptors */
	struct tripwire *tripwire; /* NULL: there is none */
	pthread_t thread;
	uint64_t spin_ns;
	/* The monitor's own: */
	bool rung;
	uint64_t last_ns;
	uint64_t gap_ns; /* between events, smoothed */
	unsigned int looks;
};

/* glibc moves the heap's end down within itself, with the heap's lock held. */
static bool heap_shrank(uint64_t start)
{
	return start == round_up((uint64_t)syscall(SYS_brk, 0),
				 kedge__page_size());
}

/*
 * Watched memory went by a call that libkedge-hooks did not announce: this
 * program has another way than libc. The next such change may be in the window
 * that the hooks were to close, so from now on lookups ask. An announced change
 * brings an event, too, where the range was armed again meanwhile; it is still
 * under way then.
 */
static void hooks_were_passed_by(struct kedge_notifier *nf, uint64_t start,
				 uint64_t end)
{
	struct uffd *u = nf->backend;

	if (nf_asks(nf) != ASKS_NOT || announce_active(start, end) ||
	    heap_shrank(start))
		return;
	/* The caller moves the generation: it was told to somebody. */
	atomic_store_explicit(&nf->page->asks,
			      u->counts ? ASKS_KERNEL : ASKS_LOST,
			      memory_order_relaxed);
}

/* [start, end) is another mapping now, or none. */
static size_t gone(struct kedge_notifier *nf, uint32_t kind, uint64_t start,
		   uint64_t end)
{
	size_t told;

	armed_cut(nf, start, end);
	taint_cut(nf, start, end);
	told = queue_publish(nf, kind, start, end);
	if (told)
		hooks_were_passed_by(nf, start, end);
	return told;
}

static size_t told_by(struct kedge_notifier *nf, const struct uffd_msg *m)
{
	struct uffd *u = nf->backend;
	uint64_t start, end, to;

	if (m->event == UFFD_EVENT_REMAP) {
		start = m->arg.remap.from;
		end = start + m->arg.remap.len;
		to = m->arg.remap.to;
		maybe_add(nf, to, to + m->arg.remap.len);
		return gone(nf, KEDGE_EVENT_REMAP, start, end);
	}
	start = m->arg.remove.start;
	end = m->arg.remove.end;
	if (m->event == UFFD_EVENT_UNMAP) {
		u->rung = u->rung || (start <= u->bell && u->bell < end);
		maybe_cut(nf, start, end);
		return gone(nf, KEDGE_EVENT_UNMAP, start, end);
	}
	if (m->event == UFFD_EVENT_REMOVE) {
		taint_add(nf, start, end);
		return queue_publish(nf, KEDGE_EVENT_REMOVE, start, end);
	}
	return queue_publish(nf, KEDGE_EVENT_OTHER, 0, UINT64_MAX);
}

/* Read what there is and queue it: points 1 and 2 above. */
static void handle_events(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	struct uffd_msg m;
	uint64_t g;
	size_t told = 0;
	int n;

	sig_lock_blocked(&nf->lock);
	g = atomic_load_explicit(&nf->page->generation, memory_order_relaxed);
	/* seq_cst: before the read() in every eye; partner: the hit's load. */
	atomic_store_explicit(&nf->page->generation, g | 1,
			      memory_order_seq_cst);
	for (n = 0; n < EVENTS_A_ROUND; n++) {
		if (read(u->fd, &m, sizeof(m)) != (ssize_t)sizeof(m))
			break;
		told += told_by(nf, &m);
		if (m.event == UFFD_EVENT_REMOVE)
			u->looks = LOOKS;
	}
	/* release: who sees the new generation sees the queue. */
	atomic_store_explicit(&nf->page->generation,
			      told ? g + GENERATION_STEP : g,
			      memory_order_release);
	queue_signal(nf);
	sig_unlock_blocked(&nf->lock);
}

static bool more_than_one_cpu(void)
{
	cpu_set_t set;

	/* Fails where there are more CPUs than fit: that is more than one. */
	return sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) > 1;
}

/* Events come in bursts: how long to keep looking after this one. */
static uint64_t spin_until(struct uffd *u)
{
	uint64_t now = clock_ns(), gap = now - u->last_ns;

	u->last_ns = now;
	if (gap > 4 * u->spin_ns)
		gap = 4 * u->spin_ns;
	u->gap_ns = (3 * u->gap_ns + gap) / 4;
	if (u->gap_ns >= u->spin_ns || !more_than_one_cpu())
		return 0;
	return now + u->spin_ns;
}

/* Look whether tainted pages have gone. True: it is worth looking again. */
static bool look(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	bool more;

	if (!u->looks)
		return false;
	u->looks--;
	sig_lock_blocked(&nf->lock);
	more = taint_look(nf);
	sig_unlock_blocked(&nf->lock);
	if (!more)
		u->looks = 0;
	return more;
}

/* Wait for an event. False: there will be none any more. */
static bool wait_event(struct kedge_notifier *nf, uint64_t spin)
{
	struct uffd *u = nf->backend;
	struct pollfd p = { .fd = u->fd, .events = POLLIN };
	struct timespec pause = { 0, LOOK_EVERY_NS };
	struct timespec none = { 0, 0 };

	for (;;) {
		bool spinning = spin && clock_ns() < spin;
		bool looking = look(nf);
		int n = ppoll(&p, 1, spinning ? &none : looking ? &pause : NULL,
			      NULL);

		if (n > 0)
			return p.revents & POLLIN;
		if (spinning)
			cpu_relax();
	}
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* A table of descriptors for this thread alone, with just what it needs. */
static void own_descriptors(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	int keep[3 + TRIPWIRE_FDS] = { u->fd, nf->pipe[1], nf->pagemap_fd };
	unsigned int from = 0, flags = CLOSE_RANGE_UNSHARE, i, cnt = 3;

	if (u->tripwire)
		cnt += tripwire_fds(u->tripwire, keep + cnt);
	qsort(keep, cnt, sizeof(keep[0]), by_number);
	for (i = 0; i < cnt; i++) {
		if ((unsigned int)keep[i] > from) {
			/* A first failure leaves the table shared: so be it. */
			if (syscall(SYS_close_range, from, keep[i] - 1, flags))
				return;
			flags = 0;
		}
		from = (unsigned int)keep[i] + 1;
	}
	if (!flags)
		syscall(SYS_close_range, from, UINT_MAX, flags);
}

static void *monitor(void *arg)
{
	struct kedge_notifier *nf = arg;
	struct uffd *u = nf->backend;
	uint64_t spin = 0;

	prctl(PR_SET_NAME, "kedge-uffd");
	own_descriptors(nf);
	sem_post(&u->ready);
	while (!u->rung && wait_event(nf, spin)) {
		handle_events(nf);
		spin = spin_until(u);
	}
	return NULL;
}

static int start_monitor(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	pthread_attr_t attr;
	sigset_t all, saved;
	int rc = -pthread_attr_init(&attr);

	if (rc)
		return rc;
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN > 65536
						 ? PTHREAD_STACK_MIN
						 : 65536);
	/* No signal is ever the monitor's: it could not be handled there. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	rc = -pthread_create(&u->thread, &attr, monitor, nf);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	pthread_attr_destroy(&attr);
	if (rc)
		return kedge_reason(rc, "no thread to be had for the monitor: "
					"raise ulimit -u");
	/* Till then a close_range() of the application's would cut it off. */
	while (sem_wait(&u->ready) && errno == EINTR)
		;
	return 0;
}

static int new_fd(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK, dev, fd, err;

	fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);
	if (fd < 0 && errno == EINVAL) /* before Linux 5.11 */
		fd = (int)syscall(SYS_userfaultfd, flags);
	if (fd >= 0)
		return fd;
	err = errno;
	dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, flags);
		close(dev);
		if (fd >= 0)
			return fd;
	}
	if (err == ENOSYS)
		return kedge_reason(-EOPNOTSUPP, "this kernel is built without "
						 "userfaultfd");
	return kedge_reason(-err,
			    "userfaultfd is refused (%s): sysctl -w "
			    "vm.unprivileged_userfaultfd=1, or open up "
			    "/dev/userfaultfd, or allow the system call in the "
			    "container's seccomp profile",
			    strerrordesc_np(err));
}

/*
 * The kernel counts changes under way since 5.15; before that a flag said that
 * there was one, and the first of two to be read took it down for both. Of the
 * features that it names, EXACT_ADDRESS came next.
 */
static int handshake(struct uffd *u)
{
	struct uffdio_api api = { .api = UFFD_API, .features = EVENTS };

	if (ioctl(u->fd, UFFDIO_API, &api))
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel's userfaultfd reports no "
				    "unmap events: Linux 4.11 does");
	u->counts = api.features & UFFD_FEATURE_EXACT_ADDRESS;
	if (!(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		return kedge_reason(-EOPNOTSUPP,
				    "this kernel's userfaultfd has no "
				    "write-protect mode on this machine: Linux "
				    "5.7 has it on x86-64, 6.10 on arm64");
	return 0;
}

/* What userfaultfd does not report on this kernel, found by trying. */
static uint32_t blind_spots(void)
{
	size_t len = kedge__page_size();
	uint32_t blind = KEDGE_BLIND_SHM_REMAP;
	void *p = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		return blind | KEDGE_BLIND_GUARD;
	if (!madvise(p, len, MADV_GUARD_INSTALL))
		blind |= KEDGE_BLIND_GUARD;
	munmap(p, len);
	return blind;
}

/* Before the monitor starts, which keeps the descriptors. */
static void open_tripwire(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	int rc = tripwire_open(&u->tripwire);

	if (rc) {
		kedge__log(KEDGE_LOG_DEBUG, "no tripwire: %s",
			   kedge_strerror(rc));
		return;
	}
	nf->blind &= ~tripwire_covers(u->tripwire);
	nf->head.trips = tripwire_counter(u->tripwire);
	nf->trips_seen = *nf->head.trips;
}

static void close_tripwire(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	nf->head.trips = (const uint64_t *)&nf->page->no_trips;
	nf->trips_seen = 0;
	tripwire_close(u->tripwire);
}

static int hang_bell(struct uffd *u)
{
	size_t len = kedge__page_size();
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc = -ENOMEM;

	if (p == MAP_FAILED)
		return rc;
	u->bell = (uintptr_t)p;
	*(volatile char *)p = 1;
	/* In a child it is there too, and nobody listens. */
	if (!madvise(p, len, MADV_WIPEONFORK))
		rc = uffd_register(u->fd, u->bell, u->bell + len);
	if (rc)
		munmap(p, len);
	return rc ? kedge_reason(rc, "userfaultfd refuses to watch a page of "
				     "kedge's own (%s)", strerrordesc_np(-rc))
		  : 0;
}

/* Unmap it while nobody listens. */
static void drop_bell(struct uffd *u)
{
	uffd_unregister(u->fd, u->bell, u->bell + kedge__page_size());
	munmap((void *)(uintptr_t)u->bell, kedge__page_size());
}

/* How lookups make sure: see settle.c. */
static int choose_check(struct kedge_notifier *nf)
{
	const struct uffd *u = nf->backend;

	if (announce_hooked(NULL))
		return 0;
	if (!u->counts)
		return kedge_reason(-EOPNOTSUPP, "this kernel's userfaultfd "
				    "does not tell reliably whether a change "
				    "is under way (Linux 5.18 does), and "
				    "libkedge-hooks is not loaded: link it, or "
				    "set LD_PRELOAD=libkedge-hooks.so");
	notify_must_ask(nf, ASKS_KERNEL);
	return 0;
}

/*
 * Every call that will report an event raises the descriptor's count of changes
 * (mmap_changing) while it holds the address space's lock, before a page goes,
 * and lowers it when its event has been read. While it is raised, requests to
 * fill a page are refused with EAGAIN; else one for a page that is there is
 * refused with EEXIST.
 *
 * Proof. Thread A takes a range away, the kernel hands it to thread B. B took
 * the address space's lock after A had raised the count, so B, and whoever B
 * tells, finds it raised until A's event has been read; and before that read
 * the monitor made the generation odd (point 1 above), which then is, or a
 * later one, what is loaded after this. Asked after the load it would prove
 * nothing: the event could be read in between.
 */
static bool uffd_settled(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;
	struct uffdio_zeropage z = {
		.range = { .start = u->bell, .len = kedge__page_size() },
		.mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE,
	};
	int saved = errno, err;

	err = ioctl(u->fd, UFFDIO_ZEROPAGE, &z) ? errno : 0;
	errno = saved;
	if (likely(err == EEXIST) || !err)
		return true;
	if (err != EAGAIN) /* the descriptor is not ours any more */
		atomic_store_explicit(&nf->page->asks, ASKS_LOST,
				      memory_order_relaxed);
	return false;
}

static int uffd_open(struct kedge_notifier *nf,
		     const struct kedge_notifier_opts *opts)
{
	struct uffd *u = calloc(1, sizeof(*u));
	int rc = -ENOMEM;

	if (!u)
		return rc;
	nf->backend = u;
	nf->blind = blind_spots();
	u->spin_ns = opts->spin_us == UINT32_MAX ? 0
		     : 1000ull * (opts->spin_us ? opts->spin_us
						: SPIN_DEFAULT_US);
	u->gap_ns = u->spin_ns;
	rc = new_fd();
	if (rc < 0)
		goto free_u;
	u->fd = rc;
	rc = handshake(u);
	if (rc)
		goto close_fd;
	rc = choose_check(nf);
	if (rc)
		goto close_fd;
	rc = hang_bell(u);
	if (rc)
		goto close_fd;
	sem_init(&u->ready, 0, 0);
	open_tripwire(nf);
	rc = start_monitor(nf);
	if (rc)
		goto close_tripwire;
	return 0;

close_tripwire:
	close_tripwire(nf);
	sem_destroy(&u->ready);
	drop_bell(u);
close_fd:
	close(u->fd);
free_u:
	nf->backend = NULL;
	free(u);
	return rc;
}

/*
 * Unregister all that may be registered, mapping by mapping, while the monitor
 * still answers. A forked child may hold a copy of the descriptor: closing ours
 * would then not end the registrations, and an munmap() would wait for ever.
 */
static void unregister_all(struct kedge_notifier *nf)
{
	FILE *f = fopen("/proc/self/maps", "re");
	struct uffd *u = nf->backend;
	unsigned long start, end;
	char line[512];
	int c;

	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		bool ours;

		/* A long name: what is left of it is no line. */
		while (!strchr(line, '\n') && (c = fgetc(f)) != EOF)
			if (c == '\n')
				break;
		if (sscanf(line, "%lx-%lx ", &start, &end) != 2)
			continue;
		sig_lock(&nf->lock);
		ours = tree_first_overlap(&nf->maybe, start, end);
		sig_unlock(&nf->lock);
		if (ours)
			uffd_unregister(u->fd, start, end);
	}
	fclose(f);
}

/* The application may have closed it, and opened another under its number. */
static bool still_ours(int fd)
{
	char path[64], name[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, name, sizeof(name) - 1);
	if (n < 0)
		return errno == ENOENT ? false : true;
	name[n] = '\0';
	return !strcmp(name, "anon_inode:[userfaultfd]");
}

static void uffd_close(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	unregister_all(nf);
	munmap((void *)(uintptr_t)u->bell, kedge__page_size());
	pthread_join(u->thread, NULL);
	sem_destroy(&u->ready);
	close_tripwire(nf);
	if (still_ours(u->fd))
		close(u->fd);
	free(u);
}

static void uffd_abandon(struct kedge_notifier *nf)
{
	struct uffd *u = nf->backend;

	close_tripwire(nf);
	if (still_ours(u->fd))
		close(u->fd);
	munmap((void *)(uintptr_t)u->bell, kedge__page_size());
	free(u);
}

static int note_maybe(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	int rc;

	sig_lock(&nf->lock);
	rc = maybe_add(nf, start, end);
	sig_unlock(&nf->lock);
	return rc;
}

/*
 * It is noted before, because it must be known when it may be so, and again
 * afterwards: who disarmed the range in between has forgotten it.
 */
static int uffd_arm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct uffd *u = nf->backend;
	int rc = note_maybe(nf, start, end);

	if (rc)
		return rc;
	rc = uffd_register_patiently(u->fd, start, end);
	if (rc)
		return rc;
	rc = note_maybe(nf, start, end);
	if (rc)
		uffd_unregister(u->fd, start, end);
	return rc;
}

static void uffd_disarm(struct kedge_notifier *nf, uint64_t start, uint64_t end)
{
	struct uffd *u = nf->backend;

	if (!uffd_unregister(u->fd, start, end))
		maybe_cut(nf, start, end);
}

const struct notify_ops notify_uffd = {
	.name = "uffd",
	.level = KEDGE_LEVEL_ORDERED,
	.open = uffd_open,
	.close = uffd_close,
	.abandon = uffd_abandon,
	.arm = uffd_arm,
	.disarm = uffd_disarm,
	.settled = uffd_settled,
};
