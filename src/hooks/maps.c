// SPDX-License-Identifier: BSD-2-Clause
/*
 * The extent of shmdt(addr): every piece, of one segment, that lies where an
 * attachment at addr would have put it. The kernel is asked each time, rather
 * than a table kept of the attachments seen: such a table is wrong as soon as
 * one call is not. PROCMAP_QUERY (Linux 6.11) answers for one mapping; before
 * it /proc/self/maps is read with a buffer on the stack. Pieces of a segment
 * have one inode, and its number is the segment's id.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <unistd.h>

#include "hooks/hooks.h"
#include "hooks/pieces.h"
#include "uapi/linux/procmap.h"

#define NAME_MAX_LEN	      4096
#define PREFIX		      "/SYSV"

struct piece {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	uint64_t inode;
	unsigned int prot; /* MAPPING_* */
	int sysv;
};

/* As in the kernel's vma_flags. */
#define MAPPING_READ   1u
#define MAPPING_WRITE  2u
#define MAPPING_EXEC   4u
#define MAPPING_SHARED 8u

typedef int match_fn(const struct piece *p, uintptr_t addr);

static int holds(const struct piece *p, uintptr_t addr)
{
	return p->start <= addr && addr < p->end;
}

/* True if the piece is of a segment that was attached at @addr. */
static int attached_at(const struct piece *p, uintptr_t addr)
{
	return p->sysv && p->start >= addr && p->start - addr == p->offset;
}

/* 1 if found, 0 if not, or a negative errno. */
static int find_by_query(int fd, uintptr_t addr, match_fn *match,
			 struct piece *p)
{
	char name[NAME_MAX_LEN];
	uint64_t at = addr;

	for (;;) {
		struct procmap_query_v1 q = {
			.size = sizeof(q),
			.query_flags = PROCMAP_COVERING_OR_NEXT,
			.query_addr = at,
			.vma_name_size = sizeof(name),
			.vma_name_addr = (uintptr_t)name,
		};

		if (ioctl(fd, PROCMAP_QUERY_V1, &q))
			return errno == ENOENT ? 0 : -errno;
		p->start = q.vma_start;
		p->end = q.vma_end;
		p->offset = q.vma_offset;
		p->inode = q.inode;
		p->prot = (unsigned int)q.vma_flags;
		p->sysv = q.vma_name_size > sizeof(PREFIX) - 1 &&
			  !memcmp(name, PREFIX, sizeof(PREFIX) - 1);
		if (match(p, addr))
			return 1;
		at = q.vma_end;
	}
}

static const char *number(const char *s, unsigned int base, uint64_t *v)
{
	unsigned int digit;

	for (*v = 0;; s++) {
		if (*s >= '0' && *s <= '9')
			digit = (unsigned int)(*s - '0');
		else if (base == 16 && *s >= 'a' && *s <= 'f')
			digit = (unsigned int)(*s - 'a') + 10;
		else
			return s;
		*v = *v * base + digit;
	}
}

/* "start-end rwxp offset major:minor inode     name" */
static void parse_line(const char *s, struct piece *p)
{
	uint64_t skip;

	s = number(s, 16, &p->start);
	s = number(s + (*s == '-'), 16, &p->end);
	while (*s == ' ')
		s++;
	for (p->prot = 0; *s && *s != ' '; s++)
		p->prot |= *s == 'r'   ? MAPPING_READ
			   : *s == 'w' ? MAPPING_WRITE
			   : *s == 'x' ? MAPPING_EXEC
			   : *s == 's' ? MAPPING_SHARED
				       : 0;
	s = number(s + (*s == ' '), 16, &p->offset);
	s = number(s + (*s == ' '), 16, &skip);
	s = number(s + (*s == ':'), 16, &skip);
	s = number(s + (*s == ' '), 10, &p->inode);
	while (*s == ' ')
		s++;
	p->sysv = !strncmp(s, PREFIX, sizeof(PREFIX) - 1);
}

/* As find_by_query(). A line's first 255 bytes hold all that matters. */
static int find_by_text(int fd, uintptr_t addr, match_fn *match,
			struct piece *p)
{
	char text[4096], line[256];
	size_t have = 0;
	ssize_t n, i;

	for (;;) {
		n = read(fd, text, sizeof(text));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0;
		for (i = 0; i < n; i++) {
			if (text[i] != '\n') {
				if (have < sizeof(line) - 1)
					line[have++] = text[i];
				continue;
			}
			line[have] = '\0';
			have = 0;
			parse_line(line, p);
			if (match(p, addr))
				return 1;
		}
	}
}

/* The segment's size, though what is left of it may be less. */
static size_t segment_len(const struct piece *p, uintptr_t addr)
{
	size_t len = p->end - addr, whole;
	struct shmid_ds ds;

	if (shmctl((int)p->inode, IPC_STAT, &ds))
		return EVERYTHING_LEN - addr;
	whole = up_to(ds.shm_segsz, kedge__hooks_page());
	/* A segment of huge TLB pages is longer than its size says. */
	return whole > len ? whole : len;
}

/* 1 if found, 0 if not, or a negative errno. */
static int find(uintptr_t addr, match_fn *match, struct piece *p)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = find_by_query(fd, addr, match, p);
	if (rc < 0)
		rc = find_by_text(fd, addr, match, p);
	close(fd);
	return rc;
}

/*
 * open(), read() and close() are cancellation points; shmdt() and mremap() are
 * not.
 */
static int find_undisturbed(uintptr_t addr, match_fn *match, struct piece *p)
{
	int state, rc;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	rc = find(addr, match, p);
	pthread_setcancelstate(state, NULL);
	return rc;
}

/* Bytes, or everything above where the kernel does not say. */
size_t kedge__shm_len(uintptr_t addr)
{
	struct piece p;
	int rc;

	if (addr & (kedge__hooks_page() - 1))
		return 0;
	rc = find_undisturbed(addr, attached_at, &p);
	if (rc < 0)
		return EVERYTHING_LEN - addr;
	return rc ? segment_len(&p, addr) : 0;
}

/* A query that finds the next mapping instead goes on to the last: no matter. */
int kedge__mapping_at(uintptr_t at, struct mapping *m)
{
	struct piece p;

	if (find_undisturbed(at, holds, &p) != 1)
		return -1;
	m->end = p.end;
	m->prot = p.prot & (MAPPING_READ | MAPPING_WRITE | MAPPING_EXEC);
	m->plain = !p.inode && !(p.prot & MAPPING_SHARED);
	return 0;
}
