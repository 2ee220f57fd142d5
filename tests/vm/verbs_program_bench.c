// SPDX-License-Identifier: BSD-2-Clause
/*
 * The cost of registering for a program: a loop over a working set of buffers, and
 * messages that are registered one by one.
 */
#include "verbs_program.h"

#define ROUNDS	 8u
#define BUFS	 64u
#define BUF_LEN  (1u << 20)
#define SAMPLES  (ROUNDS * BUFS)

/* The times of a sample: in all, and for registering and deregistering. */
static uint64_t all_ns[SAMPLES], reg_ns[SAMPLES];
static unsigned char *mem;

static unsigned char *buf(unsigned int i)
{
	return mem + (size_t)(i % BUFS) * BUF_LEN;
}

/* Register, use unless @len is 0, deregister. */
static bool one(unsigned int i, int access, uint32_t len)
{
	uint64_t at = (uintptr_t)buf(i), start = vm_now(), used, end;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct ibv_mr *mr;
	int rc;

	mr = ibv_reg_mr(e.pd, buf(i), len ? len : BUF_LEN, access);
	if (!mr)
		return false;
	used = vm_now();
	/* By this end with an lkey, or by the peer with an rkey. */
	if (len)
		status = access & RW ? ends_put(&e, at, len, mr->rkey)
				     : ends_read(&e, at, len, mr->lkey);
	used = vm_now() - used;
	rc = ibv_dereg_mr(mr);
	end = vm_now();
	all_ns[i] = end - start;
	reg_ns[i] = end - start - used;
	return status == IBV_WC_SUCCESS && !rc;
}

/*
 * A tenth of the samples is better: what is there where nothing else runs. Of
 * a working set's first round, and of no other, kedge has to register.
 */
static unsigned long long tenth(uint64_t ns[SAMPLES])
{
	qsort(ns, SAMPLES, sizeof(*ns), vm_by_size);
	return ns[SAMPLES / 10];
}

/* Of a registration, in the median of the rounds. */
static unsigned long long per_round(const uint64_t ns[SAMPLES])
{
	uint64_t round[ROUNDS] = { 0 };
	unsigned int i;

	for (i = 0; i < SAMPLES; i++)
		round[i / BUFS] += ns[i];
	qsort(round, ROUNDS, sizeof(*round), vm_by_size);
	return round[ROUNDS / 2] / BUFS;
}

static bool measure(const char *name, int access, uint32_t len)
{
	unsigned int i;

	for (i = 0; i < SAMPLES; i++)
		if (!one(i, access, len))
			return false;
	if (!len)
		printf("\"%s\": %llu, ", name, per_round(all_ns));
	else
		printf("\"%s\": %llu, \"%s_reg\": %llu, ", name, tenth(all_ns),
		       name, tenth(reg_ns));
	return true;
}

static int measure_all(void)
{
	bool ok;

	printf("{\"verbs_program\": {");
	ok = measure("loop", LW | RW | RR, 0);
	ok = ok && measure("loop_local", LW, 0);
	ok = ok && measure("message_4k", LW, 4096);
	ok = ok && measure("message_64k", LW, 65536);
	ok = ok && measure("message_4k_remote", LW | RW, 4096);
	ok = ok && measure("message_64k_remote", LW | RW, 65536);
	printf("\"samples\": %u}}\n", SAMPLES);
	return ok ? 0 : 1;
}

int verbs_program_bench(void)
{
	size_t len = (size_t)BUFS * BUF_LEN;
	int rc;

	mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED || !ends_open(&e)) {
		perror("bench");
		return 1;
	}
	memset(mem, 1, len);
	rc = measure_all();
	if (ends_close(&e))
		rc = 1;
	munmap(mem, len);
	return rc;
}
