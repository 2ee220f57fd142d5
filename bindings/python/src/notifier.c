// SPDX-License-Identifier: BSD-2-Clause
/* Watches of the address space. No export is held: a watch is there to see memory go. */
#include "binding.h"

#define READ_MAX 256

static struct kedge_notifier *open_notifier(struct notifier *n)
{
	if (!n->nf)
		PyErr_SetString(PyExc_ValueError, "the notifier is closed");
	return n->nf;
}

static PyObject *notifier_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "backend", "min_level", "no_blind_spot", "exact_ranges",
				 "ask", NULL };
	struct kedge_notifier_opts o = { .size = sizeof(o) };
	int no_blind_spot = 0, exact_ranges = 0, ask = 0, rc;
	struct notifier *n;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z$O&ppp:Notifier", names, &o.backend,
					 to_u32, &o.min_level, &no_blind_spot, &exact_ranges, &ask))
		return NULL;
	o.flags = (no_blind_spot ? KEDGE_NOTIFIER_NO_BLIND_SPOT : 0) |
		  (exact_ranges ? KEDGE_NOTIFIER_EXACT_RANGES : 0) |
		  (ask ? KEDGE_NOTIFIER_ASK : 0);
	n = (struct notifier *)type->tp_alloc(type, 0);
	if (!n)
		return NULL;
	n->process = this_process();
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_notifier_open(&o, &n->nf);
	Py_END_ALLOW_THREADS
	if (!rc)
		return (PyObject *)n;
	fail(rc);
	Py_DECREF(n);
	return NULL;
}

static void end(struct notifier *n)
{
	struct kedge_notifier *nf = n->nf;

	/* In a forked child: as a cache's. */
	if (n->process != this_process() && (n->caches || uses_torn(&n->calls)))
		nf = NULL;
	n->nf = NULL;
	uses_begin(&n->calls);
	Py_BEGIN_ALLOW_THREADS
	kedge_notifier_close(nf);
	Py_END_ALLOW_THREADS
	uses_end(&n->calls);
}

static void notifier_dealloc(struct notifier *n)
{
	end(n);
	Py_TYPE(n)->tp_free(n);
}

static PyObject *notifier_close(struct notifier *n, PyObject *unused)
{
	if (n->process == this_process() &&
	    in_use("caches or calls of the notifier", n->caches + uses_cnt(&n->calls)))
		return NULL;
	end(n);
	Py_RETURN_NONE;
}

static PyObject *notifier_enter(struct notifier *n, PyObject *unused)
{
	if (!open_notifier(n))
		return NULL;
	Py_INCREF(n);
	return (PyObject *)n;
}

static PyObject *notifier_exit(struct notifier *n, PyObject *args)
{
	return end_block((PyObject *)n, args);
}

/* The usual other one is that of the process's caches, or of a cache's own. */
static PyObject *fail_shared(void)
{
	char text[400];

	PyOS_snprintf(text, sizeof(text), "%s: one notifier watches a mapping. Pass notifier= to "
		      "the caches of this process, and watch by the same", kedge_strerror(-EBUSY));
	return fail_with(-EBUSY, text);
}

static PyObject *notifier_add(struct notifier *n, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "obj", "cookie", NULL };
	struct range r;
	uint64_t cookie;
	PyObject *obj;
	int rc;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&:add", names, &obj, to_u64,
					 &cookie) ||
	    range_get(&r, obj))
		return NULL;
	if (!open_notifier(n)) {
		range_put(&r);
		return NULL;
	}
	uses_begin(&n->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_watch_add(n->nf, (void *)r.addr, r.len, cookie);
	Py_END_ALLOW_THREADS
	uses_end(&n->calls);
	range_put(&r);
	if (rc == -EBUSY)
		return fail_shared();
	return rc < 0 ? fail(rc) : PyBool_FromLong(rc == KEDGE_WATCH_PROVISIONAL);
}

