// SPDX-License-Identifier: BSD-2-Clause
/*
 * The application that the demo stands for. It keeps a working set of chunk
 * buffers; each chunk is read into one of them, worked on by the CPU into a
 * second (here: memcpy), and written from there, with several chunks under way.
 * Now and then it frees a buffer that rests and allocates another in its
 * place. It is the same code in every mode, and what it does with its memory is
 * in the measured time of every mode.
 *
 * Its CPU looks at what the device read and writes what the device sends: a
 * registration that names other pages than the CPU's shows in the copy.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/demo/demo.h"

/* A chunk under way. */
struct transfer {
	struct demo_chunk chunk;
	struct demo_reg reg;
	uint32_t buf;
	bool writing;
	bool busy;
};

/*
 * Buffers that rest wait in a queue, so that all of the working set is used.
 * @transfer: idle ones are in the stack @idle.
 */
struct app {
	const struct demo_app *opts;
	const struct demo_file *file;
	struct demo_mode *mode;
	struct util_rng rng;
	uint8_t *buffer[DEMO_MAX_BUFFERS];
	uint32_t rest[DEMO_MAX_BUFFERS];
	uint32_t rest_head;
	uint32_t rest_cnt;
	struct transfer transfer[DEMO_MAX_DEPTH];
	struct transfer *idle[DEMO_MAX_DEPTH];
	uint32_t idle_cnt;
	uint32_t next;
	uint32_t total;
};

/* A page-aligned buffer, as whoever does such transfers allocates it, and
 * filled, so that stale memory is told from fresh. */
static uint8_t *buffer_alloc(void)
{
	uint8_t *p = aligned_alloc((size_t)sysconf(_SC_PAGESIZE), DEMO_CHUNK);

	if (p)
		memset(p, DEMO_POISON, DEMO_CHUNK);
	return p;
}

static void buffers_free(struct app *a)
{
	uint32_t i;

	for (i = 0; i < a->opts->buffers; i++)
		free(a->buffer[i]);
}

static int buffers_alloc(struct app *a)
{
	uint32_t i;

	for (i = 0; i < a->opts->buffers; i++) {
		a->buffer[i] = buffer_alloc();
		if (!a->buffer[i]) {
			buffers_free(a);
			return kedge_reason(-ENOMEM, "no memory for the "
					    "buffers: use fewer --buffers");
		}
		a->rest[i] = i;
	}
	a->rest_cnt = a->opts->buffers;
	return 0;
}

static uint32_t take(struct app *a)
{
	uint32_t b = a->rest[a->rest_head];

	a->rest_head = (a->rest_head + 1) % a->opts->buffers;
	a->rest_cnt--;
	return b;
}

static void give(struct app *a, uint32_t b)
{
	a->rest[(a->rest_head + a->rest_cnt) % a->opts->buffers] = b;
	a->rest_cnt++;
}

/* Free a buffer that rests and allocate another. */
static int churn(struct app *a)
{
	uint32_t b = a->rest[a->rest_head];

	free(a->buffer[b]);
	a->buffer[b] = buffer_alloc();
	if (!a->buffer[b])
		return kedge_reason(-ENOMEM, "no memory for a buffer");
	return 0;
}

static int queue(struct app *a, struct transfer *t)
{
	struct demo_device *d = a->mode->device;
	struct demo_io io = {
		.chunk = t->chunk,
		.buf = a->buffer[t->buf],
		.reg = &t->reg,
		.writing = t->writing,
		.tag = t,
	};
	int rc = d->ops->queue(d, &io);

	if (rc)
		a->mode->ops->put(a->mode, &t->reg);
	else
		t->busy = true;
	return rc;
}

static int start_read(struct app *a)
{
	struct transfer *t;
	int rc;

	if (util_rng_unit(&a->rng) < a->opts->churn) {
		rc = churn(a);
		if (rc)
			return rc;
	}
	t = a->idle[--a->idle_cnt];
	demo_file_chunk(a->file, a->next++, &t->chunk);
	t->writing = false;
	t->buf = take(a);
	rc = a->mode->ops->get(a->mode, a->buffer[t->buf],
			       KEDGE_ACCESS_LOCAL_WRITE, &t->reg);
	if (!rc)
		rc = queue(a, t);
	if (rc) {
		give(a, t->buf);
		a->idle[a->idle_cnt++] = t;
	}
	return rc;
}

