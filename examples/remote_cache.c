// SPDX-License-Identifier: BSD-2-Clause
/*
 * A cache whose clients read its values by themselves, out of a region of the server's.
 *
 *	remote_cache serve [--node ADDR]   prints a handle, then does commands
 *	remote_cache take [--node ADDR]    prints an invitation; once a server was told "migrate
 *					   INVITATION", a handle, and does commands as it did
 *	remote_cache get HANDLE KEY...     prints values
 *	remote_cache watch HANDLE KEY      prints each change, until SIGINT or SIGTERM
 *
 * Commands are lines of stdin: put KEY VALUE, del KEY, grow, trim, stats, migrate INVITATION,
 * quit. Each is answered by a line; that of migrate comes when it is over, the others are
 * answered meanwhile. A put that was answered with "ok" is found by clients from then on.
 * cc remote_cache.c $(pkg-config --cflags --libs kedge) -pthread
 *
 * The region is a header, an index of entries (by the key's hash, linear probing), and a log of
 * blocks, each a key with its value. All that the server has to know is in there, so that a
 * process that takes the region goes on from it.
 *
 * kedge_remote_get() promises that accesses of a thread happen in their order, and that each is
 * whole with regard to a suspension. Of stores at the same time it may find some bytes and miss
 * others. A client still finds no value that is torn or stale, by three rules:
 *
 * - A block is written once, into free space, before an entry tells of it. rebuild() alone uses
 *   space again, and changes the layout's epoch. A client that finds the epoch from before after
 *   it has read a block has read bytes at rest.
 * - An entry changes in its place. Its version is odd meanwhile, and a greater even number then.
 *   A client reads the entry, the block, and the entry again: if the first copy has a store in it,
 *   the second one has that store's version or a later one, and differs. The version's own bytes
 *   may be torn, so the entry has a sum of it, the lengths, key and value, as no mixture has.
 * - The layout changes while the region is suspended, so it is never torn. A client compares it
 *   with its copy after each read, and begins anew if the index has grown or blocks were moved.
 *   An access beyond the end (-EFAULT) means the same.
 *
 * An entry keeps its slot and its key until the epoch changes, also when the key is deleted. So a
 * client that meets an unused slot first has not missed the key.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kedge/migrate.h>
#include <kedge/region.h>
#include <kedge/remote.h>

#define MAGIC	   UINT64_C(0x6568636163676431)
#define FIRST_LEN  UINT64_C(65536)
#define FIRST_CNT  UINT64_C(64)
#define KEY_MAX	   255u
#define VALUE_MAX  65536u
#define TIMEOUT_MS 60000

/* @slot_cnt: entries of the index, a power of two. Numbers are in the server's byte order. */
struct layout {
	uint64_t magic;
	uint64_t epoch, slot_cnt;
};

/* Clients read the layout alone. @version: the last one that was given */
struct header {
	struct layout layout;
	uint64_t version, key_cnt;
	uint64_t used_cnt; /* slots: of keys, and of those that were deleted */
	uint64_t live_len; /* bytes of blocks that entries of keys tell of */
	uint64_t free;	   /* where the next block goes */
};

/* @version: 0: the slot is unused. @offset: of the key, which its value follows */
struct entry {
	uint64_t version, hash, offset;
	uint32_t key_len, value_len;
	uint64_t deleted, sum;
};

static int failed(const char *what, int rc)
{
	fprintf(stderr, "remote_cache: %s: %s\n", what, kedge_strerror(rc));
	return 1;
}

/* FNV-1a: it finds accidents, not forgeries. */
static uint64_t hash_of(uint64_t seed, const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t hash = seed ^ UINT64_C(0xcbf29ce484222325);

	while (len--)
		hash = (hash ^ *p++) * UINT64_C(0x100000001b3);
	return hash;
}

static size_t block_len(const struct entry *e)
{
	return (size_t)e->key_len + e->value_len;
}

/* Without the offset, which rebuild() changes. */
static uint64_t sum_of(const struct entry *e, const void *block)
{
	const uint64_t numbers[] = { e->version, e->key_len, e->value_len, e->deleted };

	return hash_of(hash_of(0, numbers, sizeof(numbers)), block, block_len(e));
}

/* Where slot @i is; the log is where the slot behind the last one would be. */
static uint64_t slot_at(uint64_t i)
{
	return sizeof(struct header) + i * sizeof(struct entry);
}

