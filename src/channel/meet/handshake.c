// SPDX-License-Identifier: BSD-2-Clause
/*
 * See handshake.h. What comes is read to its last byte and no further, and checked
 * before anything is made of it.
 */
#include <sodium.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "channel/meet/handshake.h"

#define MAGIC	0x6b65646765746370u
#define VERSION 1u
/* Longer ones are cheaper without a copy. */
#define EAGER_DEFAULT (8u << 10)

/* ---- keys and proofs ---- */

static void hmac(uint8_t out[KEY_LEN], const uint8_t key[KEY_LEN],
		 const char *label, const struct hello *a,
		 const struct hello *b)
{
	crypto_auth_hmacsha256_state st;

	crypto_auth_hmacsha256_init(&st, key, KEY_LEN);
	/* With its zero: no label is the beginning of another one's input. */
	crypto_auth_hmacsha256_update(&st, (const uint8_t *)label,
				      strlen(label) + 1);
	crypto_auth_hmacsha256_update(&st, (const uint8_t *)a, sizeof(*a));
	crypto_auth_hmacsha256_update(&st, (const uint8_t *)b, sizeof(*b));
	crypto_auth_hmacsha256_final(&st, out);
	sodium_memzero(&st, sizeof(st));
}

/* The proof of the end in @role. */
static void prove(const struct hand *h, enum hello_role role,
		  uint8_t proof[KEY_LEN])
{
	bool listens = h->mine.role == ROLE_LISTEN;
	const struct hello *first = listens ? &h->theirs : &h->mine;
	const struct hello *second = listens ? &h->mine : &h->theirs;
	uint8_t key[KEY_LEN];

	hmac(key, h->secret->key,
	     role == ROLE_LISTEN ? "kedge tcp 1: key of the listening end"
				 : "kedge tcp 1: key of the connecting end",
	     first, second);
	hmac(proof, key,
	     role == ROLE_LISTEN ? "kedge tcp 1: the listening end"
				 : "kedge tcp 1: the connecting end",
	     first, second);
	sodium_memzero(key, sizeof(key));
}

/* ---- what is sent ---- */

