// SPDX-License-Identifier: BSD-2-Clause
#include "kseg_lib.h"

int ks_open(int flags)
{
	int fd = open("/dev/kedge-segment", flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int ks_make(int fd, const void *addr, size_t len, unsigned int mode,
	    struct ks_id *id)
{
	struct kedge_segment_make r = {
		.size = sizeof(r),
		.flags = len ? 0 : KEDGE_SEGMENT_WHOLE,
		.addr = (uintptr_t)addr,
		.len = len,
		.mode = mode,
	};

	if (ioctl(fd, KEDGE_SEGMENT_MAKE, &r))
		return -errno;
	memcpy(id, r.id, sizeof(*id));
	return 0;
}

int ks_remove(int fd, struct ks_id id)
{
	struct kedge_segment_remove r = {
		.size = sizeof(r), .id = { id.word[0], id.word[1] }
	};

	return ioctl(fd, KEDGE_SEGMENT_REMOVE, &r) ? -errno : 0;
}

int ks_get(int fd, struct ks_id id, unsigned int access)
{
	struct kedge_segment_get r = {
		.size = sizeof(r), .id = { id.word[0], id.word[1] },
		.access = access,
	};

	return ioctl(fd, KEDGE_SEGMENT_GET, &r) ? -errno : 0;
}

int ks_query(int fd, struct ks_id id, struct kedge_segment_query *q)
{
	memset(q, 0, sizeof(*q));
	q->size = sizeof(*q);
	q->id[0] = id.word[0];
	q->id[1] = id.word[1];
	return ioctl(fd, KEDGE_SEGMENT_QUERY, q) ? -errno : 0;
}

char *ks_map(int fd, size_t len, int prot, off_t offset)
{
	char *p = mmap(NULL, len, prot, MAP_SHARED, fd, offset);

	return p == MAP_FAILED ? (char *)(intptr_t)-errno : p;
}

int ks_errno(const void *p)
{
	const intptr_t n = (intptr_t)p;

	return n < 0 && n > -4096 ? (int)n : 0;
}

const uint64_t *ks_generation(int fd)
{
	return (void *)ks_map(fd, PAGE, PROT_READ,
			      (off_t)KEDGE_SEGMENT_GENERATION_OFFSET);
}

char *ks_mapped(int fd, size_t len, int prot, off_t offset)
{
	char *p = ks_map(fd, len, prot, offset);

	assert_int_equal(ks_errno(p), 0);
	return p;
}

/* ---- what most cases have ---- */

int mine, other;
struct ks_id shared;

int ks_begin(void **state)
{
	mine = ks_open(O_RDWR);
	other = ks_open(O_RDWR);
	return mine < 0 || other < 0 ? -1 : 0;
}

int ks_end(void **state)
{
	close(other);
	close(mine);
	return 0;
}

void ks_share(const void *m, size_t len)
{
	assert_int_equal(ks_make(mine, m, len, 0600, &shared), 0);
}

void ks_grant(const void *m, size_t len)
{
	ks_share(m, len);
	assert_int_equal(ks_get(other, shared, KS_RW), 0);
}

/* ---- access that may be refused ---- */

static __thread sigjmp_buf escape;
static __thread volatile sig_atomic_t armed;

static void on_fault(int sig)
{
	if (!armed) {
		signal(sig, SIG_DFL);
		return;
	}
	siglongjmp(escape, sig == SIGBUS ? KS_SIGBUS : KS_SIGSEGV);
}

static void catch_faults(void)
{
	struct sigaction sa = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };

	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
}

/* The outcome of @access, which may be refused. */
#define GUARDED(access)				\
	({					\
		int rc_;			\
						\
		catch_faults();			\
		rc_ = sigsetjmp(escape, 0);	\
		if (!rc_) {			\
			armed = 1;		\
			access;			\
		}				\
		armed = 0;			\
		rc_;				\
	})

int ks_load(const volatile char *p, char *value)
{
	return GUARDED(*value = *p);
}

int ks_store(volatile char *p, char value)
{
	return GUARDED(*p = value);
}

int ks_load_word(const volatile uint64_t *p, uint64_t *value)
{
	return GUARDED(*value = *p);
}

int ks_store_word(volatile uint64_t *p, uint64_t value)
{
	return GUARDED(*p = value);
}

/* ---- peers ---- */

enum { DO_LOAD, DO_STORE, DO_MPROTECT, DO_MUNMAP, DO_GENERATION };

struct order {
	int what;
	size_t offset, len;
	int arg;
};

struct answer {
	int result;
	char value;
	uint64_t number;
};

static void obey(const struct order *o, char *m, const uint64_t *generation,
		 struct answer *a)
{
	switch (o->what) {
	case DO_LOAD:
		a->result = ks_load(m + o->offset, &a->value);
		break;
	case DO_STORE:
		a->result = ks_store(m + o->offset, (char)o->arg);
		break;
	case DO_MPROTECT:
		a->result = mprotect(m + o->offset, o->len, o->arg) ? -errno : 0;
		break;
	case DO_MUNMAP:
		a->result = munmap(m + o->offset, o->len) ? -errno : 0;
		break;
	default:
		a->number = __atomic_load_n(generation, __ATOMIC_ACQUIRE);
	}
}

static void peer_work(int sock, struct ks_id id, unsigned int access, size_t len)
{
	int fd = ks_open(access & KEDGE_SEGMENT_WRITE ? O_RDWR : O_RDONLY);
	struct answer a = { 0 };
	const uint64_t *generation = NULL;
	struct order o;
	char *m = NULL;

	a.result = fd < 0 ? fd : ks_get(fd, id, access);
	if (!a.result) {
		m = ks_map(fd, len, PROT_READ |
			   (access & KEDGE_SEGMENT_WRITE ? PROT_WRITE : 0), 0);
		a.result = ks_errno(m);
		generation = ks_generation(fd);
	}
	/* The mappings keep the file. */
	close(fd);
	while (write(sock, &a, sizeof(a)) == sizeof(a) &&
	       read(sock, &o, sizeof(o)) == sizeof(o)) {
		memset(&a, 0, sizeof(a));
		obey(&o, m, generation, &a);
	}
	_exit(0);
}

static void hear(struct peer *p, struct answer *a)
{
	if (read(p->fd, a, sizeof(*a)) != sizeof(*a))
		errx(1, "the peer is gone");
}

static struct answer tell(struct peer *p, struct order o)
{
	struct answer a;

	if (write(p->fd, &o, sizeof(o)) != sizeof(o))
		err(1, "peer");
	hear(p, &a);
	return a;
}

void peer_start(struct peer *p, struct ks_id id, unsigned int access, size_t len)
{
	struct answer a;
	int sock[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		err(1, "socketpair");
	p->pid = fork();
	if (p->pid < 0)
		err(1, "fork");
	if (!p->pid) {
		close(sock[0]);
		peer_work(sock[1], id, access, len);
	}
	close(sock[1]);
	p->fd = sock[0];
	hear(p, &a);
	p->failed = a.result;
}

void peer_stop(struct peer *p)
{
	close(p->fd);
	waitpid(p->pid, NULL, 0);
}

int peer_load(struct peer *p, size_t offset, char *value)
{
	struct answer a = tell(p, (struct order){ DO_LOAD, offset, 0, 0 });

	*value = a.value;
	return a.result;
}

int peer_store(struct peer *p, size_t offset, char value)
{
	return tell(p, (struct order){ DO_STORE, offset, 0, value }).result;
}

int peer_mprotect(struct peer *p, size_t offset, size_t len, int prot)
{
	return tell(p, (struct order){ DO_MPROTECT, offset, len, prot }).result;
}

int peer_munmap(struct peer *p, size_t offset, size_t len)
{
	return tell(p, (struct order){ DO_MUNMAP, offset, len, 0 }).result;
}

uint64_t peer_generation(struct peer *p)
{
	return tell(p, (struct order){ DO_GENERATION, 0, 0, 0 }).number;
}

void peer_begin_load(struct peer *p, size_t offset)
{
	const struct order o = { DO_LOAD, offset, 0, 0 };

	if (write(p->fd, &o, sizeof(o)) != sizeof(o))
		err(1, "peer");
}

bool peer_ended(struct peer *p, int ms, int *result, char *value)
{
	struct pollfd f = { p->fd, POLLIN, 0 };
	struct answer a;

	if (poll(&f, 1, ms) <= 0)
		return false;
	hear(p, &a);
	*result = a.result;
	*value = a.value;
	return true;
}
