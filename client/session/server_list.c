/* SPDX-License-Identifier: Apache-2.0
 *
 * The servers that a session may go to. See server_list.h. Test: tests/unit/test_server_list.c
 */
#include "client/session/server_list.h"

#include <string.h>
#include <strings.h>

#define SRV "srv:"

static void entitle(struct gp_server_list *l)
{
	const struct gp_server_entry *e = &l->entry[l->at];
	if (e->srv && l->addresses > 0)
		gp_addr_format(l->address[l->address_at].host, l->address[l->address_at].port, l->title,
			       sizeof l->title);
	else
		snprintf(l->title, sizeof l->title, "%s", e->text);
}

/* Parsing. */

static int find(const struct gp_server_list *l, const char *host, uint16_t port)
{
	for (int i = 0; i < l->count; i++)
		if (l->entry[i].port == port && strcasecmp(l->entry[i].host, host) == 0)
			return i;
	return -1;
}

static enum gp_status read_own(struct gp_server_entry *e, struct gp_err *err)
{
	char probe[GP_SERVER_TEXT + 8];
	e->srv = strncmp(e->text, SRV, strlen(SRV)) == 0;
	if (!e->srv)
		return gp_addr_parse_remote(e->text, e->host, &e->port, err);
	snprintf(probe, sizeof probe, "%s:1", e->text + strlen(SRV));
	if (strchr(e->text + strlen(SRV), ':') || !gp_addr_is_plain(probe))
		GP_FAIL(err, GP_USAGE, "'%s': write srv:NAME, without a port, for example srv:gpsplit.example",
			e->text);
	return gp_addr_parse(probe, e->host, &e->port, err);
}

static enum gp_status add_own(struct gp_server_list *l, const char *text, size_t len, struct gp_err *err)
{
	struct gp_server_entry e = {.told = false};
	for (; len > 0 && *text == ' '; text++)
		len--;
	if (len >= sizeof e.text)
		GP_FAIL(err, GP_USAGE, "an address of %zu characters is too long", len);
	snprintf(e.text, sizeof e.text, "%.*s", (int)len, text);
	GP_TRY(read_own(&e, err));
	if (find(l, e.host, e.port) >= 0)
		GP_FAIL(err, GP_USAGE, "'%s' is in the list twice", e.text);
	if (l->count == GP_SERVERS_OWN)
		GP_FAIL(err, GP_USAGE,
			"the list may have %d servers at most; a name with several addresses counts as one",
			GP_SERVERS_OWN);
	l->entry[l->count++] = e;
	return GP_OK;
}

enum gp_status gp_server_list_parse(struct gp_server_list *l, const char *text, struct gp_err *err)
{
	memset(l, 0, sizeof *l);
	l->address_at = -1;
	l->all_lack = true;
	for (const char *p = text;; p++) {
		const size_t len = strcspn(p, ",");
		if (len == 0 && (p != text || p[len]))
			GP_FAIL(err, GP_USAGE, "--server: '%s' has a comma with no HOST:PORT beside it", text);
		if (add_own(l, p, len, err) != GP_OK)
			return gp_err_prefix(err, "--server");
		p += len;
		if (!*p)
			break;
	}
	l->own = l->count;
	entitle(l);
	return GP_OK;
}

enum gp_status gp_server_list_check(const char *text, struct gp_err *err)
{
	struct gp_server_list l;
	return gp_server_list_parse(&l, text, err);
}

/* Which is asked. */

static struct gp_server_entry *at(struct gp_server_list *l)
{
	return &l->entry[l->at];
}

const struct gp_server_entry *gp_server_list_at(const struct gp_server_list *l)
{
	return &l->entry[l->at];
}

struct gp_server_place gp_server_list_place(const struct gp_server_list *l)
{
	struct gp_server_place p = {.port = l->entry[l->at].port};
	if (l->address_at >= 0 && l->address_at < l->addresses)
		return l->address[l->address_at];
	snprintf(p.host, sizeof p.host, "%s", l->entry[l->at].host);
	return p;
}

bool gp_server_list_wants_records(const struct gp_server_list *l)
{
	return l->entry[l->at].srv && l->addresses == 0;
}

