// SPDX-License-Identifier: BSD-2-Clause
/*
 * A registration that a program holds: a context manager over the memory of an
 * object. The object's export is held as long, so that it cannot be resized or freed;
 * both as long as a transfer needs them, whenever the program releases them.
 *
 * A get that is a hit is meant to cost little beside the calls of Python around it: its
 * arguments come as an array, the object is one that was used before, and the GIL stays
 * held, as kedge_cache_tryget() neither registers nor takes a lock. A get that registers,
 * and the put of that, are made without the GIL.
 */
#include "binding.h"

#define SPARE_MAX 64
#define WRITES ((uint32_t)(KEDGE_ACCESS_LOCAL_WRITE | KEDGE_ACCESS_REMOTE_WRITE | \
			   KEDGE_ACCESS_REMOTE_ATOMIC))

static struct registration *registration_new(struct cache *c)
{
	struct registration *r = c->spare;

	if (r) {
		c->spare = r->next;
		c->spare_cnt--;
		PyObject_Init((PyObject *)r, &registration_type);
	} else {
		r = PyObject_GC_New(struct registration, &registration_type);
		if (!r)
			return NULL;
	}
	Py_INCREF(c);
	r->cache = c;
	r->mr = NULL;
	r->released = false;
	r->transfers = (struct uses){ 0 };
	r->range.view.obj = NULL;
	return r;
}

static void registration_hold(struct registration *r, const struct kedge_mr *mr,
			      uint32_t access, bool registered)
{
	r->mr = mr;
	r->access = access;
	r->registered = registered;
	r->cache->held++;
	PyObject_GC_Track(r);
}

void registration_end(struct registration *r)
{
	const struct kedge_mr *mr = r->mr;
	struct cache *c = r->cache;

	if (!mr)
		return;
	if (uses_cnt(&r->transfers)) {
		r->released = true;
		return;
	}
	/* First: another thread may come here as soon as the GIL is let go of. */
	r->mr = NULL;
	if (!c->c) {
		/* A forked child has closed it. */
	} else if (r->registered) {
		Py_BEGIN_ALLOW_THREADS
		kedge_cache_put(c->c, mr);
		Py_END_ALLOW_THREADS
	} else {
		kedge_cache_put(c->c, mr);
	}
	c->held--;
	range_put(&r->range);
}

static void registration_dealloc(struct registration *r)
{
	struct cache *c = r->cache;

	PyObject_GC_UnTrack(r);
	registration_end(r);
	range_put(&r->range); /* of a get that failed */
	if (c->spare_cnt < SPARE_MAX) {
		r->next = c->spare;
		c->spare = r;
		c->spare_cnt++;
	} else {
		PyObject_GC_Del(r);
	}
	Py_DECREF(c);
}

void free_spare(struct cache *c)
{
	struct registration *r;

	while ((r = c->spare)) {
		c->spare = r->next;
		PyObject_GC_Del(r);
	}
	c->spare_cnt = 0;
}

static int access_of(PyObject *obj, bool writable, uint32_t *access)
{
	if (!obj || obj == Py_None) {
		*access = writable ? KEDGE_ACCESS_LOCAL_WRITE : KEDGE_ACCESS_LOCAL_READ;
		return 0;
	}
	if (!to_u32(obj, access))
		return -1;
	if (*access & WRITES && !writable) {
		PyErr_SetString(PyExc_BufferError,
				"write access to an object that is read-only");
		return -1;
	}
	return 0;
}

/* The argument "access" of a call with (obj, access=None), or NULL. */
static int access_argument(PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
			   PyObject **access)
{
	Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;

	*access = NULL;
	if (nargs == 1 && !named)
		return 0;
	if (nargs < 1 || nargs + named > 2 ||
	    (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0),
						       "access"))) {
		PyErr_SetString(PyExc_TypeError, "the arguments are (obj, access=None)");
		return -1;
	}
	*access = args[1];
	return 0;
}

int range_and_access(struct range *r, uint32_t *access, PyObject *const *args,
		     Py_ssize_t nargs, PyObject *kwnames)
{
	PyObject *wanted;

	if (access_argument(args, nargs, kwnames, &wanted) || range_get(r, args[0]))
		return -1;
	if (!access_of(wanted, r->writable, access))
		return 0;
	range_put(r);
	return -1;
}

