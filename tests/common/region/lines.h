/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines by an adapter (fabric.h), both ends in this process: what one that is open may reach, and
 * that one that is closed, or of another loan, reaches nothing, as leases rely on.
 */
#ifndef TESTS_REGION_LINES_H
#define TESTS_REGION_LINES_H

#include "core.h"
#include "region/fabric/fabric.h"

#define LINE_LEN ((size_t)3 << 20)
#define FOREVER	 UINT64_MAX

struct pair;

/* The adapter, an address of this host that it has, and a put() to one that says nothing more. */
struct lines {
	const struct fabric *f;
	unsigned char here[16];
	int (*put_in_vain)(const struct pair *p, uint64_t at, char c);
};

extern struct lines lines;

struct loan {
	struct fabric_loan *loan;
	struct fabric_range range;
};

/* An owner's end, a peer's, and what that is told. */
struct pair {
	struct fabric_line *owner;
	struct fabric_line *peer;
	struct fabric_end owner_end;
	struct fabric_range range;
};

char *line_memory(size_t len);
struct loan line_lend(char *at, size_t len, bool writes);
/* @other: whose memory the peer is told that it reaches, or NULL: its owner's. */
struct pair pair_of(const struct loan *loan, const struct pair *other);
void close_pair(struct pair *p);
/* A byte; 0 or a negative errno. */
int put(const struct pair *p, uint64_t at, char c);
int get(const struct pair *p, uint64_t at, char *c);

/* Most cases have LINE_LEN bytes that are lent, a line to them, and as many other bytes. */
extern char *at, *data;
extern struct loan loan;
extern struct pair a;

int begin_line(void **state);
int end_line(void **state);
#define line_case(f) cmocka_unit_test_setup_teardown(f, begin_line, end_line)

/* Runs the cases that hold by each adapter, and returns how many failed. */
int lines_run(void);

#endif /* TESTS_REGION_LINES_H */
