// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge._uring: an io_uring whose fixed buffers are a cache's device. A module of its
 * own, as libkedge-uring is a library of its own; what it needs of kedge._kedge comes in
 * a capsule (api.c).
 *
 * The ring belongs to the object, and the capsules that caches hold refer to that.
 *
 * A transfer has its registration, and the export of the memory, until the kernel says
 * that it is through, whatever becomes of the call that began it. Where the kernel
 * cannot be asked any more, as the program has closed the ring's descriptor, both stay
 * for good: memory that is lost is better than memory of others that is written to.
 *
 * The descriptor's number may be another file's by then, so it is compared before each
 * use with what was opened.
 */
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kedge/uring.h>
#include <liburing.h>

#include "binding.h"

enum { TAG_NONE }; /* of cancellations; transfers count up from 1 */

struct uring {
	PyObject_HEAD
	struct io_uring ring;
	struct kedge_device *dev;
	uint64_t process;  /* the one that it is of */
	uint64_t transfer; /* the last one's tag */
	dev_t fs;	   /* what the ring's descriptor is */
	ino_t inode;
	bool has_ring;
	bool busy; /* a thread waits without the GIL */
};

static const struct api *api;

static bool note_fd(struct uring *u)
{
	struct stat st;

	if (fstat(u->ring.ring_fd, &st))
		return false;
	u->fs = st.st_dev;
	u->inode = st.st_ino;
	return true;
}

static bool is_ours(const struct uring *u)
{
	struct stat st;

	return !fstat(u->ring.ring_fd, &st) && st.st_dev == u->fs && st.st_ino == u->inode;
}

static int closed(void)
{
	api->fail_with(-EBADF, "the program has closed the ring's descriptor: open another Uring, "
		       "and caches on that");
	return -EBADF;
}

/* False, with an error raised, where the ring is not to be touched. */
static bool is_usable(const struct uring *u)
{
	if (u->process != api->this_process()) {
		api->fail_with(-ECHILD, "the ring belongs to the parent process: after fork the "
			       "child opens its own");
		return false;
	}
	return is_ours(u) || !closed();
}

/* ---- opening ---- */

static PyObject *fail_to_open(int rc)
{
	switch (-rc) {
	case EPERM:
	case ENOSYS:
	case EACCES:
		return api->fail_with(rc, "io_uring is forbidden here (seccomp, or sysctl "
				      "kernel.io_uring_disabled), or this kernel lacks it");
	case EINVAL:
		return api->fail_with(rc, "io_uring_queue_init() failed: entries are 1 to 32768");
	}
	/* ENOMEM is RLIMIT_MEMLOCK, before Linux 5.12 for the ring itself. */
	return api->fail_with(rc, kedge_strerror(rc));
}

static PyObject *uring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "entries", "slots", "no_madv_free", NULL };
	struct kedge_uring_opts o = { .size = sizeof(o) };
	uint32_t entries = 8;
	int no_madv_free = 0, rc;
	struct uring *u;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O&O&p:Uring", names, api->to_u32,
					 &entries, api->to_u32, &o.slots, &no_madv_free))
		return NULL;
	o.flags = no_madv_free ? KEDGE_URING_NO_MADV_FREE : 0;
	u = (struct uring *)type->tp_alloc(type, 0);
	if (!u)
		return NULL;
	u->process = api->this_process();
	rc = io_uring_queue_init(entries, &u->ring, 0);
	if (rc) {
		fail_to_open(rc);
		goto drop;
	}
	u->has_ring = true;
	rc = note_fd(u) ? kedge_device_open_uring(&u->ring, &o, &u->dev) : -errno;
	if (!rc)
		return (PyObject *)u;
	api->fail_with(rc, kedge_strerror(rc));
drop:
	Py_DECREF(u);
	return NULL;
}

static void uring_dealloc(struct uring *u)
{
	kedge_device_close(u->dev);
	if (u->has_ring) {
		/* The mapping is ours still; what has the number is not. */
		if (!is_ours(u))
			u->ring.ring_fd = u->ring.enter_ring_fd = -1;
		io_uring_queue_exit(&u->ring);
	}
	Py_TYPE(u)->tp_free(u);
}

