// SPDX-License-Identifier: BSD-2-Clause
/* The part of the Go program that is C: see ring.h. */
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_LEN ((size_t)2 << 20)

struct rig {
	pthread_mutex_t lock; /* of the ring */
	struct io_uring ring;
	struct kedge_device *dev;
	struct kedge_cache *cache;
	int file;
};

unsigned char rig_byte(size_t at)
{
	return (unsigned char)(at * 31 + at / 4096);
}

static int make_file(struct rig *r)
{
	unsigned char *text;
	ssize_t n;
	size_t i;

	r->file = memfd_create("kedge-go", MFD_CLOEXEC);
	if (r->file < 0)
		return -errno;
	text = malloc(FILE_LEN);
	for (i = 0; text && i < FILE_LEN; i++)
		text[i] = rig_byte(i);
	n = text ? write(r->file, text, FILE_LEN) : -1;
	free(text);
	if (n == (ssize_t)FILE_LEN)
		return 0;
	close(r->file);
	return -ENOMEM;
}

int rig_open(struct rig **out)
{
	struct rig *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	rc = make_file(r);
	if (rc)
		goto free_rig;
	rc = io_uring_queue_init(8, &r->ring, 0);
	if (rc)
		goto close_file;
	rc = kedge_device_open_uring(&r->ring, NULL, &r->dev);
	if (rc)
		goto exit_ring;
	rc = kedge_cache_open(r->dev, NULL, NULL, &r->cache);
	if (rc)
		goto close_device;
	*out = r;
	return 0;

close_device:
	kedge_device_close(r->dev);
exit_ring:
	io_uring_queue_exit(&r->ring);
close_file:
	close(r->file);
free_rig:
	free(r);
	return rc;
}

void rig_close(struct rig *r)
{
	kedge_cache_close(r->cache);
	kedge_device_close(r->dev);
	io_uring_queue_exit(&r->ring);
	close(r->file);
	free(r);
}

const char *rig_why(int rc)
{
	return kedge_strerror(rc);
}

int rig_stats(struct rig *r, struct kedge_cache_stats *st)
{
	*st = (struct kedge_cache_stats){ .size = sizeof(*st) };
	return kedge_cache_stats(r->cache, st);
}

int rig_info(struct kedge_notifier_info *info)
{
	struct kedge_notifier *nf;
	int rc = kedge_notifier_open(NULL, &nf);

	if (rc)
		return rc;
	*info = (struct kedge_notifier_info){ .size = sizeof(*info) };
	rc = kedge_notifier_info(nf, info);
	kedge_notifier_close(nf);
	return rc;
}

int rig_get(struct rig *r, void *buf, size_t len, struct kedge_mr **mr)
{
	return kedge_cache_get(r->cache, buf, len, KEDGE_ACCESS_LOCAL_WRITE,
			       (const struct kedge_mr **)mr);
}

void rig_put(struct rig *r, struct kedge_mr *mr)
{
	kedge_cache_put(r->cache, mr);
}

int rig_read(struct rig *r, void *buf, size_t len, size_t at,
	     struct kedge_mr *mr)
{
	struct io_uring_cqe *cqe;
	int rc;

	pthread_mutex_lock(&r->lock);
	io_uring_prep_read_fixed(io_uring_get_sqe(&r->ring), r->file, buf,
				 (unsigned int)len, at,
				 (int)mr->device_handle);
	rc = io_uring_submit_and_wait(&r->ring, 1);
	if (rc >= 0)
		rc = io_uring_wait_cqe(&r->ring, &cqe);
	if (!rc) {
		rc = cqe->res < 0 ? cqe->res : cqe->res == (int)len ? 0 : -EIO;
		io_uring_cqe_seen(&r->ring, cqe);
	}
	pthread_mutex_unlock(&r->lock);
	return rc;
}
