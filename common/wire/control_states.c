/* SPDX-License-Identifier: Apache-2.0
 *
 * See control_states.h. Test: tests/unit/test_control_states.c
 */
#include "common/wire/control_states.h"

enum {
	HELLO = 1u << GP_LINK_HELLO,
	WELCOME = 1u << GP_LINK_WELCOME,
	OPEN = 1u << GP_LINK_OPEN,
	LOAD = 1u << GP_LINK_LOAD,
	RUN = 1u << GP_LINK_RUN,
	MEASURE = 1u << GP_LINK_MEASURE,
	ANY = HELLO | WELCOME | OPEN | LOAD | RUN | MEASURE,
};

struct rule {
	unsigned from_client, from_server; /* states in which the receiver takes it */
};

static const struct rule messages[] = {
	[GPSPLIT__CONTROL__BODY_HELLO] = {.from_client = HELLO},
	[GPSPLIT__CONTROL__BODY_WELCOME] = {.from_server = WELCOME},
	[GPSPLIT__CONTROL__BODY_OPEN] = {.from_client = OPEN},
	[GPSPLIT__CONTROL__BODY_READY] = {.from_server = LOAD},
	[GPSPLIT__CONTROL__BODY_GRAD_SQUARES] = {.from_server = RUN},
	[GPSPLIT__CONTROL__BODY_CHUNK_DONE] = {.from_server = RUN},
	[GPSPLIT__CONTROL__BODY_INTERVALS] = {.from_server = RUN},
	[GPSPLIT__CONTROL__BODY_COMMIT] = {.from_client = RUN},
	[GPSPLIT__CONTROL__BODY_COMMITTED] = {.from_server = RUN},
	[GPSPLIT__CONTROL__BODY_FETCH_PARAMS] = {.from_client = RUN},
	[GPSPLIT__CONTROL__BODY_PARAMS_DONE] = {.from_server = RUN},
	[GPSPLIT__CONTROL__BODY_MEASURE] = {.from_client = OPEN},
	[GPSPLIT__CONTROL__BODY_PROBE] = {.from_client = MEASURE},
	[GPSPLIT__CONTROL__BODY_PROBED] = {.from_server = MEASURE},
	[GPSPLIT__CONTROL__BODY_BYE] = {.from_client = RUN | MEASURE},
	[GPSPLIT__CONTROL__BODY_ERROR] = {.from_client = ANY, .from_server = ANY},
};

static const struct rule frames[GP_FRAME_TYPE_COUNT] = {
	[GP_FRAME_PARAM_UP] = {.from_client = LOAD},    [GP_FRAME_ACT_UP] = {.from_client = RUN},
	[GP_FRAME_GRAD_UP] = {.from_client = RUN},      [GP_FRAME_ACT_DOWN] = {.from_server = RUN},
	[GP_FRAME_GRAD_DOWN] = {.from_server = RUN},    [GP_FRAME_PARAM_DOWN] = {.from_server = RUN},
	[GP_FRAME_PROBE_UP] = {.from_client = MEASURE}, [GP_FRAME_PROBE_DOWN] = {.from_server = MEASURE},
};

static bool allows(const struct rule *table, size_t count, size_t index, enum gp_end sender, enum gp_link_state state)
{
	if (index >= count)
		return false;
	return (sender == GP_END_CLIENT ? table[index].from_client : table[index].from_server) >> state & 1;
}

const char *gp_link_state_name(enum gp_link_state state)
{
	static const char *const name[GP_LINK_STATES] = {"PREFACE", "HELLO", "WELCOME", "OPEN",
							 "LOAD",    "RUN",   "MEASURE", "CLOSED"};
	return name[state];
}

bool gp_control_allowed(enum gp_end sender, enum gp_link_state state, Gpsplit__Control__BodyCase message)
{
	return allows(messages, sizeof messages / sizeof messages[0], (size_t)message, sender, state);
}

bool gp_frame_allowed(enum gp_end sender, enum gp_link_state state, uint8_t type)
{
	return allows(frames, GP_FRAME_TYPE_COUNT, type, sender, state);
}

static const char *name_of(enum gp_end end)
{
	return end == GP_END_CLIENT ? "client" : "server";
}

enum gp_status gp_control_check(enum gp_end sender, enum gp_link_state state, const Gpsplit__Control *m,
				struct gp_err *err)
{
	if (!gp_control_allowed(sender, state, m->body_case))
		GP_FAIL(err, GP_PROTO, "the %s's %s message is not expected in state %s", name_of(sender),
			gp_control_name(m), gp_link_state_name(state));
	return GP_OK;
}

enum gp_status gp_frame_check(enum gp_end sender, enum gp_link_state state, uint64_t session,
			      const struct gp_frame_head *head, struct gp_err *err)
{
	if (!gp_frame_allowed(sender, state, head->type))
		GP_FAIL(err, GP_PROTO, "the %s's %s frame is not expected in state %s", name_of(sender),
			gp_frame_type_name(head->type), gp_link_state_name(state));
	if (head->session != session)
		GP_FAIL(err, GP_PROTO, "the %s's %s frame names session %llu, not session %llu", name_of(sender),
			gp_frame_type_name(head->type), (unsigned long long)head->session, (unsigned long long)session);
	return GP_OK;
}
