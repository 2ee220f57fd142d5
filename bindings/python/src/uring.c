// SPDX-License-Identifier: BSD-2-Clause
/*
 * kedge._uring: an io_uring whose fixed buffers are a cache's device. A module of its
 * own, as libkedge-uring is a library of its own.
 *
 * The ring belongs to the object, and the capsules that caches hold refer to that.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <stdbool.h>

#include <kedge/kedge.h>
#include <kedge/uring.h>
#include <liburing.h>

#define DEVICE_CAPSULE "kedge_device"

enum { TAG_TRANSFER = 1, TAG_CANCEL };

struct uring {
	PyObject_HEAD
	struct io_uring ring;
	struct kedge_device *dev;
	bool has_ring;
	bool busy; /* a thread waits without the GIL */
};

static PyObject *fail(int rc, const char *text)
{
	PyObject *module = PyImport_ImportModule("kedge._kedge");
	PyObject *type = module ? PyObject_GetAttrString(module, "Error") : NULL;
	PyObject *args = type ? Py_BuildValue("(is)", -rc, text) : NULL;

	if (args)
		PyErr_SetObject(type, args);
	Py_XDECREF(args);
	Py_XDECREF(type);
	Py_XDECREF(module);
	return NULL;
}

static PyObject *uring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "entries", "slots", "no_madv_free", NULL };
	struct kedge_uring_opts o = { .size = sizeof(o) };
	unsigned int entries = 8;
	int no_madv_free = 0, rc;
	struct uring *u;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|IIp:Uring", names, &entries, &o.slots,
					 &no_madv_free))
		return NULL;
	o.flags = no_madv_free ? KEDGE_URING_NO_MADV_FREE : 0;
	u = (struct uring *)type->tp_alloc(type, 0);
	if (!u)
		return NULL;
	rc = io_uring_queue_init(entries, &u->ring, 0);
	if (rc) {
		fail(rc, "io_uring_queue_init() failed: io_uring may be forbidden here");
		goto drop;
	}
	u->has_ring = true;
	rc = kedge_device_open_uring(&u->ring, &o, &u->dev);
	if (!rc)
		return (PyObject *)u;
	fail(rc, kedge_strerror(rc));
drop:
	Py_DECREF(u);
	return NULL;
}

static void uring_dealloc(struct uring *u)
{
	kedge_device_close(u->dev);
	if (u->has_ring)
		io_uring_queue_exit(&u->ring);
	Py_TYPE(u)->tp_free(u);
}

static void drop_capsule(PyObject *capsule)
{
	Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule));
}

static PyObject *uring_device(struct uring *u, PyObject *unused)
{
	PyObject *capsule = PyCapsule_New(u->dev, DEVICE_CAPSULE, drop_capsule);

	if (!capsule)
		return NULL;
	Py_INCREF(u);
	PyCapsule_SetContext(capsule, u);
	return capsule;
}

static int number(PyObject *obj, const char *name, unsigned long long *value)
{
	PyObject *attr = PyObject_GetAttrString(obj, name);

	if (!attr)
		return -1;
	*value = PyLong_AsUnsignedLongLong(attr);
	Py_DECREF(attr);
	return *value == (unsigned long long)-1 && PyErr_Occurred() ? -1 : 0;
}

static void submit_cancel(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe)
		return;
	io_uring_prep_cancel64(sqe, TAG_TRANSFER, 0);
	io_uring_sqe_set_data64(sqe, TAG_CANCEL);
	io_uring_submit(&u->ring);
}

/*
 * The result of the transfer. The memory is the ring's until it is there, so one that a
 * signal's exception ends is cancelled first, and waited for.
 */
static int wait_transfer(struct uring *u, bool *raised)
{
	struct __kernel_timespec slice = { .tv_nsec = 200000000 };
	struct io_uring_cqe *cqe;
	int rc, res;

	for (;;) {
		Py_BEGIN_ALLOW_THREADS
		rc = io_uring_wait_cqe_timeout(&u->ring, &cqe, &slice);
		Py_END_ALLOW_THREADS
		if (!rc) {
			res = cqe->res;
			rc = cqe->user_data == TAG_TRANSFER;
			io_uring_cqe_seen(&u->ring, cqe);
			if (rc)
				return res;
		} else if (!*raised && PyErr_CheckSignals()) {
			*raised = true;
			submit_cancel(u);
		}
	}
}

static PyObject *transfer(struct uring *u, PyObject *args, bool write)
{
	unsigned long long offset = 0, addr, len, index;
	struct io_uring_sqe *sqe;
	bool raised = false;
	PyObject *reg;
	int fd, rc;

	if (!PyArg_ParseTuple(args, "iO|K", &fd, &reg, &offset) ||
	    number(reg, "addr", &addr) || number(reg, "len", &len) ||
	    number(reg, "index", &index))
		return NULL;
	if (u->busy)
		return fail(-EBUSY, "another thread transfers by this ring");
	sqe = io_uring_get_sqe(&u->ring);
	if (!sqe)
		return fail(-EAGAIN, "the ring has no free entry");
	if (len > INT_MAX)
		len = INT_MAX & ~4095;
	if (write)
		io_uring_prep_write_fixed(sqe, fd, (void *)(uintptr_t)addr, (unsigned int)len,
					  offset, (int)index);
	else
		io_uring_prep_read_fixed(sqe, fd, (void *)(uintptr_t)addr, (unsigned int)len,
					 offset, (int)index);
	io_uring_sqe_set_data64(sqe, TAG_TRANSFER);
	rc = io_uring_submit(&u->ring);
	if (rc < 0)
		return fail(rc, "io_uring_submit() failed");
	u->busy = true;
	Py_INCREF(reg); /* a tuple of arguments is the caller's to drop */
	rc = wait_transfer(u, &raised);
	Py_DECREF(reg);
	u->busy = false;
	if (raised)
		return NULL;
	return rc < 0 ? fail(rc, strerror(-rc)) : PyLong_FromLong(rc);
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
	return PyLong_FromLong(u->ring.ring_fd);
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
