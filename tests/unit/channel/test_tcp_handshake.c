// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handshake over TCP, between two ends of one process or with a stranger who
 * says what he likes.
 */
#include "base/base.h"
#include "channel/meet/handshake.h"
#include "core.h"

static const uint8_t secret_1[] = "0123456789abcdef";
static const uint8_t secret_2[] = "0123456789abcdeF";

static struct kedge_channel_opts opts;
static struct tcp_secret none, first, second;
static struct hand c, l; /* connecting and listening */
static int sv[2];

static struct tcp_secret secret_of(const uint8_t *text)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .secret = text,
					.secret_len = text ? 16 : 0 };
	struct tcp_secret s;

	assert_int_equal(tcp_secret_get(&s, &o), 0);
	assert_int_equal(s.set, text != NULL);
	return s;
}

static int setup(void **state)
{
	assert_int_equal(kedge__channel_opts(&opts, NULL), 0);
	none = secret_of(NULL);
	first = secret_of(secret_1);
	second = secret_of(secret_2);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	return 0;
}

static int teardown(void **state)
{
	close(sv[0]);
	close(sv[1]);
	return 0;
}

/* From the beginning, within a case. */
static void again(void **state)
{
	teardown(state);
	setup(state);
}

static void begin(const struct tcp_secret *of_c, const struct tcp_secret *of_l)
{
	assert_int_equal(hand_begin(&l, sv[1], ROLE_LISTEN, of_l, &opts, 0), 0);
	assert_int_equal(hand_begin(&c, sv[0], ROLE_CONNECT, of_c, &opts, 0), 0);
}

static void stranger(const void *says, size_t len)
{
	assert_int_equal(send(sv[0], says, len, 0), (ssize_t)len);
}

static void agrees_without_a_secret(void **state)
{
	struct transport_peer peer;

	begin(&none, &none);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(hand_step(&l), 1);
	assert_int_equal(hand_step(&c), 1);
	hand_peer(&c, &peer);
	assert_int_equal(peer.eager_max, 8192);
	assert_int_equal(peer.unexpected_bytes, opts.unexpected_bytes);
}

/* One half of what an option may say was refused as none of kedge's. */
static void agrees_on_the_longest_eager_messages(void **state)
{
	struct transport_peer peer;

	opts.eager_max = EAGER_LIMIT; /* more than TCP takes */
	begin(&none, &none);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(hand_step(&l), 1);
	assert_int_equal(hand_step(&c), 1);
	hand_peer(&c, &peer);
	assert_int_equal(peer.eager_max, TCP_EAGER_MAX);
}

static void agrees_with_one(void **state)
{
	begin(&first, &first);
	assert_int_equal(hand_step(&l), 0);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(hand_step(&l), 1);
	assert_int_equal(hand_step(&c), 1);
}

static void leaves_what_follows(void **state)
{
	char rest[8] = "";

	begin(&none, &none);
	stranger("rest", 4);
	assert_int_equal(hand_step(&l), 1);
	assert_int_equal(recv(sv[1], rest, sizeof(rest), 0), 4);
	assert_memory_equal(rest, "rest", 4);
}

/* Before all of a hello is there, which will never be. */
static void another_server_is_known_by_its_first_words(void **state)
{
	begin(&none, &none);
	assert_int_equal(send(sv[1], "220 mail", 7, 0), 7);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(send(sv[1], "l", 1, 0), 1);
	assert_int_equal(hand_step(&c), -EPROTO);
}

static void one_that_meets_is_no_channel(void **state)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (i)
			again(state);
		assert_int_equal(hand_begin(&l, sv[1], ROLE_LISTEN, &first,
					    &opts, i ? HELLO_MEET : 0), 0);
		assert_int_equal(hand_begin(&c, sv[0], ROLE_CONNECT, &first,
					    &opts, i ? 0 : HELLO_MEET), 0);
		assert_int_equal(hand_step(&l), -EPROTO);
		assert_int_equal(hand_step(&c), -EPROTO);
	}
}

