/* SPDX-License-Identifier: Apache-2.0
 *
 * See visitors.h. A table is searched from end to end: that costs a few
 * microseconds where a handshake costs hundreds, and there is nothing in it that
 * an attacker could make slow. Test: tests/unit/test_visitors.c
 */
#include "common/net/visitors.h"

#include <arpa/inet.h>
#include <openssl/sha.h>
#include <string.h>

#include "common/net/conn.h"

#define NAME_BYTES     64 /* as it is shown */
#define NAMES_AT_START 16

struct budget {
	double left;
	uint64_t since_ns;
	bool begun;
};

struct visitor {
	struct gp_visitor_key key;
	uint64_t used_ns;
	int64_t under_way; /* handshakes */
	struct budget handshakes, wrong_tokens, links, measures;
	int64_t lines;
	uint64_t lines_since_ns, left_out;
	uint64_t device_used_ns[GP_VISITOR_DEVICES];
	char name[NAME_BYTES];
};

struct table {
	struct visitor *visitor;
	int count, cap;
};

struct gp_visitors {
	struct gp_visitor_limits limits;
	void (*left_out)(void *arg, const char *name, uint64_t lines);
	void *arg;
	struct table addresses, names;
};

enum gp_status gp_visitors_new(const struct gp_visitor_limits *limits,
			       void (*left_out)(void *arg, const char *name, uint64_t lines), void *arg,
			       struct gp_visitors **out, struct gp_err *err)
{
	struct gp_visitors *v;
	GP_TRY(gp_alloc_array((void **)&v, 1, sizeof *v, err));
	v->limits = *limits;
	v->left_out = left_out;
	v->arg = arg;
	v->addresses.cap = GP_VISITORS_MAX;
	const enum gp_status status =
		gp_alloc_array((void **)&v->addresses.visitor, GP_VISITORS_MAX, sizeof *v->addresses.visitor, err);
	if (status != GP_OK)
		gp_visitors_free(v);
	else
		*out = v;
	return status;
}

void gp_visitors_free(struct gp_visitors *v)
{
	if (!v)
		return;
	gp_free(v->addresses.visitor);
	gp_free(v->names.visitor);
	gp_free(v);
}

/* --- who it is -------------------------------------------------------------------------------------------------- */

