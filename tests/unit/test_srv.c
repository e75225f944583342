/* SPDX-License-Identifier: Apache-2.0
 *
 * SRV records (common/net/srv.h): answers of a name server, whole, cut short and false, and the order by priority and weight.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/srv.h"

struct message {
	uint8_t bytes[1024];
	size_t len;
};

static void put16(struct message *m, unsigned v)
{
	m->bytes[m->len++] = (uint8_t)(v >> 8);
	m->bytes[m->len++] = (uint8_t)v;
}

/* "a.b" as labels. */
static void put_name(struct message *m, const char *name)
{
	while (*name) {
		const size_t n = strcspn(name, ".");
		m->bytes[m->len++] = (uint8_t)n;
		memcpy(m->bytes + m->len, name, n);
		m->len += n;
		name += n + (name[n] == '.');
	}
	m->bytes[m->len++] = 0;
}

static struct message answer_with(unsigned records)
{
	struct message m = {.len = 0};
	put16(&m, 7);      /* id */
	put16(&m, 0x8180); /* an answer, no error */
	put16(&m, 1);
	put16(&m, records);
	put16(&m, 0);
	put16(&m, 0);
	put_name(&m, "_gpsplit._tcp.example");
	put16(&m, 33);
	put16(&m, 1);
	return m;
}

static void put_record(struct message *m, unsigned type, unsigned priority, unsigned weight, unsigned port,
		       const char *host)
{
	put16(m, 0xc00c); /* the name that was asked for */
	put16(m, type);
	put16(m, 1);
	put16(m, 0);
	put16(m, 60);
	const size_t at = m->len;
	put16(m, 0);
	put16(m, priority);
	put16(m, weight);
	put16(m, port);
	put_name(m, host);
	const size_t len = m->len - at - 2;
	m->bytes[at] = (uint8_t)(len >> 8);
	m->bytes[at + 1] = (uint8_t)len;
}

static void records_are_read(void **state)
{
	(void)state;
	struct message m = answer_with(3);
	struct gp_srv_answer a;
	struct gp_err err;
	put_record(&m, 33, 10, 5, 4400, "gpu-1.example");
	put_record(&m, 16, 10, 5, 4400, "text.example"); /* another type */
	put_record(&m, 33, 20, 0, 4401, "gpu-2.example");
	assert_int_equal(gp_srv_read(m.bytes, m.len, &a, &err), GP_OK);
	assert_int_equal(a.count, 2);
	assert_string_equal(a.target[0].host, "gpu-1.example");
	assert_int_equal(a.target[0].port, 4400);
	assert_int_equal(a.target[0].weight, 5);
	assert_string_equal(a.target[1].host, "gpu-2.example");
	assert_int_equal(a.target[1].priority, 20);
}

static void what_names_no_server_is_left_out(void **state)
{
	(void)state;
	struct message m = answer_with(4);
	struct gp_srv_answer a;
	struct gp_err err;
	put_record(&m, 33, 1, 1, 4400, "");         /* the root: there is no such service */
	put_record(&m, 33, 1, 1, 0, "a.example");   /* no port */
	put_record(&m, 33, 1, 1, 1, "a b.example"); /* no host */
	put_record(&m, 33, 1, 1, 1, "\x1b[2J");
	assert_int_equal(gp_srv_read(m.bytes, m.len, &a, &err), GP_PEER);
	assert_non_null(strstr(err.text, "no SRV record"));
}

static void more_records_than_there_is_room_for_are_left_out(void **state)
{
	(void)state;
	struct message m = answer_with(24);
	struct gp_srv_answer a;
	struct gp_err err;
	for (int i = 0; i < 24; i++)
		put_record(&m, 33, 1, 1, 4400, "g.example");
	assert_int_equal(gp_srv_read(m.bytes, m.len, &a, &err), GP_OK);
	assert_int_equal(a.count, GP_SRV_MAX);
}

/* Each in memory of its own size, so that a sanitizer sees what is read behind it. */
static void answers_that_are_cut_or_changed_are_no_harm(void **state)
{
	(void)state;
	struct message m = answer_with(2);
	struct gp_srv_answer a;
	struct gp_err err;
	put_record(&m, 33, 10, 5, 4400, "gpu-1.example");
	put_record(&m, 33, 20, 5, 4400, "gpu-2.example");
	for (size_t len = 0; len < m.len; len++) {
		uint8_t *bytes = malloc(len + 1);
		memcpy(bytes, m.bytes, len);
		assert_int_not_equal(gp_srv_read(bytes, len, &a, &err), GP_OK);
		free(bytes);
	}
	for (size_t at = 0; at < m.len; at++)
		for (int bit = 0; bit < 8; bit++) {
			m.bytes[at] ^= (uint8_t)(1 << bit);
			if (gp_srv_read(m.bytes, m.len, &a, &err) == GP_OK)
				assert_in_range(a.count, 1, 2);
			m.bytes[at] ^= (uint8_t)(1 << bit);
		}
}

static uint32_t draw_last(void *arg, uint32_t below)
{
	(void)arg;
	return below - 1;
}

static uint32_t draw_first(void *arg, uint32_t below)
{
	(void)arg;
	assert_true(below > 0);
	return 0;
}

static const struct gp_srv_answer four = {
	.count = 4,
	.target = {{"late", 1, 20, 1}, {"light", 1, 10, 0}, {"heavy", 1, 10, 65535}, {"middle", 1, 10, 10}}};

static void order_is_by_priority_and_within_one_by_weight(void **state)
{
	(void)state;
	struct gp_srv_answer a = four, b = four;
	gp_srv_order(&a, draw_first, NULL);
	assert_string_equal(a.target[0].host, "light");
	assert_string_equal(a.target[3].host, "late");
	gp_srv_order(&b, draw_last, NULL);
	assert_string_equal(b.target[0].host, "middle");
	assert_string_equal(b.target[3].host, "late");
}

static uint32_t draw_counted(void *arg, uint32_t below)
{
	uint32_t *state = arg;
	*state = *state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)*state * below >> 32);
}

static void the_heaviest_comes_first_most_of_the_time(void **state)
{
	(void)state;
	uint32_t draws = 1;
	int first = 0;
	for (int i = 0; i < 1000; i++) {
		struct gp_srv_answer a = four;
		gp_srv_order(&a, draw_counted, &draws);
		first += strcmp(a.target[0].host, "heavy") == 0;
	}
	assert_in_range(first, 990, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_are_read),
		cmocka_unit_test(what_names_no_server_is_left_out),
		cmocka_unit_test(more_records_than_there_is_room_for_are_left_out),
		cmocka_unit_test(answers_that_are_cut_or_changed_are_no_harm),
		cmocka_unit_test(order_is_by_priority_and_within_one_by_weight),
		cmocka_unit_test(the_heaviest_comes_first_most_of_the_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
