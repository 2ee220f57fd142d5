// SPDX-License-Identifier: BSD-2-Clause
/* The registration cache; registration.c has its gets. */
#include <stddef.h>

#include "binding.h"

static struct kedge_cache *open_cache(struct cache *c)
{
	if (!c->c)
		PyErr_SetString(PyExc_ValueError, "the cache is closed");
	return c->c;
}

static int take_notifier(PyObject *obj, struct kedge_notifier **nf, PyObject **keep)
{
	struct notifier *n = (struct notifier *)obj;

	*nf = NULL;
	*keep = NULL;
	if (obj == Py_None)
		return 0;
	if (!PyObject_TypeCheck(obj, &notifier_type) || !n->nf) {
		PyErr_SetString(PyExc_TypeError, "notifier: not a Notifier that is open");
		return -1;
	}
	Py_INCREF(obj);
	n->caches++;
	*nf = n->nf;
	*keep = obj;
	return 0;
}

static void drop_notifier(PyObject *keep)
{
	if (keep)
		((struct notifier *)keep)->caches--;
	Py_XDECREF(keep);
}

static int parse(PyObject *args, PyObject *kwargs, struct kedge_cache_opts *o,
		 PyObject **device, PyObject **notifier)
{
	static char *names[] = { "device", "notifier", "max_bytes", "max_regions",
				 "chunk_bytes", "merge_bytes", "hint_threads",
				 "max_freed_bytes", "trusted_peers", "resync", NULL };
	int trusted = 0, resync = 0;

	*device = *notifier = Py_None;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$OO&O&O&O&O&O&pp:Cache", names,
					 device, notifier, to_u64, &o->max_bytes, to_u64,
					 &o->max_regions, to_u64, &o->chunk_bytes, to_u64,
					 &o->merge_bytes, to_u32, &o->hint_threads, to_u64,
					 &o->max_freed_bytes, &trusted, &resync))
		return -1;
	o->size = sizeof(*o);
	o->flags = (trusted ? KEDGE_CACHE_TRUSTED_PEERS : 0) |
		   (resync ? KEDGE_CACHE_RESYNC : 0);
	return 0;
}

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct kedge_cache_opts o = { 0 };
	PyObject *device_arg, *nf_arg, *device, *keep_nf;
	struct kedge_notifier *nf;
	struct kedge_device *dev;
	struct cache *c;
	int rc = 0;

	if (parse(args, kwargs, &o, &device_arg, &nf_arg))
		return NULL;
	dev = device_of(device_arg, &device);
	if (!dev)
		return NULL;
	if (o.flags & KEDGE_CACHE_RESYNC && is_written_in_python(device)) {
		PyErr_SetString(PyExc_ValueError, "resync: its thread may outlive the "
				"interpreter, which a device in Python needs");
		goto put_device;
	}
	if (take_notifier(nf_arg, &nf, &keep_nf))
		goto put_device;
	c = (struct cache *)type->tp_alloc(type, 0);
	if (!c)
		goto put_notifier;
	c->device = device;
	c->notifier = keep_nf;
	c->process = this_process();
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_cache_open(dev, nf, &o, &c->c);
	Py_END_ALLOW_THREADS
	if (!rc)
		return (PyObject *)c;
	fail(rc);
	Py_DECREF(c); /* and what it keeps */
	return NULL;

put_notifier:
	drop_notifier(keep_nf);
put_device:
	Py_DECREF(device);
	return NULL;
}

/*
 * In a forked child what the parent's threads hold there will never be put, and what they
 * were changing is not to be freed: the library's part stays.
 */
static bool may_free(const struct cache *c)
{
	return c->process == this_process() || !(c->held || uses_torn(&c->calls));
}

static void end(struct cache *c)
{
	struct kedge_cache *closing = may_free(c) ? c->c : NULL;

	c->c = NULL;
	if (closing) {
		uses_begin(&c->calls); /* a second close() is not to drop the device */
		Py_BEGIN_ALLOW_THREADS
		kedge_cache_close(closing);
		Py_END_ALLOW_THREADS
		uses_end(&c->calls);
	}
	free_spare(c);
	drop_notifier(c->notifier);
	c->notifier = NULL;
	Py_CLEAR(c->device);
}

static void cache_dealloc(struct cache *c)
{
	PyTypeObject *type = Py_TYPE(c);

	PyObject_GC_UnTrack(c);
	end(c);
	type->tp_free(c);
}

/* Registrations refer to their cache, so a cache that is held is not garbage. */
static int cache_traverse(struct cache *c, visitproc visit, void *arg)
{
	Py_VISIT(c->device);
	Py_VISIT(c->notifier);
	return 0;
}

static PyObject *cache_close(struct cache *c, PyObject *unused)
{
	if (c->process == this_process() &&
	    in_use("registrations or calls of the cache", c->held + uses_cnt(&c->calls)))
		return NULL;
	end(c);
	Py_RETURN_NONE;
}

static PyObject *cache_enter(struct cache *c, PyObject *unused)
{
	if (!open_cache(c))
		return NULL;
	Py_INCREF(c);
	return (PyObject *)c;
}

static PyObject *cache_exit(struct cache *c, PyObject *args)
{
	return end_block((PyObject *)c, args);
}

