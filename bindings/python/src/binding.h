/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kedge._kedge: the objects of libkedge for Python.
 *
 * The interpreter's lock (GIL) guards every field here. A call of the library that may
 * register, wait or take a lock for long is made without it; meanwhile the object's
 * busy count keeps close() away. Types are static, as the module refuses
 * sub-interpreters: a device written in Python is called from threads that only the
 * main interpreter can be entered by.
 */
#ifndef BINDING_H
#define BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include <kedge/kedge.h>

/* The capsule that __kedge_device__() of other extensions returns has this name. */
#define DEVICE_CAPSULE "kedge_device"

extern PyTypeObject cache_type, registration_type, device_type, notifier_type,
	listener_type, channel_type, operation_type;

/* module.c: kedge.Error, kedge.Event and kedge.Message. */
extern PyObject *error_type, *event_type, *message_type;

/* Raise kedge.Error for what a call returned, and return NULL. */
PyObject *fail(int rc);
/* The same with a sentence of the binding's own. */
PyObject *fail_with(int rc, const char *text);
/* True, with the error raised, where an object is in use: its close() may not go on. */
bool in_use(const char *what, Py_ssize_t cnt);

/* Memory that an object exports, or an (address, length) tuple names. */
struct range {
	Py_buffer view; /* held while view.obj is set */
	uintptr_t addr;
	size_t len;
	bool writable;
};

/* 0, or -1 with an error raised. @r stays where it is: the view may point into it. */
int range_get(struct range *r, PyObject *obj);
static inline void range_put(struct range *r)
{
	if (r->view.obj)
		PyBuffer_Release(&r->view);
}

struct registration;

struct cache {
	PyObject_HEAD
	struct kedge_cache *c; /* NULL once it is closed */
	PyObject *device;      /* what keeps the device open */
	PyObject *notifier;    /* NULL: the process's own */
	struct registration *spare;
	unsigned int spare_cnt;
	Py_ssize_t held; /* registrations */
	Py_ssize_t busy; /* calls under way without the GIL */
};

struct registration {
	PyObject_HEAD
	struct cache *cache;
	const struct kedge_mr *mr; /* NULL once it is released */
	struct range range;
	bool registered; /* by this get: its put may have to undo that */
	struct registration *next; /* while it is spare */
};

/* registration.c */
PyObject *cache_get(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		    PyObject *kwnames);
PyObject *cache_getv(struct cache *c, PyObject *const *args, Py_ssize_t nargs,
		     PyObject *kwnames);
void free_spare(struct cache *c);
/* The arguments (obj, access=None); -1 with an error raised. */
int range_and_access(struct range *r, uint32_t *access, PyObject *const *args,
		     Py_ssize_t nargs, PyObject *kwnames);

/* device.c: the device of what Cache() was given, and in *@keep what to hold for it. */
struct kedge_device *device_of(PyObject *obj, PyObject **keep);
bool is_written_in_python(PyObject *keep);

struct notifier {
	PyObject_HEAD
	struct kedge_notifier *nf; /* NULL once it is closed */
	Py_ssize_t users;	   /* caches, and calls under way */
};

struct channel {
	PyObject_HEAD
	struct kedge_channel *ch;  /* NULL once it is closed */
	struct operation *pending; /* each is referred to by the list */
	bool busy;		   /* a thread is in a call without the GIL */
};

/* channel.c: a @cls, a Channel, that owns @ch; or NULL, and @ch is closed. */
PyObject *channel_new(PyTypeObject *cls, struct kedge_channel *ch);
/* listener.c: the method Channel._connect(address, timeout, opts). */
PyObject *channel_connect(PyObject *cls, PyObject *args);

/* No wait is longer than that without a look at signals. */
#define SLICE_MS 200

#endif /* BINDING_H */