static void drop_capsule(PyObject *capsule)
{
	Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static PyObject *uring_device(struct uring *u, PyObject *unused)
{
	PyObject *capsule;

	if (!is_usable(u))
		return NULL;
	capsule = PyCapsule_New(u->dev, DEVICE_CAPSULE, drop_capsule);
	if (!capsule)
		return NULL;
	Py_INCREF(u);
	PyCapsule_SetContext(capsule, u);
	return capsule;
}

/* ---- transfers ---- */

/*
 * 0: the kernel has the entry. Else it is made one that does nothing, as it stays in the
 * ring and would go with a later one.
 */
static int submit(struct uring *u, struct io_uring_sqe *sqe)
{
	int rc;

	Py_BEGIN_ALLOW_THREADS
	rc = is_ours(u) ? io_uring_submit(&u->ring) : -EBADF;
	Py_END_ALLOW_THREADS
	if (!io_uring_sq_ready(&u->ring))
		return 0;
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, TAG_NONE);
	return rc < 0 ? rc : -EAGAIN;
}

/*
 * An entry of the ring, or NULL. Entries of submissions that failed fill it in time, so
 * they are submitted first where none is free.
 */
static struct io_uring_sqe *get_entry(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe || !is_ours(u))
		return sqe;
	io_uring_submit(&u->ring);
	return io_uring_get_sqe(&u->ring);
}

static bool submit_cancel(struct uring *u)
{
	struct io_uring_sqe *sqe = get_entry(u);

	if (!sqe)
		return false;
	io_uring_prep_cancel64(sqe, u->transfer, 0);
	io_uring_sqe_set_data64(sqe, TAG_NONE);
	return !submit(u, sqe);
}

/* 0 with the transfer's result, -EAGAIN if it is not there yet, or another errno. */
static int take_result(struct uring *u, int *result)
{
	struct __kernel_timespec slice = { .tv_nsec = SLICE_MS * 1000000L };
	struct io_uring_cqe *cqe;
	bool found;
	int rc;

	Py_BEGIN_ALLOW_THREADS
	rc = io_uring_wait_cqe_timeout(&u->ring, &cqe, &slice);
	Py_END_ALLOW_THREADS
	if (rc)
		return rc == -EINTR || rc == -ETIME ? -EAGAIN : rc;
	*result = cqe->res;
	found = cqe->user_data == u->transfer;
	io_uring_cqe_seen(&u->ring, cqe);
	return found ? 0 : -EAGAIN;
}

/*
 * The memory is the kernel's until its word is there, so a transfer that a signal's
 * exception ends is cancelled first, and waited for. Not 0: it may be under way for ever.
 */
static int wait_transfer(struct uring *u, int *result, bool *raised)
{
	bool cancelled = false;
	int rc;

	for (;;) {
		rc = take_result(u, result);
		if (rc != -EAGAIN)
			return rc;
		if (!is_ours(u))
			return -EBADF;
		if (!*raised)
			*raised = PyErr_CheckSignals();
		/* A handler has forked: the completion is the parent's. */
		if (u->process != api->this_process())
			return -ECHILD;
		if (*raised && !cancelled)
			cancelled = submit_cancel(u);
	}
}

/* The hold stays. */
static void leave_behind(const struct hold *h, int rc)
{
	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "%llu bytes of memory are lost: the end of a "
			     "transfer to or from them cannot be waited for (%s)",
			     (unsigned long long)h->len, strerror(-rc)))
		PyErr_WriteUnraisable(h->registration);
	PyErr_Restore(type, value, trace);
}

static void prepare(struct uring *u, struct io_uring_sqe *sqe, int fd, const struct hold *h,
		    uint64_t offset, bool write)
{
	unsigned int len = h->len > INT_MAX ? INT_MAX & ~4095 : (unsigned int)h->len;
	void *addr = (void *)(uintptr_t)h->addr;

	if (write)
		io_uring_prep_write_fixed(sqe, fd, addr, len, offset, (int)h->index);
	else
		io_uring_prep_read_fixed(sqe, fd, addr, len, offset, (int)h->index);
	io_uring_sqe_set_data64(sqe, ++u->transfer);
}

/* The result, or an errno; *@held is cleared where the kernel may use the memory still. */
static int do_transfer(struct uring *u, int fd, struct hold *h, uint64_t offset, bool write,
		       bool *held)
{
	struct io_uring_sqe *sqe = get_entry(u);
	bool raised = false;
	int rc, result = 0;

	if (sqe)
		prepare(u, sqe, fd, h, offset, write);
	rc = sqe ? submit(u, sqe) : -EAGAIN;
	if (rc) {
		if (rc != -EBADF)
			api->fail_with(rc, "the ring took no entry: try again");
		return rc;
	}
	rc = wait_transfer(u, &result, &raised);
	if (rc && rc != -ECHILD) {
		*held = false;
		leave_behind(h, rc);
	}
	return rc ? rc : result;
}

