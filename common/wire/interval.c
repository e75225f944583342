/* SPDX-License-Identifier: Apache-2.0
 *
 * See interval.h. PROTOCOL.md section 5.9. Test: tests/unit/test_interval.c
 */
#include "common/wire/interval.h"

#include "common/graph/graph.h"

enum { NUMBERS = 6 }; /* of an interval: stage, tensor, chunk, queued, waited, took */

static const char *const names[GP_AT_STAGES] = {
	[GP_AT_HEAD_FORWARD] = "head forward",
	[GP_AT_ACT_UP_ENCODE] = "act_up encode",
	[GP_AT_ACT_UP_SENT] = "act_up sent",
	[GP_AT_ACT_UP_RECEIVED] = "act_up received",
	[GP_AT_ACT_UP_DECODE] = "act_up decode",
	[GP_AT_BODY_FORWARD] = "body forward",
	[GP_AT_ACT_DOWN_ENCODE] = "act_down encode",
	[GP_AT_ACT_DOWN_SENT] = "act_down sent",
	[GP_AT_ACT_DOWN_RECEIVED] = "act_down received",
	[GP_AT_ACT_DOWN_DECODE] = "act_down decode",
	[GP_AT_TAIL] = "tail",
	[GP_AT_GRAD_UP_ENCODE] = "grad_up encode",
	[GP_AT_GRAD_UP_SENT] = "grad_up sent",
	[GP_AT_GRAD_UP_RECEIVED] = "grad_up received",
	[GP_AT_GRAD_UP_DECODE] = "grad_up decode",
	[GP_AT_BODY_BACKWARD] = "body backward",
	[GP_AT_GRAD_DOWN_ENCODE] = "grad_down encode",
	[GP_AT_GRAD_DOWN_SENT] = "grad_down sent",
	[GP_AT_GRAD_DOWN_RECEIVED] = "grad_down received",
	[GP_AT_GRAD_DOWN_DECODE] = "grad_down decode",
	[GP_AT_HEAD_BACKWARD] = "head backward",
	[GP_AT_CHUNK_DONE] = "chunk done",
	[GP_AT_BODY_UPDATE] = "body update",
	[GP_AT_BODY_CHECKPOINT] = "body checkpoint",
	[GP_AT_TAIL_FORWARD] = "tail forward",
	[GP_AT_LOSS] = "loss",
	[GP_AT_TAIL_BACKWARD] = "tail backward",
	[GP_AT_UPDATE] = "update",
	[GP_AT_COMMIT] = "commit",
	[GP_AT_SQUARES] = "grad_squares",
	[GP_AT_STEP] = "step",
	[GP_AT_BATCH] = "wait for a batch",
	[GP_AT_CHECKPOINT] = "checkpoint",
	[GP_AT_VALIDATION] = "validation",
	[GP_AT_STATISTICS] = "statistics",
	[GP_AT_MODEL_FORWARD] = "forward",
	[GP_AT_MODEL_LOSS] = "loss",
	[GP_AT_MODEL_BACKWARD] = "backward",
};

const char *gp_interval_stage_name(enum gp_interval_stage stage)
{
	return (unsigned)stage < GP_AT_STAGES ? names[stage] : "?";
}

bool gp_interval_of_server(enum gp_interval_stage stage)
{
	return (stage >= GP_AT_ACT_UP_RECEIVED && stage <= GP_AT_ACT_DOWN_SENT) ||
	       (stage >= GP_AT_GRAD_UP_RECEIVED && stage <= GP_AT_GRAD_DOWN_SENT) || stage == GP_AT_BODY_UPDATE ||
	       stage == GP_AT_BODY_CHECKPOINT;
}

static uint64_t difference(uint64_t later, uint64_t earlier)
{
	return later > earlier ? later - earlier : 0;
}

enum gp_status gp_control_send_intervals(struct gp_channel *ch, uint64_t step, uint32_t chunks,
					 const struct gp_interval *interval, int count, struct gp_err *err)
{
	int64_t number[GP_INTERVALS_MAX * NUMBERS];
	const struct gp_ping_taken ping = gp_channel_ping_taken(ch);
	Gpsplit__Intervals body = GPSPLIT__INTERVALS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	gp_require(count > 0 && count <= GP_INTERVALS_MAX);
	body.step = step;
	body.base_ns = interval[0].queued_ns;
	for (int i = 0; i < count; i++) {
		const struct gp_interval *v = &interval[i];
		int64_t *to = number + (size_t)i * NUMBERS;
		to[0] = v->stage;
		to[1] = v->tensor;
		to[2] = (int64_t)(v->number - step * chunks);
		to[3] = (int64_t)(v->queued_ns - body.base_ns);
		to[4] = (int64_t)difference(v->begin_ns, v->queued_ns);
		to[5] = (int64_t)difference(v->end_ns, v->begin_ns > v->queued_ns ? v->begin_ns : v->queued_ns);
	}
	body.n_number = (size_t)count * NUMBERS;
	body.number = number;
	body.ping = ping.value;
	body.ping_ns = ping.at_ns;
	m.body_case = GPSPLIT__CONTROL__BODY_INTERVALS;
	m.intervals = &body;
	return gp_control_send(ch, &m, err);
}

/* a + b, as near to it as 64 bits come. */
static uint64_t moved(uint64_t a, int64_t b)
{
	uint64_t sum;
	if (!__builtin_add_overflow(a, b, &sum))
		return sum;
	return b < 0 ? 0 : UINT64_MAX;
}

static enum gp_status read_one(const int64_t *number, uint64_t first, uint64_t base_ns, struct gp_interval *out,
			       struct gp_err *err)
{
	const bool fits =
		number[0] >= 0 && number[0] < GP_AT_STAGES && number[1] >= 0 && number[1] < GP_GRAPH_MAX_PORTS;
	if (!fits || !gp_interval_of_server((enum gp_interval_stage)number[0]) || number[4] < 0 || number[5] < 0)
		GP_FAIL(err, GP_PROTO, "intervals: stage %lld of tensor %lld, %lld ns after %lld, is none of a server",
			(long long)number[0], (long long)number[1], (long long)number[5], (long long)number[4]);
	*out = (struct gp_interval){.stage = (enum gp_interval_stage)number[0],
				    .tensor = (uint16_t)number[1],
				    .number = moved(first, number[2]),
				    .queued_ns = moved(base_ns, number[3])};
	out->begin_ns = moved(out->queued_ns, number[4]);
	out->end_ns = moved(out->begin_ns, number[5]);
	return GP_OK;
}

enum gp_status gp_intervals_read(const Gpsplit__Intervals *m, uint32_t chunks, struct gp_interval out[GP_INTERVALS_MAX],
				 int *count, struct gp_err *err)
{
	uint64_t first;
	if (m->n_number % NUMBERS != 0 || m->n_number > (size_t)GP_INTERVALS_MAX * NUMBERS)
		GP_FAIL(err, GP_PROTO, "intervals: %zu numbers are no list of at most %d intervals", m->n_number,
			GP_INTERVALS_MAX);
	if (__builtin_mul_overflow(m->step, (uint64_t)chunks, &first))
		GP_FAIL(err, GP_PROTO, "intervals: of step %llu", (unsigned long long)m->step);
	const int n = (int)(m->n_number / NUMBERS);
	for (int i = 0; i < n; i++)
		GP_TRY(read_one(m->number + (size_t)i * NUMBERS, first, m->base_ns, &out[i], err));
	*count = n;
	return GP_OK;
}
