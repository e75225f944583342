/* SPDX-License-Identifier: Apache-2.0
 *
 * See value_log.h. Test: tests/unit/test_value_log.c
 */
#include "client/log/value_log.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"

#define ENTRIES   24
#define SETS      2 /* where the head is frozen, the next step begins before one has ended */
#define WIDTH_STD 4 /* standard deviations on both sides of the mean that have bins */

struct entry {
	char what[24], of[16];
	int count;
	float sample[2 * GP_VALUE_LOG_SAMPLE]; /* of several tensors or parameters together */
};

struct lost {
	double rel_err, cosine;
	bool known;
};

struct gp_value_log {
	pthread_mutex_t lock;
	uint64_t every;
	bool begun;
	uint64_t first; /* step of this process */
	struct entry *entry;
	struct set {
		uint64_t step; /* that the entries are of; UINT64_MAX: none */
		int entries, given;
		struct entry *entry;
		struct lost lost[GP_DIRECTIONS];
	} set[SETS]; /* by the step modulo SETS */
};

enum gp_status gp_value_log_new(uint64_t every, struct gp_value_log **out, struct gp_err *err)
{
	struct gp_value_log *v;
	GP_TRY(gp_alloc_array((void **)&v, 1, sizeof *v, err));
	*v = (struct gp_value_log){.every = every};
	const enum gp_status status = gp_alloc_array((void **)&v->entry, SETS * ENTRIES, sizeof *v->entry, err);
	if (status != GP_OK) {
		gp_free(v);
		return status;
	}
	for (int i = 0; i < SETS; i++)
		v->set[i] = (struct set){.step = UINT64_MAX, .entry = v->entry + i * ENTRIES};
	pthread_mutex_init(&v->lock, NULL);
	*out = v;
	return GP_OK;
}

void gp_value_log_free(struct gp_value_log *v)
{
	if (!v)
		return;
	pthread_mutex_destroy(&v->lock);
	gp_free(v->entry);
	gp_free(v);
}

bool gp_value_log_wants(struct gp_value_log *v, uint64_t step)
{
	if (!v)
		return false;
	pthread_mutex_lock(&v->lock);
	if (!v->begun) {
		v->begun = true;
		v->first = step;
	}
	const bool wants = step == v->first || (step + 1) % v->every == 0;
	struct set *s = &v->set[step % SETS];
	if (wants && s->step != step)
		*s = (struct set){.step = step, .entry = s->entry};
	pthread_mutex_unlock(&v->lock);
	return wants;
}

/* NULL: that step is not noted, or not any more. Under the lock. */
static struct set *set_of(struct gp_value_log *v, uint64_t step)
{
	struct set *s = &v->set[step % SETS];
	return s->step == step ? s : NULL;
}

/* NULL: there are too many. */
static struct entry *entry_of(struct set *s, const char *what, const char *of)
{
	for (int i = 0; i < s->entries; i++)
		if (strcmp(s->entry[i].what, what) == 0 && strcmp(s->entry[i].of, of) == 0)
			return &s->entry[i];
	if (s->entries == ENTRIES)
		return NULL;
	struct entry *e = &s->entry[s->entries++];
	snprintf(e->what, sizeof e->what, "%s", what);
	snprintf(e->of, sizeof e->of, "%s", of);
	e->count = 0;
	return e;
}

void gp_value_log_add(struct gp_value_log *v, uint64_t step, const char *what, const char *of, const float *x,
		      uint64_t count, uint64_t stride)
{
	const int most = (int)(sizeof v->entry->sample / sizeof v->entry->sample[0]);
	pthread_mutex_lock(&v->lock);
	struct set *s = set_of(v, step);
	struct entry *e = s ? entry_of(s, what, of) : NULL;
	for (uint64_t i = 0; e && i < count && e->count < most; i += stride)
		e->sample[e->count++] = x[i];
	pthread_mutex_unlock(&v->lock);
}

static uint64_t stride_for(uint64_t count)
{
	return count / GP_VALUE_LOG_SAMPLE | 1; /* odd: it takes all channels in turn */
}

static bool can_be_read(const struct gp_flow *flow)
{
	return flow->codec && !flow->device && flow->type.dtype == GP_F32;
}

void gp_value_log_add_tensor(struct gp_value_log *v, uint64_t step, const struct gp_flow *flow, const float *x,
			     uint32_t length)
{
	const uint64_t count = gp_flow_tensor_bytes(flow, length) / sizeof *x;
	const bool gradient = flow->direction == GP_GRAD_UP || flow->direction == GP_GRAD_DOWN;
	if (can_be_read(flow))
		gp_value_log_add(v, step, gradient ? "gradients" : "activations",
				 gp_direction_info[flow->direction].name, x, count, stride_for(count));
}

/* --- what codecs lose -------------------------------------------------------------------------------------------- */