void gp_server_list_looked_up(struct gp_server_list *l, const struct gp_server_place *place, int count)
{
	l->addresses = count < GP_SERVER_ADDRESSES ? count : GP_SERVER_ADDRESSES;
	memcpy(l->address, place, (size_t)l->addresses * sizeof *place);
	l->address_at = 0;
	l->addresses_left = l->addresses - 1;
	entitle(l);
}

/* By its name a server is reached at the first address that answers: those before it do not. */
void gp_server_list_connected(struct gp_server_list *l, char address[][GP_TCP_NUMERIC], int addresses, int index)
{
	if (l->address_at >= 0 || addresses < 2 || addresses > GP_SERVER_ADDRESSES)
		return;
	for (int i = 0; i < addresses; i++) {
		l->address[i].port = l->entry[l->at].port;
		snprintf(l->address[i].host, sizeof l->address[i].host, "%s", address[i]);
	}
	l->addresses = addresses;
	l->address_at = index >= 0 ? index : addresses - 1;
	l->addresses_left = addresses - 1 - l->address_at;
}

/* Its name is looked up anew, unless one of the addresses that it had is not to be asked: that one is not known to lack the
 * run. Where another server comes in between, the whole name waits. */
static void visit(struct gp_server_list *l, int entry, uint64_t now_ns)
{
	const bool skips = entry == l->at && l->left_until_ns > now_ns && l->others_reached;
	if (entry != l->at && at(l)->not_before_ns < l->left_until_ns)
		at(l)->not_before_ns = l->left_until_ns;
	if (entry == l->left_entry && !skips)
		l->spares = false;
	l->at = entry;
	l->others_reached = false;
	l->all_lack = !skips;
	if (skips) {
		l->address_at = (l->left_address + 1) % l->addresses;
		l->addresses_left = l->addresses - 2;
	} else {
		l->addresses = l->addresses_left = 0;
		l->address_at = -1;
		l->left_until_ns = 0;
	}
	entitle(l);
}

/* The order of a round: the home, the user's other ones from there on, those that were named. */
static int in_order(const struct gp_server_list *l, int i)
{
	if (l->home < l->own)
		return i < l->own ? (l->home + i) % l->own : i;
	if (i == 0)
		return l->home;
	return i <= l->home ? i - 1 : i;
}

/* The first in order that was not asked in this round and has room as far as we know; -1: there is none. */
static int find_next(const struct gp_server_list *l, uint64_t now_ns)
{
	for (int i = 0; i < l->count; i++) {
		const int k = in_order(l, i);
		const struct gp_server_entry *e = &l->entry[k];
		if (!e->out && !e->asked && e->not_before_ns <= now_ns)
			return k;
	}
	return -1;
}

static bool has_other_address(const struct gp_server_list *l)
{
	return l->addresses_left > 0 && !l->entry[l->at].out;
}

bool gp_server_list_has_more(const struct gp_server_list *l)
{
	if (has_other_address(l))
		return true;
	for (int i = 0; i < l->count; i++)
		if (i != l->at && !l->entry[i].out && !l->entry[i].asked)
			return true;
	return false;
}

void gp_server_list_search(struct gp_server_list *l, bool away)
{
	for (int i = 0; i < l->count; i++) {
		struct gp_server_entry *e = &l->entry[i];
		e->out = e->lacks = e->asked = false;
		e->not_before_ns = 0;
	}
	l->home = l->at;
	l->rounds = 0;
	l->addresses_left = l->addresses > 0 ? l->addresses - 1 : 0;
	l->lacked = false;
	l->all_lack = !(away && l->addresses > 1); /* the address that it was at may have it */
	l->left_until_ns = 0;
	l->spares = l->others_reached = false;
	at(l)->asked = away;
}

void gp_server_list_leave(struct gp_server_list *l, uint64_t now_ns, uint32_t ms)
{
	const uint64_t until_ns = now_ns + (uint64_t)ms * 1000000;
	l->spares = true;
	l->left_entry = l->at;
	if (l->addresses > 1) {
		l->left_address = l->address_at;
		l->left_until_ns = until_ns;
	} else if (l->count > 1) {
		at(l)->not_before_ns = until_ns;
	}
}

void gp_server_list_reached(struct gp_server_list *l)
{
	l->others_reached |= l->address_at != l->left_address;
}