static bool is_open(struct cache *c)
{
	if (c->c)
		return true;
	PyErr_SetString(PyExc_ValueError, "the cache is closed");
	return false;
}

/* 0, or -1 with an error raised. */
static int get_slow(struct cache *c, const struct range *r, uint32_t access,
		    const struct kedge_mr **mr)
{
	struct raised raised;
	int rc;

	raised_begin(&raised);
	uses_begin(&c->calls);
	Py_BEGIN_ALLOW_THREADS
	rc = kedge_cache_get(c->c, (void *)r->addr, r->len, access, mr);
	Py_END_ALLOW_THREADS
	uses_end(&c->calls);
	if (!raised_end(&raised, rc))
		return 0;
	if (!rc)
		kedge_cache_put(c->c, *mr);
	return -1;
}

PyObject *cache_get(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		    PyObject *kwnames)
{
	const struct kedge_mr *mr;
	struct registration *r;
	bool registered = false;
	uint32_t access;
	int rc;

	if (!is_open(c))
		return NULL;
	r = registration_new(c);
	if (!r)
		return NULL;
	if (range_and_access(&r->range, &access, args, nargs, kwnames))
		goto drop;
	/* The export of an object may have run code that closes the cache. */
	if (!is_open(c))
		goto drop;
	rc = kedge_cache_tryget(c->c, (void *)r->range.addr, r->range.len, access, &mr);
	if (rc == -EAGAIN) {
		registered = true;
		if (get_slow(c, &r->range, access, &mr))
			goto drop;
	} else if (rc) {
		fail(rc);
		goto drop;
	}
	registration_hold(r, mr, access, registered);
	return (PyObject *)r;

drop:
	Py_DECREF(r);
	return NULL;
}

#define PIECES_FIRST 16
#define PIECES_MAX   (1 << 20)

/* The pieces of a range, in memory of PyMem_Malloc(); their count, or -1. */
static ssize_t get_pieces(struct cache *c, const struct range *r, uint32_t access,
			  struct kedge_piece **pieces)
{
	struct kedge_piece *p = NULL, *more;
	size_t max = PIECES_FIRST;
	ssize_t n = -ENOBUFS;
	struct raised raised;

	raised_begin(&raised);
	for (; n == -ENOBUFS && max <= PIECES_MAX; max *= 4) {
		more = PyMem_Realloc(p, max * sizeof(*p));
		if (!more) {
			if (!raised_end(&raised, 0))
				PyErr_NoMemory();
			goto free_pieces;
		}
		p = more;
		uses_begin(&c->calls);
		Py_BEGIN_ALLOW_THREADS
		n = kedge_cache_getv(c->c, (void *)r->addr, r->len, access, p, max);
		Py_END_ALLOW_THREADS
		uses_end(&c->calls);
	}
	if (!raised_end(&raised, n)) {
		*pieces = p;
		return n;
	}
	if (n >= 0)
		kedge_cache_putv(c->c, p, (size_t)n);
free_pieces:
	PyMem_Free(p);
	return -1;
}

/* A registration of @p, which it has taken on success. */
static PyObject *hold_piece(struct cache *c, PyObject *obj, const struct kedge_piece *p,
			    uint32_t access)
{
	struct registration *r = registration_new(c);

	if (!r)
		return NULL;
	if (range_get(&r->range, obj)) {
		Py_DECREF(r);
		return NULL;
	}
	r->range.addr = (uintptr_t)p->addr;
	r->range.len = (size_t)p->len;
	registration_hold(r, p->mr, access, true);
	return (PyObject *)r;
}

PyObject *cache_getv(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		     PyObject *kwnames)
{
	struct kedge_piece *pieces;
	PyObject *list = NULL, *item;
	struct range range;
	uint32_t access;
	ssize_t n, i = 0;

	if (!is_open(c) || range_and_access(&range, &access, args, nargs, kwnames))
		return NULL;
	n = is_open(c) ? get_pieces(c, &range, access, &pieces) : -1;
	if (n < 0)
		goto put_range;
	uses_begin(&c->calls); /* until each piece is held */
	list = PyList_New(n);
	for (; list && i < n; i++) {
		item = hold_piece(c, args[0], &pieces[i], access);
		if (!item)
			break;
		PyList_SET_ITEM(list, i, item);
	}
	kedge_cache_putv(c->c, pieces + i, (size_t)(n - i));
	uses_end(&c->calls);
	if (i < n)
		Py_CLEAR(list);
	PyMem_Free(pieces);
put_range:
	range_put(&range);
	return list;
}

