// SPDX-License-Identifier: BSD-2-Clause
/*
 * Numbers that fit, or an OverflowError: the formats of PyArg_Parse*() cut them to
 * their width without a word. Whatever has an __index__() is one, as numpy's are.
 */
#include "binding.h"

static int to_unsigned(PyObject *obj, unsigned long long max, unsigned long long *value)
{
	PyObject *n = PyNumber_Index(obj);

	if (!n)
		return 0;
	*value = PyLong_AsUnsignedLongLong(n);
	Py_DECREF(n);
	if (*value == (unsigned long long)-1 && PyErr_Occurred()) {
		if (!PyErr_ExceptionMatches(PyExc_OverflowError))
			return 0;
		PyErr_Clear();
	} else if (*value <= max) {
		return 1;
	}
	PyErr_Format(PyExc_OverflowError, "an integer from 0 to %llu is wanted", max);
	return 0;
}

int to_u64(PyObject *obj, void *out)
{
	unsigned long long value;

	if (!to_unsigned(obj, UINT64_MAX, &value))
		return 0;
	*(uint64_t *)out = value;
	return 1;
}

int to_offset(PyObject *obj, void *out)
{
	unsigned long long value;

	if (!to_unsigned(obj, INT64_MAX, &value))
		return 0;
	*(uint64_t *)out = value;
	return 1;
}

int to_u32(PyObject *obj, void *out)
{
	unsigned long long value;

	if (!to_unsigned(obj, UINT32_MAX, &value))
		return 0;
	*(uint32_t *)out = (uint32_t)value;
	return 1;
}

int to_port(PyObject *obj, void *out)
{
	unsigned long long value;

	if (!to_unsigned(obj, UINT16_MAX, &value))
		return 0;
	*(unsigned int *)out = (unsigned int)value;
	return 1;
}
