/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two network namespaces with a cable between them. They have no names: they are there as long as
 * a descriptor or a process is, so they end with the command, however that ends.
 */
#ifndef TOOLS_MIGRATE_SPACE_H
#define TOOLS_MIGRATE_SPACE_H

#define SPACES 2

/** struct spaces - both of them: @fd, or -1; @node is the address there */
struct spaces {
	int fd[SPACES];
	const char *node[SPACES];
};

/* The caller has no threads, and is in one of the namespaces then. 0, or an exit status with a
 * message printed. */
int spaces_make(struct spaces *s);
void spaces_end(struct spaces *s);

/* This process goes into the namespace of @fd; -1 is its own. 0 or a negative errno. */
int space_enter(int fd);

#endif /* TOOLS_MIGRATE_SPACE_H */