static struct lost compare(const float *x, const float *y, uint64_t count)
{
	double error = 0, xx = 0, yy = 0, xy = 0;
	for (uint64_t i = 0; i < count; i++) {
		const double a = (double)x[i], b = (double)y[i];
		if (!isfinite(a))
			continue;
		error += (a - b) * (a - b);
		xx += a * a;
		yy += b * b;
		xy += a * b;
	}
	return (struct lost){.known = true,
			     .rel_err = error > 0 ? sqrt(error / fmax(xx, 1e-300)) : 0,
			     .cosine = error > 0 ? xy / fmax(sqrt(xx) * sqrt(yy), 1e-300) : 1};
}

static enum gp_status trip(struct gp_codec *c, const float *x, uint64_t count, uint8_t *payload, float *y,
			   struct lost *out, struct gp_err *err)
{
	size_t len;
	GP_TRY(gp_codec_encode(c, x, 0, payload, gp_codec_bound(c), &len, err));
	GP_TRY(gp_codec_decode(c, (struct gp_span){payload, len}, y, err));
	*out = compare(x, y, count);
	return GP_OK;
}

static enum gp_status measure(const struct gp_flow *flow, const float *x, uint64_t count, struct lost *out,
			      struct gp_err *err)
{
	const struct gp_codec_options options = {.chunks = 1};
	struct gp_codec *c;
	GP_TRY(gp_codec_open(&flow->spec, &flow->type.shape, &options, &c, err));
	uint8_t *payload = gp_alloc_aligned(gp_codec_bound(c));
	float *y = gp_alloc_aligned(count * sizeof *y);
	enum gp_status status =
		payload && y ? trip(c, x, count, payload, y, out, err)
			     : gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "no memory to measure a codec");
	gp_free_aligned(payload);
	gp_free_aligned(y);
	gp_codec_free(c);
	return status;
}

static bool lacks_error(struct gp_value_log *v, uint64_t step, enum gp_direction d)
{
	pthread_mutex_lock(&v->lock);
	const struct set *s = set_of(v, step);
	const bool lacks = s && !s->lost[d].known;
	pthread_mutex_unlock(&v->lock);
	return lacks;
}

/* Only a direction's first tensor is measured, and only with all of its positions; and where surveys tell the same,
 * nothing. That a codec cannot be measured is no error. */
void gp_value_log_add_error(struct gp_value_log *v, uint64_t step, const struct gp_flow *flow, const float *x,
			    uint32_t length)
{
	struct lost lost;
	struct gp_err err;
	if (!can_be_read(flow) || flow->survey_every > 0 || length > 0 || flow->tensor_bytes == 0 ||
	    gp_codec_spec_lossless(&flow->spec) || !lacks_error(v, step, flow->direction))
		return;
	if (measure(flow, x, flow->tensor_bytes / sizeof *x, &lost, &err) != GP_OK) {
		gp_log(main, GP_LOG_DEBUG, "what %s loses is not measured: %s", flow->spec.text, err.text);
		return;
	}
	pthread_mutex_lock(&v->lock);
	struct set *s = set_of(v, step);
	if (s)
		s->lost[flow->direction] = lost;
	pthread_mutex_unlock(&v->lock);
}

/* --- parameters -------------------------------------------------------------------------------------------------- */

static bool is_read(const struct gp_param *p)
{
	return p->trained && !p->follows && p->count <= GP_VALUE_LOG_PARAM;
}

static uint64_t elements(const struct gp_plan *plan, uint64_t *largest)
{
	uint64_t sum = 0;
	*largest = 0;
	for (int i = 0; i < plan->spec.graph->params; i++) {
		const struct gp_param *p = &plan->spec.graph->param[i];
		sum += is_read(p) ? p->count : 0;
		*largest = is_read(p) && p->count > *largest ? p->count : *largest;
	}
	return sum;
}

static enum gp_status add_param(struct gp_value_log *v, uint64_t step, struct gp_plan *plan, int index,
				const char *part, uint64_t stride, float *x, struct gp_err *err)
{
	static const char *const moment[] = {"exp_avg", "exp_avg_sq"};
	const uint64_t count = plan->spec.graph->param[index].count;
	const int arrays = plan->ops->optim_states(plan);
	GP_TRY(plan->ops->param_get(plan, index, x, err));
	gp_value_log_add(v, step, "weights", part, x, count, stride);
	GP_TRY(plan->ops->grad_get(plan, index, x, err));
	gp_value_log_add(v, step, "weight gradients", part, x, count, stride);
	for (int k = 0; k < arrays && k < 2; k++) {
		GP_TRY(plan->ops->optim_get(plan, index, k, x, err));
		gp_value_log_add(v, step, arrays == 1 ? "momentum" : moment[k], part, x, count, stride);
	}
	return GP_OK;
}