static bool may_transfer(const struct uring *u, const struct hold *h, bool write)
{
	if (u->busy) {
		api->fail_with(-EBUSY, "another thread transfers by this ring: take turns, or open "
			       "one for each");
		return false;
	}
	if (write || h->access & KEDGE_ACCESS_LOCAL_WRITE)
		return true;
	if (h->writable)
		api->fail_with(-EACCES, "the registration was got for reading: get it with "
			       "ACCESS_LOCAL_WRITE");
	else
		PyErr_SetString(PyExc_BufferError, "a read into an object that is read-only");
	return false;
}

static void fail_transfer(const struct uring *u, int rc)
{
	if (rc == -ECHILD)
		is_usable(u); /* raises it */
	else if (rc == -EBADF && !is_ours(u))
		closed();
	else
		api->fail_with(rc, strerror(-rc));
}

static PyObject *transfer(struct uring *u, PyObject *args, bool write)
{
	uint64_t offset = 0;
	bool held = true;
	PyObject *reg;
	struct hold h;
	int fd, rc = -1;

	if (!PyArg_ParseTuple(args, "iO|O&", &fd, &reg, api->to_offset, &offset) ||
	    !is_usable(u) || api->hold(&h, reg, u->dev))
		return NULL;
	if (may_transfer(u, &h, write)) {
		u->busy = true;
		rc = do_transfer(u, fd, &h, offset, write, &held);
		u->busy = false;
		if (rc < 0 && !PyErr_Occurred())
			fail_transfer(u, rc);
	}
	if (held)
		api->unhold(&h);
	return PyErr_Occurred() ? NULL : PyLong_FromLong(rc);
}

static PyObject *uring_read(struct uring *u, PyObject *args)
{
	return transfer(u, args, false);
}

static PyObject *uring_write(struct uring *u, PyObject *args)
{
	return transfer(u, args, true);
}

static PyObject *uring_fileno(struct uring *u, PyObject *unused)
{
	return is_usable(u) ? PyLong_FromLong(u->ring.ring_fd) : NULL;
}

static PyMethodDef uring_methods[] = {
	{ "read", (PyCFunction)uring_read, METH_VARARGS,
	  "read(fd, registration, offset=0): from a file into registered memory; the bytes." },
	{ "write", (PyCFunction)uring_write, METH_VARARGS,
	  "write(fd, registration, offset=0): registered memory to a file; the bytes." },
	{ "fileno", (PyCFunction)uring_fileno, METH_NOARGS, "The ring's descriptor." },
	{ "__kedge_device__", (PyCFunction)uring_device, METH_NOARGS, NULL },
	{ NULL },
};

static PyTypeObject uring_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge._uring.Uring",
	.tp_basicsize = sizeof(struct uring),
	.tp_dealloc = (destructor)uring_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_doc = "Uring(entries=8, slots=0, no_madv_free=False)\n\nAn io_uring, the fixed "
		  "buffers of which are a device.",
	.tp_methods = uring_methods,
	.tp_new = uring_new,
};

static int exec_module(PyObject *m)
{
	PyObject *core = PyImport_ImportModule("kedge._kedge");

	if (!core)
		return -1;
	Py_DECREF(core); /* which sys.modules holds */
	api = PyCapsule_Import(API_CAPSULE, 0);
	if (!api)
		return -1;
	if (api->size != sizeof(*api)) {
		PyErr_SetString(PyExc_ImportError,
				"kedge._uring and kedge._kedge are of two builds");
		return -1;
	}
	if (PyType_Ready(&uring_type))
		return -1;
	Py_INCREF(&uring_type);
	return PyModule_AddObject(m, "Uring", (PyObject *)&uring_type);
}

static PyModuleDef_Slot slots[] = {
	{ Py_mod_exec, (void *)exec_module },
#ifdef Py_mod_multiple_interpreters
	{ Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED },
#endif
#ifdef Py_mod_gil
	{ Py_mod_gil, Py_MOD_GIL_USED },
#endif
	{ 0, NULL },
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "kedge._uring",
	.m_doc = "io_uring's fixed buffers as a device of kedge.Cache.",
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__uring(void);
PyMODINIT_FUNC PyInit__uring(void)
{
	return PyModuleDef_Init(&module);
}
