/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file of --init says about its weights. See job_init.h.
 * Test: tests/e2e/saved_model.sh
 */
#include "client/job/job_init.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/insert/insert_decay.h"
#include "client/models/models.h"
#include "client/costs/partitions.h"
#include "common/base/log.h"
#include "common/base/spec.h"
#include "common/base/text.h"

#define SKIP_ROOM   2048
#define MODEL_SHOWN 90                  /* characters in a message */
#define NEW_MOST    ((uint64_t)1 << 28) /* numbers of layers that a file leaves out of its own model: 1 GiB */

static const char *prefix_of(enum gp_insert_end end)
{
	static const char *const prefix[GP_INSERT_ENDS] = {GP_INSERT_PREFIX "up.", GP_INSERT_PREFIX "down."};
	return prefix[end];
}

/* Whether --init-skip leaves out what the file has of this end's layers. */
static bool is_skipped(const struct gp_job_settings *set, enum gp_insert_end end)
{
	char name[48];
	snprintf(name, sizeof name, "%sencoder.0.weight", prefix_of(end));
	return set->init_skip && gp_weights_are_skipped(set->init_skip, name);
}

/* Whether the layers of this end are to take the file's weights. */
static bool takes_weights(const struct gp_job *j, const struct gp_job_settings *set, enum gp_insert_end end)
{
	return j->saved.insert[end][0] && j->insertion.end[end].spec.sets > 0 && !is_skipped(set, end);
}

/* At one end at least. */
static bool takes_any(const struct gp_job *j, const struct gp_job_settings *set)
{
	return takes_weights(j, set, GP_INSERT_UP) || takes_weights(j, set, GP_INSERT_DOWN);
}

/* A new classifier is for the classes of the data. Texts are as long as those of the data; the table of positions stays. */
static void take_model(struct gp_job *j, struct gp_job_settings *set)
{
	const bool new_head = set->purpose == GP_JOB_TRAIN && (set->init_skip || j->saved_words != set->masked_words);
	if (new_head) {
		gp_model_spec_drop(j->saved.model, "classes");
		gp_model_spec_drop(j->saved.model, "lm");
	}
	if (new_head || set->data)
		gp_model_spec_drop(j->saved.model, "tokens");
	set->model = j->saved.model;
	j->model_of_file = true;
}

/* Adds lm=1 to the --model of pretrain. */
static enum gp_status ask_for_words(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err)
{
	static const char *const encoders[] = {"roberta", "bert"};
	struct gp_spec spec;
	bool is_encoder = false;
	if (!set->masked_words || !set->model)
		return GP_OK;
	gp_spec_begin(&spec, gp_text_of(set->model));
	for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++)
		is_encoder |= gp_text_is(spec.name, encoders[i]);
	if (!is_encoder)
		GP_FAIL(err, GP_USAGE, "--model %.80s is no masked language model; roberta and bert can be one",
			set->model);
	if (strstr(set->model, ":lm=") || strstr(set->model, ",lm="))
		return GP_OK;
	if (snprintf(j->given, sizeof j->given, "%s%clm=1", set->model, strchr(set->model, ':') ? ',' : ':') >=
	    (int)sizeof j->given)
		GP_FAIL(err, GP_USAGE, "--model %.80s... is too long", set->model);
	set->model = j->given;
	return GP_OK;
}

static enum gp_status read_init(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err)
{
	if (!set->init)
		return GP_OK;
	GP_TRY(gp_saved_model_read(set->init, &j->saved, err));
	j->saved_words = gp_model_guesses_words(j->saved.model);
	if (!set->model && j->saved.model[0])
		take_model(j, set);
	if (!set->data && set->purpose == GP_JOB_INFER && gp_saved_model_data(&j->saved, j->data))
		set->data = j->data;
	j->lines = !set->data && set->purpose == GP_JOB_INFER && set->tokenizer;
	if (j->lines)
		set->data = "lines of text"; /* for messages */
	return GP_OK;
}

enum gp_status gp_job_read_init(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err)
{
	GP_TRY(read_init(j, set, err));
	return ask_for_words(j, set, err);
}