static void different_secrets_part(void **state)
{
	begin(&first, &second);
	assert_int_equal(hand_step(&l), 0);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(hand_step(&l), -EACCES);
	shutdown(sv[1], SHUT_RDWR);
	assert_int_equal(hand_step(&c), -EACCES);
}

static void a_secret_on_one_end_is_refused_by_both(void **state)
{
	begin(&none, &first);
	assert_int_equal(hand_step(&l), -EACCES);
	assert_int_equal(hand_step(&c), -EACCES);
	assert_non_null(strstr(kedge_strerror(-EACCES),
			       "KEDGE_CHANNEL_SECRET_FILE"));
	again(state);
	begin(&first, &none);
	assert_int_equal(hand_step(&l), -EACCES);
	assert_int_equal(hand_step(&c), -EACCES);
}

/* Nothing that depends on the secret is said to one who has not proved it. */
static void the_listener_proves_itself_last(void **state)
{
	uint8_t text[512];

	begin(&first, &first);
	assert_int_equal(hand_step(&l), 0);
	assert_int_equal(recv(sv[0], text, sizeof(text), MSG_DONTWAIT),
			 sizeof(struct hello));
	assert_int_equal(hand_step(&l), 0);
	assert_int_equal(recv(sv[0], text, sizeof(text), MSG_DONTWAIT), -1);
}

static void ones_own_words_are_no_answer(void **state)
{
	struct hello mirror;
	uint8_t proof[KEY_LEN];

	/* To the end that connects. */
	begin(&first, &first);
	mirror = c.mine;
	send(sv[1], &mirror, sizeof(mirror), 0);
	assert_int_equal(hand_step(&c), -EPROTO);
	/* The same with the other role. */
	again(state);
	begin(&first, &first);
	mirror = c.mine;
	mirror.role = ROLE_LISTEN;
	send(sv[1], &mirror, sizeof(mirror), 0);
	assert_int_equal(hand_step(&c), -EPROTO);
	/* With another nonce, and its own proof for an answer. */
	again(state);
	begin(&first, &first);
	mirror = c.mine;
	mirror.role = ROLE_LISTEN;
	mirror.nonce[0] ^= 1;
	send(sv[1], &mirror, sizeof(mirror), 0);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(recv(sv[1], &mirror, sizeof(mirror), 0),
			 sizeof(mirror));
	assert_int_equal(recv(sv[1], proof, sizeof(proof), 0), sizeof(proof));
	send(sv[1], proof, sizeof(proof), 0);
	assert_int_equal(hand_step(&c), -EACCES);
}

static void what_was_heard_before_is_no_proof(void **state)
{
	struct hello said;
	uint8_t proof[KEY_LEN];

	begin(&first, &first);
	said = c.mine;
	assert_int_equal(hand_step(&l), 0);
	assert_int_equal(hand_step(&c), 0);
	assert_int_equal(recv(sv[1], proof, sizeof(proof), MSG_PEEK),
			 sizeof(proof));
	assert_int_equal(hand_step(&l), 1);

	again(state);
	assert_int_equal(hand_begin(&l, sv[1], ROLE_LISTEN, &first, &opts, 0), 0);
	stranger(&said, sizeof(said));
	stranger(proof, sizeof(proof));
	assert_int_equal(hand_step(&l), -EACCES);
}

/* Each bit of a hello, on its way in either direction. */
static void a_changed_hello_is_seen(void **state)
{
	struct hello h;
	size_t bit;
	int rc;

	for (bit = 0; bit < 8 * sizeof(h); bit++) {
		again(state);
		begin(&first, &first);
		assert_int_equal(recv(sv[1], &h, sizeof(h), 0), sizeof(h));
		((uint8_t *)&h)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		stranger(&h, sizeof(h));
		rc = hand_step(&l);
		if (!rc) {
			assert_int_equal(hand_step(&c), 0);
			rc = hand_step(&l);
		}
		assert_true(rc == -EPROTO || rc == -EACCES);

		again(state);
		begin(&first, &first);
		assert_int_equal(hand_step(&l), 0);
		assert_int_equal(recv(sv[0], &h, sizeof(h), 0), sizeof(h));
		((uint8_t *)&h)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		send(sv[1], &h, sizeof(h), 0);
		rc = hand_step(&c);
		if (!rc)
			rc = hand_step(&l);
		assert_true(rc == -EPROTO || rc == -EACCES);
	}
}

