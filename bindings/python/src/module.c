// SPDX-License-Identifier: BSD-2-Clause
/* The module: ranges of memory, and the names it has. */
#include "binding.h"

PyObject *event_type, *message_type;

static int range_of_tuple(struct range *r, PyObject *obj)
{
	uint64_t addr, len;

	if (!to_u64(PyTuple_GET_ITEM(obj, 0), &addr) || !to_u64(PyTuple_GET_ITEM(obj, 1), &len))
		return -1;
	r->view.obj = NULL;
	r->addr = (uintptr_t)addr;
	r->len = (size_t)len;
	r->writable = true;
	return 0;
}

int range_get(struct range *r, PyObject *obj)
{
	r->view.obj = NULL;
	if (PyTuple_CheckExact(obj) && PyTuple_GET_SIZE(obj) == 2)
		return range_of_tuple(r, obj);
	if (PyObject_GetBuffer(obj, &r->view, PyBUF_ANY_CONTIGUOUS)) {
		r->view.obj = NULL;
		return -1;
	}
	r->addr = (uintptr_t)r->view.buf;
	r->len = (size_t)r->view.len;
	r->writable = !r->view.readonly;
	return 0;
}

static PyObject *version(PyObject *self, PyObject *unused)
{
	return PyUnicode_FromString(kedge_version());
}

static PyObject *backends(PyObject *self, PyObject *unused)
{
	struct kedge_backend_info info;
	PyObject *list = PyList_New(0), *item;
	unsigned int i;
	int rc = 0;

	for (i = 0; list; i++) {
		memset(&info, 0, sizeof(info));
		info.size = sizeof(info);
		Py_BEGIN_ALLOW_THREADS
		rc = kedge_backend_probe(i, &info);
		Py_END_ALLOW_THREADS
		if (rc)
			break;
		item = Py_BuildValue("{s:s,s:I,s:I,s:i,s:O&}", "name", info.name,
				     "level", info.level, "blind", info.blind,
				     "rc", info.rc, "reason", text_of, info.reason);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	return list;
}

static PyMethodDef methods[] = {
	{ "version", version, METH_NOARGS, "The version of the library that is running." },
	{ "backends", backends, METH_NOARGS,
	  "What each backend of the notifier would do here: a list of dicts." },
	{ NULL },
};

static const struct {
	const char *name;
	long value;
} numbers[] = {
	{ "ACCESS_LOCAL_READ", KEDGE_ACCESS_LOCAL_READ },
	{ "ACCESS_LOCAL_WRITE", KEDGE_ACCESS_LOCAL_WRITE },
	{ "ACCESS_REMOTE_READ", KEDGE_ACCESS_REMOTE_READ },
	{ "ACCESS_REMOTE_WRITE", KEDGE_ACCESS_REMOTE_WRITE },
	{ "ACCESS_REMOTE_ATOMIC", KEDGE_ACCESS_REMOTE_ATOMIC },
	{ "LEVEL_DEFAULT", KEDGE_LEVEL_DEFAULT },
	{ "LEVEL_NONE", KEDGE_LEVEL_NONE },
	{ "LEVEL_ADVISORY", KEDGE_LEVEL_ADVISORY },
	{ "LEVEL_ORDERED", KEDGE_LEVEL_ORDERED },
	{ "LEVEL_EXACT", KEDGE_LEVEL_EXACT },
	{ "CHECK_LOAD", KEDGE_CHECK_LOAD },
	{ "CHECK_CALL", KEDGE_CHECK_CALL },
	{ "CHECK_NONE", KEDGE_CHECK_NONE },
	{ "EVENT_LAST", KEDGE_EVENT_LAST },
	{ "EVENT_UNMAP", KEDGE_EVENT_UNMAP },
	{ "EVENT_REMOVE", KEDGE_EVENT_REMOVE },
	{ "EVENT_REMAP", KEDGE_EVENT_REMAP },
	{ "EVENT_OTHER", KEDGE_EVENT_OTHER },
	{ "EVENT_UNSURE", KEDGE_EVENT_UNSURE },
};

static PyObject *named_tuple(PyObject *module, const char *name, const char *fields)
{
	PyObject *collections = PyImport_ImportModule("collections");
	PyObject *type = NULL;

	if (!collections)
		return NULL;
	type = PyObject_CallMethod(collections, "namedtuple", "ss", name, fields);
	Py_DECREF(collections);
	/* As pickle looks for it. */
	if (type && (PyObject_SetAttrString(type, "__module__",
					    PyModule_GetNameObject(module)) ||
		     PyModule_AddObject(module, name, type)))
		Py_CLEAR(type);
	Py_XINCREF(type);
	return type;
}

/* PyModule_AddType() came with Python 3.10. */
static int add_type(PyObject *m, PyTypeObject *type)
{
	if (PyType_Ready(type))
		return -1;
	Py_INCREF(type);
	return PyModule_AddObject(m, strrchr(type->tp_name, '.') + 1, (PyObject *)type);
}

static int add_types(PyObject *m)
{
	PyTypeObject *const types[] = { &cache_type, &registration_type, &device_type,
					&notifier_type, &listener_type, &channel_type,
					&operation_type };
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (add_type(m, types[i]))
			return -1;
	for (i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (PyModule_AddIntConstant(m, numbers[i].name, numbers[i].value))
			return -1;
	return 0;
}

static int exec_module(PyObject *m)
{
	if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
		PyErr_SetString(PyExc_ImportError,
				"kedge works in the main interpreter alone");
		return -1;
	}
	if (process_init() || errors_init(m) || api_init(m))
		return -1;
	event_type = named_tuple(m, "Event", "kind flags start end cookie generation");
	message_type = named_tuple(m, "Message", "tag len way");
	if (!event_type || !message_type)
		return -1;
	return add_types(m);
}

static PyModuleDef_Slot slots[] = {
	{ Py_mod_exec, (void *)exec_module },
#ifdef Py_mod_multiple_interpreters
	{ Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED },
#endif
#ifdef Py_mod_gil
	/* Counts and lists here rely on the lock. */
	{ Py_mod_gil, Py_MOD_GIL_USED },
#endif
	{ 0, NULL },
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "kedge._kedge",
	.m_doc = "Registration caches, notifiers and channels of libkedge.",
	.m_methods = methods,
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__kedge(void);
PyMODINIT_FUNC PyInit__kedge(void)
{
	return PyModuleDef_Init(&module);
}