/*
 * The server. Commands look at its fields with @lock.
 * @frozen: the region is another process's, or may be: it is not touched any more
 * @moving: @mover is in kedge_region_migrate(); with @joinable it is to be joined
 */
struct cache {
	struct kedge_region *region;
	struct header *h;
	uint64_t len;
	pthread_mutex_t lock;
	bool frozen, moving, joinable;
	pthread_t mover;
	struct kedge_handle invitation;
};

static void *at(const struct header *h, uint64_t offset)
{
	return (char *)(uintptr_t)h + offset;
}

/* The key's entry, or the unused one that it would be put into: there is always one. */
static struct entry *find(const struct header *h, const char *key, size_t len)
{
	const uint64_t hash = hash_of(0, key, len);
	struct entry *e;
	uint64_t i = 0;

	do
		e = at(h, slot_at((hash + i++) & (h->layout.slot_cnt - 1)));
	while (e->version && (e->hash != hash || e->key_len != len ||
			      memcmp(at(h, e->offset), key, len)));
	return e;
}

/*
 * Clients read the entry meanwhile. Each store is a release: the odd version is there before any
 * other word changes, and the even one after all of them; the block is there before the offset.
 */
static void store_entry(struct entry *e, const struct entry *to)
{
	__atomic_store_n(&e->version, to->version - 1, __ATOMIC_RELEASE);
	__atomic_store_n(&e->hash, to->hash, __ATOMIC_RELEASE);
	__atomic_store_n(&e->offset, to->offset, __ATOMIC_RELEASE);
	__atomic_store_n(&e->key_len, to->key_len, __ATOMIC_RELEASE);
	__atomic_store_n(&e->value_len, to->value_len, __ATOMIC_RELEASE);
	__atomic_store_n(&e->deleted, to->deleted, __ATOMIC_RELEASE);
	__atomic_store_n(&e->sum, to->sum, __ATOMIC_RELEASE);
	__atomic_store_n(&e->version, to->version, __ATOMIC_RELEASE);
}

static int look_at_region(struct cache *c)
{
	struct kedge_region_info info = { .size = sizeof(info) };
	const int rc = kedge_region_query(c->region, &info);

	if (rc)
		return rc;
	c->h = (struct header *)(uintptr_t)info.addr;
	c->len = info.len;
	return 0;
}

/* The keys with their values, as a region with another index has them: the log has no gaps. */
static struct header *make_image(const struct header *h, uint64_t slot_cnt)
{
	struct header *image = calloc(1, slot_at(slot_cnt) + h->live_len);
	const struct entry *e;
	struct entry *to;
	uint64_t i;

	if (!image)
		return NULL;
	*image = *h;
	image->layout.epoch++;
	image->layout.slot_cnt = slot_cnt;
	image->used_cnt = h->key_cnt;
	image->free = slot_at(slot_cnt);
	for (i = 0; i < h->layout.slot_cnt; i++) {
		e = at(h, slot_at(i));
		if (!e->version || e->deleted)
			continue;
		to = find(image, at(h, e->offset), e->key_len);
		*to = *e;
		to->offset = image->free;
		memcpy(at(image, to->offset), at(h, e->offset), block_len(e));
		image->free += block_len(e);
	}
	return image;
}

/* Another index, or another length, or a log without gaps. Clients wait for one memcpy(). */
static int rebuild(struct cache *c, uint64_t slot_cnt, uint64_t len)
{
	struct header *image = make_image(c->h, slot_cnt);
	int rc = 0, err;

	if (!image)
		return kedge_reason(-ENOMEM, "no memory for an image of the cache");
	if (len > c->len)
		rc = kedge_region_grow(c->region, len);
	if (!rc)
		rc = kedge_region_suspend(c->region, TIMEOUT_MS);
	if (!rc) {
		memcpy(c->h, image, image->free);
		rc = kedge_region_resume(c->region);
	}
	if (!rc && len < c->len)
		rc = kedge_region_trim(c->region, len);
	free(image);
	/* It may be longer than before although a later step failed. */
	err = look_at_region(c);
	return rc ? rc : err;
}

/* The log without gaps, an index that is half full at most, and no more than that takes. */
static int trim(struct cache *c)
{
	uint64_t slot_cnt = FIRST_CNT;

	while (c->h->key_cnt * 2 > slot_cnt)
		slot_cnt *= 2;
	return rebuild(c, slot_cnt, slot_at(slot_cnt) + c->h->live_len);
}