/* The heads that the file and the model do not share, where one of them is a masked language model and the other is not. */
static const char *other_head(const struct gp_job *j)
{
	const bool file = j->saved_words, own = gp_model_guesses_words(j->model);
	if (j->set->purpose != GP_JOB_TRAIN || !j->saved.model[0] || file == own)
		return NULL;
	return strncmp(j->model, "bert", 4) == 0 ? "cls.*,classifier.*,bert.pooler.*" : "lm_head.*,classifier.*";
}

static void tell_of_head(const struct gp_job *j, const struct gp_weights_report *r)
{
	const bool words = gp_model_guesses_words(j->model);
	fprintf(stderr, "%s: %d tensors loaded; its %s is left out\n", j->set->init, r->loaded,
		words ? "classifier" : "head of a masked language model");
	fprintf(stderr, "the %s starts from random weights, drawn from --seed\n",
		words ? "head of the masked language model" : "classifier");
}

/* A file's text may name a model of any size; what it holds bounds what is made for it. What is left out of it, such as a
 * classifier, is new, and has a bound of its own. */
static enum gp_status check_size(const struct gp_job *j, struct gp_err *err)
{
	const uint64_t least = 2; /* bytes of a number, in F16 */
	const uint64_t held = j->saved.file_bytes / least, new_most = held > NEW_MOST ? held : NEW_MOST;
	const char *const skip = j->set->init_skip ? j->set->init_skip : other_head(j);
	uint64_t taken = 0, made = 0;
	if (!j->model_of_file)
		return GP_OK;
	for (int i = 0; i < j->graph->params; i++) {
		const struct gp_param *p = &j->graph->param[i];
		if (!p->follows)
			*(gp_weights_are_skipped(skip, p->name) ? &made : &taken) += p->count;
	}
	if (taken > held)
		GP_FAIL(err, GP_INVALID,
			"%s says that it is a %.*s, which has %llu numbers%s: more than the file can hold",
			j->set->init, MODEL_SHOWN, j->saved.model, (unsigned long long)taken,
			skip ? " beside those that are left out" : "");
	if (made > new_most)
		GP_FAIL(err, GP_INVALID,
			"%s says that it is a %.*s: the layers of it that are left out have %llu numbers, more than "
			"%llu; say --model where that is meant",
			j->set->init, MODEL_SHOWN, j->saved.model, (unsigned long long)made,
			(unsigned long long)new_most);
	return GP_OK;
}

/* The file's model with the names and defaults of this version. */
static enum gp_status settle_saved(const struct gp_job *j, char settled[GP_MODEL_SPEC], struct gp_err *err)
{
	struct gp_graph *g;
	struct gp_model_options o = {.input = j->saved.pictures.shape};
	if (gp_model_build_settled(j->saved.model, &o, &g, settled, err) != GP_OK) {
		err->code = GP_INVALID;
		return gp_err_prefix(err, "%s says that it is a %.*s", j->set->init, MODEL_SHOWN, j->saved.model);
	}
	gp_graph_free(g);
	return GP_OK;
}

static void note(const char *text)
{
	fprintf(stderr, "note: %s\n", text);
}

/* Whether both models have the same cuts=, so that a cut means the same place in both. */
static bool same_blocks(const char *a, const char *b)
{
	const bool fine = strstr(a, "cuts=fine") != NULL;
	return fine == (strstr(b, "cuts=fine") != NULL);
}

static enum gp_status compare_models(const struct gp_job *j, struct gp_err *err)
{
	char saved[GP_MODEL_SPEC], text[GP_ERR_TEXT];
	struct gp_model_difference d;
	if (!j->saved.model[0] || j->model_of_file)
		return GP_OK;
	if (settle_saved(j, saved, err) != GP_OK) {
		if (!j->set->init_anyway)
			return err->code;
		note(err->text);
		return GP_OK;
	}
	gp_model_compare(saved, j->model, &d);
	if (!d.decisive[0] && takes_any(j, j->set) && !same_blocks(saved, j->model))
		GP_FAIL(err, GP_INVALID,
			"%s has insertions at the cut %s of a model that is divided into other blocks than --model: "
			"leave --model out, or give it the cuts= of the file's model",
			j->set->init, j->saved.cut);
	if (!d.decisive[0])
		return GP_OK;
	snprintf(text, sizeof text, "%.80s is of another model than --model: they differ in %s", j->set->init,
		 d.decisive);
	if (!j->set->init_anyway)
		GP_FAIL(err, GP_INVALID, "%s (leave --model out, or --init-anyway): %.*s; %.*s", text, MODEL_SHOWN,
			saved, MODEL_SHOWN, j->model);
	note(text);
	return GP_OK;
}

