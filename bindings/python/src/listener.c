// SPDX-License-Identifier: BSD-2-Clause
/* Channels are opened: addresses, options, connecting and listening. */
#include <poll.h>
#include <time.h>

#include <kedge/connector.h>
#include <kedge/tcp.h>

#include "binding.h"

struct listener {
	PyObject_HEAD
	struct kedge_listener *l; /* NULL once it is closed */
	PyObject *address;
	int fd;
	uint64_t process; /* the one that it is of */
	uint64_t busy;	  /* a thread of it is in a call */
};

/* A path for shared memory, or (host, port) for TCP. */
struct address {
	PyObject *bytes;  /* what holds the path */
	const char *path; /* NULL: TCP */
	const char *node; /* NULL: this host, or any; the tuple's */
	char service[16];
};

static void address_put(struct address *a)
{
	Py_CLEAR(a->bytes);
}

/* As the os module takes paths; ended by address_put(), on failure too. */
static int address_of(struct address *a, PyObject *obj)
{
	unsigned int port;

	memset(a, 0, sizeof(*a));
	if (PyTuple_Check(obj)) {
		if (!PyArg_ParseTuple(obj, "zO&", &a->node, to_port, &port))
			return -1;
		PyOS_snprintf(a->service, sizeof(a->service), "%u", port);
		return 0;
	}
	if (PyUnicode_FSConverter(obj, &a->bytes)) {
		a->path = PyBytes_AS_STRING(a->bytes);
		return 0;
	}
	if (PyErr_ExceptionMatches(PyExc_TypeError))
		PyErr_SetString(PyExc_TypeError, "an address is a path, or (host, port)");
	return -1;
}

/* The secret is the dict's, which lives as long as the call. */
static int opts_of(struct kedge_channel_opts *o, PyObject *dict)
{
	static char *names[] = { "any_user", "no_cma", "no_wait", "way", "timeout_ms",
				 "eager_max", "peer_timeout_ms", "host_timeout_ms", "secret",
				 NULL };
	PyObject *args = PyTuple_New(0);
	int any_user = 0, no_cma = 0, no_wait = 0, ok;
	Py_ssize_t secret_len = 0;

	if (!args)
		return -1;
	memset(o, 0, sizeof(*o));
	o->size = sizeof(*o);
	ok = PyArg_ParseTupleAndKeywords(args, dict, "|$pppO&O&O&O&O&y#:opts", names, &any_user,
					 &no_cma, &no_wait, to_u32, &o->way, to_u32,
					 &o->timeout_ms, to_u32, &o->eager_max, to_u32,
					 &o->peer_timeout_ms, to_u32, &o->host_timeout_ms,
					 &o->secret, &secret_len);
	Py_DECREF(args);
	o->secret_len = (uint64_t)secret_len;
	o->flags = (any_user ? KEDGE_CHANNEL_ANY_USER : 0) |
		   (no_cma ? KEDGE_CHANNEL_NO_CMA : 0) |
		   (no_wait ? KEDGE_CHANNEL_NO_WAIT : 0);
	return ok ? 0 : -1;
}

/* ---- time ---- */

#define FOREVER INT64_MAX

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Seconds, or None, as a time to be compared with now_ms(). */
static int deadline_of(PyObject *seconds, int64_t *deadline)
{
	double s;

	*deadline = FOREVER;
	if (seconds == Py_None)
		return 0;
	s = PyFloat_AsDouble(seconds);
	if (s == -1.0 && PyErr_Occurred())
		return -1;
	if (s != s) {
		PyErr_SetString(PyExc_ValueError, "a timeout is a number of seconds, not NaN");
		return -1;
	}
	if (s < 1e9)
		*deadline = now_ms() + (s > 0 ? (int64_t)(s * 1000 + 0.999) : 0);
	return 0;
}

/* How long to wait before the next look at signals; 0: the time is up. */
static int slice_ms(int64_t deadline)
{
	int64_t left = deadline - (deadline == FOREVER ? 0 : now_ms());

	if (left < 0)
		left = 0;
	return left < SLICE_MS ? (int)left : SLICE_MS;
}

