// SPDX-License-Identifier: BSD-2-Clause
/*
 * Files of kedge's own, memfds that no other process has: their pages change by calls on this
 * process's addresses, or after those.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "base/process/owner.h"
#include "notify/internal.h"

struct own_file {
	struct tree_node node; /* by inode */
	uint64_t dev;
};

static _Atomic int owner;
static struct sig_lock lock; /* guards: */
static struct tree own_files;

/* A child begins with no file: kedge maps them in the parent alone. */
static void forget(void)
{
	sig_lock_init(&lock);
	own_files = (struct tree){ 0 };
}

static void lock_files(void)
{
	owner_adopt(&owner, forget);
	sig_lock(&lock);
}

static struct own_file *file_of(struct tree_node *n)
{
	return container_of(n, struct own_file, node);
}

/* With the lock held. */
static struct own_file *find(uint64_t inode, uint64_t dev)
{
	struct tree_node *n = tree_first_overlap(&own_files, inode, inode + 1);

	while (n && file_of(n)->dev != dev)
		n = tree_next_overlap(n, inode, inode + 1);
	return n ? file_of(n) : NULL;
}

bool is_own_file(const struct vma_info *v)
{
	bool is;

	lock_files();
	is = find(v->inode, v->dev);
	sig_unlock(&lock);
	return is;
}

void own_file_add(int fd)
{
	struct own_file *f;
	struct stat st;

	if (fstat(fd, &st) || !(f = malloc(sizeof(*f))))
		return;
	f->node.start = st.st_ino;
	f->node.end = st.st_ino + 1;
	f->dev = st.st_dev;
	lock_files();
	tree_insert(&own_files, &f->node);
	sig_unlock(&lock);
}

void own_file_remove(int fd)
{
	struct own_file *f = NULL;
	struct stat st;

	if (fstat(fd, &st))
		return;
	lock_files();
	f = find(st.st_ino, st.st_dev);
	if (f)
		tree_remove(&own_files, &f->node);
	sig_unlock(&lock);
	free(f);
}