/* The numbers of tokens mean other words then, whatever the model. */
static enum gp_status compare_tokenizers(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	char text[GP_ERR_TEXT];
	const uint64_t then = j->saved.tokenizer, now = gp_dataset_tokenizer(d);
	if (then == 0 || now == then)
		return GP_OK;
	if (now == 0) {
		snprintf(text, sizeof text,
			 "%.100s was trained on texts; the tokens of --data %.80s are of no tokenizer", j->set->init,
			 j->set->data);
		note(text);
		return GP_OK;
	}
	snprintf(text, sizeof text,
		 "%.100s was trained with another tokenizer (%016" PRIx64 ") than --tokenizer %.80s (%016" PRIx64 ")",
		 j->set->init, then, j->set->tokenizer, now);
	if (!j->set->init_anyway)
		GP_FAIL(err, GP_INVALID,
			"%s: tokens would mean other words; name the one of the training, or --init-anyway", text);
	note(text);
	return GP_OK;
}

static bool same_numbers(const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return false;
	return true;
}

/* Legitimate, but seldom meant when weights are measured, and worth knowing when they are trained on. */
static void compare_pictures(const struct gp_job *j, const struct gp_dataset *d)
{
	struct gp_preparation now;
	const struct gp_preparation *then = &j->saved.pictures;
	char a[64], b[64], text[256];
	gp_dataset_preparation(d, &now);
	if (then->shape.ndim == 0 || now.shape.ndim == 0)
		return;
	const int64_t channels = now.shape.dim[2];
	if (!gp_shape_equal(&then->shape, &now.shape)) {
		snprintf(text, sizeof text,
			 "%.100s was trained on pictures of %s (height, width, channels); here they are %s",
			 j->set->init, gp_shape_text(&then->shape, a, sizeof a),
			 gp_shape_text(&now.shape, b, sizeof b));
		note(text);
	} else if (!same_numbers(then->mean, now.mean, channels) || !same_numbers(then->std, now.std, channels)) {
		snprintf(text, sizeof text,
			 "%.100s was trained with mean %g, std %g of the first channel; here they are %g and %g",
			 j->set->init, (double)then->mean[0], (double)then->std[0], (double)now.mean[0],
			 (double)now.std[0]);
		note(text);
	}
}

/* `infer` shows the file's own labels. */
static void compare_labels(const struct gp_job *j, const struct gp_dataset *d)
{
	char shown[GP_SHOWN];
	const int then = gp_saved_model_labels(&j->saved), now = gp_dataset_classes(d);
	if (then == 0 || j->set->purpose == GP_JOB_INFER || gp_dataset_labels(d) > 0)
		return;
	if (then != now)
		fprintf(stderr, "note: %s was trained on %d class%s; the data has %d\n", j->set->init, then,
			then == 1 ? "" : "es", now);
	for (int i = 0; i < then && then == now; i++) {
		const char *a = gp_saved_model_label(&j->saved, i), *b = gp_dataset_class_name(d, i);
		if (strcmp(a, b) == 0 || strchr(a, '?')) /* '?': a name that could not be written as it was */
			continue;
		fprintf(stderr, "note: class %d is '%s' in the data, but %s was trained with '%s' there\n", i,
			gp_text_shown(gp_text_of(b), shown), j->set->init, a);
		return;
	}
}

enum gp_status gp_job_check_init(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err)
{
	if (!j->set->init)
		return GP_OK;
	GP_TRY(check_size(j, err));
	GP_TRY(compare_models(j, err));
	GP_TRY(compare_tokenizers(j, d, err));
	compare_pictures(j, d);
	compare_labels(j, d);
	return GP_OK;
}

