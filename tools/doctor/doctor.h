/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of kedge doctor. */
#ifndef TOOLS_DOCTOR_DOCTOR_H
#define TOOLS_DOCTOR_DOCTOR_H

#include "tools/doctor/record.h"
#include "tools/run/checked.h"

struct found {
	const struct checked *checked;
	const struct recorder *recorder;
	int untraced; /* an errno: it could not be followed */
};

/* print.c: whether something is stale. */
bool doctor_finds(const struct checked *c);
bool doctor_knows(const struct found *f);
/* The second one: 0, or the output's error. */
void doctor_print(const struct found *f);
int doctor_print_json(const struct found *f, int status);

#endif /* TOOLS_DOCTOR_DOCTOR_H */