static void each_wrong_field_is_refused(void **state)
{
	struct hello h;
	size_t i;

	for (i = 0; i < 9; i++) {
		again(state);
		begin(&none, &none);
		h = c.mine;
		recv(sv[1], &(struct hello){ 0 }, sizeof(h), 0);
		switch (i) {
		case 0: h.magic ^= 1; break;
		case 1: h.version++; break;
		case 2: h.flags |= 2; break;
		case 3: h.role = 3; break;
		case 4: h.eager_max = 0; break;
		case 5: h.eager_max = TCP_EAGER_MAX + 1; break;
		case 6: h.unexpected_cnt = UNEXPECTED_CNT_MAX + 1; break;
		case 7: h.unexpected_bytes = h.eager_max; break;
		case 8: h.unexpected_bytes = UINT64_MAX; break;
		}
		stranger(&h, sizeof(h));
		assert_int_equal(hand_step(&l), -EPROTO);
	}
}

static void a_part_of_a_hello_is_waited_for(void **state)
{
	struct hello h;
	size_t i;

	assert_int_equal(hand_begin(&l, sv[1], ROLE_LISTEN, &none, &opts, 0), 0);
	assert_int_equal(hand_begin(&c, sv[0], ROLE_CONNECT, &none, &opts, 0), 0);
	h = c.mine;
	recv(sv[1], &(struct hello){ 0 }, sizeof(h), 0);
	for (i = 0; i + 1 < sizeof(h); i++) {
		stranger((char *)&h + i, 1);
		assert_int_equal(hand_step(&l), 0);
	}
	shutdown(sv[0], SHUT_WR);
	assert_int_equal(hand_step(&l), -ECONNRESET);
}

/* ---- where the secret comes from ---- */

/* True: the environment is as a set-user-ID program sees it. */
static bool set_user_id;
char *__real_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name);
char *__wrap_secure_getenv(const char *name)
{
	return set_user_id ? NULL : __real_secure_getenv(name);
}

static int from_file(const char *text, size_t len, mode_t mode)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	char path[] = "/tmp/kedge-secret-XXXXXX";
	struct tcp_secret s;
	int rc, fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
	setenv("KEDGE_CHANNEL_SECRET_FILE", path, 1);
	rc = tcp_secret_get(&s, &o);
	if (!rc)
		assert_memory_equal(&s, &first, sizeof(s));
	unlink(path);
	if (!rc)
		assert_int_equal(tcp_secret_get(&s, &o), -ENOENT);
	unsetenv("KEDGE_CHANNEL_SECRET_FILE");
	return rc;
}

static void a_file_is_its_owners_alone(void **state)
{
	assert_int_equal(from_file("0123456789abcdef\n", 17, 0600), 0);
	assert_int_equal(from_file("0123456789abcdef", 16, 0400), 0);
	assert_int_equal(from_file("0123456789abcdef\n", 17, 0640), -EACCES);
	assert_int_equal(from_file("0123456789abcdef\n", 17, 0602), -EACCES);
	assert_int_equal(from_file("0123456789abcde\n", 16, 0600), -EINVAL);
	assert_int_equal(from_file("", 0, 0600), -EINVAL);
}