/* --- insertions -------------------------------------------------------------------------------------------------- */

static enum gp_status check_saved(const struct gp_job *j, const char *init, enum gp_insert_end end, struct gp_err *err)
{
	struct gp_insert_spec spec;
	const char *const name = gp_insert_end_name[end];
	char flag[16];
	snprintf(flag, sizeof flag, "insert-%s", name);
	if (gp_insert_spec_parse(j->saved.insert[end], flag, end, &spec, err) == GP_OK)
		return GP_OK;
	err->code = GP_INVALID;
	return gp_err_prefix(err, "%s says of its insertions", init);
}

enum gp_status gp_job_init_insertion(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err)
{
	const char *text[GP_INSERT_ENDS];
	bool of_file[GP_INSERT_ENDS];
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		of_file[e] = !set->insert && !set->insert_end[e] && j->saved.insert[e][0];
		text[e] = of_file[e] ? j->saved.insert[e] : set->insert_end[e];
		if (of_file[e])
			GP_TRY(check_saved(j, set->init, (enum gp_insert_end)e, err));
		j->insertion_of_file = j->insertion_of_file || of_file[e];
	}
	GP_TRY(gp_insertion_parse(set->insert, text[GP_INSERT_UP], text[GP_INSERT_DOWN], &j->insertion, err));
	if (!set->cut && (j->insertion_of_file || takes_any(j, set)))
		set->cut = j->saved.cut;
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		if (of_file[e] && j->saved.steps > 0) /* else its schedule has not begun: insert-fit */
			gp_insert_settle(&j->insertion.end[e].spec, j->saved.steps);
	return GP_OK;
}

/* What a flag may not say is damage in a file. */
static enum gp_status blame_file(const struct gp_job *j, struct gp_err *err)
{
	if (err->code != GP_USAGE && err->code != GP_INVALID)
		return err->code;
	err->code = GP_INVALID;
	return gp_err_prefix(err, "%s says of its insertions", j->set->init);
}

enum gp_status gp_job_read_cut(struct gp_job *j, struct gp_err *err)
{
	struct gp_cut then;
	if (gp_partition_parse(j->graph, j->set->cut, &j->cut, err) != GP_OK)
		return j->set->cut == j->saved.cut ? blame_file(j, err) : err->code;
	if (!takes_any(j, j->set))
		return GP_OK;
	if (gp_partition_parse(j->graph, j->saved.cut, &then, err) != GP_OK)
		return blame_file(j, err);
	if (then.head != j->cut.head || then.tail != j->cut.tail)
		GP_FAIL(err, GP_USAGE,
			"%s has insertions at the cut %s, not %.40s: leave --cut out, or leave their weights out by "
			"--insert none or --init-skip 'insert*'",
			j->set->init, j->saved.cut, j->set->cut);
	return GP_OK;
}

static void warn_of_growth(const struct gp_job *j)
{
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		const struct gp_insertion_end *end = &j->insertion.end[e];
		const uint64_t packed = gp_shape_elements(&end->packed), plain = gp_shape_elements(&end->plain);
		if (end->spec.sets > 0 && packed > plain)
			gp_log(model, GP_LOG_WARN,
			       "--%s makes what goes %s larger: %llu numbers of a sample become %llu", end->flag,
			       gp_insert_end_name[e], (unsigned long long)plain, (unsigned long long)packed);
	}
}

enum gp_status gp_job_put_insertions(struct gp_job *j, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	if (gp_insert(&j->graph, &j->cut, &j->insertion, err) == GP_OK) {
		warn_of_growth(j);
		return GP_OK;
	}
	if (j->insertion_of_file && !s->insert && !s->insert_end[GP_INSERT_UP] && !s->insert_end[GP_INSERT_DOWN])
		return blame_file(j, err);
	return err->code;
}

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool file_has(const struct gp_st_file *f, const char *prefix)
{
	for (int i = 0; i < gp_st_count(f); i++)
		if (has_prefix(gp_st_at(f, i)->name, prefix))
			return true;
	return false;
}

