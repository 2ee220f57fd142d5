// SPDX-License-Identifier: BSD-2-Clause
/*
 * The secret of a channel comes from the caller, else from the environment. A
 * source that is named and cannot be used is an error, never "no secret".
 */
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "channel/meet/handshake.h"

#define TEXT_VAR "KEDGE_CHANNEL_SECRET"
#define FILE_VAR "KEDGE_CHANNEL_SECRET_FILE"

static int key_of(struct tcp_secret *s, const void *secret, size_t len,
		  const char *where)
{
	static const uint8_t label[] = "kedge tcp 1: key of the secret";
	crypto_auth_hmacsha256_state st;

	if (len < SECRET_MIN || len > SECRET_MAX)
		return kedge_reason(-EINVAL, "%s: a secret has %u to %u bytes, "
				    "not %zu", where, SECRET_MIN, SECRET_MAX,
				    len);
	crypto_auth_hmacsha256_init(&st, secret, len);
	crypto_auth_hmacsha256_update(&st, label, sizeof(label));
	crypto_auth_hmacsha256_final(&st, s->key);
	sodium_memzero(&st, sizeof(st));
	s->set = true;
	return 0;
}

/* Its owner's alone: what others may read is no secret, what they may write is
 * not ours. */
static int check_file(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return kedge_reason(-EACCES, "%s is no file", path);
	if (st.st_uid != geteuid() && st.st_uid)
		return kedge_reason(-EACCES, "%s is of user %u", path,
				    st.st_uid);
	if (st.st_mode & 077)
		return kedge_reason(-EACCES, "%s can be used by others: chmod "
				    "600 %s", path, path);
	return 0;
}

static int key_of_file(struct tcp_secret *s, const char *path)
{
	char text[SECRET_MAX + 2];
	ssize_t n;
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return kedge_reason(-errno, FILE_VAR ": %s: %s", path,
				    strerror(errno));
	rc = check_file(fd, path);
	n = rc ? 0 : read(fd, text, sizeof(text));
	if (n < 0)
		rc = -errno;
	close(fd);
	/* The newline of an editor, or of echo. */
	if (!rc && n && text[n - 1] == '\n')
		n--;
	if (!rc)
		rc = key_of(s, text, (size_t)n, path);
	sodium_memzero(text, sizeof(text));
	return rc;
}

/* The program runs with rights that its caller does not have, and cannot know that
 * the secret is not the caller's; to go on without a secret would let all in. */
static int refuse_caller(const char *name)
{
	return kedge_reason(-EACCES, "%s is not taken from the caller of a "
			    "set-user-ID program: unset it, or have the program "
			    "set kedge_channel_opts.secret", name);
}

static int key_of_environment(struct tcp_secret *s)
{
	const char *text = kedge__env(TEXT_VAR), *path = kedge__env(FILE_VAR);
	struct tcp_secret file = { 0 };
	int rc = 0;

	if (kedge__env_ignored(TEXT_VAR))
		return refuse_caller(TEXT_VAR);
	if (kedge__env_ignored(FILE_VAR))
		return refuse_caller(FILE_VAR);
	if (text)
		rc = key_of(s, text, strlen(text), TEXT_VAR);
	if (!rc && path)
		rc = key_of_file(&file, path);
	if (!rc && text && path && sodium_memcmp(s->key, file.key,
						 sizeof(s->key)))
		rc = kedge_reason(-EINVAL, TEXT_VAR " and the file of " FILE_VAR
				  " differ: unset one");
	if (!rc && path)
		*s = file;
	if (rc)
		tcp_secret_forget(s);
	tcp_secret_forget(&file);
	return rc;
}

int tcp_secret_get(struct tcp_secret *s, const struct kedge_channel_opts *o)
{
	*s = (struct tcp_secret){ 0 };
	if (sodium_init() < 0)
		return kedge_reason(-EIO, "libsodium does not start");
	if (o->secret)
		return key_of(s, o->secret, o->secret_len,
			      "kedge_channel_opts.secret");
	return key_of_environment(s);
}

void tcp_secret_forget(struct tcp_secret *s)
{
	sodium_memzero(s, sizeof(*s));
}
