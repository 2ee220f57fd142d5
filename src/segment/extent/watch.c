// SPDX-License-Identifier: BSD-2-Clause
/* Memory that was converted while other threads ran: where all of it is, and watched. */
#include <sys/stat.h>

#include "notify/internal.h"
#include "segment/internal.h"

#define MAPPINGS 64 /* of one extent, when it is made */
#define TRIES	 16

/* The mappings of a file. */
struct found {
	struct stat file;
	uint32_t extent;
	int cnt;
	struct piece at[MAPPINGS];
};

static void note(void *arg, const struct vma_info *v)
{
	struct found *f = arg;

	if (!v->shared || v->inode != f->file.st_ino || v->dev != f->file.st_dev)
		return;
	if (f->cnt < MAPPINGS)
		f->at[f->cnt] = (struct piece){ v->start, v->end - v->start, v->off,
						f->extent };
	f->cnt++;
}

static int find_mappings(struct found *f)
{
	int rc;

	f->cnt = 0;
	rc = vma_walk(note, f);
	if (rc)
		return rc;
	return f->cnt <= MAPPINGS ? 0 : kedge_reason(-ENOSPC, "the memory of segments is in "
						     "too many pieces");
}

static bool is_same(const struct found *a, const struct found *b)
{
	int i;

	for (i = 0; i < a->cnt && i < b->cnt; i++)
		if (a->at[i].at != b->at[i].at || a->at[i].len != b->at[i].len ||
		    a->at[i].off != b->at[i].off)
			return false;
	return a->cnt == b->cnt;
}

static int watch(const struct piece *p)
{
	const struct seg_call call = { .op = SEG_OP_WATCH, .index = (int)p->extent,
				       .start = p->at, .end = p->at + p->len };
	bool room;

	sig_lock(&seg_lock);
	room = piece_add(p->at, p->len, p->extent, p->off);
	sig_unlock(&seg_lock);
	return room ? call_thread(&call, -1)
		    : kedge_reason(-ENOSPC, "the memory of segments is in too many pieces");
}

static void unwatch(const struct piece *p)
{
	const struct seg_call call = { .op = SEG_OP_UNWATCH, .index = (int)p->extent,
				       .start = p->at, .end = p->at + p->len };

	call_thread(&call, -1);
}

/* Take all pieces out: memory that is not where it was found has no event that would do it. */
void watch_forget(uint32_t i)
{
	struct piece part;

	sig_lock(&seg_lock);
	while (piece_cut(i, 0, UINTPTR_MAX, &part))
		;
	sig_unlock(&seg_lock);
}

/*
 * From a look at the mappings up to when they are watched the program may change them
 * unheard. So they are looked at again, until that finds what is watched.
 */
int watch_all(int i, int fd)
{
	struct found now = { .extent = (uint32_t)i }, next;
	int try, k, rc;

	if (fstat(fd, &now.file))
		return -errno;
	next = now;
	rc = find_mappings(&next);
	for (try = 0; !rc && try < TRIES; try++) {
		now = next;
		for (k = 0; k < now.cnt; k++)
			if (watch(&now.at[k]))
				rc = -EOPNOTSUPP;
		k = find_mappings(&next);
		if (k)
			return k;
		/* All before the walk is in it; of what comes later there are events. */
		if (is_same(&now, &next))
			return rc ? kedge_reason(rc, "userfaultfd does not say what happens "
						 "to shared memory: Linux 5.19 does") : 0;
		rc = 0;
		for (k = 0; k < now.cnt; k++)
			unwatch(&now.at[k]);
		watch_forget((uint32_t)i);
	}
	return rc ? rc : kedge_reason(-ESTALE, "other threads change that memory all the time");
}