static bool graph_has(const struct gp_graph *g, const char *prefix)
{
	for (int i = 0; i < g->params; i++)
		if (has_prefix(g->param[i].name, prefix))
			return true;
	return false;
}

static void tell_fresh(const struct gp_job *j, const char *end, bool here)
{
	if (here)
		fprintf(stderr, "%s has no weights of --insert-%s: its layers start from new weights\n", j->set->init,
			end);
	else
		fprintf(stderr, "%s has weights of --insert-%s, which are left out\n", j->set->init, end);
}

/* Whether a flag says that there is no insertion at this end. Without one, a file with an insertion that the model lacks is
 * refused like any other file with unknown names. */
static bool left_out(const struct gp_job *j, enum gp_insert_end end)
{
	const struct gp_job_settings *s = j->set;
	return (s->insert || s->insert_end[end]) && j->insertion.end[end].spec.sets == 0;
}

/* Whether the text of the insertion is the file's own. */
static bool is_of_file(const struct gp_job *j, enum gp_insert_end end)
{
	const struct gp_job_settings *s = j->set;
	return j->insertion_of_file && !s->insert && !s->insert_end[end] && j->saved.insert[end][0];
}

/* Other strides, padding or activations would fit the same weights, and compute something else with them. */
static enum gp_status check_alike(const struct gp_job *j, enum gp_insert_end end, struct gp_err *err)
{
	struct gp_insert_spec saved;
	char text[GP_INSERT_TEXT];
	const char *const name = gp_insert_end_name[end];
	if (!takes_weights(j, j->set, end) || is_of_file(j, end))
		return GP_OK;
	GP_TRY(check_saved(j, j->set->init, end, err));
	GP_TRY(gp_insert_spec_parse(j->saved.insert[end], "insert", end, &saved, err));
	if (!gp_insert_specs_alike(&saved, &j->insertion.end[end].spec))
		GP_FAIL(err, GP_USAGE,
			"%.80s has --insert-%s %.60s, not %.60s: leave --%s out to take the file's, or begin with new "
			"layers by --init-skip 'insert_%s*'",
			j->set->init, name, j->saved.insert[end],
			gp_insert_spec_text(&j->insertion.end[end].spec, text), j->insertion.end[end].flag, name);
	return GP_OK;
}

/* The insertions that only one of the graph and the file of --init has, as globs for gp_weights_load_except; "": none. */
static enum gp_status find_fresh(struct gp_job *j, char *globs, size_t size, struct gp_err *err)
{
	struct gp_st_file *f;
	globs[0] = '\0';
	GP_TRY(gp_st_open(j->set->init, &f, err));
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		const char *const end = gp_insert_end_name[e], *const prefix = prefix_of((enum gp_insert_end)e);
		const bool here = graph_has(j->graph, prefix), there = file_has(f, prefix);
		j->insertion_loaded[e] = here && there && !is_skipped(j->set, (enum gp_insert_end)e);
		if (here && !there && is_of_file(j, (enum gp_insert_end)e)) {
			gp_st_close(f);
			GP_FAIL(err, GP_INVALID,
				"%s says that it has an insertion (gpsplit.insert_%s), but not its weights",
				j->set->init, end);
		}
		if (here == there || (there && !left_out(j, (enum gp_insert_end)e)))
			continue;
		gp_text_append(globs, size, "%s%s*", globs[0] ? "," : "", prefix);
		tell_fresh(j, end, here);
	}
	gp_st_close(f);
	return GP_OK;
}

/* As check_size: a text of a few bytes may say layers of any size. */
static enum gp_status check_insertion_size(const struct gp_job *j, struct gp_err *err)
{
	const uint64_t least = 2; /* bytes of a number, in F16 */
	for (int e = 0; e < GP_INSERT_ENDS; e++) {
		const char *const prefix = prefix_of((enum gp_insert_end)e);
		uint64_t count = 0;
		if (!j->insertion_of_file || j->set->insert || j->set->insert_end[e])
			continue;
		for (int i = 0; i < j->graph->params; i++)
			count += has_prefix(j->graph->param[i].name, prefix) ? j->graph->param[i].count : 0;
		if (count > j->saved.file_bytes / least)
			GP_FAIL(err, GP_INVALID,
				"%s says that it has insertions of %llu numbers: more than the file can hold",
				j->set->init, (unsigned long long)count);
	}
	return GP_OK;
}