/* The bytes that are registered. The arguments are those of cache_get(). */
static PyObject *cache_hint(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
			    PyObject *kwnames)
{
	struct raised raised;
	struct range r;
	uint32_t access;
	ssize_t n;

	if (!open_cache(c) || range_and_access(&r, &access, args, nargs, kwnames))
		return NULL;
	if (!open_cache(c)) {
		range_put(&r);
		return NULL;
	}
	raised_begin(&raised);
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	n = kedge_cache_hint(c->c, (void *)r.addr, r.len, access);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	range_put(&r);
	return raised_end(&raised, n) ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *promise(struct cache *c, PyObject *obj,
			 int (*call)(struct kedge_cache *, const void *, size_t))
{
	struct raised raised;
	struct range r;
	int rc;

	if (!open_cache(c) || range_get(&r, obj))
		return NULL;
	if (!open_cache(c)) {
		range_put(&r);
		return NULL;
	}
	raised_begin(&raised);
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = call(c->c, (void *)r.addr, r.len);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	range_put(&r);
	if (raised_end(&raised, rc))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *cache_vouch(struct cache *c, PyObject *obj)
{
	return promise(c, obj, kedge_cache_vouch);
}

static PyObject *cache_unvouch(struct cache *c, PyObject *obj)
{
	return promise(c, obj, kedge_cache_unvouch);
}

static PyObject *cache_resync(struct cache *c, PyObject *unused)
{
	struct raised raised;
	ssize_t n;

	if (!open_cache(c))
		return NULL;
	raised_begin(&raised);
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	n = kedge_cache_resync(c->c, NULL, 0);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	return raised_end(&raised, n) ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *cache_flush(struct cache *c, PyObject *unused)
{
	ssize_t n;

	if (!open_cache(c))
		return NULL;
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	n = kedge_cache_flush(c->c);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	return n < 0 ? fail((int)n) : PyLong_FromSsize_t(n);
}

#define COUNTER(name) { #name, offsetof(struct kedge_cache_stats, name) }
static const struct {
	const char *name;
	size_t at;
} counters[] = {
	COUNTER(regions), COUNTER(gets), COUNTER(hits), COUNTER(misses), COUNTER(uncached),
	COUNTER(merges), COUNTER(invalidations), COUNTER(registrations),
	COUNTER(deregistrations), COUNTER(evictions), COUNTER(resyncs), COUNTER(bytes),
	COUNTER(bytes_peak), COUNTER(register_ns), COUNTER(failures), COUNTER(lent),
	COUNTER(resynced), COUNTER(replaced), COUNTER(overputs),
	COUNTER(freed_bytes), COUNTER(dereg_failures), COUNTER(stuck),
	COUNTER(vouched),
};

static PyObject *cache_stats(struct cache *c, PyObject *unused)
{
	struct kedge_cache_stats st = { .size = sizeof(st) };
	PyObject *dict, *value;
	uint64_t n;
	size_t i;
	int rc;

	if (!open_cache(c))
		return NULL;
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_cache_stats(c->c, &st);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	if (rc)
		return fail(rc);
	dict = PyDict_New();
	for (i = 0; dict && i < sizeof(counters) / sizeof(*counters); i++) {
		memcpy(&n, (const char *)&st + counters[i].at, sizeof(n));
		value = PyLong_FromUnsignedLongLong(n);
		if (!value || PyDict_SetItemString(dict, counters[i].name, value))
			Py_CLEAR(dict);
		Py_XDECREF(value);
	}
	return dict;
}

static PyObject *cache_closed(struct cache *c, void *unused)
{
	return PyBool_FromLong(!c->c);
}

#define FAST(name, fn, doc) \
	{ name, (PyCFunction)(void (*)(void))(fn), METH_FASTCALL | METH_KEYWORDS, doc }

static PyMethodDef cache_methods[] = {
	FAST("get", cache_get, "get(obj, access=None): a Registration of all of an object's "
	     "memory, or of an (address, length)."),
	FAST("getv", cache_getv, "getv(obj, access=None): a list of Registrations that "
	     "cover it, for memory that is registered in chunks."),
	FAST("hint", cache_hint, "hint(obj, access=None): register it ahead of use; the "
	     "bytes that are registered."),
	{ "vouch", (PyCFunction)cache_vouch, METH_O,
	  "vouch(obj): promise that the pages of shared memory stay, so that it is cached." },
	{ "unvouch", (PyCFunction)cache_unvouch, METH_O,
	  "unvouch(obj): end that, before they change." },
	{ "resync", (PyCFunction)cache_resync, METH_NOARGS,
	  "Register again what has been invalidated; the bytes." },
	{ "flush", (PyCFunction)cache_flush, METH_NOARGS,
	  "Drop registrations that are not held; their count." },
	{ "stats", (PyCFunction)cache_stats, METH_NOARGS,
	  "Counters, as kedge_cache_stats(3) describes them: a dict." },
	{ "close", (PyCFunction)cache_close, METH_NOARGS,
	  "Deregister everything. Fails with EBUSY while a registration is held." },
	{ "__enter__", (PyCFunction)cache_enter, METH_NOARGS, NULL },
	{ "__exit__", (PyCFunction)cache_exit, METH_VARARGS, NULL },
	{ NULL },
};

static PyGetSetDef cache_fields[] = {
	{ "closed", (getter)cache_closed, NULL, "True once it is closed.", NULL },
	{ NULL },
};

PyTypeObject cache_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge.Cache",
	.tp_basicsize = sizeof(struct cache),
	.tp_dealloc = (destructor)cache_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.tp_doc = "Cache(device=None, *, notifier=None, max_bytes=0, max_regions=0, "
		  "chunk_bytes=0, merge_bytes=0, hint_threads=0, max_freed_bytes=0, "
		  "trusted_peers=False, resync=False)\n\nA registration cache on a device.",
	.tp_traverse = (traverseproc)cache_traverse,
	.tp_methods = cache_methods,
	.tp_getset = cache_fields,
	.tp_new = cache_new,
};