void gp_value_log_add_plan(struct gp_value_log *v, uint64_t step, struct gp_plan *plan, const char *part)
{
	struct gp_err err;
	uint64_t largest;
	const uint64_t stride = stride_for(elements(plan, &largest));
	float *x = largest > 0 ? gp_alloc_aligned(largest * sizeof *x) : NULL;
	enum gp_status status = GP_OK;
	for (int i = 0; x && i < plan->spec.graph->params && status == GP_OK; i++)
		if (is_read(&plan->spec.graph->param[i]))
			status = add_param(v, step, plan, i, part, stride, x, &err);
	if (status != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "parameters have no histogram: %s", err.text);
	gp_free_aligned(x);
}

/* --- records ----------------------------------------------------------------------------------------------------- */

struct moments {
	double mean, std, smallest, largest;
	int finite;
};

static struct moments moments_of(const float *x, int count)
{
	struct moments m = {.smallest = INFINITY, .largest = -INFINITY};
	double sum = 0, squares = 0;
	for (int i = 0; i < count; i++) {
		if (!isfinite(x[i]))
			continue;
		m.finite++;
		sum += (double)x[i];
		m.smallest = fmin(m.smallest, (double)x[i]);
		m.largest = fmax(m.largest, (double)x[i]);
	}
	m.mean = m.finite ? sum / m.finite : 0;
	for (int i = 0; i < count; i++)
		if (isfinite(x[i]))
			squares += ((double)x[i] - m.mean) * ((double)x[i] - m.mean);
	m.std = m.finite ? sqrt(squares / m.finite) : 0;
	return m;
}

json_t *gp_value_log_histogram(const float *x, int count)
{
	const struct moments m = moments_of(x, count);
	int bin[GP_VALUE_LOG_BINS] = {0}, below = 0, above = 0;
	if (m.finite == 0)
		return NULL;
	double low = fmax(m.smallest, m.mean - WIDTH_STD * m.std), high = fmin(m.largest, m.mean + WIDTH_STD * m.std);
	if (!(high > low)) { /* all are the same */
		low = m.mean - fmax(fabs(m.mean), 1) * 1e-3;
		high = m.mean + fmax(fabs(m.mean), 1) * 1e-3;
	}
	for (int i = 0; i < count; i++) {
		const double at = ((double)x[i] - low) / (high - low) * GP_VALUE_LOG_BINS;
		if (!isfinite(x[i]))
			continue;
		below += at < 0;
		above += at > GP_VALUE_LOG_BINS;
		if (at >= 0 && at <= GP_VALUE_LOG_BINS)
			bin[at < GP_VALUE_LOG_BINS ? (int)at : GP_VALUE_LOG_BINS - 1]++;
	}
	json_t *counts = json_array();
	for (int i = 0; i < GP_VALUE_LOG_BINS; i++)
		json_array_append_new(counts, json_integer(bin[i]));
	return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:o}", "values", m.finite, "not_finite",
			 count - m.finite, "mean", m.mean, "std", m.std, "smallest", m.smallest, "largest", m.largest,
			 "low", low, "high", high, "below", below, "above", above, "counts", counts);
}

static json_t *entry_json(const struct set *s, const struct entry *e)
{
	json_t *o = gp_value_log_histogram(e->sample, e->count);
	if (o) {
		json_object_set_new(o, "step", json_integer((json_int_t)s->step + 1));
		json_object_set_new(o, "what", json_string(e->what));
		json_object_set_new(o, "of", json_string(e->of));
	}
	return o;
}

static json_t *lost_json(const struct set *s, int d)
{
	return json_pack("{s:I, s:s, s:f, s:f}", "step", (json_int_t)s->step + 1, "direction",
			 gp_direction_info[d].name, "rel_err", s->lost[d].rel_err, "cosine", s->lost[d].cosine);
}

/* NULL: there is none behind the last. */
static json_t *take_next(struct set *s, const char **event)
{
	json_t *o = NULL;
	for (; !o && s->given < s->entries; s->given++) {
		*event = "histogram";
		o = entry_json(s, &s->entry[s->given]);
	}
	for (int d = 0; !o && d < GP_DIRECTIONS; d++)
		if (s->lost[d].known) {
			*event = "codec_error";
			o = lost_json(s, d);
			s->lost[d].known = false;
		}
	return o;
}

/* The older one first; NULL: nothing of so many steps is left. */
static struct set *oldest_due(struct gp_value_log *v, uint64_t steps)
{
	struct set *due = NULL;
	for (int i = 0; i < SETS; i++)
		if (v->set[i].step < steps && (!due || v->set[i].step < due->step))
			due = &v->set[i];
	return due;
}

json_t *gp_value_log_take(struct gp_value_log *v, uint64_t steps, const char **event)
{
	struct set *s;
	json_t *o = NULL;
	if (!v)
		return NULL;
	pthread_mutex_lock(&v->lock);
	while (!o && (s = oldest_due(v, steps))) {
		o = take_next(s, event);
		if (!o)
			s->step = UINT64_MAX;
	}
	pthread_mutex_unlock(&v->lock);
	return o;
}