/* ---- the type ---- */

static bool is_held(struct registration *r)
{
	if (r->mr && !r->released && r->cache->c)
		return true;
	PyErr_SetString(PyExc_ValueError, "the registration is released");
	return false;
}

static PyObject *registration_enter(struct registration *r, PyObject *unused)
{
	if (!is_held(r))
		return NULL;
	Py_INCREF(r);
	return (PyObject *)r;
}

static PyObject *registration_exit(struct registration *r, PyObject *const *args,
				   Py_ssize_t nargs)
{
	registration_end(r);
	Py_RETURN_NONE;
}

static PyObject *registration_release(struct registration *r, PyObject *unused)
{
	registration_end(r);
	Py_RETURN_NONE;
}

static int registration_traverse(struct registration *r, visitproc visit, void *arg)
{
	Py_VISIT(r->cache);
	Py_VISIT(r->range.view.obj);
	return 0;
}

static int registration_clear(struct registration *r)
{
	registration_end(r);
	return 0;
}

enum field { FIELD_HANDLE, FIELD_LOW, FIELD_HIGH, FIELD_OFFSET, FIELD_ADDR, FIELD_LEN,
	     FIELD_ACCESS };

static PyObject *registration_field(struct registration *r, void *which)
{
	uint64_t v = 0;

	if (!is_held(r))
		return NULL;
	switch ((enum field)(uintptr_t)which) {
	case FIELD_HANDLE: v = r->mr->device_handle; break;
	case FIELD_LOW: v = (uint32_t)r->mr->device_handle; break;
	case FIELD_HIGH: v = r->mr->device_handle >> 32; break;
	case FIELD_OFFSET: v = r->mr->offset + (r->range.addr - r->mr->addr); break;
	case FIELD_ADDR: v = r->range.addr; break;
	case FIELD_LEN: v = r->range.len; break;
	case FIELD_ACCESS: v = r->mr->access; break;
	}
	return PyLong_FromUnsignedLongLong(v);
}

static PyObject *registration_held(struct registration *r, void *unused)
{
	return PyBool_FromLong(r->mr && !r->released && r->cache->c);
}

#define FIELD(name, which, doc) \
	{ name, (getter)registration_field, NULL, doc, (void *)(uintptr_t)(which) }

static PyGetSetDef registration_fields[] = {
	FIELD("handle", FIELD_HANDLE, "The device's handle."),
	FIELD("index", FIELD_LOW, "The handle as a buffer index of io_uring."),
	FIELD("lkey", FIELD_LOW, "The handle as the key for local access by RDMA."),
	FIELD("rkey", FIELD_HIGH, "The handle as the key for a peer's access by RDMA."),
	FIELD("offset", FIELD_OFFSET, "The device's position of the first byte."),
	FIELD("addr", FIELD_ADDR, "The first byte that was asked for."),
	FIELD("len", FIELD_LEN, "Bytes that were asked for."),
	FIELD("access", FIELD_ACCESS, "Access that it allows, at least what was asked for."),
	{ "held", (getter)registration_held, NULL, "False once it is released.", NULL },
	{ NULL },
};

static PyMethodDef registration_methods[] = {
	{ "__enter__", (PyCFunction)registration_enter, METH_NOARGS, NULL },
	{ "__exit__", (PyCFunction)(void (*)(void))registration_exit, METH_FASTCALL, NULL },
	{ "release", (PyCFunction)registration_release, METH_NOARGS,
	  "Give the reference back, at the end of a transfer that is under way. A second "
	  "call does nothing." },
	{ NULL },
};

PyTypeObject registration_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "kedge.Registration",
	.tp_basicsize = sizeof(struct registration),
	.tp_dealloc = (destructor)registration_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
	.tp_doc = "A registration that is held, as Cache.get() gives it.",
	.tp_traverse = (traverseproc)registration_traverse,
	.tp_clear = (inquiry)registration_clear,
	.tp_methods = registration_methods,
	.tp_getset = registration_fields,
};