static void note_untied(const struct gp_job *j, const struct gp_weights_report *r)
{
	const struct gp_graph *g = j->graph;
	if (r->untied)
		fprintf(stderr,
			"note: '%s' of %s differs from '%s'; here they share their values, those of the second\n",
			g->param[g->tied[1]].name, j->set->init, g->param[g->tied[0]].name);
}

static bool takes_by_flag(const struct gp_job *j, enum gp_insert_end end)
{
	return takes_weights(j, j->set, end) && !is_of_file(j, end);
}

/* Such as the pooler of Hugging Face's files, which their own classes leave out. */
static enum gp_status load_all(struct gp_job *j, struct gp_err *err)
{
	struct gp_weights_report r = {0};
	if (gp_weights_load(j->init, j->set->init, true, &r, err) == GP_OK) {
		note_untied(j, &r);
		return GP_OK;
	}
	if (r.loaded > 0 && !r.mismatched && (r.unexpected || r.missing))
		gp_err_prefix(err, "--init (--init-skip PATTERN leaves tensors out)");
	else if (r.mismatched && (takes_by_flag(j, GP_INSERT_UP) || takes_by_flag(j, GP_INSERT_DOWN)))
		gp_err_prefix(err, "--init (without --insert it brings its own insertions with it; --init-skip "
				   "'insert*' begins with new ones)");
	return err->code;
}

/* Numbers that are not finite would make the first loss such a number, and nobody would know where they came from. */
static enum gp_status check_finite(const struct gp_job *j, struct gp_err *err)
{
	for (int i = 0; i < j->graph->params; i++) {
		const struct gp_param *p = &j->graph->param[i];
		for (uint64_t k = 0; k < p->count; k++) {
			const float x = j->init->value[i][k];
			if (!isfinite(x) || (p->role == GP_PARAM_RUNNING_VAR && x < 0))
				GP_FAIL(err, GP_INVALID, "%s: '%s' holds %s (element %llu)", j->set->init, p->name,
					isfinite(x) ? "a negative variance" : "a number that is not finite",
					(unsigned long long)k);
		}
	}
	return GP_OK;
}

static enum gp_status load_init(struct gp_job *j, struct gp_err *err)
{
	const struct gp_job_settings *s = j->set;
	const char *const head = s->init_skip ? s->init_skip : other_head(j);
	struct gp_weights_report report;
	char fresh[64], skip[SKIP_ROOM];
	GP_TRY(check_insertion_size(j, err));
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		GP_TRY(check_alike(j, (enum gp_insert_end)e, err));
	GP_TRY(gp_weights_new(j->graph, &j->init, err));
	GP_TRY(find_fresh(j, fresh, sizeof fresh, err));
	if (!head && !fresh[0])
		return load_all(j, err);
	if (snprintf(skip, sizeof skip, "%s%s%s", head ? head : "", head && fresh[0] ? "," : "", fresh) >= SKIP_ROOM)
		GP_FAIL(err, GP_USAGE, "--init-skip has more than %d characters", SKIP_ROOM - 64);
	gp_weights_init(j->init, (uint64_t)s->seed);
	GP_TRY(gp_weights_load_except(j->init, s->init, skip, &report, err));
	note_untied(j, &report);
	if (s->init_skip && fresh[0]) /* whose names would be in the list, too */
		fprintf(stderr, "%s: %d tensors loaded, left out: what --init-skip %.200s names\n", s->init,
			report.loaded, s->init_skip);
	else if (s->init_skip)
		fprintf(stderr, "%s: %d tensors loaded, left out: %s\n", s->init, report.loaded, report.skipped_names);
	else if (head)
		tell_of_head(j, &report);
	return GP_OK;
}

enum gp_status gp_job_load_init(struct gp_job *j, struct gp_err *err)
{
	GP_TRY(load_init(j, err));
	return check_finite(j, err);
}
