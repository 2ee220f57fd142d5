// SPDX-License-Identifier: BSD-2-Clause
/* A table of functions for kedge._uring, in a capsule: a module cannot be linked to. */
#include "binding.h"

static const struct kedge_device *device_under(const struct cache *c)
{
	if (!c->device || !PyCapsule_IsValid(c->device, DEVICE_CAPSULE))
		return NULL;
	return PyCapsule_GetPointer(c->device, DEVICE_CAPSULE);
}

static int hold(struct hold *h, PyObject *obj, const struct kedge_device *dev)
{
	struct registration *r = (struct registration *)obj;

	if (!PyObject_TypeCheck(obj, &registration_type)) {
		PyErr_Format(PyExc_TypeError, "a Registration is wanted, not %.100s",
			     Py_TYPE(obj)->tp_name);
		return -1;
	}
	if (!r->mr || r->released || !r->cache->c) {
		PyErr_SetString(PyExc_ValueError, "the registration is released");
		return -1;
	}
	/* An index is that of one ring's table. */
	if (device_under(r->cache) != dev) {
		PyErr_SetString(PyExc_ValueError, "the registration is of a cache on another "
				"device: get one of a Cache on this ring");
		return -1;
	}
	Py_INCREF(obj);
	uses_begin(&r->transfers);
	*h = (struct hold){ obj, r->range.addr, r->range.len, (uint32_t)r->mr->device_handle,
			    r->access, r->range.writable };
	return 0;
}

static void unhold(struct hold *h)
{
	struct registration *r = (struct registration *)h->registration;
	PyObject *type, *value, *trace;

	/* The end of an export may run code, which is not to see the transfer's error. */
	PyErr_Fetch(&type, &value, &trace);
	uses_end(&r->transfers);
	if (r->released)
		registration_end(r);
	Py_DECREF(r);
	PyErr_Restore(type, value, trace);
}

static const struct api api = {
	.size = sizeof(api),
	.fail_with = fail_with,
	.this_process = this_process,
	.to_u32 = to_u32,
	.to_offset = to_offset,
	.hold = hold,
	.unhold = unhold,
};

int api_init(PyObject *module)
{
	PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&api, API_CAPSULE, NULL);

	return capsule ? PyModule_AddObject(module, strrchr(API_CAPSULE, '.') + 1, capsule) : -1;
}
