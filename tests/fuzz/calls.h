/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls to the system by the sources that are fed. The build includes this header ahead of each of
 * them, so that their calls end in a harness: open() gives the one file there is, whose bytes are
 * the fuzzer's, and read() tears it where the fuzzer says. syscall() is replaced as well, since
 * code that must not be a cancellation point calls the kernel by it; a system call that has no
 * fake ends the run, so that none reaches the kernel unnoticed. A harness does not link if it
 * lacks a fake that its sources call.
 */
#ifndef FUZZ_CALLS_H
#define FUZZ_CALLS_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- feed.c ---- */

int fuzz_open(const char *path, int flags, ...);
ssize_t fuzz_read(int fd, void *to, size_t len);
int fuzz_close(int fd);
int fuzz_ioctl(int fd, unsigned long what, ...); /* -1, ENOTTY */
/* openat, read, close, ioctl, lseek to the start; capget: all of them. */
long fuzz_syscall(long number, ...);

/* ---- of the harnesses that need them ---- */

void *fuzz_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int fuzz_munmap(void *addr, size_t len);
int fuzz_fstat(int fd, struct stat *st);
ssize_t fuzz_pread(int fd, void *to, size_t len, off_t at);
int fuzz_access(const char *path, int mode);
char *fuzz_getenv(const char *name);
int fuzz_shmctl(int id, int cmd, struct shmid_ds *ds);
ssize_t fuzz_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_cnt,
		      const struct iovec *far, unsigned long far_cnt, unsigned long flags);
ssize_t fuzz_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_cnt,
		       const struct iovec *far, unsigned long far_cnt, unsigned long flags);

#ifdef FUZZ_FED
#define open		  fuzz_open
#define read		  fuzz_read
#define close		  fuzz_close
#define ioctl		  fuzz_ioctl
#define syscall		  fuzz_syscall
#define mmap		  fuzz_mmap
#define munmap		  fuzz_munmap
#define fstat		  fuzz_fstat
#define pread		  fuzz_pread
#define access		  fuzz_access
#define getenv		  fuzz_getenv
#define shmctl		  fuzz_shmctl
#define process_vm_readv  fuzz_vm_readv
#define process_vm_writev fuzz_vm_writev
#endif

#endif /* FUZZ_CALLS_H */
