/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run is. See run_spec.h.
 */
#include "client/job/run_spec.h"

#include <inttypes.h>
#include <string.h>

#include "client/costs/partitions.h"
#include "client/job/compress.h"
#include "common/wire/graph_msg.h"

enum { VALUE_ROOM = GP_MANIFEST_VALUE + 2 }; /* what is cut off here is refused */

/* What could not be read again. */
static enum gp_status check_value(const char *key, const char *value, struct gp_err *err)
{
	char shown[GP_SHOWN];
	if (!gp_manifest_takes(value))
		GP_FAIL(err, GP_USAGE,
			"--checkpoint keeps the settings of a run as text, and %s '%s' has a control character, is not "
			"UTF-8 or "
			"has more than %d bytes; rename it, or give a link to it",
			key, gp_text_shown(gp_text_of(value), shown), GP_MANIFEST_VALUE);
	return GP_OK;
}

enum gp_status gp_run_spec_add(struct gp_run_spec *s, const char *key, const char *value, struct gp_err *err)
{
	GP_TRY(check_value(key, value, err));
	char *copy = gp_strdup(value);
	if (!copy)
		GP_FAIL(err, GP_NOMEM, "out of memory for a run");
	gp_pairs_add(&s->pairs, key, copy);
	return GP_OK;
}

enum gp_status gp_run_spec_set(struct gp_run_spec *s, const char *key, const char *value, struct gp_err *err)
{
	for (int i = 0; i < s->pairs.count; i++) {
		if (strcmp(s->pairs.pair[i].key, key) != 0)
			continue;
		char *copy = gp_strdup(value);
		if (!copy)
			GP_FAIL(err, GP_NOMEM, "out of memory for a run");
		gp_free((char *)s->pairs.pair[i].value);
		s->pairs.pair[i].value = copy;
	}
	return GP_OK;
}

enum gp_status gp_run_spec_add_flag(struct gp_run_spec *s, const struct gp_opt_table *t, const void *settings,
				    const char *name, struct gp_err *err)
{
	char text[VALUE_ROOM];
	gp_options_text(t, settings, name, text, sizeof text);
	return gp_run_spec_add(s, name, text, err);
}

/* A local run has neither a cut nor codecs nor a second precision. That one as it was settled, not "auto": another
 * machine may settle it otherwise, and would go on with other arithmetic. */
static enum gp_status add_split(struct gp_run_spec *s, const struct gp_job *j, struct gp_err *err)
{
	char cut[64] = "none (--local)";
	if (!j->set->local)
		snprintf(cut, sizeof cut, "%d:%d", j->cut.head, j->cut.tail - j->graph->blocks);
	GP_TRY(gp_run_spec_add(s, "cut", cut, err));
	GP_TRY(gp_run_spec_add(s, "client-precision", j->set->local ? "" : gp_precision_name(j->client_precision),
			       err));
	for (int i = 0; i < 4; i++)
		GP_TRY(gp_run_spec_add(s, gp_job_codec_flags[i],
				       j->set->local         ? ""
				       : j->codec_auto[i].on ? j->codec_auto[i].text
							     : j->session.codec[i].text,
				       err));
	return GP_OK;
}

/* As settled: from the file of --init, too, with the cut where they stand, which a local run has as well. Runs without any
 * are the same as those of versions that knew none. */
static enum gp_status add_insertion(struct gp_run_spec *s, const struct gp_job *j, struct gp_err *err)
{
	static const char *const flag[GP_INSERT_ENDS] = {"insert-up", "insert-down"};
	char text[GP_INSERT_TEXT], cut[24];
	if (!gp_insertion_any(&j->insertion))
		return GP_OK;
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		GP_TRY(gp_run_spec_add(s, flag[e], gp_insert_spec_text(&j->insertion.end[e].spec, text), err));
	return gp_run_spec_add(s, "insert-cut", gp_partition_text(j->graph, &j->cut, cut), err);
}

/* Which maps are kept, and which of their gradients are coded, and so the result, depends on the cut of a local run, too. Runs
 * without are those of versions that knew none. */
static enum gp_status add_compression(struct gp_run_spec *s, const struct gp_job *j, struct gp_err *err)
{
	char text[GP_COMPRESS_TEXT], cut[24];
	if (!gp_compress_text(&j->session, text)[0])
		return GP_OK;
	GP_TRY(gp_run_spec_add(s, "compress", text, err));
	if (j->session.maps.stages == 0 && j->session.coded[GP_STRUCT_GRAD_MAPS].stages == 0)
		return GP_OK;
	return gp_run_spec_add(s, "compress-cut", gp_partition_text(j->graph, &j->cut, cut), err);
}

enum gp_status gp_run_spec_add_job(struct gp_run_spec *s, const struct gp_job *j, struct gp_err *err)
{
	char text[GP_SHA256_HEX] = "drawn";
	uint64_t hash;
	GP_TRY(add_split(s, j, err));
	GP_TRY(add_insertion(s, j, err));
	GP_TRY(add_compression(s, j, err));
	if (j->init)
		GP_TRY(gp_weights_sha256(j->init, text, err));
	GP_TRY(gp_run_spec_add(s, "init", text, err));
	GP_TRY(gp_graph_hash(j->graph, &hash, err));
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	return gp_run_spec_add(s, "graph", text, err);
}

void gp_run_spec_deinit(struct gp_run_spec *s)
{
	for (int i = 0; i < s->pairs.count; i++)
		gp_free((char *)s->pairs.pair[i].value);
	*s = (struct gp_run_spec){0};
}