/* ---- connecting ---- */

static int connector_open(const struct address *a, const struct kedge_channel_opts *o,
			  struct kedge_connector **k)
{
	if (a->path)
		return kedge_connector_open_shm(a->path, o, -1, k);
	return kedge_connector_open_tcp(a->node, a->service, o, -1, k);
}

/* 0, or a negative errno; 1: a signal's handler has raised. */
static int finish(struct kedge_connector *k, int64_t deadline, struct kedge_channel **ch)
{
	struct pollfd p = { .fd = kedge_connector_fd(k), .events = POLLIN };
	int rc, ms;

	for (;;) {
		rc = kedge_connector_finish(k, ch);
		if (rc != -EINPROGRESS)
			return rc;
		if (PyErr_CheckSignals())
			return 1;
		ms = slice_ms(deadline);
		if (!ms)
			return -ETIMEDOUT;
		Py_BEGIN_ALLOW_THREADS
		poll(&p, 1, ms);
		Py_END_ALLOW_THREADS
	}
}

PyObject *channel_connect(PyObject *cls, PyObject *args)
{
	struct kedge_connector *k = NULL;
	struct kedge_channel_opts o;
	PyObject *obj, *timeout, *dict;
	struct kedge_channel *ch = NULL;
	struct address a;
	int64_t deadline;
	int rc;

	if (!PyArg_ParseTuple(args, "OOO!:connect", &obj, &timeout, &PyDict_Type, &dict))
		return NULL;
	if (address_of(&a, obj) || opts_of(&o, dict) || deadline_of(timeout, &deadline)) {
		address_put(&a);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	rc = connector_open(&a, &o, &k);
	Py_END_ALLOW_THREADS
	address_put(&a);
	if (rc)
		return fail(rc);
	rc = finish(k, deadline, &ch);
	if (rc < 0)
		fail(rc);
	kedge_connector_close(k);
	return rc ? NULL : channel_new((PyTypeObject *)cls, ch);
}

/* ---- listening ---- */

/* As Listener() and connect() take it. */
static PyObject *address_now(struct kedge_listener *l)
{
	char text[KEDGE_ADDRESS_MAX], *colon, *host = text;
	int rc = kedge_listener_address(l, text, sizeof(text));

	if (rc)
		return fail(rc);
	colon = strrchr(text, ':');
	if (text[0] == '/' || text[0] == '@' || !colon)
		return PyUnicode_DecodeFSDefault(text);
	*colon = 0;
	if (host[0] == '[') {
		colon[-1] = 0;
		host++;
	}
	return Py_BuildValue("(O&i)", text_of, host, atoi(colon + 1));
}

static PyObject *listener_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *dict = kwargs ? kwargs : PyDict_New(), *obj;
	struct kedge_channel_opts o;
	struct listener *l = NULL;
	struct address a = { NULL };
	int rc;

	if (!dict)
		return NULL;
	if (!PyArg_ParseTuple(args, "O:Listener", &obj) || address_of(&a, obj) ||
	    opts_of(&o, dict))
		goto out;
	l = (struct listener *)type->tp_alloc(type, 0);
	if (!l)
		goto out;
	Py_BEGIN_ALLOW_THREADS
	rc = a.path ? kedge_listener_open_shm(a.path, &o, &l->l)
		    : kedge_listener_open_tcp(a.node, a.service, &o, &l->l);
	Py_END_ALLOW_THREADS
	if (rc) {
		fail(rc);
		Py_CLEAR(l);
		goto out;
	}
	l->process = this_process();
	l->fd = kedge_listener_fd(l->l);
	l->address = address_now(l->l);
	if (!l->address)
		Py_CLEAR(l);
out:
	address_put(&a);
	if (!kwargs)
		Py_DECREF(dict);
	return (PyObject *)l;
}

static bool is_busy(const struct listener *l)
{
	if (l->busy != this_process())
		return false;
	fail_with(-EBUSY, "another call on this listener waits: it is one thread's at a time");
	return true;
}