static PyObject *notifier_remove(struct notifier *n, PyObject *arg)
{
	uint64_t cookie;
	int rc;

	if (!to_u64(arg, &cookie) || !open_notifier(n))
		return NULL;
	uses_begin(&n->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_watch_remove(n->nf, cookie);
	Py_END_ALLOW_THREADS
	uses_end(&n->calls);
	if (rc)
		return fail(rc);
	Py_RETURN_NONE;
}

static PyObject *event(const struct kedge_event *e)
{
	return PyObject_CallFunction(event_type, "IIKKKK", e->kind, e->flags, e->start, e->end,
				     e->cookie, e->generation);
}

static PyObject *notifier_read(struct notifier *n, PyObject *args)
{
	struct kedge_event ev[READ_MAX];
	Py_ssize_t max = READ_MAX;
	ssize_t cnt, i;
	PyObject *list, *item;

	if (!PyArg_ParseTuple(args, "|n:read", &max) || !open_notifier(n))
		return NULL;
	if (max > READ_MAX)
		max = READ_MAX;
	uses_begin(&n->calls);
	Py_BEGIN_ALLOW_THREADS
	cnt = kedge_notifier_read(n->nf, ev, max < 0 ? 0 : (size_t)max);
	Py_END_ALLOW_THREADS
	uses_end(&n->calls);
	if (cnt < 0)
		return fail((int)cnt);
	list = PyList_New(cnt);
	for (i = 0; list && i < cnt; i++) {
		item = event(&ev[i]);
		if (item)
			PyList_SET_ITEM(list, i, item);
		else
			Py_CLEAR(list);
	}
	return list;
}

static PyObject *notifier_fileno(struct notifier *n, PyObject *unused)
{
	int fd;

	if (!open_notifier(n))
		return NULL;
	fd = kedge_notifier_fd(n->nf);
	return fd < 0 ? fail(fd) : PyLong_FromLong(fd);
}

static PyObject *notifier_unchanged(struct notifier *n, PyObject *arg)
{
	uint64_t generation;
	int rc;

	if (!to_u64(arg, &generation) || !open_notifier(n))
		return NULL;
	rc = kedge_notifier_unchanged(n->nf, generation);
	return rc < 0 ? fail(rc) : PyBool_FromLong(rc);
}

static PyObject *notifier_generation(struct notifier *n, void *unused)
{
	if (!open_notifier(n))
		return NULL;
	return PyLong_FromUnsignedLongLong(kedge_notifier_generation(n->nf));
}

static PyObject *notifier_info(struct notifier *n, PyObject *unused)
{
	struct kedge_notifier_info i = { .size = sizeof(i) };
	int rc;

	if (!open_notifier(n))
		return NULL;
	uses_begin(&n->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_notifier_info(n->nf, &i);
	Py_END_ALLOW_THREADS
	uses_end(&n->calls);
	if (rc)
		return fail(rc);
	return Py_BuildValue("{s:s,s:I,s:I,s:O,s:K,s:K,s:K,s:I}", "backend", i.backend,
			     "level", i.level, "blind", i.blind,
			     "hooked", i.hooked ? Py_True : Py_False, "watches", i.watches,
			     "armed", i.armed, "events", i.events, "check", i.check);
}

static PyObject *notifier_closed(struct notifier *n, void *unused)
{
	return PyBool_FromLong(!n->nf);
}

static PyMethodDef notifier_methods[] = {
	{ "add", (PyCFunction)(void (*)(void))notifier_add, METH_VARARGS | METH_KEYWORDS,
	  "add(obj, cookie): watch an object's memory, or an (address, length). True: what "
	  "is registered there now must not be kept." },
	{ "remove", (PyCFunction)notifier_remove, METH_O, "remove(cookie): end a watch." },
	{ "read", (PyCFunction)notifier_read, METH_VARARGS,
	  "read(max=256): a list of Events. It never waits." },
	{ "fileno", (PyCFunction)notifier_fileno, METH_NOARGS,
	  "A descriptor that is readable while events wait." },
	{ "unchanged", (PyCFunction)notifier_unchanged, METH_O,
	  "unchanged(generation): True if nothing watched has changed since." },
	{ "info", (PyCFunction)notifier_info, METH_NOARGS, "What it is and watches: a dict." },
	{ "close", (PyCFunction)notifier_close, METH_NOARGS,
	  "Stop watching. Fails with EBUSY while a cache uses it." },
	{ "__enter__", (PyCFunction)notifier_enter, METH_NOARGS, NULL },
	{ "__exit__", (PyCFunction)notifier_exit, METH_VARARGS, NULL },
	{ NULL },
};

static PyGetSetDef notifier_fields[] = {
	{ "generation", (getter)notifier_generation, NULL, "The counter: one load.", NULL },
	{ "closed", (getter)notifier_closed, NULL, "True once it is closed.", NULL },
	{ NULL },
};

PyTypeObject notifier_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge._kedge.Notifier",
	.tp_basicsize = sizeof(struct notifier),
	.tp_dealloc = (destructor)notifier_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_doc = "Notifier(backend=None, *, min_level=0, no_blind_spot=False, "
		  "exact_ranges=False, ask=False)\n\nEvents of this process's address space.",
	.tp_methods = notifier_methods,
	.tp_getset = notifier_fields,
	.tp_new = notifier_new,
};