/* For one key more and a block of @len bytes. Deleted keys alone do not make the index grow. */
static int make_room(struct cache *c, uint64_t len)
{
	const struct header *h = c->h;
	uint64_t slot_cnt = h->layout.slot_cnt, region_len = c->len;

	if ((h->used_cnt + 1) * 4 <= slot_cnt * 3 && len <= region_len - h->free)
		return 0;
	if (h->key_cnt * 2 >= slot_cnt)
		slot_cnt *= 2;
	while (region_len < slot_at(slot_cnt) + (h->live_len + len) * 2)
		region_len *= 2;
	return rebuild(c, slot_cnt, region_len);
}

/* @value: NULL: the key is deleted */
static int put(struct cache *c, const char *key, const char *value)
{
	const size_t key_len = strlen(key), value_len = value ? strlen(value) : 0;
	struct header *h = c->h;
	struct entry *e, to;
	bool there;
	int rc;

	if (!key_len || key_len > KEY_MAX || value_len > VALUE_MAX)
		return kedge_reason(-EINVAL, "a key has 1 to %u bytes, a value at most %u",
				    KEY_MAX, VALUE_MAX);
	rc = make_room(c, key_len + value_len);
	if (rc)
		return rc;
	e = find(h, key, key_len);
	there = e->version && !e->deleted;
	if (!value && !there)
		return kedge_reason(-ENOENT, "there is no such key");
	h->version += 2;
	to = (struct entry){ h->version, hash_of(0, key, key_len), h->free, (uint32_t)key_len,
			     (uint32_t)value_len, !value, 0 };
	memcpy(at(h, h->free), key, key_len);
	memcpy(at(h, h->free + key_len), value ? value : "", value_len);
	to.sum = sum_of(&to, at(h, h->free));
	h->free += block_len(&to);
	h->used_cnt += !e->version;
	h->key_cnt += !!value - (uint64_t)there;
	h->live_len += (value ? block_len(&to) : 0) - (there ? block_len(e) : 0);
	store_entry(e, &to);
	return 0;
}

/* Commands look at @frozen, so that the last store in the region is before the return. */
static int freeze(void *arg)
{
	struct cache *c = arg;

	pthread_mutex_lock(&c->lock);
	c->frozen = true;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void *move(void *arg)
{
	struct cache *c = arg;
	struct kedge_migrate_opts opts = { .size = sizeof(opts), .freeze = freeze, .arg = c };
	struct kedge_migrate_info info = { .size = sizeof(info) };
	const int rc = kedge_region_migrate(c->region, &c->invitation, &opts, &info);

	pthread_mutex_lock(&c->lock);
	c->moving = false;
	/* With -EINPROGRESS it is here or there: the command, once more, asks again. */
	if (rc && rc != -EINPROGRESS && rc != -EREMCHG)
		c->frozen = false;
	if (rc)
		printf("error: migrate: %s\n", kedge_strerror(rc));
	else
		printf("migrated: %u rounds, clients waited for %" PRIu64 " us\n", info.rounds,
		       info.pause_ns / 1000);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* Commands go on while the region is copied. One that is frozen has its invitation already. */
static int migrate(struct cache *c, const char *text)
{
	int rc = 0;

	if (c->moving)
		rc = kedge_reason(-EBUSY, "the cache migrates already");
	else if (!c->frozen)
		rc = kedge_handle_parse(text, &c->invitation);
	if (rc)
		return rc;
	if (c->joinable)
		pthread_join(c->mover, NULL);
	rc = -pthread_create(&c->mover, NULL, move, c);
	c->joinable = c->moving = !rc;
	return rc;
}

/* With the lock. A command that changes the cache is answered with its version. */
static void command(struct cache *c, char *line)
{
	const char *name = strsep(&line, " "), *key = line ? strsep(&line, " ") : "";
	const struct header *h = c->h;
	int rc;

	if (!strcmp(name, "migrate"))
		rc = migrate(c, key);
	else if (c->frozen)
		rc = kedge_reason(-EREMCHG, "the cache has moved, or is about to");
	else if (!strcmp(name, "put"))
		rc = put(c, key, line ? line : "");
	else if (!strcmp(name, "del"))
		rc = put(c, key, NULL);
	else if (!strcmp(name, "grow"))
		rc = rebuild(c, h->layout.slot_cnt * 2, c->len * 2);
	else if (!strcmp(name, "trim"))
		rc = trim(c);
	else if (!strcmp(name, "stats"))
		rc = printf("%" PRIu64 " keys, %" PRIu64 " slots, %" PRIu64 " of %" PRIu64
			    " bytes used\n", h->key_cnt, h->layout.slot_cnt, h->free, c->len);
	else
		rc = kedge_reason(-EINVAL, "no command is called \"%s\"", name);
	if (rc < 0)
		printf("error: %s: %s\n", name, kedge_strerror(rc));
	else if (!rc && strcmp(name, "migrate"))
		printf("ok %" PRIu64 "\n", h->version);
}

static void commands(struct cache *c)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, stdin) > 0 && strcmp(line, "quit\n")) {
		line[strcspn(line, "\n")] = 0;
		pthread_mutex_lock(&c->lock);
		command(c, line);
		pthread_mutex_unlock(&c->lock);
	}
	free(line);
	if (c->joinable)
		pthread_join(c->mover, NULL);
}

