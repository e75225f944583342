/* SPDX-License-Identifier: Apache-2.0
 *
 * See eval_metrics.h. Test: tests/unit/test_eval_metrics.c
 */
#include "client/engine/eval_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/log/figures.h"
#include "common/base/mem.h"
#include "common/base/text.h"

static enum gp_status take(void *out, size_t count, size_t size, struct gp_err *err)
{
	void *memory;
	GP_TRY(gp_alloc_array(&memory, count, size, err));
	memcpy(out, &memory, sizeof memory);
	return GP_OK;
}

static enum gp_status allocate(struct gp_metrics *m, struct gp_err *err)
{
	if (m->words)
		return GP_OK;
	if (!m->values) {
		GP_TRY(take(&m->labelled, (size_t)m->outputs, sizeof *m->labelled, err));
		return take(&m->predicted, (size_t)m->outputs, sizeof *m->predicted, err);
	}
	GP_TRY(take(&m->label, m->room, sizeof *m->label, err));
	GP_TRY(take(&m->value, m->room, sizeof *m->value, err));
	GP_TRY(take(&m->order, m->room, sizeof *m->order, err));
	GP_TRY(take(&m->rank[0], m->room, sizeof *m->rank[0], err));
	return take(&m->rank[1], m->room, sizeof *m->rank[1], err);
}

enum gp_status gp_metrics_init(struct gp_metrics *m, const struct gp_dataset *d, int outputs, struct gp_err *err)
{
	*m = (struct gp_metrics){.outputs = outputs,
				 .values = gp_dataset_has_values(d),
				 .words = gp_dataset_labels(d) > 0,
				 .room = gp_dataset_samples(d)};
	gp_require(outputs >= 1 && (!m->values || outputs == 1));
	const enum gp_status status = allocate(m, err);
	if (status != GP_OK)
		gp_metrics_deinit(m);
	return status;
}

void gp_metrics_deinit(struct gp_metrics *m)
{
	gp_free(m->labelled);
	gp_free(m->predicted);
	gp_free(m->label);
	gp_free(m->value);
	gp_free(m->order);
	gp_free(m->rank[0]);
	gp_free(m->rank[1]);
	*m = (struct gp_metrics){0};
}

void gp_metrics_begin(struct gp_metrics *m)
{
	m->samples = m->correct = 0;
	if (m->values || m->words)
		return;
	memset(m->labelled, 0, (size_t)m->outputs * sizeof *m->labelled);
	memset(m->predicted, 0, (size_t)m->outputs * sizeof *m->predicted);
}

