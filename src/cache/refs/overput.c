// SPDX-License-Identifier: BSD-2-Clause
/*
 * A put too many. All holders of a registration have the same pointer to it, so a put of what its
 * caller has put before takes the reference of another, and no count shows that while the other
 * holds it. Where nobody else holds it, the sum of the counts falls below 0. If that is seen, the
 * put is undone, so that it takes no reference of a later get, and it is counted and told. ticket.c
 * sees each, where each get has a pointer of its own.
 *
 * When a sum is looked at: at each put under the lock; where a region may die; and where a put
 * leaves its thread's count below 0. The last is ordinary where other threads get what this one
 * puts, so looks that find no error become rarer. A put that leaves its thread's count at 0 or
 * above is not looked at: after a put too many by another thread its sum may be below 0 unseen,
 * and a later get of a third makes up for it. To look at each put would cost more than the put.
 *
 * Proof that a sum below 0 is no accident of its being added up while threads get and put. Where
 * no lookup finds the region there are no gets, and counts only fall: the sum that is read is at
 * least the true one. Where lookups find it, the counts are added up twice with the sections of
 * the records around them: sections, counts; counts, sections. No get under the lock comes between,
 * as the lock is held. Any other enters its section before it adds, and leaves it after. If all
 * sections are even and their sum is the same both times, then none has changed, as they only grow,
 * and no thread has added to a count from before the first reading of it until after the second. So
 * counts have only fallen in between, and if their sum is the same, then none has. So there was a
 * moment between the two at which the counts were what was read. A get happens before its put:
 * where the first reading saw the put, the second, which is later, has seen the get, and found it
 * in the first as well.
 */
#include "cache/hit.h"

#define LOOKS	     16
#define PATIENCE_MAX 1023

static bool sections_sum(const struct kedge_cache *c, uint64_t *sum)
{
	const struct thread_rec *rec;
	uint64_t s;

	*sum = 0;
	for (rec = c->recs; rec; rec = rec->next) {
		s = atomic_load_explicit(&rec->section, memory_order_acquire);
		if (s & 1)
			return false;
		*sum += s;
	}
	return true;
}

/* False: it is not known. */
static bool sum_at_one_moment(struct kedge_cache *c, uint32_t id, uint32_t *sum)
{
	uint64_t before, after;

	if (!sections_sum(c, &before))
		return false;
	*sum = refs_sum(c, id);
	return refs_sum(c, id) == *sum && sections_sum(c, &after) &&
	       before == after;
}

static bool lookups_find(struct kedge_cache *c, uint32_t id)
{
	uint32_t state = state_of(&c->regions[id]);

	return is_whole(state) || is_holed(state) || cold_at(c, id)->in_limbo;
}

/* The puts too many of @id, as far as is known. */
static uint32_t too_many(struct kedge_cache *c, uint32_t id)
{
	uint32_t sum;
	int i;

	if (!lookups_find(c, id))
		sum = refs_sum(c, id);
	else {
		for (i = 0; i < LOOKS && !sum_at_one_moment(c, id, &sum); i++)
			;
		if (i == LOOKS)
			return 0;
	}
	return (int32_t)sum < 0 ? 0 - sum : 0;
}

static void note(struct kedge_cache *c, uint32_t id, uint32_t cnt)
{
	const struct region *r = &c->regions[id];

	c->st.overputs += cnt;
	if (c->overput.told)
		return;
	c->overput.told = true;
	c->overput.addr = r->mr.addr;
	c->overput.len = r->mr.len;
	atomic_store_explicit(&c->overput.news, true, memory_order_release);
}

void overput_settle(struct kedge_cache *c, uint32_t id)
{
	uint32_t cnt = too_many(c, id);

	if (!cnt)
		return;
	ref_add(c, id, cnt);
	note(c, id, cnt);
}

void overput_count(struct kedge_cache *c)
{
	pthread_mutex_lock(&c->lock);
	c->st.overputs++;
	pthread_mutex_unlock(&c->lock);
}

/* Without the lock, as the program's log function may make calls of its own. */
void overput_tell(struct kedge_cache *c)
{
	if (!atomic_load_explicit(&c->overput.news, memory_order_relaxed) ||
	    !atomic_exchange_explicit(&c->overput.news, false, memory_order_acquire))
		return;
	kedge__log(KEDGE_LOG_ERROR,
		   "kedge_cache_put() without a get, of the registration of 0x%llx + %llu: it "
		   "counts for nothing, but an earlier one may have ended what another holder "
		   "relies on. KEDGE_VERIFY=1 names the callers",
		   (unsigned long long)c->overput.addr,
		   (unsigned long long)c->overput.len);
}

/* With the lock held. True: the put was one too many, and the thread's count has it back. */
static bool look(struct kedge_cache *c, uint32_t id, struct thread_rec *rec)
{
	uint32_t cnt = too_many(c, id);

	if (!cnt)
		return false;
	if (rec)
		add_own(&rec->refs[id], cnt);
	else
		ref_add(c, id, cnt);
	note(c, id, cnt);
	return true;
}

static void be_patient(struct thread_rec *rec)
{
	rec->looks_after = rec->patience;
	rec->patience = 2 * rec->patience + 1;
	if (rec->patience > PATIENCE_MAX)
		rec->patience = PATIENCE_MAX;
}

void overput_suspect(struct kedge_cache *c, uint32_t id)
{
	struct thread_rec *rec = has_last_rec(c) ? last_rec.rec : NULL;
	bool found;
	int saved;

	if (rec && rec->looks_after) {
		rec->looks_after--;
		return;
	}
	if (!nf_owned(c->nf))
		return; /* a forked child: its counts are of no use */
	saved = cancel_disable();
	pthread_mutex_lock(&c->lock);
	found = look(c, id, rec);
	pthread_mutex_unlock(&c->lock);
	overput_tell(c);
	cancel_restore(saved);
	if (rec && !found)
		be_patient(rec);
}