static int say_handle(const struct kedge_handle *handle)
{
	char text[KEDGE_HANDLE_TEXT];
	const int rc = kedge_handle_print(handle, text, sizeof(text));

	if (!rc)
		printf("%s\n", text);
	return rc;
}

static int take(struct cache *c, const char *node)
{
	const struct kedge_invitation_opts opts = { .size = sizeof(opts), .node = node };
	struct kedge_invitation *invitation;
	struct kedge_handle handle;
	int rc = kedge_invitation_open(&opts, &invitation, &handle);

	if (rc)
		return rc;
	rc = say_handle(&handle);
	if (!rc)
		rc = kedge_invitation_accept(invitation, -1, &c->region);
	kedge_invitation_close(invitation);
	return rc;
}

/* Clients of a former server go on. Its handle leads others here only for as long as it lives. */
static int serve(const char *role, const char *node)
{
	static struct cache c = { .lock = PTHREAD_MUTEX_INITIALIZER };
	const struct kedge_handle_opts opts = { .size = sizeof(opts), .node = node,
						.access = KEDGE_HANDLE_READ };
	struct kedge_handle handle;
	int rc = strcmp(role, "take") ? kedge_region_create(FIRST_LEN, NULL, &c.region)
				     : take(&c, node);

	if (!rc)
		rc = look_at_region(&c);
	/* A region is zeroed when it is created. */
	if (!rc && !c.h->layout.magic)
		*c.h = (struct header){ { MAGIC, 0, FIRST_CNT }, .free = slot_at(FIRST_CNT) };
	if (!rc && c.h->layout.magic != MAGIC)
		rc = kedge_reason(-EPROTO, "the region is no cache");
	if (!rc)
		rc = kedge_region_advertise(c.region, &opts, &handle);
	if (!rc)
		rc = say_handle(&handle);
	if (!rc)
		commands(&c);
	kedge_region_close(c.region);
	return rc ? failed(role, rc) : 0;
}

#define AGAIN 1 /* the server was changing it */

/* A client. @remote: NULL: the handle has to be opened. @block: of @entry, and a 0 */
struct client {
	struct kedge_handle handle;
	struct kedge_remote *remote;
	struct layout layout;
	struct entry entry;
	char block[KEY_MAX + VALUE_MAX + 1];
};

/* AGAIN: it is another one than before. 0: what was loaded in between is of this one. */
static int load_layout(struct client *c)
{
	const struct layout before = c->layout;
	const int rc = kedge_remote_get(c->remote, 0, &c->layout, sizeof(c->layout), TIMEOUT_MS);

	if (rc)
		return rc;
	if (c->layout.magic != MAGIC)
		return kedge_reason(-EPROTO, "that is no cache, or one of another byte order");
	return memcmp(&before, &c->layout, sizeof(before)) ? AGAIN : 0;
}

/* The block of c->entry, which is at @slot. */
static int load_block(struct client *c, uint64_t slot)
{
	const struct entry *e = &c->entry;
	struct entry after;
	int rc;

	if (e->version % 2 || e->key_len > KEY_MAX || e->value_len > VALUE_MAX)
		return AGAIN;
	rc = kedge_remote_get(c->remote, e->offset, c->block, block_len(e), TIMEOUT_MS);
	if (!rc)
		rc = kedge_remote_get(c->remote, slot, &after, sizeof(after), TIMEOUT_MS);
	if (!rc && (memcmp(&after, e, sizeof(after)) || sum_of(e, c->block) != e->sum))
		rc = AGAIN;
	c->block[block_len(e)] = 0;
	return rc;
}