static int say(const struct hand *h, const void *at, size_t len)
{
	ssize_t n = send(h->fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	/* A new connection has room for all of a handshake. */
	if (n == (ssize_t)len)
		return 0;
	return kedge_reason(-ECONNRESET, "the peer left in the handshake");
}

static int hello_fill(struct hello *m, enum hello_role role,
		      const struct tcp_secret *secret,
		      const struct kedge_channel_opts *o, uint32_t flags)
{
	*m = (struct hello){
		.magic = MAGIC,
		.version = VERSION,
		.flags = flags | (secret->set ? HELLO_SECRET : 0),
		.role = role,
		.eager_max = eager_or(o, EAGER_DEFAULT, TCP_EAGER_MAX),
		.unexpected_cnt = o->unexpected_cnt,
		.unexpected_bytes = o->unexpected_bytes,
	};
	if (getrandom(m->nonce, sizeof(m->nonce), 0) != sizeof(m->nonce))
		return kedge_reason(-EIO, "the kernel gives no random numbers");
	return 0;
}

int hand_begin(struct hand *h, int fd, enum hello_role role,
	       const struct tcp_secret *secret,
	       const struct kedge_channel_opts *opts, uint32_t flags)
{
	int rc;

	*h = (struct hand){ .fd = fd, .secret = secret };
	rc = hello_fill(&h->mine, role, secret, opts, flags);
	if (!rc && role == ROLE_CONNECT)
		rc = say(h, &h->mine, sizeof(h->mine));
	return rc;
}

/* ---- what came ---- */

/* 1: all @len bytes of it are there; 0: not yet. */
static int hear(struct hand *h, void *to, size_t len)
{
	ssize_t n;

	while (h->got < len) {
		n = recv(h->fd, (char *)to + h->got, len - h->got,
			 MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0 && h->state == HAND_PROOF)
			return kedge_reason(-EACCES, "the peer closed the "
					    "connection when it should prove "
					    "itself: the secrets differ");
		if (n <= 0)
			return kedge_reason(-ECONNRESET, "the peer left in the "
					    "handshake");
		h->got += (size_t)n;
	}
	h->got = 0;
	return 1;
}

static int no_kedge(void)
{
	return kedge_reason(-EPROTO, "what answers is no kedge channel, or one "
			    "of another version or byte order");
}

static int check_hello(const struct hand *h)
{
	const struct hello *p = &h->theirs;

	if (p->magic != MAGIC || p->version != VERSION ||
	    p->flags & ~(HELLO_SECRET | HELLO_MEET) || p->zero ||
	    p->role != (uint32_t)(ROLE_CONNECT + ROLE_LISTEN) - h->mine.role)
		return no_kedge();
	if (!p->eager_max || p->eager_max > TCP_EAGER_MAX || !p->unexpected_cnt ||
	    p->unexpected_cnt > UNEXPECTED_CNT_MAX ||
	    p->unexpected_bytes < 2ull * p->eager_max ||
	    p->unexpected_bytes > 1u << 30)
		return no_kedge();
	/* Our own words, sent back. */
	if (!memcmp(p->nonce, h->mine.nonce, NONCE_LEN))
		return no_kedge();
	return 0;
}

static int check_flags(const struct hand *h)
{
	const uint32_t differ = h->theirs.flags ^ h->mine.flags;

	if (differ & HELLO_MEET)
		return kedge_reason(-EPROTO, "the peer has another provider");
	if (!differ)
		return 0;
	if (h->secret->set)
		return kedge_reason(-EACCES, "the peer has no secret, and this "
				    "end demands that it proves one");
	return kedge_reason(-EACCES, "the peer asks for a secret: "
			    "kedge_channel_opts.secret or "
			    "KEDGE_CHANNEL_SECRET_FILE");
}

static int hello_received(struct hand *h)
{
	uint8_t proof[KEY_LEN];
	int rc = check_hello(h);

	/* It is told in words, too, that they part for a secret, or a provider. */
	if (!rc && h->mine.role == ROLE_LISTEN)
		rc = say(h, &h->mine, sizeof(h->mine));
	if (!rc)
		rc = check_flags(h);
	if (rc)
		return rc;
	if (!h->secret->set) {
		h->state = HAND_DONE;
		return 1;
	}
	h->state = HAND_PROOF;
	if (h->mine.role == ROLE_LISTEN)
		return 0;
	prove(h, ROLE_CONNECT, proof);
	return say(h, proof, sizeof(proof));
}

static int proof_received(struct hand *h)
{
	enum hello_role mine = h->mine.role, theirs = h->theirs.role;
	uint8_t proof[KEY_LEN];
	int rc;

	prove(h, theirs, proof);
	/* In constant time: it must not tell where they differ. */
	if (sodium_memcmp(proof, h->proof, sizeof(proof)))
		return kedge_reason(-EACCES, "the peer does not know the "
				    "secret");
	if (mine == ROLE_LISTEN) {
		prove(h, mine, proof);
		rc = say(h, proof, sizeof(proof));
		if (rc)
			return rc;
	}
	h->state = HAND_DONE;
	return 1;
}

int hand_step(struct hand *h)
{
	int rc;

	if (h->state == HAND_HELLO) {
		rc = hear(h, &h->theirs, sizeof(h->theirs));
		if (rc == 1)
			rc = hello_received(h);
		/* A server of something else says less, and waits. */
		else if (!rc && h->got >= sizeof(h->theirs.magic) &&
			 h->theirs.magic != MAGIC)
			rc = no_kedge();
		if (rc)
			return rc;
	}
	if (h->state == HAND_PROOF) {
		rc = hear(h, h->proof, sizeof(h->proof));
		return rc == 1 ? proof_received(h) : rc;
	}
	return h->state == HAND_DONE;
}

void hand_peer(const struct hand *h, struct transport_peer *peer)
{
	*peer = (struct transport_peer){
		.eager_max = h->mine.eager_max < h->theirs.eager_max
				     ? h->mine.eager_max : h->theirs.eager_max,
		.unexpected_cnt = h->theirs.unexpected_cnt,
		.unexpected_bytes = h->theirs.unexpected_bytes,
	};
}

void hand_forget(struct hand *h)
{
	sodium_memzero(h->proof, sizeof(h->proof));
}
