/* SPDX-License-Identifier: Apache-2.0
 *
 * A body whose codecs change at a step's border, within the ladders of OPEN (common/codec/codec_ladder.h): which
 * rungs COMMIT may name, and what COMMITTED tells of them. The change itself is in body_rank.c. PROTOCOL.md section
 * 5.3.
 * Test: tests/unit/test_ladder_server.c
 */
#include "server/body_impl.h"

bool gp_body_has_ladder(const struct gp_body *b)
{
	return gp_session_has_ladder(&b->spec.session);
}

enum gp_status gp_body_check_rungs(const struct gp_body *b, const struct gp_body_commit *c, struct gp_err *err)
{
	if (c->rungs != 0 && (c->rungs != GP_DIRECTIONS || !gp_body_has_ladder(b)))
		GP_FAIL(err, GP_PROTO, "commit of step %llu names %zu codecs; a session %s ladder has %d or none",
			(unsigned long long)c->step, c->rungs, gp_body_has_ladder(b) ? "with a" : "without a",
			gp_body_has_ladder(b) ? GP_DIRECTIONS : 0);
	for (size_t d = 0; d < c->rungs; d++) {
		const int rungs = b->spec.session.ladder[d].rungs;
		if (c->rung[d] >= (uint32_t)(rungs > 0 ? rungs : 1))
			GP_FAIL(err, GP_PROTO, "commit of step %llu names codec %u of %s, which has %d to choose from",
				(unsigned long long)c->step, c->rung[d], gp_direction_info[d].name, rungs);
	}
	return GP_OK;
}

void gp_body_take_rungs(struct gp_body *b, const struct gp_body_commit *c)
{
	struct gp_session_spec *s = &b->spec.session;
	for (size_t d = 0; d < c->rungs; d++)
		if (s->ladder[d].rungs > 0)
			gp_codec_ladder_rung(&s->ladder[d], (int)c->rung[d], &s->codec[d]);
}

static void add_surveyed(const struct gp_body *b, enum gp_direction d, struct gp_committed *out)
{
	for (int i = 0; i < b->spec.session.ladder[d].rungs; i++) {
		struct gp_surveyed s;
		if (!gp_flows_surveyed(&b->flows, d, b->step - 1, i, &s))
			return;
		out->survey[out->surveyed++] = (struct gp_committed_survey){.direction = d,
									    .rung = i,
									    .tensor_bytes = s.tensor_bytes,
									    .payload_bytes = s.payload_bytes,
									    .error = gp_surveyed_error(&s),
									    .cosine = gp_surveyed_cosine(&s)};
	}
}

void gp_body_note_committed(struct gp_body *b, const struct gp_body_commit *c)
{
	struct gp_committed *out = &b->committed;
	out->ranks = gp_decays_ranks_at(&b->spec.session.decays, b->spec.graph, b->step);
	out->rungs.count = (int)c->rungs;
	for (size_t d = 0; d < c->rungs; d++)
		out->rungs.rung[d] = c->rung[d];
	out->surveyed = 0;
	add_surveyed(b, GP_ACT_DOWN, out);
	add_surveyed(b, GP_GRAD_DOWN, out);
}

const struct gp_committed *gp_body_committed(const struct gp_body *b)
{
	return &b->committed;
}