bool gp_server_list_spares(const struct gp_server_list *l)
{
	return l->spares;
}

void gp_server_list_found(struct gp_server_list *l)
{
	const struct gp_server_entry here = l->entry[l->at];
	l->count = l->own;
	if (!here.told)
		return;
	l->entry[l->count] = here;
	l->at = l->count++;
}

/* When the first of them may be asked again. */
static uint64_t earliest_ns(const struct gp_server_list *l)
{
	uint64_t first = UINT64_MAX;
	for (int i = 0; i < l->count; i++)
		if (!l->entry[i].out && l->entry[i].not_before_ns < first)
			first = l->entry[i].not_before_ns;
	return first;
}

static uint64_t next_round(struct gp_server_list *l, uint64_t now_ns, uint64_t pause_ms)
{
	const uint64_t first = earliest_ns(l);
	uint64_t wait_ms = pause_ms;
	l->rounds++;
	for (int i = 0; i < l->count; i++)
		l->entry[i].asked = false;
	if (first > now_ns && first != UINT64_MAX && (first - now_ns + 999999) / 1000000 > wait_ms)
		wait_ms = (first - now_ns + 999999) / 1000000;
	const int next = find_next(l, now_ns + wait_ms * 1000000);
	visit(l, next >= 0 ? next : l->home, now_ns + wait_ms * 1000000);
	return wait_ms > 0 ? wait_ms : 1;
}

uint64_t gp_server_list_next(struct gp_server_list *l, uint64_t now_ns, uint64_t pause_ms)
{
	at(l)->asked = true;
	l->all_lack &= l->lacked;
	l->lacked = false;
	if (has_other_address(l)) {
		l->addresses_left--;
		l->address_at = (l->address_at + 1) % l->addresses;
		entitle(l);
		return 0;
	}
	const int next = find_next(l, now_ns);
	if (next < 0)
		return next_round(l, now_ns, pause_ms);
	visit(l, next, now_ns);
	return 0;
}

/* What was found out. */

void gp_server_list_defer(struct gp_server_list *l, uint64_t now_ns, uint32_t retry_ms)
{
	const uint64_t until_ns = now_ns + (uint64_t)retry_ms * 1000000;
	if (!has_other_address(l) && at(l)->not_before_ns < until_ns)
		at(l)->not_before_ns = until_ns;
}

bool gp_server_list_drop(struct gp_server_list *l)
{
	if (has_other_address(l))
		return true;
	for (int i = 0; i < l->count; i++)
		if (i != l->at && !l->entry[i].out) {
			at(l)->out = true;
			return true;
		}
	return false;
}

bool gp_server_list_lacks(struct gp_server_list *l)
{
	l->lacked = true;
	if (has_other_address(l))
		return false;
	at(l)->lacks = l->all_lack;
	for (int i = 0; i < l->count; i++)
		if (!l->entry[i].out && !l->entry[i].lacks)
			return false;
	return true;
}

bool gp_server_list_tell(struct gp_server_list *l, const char *text, bool near)
{
	struct gp_server_entry e = {.told = true, .by_near = near};
	struct gp_err ignored;
	if (l->count - l->own == GP_SERVERS_TOLD || strlen(text) >= sizeof e.text ||
	    gp_addr_parse(text, e.host, &e.port, &ignored) != GP_OK || find(l, e.host, e.port) >= 0)
		return false;
	snprintf(e.text, sizeof e.text, "%s", text);
	l->entry[l->count++] = e;
	return true;
}

const char *gp_server_list_names(const struct gp_server_list *l, char out[GP_SERVERS_TEXT])
{
	const int shown = l->count <= 3 ? l->count : 2;
	size_t n = 0;
	out[0] = '\0';
	for (int i = 0; i < shown && n < GP_SERVERS_TEXT; i++)
		n += (size_t)snprintf(out + n, GP_SERVERS_TEXT - n, "%s%.40s",
				      i == 0              ? ""
				      : i == l->count - 1 ? " and "
							  : ", ",
				      l->entry[i].text);
	if (shown < l->count && n < GP_SERVERS_TEXT)
		snprintf(out + n, GP_SERVERS_TEXT - n, " and %d others", l->count - shown);
	return out;
}
