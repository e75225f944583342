/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of control messages and tensor frames against states
 * (common/wire/control_states.h) is the one of PROTOCOL.md section 5.1: every
 * sender, message and state is looked up in both.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/control_states.h"

enum { ROWS_MAX = 50, CELLS = 3 };

/* One name of a row of the table "what | from | states" of the page. */
struct row {
	char what[32], from[16], states[80];
};

static struct row rows[ROWS_MAX];
static int row_count;

static const enum gp_end ends[2] = {GP_END_CLIENT, GP_END_SERVER};
static const char *const end_name[2] = {"client", "server"};

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

/* "| A, B | client | RUN |" adds a row for A and one for B. */
static void add_line(char *line)
{
	char *cell[CELLS], *at = line, *save = NULL;
	for (int i = 0; i < CELLS; i++) {
		cell[i] = strtok_r(at, "|", &save);
		at = NULL;
		assert_non_null(cell[i]);
		cell[i] = trim(cell[i]);
	}
	for (char *name = strtok_r(cell[0], ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		struct row *r = &rows[row_count++];
		assert_true(row_count <= ROWS_MAX);
		snprintf(r->what, sizeof r->what, "%s", trim(name));
		snprintf(r->from, sizeof r->from, "%s", cell[1]);
		snprintf(r->states, sizeof r->states, "%s", cell[2]);
	}
}

static int read_page(void **state)
{
	(void)state;
	char line[512];
	bool inside = false;
	FILE *f = fopen("proto/PROTOCOL.md", "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		if (strncmp(line, "| message or frame |", 20) == 0)
			inside = true;
		else if (inside && line[0] != '|')
			inside = false;
		else if (inside && strncmp(line, "|---", 4) != 0)
			add_line(line);
	}
	fclose(f);
	return row_count > 0 ? 0 : -1;
}

static bool lists(const char *states, const char *name)
{
	const size_t n = strlen(name);
	for (const char *p = strstr(states, name); p; p = strstr(p + 1, name))
		if ((p == states || p[-1] == ' ') && (p[n] == '\0' || p[n] == ','))
			return true;
	return false;
}

/* Whether the page lists it; every name must have a row at all. */
static bool page_allows(const char *what, enum gp_end sender, enum gp_link_state state)
{
	bool known = false, allowed = false;
	for (int i = 0; i < row_count; i++) {
		if (strcasecmp(rows[i].what, what) != 0)
			continue;
		known = true;
		allowed |= (strcmp(rows[i].from, end_name[sender]) == 0 || strcmp(rows[i].from, "both") == 0) &&
			   lists(rows[i].states, gp_link_state_name(state));
	}
	if (!known)
		fail_msg("section 5.1 has no row for %s", what);
	return allowed;
}

static void every_message_in_every_state_is_as_the_page_says(void **state)
{
	(void)state;
	int allowed = 0;
	for (unsigned i = 0; i < gpsplit__control__descriptor.n_fields; i++) {
		Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
		m.body_case = (Gpsplit__Control__BodyCase)gpsplit__control__descriptor.fields[i].id;
		const char *name = gpsplit__control__descriptor.fields[i].name;
		for (int e = 0; e < 2; e++)
			for (int s = 0; s < GP_LINK_STATES; s++) {
				struct gp_err err;
				const bool want = page_allows(name, ends[e], s);
				if (gp_control_allowed(ends[e], s, m.body_case) != want)
					fail_msg("%s of the %s in %s: the page says %d", name, end_name[e],
						 gp_link_state_name(s), want);
				assert_int_equal(gp_control_check(ends[e], s, &m, &err), want ? GP_OK : GP_PROTO);
				allowed += want;
			}
	}
	/* each message in one state, but for BYE, which is in two, and ERROR, which is in six, both ways */
	assert_int_equal(allowed, (int)gpsplit__control__descriptor.n_fields - 2 + 2 + 2 * 6);
}

static void every_frame_in_every_state_is_as_the_page_says(void **state)
{
	(void)state;
	for (int type = 1; type < GP_FRAME_TYPE_COUNT; type++)
		for (int e = 0; e < 2; e++)
			for (int s = 0; s < GP_LINK_STATES; s++) {
				const bool want = page_allows(gp_frame_type_name((uint8_t)type), ends[e], s);
				if (gp_frame_allowed(ends[e], s, (uint8_t)type) != want)
					fail_msg("%s of the %s in %s: the page says %d",
						 gp_frame_type_name((uint8_t)type), end_name[e], gp_link_state_name(s),
						 want);
			}
}

static void what_is_no_message_and_no_frame_is_refused(void **state)
{
	(void)state;
	for (int s = 0; s < GP_LINK_STATES; s++)
		for (int e = 0; e < 2; e++) {
			assert_false(gp_control_allowed(ends[e], s, GPSPLIT__CONTROL__BODY__NOT_SET));
			assert_false(gp_control_allowed(ends[e], s, (Gpsplit__Control__BodyCase)1000));
			assert_false(gp_frame_allowed(ends[e], s, 0));
			assert_false(gp_frame_allowed(ends[e], s, GP_FRAME_TYPE_COUNT));
			assert_false(gp_frame_allowed(ends[e], s, 255));
		}
}

static void a_frame_of_another_session_is_refused(void **state)
{
	(void)state;
	struct gp_err err;
	const struct gp_frame_head head = {.type = GP_FRAME_ACT_UP, .session = 7};
	assert_int_equal(gp_frame_check(GP_END_CLIENT, GP_LINK_RUN, 7, &head, &err), GP_OK);
	assert_int_equal(gp_frame_check(GP_END_CLIENT, GP_LINK_RUN, 8, &head, &err), GP_PROTO);
	assert_non_null(strstr(err.text, "names session 7, not session 8"));
	assert_int_equal(gp_frame_check(GP_END_SERVER, GP_LINK_RUN, 7, &head, &err), GP_PROTO);
	assert_non_null(strstr(err.text, "the server's act_up frame is not expected in state RUN"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_in_every_state_is_as_the_page_says),
		cmocka_unit_test(every_frame_in_every_state_is_as_the_page_says),
		cmocka_unit_test(what_is_no_message_and_no_frame_is_refused),
		cmocka_unit_test(a_frame_of_another_session_is_refused),
	};
	return cmocka_run_group_tests_name("control states", tests, read_page, NULL);
}
