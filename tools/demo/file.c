// SPDX-License-Identifier: BSD-2-Clause
/*
 * The file that the demo copies. The source is read once before it is copied,
 * so that its checksums are known and its pages cached; the destination is a
 * memfd whose pages are there before the clock starts. A disk would only add
 * noise to what the demo measures.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "tools/demo/demo.h"

#define DEFAULT_FOLDER "/usr/lib"

/* A large file is copied in parts of this many chunks, one a round. */
#define ROUND_MAX 256u

/* nftw() hands its callback no context. */
static struct {
	uint64_t limit;
	uint64_t best;
	char *path;
} walk;

static int walk_one(const char *path, const struct stat *st, int type,
		    struct FTW *ftw)
{
	char *copy;

	if (type != FTW_F || !S_ISREG(st->st_mode) ||
	    (uint64_t)st->st_size > walk.limit ||
	    (uint64_t)st->st_size <= walk.best || access(path, R_OK))
		return 0;
	copy = strdup(path);
	if (!copy)
		return -1;
	free(walk.path);
	walk.path = copy;
	walk.best = (uint64_t)st->st_size;
	return 0;
}

/* The largest readable regular file, owned by the caller, or NULL. */
static char *default_file(uint64_t limit)
{
	walk.limit = limit;
	walk.best = 0;
	walk.path = NULL;
	if (nftw(DEFAULT_FOLDER, walk_one, 32, FTW_PHYS) < 0 && !walk.path)
		return NULL;
	return walk.path;
}

static uint64_t rotl(uint64_t v, int by)
{
	return (v << by) | (v >> (64 - by));
}

/*
 * A 64-bit checksum: four lanes that each take every fourth word, so that the
 * check runs at memory speed. Every step is a bijection of its lane, so one
 * changed word always changes the result of its lane.
 */
static uint64_t checksum(const uint8_t *p, size_t len)
{
	static const uint64_t mul = 0x9fb21c651e98df25u;
	uint64_t lane[4] = { 1, 2, 3, 4 }, w[4], h = len;
	size_t at, i, left;

	for (at = 0; at < len; at += left) {
		left = len - at < sizeof(w) ? len - at : sizeof(w);
		if (left < sizeof(w))
			memset(w, 0, sizeof(w));
		memcpy(w, p + at, left);
		for (i = 0; i < ARRAY_SIZE(w); i++)
			lane[i] = rotl((lane[i] ^ w[i]) * mul, 29);
	}
	for (i = 0; i < ARRAY_SIZE(lane); i++)
		h = rotl((h ^ lane[i]) * mul, 31);
	return h ^ (h >> 32);
}

static int open_source(struct demo_file *f, const char *path, uint64_t size,
		       uint64_t max_bytes)
{
	if (path)
		f->path = strdup(path);
	else
		f->path = default_file(size ? size : max_bytes);
	if (!f->path && path)
		return util_fail(-ENOMEM, "cannot open %s", path);
	if (!f->path) {
		util_error("found no file to copy under %s: name one",
			   DEFAULT_FOLDER);
		return CMD_CANNOT;
	}
	f->src = open(f->path, O_RDONLY | O_CLOEXEC);
	if (f->src < 0 || fstat(f->src, &f->st) < 0) {
		util_error("cannot open %s: %s", f->path, strerror(errno));
		return CMD_CANNOT;
	}
	if (!S_ISREG(f->st.st_mode) || f->st.st_size == 0) {
		util_error("%s is %s: name one with something in it", f->path,
			   S_ISREG(f->st.st_mode) ? "an empty file" :
						    "no regular file");
		return CMD_CANNOT;
	}
	f->bytes = (uint64_t)f->st.st_size;
	if (size && f->bytes > size)
		f->bytes = size;
	return 0;
}

static int open_destination(struct demo_file *f, uint32_t chunks)
{
	f->map_len = (size_t)chunks * DEMO_CHUNK;
	f->dst = memfd_create("kedge-demo", MFD_CLOEXEC);
	if (f->dst < 0 || ftruncate(f->dst, (off_t)f->map_len) < 0)
		goto fail;
	f->map = mmap(NULL, f->map_len, PROT_READ | PROT_WRITE, MAP_SHARED,
		      f->dst, 0);
	if (f->map == MAP_FAILED) {
		f->map = NULL;
		goto fail;
	}
	/* The pages must be there: fallocate() says so where a store would be
	 * killed. */
	if (fallocate(f->dst, 0, 0, (off_t)f->map_len) < 0)
		goto fail;
	memset(f->map, DEMO_POISON, f->map_len);
	return 0;

fail:
	util_error("cannot make room for the copy (%u MiB in memory): %s",
		   chunks, strerror(errno));
	return CMD_CANNOT;
}

