/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The border between a channel over RDMA and what connects it: libfabric's
 * providers (channel/ofi), or queue pairs of our own (channel/rc). A port is one
 * connection; its struct begins with struct rdma. The end of internal.h.
 */
#ifndef CHANNEL_RDMA_PORT_H
#define CHANNEL_RDMA_PORT_H

/**
 * struct rdma_port - what connects a channel over RDMA
 * @send:    send a buffer's bytes into one that the peer has posted. @inject: it is
 *           the caller's again at once, and there is no completion. 0; -EAGAIN: no
 *           room now; else the connection is at an end
 * @recv:    post a buffer to receive into; as @send
 * @write:   post a write as @w says; @asked: a completion is wanted, else one that
 *           comes later stands for it, too. As @send
 * @read:    post the read of a flow's table of targets. As @send
 * @poll:    hand on what has completed (kedge__rdma_op_done(), kedge__rdma_landed()),
 *           until there is no more or the connection is at an end
 * @over:    true where the connection has ended
 * @arm:     0: @fd will tell what completes; 1: there is something already
 * @halt:    from its return on nothing touches memory of ours, and nothing completes.
 *           Called once
 * @close:   free all that is left, and @r. @ours: false in a forked child, where
 *           only memory and descriptors are freed
 * @reg:     register memory for KEDGE_ACCESS_*; *@reg is the port's name of it. 0 or
 *           a negative errno with a reason
 * @dereg:   end that: 0, or a negative errno, and it goes on
 * @grant:   a key that lets the peer write [@at, @at + @len) of a registration, good
 *           for whatever is sent after this call; *@window is the port's name of
 *           it. -EOPNOTSUPP: it cannot be had, or would let the peer reach more:
 *           register the range itself. Not called but where @r->windows
 * @revoke:  end that: 0 when it has ended and @window is gone; -EAGAIN: ask again, as
 *           poll() will tell. @now: without waiting, which takes longer; always 0
 * @device:  the name of what it registers with; NULL: its costs are not measured
 * @desc:    what names a registration in a post of ours
 * @key:     what a peer names it by
 */
struct rdma_port {
	int (*send)(struct rdma *r, struct rdma_buf *b, bool inject);
	int (*recv)(struct rdma *r, struct rdma_buf *b);
	int (*write)(struct rdma *r, struct rdma_write *w, bool asked);
	int (*read)(struct rdma *r, struct flow *f);
	void (*poll)(struct rdma *r);
	bool (*over)(struct rdma *r);
	int (*arm)(struct rdma *r);
	void (*halt)(struct rdma *r);
	void (*close)(struct rdma *r, bool ours);
	int (*reg)(struct rdma *r, void *at, size_t len, uint32_t access,
		   void **reg);
	int (*dereg)(struct rdma *r, void *reg);
	int (*grant)(struct rdma *r, void *reg, uint64_t at, uint64_t len,
		     uint64_t *key, void **window);
	int (*revoke)(struct rdma *r, void *window, bool now);
	const char *(*device)(const struct rdma *r);
	void *(*desc)(void *reg);
	uint64_t (*key)(void *reg);
};

#endif /* CHANNEL_RDMA_PORT_H */