/* The first of the largest, as the loss takes it. */
static int largest(const float *x, int n)
{
	int best = 0;
	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

static void add_classes(struct gp_metrics *m, const float *rows, const int32_t *labels, int valid)
{
	for (int i = 0; i < valid; i++) {
		const int best = largest(rows + (size_t)i * (size_t)m->outputs, m->outputs);
		gp_require(labels[i] >= 0 && labels[i] < m->outputs); /* the loss has refused others */
		m->labelled[labels[i]]++;
		m->predicted[best]++;
		m->correct += best == labels[i];
	}
}

void gp_metrics_add(struct gp_metrics *m, const float *rows, const void *labels, int valid)
{
	if (m->words)
		return;
	if (m->values) {
		gp_require(m->samples + (uint64_t)valid <= m->room);
		memcpy(m->label + m->samples, labels, (size_t)valid * sizeof *m->label);
		memcpy(m->value + m->samples, rows, (size_t)valid * sizeof *m->value);
	} else {
		add_classes(m, rows, labels, valid);
	}
	m->samples += (uint64_t)valid;
}

double gp_metrics_matthews(const struct gp_metrics *m)
{
	const double s = (double)m->samples, c = (double)m->correct;
	double both = 0, labels = 0, predictions = 0;
	if (m->values)
		return NAN;
	for (int i = 0; i < m->outputs; i++) {
		const double t = (double)m->labelled[i], p = (double)m->predicted[i];
		both += t * p;
		labels += t * t;
		predictions += p * p;
	}
	const double below = (s * s - labels) * (s * s - predictions);
	return below > 0 ? (c * s - both) / sqrt(below) : 0;
}

static double mean_of(const double *x, uint64_t n)
{
	double sum = 0;
	for (uint64_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

/* Means first, then products of what is off them: no digits are lost where values are far from 0. */
static double correlation(const double *x, const double *y, uint64_t n)
{
	double xx = 0, yy = 0, xy = 0;
	if (n < 2)
		return 0;
	const double mx = mean_of(x, n), my = mean_of(y, n);
	for (uint64_t i = 0; i < n; i++) {
		const double a = x[i] - mx, b = y[i] - my;
		xx += a * a;
		yy += b * b;
		xy += a * b;
	}
	if (!(xx > 0 && yy > 0))
		return 0;
	return fmax(-1, fmin(1, xy / (sqrt(xx) * sqrt(yy))));
}

static bool has_values(const struct gp_metrics *m)
{
	for (uint64_t i = 0; m->values && i < m->samples; i++)
		if (!isfinite(m->value[i]))
			return false;
	return m->values;
}

double gp_metrics_pearson(struct gp_metrics *m)
{
	if (!has_values(m))
		return NAN;
	for (uint64_t i = 0; i < m->samples; i++) {
		m->rank[0][i] = (double)m->label[i];
		m->rank[1][i] = (double)m->value[i];
	}
	return correlation(m->rank[0], m->rank[1], m->samples);
}

static int compare_values(const void *a, const void *b, void *arg)
{
	const float *v = arg;
	const float x = v[*(const uint32_t *)a], y = v[*(const uint32_t *)b];
	return (x > y) - (x < y);
}

/* Ranks from 1 on; equal values share the mean of theirs. */
static void rank_values(struct gp_metrics *m, float *v, double *rank)
{
	const uint32_t n = (uint32_t)m->samples;
	for (uint32_t i = 0; i < n; i++)
		m->order[i] = i;
	qsort_r(m->order, n, sizeof *m->order, compare_values, v);
	for (uint32_t from = 0, to; from < n; from = to) {
		for (to = from + 1; to < n && v[m->order[to]] == v[m->order[from]];)
			to++;
		for (uint32_t i = from; i < to; i++)
			rank[m->order[i]] = ((double)from + 1 + (double)to) / 2;
	}
}

double gp_metrics_spearman(struct gp_metrics *m)
{
	if (!has_values(m))
		return NAN;
	rank_values(m, m->label, m->rank[0]);
	rank_values(m, m->value, m->rank[1]);
	return correlation(m->rank[0], m->rank[1], m->samples);
}

/* --- the figures of an evaluation --------------------------------------------------------------------------------- */

static double share(double sum, uint64_t of)
{
	return of ? sum / (double)of : NAN;
}

struct gp_scores gp_scores_of(struct gp_metrics *m, bool values, double loss_sum, uint64_t correct, uint64_t samples)
{
	struct gp_scores s = {.loss = share(loss_sum, samples),
			      .acc = values ? NAN : share((double)correct, samples),
			      .matthews = NAN,
			      .pearson = NAN,
			      .spearman = NAN,
			      .perplexity = m && m->words ? exp(share(loss_sum, samples)) : NAN};
	if (!m || m->words || m->samples != samples)
		return s;
	s.matthews = gp_metrics_matthews(m);
	s.pearson = gp_metrics_pearson(m);
	s.spearman = gp_metrics_spearman(m);
	return s;
}

json_t *gp_scores_json(json_t *object, const struct gp_scores *s)
{
	if (!object)
		return NULL;
	json_object_set_new(object, "val_loss", gp_json_number(s->loss));
	json_object_set_new(object, "val_acc", gp_json_number(s->acc));
	json_object_set_new(object, "val_mcc", gp_json_number(s->matthews));
	json_object_set_new(object, "val_pearson", gp_json_number(s->pearson));
	json_object_set_new(object, "val_spearman", gp_json_number(s->spearman));
	json_object_set_new(object, "val_perplexity", gp_json_number(s->perplexity));
	return object;
}

const char *gp_scores_text(const struct gp_scores *s, bool matthews, char text[GP_SCORES_TEXT])
{
	text[0] = '\0';
	if (isfinite(s->acc))
		gp_text_append(text, GP_SCORES_TEXT, "accuracy %.2f %%", 100 * s->acc);
	if (matthews && isfinite(s->matthews))
		gp_text_append(text, GP_SCORES_TEXT, ", Matthews correlation %.4f", s->matthews);
	if (isfinite(s->perplexity))
		gp_text_append(text, GP_SCORES_TEXT, ", perplexity %.2f", s->perplexity);
	if (isfinite(s->pearson))
		gp_text_append(text, GP_SCORES_TEXT, "Pearson correlation %.4f, Spearman %.4f", s->pearson,
			       s->spearman);
	return text;
}

const char *gp_scores_and_loss(const struct gp_scores *s, bool matthews, char text[GP_SCORES_TEXT])
{
	gp_scores_text(s, matthews, text);
	gp_text_append(text, GP_SCORES_TEXT, "%sloss %.4f", text[0] ? ", " : "", s->loss);
	return text;
}