struct gp_visitor_key gp_visitor_of_address(const char *peer)
{
	struct gp_visitor_key key = {0};
	struct in6_addr six;
	struct gp_err ignored;
	char host[256];
	uint16_t port;
	if (gp_addr_parse(peer, host, &port, &ignored) != GP_OK)
		return key;
	host[strcspn(host, "%")] = '\0'; /* the interface of a link-local address */
	if (inet_pton(AF_INET, host, key.bytes) == 1) {
		key.kind = '4';
	} else if (inet_pton(AF_INET6, host, &six) == 1) {
		const bool mapped = IN6_IS_ADDR_V4MAPPED(&six);
		key.kind = mapped ? '4' : '6';
		memcpy(key.bytes, six.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
	}
	return key;
}

struct gp_visitor_key gp_visitor_of_name(const char *who)
{
	struct gp_visitor_key key = {.kind = 'n'};
	uint8_t sum[SHA256_DIGEST_LENGTH];
	SHA256((const uint8_t *)who, strlen(who), sum);
	memcpy(key.bytes, sum, sizeof key.bytes);
	return key;
}

/* --- the table -------------------------------------------------------------------------------------------------- */

static bool is_same(const struct gp_visitor_key *a, const struct gp_visitor_key *b)
{
	return a->kind == b->kind && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static struct table *table_of(struct gp_visitors *v, struct gp_visitor_key key)
{
	return key.kind == 'n' ? &v->names : &v->addresses;
}

static struct visitor *find(struct gp_visitors *v, struct gp_visitor_key key)
{
	struct table *t = table_of(v, key);
	for (int i = 0; i < t->count; i++)
		if (is_same(&t->visitor[i].key, &key))
			return &t->visitor[i];
	return NULL;
}

static void tell_left_out(struct gp_visitors *v, struct visitor *one)
{
	if (one->left_out > 0)
		v->left_out(v->arg, one->name, one->left_out);
	one->left_out = 0;
}

/* NULL when each has a handshake under way. */
static struct visitor *longest_away(struct table *t)
{
	struct visitor *oldest = NULL;
	for (int i = 0; i < t->count; i++) {
		struct visitor *one = &t->visitor[i];
		if (one->under_way == 0 && (!oldest || one->used_ns < oldest->used_ns))
			oldest = one;
	}
	return oldest;
}

static bool grow(struct table *t)
{
	const int cap = t->cap > 0 ? 2 * t->cap : NAMES_AT_START;
	struct visitor *more = gp_realloc(t->visitor, (size_t)cap, sizeof *more);
	if (!more)
		return false;
	t->visitor = more;
	t->cap = cap;
	return true;
}

/* NULL when there is none. */
static struct visitor *room(struct gp_visitors *v, struct table *t, uint64_t now_ns)
{
	if (t->count < t->cap)
		return &t->visitor[t->count++];
	struct visitor *one = longest_away(t);
	const bool remembered = !one || now_ns - one->used_ns < GP_VISITOR_MINUTE;
	if (t == &v->names && remembered)
		return grow(t) ? &t->visitor[t->count++] : NULL;
	if (one)
		tell_left_out(v, one);
	return one;
}

/* NULL when there is no room. */
static struct visitor *enter(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns)
{
	struct visitor *one = find(v, key);
	if (!one) {
		one = room(v, table_of(v, key), now_ns);
		if (!one)
			return NULL;
		*one = (struct visitor){.key = key};
	}
	one->used_ns = now_ns;
	return one;
}

/* --- what it may ------------------------------------------------------------------------------------------------ */

/* A budget of so many a minute, which may be used up at once. */
static bool has_budget(struct budget *b, int64_t per_minute, uint64_t now_ns)
{
	const double most = (double)per_minute;
	if (per_minute <= 0)
		return true;
	b->left = b->begun ? b->left + (double)(now_ns - b->since_ns) * most / (double)GP_VISITOR_MINUTE : most;
	b->left = b->left < most ? b->left : most;
	b->since_ns = now_ns;
	b->begun = true;
	return b->left >= 1.0;
}

bool gp_visitors_handshake(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns)
{
	const struct gp_visitor_limits *most = &v->limits;
	if (most->handshakes <= 0 && most->handshake_rate <= 0)
		return true;
	struct visitor *one = enter(v, key, now_ns);
	if (!one)
		return true;
	if ((most->handshakes > 0 && one->under_way >= most->handshakes) ||
	    !has_budget(&one->handshakes, most->handshake_rate, now_ns))
		return false;
	one->handshakes.left -= 1.0;
	one->under_way++;
	return true;
}

void gp_visitors_handshake_over(struct gp_visitors *v, struct gp_visitor_key key)
{
	struct visitor *one = find(v, key); /* there is none without limits */
	if (one && one->under_way > 0)
		one->under_way--;
}

bool gp_visitors_may_try_token(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns)
{
	struct visitor *one = v->limits.wrong_tokens > 0 ? find(v, key) : NULL;
	return !one || has_budget(&one->wrong_tokens, v->limits.wrong_tokens, now_ns);
}

void gp_visitors_wrong_token(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns)
{
	struct visitor *one = v->limits.wrong_tokens > 0 ? enter(v, key, now_ns) : NULL;
	if (one && has_budget(&one->wrong_tokens, v->limits.wrong_tokens, now_ns))
		one->wrong_tokens.left -= 1.0;
}

/* Takes one. 0, or the nanoseconds after which there will be one. */
static uint64_t take_or_wait(struct budget *b, int64_t per_minute, uint64_t now_ns)
{
	if (per_minute <= 0)
		return 0;
	if (!has_budget(b, per_minute, now_ns))
		return 1 + (uint64_t)((1.0 - b->left) * (double)GP_VISITOR_MINUTE / (double)per_minute);
	b->left -= 1.0;
	return 0;
}

uint64_t gp_visitors_link(struct gp_visitors *v, struct gp_visitor_key key, int64_t per_minute, uint64_t now_ns)
{
	struct visitor *one = enter(v, key, now_ns);
	return one ? take_or_wait(&one->links, per_minute, now_ns) : 0;
}

uint64_t gp_visitors_measure(struct gp_visitors *v, struct gp_visitor_key key, int64_t per_minute, uint64_t now_ns)
{
	struct visitor *one = enter(v, key, now_ns);
	return one ? take_or_wait(&one->measures, per_minute, now_ns) : 0;
}

void gp_visitors_note_used(struct gp_visitors *v, struct gp_visitor_key key, int device, uint64_t used_ns,
			   uint64_t now_ns)
{
	struct visitor *one = enter(v, key, now_ns);
	uint64_t *used = one ? &one->device_used_ns[device] : NULL;
	if (used && *used < used_ns)
		*used = used_ns;
}

uint64_t gp_visitors_used(struct gp_visitors *v, struct gp_visitor_key key, int device)
{
	const struct visitor *one = find(v, key);
	return one ? one->device_used_ns[device] : 0;
}

bool gp_visitors_may_tell(struct gp_visitors *v, struct gp_visitor_key key, const char *name, uint64_t now_ns)
{
	struct visitor *one = v->limits.lines > 0 ? enter(v, key, now_ns) : NULL;
	if (!one)
		return true;
	if (one->lines == 0 || now_ns - one->lines_since_ns >= GP_VISITOR_MINUTE) {
		tell_left_out(v, one);
		one->lines = 0;
		one->lines_since_ns = now_ns;
	}
	if (one->lines < v->limits.lines) {
		one->lines++;
		return true;
	}
	snprintf(one->name, sizeof one->name, "%s", name);
	one->left_out++;
	return false;
}

static void sum_up(struct gp_visitors *v, struct table *t)
{
	for (int i = 0; i < t->count; i++)
		tell_left_out(v, &t->visitor[i]);
}

void gp_visitors_sum_up(struct gp_visitors *v)
{
	sum_up(v, &v->addresses);
	sum_up(v, &v->names);
}