static int start_write(struct app *a, struct transfer *t)
{
	uint32_t in = t->buf;
	int rc;

	t->buf = take(a);
	memcpy(a->buffer[t->buf], a->buffer[in], t->chunk.len);
	give(a, in);
	rc = a->mode->ops->get(a->mode, a->buffer[t->buf],
			       KEDGE_ACCESS_LOCAL_READ, &t->reg);
	if (rc)
		return rc;
	t->writing = true;
	rc = queue(a, t);
	/* At once: the device writes while we work on the next chunk. Where
	 * that fails, the next wait submits it and tells. */
	if (!rc)
		a->mode->device->ops->submit(a->mode->device);
	return rc;
}

/* A transfer came back with @res. */
static int finish(struct app *a, struct transfer *t, int res, bool stop)
{
	int rc = 0;

	a->mode->ops->put(a->mode, &t->reg);
	t->busy = false;
	/* Errors after the first are its consequence. */
	if (res < 0 && !stop)
		rc = kedge_reason(res, "a transfer failed: %s", strerror(-res));
	else if (res >= 0 && (uint32_t)res != t->chunk.len)
		rc = kedge_reason(-EIO, "a transfer moved %d of %u bytes: the "
				  "file became shorter, or memory is short",
				  res, t->chunk.len);
	if (!rc && !stop && !t->writing) {
		rc = start_write(a, t);
		if (!rc)
			return 0;
	}
	give(a, t->buf);
	a->idle[a->idle_cnt++] = t;
	return rc;
}

/* Handle all that came back. Returns @err, or the first error if that is 0. */
static int reap(struct app *a, int err)
{
	struct demo_device *d = a->mode->device;
	void *tag;
	int rc, res;

	while (d->ops->next(d, &tag, &res)) {
		rc = finish(a, tag, res, err != 0);
		if (!err)
			err = rc;
	}
	return err;
}

/* The device is out of order: the pages of what is under way are kept, and
 * nothing of it will be looked at. */
static void abandon(struct app *a)
{
	uint32_t i;

	for (i = 0; i < a->opts->depth; i++)
		if (a->transfer[i].busy)
			a->mode->ops->put(a->mode, &a->transfer[i].reg);
}

static int run(struct app *a)
{
	int err = 0, rc;

	for (;;) {
		while (!err && a->idle_cnt && a->next < a->total)
			err = start_read(a);
		if (a->idle_cnt == a->opts->depth)
			return err;
		/* On an error, too: what is under way uses the buffers. */
		rc = a->mode->device->ops->wait(a->mode->device);
		if (rc) {
			abandon(a);
			return rc;
		}
		err = reap(a, err);
	}
}

int demo_copy(const struct demo_app *opts, const struct demo_file *f,
	      struct demo_mode *m, uint64_t seed, uint64_t *ns)
{
	struct app *a;
	uint64_t start;
	uint32_t i;
	int rc;

	a = calloc(1, sizeof(*a));
	if (!a)
		return kedge_reason(-ENOMEM, "no memory");
	a->opts = opts;
	a->file = f;
	a->mode = m;
	a->total = demo_file_round_chunks(f);
	util_rng_init(&a->rng, seed);
	for (i = 0; i < opts->depth; i++)
		a->idle[a->idle_cnt++] = &a->transfer[i];
	/*
	 * glibc gives large blocks their own mapping and free() unmaps them,
	 * until the first such free() raises the threshold. Keep it: programs
	 * that hold much memory do, and other allocators give memory back too.
	 */
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	rc = buffers_alloc(a);
	if (rc)
		goto free_app;

	start = clock_ns();
	rc = run(a);
	*ns = clock_ns() - start;

	buffers_free(a);
free_app:
	free(a);
	return rc;
}