static bool is_usable(const struct listener *l)
{
	if (l->l && l->process == this_process())
		return true;
	if (!l->l)
		PyErr_SetString(PyExc_ValueError, "the listener is closed");
	else
		fail_with(-ECHILD, "the listener belongs to the parent process: after fork the "
			  "child opens its own");
	return false;
}

static bool begin(struct listener *l)
{
	if (!is_usable(l) || is_busy(l))
		return false;
	l->busy = this_process();
	return true;
}

static PyObject *listener_accept(struct listener *l, PyObject *args)
{
	struct kedge_channel *ch = NULL;
	PyObject *cls, *timeout;
	int64_t deadline;
	int rc, ms;

	if (!PyArg_ParseTuple(args, "OO:accept", &cls, &timeout) ||
	    deadline_of(timeout, &deadline))
		return NULL;
	if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, &channel_type)) {
		PyErr_SetString(PyExc_TypeError, "no kind of Channel");
		return NULL;
	}
	if (!begin(l))
		return NULL;
	do {
		ms = slice_ms(deadline);
		Py_BEGIN_ALLOW_THREADS
		rc = kedge_listener_accept(l->l, ms, &ch);
		Py_END_ALLOW_THREADS
	} while ((rc == -ETIMEDOUT || rc == -EINTR) && ms && !PyErr_CheckSignals());
	l->busy = 0;
	if (!rc)
		return channel_new((PyTypeObject *)cls, ch);
	return PyErr_Occurred() ? NULL : fail(rc);
}

static PyObject *listener_fileno(struct listener *l, PyObject *unused)
{
	return is_usable(l) ? PyLong_FromLong(l->fd) : NULL;
}

static PyObject *listener_address(struct listener *l, void *unused)
{
	Py_INCREF(l->address);
	return l->address;
}

static PyObject *listener_close(struct listener *l, PyObject *unused)
{
	struct kedge_listener *closing = l->l;

	if (is_busy(l))
		return NULL;
	l->l = NULL;
	/* In a forked child a call of the parent's may have been in the middle of a change. */
	if (!l->busy)
		kedge_listener_close(closing);
	l->busy = 0;
	Py_RETURN_NONE;
}

static PyObject *listener_enter(struct listener *l, PyObject *unused)
{
	if (!l->l) {
		PyErr_SetString(PyExc_ValueError, "the listener is closed");
		return NULL;
	}
	Py_INCREF(l);
	return (PyObject *)l;
}

static PyObject *listener_exit(struct listener *l, PyObject *args)
{
	return end_block((PyObject *)l, args);
}

static void listener_dealloc(struct listener *l)
{
	kedge_listener_close(l->l);
	Py_XDECREF(l->address);
	Py_TYPE(l)->tp_free(l);
}

static PyObject *listener_closed(struct listener *l, void *unused)
{
	return PyBool_FromLong(!l->l);
}

static PyMethodDef listener_methods[] = {
	{ "_accept", (PyCFunction)listener_accept, METH_VARARGS, NULL },
	{ "fileno", (PyCFunction)listener_fileno, METH_NOARGS, "A descriptor to wait on." },
	{ "close", (PyCFunction)listener_close, METH_NOARGS,
	  "Listen no more; channels live on." },
	{ "__enter__", (PyCFunction)listener_enter, METH_NOARGS, NULL },
	{ "__exit__", (PyCFunction)listener_exit, METH_VARARGS, NULL },
	{ NULL },
};

static PyGetSetDef listener_fields[] = {
	{ "closed", (getter)listener_closed, NULL, "True once it is closed.", NULL },
	{ "address", (getter)listener_address, NULL, "What connect() takes.", NULL },
	{ NULL },
};

PyTypeObject listener_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge._kedge.Listener",
	.tp_basicsize = sizeof(struct listener),
	.tp_dealloc = (destructor)listener_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_methods = listener_methods,
	.tp_getset = listener_fields,
	.tp_new = listener_new,
};
