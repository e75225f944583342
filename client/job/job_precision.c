/* SPDX-License-Identifier: Apache-2.0
 *
 * See job_precision.h. Test: tests/e2e/precision.sh
 */
#include "client/job/job_precision.h"

#include <string.h>

#include "common/store/checkpoint.h"

/* GP_PRECISIONS: it names none. */
static enum gp_precision named(const struct gp_pairs *spec, const char *key)
{
	const char *text = gp_pairs_find(spec, key);
	int p = 0;
	while (p < GP_PRECISIONS && (!text || strcmp(text, gp_precision_name((enum gp_precision)p)) != 0))
		p++;
	return (enum gp_precision)p;
}

static void keep(struct gp_job_settings *set, const struct gp_pairs *spec)
{
	const enum gp_precision body = named(spec, "precision"), client = named(spec, "client-precision");
	if (body == GP_PRECISIONS)
		return;
	set->precision = (int)body;
	if (set->client_precision == GP_CLIENT_PRECISION_AUTO && client != GP_PRECISIONS)
		set->client_precision = GP_CLIENT_PRECISION_AUTO + 1 + (int)client;
}

enum gp_status gp_job_keep_precision(struct gp_job_settings *set, const char *dir, struct gp_err *err)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count;
	GP_TRY(gp_checkpoint_list(dir, step, &count, err));
	for (int i = 0; i < count && set->precision == GP_PRECISION_AUTO; i++) {
		struct gp_manifest m;
		struct gp_err damage; /* gp_run_state_open tells */
		if (gp_checkpoint_peek(dir, step[i], &m, &damage) != GP_OK)
			continue;
		keep(set, &m.spec);
		gp_manifest_deinit(&m);
	}
	return GP_OK;
}

/* " (fp32 31.2 ms a chunk, bf16 22.5 ms)" */
static const char *tried(const struct gp_precision_trial *trial, char text[GP_PRECISION_TRIAL_TEXT + 16])
{
	char times[GP_PRECISION_TRIAL_TEXT];
	gp_precision_trial_text(trial, times);
	if (times[0])
		snprintf(text, GP_PRECISION_TRIAL_TEXT + 16, " (%s a chunk)", times);
	else
		snprintf(text, GP_PRECISION_TRIAL_TEXT + 16, " (there is no other)");
	return text;
}

static void tell(const struct gp_job *j)
{
	const struct gp_engine_choice *c = &j->engine->choice;
	const char *body = gp_precision_name(j->session.precision), *client = gp_precision_name(j->client_precision);
	char text[GP_PRECISION_TRIAL_TEXT + 16];
	if (j->set->local) {
		fprintf(stderr, "--precision auto: %s%s; --precision %s repeats the run\n", body, tried(&c->body, text),
			body);
		return;
	}
	fprintf(stderr, "--precision auto: %s on the server%s", body, tried(&c->body, text));
	fprintf(stderr, ", %s here%s", client, c->client_made ? tried(&c->client, text) : "");
	fprintf(stderr, "; --precision %s --client-precision %s repeats the run\n", body, client);
}

void gp_job_take_precision(struct gp_job *j)
{
	if (!j->session.choose_precision)
		return;
	j->session.choose_precision = false;
	j->session.precision = j->engine->spec.session.precision;
	j->client_precision = j->set->local ? j->session.precision : j->engine->spec.client_precision;
	tell(j);
}