static void a_secret_that_cannot_be_used_is_an_error(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o), .secret = "short",
					.secret_len = 5 };
	struct tcp_secret s;

	assert_int_equal(tcp_secret_get(&s, &o), -EINVAL);
	assert_false(s.set);
	o.secret = NULL;
	assert_int_equal(kedge__channel_opts(&opts, &o), -EINVAL);
	o.secret_len = 0;
	setenv("KEDGE_CHANNEL_SECRET", "short", 1);
	assert_int_equal(tcp_secret_get(&s, &o), -EINVAL);
	setenv("KEDGE_CHANNEL_SECRET", "0123456789abcdef", 1);
	assert_int_equal(tcp_secret_get(&s, &o), 0);
	assert_memory_equal(&s, &first, sizeof(s));
	unsetenv("KEDGE_CHANNEL_SECRET");
	setenv("KEDGE_CHANNEL_SECRET_FILE", "/", 1);
	assert_int_equal(tcp_secret_get(&s, &o), -EACCES);
	unsetenv("KEDGE_CHANNEL_SECRET_FILE");
}

/* The text was taken, and nobody looked at the file. */
static void of_both_sources_each_is_looked_at(void **state)
{
	struct kedge_channel_opts o = { .size = sizeof(o) };
	struct tcp_secret s;

	setenv("KEDGE_CHANNEL_SECRET", "0123456789abcdef", 1);
	assert_int_equal(from_file("0123456789abcdef\n", 17, 0600), 0);
	assert_int_equal(from_file("0123456789abcdef\n", 17, 0644), -EACCES);
	/* Two that differ are refused. */
	assert_int_equal(from_file("0123456789abcdeF\n", 17, 0600), -EINVAL);
	setenv("KEDGE_CHANNEL_SECRET_FILE", "/nowhere", 1);
	assert_int_equal(tcp_secret_get(&s, &o), -ENOENT);
	assert_false(s.set);
	unsetenv("KEDGE_CHANNEL_SECRET_FILE");
	/* The caller's options name one: the environment is not asked. */
	setenv("KEDGE_CHANNEL_SECRET", "short", 1);
	s = secret_of(secret_1);
	assert_memory_equal(&s, &first, sizeof(s));
	unsetenv("KEDGE_CHANNEL_SECRET");
}

/* It was as if there were none: every caller was let in. */
static void a_set_user_id_program_has_no_secret_of_its_caller(void **state)
{
	static const char *const names[] = { "KEDGE_CHANNEL_SECRET",
					     "KEDGE_CHANNEL_SECRET_FILE" };
	struct kedge_channel_opts o = { .size = sizeof(o) };
	struct tcp_secret s;
	size_t i;

	set_user_id = true;
	assert_int_equal(tcp_secret_get(&s, &o), 0);
	for (i = 0; i < 2; i++) {
		setenv(names[i], "0123456789abcdef", 1);
		assert_int_equal(tcp_secret_get(&s, &o), -EACCES);
		assert_non_null(strstr(kedge_strerror(-EACCES), names[i]));
		assert_false(s.set);
		s = secret_of(secret_1);
		assert_memory_equal(&s, &first, sizeof(s));
		unsetenv(names[i]);
	}
	set_user_id = false;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(agrees_without_a_secret),
		TEST(agrees_on_the_longest_eager_messages),
		TEST(agrees_with_one),
		TEST(leaves_what_follows),
		TEST(different_secrets_part),
		TEST(another_server_is_known_by_its_first_words),
		TEST(one_that_meets_is_no_channel),
		TEST(a_secret_on_one_end_is_refused_by_both),
		TEST(the_listener_proves_itself_last),
		TEST(ones_own_words_are_no_answer),
		TEST(what_was_heard_before_is_no_proof),
		TEST(a_changed_hello_is_seen),
		TEST(each_wrong_field_is_refused),
		TEST(a_part_of_a_hello_is_waited_for),
		TEST(a_file_is_its_owners_alone),
		TEST(a_secret_that_cannot_be_used_is_an_error),
		TEST(of_both_sources_each_is_looked_at),
		TEST(a_set_user_id_program_has_no_secret_of_its_caller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