/* 0: c->entry and c->block are of the key. Or AGAIN, -ENOENT, or another error. */
static int try_get(struct client *c, const char *key)
{
	const size_t len = strlen(key);
	const uint64_t hash = hash_of(0, key, len);
	bool found = false;
	uint64_t slot, i;
	int rc = 0, err;

	for (i = 0; !rc && !found && i < c->layout.slot_cnt; i++) {
		slot = slot_at((hash + i) & (c->layout.slot_cnt - 1));
		rc = kedge_remote_get(c->remote, slot, &c->entry, sizeof(c->entry), TIMEOUT_MS);
		if (!rc && !c->entry.version)
			break;
		if (rc || c->entry.hash != hash || c->entry.key_len != len)
			continue;
		rc = load_block(c, slot);
		found = !rc && !memcmp(c->block, key, len);
	}
	if (rc && rc != AGAIN && rc != -EFAULT)
		return rc;
	err = load_layout(c);
	if (err || rc)
		return err ? err : AGAIN;
	return found && !c->entry.deleted ? 0 : -ENOENT;
}

/* 0: c->entry and the value behind the key in c->block. After an error it opens the handle anew. */
static int client_get(struct client *c, const char *key)
{
	const time_t begun = time(NULL);
	int rc = c->remote ? 0 : kedge_remote_open(&c->handle, TIMEOUT_MS, &c->remote);

	if (rc)
		return rc;
	do
		rc = try_get(c, key);
	while (rc == AGAIN && !sched_yield() && time(NULL) - begun <= TIMEOUT_MS / 1000);
	if (rc == AGAIN)
		rc = kedge_reason(-ETIMEDOUT, "the server does not end a change");
	if (rc && rc != -ENOENT) {
		kedge_remote_close(c->remote);
		c->remote = NULL;
	}
	return rc;
}

static int get(struct client *c, char *const *keys)
{
	int rc, bad = 0;

	for (; *keys; keys++) {
		rc = client_get(c, *keys);
		if (rc)
			bad = failed(*keys, rc);
		else
			printf("%s %s\n", *keys, c->block + c->entry.key_len);
	}
	return bad;
}

static volatile sig_atomic_t over;

static void on_signal(int number)
{
	over = number;
}

/* Versions only rise, so one that is lower than before would be of a stale value. */
static int watch(struct client *c, const char *key)
{
	const struct sigaction act = { .sa_handler = on_signal };
	const struct timespec pause = { 0, 100000000 };
	uint64_t reads, errors = 0, version = 0;
	int rc;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	for (reads = 0; !over; reads++) {
		rc = client_get(c, key);
		if (!rc && c->entry.version < version)
			rc = kedge_reason(-EBADMSG, "the value is stale");
		if (rc && rc != -ENOENT) {
			errors++;
			failed(key, rc);
			nanosleep(&pause, NULL);
		} else if (!rc && c->entry.version != version) {
			version = c->entry.version;
			printf("%" PRIu64 " %s\n", version, c->block + c->entry.key_len);
		}
	}
	printf("%" PRIu64 " reads, %" PRIu64 " errors\n", reads, errors);
	return errors > 0;
}

int main(int argc, char **argv)
{
	static struct client c;
	const char *role = argc > 1 ? argv[1] : "";
	const bool watches = argc == 4 && !strcmp(role, "watch");
	int rc;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if ((!strcmp(role, "serve") || !strcmp(role, "take")) &&
	    (argc == 2 || (argc == 4 && !strcmp(argv[2], "--node"))))
		return serve(role, argc == 4 ? argv[3] : NULL);
	if (!watches && (argc < 4 || strcmp(role, "get"))) {
		fprintf(stderr, "usage: remote_cache serve|take [--node ADDR]\n"
			"       remote_cache get HANDLE KEY... | watch HANDLE KEY\n");
		return 2;
	}
	rc = kedge_handle_parse(argv[2], &c.handle);
	if (rc)
		return failed("handle", rc);
	rc = watches ? watch(&c, argv[3]) : get(&c, argv + 3);
	kedge_remote_close(c.remote);
	return rc;
}
