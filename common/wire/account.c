/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, differences and the JSON form of link accounts. The counting itself is
 * done by the channel and the sessions. Test: tests/unit/test_account.c
 */
#include "common/wire/account.h"

#include <math.h>
#include <stddef.h>

#define STAGES(X)                                                                                                      \
	X(COMPUTE, "compute_s")                                                                                        \
	X(ENCODE, "encode_s") X(QUEUE, "queue_s") X(WIRE, "wire_s") X(DECODE, "decode_s") X(WAIT, "wait_s")

static const char *const stage_keys[GP_STAGE_COUNT] = {
#define X(name, key) [GP_STAGE_##name] = key,
	STAGES(X)
#undef X
};

/* a += sign * b; unsigned wrap-around makes -1 a subtraction. */
static void combine_kind(struct gp_kind_account *a, const struct gp_kind_account *b, uint64_t sign)
{
	a->frames += sign * b->frames;
	a->tensor_bytes += sign * b->tensor_bytes;
	a->uncompressed_bytes += sign * b->uncompressed_bytes;
	a->padding_bytes += sign * b->padding_bytes;
	a->payload_bytes += sign * b->payload_bytes;
	a->wire_bytes += sign * b->wire_bytes;
	a->timed_bytes += sign * b->timed_bytes;
	for (int s = 0; s < GP_STAGE_COUNT; s++)
		a->stage_ns[s] += sign * b->stage_ns[s];
}

static void combine_dir(struct gp_dir_account *a, const struct gp_dir_account *b, uint64_t sign)
{
	for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++)
		combine_kind(&a->kind[k], &b->kind[k], sign);
	a->control_bytes += sign * b->control_bytes;
	a->heartbeat_bytes += sign * b->heartbeat_bytes;
	a->preface_bytes += sign * b->preface_bytes;
	a->wire_bytes += sign * b->wire_bytes;
	a->timed_bytes += sign * b->timed_bytes;
	a->timed_ns += sign * b->timed_ns;
}

uint64_t gp_account_frame_bytes(const struct gp_account *a)
{
	uint64_t bytes = 0;
	for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++)
		bytes += a->sent.kind[k].wire_bytes + a->received.kind[k].wire_bytes;
	return bytes;
}

void gp_account_subtract(struct gp_account *b, const struct gp_account *a)
{
	combine_dir(&b->sent, &a->sent, (uint64_t)-1);
	combine_dir(&b->received, &a->received, (uint64_t)-1);
}

void gp_account_add(struct gp_account *a, const struct gp_account *b)
{
	combine_dir(&a->sent, &b->sent, 1);
	combine_dir(&a->received, &b->received, 1);
}

static void set_integer(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

bool gp_stage_is_here(enum gp_stage s, bool sender)
{
	const bool of_sender = s == GP_STAGE_COMPUTE || s == GP_STAGE_ENCODE || s == GP_STAGE_QUEUE;
	return s == GP_STAGE_WIRE || of_sender == sender;
}

/* Computing and codecs that took no time are none. What crossed without taking any was measured: a frame may come in one read. */
static bool is_measured(const struct gp_kind_account *k, enum gp_stage s, bool sent)
{
	const bool crossing = s == GP_STAGE_QUEUE || s == GP_STAGE_WIRE;
	return k->stage_ns[s] > 0 || (k->frames > 0 && crossing && gp_stage_is_here(s, sent));
}

static double rate(uint64_t bytes, uint64_t ns)
{
	return bytes && ns ? (double)bytes / ((double)ns * 1e-9) : NAN;
}

double gp_kind_bandwidth(const struct gp_kind_account *k)
{
	return rate(k->timed_bytes, k->stage_ns[GP_STAGE_WIRE]);
}

double gp_dir_bandwidth(const struct gp_dir_account *d)
{
	return rate(d->timed_bytes, d->timed_ns);
}

static json_t *rate_or_null(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *kind_json(const struct gp_kind_account *k, bool sent)
{
	json_t *o = json_object();
	set_integer(o, "frames", k->frames);
	set_integer(o, "tensor_bytes", k->tensor_bytes);
	set_integer(o, "uncompressed_bytes", k->uncompressed_bytes);
	set_integer(o, "unpadded_bytes", k->tensor_bytes - k->padding_bytes);
	set_integer(o, "payload_bytes", k->payload_bytes);
	set_integer(o, "wire_bytes", k->wire_bytes);
	json_object_set_new(o, "bandwidth_bytes_per_s", rate_or_null(gp_kind_bandwidth(k)));
	for (int s = 0; s < GP_STAGE_COUNT; s++)
		json_object_set_new(o, stage_keys[s],
				    is_measured(k, s, sent) ? json_real((double)k->stage_ns[s] * 1e-9) : json_null());
	return o;
}

static json_t *dir_json(const struct gp_dir_account *d)
{
	json_t *o = json_object();
	set_integer(o, "wire_bytes", d->wire_bytes);
	set_integer(o, "control_bytes", d->control_bytes);
	set_integer(o, "heartbeat_bytes", d->heartbeat_bytes);
	set_integer(o, "preface_bytes", d->preface_bytes);
	json_object_set_new(o, "bandwidth_bytes_per_s", rate_or_null(gp_dir_bandwidth(d)));
	return o;
}

json_t *gp_account_json(const struct gp_account *a)
{
	json_t *o = json_object();
	for (int k = GP_FRAME_ACT_UP; k <= GP_FRAME_PARAM_DOWN; k++) { /* a training has no probes */
		/* A kind crosses in one direction: one of the two is zero at either end. */
		struct gp_kind_account both = a->sent.kind[k];
		combine_kind(&both, &a->received.kind[k], 1);
		json_object_set_new(o, gp_frame_type_name((enum gp_frame_type)k),
				    kind_json(&both, a->sent.kind[k].frames > 0));
	}
	json_object_set_new(o, "sent", dir_json(&a->sent));
	json_object_set_new(o, "received", dir_json(&a->received));
	return o;
}

static double relative(uint64_t kernel, uint64_t ours)
{
	return ours ? ((double)kernel - (double)ours) / (double)ours : 0;
}

void gp_account_kernel_diff(const struct gp_account *a, const struct gp_tcp_figures *k, double *up, double *down)
{
	*up = k->valid ? relative(k->bytes_acked, a->sent.wire_bytes) : 0;
	*down = k->valid ? relative(k->bytes_received, a->received.wire_bytes) : 0;
}
