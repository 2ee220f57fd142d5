/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Directories: where the owner of a region is now. A handle (kedge/handle.h) names its owner
 * by an address, which changes when the region goes to another owner. A directory is asked by
 * the region's id, which stays. kedge/etcd.h has one that is kept in etcd; a program can bring
 * another as a table of functions.
 */
#ifndef KEDGE_DIRECTORY_H
#define KEDGE_DIRECTORY_H

#include <kedge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kedge_directory;

/** struct kedge_place - where an owner is: bytes without a meaning to the directory */
struct kedge_place {
	uint8_t bytes[48];
};

/**
 * struct kedge_directory_ops - a directory, as its author writes it
 * @size:    sizeof(struct kedge_directory_ops)
 * @flags:   0
 * @find:    fill @place with the place of @region. 0, or a negative errno as of
 *           kedge_directory_find()
 * @replace: the entry of @region becomes @to if it is @from now, as one step with regard to all
 *           users of the directory, on whatever host. @from NULL: there is no entry; @to NULL: it
 *           is removed; not both. 0, or a negative errno as of kedge_directory_replace(), which
 *           has to tell "not done" from "not known"
 * @close:   free @ctx; may be NULL. It is called in a forked child, too, which has none of the
 *           parent's threads: there it frees the child's memory and leaves the parent's entries
 *           alone
 *
 * An op that fails gives the reason by kedge_reason().
 *
 * Threads: find and replace run on any thread, several at once; close after all others.
 */
struct kedge_directory_ops {
	uint32_t size;
	uint32_t flags;
	int (*find)(void *ctx, uint64_t region, struct kedge_place *place, int timeout_ms);
	int (*replace)(void *ctx, uint64_t region, const struct kedge_place *from,
		       const struct kedge_place *to, int timeout_ms);
	void (*close)(void *ctx);
};

/**
 * kedge_directory_open() - make a directory of a table of functions
 * @ops: copied
 * @ctx: handed to every op; the directory ends it through ops->close
 * @out: set on success, left untouched on failure
 *
 * Threads: any. Fork: a directory is of the process that opened it; in a child every call with
 * it fails but kedge_directory_close().
 * Ownership: the caller ends *@out with kedge_directory_close(); on failure @ctx stays the
 * caller's.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL @ops or @out is NULL, find or replace is missing, @ops->size is too small, or a flag
 *           is unknown
 *   -E2BIG  @ops is of a newer version and sets a field unknown here
 *   -ENOMEM no memory
 */
KEDGE_API int kedge_directory_open(const struct kedge_directory_ops *ops, void *ctx,
				   struct kedge_directory **out);

/**
 * kedge_directory_find() - where the owner of a region is
 * @directory:  from kedge_directory_open(), or from an open function of another header
 * @region:     its id, a random number of 64 bits
 * @place:      set on success, left untouched on failure
 * @timeout_ms: milliseconds in which the answer has to be there; -1: as long as the directory
 *              takes
 *
 * The answer is the place of some moment during the call, so an owner may have gone when it
 * arrives: a peer that finds no owner there asks again.
 *
 * Threads: any, at the same time. Not in a signal handler.
 *
 * Return: 0, or a negative errno:
 *   -EINVAL       an argument is NULL
 *   -ENOENT       the directory has no place for that region
 *   -ETIMEDOUT    no answer came in time
 *   -EHOSTUNREACH the directory cannot be reached
 *   -EACCES       it does not let this process read that
 *   -EPROTO       the answer is none, or the entry is not of kedge
 *   -ECHILD       this process is a child of the one that opened it
 *   or what else the directory says: see the page of its open function
 */
KEDGE_API int kedge_directory_find(struct kedge_directory *directory, uint64_t region,
				   struct kedge_place *place, int timeout_ms);

/**
 * kedge_directory_replace() - change where the owner of a region is, if it is known where it was
 * @directory:  from kedge_directory_open(), or from an open function of another header
 * @region:     its id, a random number of 64 bits
 * @from:       the place that is there; NULL: there is none
 * @to:         what it becomes, which may be equal to @from; NULL: it is removed
 * @timeout_ms: milliseconds in which the answer has to be there; -1: as long as the directory
 *              takes
 *
 * A compare-and-swap: of several that replace the same place, on whatever hosts, one succeeds.
 * After -EINPROGRESS it is not known whether the place was replaced, and it may be replaced
 * later still, so what kedge_directory_find() says then decides it only where that is @to. The
 * same call once more decides it: 0 says that it is done; after -ESTALE kedge_directory_find()
 * names the one that is there, which is @to if it was done, where @to is of one owner alone.
 *
 * Threads: any, at the same time. Not in a signal handler.
 *
 * Return: 0, or a negative errno, and then the directory is as it was, but for -EINPROGRESS:
 *   -EINVAL       @directory is NULL, or both places are
 *   -ESTALE       another place is there, or none, or one where there should be none
 *   -EINPROGRESS  it was asked for and no answer came, or one that does not tell: it may have
 *                 been done, or be done still
 *   -ETIMEDOUT    the time was over before it was asked for
 *   -EHOSTUNREACH the directory cannot be reached
 *   -EACCES       it does not let this process write that
 *   -EPROTO       the directory does not understand
 *   -ECHILD       this process is a child of the one that opened it
 *   or what else the directory says: see the page of its open function
 */
KEDGE_API int kedge_directory_replace(struct kedge_directory *directory, uint64_t region,
				      const struct kedge_place *from,
				      const struct kedge_place *to, int timeout_ms);

/**
 * kedge_directory_close() - give a directory up
 * @directory: ended; may be NULL
 *
 * Threads: no other thread uses it. Fork: in a child it frees the child's memory and changes
 * nothing else.
 */
KEDGE_API void kedge_directory_close(struct kedge_directory *directory);

#ifdef __cplusplus
}
#endif

#endif /* KEDGE_DIRECTORY_H */
