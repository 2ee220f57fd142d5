// SPDX-License-Identifier: BSD-2-Clause
/* Events of connections. What a peer says of itself comes with them. */
#include <stdlib.h>

#include "channel/ofi/internal.h"

int kedge__ofi_eq_open(struct fid_fabric *fabric, struct fid_eq **eq, int *fd)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_FD };
	int rc;

	rc = fi_eq_open(fabric, &attr, eq, NULL);
	if (rc)
		return kedge_reason(kedge__ofi_errno(rc), "fi_eq_open: %s",
				    fi_strerror(-rc));
	rc = fi_control(&(*eq)->fid, FI_GETWAIT, fd);
	if (rc) {
		fi_close(&(*eq)->fid);
		return kedge_reason(kedge__ofi_errno(rc),
				    "no descriptor for events: %s",
				    fi_strerror(-rc));
	}
	return 0;
}

static int eq_error(struct fid_eq *eq, struct rdma_hello *hello)
{
	char data[256];
	struct fi_eq_err_entry e = { .err_data = data,
				     .err_data_size = sizeof(data) };
	ssize_t n = fi_eq_readerr(eq, &e, 0);

	if (n < 0)
		return n == -FI_EAGAIN ? -EAGAIN : kedge__ofi_errno(n);
	kedge__rdma_hello_take(hello, e.err_data, e.err_data ? e.err_data_size : 0);
	return e.err ? kedge__ofi_errno(-abs(e.err)) : -ECONNRESET;
}

int kedge__ofi_eq_read(struct fid_eq *eq, uint32_t *event,
		       struct fi_info **info, struct rdma_hello *hello)
{
	union {
		struct fi_eq_cm_entry cm;
		char room[sizeof(struct fi_eq_cm_entry) + 256];
	} e;
	ssize_t n;

	*info = NULL;
	n = fi_eq_read(eq, event, &e, sizeof(e), 0);
	if (n == -FI_EAGAIN || n == -FI_EINTR)
		return -EAGAIN;
	if (n == -FI_EAVAIL)
		return eq_error(eq, hello);
	if (n < 0)
		return kedge__ofi_errno(n);
	if ((size_t)n < sizeof(e.cm))
		n = sizeof(e.cm);
	kedge__rdma_hello_take(hello, e.cm.data, (size_t)n - sizeof(e.cm));
	if (*event == FI_CONNREQ)
		*info = e.cm.info;
	return 0;
}