int demo_file_open(struct demo_file *f, const char *path, uint64_t size,
		   uint64_t max_bytes, uint32_t fill)
{
	uint64_t chunks;
	int rc;

	*f = (struct demo_file){ .src = -1, .dst = -1 };
	rc = open_source(f, path, size, max_bytes);
	if (rc)
		goto close_file;

	chunks = (f->bytes + DEMO_CHUNK - 1) / DEMO_CHUNK;
	f->windows = (uint32_t)((chunks + ROUND_MAX - 1) / ROUND_MAX);
	if (chunks > ROUND_MAX)
		chunks = ROUND_MAX;
	f->passes = chunks < fill ? (uint32_t)(fill / chunks) : 1;

	rc = open_destination(f, (uint32_t)chunks * f->passes);
	if (rc)
		goto close_file;
	f->want = calloc(chunks, sizeof(*f->want));
	if (!f->want) {
		rc = util_fail(-ENOMEM, "cannot keep the checksums");
		goto close_file;
	}
	return 0;

close_file:
	demo_file_close(f);
	return rc;
}

void demo_file_close(struct demo_file *f)
{
	free(f->want);
	if (f->map)
		munmap(f->map, f->map_len);
	if (f->dst >= 0)
		close(f->dst);
	if (f->src >= 0)
		close(f->src);
	free(f->path);
	*f = (struct demo_file){ .src = -1, .dst = -1 };
}

/* All of [off, off + len), or a negative errno. */
static int read_all(int fd, uint8_t *buf, size_t len, uint64_t off)
{
	ssize_t n;

	while (len) {
		n = pread(fd, buf, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		buf += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int demo_file_window(struct demo_file *f, uint32_t index)
{
	uint64_t left = f->bytes - (uint64_t)index * ROUND_MAX * DEMO_CHUNK;
	struct demo_chunk c;
	uint8_t *buf;
	uint32_t k;
	int rc = 0;

	buf = malloc(DEMO_CHUNK);
	if (!buf)
		return util_fail(-ENOMEM, "cannot read %s", f->path);
	f->win_start = (uint64_t)index * ROUND_MAX * DEMO_CHUNK;
	left = (left + DEMO_CHUNK - 1) / DEMO_CHUNK;
	f->win_chunks = left < ROUND_MAX ? (uint32_t)left : ROUND_MAX;
	for (k = 0; k < f->win_chunks && !rc; k++) {
		demo_file_chunk(f, k, &c);
		rc = read_all(f->src, buf, c.len, c.src_off);
		f->want[k] = checksum(buf, c.len);
	}
	free(buf);
	if (rc == -ESTALE)
		util_error("%s became shorter while it was copied", f->path);
	else if (rc)
		util_error("cannot read %s: %s", f->path, strerror(-rc));
	return rc ? CMD_CANNOT : 0;
}

uint32_t demo_file_round_chunks(const struct demo_file *f)
{
	return f->win_chunks * f->passes;
}

uint64_t demo_file_round_bytes(const struct demo_file *f)
{
	struct demo_chunk last;

	demo_file_chunk(f, f->win_chunks - 1, &last);
	return (last.src_off + last.len - f->win_start) * f->passes;
}

void demo_file_chunk(const struct demo_file *f, uint32_t k,
		     struct demo_chunk *c)
{
	uint64_t left;

	c->src_off = f->win_start + (uint64_t)(k % f->win_chunks) * DEMO_CHUNK;
	c->dst_off = (uint64_t)k * DEMO_CHUNK;
	left = f->bytes - c->src_off;
	c->len = left < DEMO_CHUNK ? (uint32_t)left : DEMO_CHUNK;
}

uint32_t demo_file_wrong(const struct demo_file *f)
{
	uint32_t k, wrong = 0;
	struct demo_chunk c;

	for (k = 0; k < demo_file_round_chunks(f); k++) {
		demo_file_chunk(f, k, &c);
		if (checksum(f->map + c.dst_off, c.len) !=
		    f->want[k % f->win_chunks])
			wrong++;
	}
	return wrong;
}

bool demo_file_changed(const struct demo_file *f)
{
	struct stat st;

	return fstat(f->src, &st) < 0 || st.st_size != f->st.st_size ||
	       st.st_mtim.tv_sec != f->st.st_mtim.tv_sec ||
	       st.st_mtim.tv_nsec != f->st.st_mtim.tv_nsec;
}
